//! Programs and arrays on a device: compile, serialize, load, run.

use std::path::Path;
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::ffi::{
    BufferDimensionsArgs, BufferEventArgs, BufferTypeArgs, CompileArgs, DeserializeArgs, ExecutableArgs,
    ExecutableCountArgs, ExecuteArgs, ExecuteOptions, FromHostArgs, GetExecutableArgs, LoadedExecutableArgs,
    MemoryLayout, MemoryStatsArgs, OptimizedProgramArgs, ProgramStruct, RawBuffer, RawEvent, RawExecutable,
    RawLoadedExecutable, SerializeArgs, ToHostArgs,
};
use super::plugin::{Buffer, Client, PjrtError, Plugin, call, data_of};
use crate::array::{ArraySpec, DType};
use crate::outside_file;
use crate::timer::protocol::MemoryStats;

/// Largest optimized program that is asked for its signature; real ones are far below.
const MAX_PROGRAM_BYTES: usize = 1 << 30;

impl Buffer {
    /// Copies dense host bytes to device `index` and waits until they are there.
    pub(super) fn from_host(
        client: &Rc<Client>,
        index: usize,
        spec: &ArraySpec,
        bytes: &[u8],
    ) -> Result<Self, PjrtError> {
        if spec.host_bytes() != u64::try_from(bytes.len()).ok() {
            return Err(PjrtError::local(format!("{} bytes are not an array {spec}", bytes.len())));
        }
        let dims: Vec<i64> = spec.dims.iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect();
        let mut arguments = FromHostArgs::new();
        arguments.client = client.raw;
        arguments.data = data_of(bytes);
        arguments.element_type = spec.dtype.pjrt_type();
        arguments.dims = dims.as_ptr();
        arguments.num_dims = dims.len();
        // immutable only during the call: the plugin copies before it returns
        arguments.host_buffer_semantics = 0;
        arguments.device = client.device(index)?;
        // SAFETY: bytes and dims outlive the call and the event awaited below; the byte count fits the shape.
        unsafe { call!(client.plugin, client_buffer_from_host_buffer, &mut arguments) }?;
        let buffer = Self { client: Rc::clone(client), raw: arguments.buffer };
        client.plugin.await_event(arguments.done_with_host_buffer)?;
        buffer.wait()?;
        Ok(buffer)
    }

    fn wait(&self) -> Result<(), PjrtError> {
        let mut arguments = BufferEventArgs::new();
        arguments.buffer = self.raw;
        // SAFETY: the buffer is alive.
        unsafe { call!(self.client.plugin, buffer_ready_event, &mut arguments) }?;
        self.client.plugin.await_event(arguments.event)
    }

    pub(super) fn spec(&self) -> Result<ArraySpec, PjrtError> {
        let mut kind = BufferTypeArgs::new();
        kind.buffer = self.raw;
        let mut dimensions = BufferDimensionsArgs::new();
        dimensions.buffer = self.raw;
        // SAFETY: the buffer is alive and owns its dimensions, which are copied.
        let dims = unsafe {
            call!(self.client.plugin, buffer_element_type, &mut kind)?;
            call!(self.client.plugin, buffer_dimensions, &mut dimensions)?;
            if dimensions.dims.is_null() {
                Vec::new()
            } else {
                std::slice::from_raw_parts(dimensions.dims, dimensions.num_dims).to_vec()
            }
        };
        let dtype = DType::from_pjrt_type(kind.element_type)
            .ok_or_else(|| PjrtError::local(format!("an output has the unknown element type {}", kind.element_type)))?;
        let dims = dims.into_iter().map(|dim| u64::try_from(dim).unwrap_or(0)).collect::<Vec<_>>();
        Ok(ArraySpec::new(dtype, dims))
    }

