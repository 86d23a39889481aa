//! Programs on a device: compile, serialize, load, run.

use std::path::Path;
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::ffi::{
    CompileArgs, CostAnalysisArgs, DeserializeArgs, ExecutableArgs, ExecutableCountArgs, ExecutableDevicesArgs,
    ExecuteArgs, ExecuteOptions, GetExecutableArgs, LoadedExecutableArgs, MemoryStatsArgs, OptimizedProgramArgs,
    ProgramStruct, RawBuffer, RawEvent, RawExecutable, RawLoadedExecutable, SerializeArgs,
};
use super::plugin::{Buffer, Client, PjrtError, Plugin, call, number_of_value, taken};
use crate::outside_file;
use crate::timer::protocol::{CostAnalysis, MemoryStats};

/// Largest optimized program whose signature is read; real ones are far smaller.
const MAX_PROGRAM_BYTES: usize = 1 << 30;

/// A compiled program that is not loaded on a device.
pub(super) struct PlainExecutable {
    plugin: Rc<Plugin>,
    raw: *mut RawExecutable,
}

impl PlainExecutable {
    /// Takes ownership of an executable returned by a plugin.
    pub(super) fn adopt(plugin: &Rc<Plugin>, raw: *mut RawExecutable) -> Self {
        Self { plugin: Rc::clone(plugin), raw }
    }

    /// The executable's bytes; some plugins do not implement this.
    pub(super) fn serialize(&self) -> Result<Vec<u8>, PjrtError> {
        let mut arguments = SerializeArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive; the plugin gives the bytes with their owner.
        unsafe {
            call!(self.plugin, executable_serialize, &mut arguments)?;
            Ok(taken(arguments.bytes, arguments.bytes_size, arguments.owner, arguments.deleter))
        }
    }

    /// The optimized program and its format: `hlo` or `hlo_with_config`.
    pub(super) fn optimized_program(&self) -> Result<(Vec<u8>, String), PjrtError> {
        let mut program = ProgramStruct::new();
        let mut arguments = OptimizedProgramArgs::new();
        arguments.executable = self.raw;
        arguments.program = &raw mut program;
        // SAFETY: without a place for the code the plugin tells its size alone.
        unsafe { call!(self.plugin, executable_optimized_program, &mut arguments) }?;
        if program.code_size > MAX_PROGRAM_BYTES {
            return Err(PjrtError::local(format!("an optimized program of {} bytes", program.code_size)));
        }
        let mut code = vec![0_u8; program.code_size];
        program.code = code.as_mut_ptr().cast();
        arguments.program = &raw mut program;
        // SAFETY: the place has the size asked for; the format's text lives as long as the plugin.
        let format = unsafe {
            call!(self.plugin, executable_optimized_program, &mut arguments)?;
            if program.format.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(program.format.cast::<u8>(), program.format_size)
            }
        };
        Ok((code, String::from_utf8_lossy(format).into_owned()))
    }

    /// Number of outputs on each device.
    pub(super) fn outputs(&self) -> Result<usize, PjrtError> {
        let mut arguments = ExecutableCountArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive; a number is written.
        unsafe { call!(self.plugin, executable_num_outputs, &mut arguments) }?;
        Ok(arguments.count)
    }

    /// Number of devices that it runs on: one for each partition.
    pub(super) fn devices(&self) -> Result<usize, PjrtError> {
        let mut arguments = ExecutableCountArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive; a number is written.
        match unsafe { call!(self.plugin, executable_num_partitions, &mut arguments) } {
            Ok(()) => Ok(arguments.count.max(1)),
            // a plugin that does not implement the count has one partition
            Err(error) if error.is_unimplemented() => Ok(1),
            Err(error) => Err(error),
        }
    }

    /// The compiler's cost analysis of a run; `None` if it has none, unimplemented in some plugins.
    pub(super) fn cost(&self) -> Result<Option<CostAnalysis>, PjrtError> {
        let mut arguments = CostAnalysisArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive and owns the properties, which are copied.
        let properties: Vec<(String, f64)> = unsafe {
            call!(self.plugin, executable_cost_analysis, &mut arguments)?;
            if arguments.properties.is_null() {
                return Ok(None);
            }
            let properties = std::slice::from_raw_parts(arguments.properties, arguments.num_properties);
            properties.iter().filter_map(|property| number_of_value(property)).collect()
        };
        Ok(CostAnalysis::of(&properties))
    }

    /// Device memory of a run in bytes; some plugins do not implement this.
    pub(super) fn memory(&self) -> Result<MemoryStats, PjrtError> {
        let mut arguments = MemoryStatsArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive; numbers are written, no pointers.
        unsafe { call!(self.plugin, executable_memory_stats, &mut arguments) }?;
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        Ok(MemoryStats::new(bytes(arguments.argument), bytes(arguments.output), bytes(arguments.temporary))
            .code_bytes(bytes(arguments.generated_code))
            .alias_bytes(bytes(arguments.alias))
            .peak_bytes(bytes(arguments.peak)))
    }
}

