//! The `pjrt` timer. Expendable workers compile side by side; another worker loads every executable and measures. Nothing is
//! measured during a compilation.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::compiled::{CompiledBefore, CompiledStore};
use super::compiler::{CompileCommands, CompileTask, CompileWorker, CompiledTask, DeviceAccess, as_compile_failure};
use super::compilers::Compilers;
use super::compiling::read_code;
use super::device::cpu_features;
use super::options::{Partitions, partitioned_options};
use super::process_flags::ProcessFlags;
use super::same_work::work_digest;
use super::start::{self, PjrtOptions, start_and_digest, without_profiler};
use super::store::{ExecutableKey, ExecutableStore, Listed, StoredExecutable};
use crate::device::{DeviceFingerprint, xla_measures};
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::hlo::is_measured_by_xla;
use crate::measured_by::Metric;
use crate::registry::Program;
use crate::timer::bench::{Bench, check_signature, info_of};
use crate::timer::clock::HOST_CLOCK;
use crate::timer::compiler_figures::CompilerFigures;
use crate::timer::events::Events;
use crate::timer::forecast::Forecast;
use crate::timer::info::TimerInfo;
use crate::timer::job::{Build, Job, JobCandidate, Prepared, ProgramFile, find, scratch};
use crate::timer::measured::{OutputsAs, RoundRequest, RoundSamples, TakenOutputs};
use crate::timer::model::{Foreknown, Timer};
use crate::timer::profiled::default_metric;
use crate::timer::protocol::{LoadParams, Loaded, Signature, capability, one_line};
use crate::timer::refusals::Refusals;

/// Default maximum number of concurrent compilations, and of those by workers that hold nothing of a device.
const MAX_COMPILE_JOBS: usize = 8;
const MAX_JOBS_WITHOUT_DEVICE: usize = 16;

fn default_compile_jobs(device: &DeviceFingerprint, without_device: bool) -> usize {
    let platform = device.identity.platform.as_str();
    let quiet_gpu =
        device.environment.xla_autotuning.is_some() && !xla_measures(platform, &device.environment.xla_flags);
    let most = match platform {
        _ if without_device => MAX_JOBS_WITHOUT_DEVICE,
        "cpu" => MAX_COMPILE_JOBS,
        _ if quiet_gpu => MAX_COMPILE_JOBS,
        _ => 1,
    };
    std::thread::available_parallelism().map_or(1, usize::from).min(most)
}

/// Times programs on a device of a PJRT plugin. The plugin is loaded in worker processes only.
pub struct PjrtTimer {
    bench: Bench,
    compilers: Compilers<CompileWorker>,
    store: ExecutableStore,
    refusals: Refusals,
    compiled: Option<Arc<CompiledStore>>,
    /// Seconds and bytes of the executables kept for the device, read on first use.
    costs: OnceCell<Vec<(f64, u64)>>,
    plugin_digest: Digest,
    device_index: usize,
    /// Workers can compile for the device without opening it.
    without_device: bool,
    /// A compilation during which XLA measures on the device runs alone.
    alone_if_measured: bool,
    /// For programs that bring their own options, as in [`PjrtOptions`].
    launch_options: BTreeMap<String, String>,
    job: Option<Job>,
    /// The plugin cannot serialize, or cannot load what it serialized.
    in_place: bool,
    /// It has loaded an executable that it serialized. A later failure to load then concerns one program only, for example one
    /// that calls XNNPACK.
    has_loaded: bool,
}

