//! The PJRT worker: loads one plugin, compiles, loads and runs programs for the tuner.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::cold::Flush;
use super::custom_call::unhandled_target;
use super::device::fingerprints;
use super::executable::{Call, Executable, read_bounded};
use super::options::{compile_options, default_client_options, parse_client_option};
use super::plugin::{Buffer, Client, PjrtError, Plugin, one_line};
use super::probe::probe;
use super::profiler::Profiler;
use super::signature::read_signature;
use super::timer::HOST_CLOCK;
use crate::array::ArraySpec;
use crate::hlo::{Program, read_program};
use crate::registry::ProgramFormat;
use crate::timer::clock::resolution_ns;
use crate::timer::model::{CacheState, Failure, FailureKind, Source, means};
use crate::timer::protocol::{
    BeginParams, CompileParams, Compiled, Hello, Input, Launch, LoadParams, Loaded, MAX_RUNS, Measured, OutputRef,
    Outputs, PROTOCOL_VERSION, Profiled, ProgramRef, Signature, capability,
};
use crate::timer::server::{Worker, serve, take_stdout};
use crate::timer::subscriber::named;

/// Largest program that is read.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;
/// Largest serialized executable that is read.
const MAX_EXECUTABLE_BYTES: u64 = 4 << 30;

/// The most bytes that outputs of a batch may take together to be kept to its end, outside the timed region: more would push
/// the program's own data out of the caches.
const MAX_KEPT_BYTES: u64 = 256 << 10;
/// The most bytes that the donated inputs of a batch may take, which all must be there before it.
const MAX_DONATED_BYTES: u64 = 256 << 20;

/// What `worker pjrt` was told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PjrtWorkerOptions {
    /// The plugin's file.
    pub plugin: PathBuf,
    /// Index of the device to run on.
    pub device: usize,
    /// `name=value` for `PJRT_Client_Create`; the program's own choice when empty.
    pub client_options: Vec<String>,
    /// Leave the plugin's profiler alone: the host clock times, whatever the plugin could do.
    pub no_profiler: bool,
}

/// Runs the worker on stdin and stdout until stdin ends; call it first thing in `main`.
pub fn worker_main(options: &PjrtWorkerOptions) -> ExitCode {
    let served = take_stdout().map_err(|error| format!("stdout cannot be set aside: {error}")).and_then(|output| {
        let mut worker = PjrtWorker { options: options.clone(), opened: None, job: None };
        serve(std::io::stdin(), output, &mut worker).map_err(|error| format!("the tuner's pipes: {error}"))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr().lock(), "worker pjrt: {message}");
            ExitCode::FAILURE
        }
    }
}

struct PjrtWorker {
    options: PjrtWorkerOptions,
    opened: Option<Opened>,
    job: Option<Job>,
}

struct Opened {
    client: Rc<Client>,
    compile_options: Vec<u8>,
    /// Where times come from: the plugin's profiler, or why not from there.
    profiler: Result<Profiler, String>,
}

struct Job {
    inputs: Vec<LoadedInput>,
    candidates: BTreeMap<usize, Loadable>,
    /// Where caches are to be cold.
    flush: Option<Flush>,
}

/// A candidate that is loaded.
struct Loadable {
    executable: Executable,
    /// Bytes of the outputs of one run, once there was one.
    output_bytes: Cell<Option<u64>>,
}

struct LoadedInput {
    spec: ArraySpec,
    array: InputArray,
}

enum InputArray {
    /// On the device for the whole job.
    Kept(Buffer),
    /// On the host, given anew before every run.
    Donated(Vec<u8>),
}

impl PjrtWorker {
    fn open(&mut self) -> Result<&Opened, Failure> {
        if self.opened.is_none() {
            self.opened = Some(open(&self.options).map_err(|error| device_failure(&error))?);
        }
        self.opened.as_ref().ok_or_else(|| Failure::new(FailureKind::Device, "there is no client"))
    }

    fn client(&self) -> Result<&Opened, Failure> {
        self.opened.as_ref().ok_or_else(|| Failure::new(FailureKind::Protocol, "`hello` must come first"))
    }

