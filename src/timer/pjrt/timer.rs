//! The `pjrt` timer: an expendable worker compiles, another one loads every executable and measures.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::device::cpu_features;
use super::flags::without_fatal;
use super::options::compile_options;
use super::store::{ExecutableKey, ExecutableStore, Kept};
use crate::array::ArraySpec;
use crate::device::DeviceFingerprint;
use crate::digest::Digest;
use crate::timer::bench::{Bench, check_signature};
use crate::timer::client::{Limits, WorkerClient, WorkerCommand};
use crate::timer::command::{find, scratch};
use crate::timer::model::{
    Failure, FailureKind, Job, Metric, OutputArray, Prepared, ProgramFile, Source, Timer, means, runs_of_batches,
};
use crate::timer::profiled::{ProfiledRound, default_metric};
use crate::timer::protocol::{Call, CompileParams, Compiled, ExecutableRef, Hello, LoadParams, ProgramRef, capability};

/// How to start a [`PjrtTimer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PjrtOptions {
    /// This program, which workers are started from.
    pub exe: PathBuf,
    /// The plugin's file.
    pub plugin: PathBuf,
    /// Index of the device to measure on.
    pub device: usize,
    /// `name=value` for the plugin's client; sensible ones for its platform when empty.
    pub client_options: Vec<String>,
    /// `XLA_FLAGS` of the workers; this process's own where not told.
    pub xla_flags: Option<String>,
    /// What of an execution is its duration: [`Metric::Elapsed`] is the host clock, the others need the plugin's
    /// profiler; the device time of a profile where there is one unless told.
    pub metric: Option<Metric>,
    /// Folder of the kept executables.
    pub executables: PathBuf,
    /// Limits of both workers.
    pub limits: Limits,
}

impl PjrtOptions {
    fn command(&self) -> WorkerCommand {
        let mut command = vec![self.exe.clone().into(), "worker".into(), "pjrt".into()];
        command.extend(["--plugin".into(), self.plugin.clone().into()]);
        command.extend(["--device".into(), self.device.to_string().into()]);
        for option in &self.client_options {
            command.extend(["--client-option".into(), option.into()]);
        }
        if self.metric == Some(Metric::Elapsed) {
            command.push(NO_PROFILER.into());
        }
        let environment = vec![("XLA_FLAGS".into(), Some(self.flags().into()))];
        WorkerCommand { exe: self.exe.clone(), command, environment }
    }

    fn flags(&self) -> String {
        self.xla_flags.clone().unwrap_or_else(|| std::env::var("XLA_FLAGS").unwrap_or_default())
    }
}

/// Tells a worker to leave the plugin's profiler alone.
const NO_PROFILER: &str = "--no-profiler";

/// The same command for a worker that does not measure: two workers must not hold the device's profiler.
fn without_profiler(command: &WorkerCommand) -> WorkerCommand {
    let mut command = command.clone();
    if !command.command.iter().any(|word| word == NO_PROFILER) {
        command.command.push(NO_PROFILER.into());
    }
    command
}

/// Times programs on a device of a PJRT plugin. The plugin is loaded in worker processes only.
pub struct PjrtTimer {
    bench: Bench,
    /// Of the compile worker.
    command: WorkerCommand,
    limits: Limits,
    compiler: Option<WorkerClient>,
    store: ExecutableStore,
    plugin_digest: Digest,
    device: DeviceFingerprint,
    device_index: usize,
    notes: Vec<String>,
    metric: Metric,
    job: Option<Job>,
    /// The plugin cannot serialize, or not load what it serialized.
    in_place: bool,
}

