//! `command:…`: a timer whose worker is any program that speaks the protocol of `docs/worker-protocol.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::client::WorkerClient;
use super::clock::HOST_CLOCK;
use super::events::Events;
use super::info::TimerInfo;
use super::job::{Job, JobCandidate, Prepared, find};
use super::measured::{OutputsAs, RoundRequest, RoundSamples, TakenOutputs};
use super::model::Timer;
use super::profiled::default_metric;
use super::protocol::{Hello, LoadParams, ProgramSignature, capability};
use super::refusals::Refusals;
use super::worker_command::{WorkerCommand, WorkerLimits};
use crate::device::xla_autotuning;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::{Metric, Source};
use crate::scratch::Scratch;

/// Drives an external worker.
pub struct CommandTimer {
    bench: Bench,
    job: Option<Job>,
    /// Options that the worker's compiler refuses, if that compiler is known.
    refusals: Option<Refusals>,
    /// Of a built-in worker.
    script: Option<Arc<WorkerScript>>,
}

/// Which `jax` worker is started.
#[derive(Debug, Clone)]
pub struct JaxScript {
    /// A Python with JAX.
    pub python: PathBuf,
    /// Which of its devices.
    pub device: usize,
    /// The workers' `XLA_FLAGS`, in place of this process's.
    pub xla_flags: Option<String>,
    /// The socket where workers of this Python and this environment are forked, if there is one already.
    pub template: Option<PathBuf>,
}

/// What workers of a script need until none is started any more.
struct WorkerScript {
    /// The process that forks them, unless each is started.
    _template: Option<WorkerClient>,
    /// The folder of the script.
    _scratch: Scratch,
}

/// What only the built-in worker is asked, before anything else.
#[derive(Serialize)]
#[serde(tag = "method", content = "params", rename_all = "kebab-case")]
enum FirstCall<'a> {
    /// To fork workers from now on, at this socket.
    Template { socket: &'a Path },
}

#[derive(Deserialize)]
struct TemplateAnswer {
    forks: bool,
}

/// The `jax` worker, which needs nothing but JAX: `python/autotune_lowered/worker.py`.
const JAX_WORKER: &str = include_str!("../../worker.py");

impl CommandTimer {
    /// Starts the shell command and sends `hello`. `exe` is this program.
    ///
    /// If the worker's times come from profiles, `metric` says which part of an execution is its duration; by default,
    /// the span on a CPU and the busy time elsewhere.
    ///
    /// # Errors
    ///
    /// If the worker cannot be started or does not answer `hello`.
    pub fn start(exe: &Path, command: &str, limits: WorkerLimits, metric: Option<Metric>) -> Result<Self, Failure> {
        let worker = WorkerCommand::shell(exe, command);
        let started = WorkerClient::start(&worker, &limits)?;
        Self::with_worker(format!("command:{command}"), worker, started, limits, metric, None)
    }

    /// Starts the `jax` worker with this Python on one of its devices. It times by profiles, and with the metric
    /// `elapsed` by the host clock.
    ///
    /// # Errors
    ///
    /// If the Python has no JAX, no worker of this package, or no such device.
    pub fn start_jax(
        exe: &Path,
        JaxScript { python, device, xla_flags, template }: JaxScript,
        limits: WorkerLimits,
        metric: Option<Metric>,
    ) -> Result<Self, Failure> {
        let failure = |error: std::io::Error| {
            Failure::new(FailureKind::Device, format!("the jax worker's script cannot be written: {error}"))
        };
        let scratch = Scratch::new().map_err(failure)?;
        let script = scratch.path().join("jax-worker.py");
        std::fs::write(&script, JAX_WORKER).map_err(failure)?;
        // what one worker compiles, the next one loads
        let kept = scratch.path().join("executables");
        let arguments = [script.into_os_string(), device.to_string().into(), kept.into_os_string()];
        let command = [python.into_os_string(), "-u".into()].into_iter().chain(arguments).collect();
        let environment = xla_flags.map(|flags| ("XLA_FLAGS".into(), Some(flags.into()))).into_iter().collect();
        let mut worker = WorkerCommand { exe: exe.to_owned(), command, environment, template };
        let (started, own) = Self::started_jax(&mut worker, scratch.path().join("template"), &limits)?;
        let script = WorkerScript { _template: own, _scratch: scratch };
        Self::with_worker("jax".to_owned(), worker, started, limits, metric, Some(Arc::new(script)))
    }