    fn candidate(&self, candidate: usize) -> Result<(&Opened, &Job, &Loadable), Failure> {
        let job = self.job.as_ref().ok_or_else(|| Failure::new(FailureKind::Protocol, "`begin` must come first"))?;
        let loaded = job.candidates.get(&candidate).ok_or_else(|| {
            Failure::new(FailureKind::Protocol, format!("candidate {candidate} was not loaded: `load` must come first"))
        })?;
        Ok((self.client()?, job, loaded))
    }

    /// One run; the donated inputs are made and the caches are flushed before, and the clock does not see it.
    fn run(&self, candidate: usize, flush: Option<&Flush>) -> Result<(Vec<Buffer>, Duration), Failure> {
        let (opened, job, loaded) = self.candidate(candidate)?;
        let fresh = job.donate(opened, self.options.device).map_err(execute_failure)?;
        let call = job.call(&fresh);
        if let Some(flush) = flush {
            flush.run().map_err(|error| device_failure(&error))?;
        }
        loaded.executable.run(&call).map_err(execute_failure)
    }

    /// One run that counts.
    fn timed_run(&self, candidate: usize) -> Result<u64, Failure> {
        let (_, job, _) = self.candidate(candidate)?;
        self.run(candidate, job.flush.as_ref()).map(|(_, elapsed)| nanoseconds(elapsed))
    }

    /// The mean of so many runs that are timed together; all donated inputs are made before.
    fn timed_batch(&self, candidate: usize, batch: u32) -> Result<u64, Failure> {
        let (opened, job, loaded) = self.candidate(candidate)?;
        let output_bytes = match loaded.output_bytes.get() {
            Some(bytes) => bytes,
            None => {
                // only a run tells
                let (outputs, _) = self.run(candidate, None)?;
                let specs = outputs.iter().map(|output| output.spec().map(|spec| spec.host_bytes()));
                let bytes = specs.collect::<Result<Vec<_>, _>>().map_err(execute_failure)?;
                let bytes = bytes.into_iter().flatten().fold(0, u64::saturating_add);
                loaded.output_bytes.set(Some(bytes));
                bytes
            }
        };
        let sets = if job.donated_bytes() == 0 { 1 } else { batch };
        let fresh = (0..sets).map(|_| job.donate(opened, self.options.device)).collect::<Result<Vec<_>, _>>();
        let fresh = fresh.map_err(execute_failure)?;
        let calls: Vec<Call<'_>> = fresh.iter().map(|fresh| job.call(fresh)).collect();
        let keeps_outputs = output_bytes.saturating_mul(u64::from(batch)) <= MAX_KEPT_BYTES;
        let elapsed = loaded.executable.run_batch(&calls, batch, keeps_outputs).map_err(execute_failure)?;
        Ok(mean_ns(elapsed, batch))
    }