impl PjrtTimer {
    /// Starts the measuring worker and asks for its devices. A plugin that dies of flags in `XLA_FLAGS` is started
    /// again without them, which [`notes`](Self::notes) tells.
    pub fn start(options: &PjrtOptions) -> Result<Self, Failure> {
        let device_failure = |message: String| Failure::new(FailureKind::Device, message);
        let plugin_digest = digest_of_plugin(&options.plugin)?;
        let store = ExecutableStore::open(&options.executables).map_err(|error| {
            device_failure(format!("{}: no folder for executables: {error}", options.executables.display()))
        })?;
        let (command, client, hello) = start_worker(options)?;
        let mut device = hello
            .devices
            .get(hello.device)
            .cloned()
            .ok_or_else(|| device_failure("the plugin shows no device".to_owned()))?;
        let metric = match options.metric {
            Some(Metric::Elapsed) => Metric::Elapsed,
            Some(metric) if hello.can(capability::PROFILE) => metric,
            Some(metric) => {
                let why = hello.notes.first().map_or(HOST_CLOCK, String::as_str);
                return Err(device_failure(format!("there is no `{metric}` to decide by: {why}")));
            }
            None if hello.can(capability::PROFILE) => default_metric(&device.identity.platform),
            None => Metric::Elapsed,
        };
        device.environment.plugin_digest = Some(plugin_digest);
        let in_place = !hello.can(capability::COMPILE);
        Ok(Self {
            in_place,
            notes: hello.notes.clone(),
            bench: Bench::new(command.clone(), options.limits.clone(), client, hello),
            command: without_profiler(&command),
            metric,
            limits: options.limits.clone(),
            compiler: None,
            store,
            plugin_digest,
            device,
            device_index: options.device,
            job: None,
        })
    }

    fn key(&self, program: &ProgramFile) -> ExecutableKey {
        ExecutableKey {
            program: program.program.digest,
            format: program.program.format.pjrt_format(),
            compile_options: compile_options(None),
            plugin: self.plugin_digest,
            device: self.device.identity.to_string(),
            device_index: self.device_index,
            cpu_features: cpu_features(),
            xla_flags: self.device.environment.xla_flags.clone(),
        }
    }

    /// Compiles in the compile worker, which is started where there is none and dies alone. `None` where the plugin
    /// cannot serialize.
    fn compile(
        &mut self,
        candidate: usize,
        program: &ProgramFile,
        key: &ExecutableKey,
    ) -> Result<Option<(Kept, u64)>, Failure> {
        let payload = scratch(&self.job)?.join(format!("candidate-{candidate}.exe"));
        let mut compiler = match self.compiler.take() {
            Some(compiler) => compiler,
            None => {
                let mut compiler = WorkerClient::spawn(&self.command, &self.limits)?;
                compiler.hello(&self.limits)?;
                compiler
            }
        };
        let call =
            Call::Compile(CompileParams { candidate, program: program_ref(program), executable: payload.clone() });
        let compiled: Compiled = match compiler.request(call, self.limits.compile) {
            Ok(compiled) => compiled,
            Err(failure) => {
                // one that only refused the program is as good as before
                if !compiler.is_gone() {
                    self.compiler = Some(compiler);
                }
                return Err(as_compile_failure(failure));
            }
        };
        self.compiler = Some(compiler);
        if !compiled.serialized {
            return Ok(None);
        }
        let kept = match self.store.keep(key, &payload, compiled.signature.clone()) {
            Ok(kept) => {
                let _ = std::fs::remove_file(&payload);
                kept
            }
            Err(error) => {
                // a full or missing folder costs the next run a compilation, and this one nothing
                tracing::warn!("the executable of candidate {candidate} was not kept: {error}");
                let executable = ExecutableRef { path: payload, offset: 0 };
                Kept { executable, signature: compiled.signature }
            }
        };
        Ok(Some((kept, compiled.compile_ns)))
    }

    fn load_params(&self, candidate: usize) -> Result<(ProgramFile, LoadParams), Failure> {
        let found = find(&self.job, candidate)?;
        let program = found.program.clone().ok_or_else(|| {
            Failure::new(
                FailureKind::NoProgram,
                format!("candidate {candidate} has no program and a PJRT plugin cannot build one"),
            )
        })?;
        let (config, reference) = (found.config.clone(), program_ref(&program));
        Ok((program, LoadParams { candidate, config, program: Some(reference), executable: None }))
    }

