//! The `pjrt` timer. Expendable workers compile side by side; another worker loads every executable and measures.
//! Nothing is measured during a compilation.

use std::collections::BTreeMap;
use std::time::Duration;

use super::compile::{
    CompileCommands, CompileTask, CompiledBefore, CompiledTask, ExecutableKey, ExecutableStore, ProcessFlags,
    StoredExecutable, as_compile_failure, work_digest,
};
use super::executable_source::ExecutableSource;
use super::plugin::digest_while;
use super::start::{self, PjrtOptions, start_worker, without_profiler};
use crate::device::DeviceFingerprint;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::Metric;
use crate::registry::Program;
use crate::timer::argument_check::check_signature;
use crate::timer::bench::Bench;
use crate::timer::clock::HOST_CLOCK;
use crate::timer::events::Events;
use crate::timer::forecast::Forecast;
use crate::timer::info::TimerInfo;
use crate::timer::job::{Build, Job, JobCandidate, Prepared, ProgramFile, find, scratch};
use crate::timer::measured::{OutputsAs, RoundRequest, RoundSamples, TakenOutputs};
use crate::timer::model::{Foreknown, Timer};
use crate::timer::profiled::default_metric;
use crate::timer::protocol::{Hello, LoadAnswer, LoadParams, ProgramSignature, capability, one_line};
use crate::timer::refusals::Refusals;

/// Times programs on a device of a PJRT plugin. The plugin is loaded in worker processes only.
pub struct PjrtTimer {
    bench: Bench,
    source: ExecutableSource,
    refusals: Refusals,
    /// For programs that bring their own options, as in [`PjrtOptions`].
    launch_options: BTreeMap<String, String>,
    job: Option<Job>,
    /// The plugin cannot serialize, or cannot load what it serialized.
    in_place: bool,
    /// It has loaded an executable that it serialized. A later failure to load then concerns one program only, for
    /// example one that calls XNNPACK.
    has_loaded: bool,
}

impl PjrtTimer {
    /// Starts the measuring worker and lists its devices. If the plugin dies of flags in `XLA_FLAGS`, it is started
    /// again without them, and a note names them.
    ///
    /// # Errors
    ///
    /// If the plugin cannot be loaded or shows no such device.
    pub fn start(options: &PjrtOptions) -> Result<Self, Failure> {
        let device_failure = |message: String| Failure::new(FailureKind::Device, message);
        let store = ExecutableStore::open(&options.executables).map_err(|error| {
            device_failure(format!("{}: cannot be a folder for executables: {error}", options.executables.display()))
        })?;
        let (plugin_digest, (command, client, hello)) =
            digest_while(&options.plugin, Some(store.folder()), || start_worker(options))?;
        let mut device = hello
            .devices
            .get(hello.device)
            .cloned()
            .ok_or_else(|| device_failure("the plugin shows no device".to_owned()))?;
        let metric = metric_of(options, &hello, &device)?;
        device.environment.plugin_digest = Some(plugin_digest);
        let usual = without_profiler(&command);
        let without_device = hello.topology.as_ref().map(|topology| start::without_device(&usual, topology));
        let commands = CompileCommands { usual, without_device };
        let refusals = Refusals::open(store.folder(), plugin_digest);
        let (source, notes) = ExecutableSource::open(options, store, commands, (device.clone(), plugin_digest))?;
        let mut info = TimerInfo::of_worker("pjrt".to_owned(), &hello, device, metric);
        info.device_count = Some(hello.devices.len());
        info.notes.extend(notes);
        let mut timer = Self {
            in_place: !hello.can(capability::COMPILE),
            has_loaded: false,
            bench: Bench::new(command, options.limits.clone(), (client, hello), info),
            source,
            refusals,
            launch_options: options.launch_options.clone(),
            job: None,
        };
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

    fn task(
        &self,
        candidate: usize,
        program: &ProgramFile,
        (key, process): (ExecutableKey, Option<ProcessFlags>),
    ) -> Result<CompileTask, Failure> {
        let scratch = scratch(&self.job)?;
        let config = find(&self.job, candidate)?.config.clone();
        let operation = self.job.as_ref().map(|job| job.call.to_string()).unwrap_or_default();
        let (events, program, of) = (self.bench.events.clone(), program.into(), None);
        let access = self.source.access(&program);
        Ok(CompileTask { candidate, operation, config, program, key, process, access, of, scratch, events })
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
        let process = ProcessFlags::of(&self.bench.info.device, &build.process)?;
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
        let is_cpu = self.bench.info.device.identity.platform == "cpu";
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
        if let Some(outcome) = self.source.take(candidate) {
            return self.load_compiled(params, process.as_ref(), outcome.map_err(as_compile_failure)?);
        }
        let key = self.source.key_of(&program, &build, process.as_ref());
        if let Some(kept) = self.source.find(&key) {
            match self.load_kept(params.clone(), kept) {
                Ok(prepared) => return Ok(prepared.reused(true)),
                // a plugin may refuse its own serialized executable; then the program is compiled
                Err(failure) if failure.kind == FailureKind::Compile => {}
                Err(failure) => return Err(failure),
            }
        }
        match self.source.compiled_before(&program, &key) {
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
        let compiled = self.source.compile(self.task(candidate, &program, (key, process.clone()))?)?;
        self.load_compiled(params, process.as_ref(), compiled)
    }

    /// Notes once how donated inputs are restored before each run, if that costs time.
    fn note(&mut self, loaded: &LoadAnswer) {
        let reason = loaded.from_host.as_ref().map(|reason| one_line(reason, 500));
        let notes = &mut self.bench.info.notes;
        notes.extend(reason.filter(|reason| !notes.contains(reason)).into_iter().collect::<Vec<_>>());
    }

    /// Compiles in the measuring worker. The request names the candidate, so that it is blamed if the worker dies. The
    /// worker has only the user's flags, so a candidate that needs other process flags is not compiled here.
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

    /// Loads a fresh executable. If the plugin cannot load its own executables, programs are compiled in the measuring
    /// worker.
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
            self.source.clear();
            self.source.retire();
        }
        self.compile_in_place(params, process, &why)
    }
}