    /// A job whose runs are timed by the host's clock: otherwise its samples would pass for device time.
    fn check_clock(&self, candidate: usize) -> Result<&Job, Failure> {
        let (opened, job, _) = self.candidate(candidate)?;
        if opened.profiler.is_ok() {
            let message = "this worker times by the plugin's profiler: ask for `measure-round`";
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        Ok(job)
    }

    fn compile_program(&self, program: &ProgramRef) -> Result<(Executable, Option<Signature>, u64), Failure> {
        let opened = self.client()?;
        let code = read_bounded(&program.path, MAX_PROGRAM_BYTES)
            .map_err(|error| Failure::new(FailureKind::NoProgram, error.message))?;
        // what cannot be read here is the plugin's to refuse
        if let Ok(Program { partitions: partitions @ 2.., .. }) = read_program(&code, "program") {
            let message =
                format!("the program has {partitions} partitions, this timer runs one; `--timer jax` runs them");
            return Err(Failure::new(FailureKind::Device, message));
        }
        let start = Instant::now();
        let executable =
            Executable::compile(&opened.client, &code, program.format.pjrt_format(), &opened.compile_options)
                .map_err(|error| compile_failure(&error))?;
        let compile_ns = nanoseconds(start.elapsed());
        let signature = signature_of(&executable).or_else(|| {
            // a module in the form that XLA itself writes tells it without the plugin
            (program.format == ProgramFormat::HloProto).then(|| read_signature(&code, "hlo")).flatten()
        });
        Ok((executable, signature, compile_ns))
    }
}

fn open(options: &PjrtWorkerOptions) -> Result<Opened, PjrtError> {
    let plugin = Plugin::load(&options.plugin)?;
    let given = options
        .client_options
        .iter()
        .map(|text| parse_client_option(text).map_err(PjrtError::local))
        .collect::<Result<Vec<_>, _>>()?;
    let client = if given.is_empty() {
        let defaults = default_client_options(&options.plugin);
        match Client::create(&plugin, &defaults) {
            Err(_) if !defaults.is_empty() => Client::create(&plugin, &[]),
            created => created,
        }
    } else {
        Client::create(&plugin, &given)
    }?;
    let id = client.describe(options.device)?.id;
    let compile_options = compile_options((options.device > 0).then_some(id));
    let client = Rc::new(client);
    let profiler = if options.no_profiler {
        Err("the plugin's profiler is to be left alone".to_owned())
    } else {
        probe(&client, options.device, &compile_options)
    };
    Ok(Opened { client, compile_options, profiler })
}

impl Job {
    /// Buffers that a run may destroy.
    fn donate(&self, opened: &Opened, device: usize) -> Result<Vec<Buffer>, PjrtError> {
        let mut fresh = Vec::new();
        for input in &self.inputs {
            if let InputArray::Donated(bytes) = &input.array {
                fresh.push(Buffer::from_host(&opened.client, device, &input.spec, bytes)?);
            }
        }
        Ok(fresh)
    }

    /// The arguments of a run, with what was made for it alone.
    fn call<'a>(&'a self, fresh: &'a [Buffer]) -> Call<'a> {
        let mut donated = fresh.iter();
        Call::new(self.inputs.iter().filter_map(|input| match &input.array {
            InputArray::Kept(buffer) => Some((buffer, false)),
            InputArray::Donated(_) => donated.next().map(|buffer| (buffer, true)),
        }))
    }