    fn load_kept(&mut self, mut params: LoadParams, kept: Kept) -> Result<(), Failure> {
        if let Some(signature) = &kept.signature {
            let inputs = self.job.as_ref().map(|job| job.inputs.as_slice()).unwrap_or_default();
            check_signature(signature, inputs)?;
        }
        params.executable = Some(kept.executable);
        self.bench.load(params).map(drop)
    }

    /// The measuring worker compiles: its request names the candidate that is to blame if it dies.
    fn compile_in_place(&mut self, params: LoadParams) -> Result<Prepared, Failure> {
        let loaded = self.bench.load(params)?;
        Ok(Prepared { compile_ns: loaded.compile_ns, reused: false })
    }
}

/// The compile worker's death is the program's failure, not one of the measuring worker, which goes on.
fn as_compile_failure(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Crash | FailureKind::Timeout | FailureKind::Memory | FailureKind::Protocol => {
            Failure::new(FailureKind::Compile, format!("{}: {}", failure.kind, failure.message))
        }
        _ => failure,
    }
}

fn program_ref(program: &ProgramFile) -> ProgramRef {
    ProgramRef { format: program.program.format, path: program.path.clone() }
}

/// SHA-256 of the plugin's file.
fn digest_of_plugin(plugin: &Path) -> Result<Digest, Failure> {
    let digest = File::open(plugin).and_then(Digest::of_reader);
    digest.map_err(|error| {
        Failure::new(FailureKind::Device, format!("{}: the plugin cannot be read: {error}", plugin.display()))
    })
}

/// Every device that a plugin shows, as a worker with the given options sees them.
pub fn probe(options: &PjrtOptions) -> Result<Vec<DeviceFingerprint>, Failure> {
    let plugin_digest = digest_of_plugin(&options.plugin)?;
    // to see a device its profiler is not needed
    let options = &PjrtOptions { metric: Some(Metric::Elapsed), ..options.clone() };
    let (_, client, hello) = start_worker(options)?;
    client.shutdown(&options.limits);
    let mut devices = hello.devices;
    for device in &mut devices {
        device.environment.plugin_digest = Some(plugin_digest);
    }
    Ok(devices)
}

/// How the note begins that says why there is no device time: no warning where a plugin has none to give.
pub const HOST_CLOCK: &str = "timed by the host clock";

/// A worker that said hello, with the command that works: without the flags that the plugin dies of, and without its
/// profiler where the trial of that breaks the worker.
fn start_worker(options: &PjrtOptions) -> Result<(WorkerCommand, WorkerClient, Hello), Failure> {
    let limits = &options.limits;
    let mut command = options.command();
    let mut flags = options.flags();
    let mut notes = Vec::new();
    loop {
        let mut client = WorkerClient::spawn(&command, limits)?;
        match client.hello(limits) {
            Ok(mut hello) => {
                hello.notes.extend(notes);
                return Ok((command, client, hello));
            }
            Err(failure) => {
                // each turn takes a flag away, thus there are not many
                let Some((left, gone)) = without_fatal(&flags, &client.stderr()) else {
                    let quiet = without_profiler(&command);
                    if !client.is_gone() || quiet == command {
                        return Err(failure);
                    }
                    let why = format!("{HOST_CLOCK}: the plugin's profiler broke the worker: {}", failure.message);
                    notes.push(why);
                    command = quiet;
                    continue;
                };
                notes.push(format!("this plugin does not take `{}` of XLA_FLAGS: measured without", gone.join(" ")));
                command.environment = vec![("XLA_FLAGS".into(), Some(left.clone().into()))];
                flags = left;
            }
        }
    }
}

impl Timer for PjrtTimer {
    fn name(&self) -> &str {
        "pjrt"
    }

    fn source(&self) -> Source {
        self.bench.hello().source
    }