/// The metric that is asked for, if the worker can measure it.
fn metric_of(options: &PjrtOptions, hello: &Hello, device: &DeviceFingerprint) -> Result<Metric, Failure> {
    match options.metric.clone() {
        Some(Metric::Elapsed) => Ok(Metric::Elapsed),
        Some(metric) if hello.can(capability::PROFILE) => Ok(metric),
        Some(metric) => {
            let why = hello.notes.first().map_or(HOST_CLOCK, String::as_str);
            Err(Failure::new(FailureKind::Device, format!("there is no `{metric}` to decide by: {why}")))
        }
        None if hello.can(capability::PROFILE) => Ok(default_metric(&device.identity.platform)),
        None => Ok(Metric::Elapsed),
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

impl Timer for PjrtTimer {
    fn info(&self) -> &TimerInfo {
        &self.bench.info
    }

    fn forecast(&self, programs: &[ProgramFile]) -> Option<Forecast> {
        let with_builds = programs.iter().map(|program| (program, self.build_of(Build::default(), program)));
        Some(self.source.forecast(with_builds))
    }

    fn foreknown(&self, program: &Program, file: &dyn Fn() -> Option<ProgramFile>) -> Foreknown {
        self.source.foreknown(program, file, |file| self.build_of(Build::default(), file))
    }

    fn beside(&self) -> Option<Box<dyn Timer>> {
        self.bench.info.can.compile_beside_outputs.then(|| {
            Box::new(Self {
                bench: self.bench.beside(),
                source: self.source.share(),
                refusals: self.refusals.clone(),
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
        self.source.clear();
        self.bench.revive()?;
        self.job = Some(job.clone());
        self.bench.begin(job)
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<ProgramSignature>, Failure> {
        let CandidateRequest { program, build, process, params } = self.asked(candidate)?;
        if !self.in_place {
            let kept = match self.source.take(candidate) {
                Some(outcome) => outcome.map_err(as_compile_failure)?.kept,
                None => {
                    let key = self.source.key_of(&program, &build, process.as_ref());
                    match (self.source.find(&key), self.source.compiled_before(&program, &key)) {
                        (Some(kept), _) | (None, Some(CompiledBefore::Executable(kept))) => Some(kept),
                        _ => self.source.compile(self.task(candidate, &program, (key, process.clone()))?)?.kept,
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
            let key = self.source.key_of(&program, &build, process.as_ref());
            if !self.source.is_known(&program, &key) {
                tasks.push((candidate, self.task(candidate, &program, (key, process))?));
            }
        }
        // an error of the pool is reported then, too
        let _ = self.source.announce(tasks);
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
        self.source.quiet();
        self.bench.measure(round, by_profile.as_ref(), &self.job)
    }

    fn cut_off(&mut self, longest_run: Option<Duration>) {
        self.bench.cut_off(longest_run);
    }

    fn outputs(&mut self, candidate: usize, taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        if !self.bench.info.can.compile_beside_outputs {
            self.source.quiet();
        }
        self.bench.outputs(candidate, taken, &self.job)
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.bench.restart(without)
    }

    fn end(&mut self) {
        self.job = None;
        // the workers stay for the next job, except those whose program is no longer wanted
        self.source.clear();
        self.bench.end();
    }
}

impl Drop for PjrtTimer {
    fn drop(&mut self) {
        self.bench.shutdown();
    }
}
