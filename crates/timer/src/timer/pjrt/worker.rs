//! The PJRT worker: loads one plugin, compiles, loads and runs programs for the tuner.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::absent::{TargetWorker, topology_of};
use super::compile::figures::{described, work_of, write_file, written};
use super::compile::{
    MAX_EXECUTABLE_BYTES, Partitions, compile_failure, compile_options, gives_no_reason, options_of,
    partitioned_options, read_code, timed,
};
use super::device::fingerprints;
use super::execute::{
    BLOCK_BYTES, DeviceJob, Executable, Nvml, Profiler, ProgramShardings, RestoredInputs, execute_failure,
};
use super::plugin::{
    Client, PjrtError, Plugin, default_client_options, device_failure, one_line, parse_client_option, read_bounded,
};
use super::probe::{probe, trial_program};
use super::worker_options::PjrtWorkerOptions;
use crate::array::Tolerance;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::Source;
use crate::timer::clock::{HOST_CLOCK, resolution_ns};
use crate::timer::measured::means;
use crate::timer::protocol::{
    BeginParams, ComparedOutputs, CompileAnswer, CompileParams, ExecutableRef, Hello, KeptOutputs, LaunchedRuns,
    LoadAnswer, LoadParams, MAX_RUNS, MeasureAnswer, OutputRef, OutputsAnswer, PROTOCOL_VERSION, ProgramRef,
    RoundAnswer, RunningClocks, capability,
};
use crate::timer::server::{Worker, serve, take_stdout};
use crate::timer::subscriber::named;

/// Runs the worker on stdin and stdout until stdin ends; call it first thing in `main`.
pub fn worker_main(options: &PjrtWorkerOptions) -> ExitCode {
    let served = take_stdout().map_err(|error| format!("stdout cannot be set aside: {error}")).and_then(|output| {
        let compiles_only = options.topology.is_some() || options.topology_description.is_some();
        let mut worker: Box<dyn Worker> = match compiles_only {
            true => Box::new(TargetWorker::new(options.clone())),
            false => Box::new(PjrtWorker { options: options.clone(), opened: None, job: None }),
        };
        serve(std::io::stdin(), output, &mut *worker).map_err(|error| format!("the tuner's pipes: {error}"))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr().lock(), "worker pjrt: {}", crate::printable::printable(&message));
            ExitCode::FAILURE
        }
    }
}

struct PjrtWorker {
    options: PjrtWorkerOptions,
    opened: Option<OpenedPlugin>,
    job: Option<DeviceJob>,
}

struct OpenedPlugin {
    client: Rc<Client>,
    /// The device to compile for, if it is not the first.
    device_id: Option<i64>,
    /// The plugin's profiler, which provides times, or why it cannot.
    profiler: Result<Profiler, String>,
    /// The driver's view of the device, or why it is unavailable; `None` if the device is not an NVIDIA GPU.
    nvml: Option<Result<Nvml, String>>,
}

impl PjrtWorker {
    fn open(&mut self) -> Result<&OpenedPlugin, Failure> {
        if self.opened.is_none() {
            self.opened = Some(open(&self.options).map_err(|error| device_failure(&error))?);
        }
        self.opened.as_ref().ok_or_else(|| Failure::new(FailureKind::Device, "there is no client"))
    }

    fn client(&self) -> Result<&OpenedPlugin, Failure> {
        self.opened.as_ref().ok_or_else(|| Failure::new(FailureKind::Protocol, "`hello` must come first"))
    }

    fn job(&self) -> Result<&DeviceJob, Failure> {
        self.job.as_ref().ok_or_else(|| Failure::new(FailureKind::Protocol, "`begin` must come first"))
    }

    fn job_mut(&mut self) -> Result<&mut DeviceJob, Failure> {
        self.job.as_mut().ok_or_else(|| Failure::new(FailureKind::Protocol, "`begin` must come first"))
    }

    /// The GPU's current clocks, if its driver reports them.
    fn running(&self) -> Option<RunningClocks> {
        self.opened.as_ref()?.nvml.as_ref()?.as_ref().ok()?.running()
    }

