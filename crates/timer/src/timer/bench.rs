//! A measuring worker and the state that it needs again after a restart: the part that all process timers share.

mod outputs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::answers::{AnswerFolder, private_folder};
use super::argument_check::check_signature;
use super::call_time_limits::{AwaitedCall, CallLimit, CallTimeLimits};
use super::client::WorkerClient;
use super::events::{EventKind, Events, Slice};
use super::info::TimerInfo;
use super::job::{InputArray, Job, scratch};
use super::measured::{CandidateRuns, RoundRequest, RoundSamples, means, runs_of_batches};
use super::profiled::ProfiledRound;
use super::protocol::{
    BeginParams, Hello, KeptOutput, LaunchedRuns, LoadAnswer, LoadParams, MeasureAnswer, Method, ProgramSignature,
    RoundAnswer, RunningClocks, capability, one_line,
};
use super::seen_clocks::SeenClocks;
use super::worker_command::{WorkerCommand, WorkerLimits};
use crate::failure::{Failure, FailureKind};
use crate::hlo::Cost;
use crate::io_hint::io_hint;
use crate::measured_by::{CacheState, Metric};
use crate::outside_file;

/// Workers that are started beside one, if they may be: with it, as many as confirm a winner at least.
const SPARES: usize = 2;
/// Maximum size of an optimized program whose work is counted.
const MAX_OPTIMIZED_BYTES: u64 = 1 << 28;

/// One measuring worker after the other, with the job and the candidates that each of them must hold.
pub(crate) struct Bench {
    command: WorkerCommand,
    limits: WorkerLimits,
    client: Option<WorkerClient>,
    /// Workers that were started before they are needed; `None` if each takes something of the device.
    spares: Option<Vec<(WorkerClient, Hello)>>,
    hello: Hello,
    pub(crate) info: TimerInfo,
    begin: Option<BeginParams>,
    /// The folder for the worker's own files.
    own_files: Option<TempDir>,
    inputs: Vec<InputArray>,
    prepared: BTreeMap<usize, LoadParams>,
    /// Why a prepared candidate is not loaded in this epoch.
    missing: BTreeMap<usize, Failure>,
    /// Candidates that the worker may still be compiling in the background.
    ahead: BTreeSet<usize>,
    call_time_limits: CallTimeLimits,
    /// The candidate whose outputs the worker keeps, their specs, and the epoch.
    kept: Option<(usize, Vec<KeptOutput>, u32)>,
    seen: SeenClocks,
    /// The operations of a run of each candidate: the most in any profile of this job.
    operations: BTreeMap<usize, u64>,
    /// The event sink for profiles.
    pub(crate) events: Events,
}

impl Bench {
    /// The first worker, which is running, and the timer that it makes.
    pub(crate) fn new(
        command: WorkerCommand,
        limits: WorkerLimits,
        (client, hello): (WorkerClient, Hello),
        info: TimerInfo,
    ) -> Self {
        Self { client: Some(client), ..Self::without_worker(command, limits, hello, info) }
    }

    fn without_worker(command: WorkerCommand, limits: WorkerLimits, hello: Hello, info: TimerInfo) -> Self {
        Self {
            command,
            limits,
            client: None,
            spares: None,
            hello,
            info,
            begin: None,
            own_files: None,
            inputs: Vec::new(),
            prepared: BTreeMap::new(),
            missing: BTreeMap::new(),
            ahead: BTreeSet::new(),
            call_time_limits: CallTimeLimits::default(),
            kept: None,
            seen: SeenClocks::default(),
            operations: BTreeMap::new(),
            events: Events::default(),
        }
    }

    /// Whether several workers may be started at once.
    #[must_use]
    pub(crate) fn with_spares(self, has_spares: bool) -> Self {
        Self { spares: has_spares.then(Vec::new), ..self }
    }

    /// The same kind of worker, started when there is a job for it.
    pub(crate) fn beside(&self) -> Self {
        let info = TimerInfo { epoch: 0, notes: Vec::new(), clocks_seen: None, others_use: None, ..self.info.clone() };
        Self::without_worker(self.command.clone(), self.limits.clone(), self.hello.clone(), info)
            .with_spares(self.spares.is_some())
    }