impl PjrtTimer {
    /// Starts the measuring worker and lists its devices. If the plugin dies of flags in `XLA_FLAGS`, it is started again
    /// without them, and a note names them.
    ///
    /// # Errors
    ///
    /// If the plugin cannot be loaded or shows no such device.
    pub fn start(options: &PjrtOptions) -> Result<Self, Failure> {
        let device_failure = |message: String| Failure::new(FailureKind::Device, message);
        let store = ExecutableStore::open(&options.executables).map_err(|error| {
            device_failure(format!("{}: cannot be a folder for executables: {error}", options.executables.display()))
        })?;
        let (plugin_digest, (command, client, hello)) = start_and_digest(options, Some(store.folder()))?;
        let mut device = hello
            .devices
            .get(hello.device)
            .cloned()
            .ok_or_else(|| device_failure("the plugin shows no device".to_owned()))?;
        let metric = match options.metric.clone() {
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
        let without_device = hello.topology.is_some();
        let compile_jobs = options.compile_jobs.unwrap_or_else(|| default_compile_jobs(&device, without_device));
        let compilers = {
            let (usual, limits, store) = (without_profiler(&command), options.limits.clone(), store.clone());
            let without_device = hello.topology.as_ref().map(|topology| start::without_device(&usual, topology));
            let commands = CompileCommands { usual, without_device };
            Compilers::new(compile_jobs, move |task| CompileWorker::start(&commands, &limits, &store, task))
        };
        let mut info = info_of("pjrt".to_owned(), &hello, device, metric);
        info.device_count = Some(hello.devices.len());
        let mut timer = Self {
            in_place,
            has_loaded: false,
            bench: Bench::new(command, options.limits.clone(), (client, hello), info),
            compilers,
            refusals: Refusals::open(store.folder(), plugin_digest),
            store,
            compiled: None,
            costs: OnceCell::new(),
            plugin_digest,
            device_index: options.device,
            without_device,
            alone_if_measured: options.compile_jobs.is_none(),
            launch_options: options.launch_options.clone(),
            job: None,
        };
        if let Some(options) = &options.compiled {
            let (compiled, notes) =
                CompiledStore::open(options, &timer.key(Digest::of(&[]), String::new(), Partitions::of(&[])))?;
            timer.bench.info.notes.extend(notes);
            timer.compiled = Some(Arc::new(compiled));
        }
        timer.know_place();
        Ok(timer)
    }

    /// What depends on where programs are compiled.
    fn know_place(&mut self) {
        let info = &mut self.bench.info;
        info.can.set_process_options = !self.in_place;
        // on other platforms each process holds a client, and with it memory of the device
        info.can.compile_beside_outputs = info.device.identity.platform == "cpu" && !self.in_place;
    }

    fn device(&self) -> &DeviceFingerprint {
        &self.bench.info.device
    }

    fn key_of(&self, program: &ProgramFile, build: &Build, process: Option<&ProcessFlags>) -> ExecutableKey {
        let mut key =
            self.key(program.program.digest, program.program.format.pjrt_format().to_owned(), partitions_of(program));
        if let Some(flags) = process {
            key.xla_flags = flags.in_key();
        }
        let base_options = program.compile_options.as_ref().map(|options| options.digest);
        ExecutableKey { overrides: build.options.clone(), copy: build.copy, base_options, ..key }
    }

    fn key(&self, program: Digest, format: String, partitions: Partitions) -> ExecutableKey {
        ExecutableKey {
            program,
            format,
            compile_options: partitioned_options(partitions, &[], &BTreeMap::new()),
            plugin: self.plugin_digest,
            device: self.device().identity.to_string(),
            device_index: self.device_index,
            cpu_features: cpu_features(),
            xla_flags: self.device().environment.xla_flags.clone(),
            target: None,
            toolchain: None,
            overrides: BTreeMap::new(),
            base_options: None,
            copy: 0,
        }
    }

    fn task(
        &self,
        candidate: usize,
        program: &ProgramFile,
        (key, process): (ExecutableKey, Option<ProcessFlags>),
    ) -> Result<CompileTask, Failure> {
        let scratch = scratch(&self.job)?;
        let config = find(&self.job, candidate)?.config.clone();
        let operation = self.job.as_ref().map(|job| job.call.to_string()).unwrap_or_default();
        let events = self.bench.events.clone();
        let (access, program, of) = (self.access(program), program.into(), None);
        Ok(CompileTask { candidate, operation, config, program, key, process, access, of, scratch, events })
    }

    /// What compiling a program needs of the device.
    fn access(&self, program: &ProgramFile) -> DeviceAccess {
        let platform = &self.device().identity.platform;
        if platform == "cpu" {
            return DeviceAccess::Shared;
        }
        // an unreadable program is refused by whoever compiles it
        let code = read_code(&program.into()).unwrap_or_default();
        let is_measured = xla_measures(platform, &self.device().environment.xla_flags) && is_measured_by_xla(&code);
        match is_measured {
            true if self.alone_if_measured => DeviceAccess::Alone,
            false if self.without_device && Partitions::of(&code).count == 1 => DeviceAccess::None,
            _ => DeviceAccess::Shared,
        }
    }

    /// The outcome of a program that was announced; `None` if it must be compiled now, because it was not, or because it cannot
    /// be compiled without the device.
    fn take(&mut self, candidate: usize) -> Option<Result<CompiledTask, Failure>> {
        match self.compilers.take(candidate) {
            Some(Err(failure)) if self.needs_device(&failure) => None,
            outcome => outcome,
        }
    }

    /// Whether a failure may be due to compiling without the device, which is not tried again.
    fn needs_device(&mut self, failure: &Failure) -> bool {
        if !self.without_device || failure.kind != FailureKind::Device {
            return false;
        }
        tracing::warn!("programs are compiled by workers that open the device: {failure}");
        self.without_device = false;
        true
    }

    /// Compiles in a worker whose crash does not affect others. An announced program is already in progress.
    fn compile(
        &mut self,
        candidate: usize,
        program: &ProgramFile,
        how: (ExecutableKey, Option<ProcessFlags>),
    ) -> Result<CompiledTask, Failure> {
        let compiled = self.compile_once(candidate, program, how.clone());
        match compiled {
            Err(failure) if self.needs_device(&failure) => self.compile_once(candidate, program, how),
            compiled => compiled,
        }
        .map_err(as_compile_failure)
    }

    fn compile_once(
        &self,
        candidate: usize,
        program: &ProgramFile,
        how: (ExecutableKey, Option<ProcessFlags>),
    ) -> Result<CompiledTask, Failure> {
        let task = self.task(candidate, program, how)?;
        self.compilers.submit([(candidate, task)])?;
        let nothing = || Err(Failure::new(FailureKind::Device, "a compilation was dropped"));
        self.compilers.take(candidate).unwrap_or_else(nothing)
    }

    /// Stops all compilation, so that the measurement has the machine for itself.
    fn quiet(&mut self) {
        self.compilers.hold();
        if self.device().identity.platform != "cpu" {
            // a client holds memory of the measured device
            self.compilers.free_device();
        }
    }

    fn quiet_for_outputs(&mut self) {
        if !self.bench.info.can.compile_beside_outputs {
            self.quiet();
        }
    }

    /// The outcome of a program that was compiled without the device; `None` if it is unknown or must be determined here.
    fn compiled_before(&self, program: &ProgramFile, key: &ExecutableKey) -> Option<CompiledBefore> {
        // without a device, programs are compiled with default options
        let is_default = key.overrides.is_empty()
            && key.base_options.is_none()
            && key.copy == 0
            && key.xla_flags == self.device().environment.xla_flags;
        let found = self.compiled.as_ref().filter(|_| is_default)?.find(key)?;
        // With a device, XLA measures how to compute some operations; without one it picks blindly. A race between the two
        // kinds of executables would compare these choices only.
        let measures = xla_measures(&self.device().identity.platform, &self.device().environment.xla_flags);
        let is_blind = || read_code(&program.into()).map_or(true, |code| is_measured_by_xla(&code));
        (!measures || !is_blind()).then_some(found)
    }

    fn build_of(&self, build: Build, program: &ProgramFile) -> Build {
        build.over(Some(program), &self.launch_options)
    }

    fn asked(&self, candidate: usize) -> Result<CandidateRequest, Failure> {
        let found = find(&self.job, candidate)?;
        let program = found.program.clone().ok_or_else(|| {
            Failure::new(
                FailureKind::NoProgram,
                "a PJRT plugin cannot build its program; `--timer jax` can if the record holds a recipe",
            )
        })?;
        let build = self.build_of(found.build.clone(), &program);
        let params = LoadParams::new(candidate, &JobCandidate { build: build.clone(), ..found.clone() });
        let process = ProcessFlags::of(self.device(), &build.process)?;
        Ok(CandidateRequest { program, build, process, params })
    }

    fn load_kept(&mut self, mut params: LoadParams, kept: StoredExecutable) -> Result<Prepared, Failure> {
        if let Some(signature) = &kept.signature {
            let inputs = self.job.as_ref().map(|job| job.inputs.as_slice()).unwrap_or_default();
            check_signature(signature, inputs)?;
        }
        let mut digest = kept.executable.digest;
        let brings_options = |file: &ProgramFile| file.compile_options.is_some();
        let is_usual = |build: &Build| build.options.is_empty() && build.process.is_empty();
        let has_own = |one: &JobCandidate| !is_usual(&one.build) || one.program.as_ref().is_some_and(brings_options);
        let has_options = |job: &Job| job.candidates.iter().any(has_own);
        let acts_in_running = AT_RUN_TIME.iter().any(|name| params.overrides.contains_key(*name));
        let is_cpu = self.device().identity.platform == "cpu";
        if is_cpu && !acts_in_running && self.job.as_ref().is_some_and(has_options) {
            // other options may give the same code
            digest = work_digest(&kept.executable.path, kept.executable.offset).or(digest);
        }
        params.executable = Some(kept.executable);
        let loaded = self.bench.load(params)?;
        self.note(&loaded);
        self.has_loaded = true;
        Ok(Prepared::of(&loaded).executable(digest))
    }

    /// Compiles or finds a candidate whose options are not known to be refused.
    fn prepare_new(&mut self, candidate: usize, asked: CandidateRequest) -> Result<Prepared, Failure> {
        let CandidateRequest { program, build, process, params } = asked;
        if self.in_place {
            return self.compile_in_place(params, process.as_ref(), NOT_SERIALIZED);
        }
        if let Some(outcome) = self.take(candidate) {
            return self.load_compiled(params, process.as_ref(), outcome.map_err(as_compile_failure)?);
        }
        let key = self.key_of(&program, &build, process.as_ref());
        if let Some(kept) = self.store.find(&key) {
            match self.load_kept(params.clone(), kept) {
                Ok(prepared) => return Ok(prepared.reused(true)),
                // a plugin may refuse its own serialized executable; then the program is compiled
                Err(failure) if failure.kind == FailureKind::Compile => {}
                Err(failure) => return Err(failure),
            }
        }
        match self.compiled_before(&program, &key) {
            Some(CompiledBefore::Refused(reason)) => {
                let message = format!("refused by the compiler without a device: {reason}");
                return Err(Failure::new(FailureKind::Compile, message));
            }
            Some(CompiledBefore::Executable(kept)) => match self.load_kept(params.clone(), kept) {
                Ok(prepared) => return Ok(prepared.reused(true)),
                Err(failure) if failure.kind == FailureKind::Compile => {
                    tracing::warn!(
                        "candidate {candidate} is compiled here, because the device does not accept its executable: \
                         {failure}"
                    );
                }
                Err(failure) => return Err(failure),
            },
            None => {}
        }
        let compiled = self.compile(candidate, &program, (key, process.clone()))?;
        self.load_compiled(params, process.as_ref(), compiled)
    }

    /// Notes once how donated inputs are restored before each run, if that costs time.
    fn note(&mut self, loaded: &Loaded) {
        let reason = loaded.from_host.as_ref().map(|reason| one_line(reason, 500));
        let notes = &mut self.bench.info.notes;
        notes.extend(reason.filter(|reason| !notes.contains(reason)).into_iter().collect::<Vec<_>>());
    }

    /// Compiles in the measuring worker. The request names the candidate, so that it is blamed if the worker dies. The worker
    /// has only the user's flags, so a candidate that needs other process flags is not compiled here.
    fn compile_in_place(
        &mut self,
        params: LoadParams,
        process: Option<&ProcessFlags>,
        why: &str,
    ) -> Result<Prepared, Failure> {
        if let Some(flags) = process {
            return Err(flags.not_loaded(why));
        }
        let loaded = self.bench.load(params)?;
        self.note(&loaded);
        Ok(Prepared::of(&loaded))
    }

    /// Loads a fresh executable. If the plugin cannot load its own executables, programs are compiled in the measuring worker.
    fn load_compiled(
        &mut self,
        params: LoadParams,
        process: Option<&ProcessFlags>,
        compiled: CompiledTask,
    ) -> Result<Prepared, Failure> {
        let CompiledTask { kept, compile_ns, cpu_ns, .. } = compiled;
        let mut why = NOT_SERIALIZED.to_owned();
        if let Some(kept) = kept {
            match self.load_kept(params.clone(), kept) {
                Ok(prepared) => return Ok(Prepared { compile_ns, cpu_ns, ..prepared }),
                // fresh and refused: this plugin cannot load what it serializes
                Err(failure) if failure.kind == FailureKind::Compile => why = failure.message,
                Err(failure) => return Err(failure),
            }
        }
        if !self.has_loaded && process.is_none() {
            self.in_place = true;
            self.know_place();
            self.compilers.clear();
            self.compilers.retire();
        }
        self.compile_in_place(params, process, &why)
    }
}

/// A candidate's program with its options for compiling and loading.
struct CandidateRequest {
    program: ProgramFile,
    build: Build,
    process: Option<ProcessFlags>,
    params: LoadParams,
}

/// A candidate's settings as refusals name them: flags of the compiling process keep their dashes.
fn settings(build: &Build) -> BTreeMap<String, String> {
    let flags = build.process.iter().map(|(name, value)| (format!("--{name}"), value.clone()));
    build.options.clone().into_iter().chain(flags).collect()
}

const NOT_SERIALIZED: &str = "the plugin does not serialize this executable";

/// Options that XLA:CPU reads when it runs a program: the same code with another value is another program.
const AT_RUN_TIME: [&str; 1] = ["xla_cpu_multi_thread_eigen"];

/// The number of partitions of a program. An unreadable program is never compiled.
fn partitions_of(program: &ProgramFile) -> Partitions {
    Partitions::of(&read_code(&program.into()).unwrap_or_default())
}

impl Timer for PjrtTimer {
    fn info(&self) -> &TimerInfo {
        &self.bench.info
    }