    /// The job, if its runs are timed by the host's clock. Otherwise host times would be taken for device time.
    fn job_by_clock(&self, candidate: usize) -> Result<&DeviceJob, Failure> {
        let job = self.job()?;
        job.find(candidate)?;
        if self.client()?.profiler.is_ok() {
            let message = "this worker times by the plugin's profiler: request `measure-round`";
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        Ok(job)
    }

    fn compile_program(
        &self,
        program: &ProgramRef,
        overrides: &BTreeMap<String, String>,
    ) -> Result<(Executable, CompileAnswer), Failure> {
        let opened = self.client()?;
        let code = read_code(program)?;
        let options = self.options_here(opened, program, &code, overrides)?;
        let format = program.format.pjrt_format();
        let (executable, compiled) = timed(|| Executable::compile(&opened.client, &code, format, &options))
            .map_err(|error| self.why_refused(opened, &error))?;
        let compiled = described(compiled, executable.plain(), program, &code, None);
        match ProgramShardings::of(executable.plain())? {
            // the compiled program takes parts
            Some(shardings) => Ok((executable, compiled.signature(Some(shardings.signature())))),
            None => Ok((executable, compiled)),
        }
    }

    /// Why a program does not compile. A message without a reason may hide one that holds for every program, which a
    /// trial finds.
    fn why_refused(&self, opened: &OpenedPlugin, error: &PjrtError) -> Failure {
        let failure_of = |error: &PjrtError| compile_failure(error, &self.options.plugin);
        let trial = || trial_program(&opened.client, "add", &compile_options(opened.device_id, &BTreeMap::new())).err();
        let of_trial = gives_no_reason(error).then(trial).flatten().map(|error| failure_of(&error));
        of_trial.filter(|failure| failure.kind == FailureKind::Device).unwrap_or_else(|| failure_of(error))
    }

    /// The compile options of a program, with the devices that run it here.
    fn options_here(
        &self,
        opened: &OpenedPlugin,
        program: &ProgramRef,
        code: &[u8],
        overrides: &BTreeMap<String, String>,
    ) -> Result<Vec<u8>, Failure> {
        let partitions = Partitions::of(code);
        let options = match partitions.count {
            1 => compile_options(opened.device_id, overrides),
            count => partitioned_options(partitions, &opened.device_ids(self.options.device, count)?, overrides),
        };
        options_of(program, options)
    }

    /// Loads an executable from its file onto this worker's devices.
    fn load_file(&self, file: &ExecutableRef, params: &LoadParams) -> Result<Executable, Failure> {
        let (opened, first) = (self.client()?, self.options.device);
        let failed = |error: PjrtError| compile_failure(&error, &self.options.plugin);
        let bytes = executable_bytes(file).map_err(failed)?;
        let as_compiled = Executable::deserialize(&opened.client, &bytes, &[]).map_err(failed)?;
        if as_compiled.is_on(first).map_err(failed)? {
            return Ok(as_compiled);
        }
        drop(as_compiled);
        let elsewhere = || failed(PjrtError::local("the executable is for other devices"));
        // a compiler without a device numbers its own devices from zero
        let program = params.program.as_ref().ok_or_else(elsewhere)?;
        let options = self.options_here(opened, program, &read_code(program)?, &params.overrides)?;
        let moved = Executable::deserialize(&opened.client, &bytes, &options).map_err(failed)?;
        if moved.is_on(first).map_err(failed)? { Ok(moved) } else { Err(elsewhere()) }
    }
}

/// Reads an executable and compares its digest, if one is given, because the plugin would run any code.
fn executable_bytes(file: &ExecutableRef) -> Result<Vec<u8>, PjrtError> {
    let mut bytes = read_bounded(&file.path, MAX_EXECUTABLE_BYTES)?;
    let start = usize::try_from(file.offset).unwrap_or(usize::MAX);
    if start > bytes.len() {
        return Err(PjrtError::local("an offset beyond the executable's file"));
    }
    bytes.drain(..start);
    match file.digest {
        Some(digest) if Digest::of(&bytes) != digest => {
            Err(PjrtError::local("the executable's file is not the one that was found"))
        }
        _ => Ok(bytes),
    }
}

impl OpenedPlugin {
    /// The ids of `count` devices from `first` on.
    fn device_ids(&self, first: usize, count: u64) -> Result<Vec<i64>, Failure> {
        let shown = self.client.device_count();
        let end = usize::try_from(count).ok().and_then(|count| first.checked_add(count));
        let Some(end) = end.filter(|&end| end <= shown) else {
            let needed = count.saturating_add(first as u64);
            let way = if self.client.platform_name().is_ok_and(|platform| platform.eq_ignore_ascii_case("cpu")) {
                format!("; `--client-option cpu_device_count={needed}` makes as many of a CPU")
            } else if count > shown as u64 {
                "; use `compile --target` for programs that run on several hosts".to_owned()
            } else {
                String::new()
            };
            let message = format!(
                "the program has {count} partitions and needs as many devices, from number {first} on; {shown} are \
                 there{way}"
            );
            return Err(Failure::new(FailureKind::Device, message));
        };
        let ids = (first..end).map(|index| Ok(self.client.describe(index)?.id)).collect::<Result<_, _>>();
        ids.map_err(|error: PjrtError| device_failure(&error))
    }
}

fn open(options: &PjrtWorkerOptions) -> Result<OpenedPlugin, PjrtError> {
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
    let device_id = (options.device > 0).then_some(id);
    let client = Rc::new(client);
    let profiler = if options.no_profiler {
        Err("the plugin's profiler must not be used".to_owned())
    } else {
        probe(&client, options.device, &compile_options(device_id, &BTreeMap::new()), &options.plugin)
    };
    let nvml = client
        .platform_name()?
        .eq_ignore_ascii_case("cuda")
        .then(|| Nvml::open(client.local_id(options.device).unwrap_or(options.device)));
    Ok(OpenedPlugin { client, device_id, profiler, nvml })
}

/// The description of a GPU's devices, for workers that compile for them without opening them. A CPU's workers take
/// nothing from a measurement that such a description would save.
fn described_devices(client: &Client) -> Option<String> {
    let platform = client.platform_name().ok()?;
    let is_gpu = ["cuda", "rocm"].iter().any(|gpu| platform.eq_ignore_ascii_case(gpu));
    let description = is_gpu.then(|| topology_of(client).ok()).flatten()?;
    (description.len() <= MAX_DESCRIPTION_BYTES).then(|| STANDARD.encode(description))
}

/// Largest description of devices: it becomes one argument of a process, which Linux bounds to 128 KiB.
const MAX_DESCRIPTION_BYTES: usize = 64 << 10;

impl Worker for PjrtWorker {
    fn hello(&mut self) -> Result<Hello, Failure> {
        let device = self.options.device;
        let (plugin, no_profiler) = (self.options.plugin.clone(), self.options.no_profiler);
        let opened = self.open()?;
        let devices = fingerprints(&opened.client, &plugin).map_err(|error| device_failure(&error))?;
        let serializes = opened.client.plugin.api.executable_serialize.is_some()
            && opened.client.plugin.api.executable_deserialize_and_load.is_some();
        let always = [
            capability::COLD_CACHES,
            capability::COMPILER_OPTIONS,
            capability::COMPILE_OPTIONS,
            capability::COMPARE_OUTPUTS,
        ];
        let mut capabilities: Vec<String> = always.map(str::to_owned).into();
        if serializes {
            capabilities.push(capability::COMPILE.to_owned());
        }
        let (source, mut notes) = match &opened.profiler {
            Ok(_) => {
                capabilities.push(capability::PROFILE.to_owned());
                (Source::DeviceProfile, Vec::new())
            }
            // if the host clock was requested, no reason is needed
            Err(_) if no_profiler => (Source::HostWall, Vec::new()),
            Err(reason) => (Source::HostWall, vec![format!("{HOST_CLOCK}: {reason}")]),
        };
        let clocks = opened.nvml.as_ref().map(|nvml| nvml.as_ref().map_err(Clone::clone).and_then(Nvml::clocks));
        if let Some(Err(reason)) = &clocks {
            notes.push(format!("the GPU's clocks are unknown: {reason}"));
        }
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
            clocks: clocks.and_then(Result::ok),
            memory: opened.client.memory(device).ok(),
            notes,
            topology: described_devices(&opened.client),
            // the timer knows the plugin's digest
            compiler: None,
            process: None,
        })
    }

    fn begin(&mut self, params: BeginParams) -> Result<(), Failure> {
        self.job = None;
        let opened = self.client()?;
        let block_bytes = self.options.output_block_bytes.unwrap_or(BLOCK_BYTES);
        self.job = Some(DeviceJob::begin(&opened.client, self.options.device, &params, block_bytes)?);
        Ok(())
    }

    fn compile(&mut self, params: CompileParams) -> Result<CompileAnswer, Failure> {
        let (executable, compiled) = self.compile_program(&params.program, &params.overrides)?;
        let platform = self.client()?.client.platform_name().map_err(|error| device_failure(&error))?;
        written(compiled, executable.plain(), &params.executable, &platform)
    }

    fn load(&mut self, params: LoadParams) -> Result<LoadAnswer, Failure> {
        let (executable, loaded) = match (&params.executable, &params.program) {
            (Some(file), _) => (self.load_file(file, &params)?, LoadAnswer::default()),
            (None, Some(program)) => {
                let (executable, compiled) = self.compile_program(program, &params.overrides)?;
                let CompileAnswer { compile_ns, cpu_ns, signature, .. } = compiled;
                (executable, LoadAnswer::default().compile_ns(compile_ns).cpu_ns(cpu_ns).signature(signature))
            }
            (None, None) => {
                return Err(Failure::new(FailureKind::NoProgram, "a PJRT plugin cannot build programs from a config"));
            }
        };
        let loaded = loaded.memory(executable.plain().memory().ok()).work(work_of(executable.plain()));
        let job = self.job_mut()?;
        let shardings = ProgramShardings::of(executable.plain())?;
        Ok(match job.insert(params.candidate, executable, shardings)? {
            RestoredInputs::Nothing => loaded,
            RestoredInputs::OnDevice(bytes) => loaded.restored_bytes(bytes),
            RestoredInputs::FromHost { bytes, reason } => loaded.from_host(Some(format!(
                "{bytes} bytes of donated inputs come from the host before every run, because the device does not \
                 copy them: {reason}"
            ))),
        })
    }

    fn measure(&mut self, candidate: usize, runs: u32) -> Result<MeasureAnswer, Failure> {
        check_runs(runs)?;
        let job = self.job_by_clock(candidate)?;
        let samples_ns = (0..runs).map(|_| job.timed_run(candidate)).collect::<Result<_, _>>()?;
        Ok(MeasureAnswer::new(samples_ns).clocks(self.running()))
    }

    fn measure_batches(&mut self, candidate: usize, runs: u32, batch: u32) -> Result<MeasureAnswer, Failure> {
        check_runs(runs)?;
        let job = self.job_by_clock(candidate)?;
        if let Err(reason) = job.check_batch(candidate, batch)? {
            let MeasureAnswer { samples_ns, clocks, .. } = self.measure(candidate, runs)?;
            return Ok(MeasureAnswer::new(means(&samples_ns, batch)).single_runs(Some(reason)).clocks(clocks));
        }
        let batches = runs / batch.max(1);
        let samples_ns = (0..batches).map(|_| job.timed_batch(candidate, batch)).collect::<Result<_, _>>()?;
        Ok(MeasureAnswer::new(samples_ns).clocks(self.running()))
    }

    fn measure_round(&mut self, launches: &[LaunchedRuns], folder: &Path) -> Result<RoundAnswer, Failure> {
        let mut devices = Vec::with_capacity(launches.len());
        for launch in launches {
            check_runs(launch.runs)?;
            let count = self.job()?.devices(launch.candidate)?;
            devices.push(u32::try_from(count).unwrap_or(u32::MAX));
        }
        let profiler = self.client()?.profiler.as_ref().map_err(|reason| {
            Failure::new(FailureKind::Protocol, format!("this worker takes no profiles: {reason}"))
        })?;
        let failed = |error: PjrtError| {
            let message = one_line(&error.message);
            let holder = named(&message).map(|holder| format!(" ({holder} holds CUPTI)")).unwrap_or_default();
            Failure::new(FailureKind::Device, format!("the plugin's profiler: {message}{holder}"))
        };
        let job = self.job()?;
        launches.iter().try_for_each(|launch| job.first_run(launch.candidate))?;
        let mut made = job.made_before(launches)?;
        let session = profiler.start().map_err(failed)?;
        for launch in launches {
            for _ in 0..launch.runs {
                job.profiled_run(launch.candidate, made.pop_front().flatten())?;
            }
        }
        let clocks = self.running();
        let bytes = session.finish().map_err(failed)?;
        let profile = folder.join("round.xplane.pb");
        write_file(&profile, &bytes)?;
        Ok(RoundAnswer::new(profile).devices(Some(devices)).clocks(clocks))
    }

    fn outputs(&mut self, candidate: usize, folder: &Path) -> Result<OutputsAnswer, Failure> {
        let mut outputs = Vec::new();
        self.job()?.outputs(candidate, |index, array| {
            let path = folder.join(format!("output-{candidate}-{index}.bin"));
            let spec = array.spec().clone();
            write_file(&path, &array.into_bytes().map_err(execute_failure)?)?;
            outputs.push(OutputRef { spec, path });
            Ok(())
        })?;
        Ok(OutputsAnswer { outputs })
    }

    fn keep_outputs(&mut self, candidate: usize, above: u64) -> Result<KeptOutputs, Failure> {
        self.job_mut()?.keep_outputs(candidate, above).map(KeptOutputs::new)
    }

    fn compare_outputs(&mut self, candidate: usize, tolerances: &[Tolerance]) -> Result<ComparedOutputs, Failure> {
        self.job()?.compare_outputs(candidate, tolerances).map(ComparedOutputs::new)
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