    fn donated_bytes(&self) -> u64 {
        let lengths = self.inputs.iter().map(|input| match &input.array {
            InputArray::Kept(_) => 0,
            // an empty one is made anew like any other
            InputArray::Donated(bytes) => bytes.len().max(1) as u64,
        });
        lengths.fold(0, u64::saturating_add)
    }
}

fn signature_of(executable: &Executable) -> Option<Signature> {
    executable.optimized_program().ok().and_then(|(code, format)| read_signature(&code, &format))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The mean of a batch, rounded.
fn mean_ns(elapsed: Duration, batch: u32) -> u64 {
    let batch = u128::from(batch.max(1));
    u64::try_from((elapsed.as_nanos() + batch / 2) / batch).unwrap_or(u64::MAX)
}

fn execute_failure(error: PjrtError) -> Failure {
    Failure::new(FailureKind::Execute, one_line(&error.message))
}

fn device_failure(error: &PjrtError) -> Failure {
    Failure::new(FailureKind::Device, one_line(&error.message))
}

fn compile_failure(error: &PjrtError) -> Failure {
    let message = one_line(&error.message);
    match unhandled_target(&message) {
        Some(target) => Failure::new(
            FailureKind::CustomCall,
            format!(
                "this plugin has no handler for the custom call `{target}`: time with a worker whose process has one, \
                 `command:` with jaxlib for instance ({message})"
            ),
        ),
        None => Failure::new(FailureKind::Compile, message),
    }
}

impl Worker for PjrtWorker {
    fn hello(&mut self) -> Result<Hello, Failure> {
        let device = self.options.device;
        let (plugin, no_profiler) = (self.options.plugin.clone(), self.options.no_profiler);
        let opened = self.open()?;
        let devices = fingerprints(&opened.client, &plugin).map_err(|error| device_failure(&error))?;
        let serializes = opened.client.plugin.api.executable_serialize.is_some()
            && opened.client.plugin.api.executable_deserialize_and_load.is_some();
        let mut capabilities = vec![capability::COLD_CACHES.to_owned()];
        if serializes {
            capabilities.push(capability::COMPILE.to_owned());
        }
        let (source, notes) = match &opened.profiler {
            Ok(_) => {
                capabilities.push(capability::PROFILE.to_owned());
                (Source::DeviceProfile, Vec::new())
            }
            // whoever asked for the host clock need not be told why
            Err(_) if no_profiler => (Source::HostWall, Vec::new()),
            Err(reason) => (Source::HostWall, vec![format!("{HOST_CLOCK}: {reason}")]),
        };
        let by_clock = source == Source::HostWall;
        if by_clock {
            capabilities.push(capability::BATCHES.to_owned());
        }
        Ok(Hello {
            protocol: PROTOCOL_VERSION,
            worker: format!("autotune-lowered pjrt {}", env!("CARGO_PKG_VERSION")),
            capabilities,
            source,
            devices,
            device,
            clock_resolution_ns: if by_clock { resolution_ns() } else { None },
            notes,
        })
    }

    fn begin(&mut self, params: BeginParams) -> Result<(), Failure> {
        self.job = None;
        let opened = self.client()?;
        let mut inputs = Vec::new();
        for input in &params.inputs {
            inputs.push(load_input(opened, self.options.device, input)?);
        }
        let flush = match params.cache_state {
            CacheState::Warm => None,
            CacheState::Cold => {
                Some(Flush::of(&opened.client, self.options.device).map_err(|error| device_failure(&error))?)
            }
        };
        self.job = Some(Job { inputs, candidates: BTreeMap::new(), flush });
        Ok(())
    }

    fn compile(&mut self, params: CompileParams) -> Result<Compiled, Failure> {
        let (executable, signature, compile_ns) = self.compile_program(&params.program)?;
        let bytes = match executable.serialize() {
            Ok(bytes) => bytes,
            Err(error) if error.is_unimplemented() => {
                return Ok(Compiled { compile_ns, serialized: false, signature });
            }
            Err(error) => {
                let message = format!("the executable cannot be serialized: {}", one_line(&error.message));
                return Err(Failure::new(FailureKind::Compile, message));
            }
        };
        write_file(&params.executable, &bytes)?;
        Ok(Compiled { compile_ns, serialized: true, signature })
    }

    fn load(&mut self, params: LoadParams) -> Result<Loaded, Failure> {
        let opened = self.client()?;
        let (executable, loaded) = match (&params.executable, &params.program) {
            (Some(file), _) => {
                let bytes = read_bounded(&file.path, MAX_EXECUTABLE_BYTES)
                    .map_err(|error| Failure::new(FailureKind::Compile, error.message))?;
                let start = usize::try_from(file.offset).unwrap_or(usize::MAX);
                let executable = bytes
                    .get(start..)
                    .ok_or_else(|| PjrtError::local("an offset beyond the executable's file"))
                    .and_then(|bytes| Executable::deserialize(&opened.client, bytes))
                    .map_err(|error| compile_failure(&error))?;
                (executable, Loaded::default())
            }
            (None, Some(program)) => {
                let (executable, signature, compile_ns) = self.compile_program(program)?;
                (executable, Loaded { compile_ns, signature })
            }
            (None, None) => {
                return Err(Failure::new(FailureKind::NoProgram, "a PJRT plugin cannot build programs from a config"));
            }
        };
        let job = self.job.as_mut().ok_or_else(|| Failure::new(FailureKind::Protocol, "`begin` must come first"))?;
        job.candidates.insert(params.candidate, Loadable { executable, output_bytes: Cell::new(None) });
        Ok(loaded)
    }

    fn measure(&mut self, candidate: usize, runs: u32) -> Result<Measured, Failure> {
        check_runs(runs)?;
        self.check_clock(candidate)?;
        let samples_ns = (0..runs).map(|_| self.timed_run(candidate)).collect::<Result<_, _>>()?;
        Ok(Measured { samples_ns, single_runs: None })
    }

    fn measure_batches(&mut self, candidate: usize, runs: u32, batch: u32) -> Result<Measured, Failure> {
        check_runs(runs)?;
        let job = self.check_clock(candidate)?;
        if job.flush.is_some() {
            let message = "a batch would warm the caches, which are to be cold: ask for single runs";
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        let bytes = job.donated_bytes().saturating_mul(u64::from(batch));
        if bytes > MAX_DONATED_BYTES {
            let samples = self.measure(candidate, runs)?.samples_ns;
            let reason = format!(
                "runs were timed one by one: the donated inputs of {batch} take {bytes} bytes, {MAX_DONATED_BYTES} are allowed"
            );
            return Ok(Measured { samples_ns: means(&samples, batch), single_runs: Some(reason) });
        }
        let batches = runs / batch.max(1);
        let samples_ns = (0..batches).map(|_| self.timed_batch(candidate, batch)).collect::<Result<_, _>>()?;
        Ok(Measured { samples_ns, single_runs: None })
    }

    fn measure_round(&mut self, launches: &[Launch], folder: &Path) -> Result<Profiled, Failure> {
        for launch in launches {
            check_runs(launch.runs)?;
            self.candidate(launch.candidate)?;
        }
        let profiler = self.client()?.profiler.as_ref().map_err(|reason| {
            Failure::new(FailureKind::Protocol, format!("this worker takes no profiles: {reason}"))
        })?;
        let failed = |error: PjrtError| {
            let message = one_line(&error.message);
            let holder = named(&message).map(|holder| format!(" ({holder} holds CUPTI)")).unwrap_or_default();
            Failure::new(FailureKind::Device, format!("the plugin's profiler: {message}{holder}"))
        };
        let session = profiler.start().map_err(failed)?;
        for launch in launches {
            for _ in 0..launch.runs {
                self.timed_run(launch.candidate)?;
            }
        }
        let bytes = session.finish().map_err(failed)?;
        let profile = folder.join("round.xplane.pb");
        write_file(&profile, &bytes)?;
        Ok(Profiled { profile, module_name: None, devices: None })
    }

    fn outputs(&mut self, candidate: usize, folder: &Path) -> Result<Outputs, Failure> {
        let failed = |error: PjrtError| Failure::new(FailureKind::Execute, one_line(&error.message));
        let (buffers, _) = self.run(candidate, None)?;
        let mut outputs = Vec::new();
        for (index, buffer) in buffers.iter().enumerate() {
            let spec = buffer.spec().map_err(failed)?;
            let bytes = buffer.to_host(&spec).map_err(failed)?;
            let path = folder.join(format!("output-{candidate}-{index}.bin"));
            write_file(&path, &bytes)?;
            outputs.push(OutputRef { spec, path });
        }
        Ok(Outputs { outputs })
    }

    fn end(&mut self) {
        self.job = None;
    }
}

fn check_runs(runs: u32) -> Result<(), Failure> {
    if runs > MAX_RUNS {
        return Err(Failure::new(FailureKind::Protocol, format!("{runs} runs are more than {MAX_RUNS}")));
    }
    Ok(())
}

fn load_input(opened: &Opened, device: usize, input: &Input) -> Result<LoadedInput, Failure> {
    let wrong =
        |message: String| Failure::new(FailureKind::Signature, format!("input `{}`: {message}", one_line(&input.name)));
    let expected = input.spec.host_bytes().ok_or_else(|| wrong(format!("{} is beyond any memory", input.spec)))?;
    let bytes = read_bounded(&input.path, expected).map_err(|error| wrong(error.message))?;
    let array = if input.donated {
        if u64::try_from(bytes.len()).ok() != Some(expected) {
            return Err(wrong(format!("{} bytes are not an array {}", bytes.len(), input.spec)));
        }
        InputArray::Donated(bytes)
    } else {
        let buffer = Buffer::from_host(&opened.client, device, &input.spec, &bytes);
        InputArray::Kept(buffer.map_err(|error| wrong(one_line(&error.message)))?)
    };
    Ok(LoadedInput { spec: input.spec.clone(), array })
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::new(FailureKind::Device, format!("{}: cannot be written: {error}", path.display())))
}