    fn forecast(&self, programs: &[ProgramFile]) -> Option<Forecast> {
        let is_kept = |program: &&ProgramFile| {
            let key = self.key_of(program, &self.build_of(Build::default(), program), None);
            self.store.find(&key).is_some() || self.compiled_before(program, &key).is_some()
        };
        let kept = programs.iter().filter(is_kept).count();
        let known = self.costs.get_or_init(|| {
            let device = self.device().identity.to_string();
            let listed = self.store.listed().unwrap_or_default();
            listed.iter().filter(|listed| listed.key.device == device).filter_map(Listed::cost).collect()
        });
        Some(Forecast::by(known, programs.len() - kept, kept, self.compilers.jobs()))
    }

    fn foreknown(&self, program: &Program, file: &dyn Fn() -> Option<ProgramFile>) -> Foreknown {
        let Some(note) = self.compiled.as_ref().and_then(|compiled| compiled.note(program.digest)) else {
            return Foreknown::default();
        };
        let figures = CompilerFigures { memory: note.memory, kernels: note.kernels.clone(), cost: note.cost };
        // most were not refused, and that check does not read the program
        let file = note.refused.as_ref().and_then(|_| file());
        let refused = file.and_then(|program| {
            let build = self.build_of(Build::default(), &program);
            match self.compiled_before(&program, &self.key_of(&program, &build, None))? {
                CompiledBefore::Refused(reason) => Some(reason),
                CompiledBefore::Executable(_) => None,
            }
        });
        Foreknown { figures: Some(figures), refused }
    }