    /// Copies the array to the host, dense and row major.
    pub(super) fn to_host(&self, spec: &ArraySpec) -> Result<Vec<u8>, PjrtError> {
        let minor_to_major: Vec<i64> = (0..spec.dims.len() as i64).rev().collect();
        let mut layout = MemoryLayout::new();
        layout.minor_to_major = minor_to_major.as_ptr();
        layout.minor_to_major_size = minor_to_major.len();
        let mut arguments = ToHostArgs::new();
        arguments.buffer = self.raw;
        arguments.host_layout = &raw mut layout;
        // SAFETY: a null destination asks for the size alone.
        unsafe { call!(self.client.plugin, buffer_to_host_buffer, &mut arguments) }?;
        let size = arguments.destination_size;
        if spec.host_bytes() != u64::try_from(size).ok() {
            return Err(PjrtError::local(format!("an output {spec} has {size} bytes on the host")));
        }
        let mut bytes = vec![0_u8; size];
        arguments.destination = bytes.as_mut_ptr().cast();
        // SAFETY: the destination has the size that the plugin asked for and outlives the event.
        unsafe { call!(self.client.plugin, buffer_to_host_buffer, &mut arguments) }?;
        self.client.plugin.await_event(arguments.event)?;
        Ok(bytes)
    }
}

/// A compiled program, on no device.
pub(super) struct PlainExecutable {
    plugin: Rc<Plugin>,
    raw: *mut RawExecutable,
}

impl PlainExecutable {
    /// Takes over what a plugin handed out.
    pub(super) fn adopt(plugin: &Rc<Plugin>, raw: *mut RawExecutable) -> Self {
        Self { plugin: Rc::clone(plugin), raw }
    }