    /// The first worker, and the process that forks it and those to come, if there is none already and can be one. If a
    /// forked worker does not come as far as its greeting, all are started.
    fn started_jax(
        worker: &mut WorkerCommand,
        socket: PathBuf,
        limits: &WorkerLimits,
    ) -> Result<((WorkerClient, Hello), Option<WorkerClient>), Failure> {
        let mut own = None;
        if worker.template.is_none() {
            let mut first = WorkerClient::spawn(worker, limits)?;
            let call = FirstCall::Template { socket: &socket };
            match first.ask::<TemplateAnswer>("template", &call, limits.start.into()) {
                Ok(TemplateAnswer { forks: false }) => return Ok((first.greeted(worker, limits)?, None)),
                Ok(TemplateAnswer { forks: true }) => (worker.template, own) = (Some(socket), Some(first)),
                Err(_) => {}
            }
        }
        if worker.template.is_some()
            && let Ok(started) = WorkerClient::start(worker, limits)
        {
            return Ok((started, own));
        }
        worker.template = None;
        Ok((WorkerClient::start(worker, limits)?, None))
    }

    fn with_worker(
        name: String,
        worker: WorkerCommand,
        (client, hello): (WorkerClient, Hello),
        limits: WorkerLimits,
        metric: Option<Metric>,
        script: Option<Arc<WorkerScript>>,
    ) -> Result<Self, Failure> {
        let device = hello.devices.get(hello.device).cloned();
        let mut device = device.ok_or_else(|| Failure::new(FailureKind::Device, "the worker shows no device"))?;
        if script.is_some() {
            // JAX's compiler is XLA
            device.environment.xla_autotuning =
                xla_autotuning(&device.identity.platform, &device.environment.xla_flags);
        }
        let from_profile = hello.can(capability::PROFILE);
        let metric = match metric {
            // a built-in worker has both
            Some(Metric::Elapsed) if script.is_some() => Metric::Elapsed,
            Some(Metric::Elapsed) if from_profile => {
                let message = format!("`{name}` times only by profiles: `elapsed` needs a timer with the host clock");
                return Err(Failure::new(FailureKind::Device, message));
            }
            Some(metric) if from_profile || metric == Metric::Elapsed => metric,
            Some(metric) => {
                let why = hello.notes.iter().find(|note| note.starts_with(HOST_CLOCK));
                let why = why.map_or_else(String::new, |why| format!(" ({why})"));
                let message = format!("the worker gives no profiles: there is no `{metric}` to decide by{why}");
                return Err(Failure::new(FailureKind::Device, message));
            }
            None if from_profile => default_metric(&device.identity.platform),
            None => Metric::Elapsed,
        };
        let mut info = TimerInfo::of_worker(name, &hello, device, metric);
        // unknown for an external worker; on other devices each process takes device memory
        info.can.compile_beside_outputs = script.is_some() && info.device.identity.platform == "cpu";
        let has_spares = info.can.compile_beside_outputs;
        let bench = Bench::new(worker, limits, (client, hello), info).with_spares(has_spares);
        let mut timer = Self { bench, job: None, refusals: None, script };
        timer.choose_clock();
        Ok(timer)
    }

    /// Times a CPU's programs by the host clock: while a profile is taken, each of their operations takes longer, so
    /// that programs with many small ones look worse than they are, and ending a profile takes longer than most rounds.
    /// Elsewhere nothing changes.
    #[must_use]
    pub fn prefer_clock(mut self) -> Self {
        if self.script.is_some() && self.bench.info.device.identity.platform == "cpu" {
            self.bench.info.metric = Metric::Elapsed;
            self.bench.info.notes.push(format!(
                "{HOST_CLOCK}: JAX's profiler slows programs on a CPU; `--metric span` uses it all the same"
            ));
            self.choose_clock();
        }
        self
    }