impl Drop for PlainExecutable {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let mut arguments = ExecutableArgs::new();
        arguments.executable = self.raw;
        // SAFETY: it belongs to this owner alone.
        let _ = unsafe { call!(self.plugin, executable_destroy, &mut arguments) };
    }
}

/// A compiled program, loaded on its devices.
pub(super) struct Executable {
    client: Rc<Client>,
    loaded: *mut RawLoadedExecutable,
    plain: PlainExecutable,
    /// Outputs on each device.
    outputs: usize,
    /// Number of devices that it runs on: one for each partition.
    devices: usize,
}

/// Space for the results of a run.
struct OutputSlots {
    /// The outputs of the first device, then those of the second.
    outputs: Vec<*mut RawBuffer>,
    /// For each device, where its outputs begin.
    lists: Vec<*mut *mut RawBuffer>,
    /// For each device, the event that signals completion.
    events: Vec<*mut RawEvent>,
}

impl Executable {
    /// Compiles a program; `options` is a serialized `CompileOptionsProto`.
    pub(super) fn compile(client: &Rc<Client>, code: &[u8], format: &str, options: &[u8]) -> Result<Self, PjrtError> {
        let program = ProgramStruct::of(code, format);
        let mut arguments = CompileArgs::new();
        arguments.client = client.raw;
        arguments.program = &raw const program;
        arguments.compile_options = options.as_ptr().cast();
        arguments.compile_options_size = options.len();
        // SAFETY: program and options outlive the call; the plugin does not write to the code.
        unsafe { call!(client.plugin, client_compile, &mut arguments) }?;
        Self::adopt(client, arguments.executable)
    }

    /// Loads the bytes of [`serialize`](PlainExecutable::serialize) in a compatible process. `options`, a serialized
    /// `CompileOptionsProto`, replaces the options of the compilation, and with them the devices; empty options do not.
    pub(super) fn deserialize(client: &Rc<Client>, bytes: &[u8], options: &[u8]) -> Result<Self, PjrtError> {
        let mut arguments = DeserializeArgs::new();
        arguments.client = client.raw;
        arguments.bytes = bytes.as_ptr().cast();
        arguments.bytes_size = bytes.len();
        if !options.is_empty() {
            arguments.overridden_options = options.as_ptr().cast();
            arguments.overridden_options_size = options.len();
        }
        // SAFETY: the bytes and options outlive the call.
        unsafe { call!(client.plugin, executable_deserialize_and_load, &mut arguments) }?;
        Self::adopt(client, arguments.loaded_executable)
    }