    pub(crate) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Takes a report on the clocks of the worker's GPU.
    fn see(&mut self, clocks: Option<RunningClocks>) {
        let others = clocks.as_ref().and_then(|clocks| clocks.others_percent);
        self.info.others_use = others.map(|percent| f64::from(percent.min(100)) / 100.0);
        self.seen.take(clocks);
        self.info.clocks_seen = self.seen.note(self.hello.clocks);
    }

    /// Runs a round: by its profile, if this metric is the duration of an execution in it, else by the worker's clock.
    pub(crate) fn measure(
        &mut self,
        round: &RoundRequest,
        by_profile: Option<&Metric>,
        job: &Option<Job>,
    ) -> Result<RoundSamples, Failure> {
        if by_profile.is_none() && !round.with_profile {
            let runs = round.launches.iter().map(|of| self.measure_batches(of.candidate, of.samples, of.batch));
            return Ok(RoundSamples::new(runs.collect::<Result<_, _>>()?));
        }
        let runs = |of: &CandidateRuns| Ok((of.candidate, runs_of_batches(of.samples, of.batch)?));
        let launches: Vec<(usize, u32)> = round.launches.iter().map(runs).collect::<Result<_, Failure>>()?;
        let profile = self.profile_round(&launches, &scratch(job)?)?;
        let durations = by_profile.map(|metric| profile.durations(metric)).unwrap_or_default();
        let batched = durations.iter().zip(&round.launches).map(|(durations, of)| means(durations, of.batch));
        let durations_ns = batched.collect();
        Ok(RoundSamples { durations_ns, profile: round.with_profile.then_some(profile) })
    }