    /// Stores in a folder which options of the compiler are refused, so that the next run need not try them: if the
    /// worker reports its compiler.
    #[must_use]
    pub fn remember_refusals(mut self, folder: &Path) -> Self {
        self.refusals = self.bench.hello().compiler.map(|compiler| Refusals::open(folder, compiler));
        self
    }

    /// A built-in worker that could take profiles may time by the host clock all the same.
    fn choose_clock(&mut self) {
        if self.script.is_some() && self.bench.info.metric == Metric::Elapsed {
            (self.bench.info.source, self.bench.info.can.measure_rounds) = (Source::HostWall, false);
        }
    }

    /// Why the options of a candidate are refused, if known.
    fn refused(&self, candidate: usize) -> Option<Failure> {
        let options = &find(&self.job, candidate).ok()?.build.options;
        self.refusals.as_ref()?.find(options)
    }

    fn load_params(&self, candidate: usize) -> Result<LoadParams, Failure> {
        let found = find(&self.job, candidate)?;
        let has_recipe = self.job.as_ref().is_some_and(|job| job.recipe.is_some());
        let hello = self.bench.hello();
        let can_build = hello.can(capability::BUILD_PROGRAMS) || (has_recipe && hello.can(capability::BUILD_RECIPES));
        if found.program.is_none() && !can_build {
            return Err(Failure::new(FailureKind::NoProgram, "the worker cannot build its program"));
        }
        let build = found.build.clone();
        let mut params = LoadParams::new(candidate, &JobCandidate { build, ..found.clone() });
        if !params.overrides.is_empty() && !hello.can(capability::COMPILER_OPTIONS) {
            let message = format!("`{}` cannot set compiler options", self.bench.info.name);
            return Err(Failure::new(FailureKind::NoProgram, message));
        }
        if let Some(program) = params.program.as_mut().filter(|_| !hello.can(capability::COMPILE_OPTIONS)) {
            program.compile_options = None;
        }
        Ok(params)
    }
}

impl Timer for CommandTimer {
    fn info(&self) -> &TimerInfo {
        &self.bench.info
    }

    fn beside(&self) -> Option<Box<dyn Timer>> {
        self.bench.info.can.compile_beside_outputs.then(|| {
            Box::new(Self {
                bench: self.bench.beside(),
                job: None,
                refusals: self.refusals.clone(),
                script: self.script.clone(),
            }) as Box<dyn Timer>
        })
    }

    fn follow(&mut self, events: &Events) {
        self.bench.events = events.clone();
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.bench.revive()?;
        self.job = Some(job.clone());
        self.bench.begin(job)
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<ProgramSignature>, Failure> {
        let params = self.load_params(candidate)?;
        self.bench.signature(params)
    }

    fn expect(&mut self, candidates: &[usize]) -> Result<(), Failure> {
        if !self.bench.hello().can(capability::COMPILE_AHEAD) {
            return Ok(());
        }
        for &candidate in candidates {
            // what cannot be loaded at all is reported when it is prepared
            if let Ok(params) = self.load_params(candidate)
                && self.refused(candidate).is_none()
            {
                self.bench.compile_ahead(params)?;
            }
        }
        Ok(())
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        let params = self.load_params(candidate)?;
        if let Some(known) = self.refused(candidate) {
            return Err(known);
        }
        let loaded = self.bench.load(params).inspect_err(|failure| {
            if let (Some(refusals), Ok(found)) = (&mut self.refusals, find(&self.job, candidate)) {
                refusals.take(&found.build.options, failure);
            }
        })?;
        Ok(Prepared::of(&loaded).executable(loaded.executable))
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        let info = &self.bench.info;
        let by_profile = info.can.measure_rounds.then(|| info.metric.clone());
        self.bench.measure(round, by_profile.as_ref(), &self.job)
    }

    fn cut_off(&mut self, longest_run: Option<Duration>) {
        self.bench.cut_off(longest_run);
    }

    fn outputs(&mut self, candidate: usize, taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        self.bench.outputs(candidate, taken, &self.job)
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.bench.restart(without)
    }

    fn end(&mut self) {
        self.job = None;
        self.bench.end();
    }
}

impl Drop for CommandTimer {
    fn drop(&mut self) {
        self.bench.shutdown();
    }
}