    fn adopt(client: &Rc<Client>, loaded: *mut RawLoadedExecutable) -> Result<Self, PjrtError> {
        let plain = PlainExecutable { plugin: Rc::clone(&client.plugin), raw: ptr::null_mut() };
        let mut executable = Self { client: Rc::clone(client), loaded, plain, outputs: 0, devices: 1 };
        let mut plain = GetExecutableArgs::new();
        plain.loaded_executable = loaded;
        // SAFETY: the loaded executable is alive; the plain one is ours to destroy.
        unsafe { call!(client.plugin, loaded_executable_get_executable, &mut plain) }?;
        executable.plain.raw = plain.executable;
        executable.outputs = executable.plain.outputs()?;
        executable.devices = executable.plain.devices()?;
        if executable.devices > client.device_count() {
            let count = client.device_count();
            return Err(PjrtError::local(format!("{} partitions for {count} devices", executable.devices)));
        }
        Ok(executable)
    }

    /// Number of devices that it runs on.
    pub(super) fn devices(&self) -> usize {
        self.devices
    }

    /// Number of outputs on each device.
    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Whether it runs on consecutive devices from `first` on. An executable that was compiled for other devices, or without
    /// one, would send its arguments elsewhere.
    pub(super) fn is_on(&self, first: usize) -> Result<bool, PjrtError> {
        let expected = (first..first.saturating_add(self.devices)).map(|index| self.client.device(index));
        let expected = expected.collect::<Result<Vec<_>, _>>()?;
        let mut arguments = ExecutableDevicesArgs::new();
        arguments.executable = self.loaded;
        // SAFETY: the executable is alive and owns the list, which is compared at once.
        let is_expected = unsafe {
            call!(self.client.plugin, loaded_executable_addressable_devices, &mut arguments).map(|()| {
                !arguments.devices.is_null()
                    && std::slice::from_raw_parts(arguments.devices, arguments.num_devices) == expected.as_slice()
            })
        };
        match is_expected {
            // a plugin that does not implement this has one device
            Err(error) if error.is_unimplemented() && self.devices == 1 => Ok(true),
            is_expected => is_expected,
        }
    }

    /// The executable without its devices.
    pub(super) fn plain(&self) -> &PlainExecutable {
        &self.plain
    }

    /// Runs once. Returns the outputs, the first device's first, and the time from launch until the last device is done.
    /// Completion is polled for up to `watched`.
    pub(super) fn run(&self, call: &Call<'_>, watched: Duration) -> Result<(Vec<Buffer>, Duration), PjrtError> {
        let mut slots = self.slots();
        let start = Instant::now();
        let result = self.launch(call, &mut slots, watched);
        let elapsed = start.elapsed();
        let outputs = self.taken(&mut slots).collect();
        result.map(|()| (outputs, elapsed))
    }