    fn metric(&self) -> Metric {
        self.metric
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn clock_resolution_ns(&self) -> Option<u64> {
        self.bench.clock_resolution_ns()
    }

    fn device(&self) -> &DeviceFingerprint {
        &self.device
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.bench.revive()?;
        self.job = Some(job.clone());
        self.bench.begin(job)
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<Vec<ArraySpec>>, Failure> {
        let (program, params) = self.load_params(candidate)?;
        if !self.in_place {
            let key = self.key(&program);
            let kept = match self.store.find(&key) {
                Some(kept) => Some(kept),
                None => self.compile(candidate, &program, &key)?.map(|(kept, _)| kept),
            };
            if let Some(signature) = kept.and_then(|kept| kept.signature) {
                return Ok(Some(signature.parameters));
            }
        }
        self.bench.signature(params)
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        let (program, params) = self.load_params(candidate)?;
        if self.in_place {
            return self.compile_in_place(params);
        }
        let key = self.key(&program);
        if let Some(kept) = self.store.find(&key) {
            match self.load_kept(params.clone(), kept) {
                Ok(()) => return Ok(Prepared { compile_ns: 0, reused: true }),
                // a plugin may refuse what it wrote itself: then the program decides
                Err(failure) if failure.kind == FailureKind::Compile => {}
                Err(failure) => return Err(failure),
            }
        }
        match self.compile(candidate, &program, &key)? {
            Some((kept, compile_ns)) => match self.load_kept(params.clone(), kept) {
                Ok(()) => Ok(Prepared { compile_ns, reused: false }),
                // fresh and refused: what this plugin serializes is of no use
                Err(failure) if failure.kind == FailureKind::Compile => {
                    self.in_place = true;
                    self.compile_in_place(params)
                }
                Err(failure) => Err(failure),
            },
            None => {
                self.in_place = true;
                self.compile_in_place(params)
            }
        }
    }

    fn measure(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        if self.measures_rounds() {
            return self.measure_round(&[(candidate, runs)]).map(|mut durations| durations.pop().unwrap_or_default());
        }
        self.bench.measure(candidate, runs)
    }

    fn measure_batches(&mut self, candidate: usize, samples: u32, batch: u32) -> Result<Vec<u64>, Failure> {
        if self.measures_rounds() {
            let runs = runs_of_batches(samples, batch)?;
            return Ok(means(&self.measure(candidate, runs)?, batch));
        }
        self.bench.measure_batches(candidate, samples, batch)
    }

    fn cut_off(&mut self, longest_run: Option<Duration>) {
        self.bench.cut_off(longest_run);
    }

    fn measures_rounds(&self) -> bool {
        self.bench.hello().can(capability::PROFILE)
    }

    fn measure_round(&mut self, launches: &[(usize, u32)]) -> Result<Vec<Vec<u64>>, Failure> {
        if !self.measures_rounds() {
            return launches.iter().map(|&(candidate, runs)| self.bench.measure(candidate, runs)).collect();
        }
        Ok(self.profile_round(launches)?.durations(self.metric))
    }

    fn profile_round(&mut self, launches: &[(usize, u32)]) -> Result<ProfiledRound, Failure> {
        if !self.measures_rounds() {
            let why = self.notes.iter().find(|note| note.starts_with(HOST_CLOCK)).map_or(HOST_CLOCK, String::as_str);
            return Err(Failure::new(FailureKind::Device, format!("the timer `pjrt` takes no profiles here: {why}")));
        }
        let folder = scratch(&self.job)?;
        self.bench.profile_round(launches, folder)
    }

    fn outputs(&mut self, candidate: usize) -> Result<Vec<OutputArray>, Failure> {
        let folder = scratch(&self.job)?;
        self.bench.outputs(candidate, folder)
    }

    fn epoch(&self) -> u32 {
        self.bench.epoch()
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.bench.restart(without)
    }

    fn end(&mut self) {
        self.job = None;
        self.compiler = None;
        self.bench.end();
    }
}

impl Drop for PjrtTimer {
    fn drop(&mut self) {
        self.bench.shutdown();
    }
}
