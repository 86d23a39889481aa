//! Programs on a device: compile, serialize, load, run.

use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::buffer::Buffer;
use crate::timer::pjrt::compile::PlainExecutable;
use crate::timer::pjrt::plugin::ffi::{
    CompileArgs, DeserializeArgs, ExecutableDevicesArgs, ExecuteArgs, ExecuteOptions, GetExecutableArgs,
    LoadedExecutableArgs, ProgramStruct, RawBuffer, RawEvent, RawLoadedExecutable,
};
use crate::timer::pjrt::plugin::{Client, PjrtError, call};

/// A compiled program, loaded on its devices.
pub(crate) struct Executable {
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
    pub(crate) fn compile(client: &Rc<Client>, code: &[u8], format: &str, options: &[u8]) -> Result<Self, PjrtError> {
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
    pub(crate) fn deserialize(client: &Rc<Client>, bytes: &[u8], options: &[u8]) -> Result<Self, PjrtError> {
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
        let plain = PlainExecutable::adopt(&client.plugin, ptr::null_mut());
        let mut executable = Self { client: Rc::clone(client), loaded, plain, outputs: 0, devices: 1 };
        let mut plain = GetExecutableArgs::new();
        plain.loaded_executable = loaded;
        // SAFETY: the loaded executable is alive; the plain one is ours to destroy.
        unsafe { call!(client.plugin, loaded_executable_get_executable, &mut plain) }?;
        executable.plain = PlainExecutable::adopt(&client.plugin, plain.executable);
        executable.outputs = executable.plain.outputs()?;
        executable.devices = executable.plain.devices()?;
        if executable.devices > client.device_count() {
            let count = client.device_count();
            return Err(PjrtError::local(format!("{} partitions for {count} devices", executable.devices)));
        }
        Ok(executable)
    }

    /// Number of devices that it runs on.
    pub(crate) fn devices(&self) -> usize {
        self.devices
    }

    /// Number of outputs on each device.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Whether it runs on consecutive devices from `first` on. An executable that was compiled for other devices, or
    /// without one, would send its arguments elsewhere.
    pub(crate) fn is_on(&self, first: usize) -> Result<bool, PjrtError> {
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
    pub(crate) fn plain(&self) -> &PlainExecutable {
        &self.plain
    }

    /// Runs once. Returns the outputs, the first device's first, and the time from launch until the last device is
    /// done. Completion is polled for up to `watched`.
    pub(crate) fn run(
        &self,
        call: &DeviceArguments<'_>,
        watched: Duration,
    ) -> Result<(Vec<Buffer>, Duration), PjrtError> {
        let mut slots = self.slots();
        let start = Instant::now();
        let result = self.launch(call, &mut slots, watched);
        let elapsed = start.elapsed();
        let outputs = self.taken(&mut slots).collect();
        result.map(|()| (outputs, elapsed))
    }

    /// Runs `batch` times, each to completion, and times them together. There is one call for each run, or one for all.
    /// Outputs that are not kept until the end are freed between runs, as a program does in a loop.
    pub(crate) fn run_batch(
        &self,
        calls: &[DeviceArguments<'_>],
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
    fn launch(&self, call: &DeviceArguments<'_>, slots: &mut OutputSlots, watched: Duration) -> Result<(), PjrtError> {
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
        // SAFETY: the lists and the events have one entry for each device, the lists as long as the program's arguments
        // (the caller checked the signature) and outputs, and all outlive the events awaited below.
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
pub(crate) struct DeviceArguments<'a> {
    /// The arguments of the first device, then those of the second; `lists` points into it.
    _arguments: Vec<*mut RawBuffer>,
    /// For each device, where its arguments begin.
    lists: Vec<*const *mut RawBuffer>,
    /// Number of arguments on each device.
    count: usize,
    kept: Vec<i64>,
    _buffers: std::marker::PhantomData<&'a Buffer>,
}

impl<'a> DeviceArguments<'a> {
    /// Takes the arguments in the program's order: each has one part on every device, and whether it may be donated.
    pub(crate) fn new(devices: usize, arguments: &[(&'a [Buffer], bool)]) -> Result<Self, PjrtError> {
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