    /// The executable's bytes; unimplemented in some plugins.
    pub(super) fn serialize(&self) -> Result<Vec<u8>, PjrtError> {
        let mut arguments = SerializeArgs::new();
        arguments.executable = self.raw;
        // SAFETY: the executable is alive; the bytes live until their owner is deleted, after the copy.
        unsafe {
            call!(self.plugin, executable_serialize, &mut arguments)?;
            let bytes = if arguments.bytes.is_null() {
                Vec::new()
            } else {
                std::slice::from_raw_parts(arguments.bytes.cast::<u8>(), arguments.bytes_size).to_vec()
            };
            if let Some(delete) = arguments.deleter {
                delete(arguments.owner);
            }
            Ok(bytes)
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

    /// What a run takes of the device's memory, bytes; unimplemented in some plugins.
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

/// A compiled program, loaded on its device.
pub(super) struct Executable {
    client: Rc<Client>,
    loaded: *mut RawLoadedExecutable,
    plain: PlainExecutable,
    outputs: usize,
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

    /// Loads what [`serialize`](Self::serialize) gave in a process like this one.
    pub(super) fn deserialize(client: &Rc<Client>, bytes: &[u8]) -> Result<Self, PjrtError> {
        let mut arguments = DeserializeArgs::new();
        arguments.client = client.raw;
        arguments.bytes = bytes.as_ptr().cast();
        arguments.bytes_size = bytes.len();
        // SAFETY: the bytes outlive the call.
        unsafe { call!(client.plugin, executable_deserialize_and_load, &mut arguments) }?;
        Self::adopt(client, arguments.loaded_executable)
    }

    fn adopt(client: &Rc<Client>, loaded: *mut RawLoadedExecutable) -> Result<Self, PjrtError> {
        let plain = PlainExecutable { plugin: Rc::clone(&client.plugin), raw: ptr::null_mut() };
        let mut executable = Self { client: Rc::clone(client), loaded, plain, outputs: 0 };
        let mut plain = GetExecutableArgs::new();
        plain.loaded_executable = loaded;
        let mut count = ExecutableCountArgs::new();
        // SAFETY: the loaded executable is alive; the plain one is ours to destroy.
        unsafe {
            call!(client.plugin, loaded_executable_get_executable, &mut plain)?;
            executable.plain.raw = plain.executable;
            count.executable = plain.executable;
            call!(client.plugin, executable_num_outputs, &mut count)?;
        }
        executable.outputs = count.count;
        Ok(executable)
    }

    /// What was compiled, without the device.
    pub(super) fn plain(&self) -> &PlainExecutable {
        &self.plain
    }

    /// Runs once: outputs, and the time from launch to completion, which is awaited awake for as long as `watched`.
    pub(super) fn run(&self, call: &Call<'_>, watched: Duration) -> Result<(Vec<Buffer>, Duration), PjrtError> {
        let mut outputs = self.room();
        let start = Instant::now();
        let result = self.launch(call, &mut outputs, watched);
        let elapsed = start.elapsed();
        let outputs = self.taken(&mut outputs).collect();
        result.map(|()| (outputs, elapsed))
    }

    /// Runs `batch` times, each to completion, and takes the time of all together. There is a call for each run, or one for
    /// all. Outputs that are not kept until the end are freed in between, as a program does that runs in a loop.
    pub(super) fn run_batch(
        &self,
        calls: &[Call<'_>],
        batch: u32,
        keeps_outputs: bool,
        watched: Duration,
    ) -> Result<Duration, PjrtError> {
        let batch = batch as usize;
        let mut outputs: Vec<Vec<*mut RawBuffer>> =
            (0..if keeps_outputs { batch } else { 1 }).map(|_| self.room()).collect();
        let mut result = Ok(());
        let start = Instant::now();
        for (run, call) in calls.iter().cycle().take(batch).enumerate() {
            let place = if keeps_outputs { run } else { 0 };
            let Some(outputs) = outputs.get_mut(place) else { break };
            result = self.launch(call, outputs, watched);
            if !keeps_outputs {
                self.taken(outputs).for_each(drop);
            }
            if result.is_err() {
                break;
            }
        }
        let elapsed = start.elapsed();
        outputs.iter_mut().for_each(|outputs| self.taken(outputs).for_each(drop));
        result.map(|()| elapsed)
    }

    /// A place for the outputs of one run.
    fn room(&self) -> Vec<*mut RawBuffer> {
        vec![ptr::null_mut(); self.outputs]
    }

    /// What a run left there.
    fn taken(&self, outputs: &mut [*mut RawBuffer]) -> impl Iterator<Item = Buffer> {
        let taken = outputs.iter_mut().map(|raw| std::mem::replace(raw, ptr::null_mut()));
        taken.filter(|raw| !raw.is_null()).map(|raw| Buffer { client: Rc::clone(&self.client), raw })
    }

    /// Runs once and waits for the end, awake for as long as `watched`; `outputs` is what [`room`](Self::room) gave.
    fn launch(&self, call: &Call<'_>, outputs: &mut [*mut RawBuffer], watched: Duration) -> Result<(), PjrtError> {
        let output_list = outputs.as_mut_ptr();
        let argument_list = call.arguments.as_ptr();
        let mut event: *mut RawEvent = ptr::null_mut();
        let mut options = ExecuteOptions::new();
        options.non_donatable_input_indices = call.kept.as_ptr();
        options.num_non_donatable_input_indices = call.kept.len();
        let mut arguments = ExecuteArgs::new();
        arguments.executable = self.loaded;
        arguments.options = &raw mut options;
        arguments.argument_lists = &raw const argument_list;
        arguments.num_devices = 1;
        arguments.num_args = call.arguments.len();
        arguments.output_lists = &raw const output_list;
        arguments.device_complete_events = &raw mut event;
        // SAFETY: one device; the lists have one entry for it, as long as the program's arguments (the caller
        // checked the signature) and outputs, and outlive the event awaited below.
        unsafe { call!(self.client.plugin, loaded_executable_execute, &mut arguments) }.and_then(|()| {
            self.client.plugin.watch_event(event, watched);
            self.client.plugin.await_event(event)
        })
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

/// The arguments of one run: borrowed device arrays, and which of them the program must leave alone.
pub(super) struct Call<'a> {
    arguments: Vec<*mut RawBuffer>,
    kept: Vec<i64>,
    _buffers: std::marker::PhantomData<&'a Buffer>,
}

impl<'a> Call<'a> {
    /// Arguments in the program's order, each with whether the program may take it over.
    pub(super) fn new(arguments: impl IntoIterator<Item = (&'a Buffer, bool)>) -> Self {
        let mut call = Self { arguments: Vec::new(), kept: Vec::new(), _buffers: std::marker::PhantomData };
        for (index, (buffer, donated)) in (0_i64..).zip(arguments) {
            call.arguments.push(buffer.raw);
            if !donated {
                call.kept.push(index);
            }
        }
        call
    }
}

/// Reads a whole file, no longer than `limit` bytes.
pub(super) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, PjrtError> {
    let read = outside_file::open(path, limit).and_then(|file| outside_file::read(file, limit));
    read.map_err(|error| PjrtError::local(format!("{}: cannot be read: {error}", path.display())))
}