    fn beside(&self) -> Option<Box<dyn Timer>> {
        self.bench.info.can.compile_beside_outputs.then(|| {
            Box::new(Self {
                bench: self.bench.beside(),
                compilers: self.compilers.share(),
                store: self.store.clone(),
                refusals: self.refusals.clone(),
                compiled: self.compiled.clone(),
                costs: OnceCell::new(),
                plugin_digest: self.plugin_digest,
                device_index: self.device_index,
                without_device: self.without_device,
                alone_if_measured: self.alone_if_measured,
                launch_options: self.launch_options.clone(),
                job: None,
                in_place: false,
                has_loaded: self.has_loaded,
            }) as Box<dyn Timer>
        })
    }

    fn follow(&mut self, events: &Events) {
        self.bench.events = events.clone();
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        // candidate numbers start over
        self.compilers.clear();
        self.bench.revive()?;
        self.job = Some(job.clone());
        self.bench.begin(job)
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<Signature>, Failure> {
        let CandidateRequest { program, build, process, params } = self.asked(candidate)?;
        if !self.in_place {
            let kept = match self.take(candidate) {
                Some(outcome) => outcome.map_err(as_compile_failure)?.kept,
                None => {
                    let key = self.key_of(&program, &build, process.as_ref());
                    match (self.store.find(&key), self.compiled_before(&program, &key)) {
                        (Some(kept), _) | (None, Some(CompiledBefore::Executable(kept))) => Some(kept),
                        _ => self.compile(candidate, &program, (key, process.clone()))?.kept,
                    }
                }
            };
            if let Some(signature) = kept.and_then(|kept| kept.signature) {
                return Ok(Some(signature));
            }
        }
        match process {
            Some(flags) => Err(flags.not_loaded(NOT_SERIALIZED)),
            None => self.bench.signature(params),
        }
    }

    fn expect(&mut self, candidates: &[usize]) -> Result<(), Failure> {
        if self.in_place {
            return Ok(());
        }
        let mut tasks = Vec::new();
        for &candidate in candidates {
            // a candidate that cannot be compiled at all is reported when it is prepared
            let Ok(CandidateRequest { program, build, process, .. }) = self.asked(candidate) else { continue };
            if self.refusals.find(&settings(&build)).is_some() {
                continue;
            }
            let key = self.key_of(&program, &build, process.as_ref());
            if self.store.find(&key).is_none() && self.compiled_before(&program, &key).is_none() {
                tasks.push((candidate, self.task(candidate, &program, (key, process))?));
            }
        }
        // an error of the pool is reported then, too
        let _ = self.compilers.submit(tasks);
        Ok(())
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        let asked = self.asked(candidate)?;
        let settings = settings(&asked.build);
        if let Some(known) = self.refusals.find(&settings) {
            return Err(known);
        }
        self.prepare_new(candidate, asked).inspect_err(|failure| self.refusals.take(&settings, failure))
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        let info = &self.bench.info;
        let by_profile = info.can.measure_rounds.then(|| info.metric.clone());
        if round.with_profile && by_profile.is_none() {
            let why = info.notes.iter().find(|note| note.starts_with(HOST_CLOCK)).map_or(HOST_CLOCK, String::as_str);
            return Err(Failure::new(FailureKind::Device, format!("the timer `pjrt` takes no profiles here: {why}")));
        }
        self.quiet();
        self.bench.measure(round, by_profile.as_ref(), &self.job)
    }

    fn cut_off(&mut self, longest_run: Option<Duration>) {
        self.bench.cut_off(longest_run);
    }

    fn outputs(&mut self, candidate: usize, taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        self.quiet_for_outputs();
        self.bench.outputs(candidate, taken, &self.job)
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.bench.restart(without)
    }

    fn end(&mut self) {
        self.job = None;
        // the workers stay for the next job, except those whose program is no longer wanted
        self.compilers.clear();
        self.bench.end();
    }
}

impl Drop for PjrtTimer {
    fn drop(&mut self) {
        self.bench.shutdown();
    }
}