    /// Runs `batch` times, each to completion, and times them together. There is one call for each run, or one for all. Outputs
    /// that are not kept until the end are freed between runs, as a program does in a loop.
    pub(super) fn run_batch(
        &self,
        calls: &[Call<'_>],
        batch: u32,
        keeps_outputs: bool,
        watched: Duration,
    ) -> Result<Duration, PjrtError> {
        let batch = batch as usize;
        let mut slots_of_runs: Vec<OutputSlots> =
            (0..if keeps_outputs { batch } else { 1 }).map(|_| self.slots()).collect();
        let mut result = Ok(());
        let start = Instant::now();
        for (run, call) in calls.iter().cycle().take(batch).enumerate() {
            let place = if keeps_outputs { run } else { 0 };
            let Some(slots) = slots_of_runs.get_mut(place) else { break };
            result = self.launch(call, slots, watched);
            if !keeps_outputs {
                self.taken(slots).for_each(drop);
            }
            if result.is_err() {
                break;
            }
        }
        let elapsed = start.elapsed();
        slots_of_runs.iter_mut().for_each(|slots| self.taken(slots).for_each(drop));
        result.map(|()| elapsed)
    }

    /// Allocates space for the results of one run.
    fn slots(&self) -> OutputSlots {
        OutputSlots {
            outputs: vec![ptr::null_mut(); self.devices.saturating_mul(self.outputs)],
            lists: vec![ptr::dangling_mut(); self.devices],
            events: vec![ptr::null_mut(); self.devices],
        }
    }

    /// Takes a run's outputs out of the space.
    fn taken(&self, slots: &mut OutputSlots) -> impl Iterator<Item = Buffer> {
        let taken = slots.outputs.iter_mut().map(|raw| std::mem::replace(raw, ptr::null_mut()));
        taken.filter(|raw| !raw.is_null()).map(|raw| Buffer { client: Rc::clone(&self.client), raw })
    }

    /// Runs once and waits until the last device is done, polling for up to `watched`; the space comes from
    /// [`slots`](Self::slots).
    fn launch(&self, call: &Call<'_>, slots: &mut OutputSlots, watched: Duration) -> Result<(), PjrtError> {
        if call.lists.len() != self.devices {
            let message = format!("arguments on {} devices for a program of {}", call.lists.len(), self.devices);
            return Err(PjrtError::local(message));
        }
        for (list, outputs) in slots.lists.iter_mut().zip(slots.outputs.chunks_mut(self.outputs.max(1))) {
            *list = outputs.as_mut_ptr();
        }
        slots.events.fill(ptr::null_mut());
        let mut options = ExecuteOptions::new();
        options.non_donatable_input_indices = call.kept.as_ptr();
        options.num_non_donatable_input_indices = call.kept.len();
        let mut arguments = ExecuteArgs::new();
        arguments.executable = self.loaded;
        arguments.options = &raw mut options;
        arguments.argument_lists = call.lists.as_ptr();
        arguments.num_devices = self.devices;
        arguments.num_args = call.count;
        arguments.output_lists = slots.lists.as_ptr();
        arguments.device_complete_events = slots.events.as_mut_ptr();
        // SAFETY: the lists and the events have one entry for each device, the lists as long as the program's arguments (the
        // caller checked the signature) and outputs, and all outlive the events awaited below.
        unsafe { call!(self.client.plugin, loaded_executable_execute, &mut arguments) }?;
        let mut result = Ok(());
        for &event in &slots.events {
            self.client.plugin.watch_event(event, watched);
            // also after a failure: nothing may be freed while another device still uses it
            result = result.and(self.client.plugin.await_event(event));
        }
        result
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        let mut loaded = LoadedExecutableArgs::new();
        loaded.executable = self.loaded;
        // SAFETY: it belongs to this owner alone.
        let _ = unsafe { call!(self.client.plugin, loaded_executable_destroy, &mut loaded) };
    }
}

/// The arguments of one run: borrowed device arrays, and which of them must not be donated.
pub(super) struct Call<'a> {
    /// The arguments of the first device, then those of the second; `lists` points into it.
    _arguments: Vec<*mut RawBuffer>,
    /// For each device, where its arguments begin.
    lists: Vec<*const *mut RawBuffer>,
    /// Number of arguments on each device.
    count: usize,
    kept: Vec<i64>,
    _buffers: std::marker::PhantomData<&'a Buffer>,
}

impl<'a> Call<'a> {
    /// Takes the arguments in the program's order: each has one part on every device, and whether it may be donated.
    pub(super) fn new(devices: usize, arguments: &[(&'a [Buffer], bool)]) -> Result<Self, PjrtError> {
        let mut all = Vec::new();
        for device in 0..devices {
            for (parts, _) in arguments {
                // a null pointer would crash the process
                let missing = || PjrtError::local(format!("an argument has no part on device {device}"));
                all.push(parts.get(device).ok_or_else(missing)?.raw);
            }
        }
        let count = arguments.len();
        let mut lists: Vec<*const *mut RawBuffer> = all.chunks(count.max(1)).map(<[_]>::as_ptr).collect();
        // without arguments there is nothing to point to
        lists.resize(devices, ptr::dangling());
        let kept = (0_i64..).zip(arguments).filter(|(_, (_, donated))| !donated).map(|(index, _)| index).collect();
        Ok(Self { _arguments: all, lists, count, kept, _buffers: std::marker::PhantomData })
    }
}

/// Reads a whole file of at most `limit` bytes.
pub(super) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, PjrtError> {
    let read = outside_file::open(path, limit).and_then(|file| outside_file::read(file, limit));
    read.map_err(|error| PjrtError::local(format!("{}: cannot be read: {error}", path.display())))
}