    pub(crate) fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.check_caches(&job.cache_state)?;
        let own_files = private_folder(&job.scratch).map_err(|error| no_folder(&job.scratch, error))?;
        let params = BeginParams::new(job, own_files.path());
        self.prepared.clear();
        self.missing.clear();
        // a job without inputs compiles for the one after it
        if !self.inputs.is_empty() {
            self.ahead.clear();
        }
        self.operations.clear();
        self.call_time_limits = CallTimeLimits::of(job);
        self.kept = None;
        self.inputs.clone_from(&job.inputs);
        self.begin = Some(params.clone());
        // those of the previous job stay until the worker has ended it
        let _before = self.own_files.replace(own_files);
        let limit = self.limits.load;
        let begun = self.client()?.request::<serde_json::Value>(Method::Begin(params), limit);
        match begun {
            // its death after the previous job, or by a signal, says nothing about this one
            Err(_) if self.client.as_ref().is_some_and(WorkerClient::was_killed) => self.restart(&[]),
            begun => begun.map(drop),
        }
    }

    /// A worker without support for cache states would silently measure warm caches.
    fn check_caches(&self, state: &CacheState) -> Result<(), Failure> {
        if state.is_warm() || self.hello.can(capability::COLD_CACHES) {
            return Ok(());
        }
        let message = format!(
            "the worker `{}` cannot measure with {state} caches, `--timer pjrt` and `--timer jax` can; or omit \
             `--cache-state`",
            one_line(&self.hello.worker, 100)
        );
        Err(Failure::new(FailureKind::Device, message))
    }

    /// The longest run to wait for, until the next job.
    pub(crate) fn cut_off(&mut self, longest_run: Option<Duration>) {
        self.call_time_limits.longest_run = longest_run;
    }

    /// Time limit of a call that runs candidates, including waiting for background compilation.
    fn limit(&self, awaited: AwaitedCall) -> CallLimit {
        let call_time_limits = if self.ahead.is_empty() { self.call_time_limits } else { CallTimeLimits::default() };
        call_time_limits.limit(awaited, self.limits.measure)
    }

    /// Lets the worker compile a candidate in the background. After a restart this is not repeated: candidates are then
    /// loaded one by one, so that the one that breaks the worker is blamed.
    pub(crate) fn compile_ahead(&mut self, params: LoadParams) -> Result<(), Failure> {
        let limit = self.limits.load;
        let candidate = params.candidate;
        self.client()?.request::<serde_json::Value>(Method::CompileAhead(params), limit)?;
        self.ahead.insert(candidate);
        Ok(())
    }

    /// Loads a candidate now and after each restart.
    pub(crate) fn load(&mut self, params: LoadParams) -> Result<LoadAnswer, Failure> {
        let candidate = params.candidate;
        let limit = self.limit_of_load(&params);
        let mut loaded: LoadAnswer = self.client()?.request(Method::Load(params.clone()), limit)?;
        let counted = loaded.optimized.take().and_then(|path| self.work_of(&path));
        loaded.work = loaded.work.or(counted).filter(Cost::is_plausible);
        if let Some(signature) = &loaded.signature {
            check_signature(signature, &self.inputs)?;
        }
        self.missing.remove(&candidate);
        self.ahead.remove(&candidate);
        self.operations.remove(&candidate);
        self.prepared.insert(candidate, params);
        Ok(loaded)
    }

    /// The work of a run, from an optimized program that the worker wrote. No decision depends on it, so an unreadable
    /// file only means that it is unknown.
    fn work_of(&self, path: &Path) -> Option<Cost> {
        let folder = outside_file::OutsideFolder::open(self.own_files.as_ref()?.path()).ok()?;
        let file = folder.open_file(path, MAX_OPTIMIZED_BYTES).ok()?;
        Cost::of_run(&outside_file::read(file, MAX_OPTIMIZED_BYTES).ok()?)
    }

    /// Without an executable the worker compiles.
    fn limit_of_load(&self, params: &LoadParams) -> Duration {
        if params.executable.is_some() { self.limits.load } else { self.limits.compile }
    }

    /// The arguments of a program, independent of the job's inputs; does not prepare the candidate.
    pub(crate) fn signature(&mut self, params: LoadParams) -> Result<Option<ProgramSignature>, Failure> {
        let limit = self.limits.compile;
        let loaded: LoadAnswer = self.client()?.request(Method::Load(params), limit)?;
        Ok(loaded.signature)
    }

    /// Durations of `batch` runs each. A worker that times single runs returns their means; so does one whose caches
    /// are flushed before every run, since a batch would warm them.
    fn measure_batches(&mut self, candidate: usize, samples: u32, batch: u32) -> Result<Vec<u64>, Failure> {
        let runs = runs_of_batches(samples, batch)?;
        let is_warm = self.begin.as_ref().is_none_or(|begin| begin.cache_state.is_warm());
        if is_warm && self.hello.can(capability::BATCHES) {
            return self.measure_runs(candidate, runs, batch);
        }
        Ok(means(&self.measure_runs(candidate, runs, 1)?, batch))
    }

    fn measure_runs(&mut self, candidate: usize, runs: u32, batch: u32) -> Result<Vec<u64>, Failure> {
        self.check_loaded(candidate)?;
        let limit = self.limit(AwaitedCall::Measure { runs: u64::from(runs) });
        let call = Method::Measure { candidate, runs, batch };
        let measured: Result<MeasureAnswer, Failure> = self.client()?.request(call, limit.time);
        let mut measured = measured.map_err(|failure| limit.explain(failure))?;
        // nothing is compiled beside a run
        self.ahead.clear();
        self.see(measured.clocks.take());
        let expected = (runs / batch.max(1)) as usize;
        if measured.samples_ns.len() != expected {
            let batches = if batch == 1 { String::new() } else { format!(" in batches of {batch}") };
            let count = measured.samples_ns.len();
            let message = format!("{count} samples for {runs} runs{batches} of candidate {candidate}");
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        if let Some(reason) = &measured.single_runs {
            tracing::info!("candidate {candidate}: {}", one_line(reason, 300));
        }
        Ok(measured.samples_ns)
    }

    /// Runs candidates under one profile, which the worker writes into a folder in `scratch`, and emits it as an event.
    fn profile_round(&mut self, launches: &[(usize, u32)], scratch: &Path) -> Result<ProfiledRound, Failure> {
        let round = self.profile(launches, scratch);
        self.events.offer(EventKind::Profiled { launches, round: round.as_ref() })?;
        round
    }

    fn profile(&mut self, launches: &[(usize, u32)], scratch: &Path) -> Result<ProfiledRound, Failure> {
        if !self.hello.can(capability::PROFILE) {
            return Err(Failure::new(FailureKind::Device, "the worker gives no profiles"));
        }
        for &(candidate, _) in launches {
            self.check_loaded(candidate)?;
        }
        // each may run once before the profile
        let runs = launches.iter().map(|&(_, runs)| u64::from(runs) + 1).sum();
        let limit = self.limit(AwaitedCall::Round { runs });
        let asked = launches.iter().map(|&(candidate, runs)| LaunchedRuns { candidate, runs }).collect();
        let folder = AnswerFolder::make(scratch).map_err(|error| no_folder(scratch, error))?;
        let call = Method::MeasureRound { launches: asked, folder: folder.path().to_owned() };
        // borrowed apart from the client
        let events = self.events.clone();
        let running = events.open(Slice::Detail("run under the profiler"));
        let profiled: Result<RoundAnswer, Failure> = self.client()?.request(call, limit.time);
        drop(running);
        let mut profiled = profiled.map_err(|failure| limit.explain(failure))?;
        self.see(profiled.clocks.take());
        // a round begins when all compilation is over
        self.ahead.clear();
        let _reading = events.open(Slice::Detail("read the profile"));
        let round = ProfiledRound::read(&folder, &profiled, launches)?;
        round.check_complete(launches, &mut self.operations)?;
        Ok(round)
    }

    fn check_loaded(&self, candidate: usize) -> Result<(), Failure> {
        match (self.missing.get(&candidate), self.prepared.contains_key(&candidate)) {
            (Some(failure), _) => Err(failure.clone()),
            (None, true) => Ok(()),
            (None, false) => {
                Err(Failure::new(FailureKind::NoProgram, format!("candidate {candidate} was not prepared")))
            }
        }
    }

    fn client(&mut self) -> Result<&mut WorkerClient, Failure> {
        self.client
            .as_mut()
            .ok_or_else(|| Failure::new(FailureKind::Device, "the worker is gone and must be restarted"))
    }

    /// Another worker with the same job. A candidate that breaks two workers while it is loaded is excluded from the
    /// epoch with its reason, and the worker is started once more, so that one candidate never affects the others.
    pub(crate) fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.missing.clear();
        self.ahead.clear();
        for &candidate in without.iter().filter(|candidate| self.prepared.contains_key(candidate)) {
            let message = format!("candidate {candidate} was left out when the worker was restarted");
            self.missing.insert(candidate, Failure::new(FailureKind::NoProgram, message));
        }
        let mut forgiven = BTreeSet::new();
        while let Some((candidate, failure)) = self.restart_once()? {
            // only a death may have an outside cause: a time-out would cost the same time again
            if failure.kind != FailureKind::Crash || !forgiven.insert(candidate) {
                self.missing.insert(candidate, failure);
            }
        }
        Ok(())
    }

    /// A fresh worker of the same kind that has begun the job, if there is one. If a signal ends it meanwhile, it is
    /// started once more.
    fn fresh_worker(&mut self) -> Result<WorkerClient, Failure> {
        let mut forgiven = false;
        loop {
            let (mut client, hello) = self.started_worker()?;
            self.check_same(&hello)?;
            let Some(begin) = self.begin.clone() else { return Ok(client) };
            match client.request::<serde_json::Value>(Method::Begin(begin), self.limits.load) {
                Ok(_) => return Ok(client),
                Err(_) if client.was_killed() && !forgiven => forgiven = true,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// A worker that has said hello. Between jobs, when fresh processes are to confirm what one of them chose, several
    /// are started at once, because each spends most of its start on one core; all are ready before any measures.
    fn started_worker(&mut self) -> Result<(WorkerClient, Hello), Failure> {
        let start = || WorkerClient::start(&self.command, &self.limits);
        let Some(spares) = self.spares.as_mut().filter(|_| self.begin.is_none()) else { return start() };
        if let Some(spare) = spares.pop() {
            return Ok(spare);
        }
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..SPARES).map(|_| scope.spawn(start)).collect();
            let own = start();
            // one that does not start is started when it is needed, and then says why
            spares.extend(others.into_iter().filter_map(|other| other.join().ok()?.ok()));
            own
        })
    }

    /// Durations of two devices, or by two clocks, must never be mixed in one decision.
    fn check_same(&self, hello: &Hello) -> Result<(), Failure> {
        let device = |hello: &Hello| hello.devices.get(hello.device).map(|device| device.identity.clone());
        if device(hello) != device(&self.hello) {
            return Err(Failure::new(FailureKind::Device, "the restarted worker runs on another device"));
        }
        if hello.source != self.hello.source || hello.can(capability::PROFILE) != self.hello.can(capability::PROFILE) {
            let message = format!(
                "the restarted worker times by {}, the one before it by {}{}",
                hello.source,
                self.hello.source,
                hello.notes.first().map(|note| format!(" ({note})")).unwrap_or_default()
            );
            return Err(Failure::new(FailureKind::Device, message));
        }
        // one that no longer reports it is no contradiction
        if let Some((before, now)) = self.hello.clocks.zip(hello.clocks).filter(|(before, now)| before != now) {
            let message = format!("the GPU's clocks were changed during the measurement: {now}, before {before}");
            return Err(Failure::new(FailureKind::Device, message));
        }
        Ok(())
    }

    /// The candidate that broke the worker and how, if one did.
    fn restart_once(&mut self) -> Result<Option<(usize, Failure)>, Failure> {
        self.client = None;
        self.info.epoch += 1;
        let mut client = self.fresh_worker()?;
        for (&candidate, params) in &self.prepared {
            if self.missing.contains_key(&candidate) {
                continue;
            }
            let mut loaded = client.request::<LoadAnswer>(Method::Load(params.clone()), self.limit_of_load(params));
            if params.executable.is_some() && loaded.as_ref().is_err_and(|failure| failure.kind == FailureKind::Compile)
            {
                // its file was removed or replaced: the program still exists
                let params = LoadParams { executable: None, ..params.clone() };
                let limit = self.limit_of_load(&params);
                loaded = client.request(Method::Load(params), limit);
            }
            if let Err(failure) = loaded {
                if failure.needs_restart() {
                    return Ok(Some((candidate, failure)));
                }
                self.missing.insert(candidate, failure);
            }
        }
        self.client = Some(client);
        Ok(None)
    }

    pub(crate) fn end(&mut self) {
        self.begin = None;
        self.inputs.clear();
        self.prepared.clear();
        self.missing.clear();
        self.ahead.clear();
        self.call_time_limits = CallTimeLimits::default();
        let limit = self.limits.load;
        if let Some(client) = &mut self.client
            && client.request::<serde_json::Value>(Method::End {}, limit).is_err()
        {
            self.client = None;
        }
        self.own_files = None;
    }

    /// Starts a worker if the last job left none. Nothing of that job is loaded into it, because it may have killed the
    /// previous worker.
    pub(crate) fn revive(&mut self) -> Result<(), Failure> {
        if self.client.as_ref().is_some_and(|client| !client.is_gone()) {
            return Ok(());
        }
        self.begin = None;
        self.prepared.clear();
        self.restart(&[])
    }

    pub(crate) fn shutdown(&mut self) {
        self.spares = None;
        if let Some(client) = self.client.take() {
            client.shutdown(&self.limits);
        }
    }
}

/// No candidate is to blame if no folder can be created for a worker.
fn no_folder(scratch: &Path, error: std::io::Error) -> Failure {
    let message = format!("cannot make a folder in `{}`: {error}{}", scratch.display(), io_hint(&error));
    Failure::new(FailureKind::Device, message)
}
