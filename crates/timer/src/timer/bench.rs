//! A measuring worker and the state that it needs again after a restart: the part that all process timers share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::answers::{AnswerFolder, OutputArray, private_folder};
use super::call_time_limits::{AwaitedCall, CallTimeLimits, Limit};
use super::client::{Limits, WorkerClient, WorkerCommand};
use super::events::{Events, Kind, Slice};
use super::info::{TimerCapabilities, TimerInfo};
use super::job::{InputArray, Job, scratch};
use super::measured::{CandidateRuns, OutputsAs, RoundRequest, RoundSamples, TakenOutputs, means, runs_of_batches};
use super::profiled::ProfiledRound;
use super::protocol::{
    BeginParams, ComparedOutput, ComparedOutputs, Hello, KeptOutput, KeptOutputs, Launch, LoadParams, Loaded, Measured,
    Method, OutputRef, Outputs, Profiled, RunningClocks, Signature, capability, one_line,
};
use super::seen_clocks::SeenClocks;
use crate::array::Tolerance;
use crate::device::DeviceFingerprint;
use crate::failure::{Failure, FailureKind};
use crate::hlo::Cost;
use crate::measured_by::{CacheState, Metric, Source};
use crate::outside_file;
use crate::remedy::remedy;

/// Maximum size of an optimized program whose work is counted.
const MAX_OPTIMIZED_BYTES: u64 = 1 << 28;

/// One measuring worker after the other, with the job and the candidates that each of them must hold.
pub(crate) struct Bench {
    command: WorkerCommand,
    limits: Limits,
    client: Option<WorkerClient>,
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
    /// The event sink for profiles.
    pub(crate) events: Events,
}

/// The timer that a worker makes, which is not in the worker's hands: its name, its device with what is known of its
/// environment, and its metric.
pub(crate) fn info_of(name: String, hello: &Hello, device: DeviceFingerprint, metric: Metric) -> TimerInfo {
    let profiles = hello.can(capability::PROFILE);
    // no clock is read around a run that is timed by its profile
    let reads_clock = hello.source == Source::HostWall && !profiles;
    let can = TimerCapabilities {
        build_programs: hello.can(capability::BUILD_PROGRAMS),
        measure_rounds: profiles,
        compare_outputs: hello.can(capability::COMPARE_OUTPUTS),
        ..TimerCapabilities::default()
    };
    let mut info = TimerInfo::new(name, hello.source.clone(), device);
    info.device_memory = hello.memory;
    info.clock_resolution_ns = hello.clock_resolution_ns.filter(|&resolution| reads_clock && resolution > 0);
    info.metric(metric).clocks(hello.clocks).notes(hello.notes.clone()).can(can)
}

impl Bench {
    /// The first worker, which is running, and the timer that it makes.
    pub(crate) fn new(
        command: WorkerCommand,
        limits: Limits,
        (client, hello): (WorkerClient, Hello),
        info: TimerInfo,
    ) -> Self {
        Self { client: Some(client), ..Self::without_worker(command, limits, hello, info) }
    }

    fn without_worker(command: WorkerCommand, limits: Limits, hello: Hello, info: TimerInfo) -> Self {
        Self {
            command,
            limits,
            client: None,
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
            events: Events::default(),
        }
    }

    /// The same kind of worker, started when there is a job for it.
    pub(crate) fn beside(&self) -> Self {
        let info = TimerInfo { epoch: 0, notes: Vec::new(), clocks_seen: None, ..self.info.clone() };
        Self::without_worker(self.command.clone(), self.limits.clone(), self.hello.clone(), info)
    }

    pub(crate) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Takes a report on the clocks of the worker's GPU.
    fn see(&mut self, clocks: Option<RunningClocks>) {
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
        self.ahead.clear();
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
    fn limit(&self, awaited: AwaitedCall) -> Limit {
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
    pub(crate) fn load(&mut self, params: LoadParams) -> Result<Loaded, Failure> {
        let candidate = params.candidate;
        let limit = self.limit_of_load(&params);
        let mut loaded: Loaded = self.client()?.request(Method::Load(params.clone()), limit)?;
        let counted = loaded.optimized.take().and_then(|path| self.work_of(&path));
        loaded.work = loaded.work.or(counted).filter(Cost::is_plausible);
        if let Some(signature) = &loaded.signature {
            check_signature(signature, &self.inputs)?;
        }
        self.missing.remove(&candidate);
        self.ahead.remove(&candidate);
        self.prepared.insert(candidate, params);
        Ok(loaded)
    }

    /// The work of a run, from an optimized program that the worker wrote. No decision depends on it, so an unreadable
    /// file only means that it is unknown.
    fn work_of(&self, path: &Path) -> Option<Cost> {
        let folder = outside_file::Folder::open(self.own_files.as_ref()?.path()).ok()?;
        let file = folder.open_file(path, MAX_OPTIMIZED_BYTES).ok()?;
        Cost::of_run(&outside_file::read(file, MAX_OPTIMIZED_BYTES).ok()?)
    }

    /// Without an executable the worker compiles.
    fn limit_of_load(&self, params: &LoadParams) -> Duration {
        if params.executable.is_some() { self.limits.load } else { self.limits.compile }
    }

    /// The arguments of a program, independent of the job's inputs; does not prepare the candidate.
    pub(crate) fn signature(&mut self, params: LoadParams) -> Result<Option<Signature>, Failure> {
        let limit = self.limits.compile;
        let loaded: Loaded = self.client()?.request(Method::Load(params), limit)?;
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
        let measured: Result<Measured, Failure> = self.client()?.request(call, limit.time);
        let mut measured = measured.map_err(|failure| limit.explain(failure))?;
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
        self.events.offer(Kind::Profiled { launches, round: round.as_ref() })?;
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
        let asked = launches.iter().map(|&(candidate, runs)| Launch { candidate, runs }).collect();
        let folder = AnswerFolder::make(scratch).map_err(|error| no_folder(scratch, error))?;
        let call = Method::MeasureRound { launches: asked, folder: folder.path().to_owned() };
        // borrowed apart from the client
        let events = self.events.clone();
        let running = events.open(Slice::Detail("run under the profiler"));
        let profiled: Result<Profiled, Failure> = self.client()?.request(call, limit.time);
        drop(running);
        let mut profiled = profiled.map_err(|failure| limit.explain(failure))?;
        self.see(profiled.clocks.take());
        // a round begins when all compilation is over
        self.ahead.clear();
        let _reading = events.open(Slice::Detail("read the profile"));
        ProfiledRound::read(&folder, &profiled, launches)
    }

    /// Runs a candidate once and takes its outputs.
    pub(crate) fn outputs(
        &mut self,
        candidate: usize,
        taken: OutputsAs<'_>,
        job: &Option<Job>,
    ) -> Result<TakenOutputs, Failure> {
        match taken {
            OutputsAs::Compared(tolerances) => self.compare_outputs(candidate, tolerances).map(TakenOutputs::Compared),
            OutputsAs::KeptAbove(above) => match self.keep_outputs(candidate, above)? {
                Some(kept) => Ok(TakenOutputs::Kept(kept)),
                None => self.output_files(candidate, &scratch(job)?).map(TakenOutputs::Files),
            },
            OutputsAs::Files => self.output_files(candidate, &scratch(job)?).map(TakenOutputs::Files),
        }
    }

    /// Runs a candidate once; its outputs are in a folder in `scratch`.
    fn output_files(&mut self, candidate: usize, scratch: &Path) -> Result<Vec<OutputArray>, Failure> {
        self.check_loaded(candidate)?;
        let limit = self.limit(AwaitedCall::Outputs);
        let folder = Arc::new(AnswerFolder::make(scratch).map_err(|error| no_folder(scratch, error))?);
        let call = Method::Outputs { candidate, folder: folder.path().to_owned() };
        let outputs: Result<Outputs, Failure> = self.client()?.request(call, limit.time);
        let outputs = outputs.map_err(|failure| limit.explain(failure))?;
        let check = |output: OutputRef| {
            let shown = output.path.display().to_string();
            OutputArray::answered(output.spec, output.path, &folder)
                .map_err(|error| Failure::new(FailureKind::Protocol, format!("the worker's output `{shown}`: {error}")))
        };
        outputs.outputs.into_iter().map(check).collect()
    }

    /// Makes the worker keep the outputs of a candidate, if it can and they are larger than this many bytes.
    fn keep_outputs(&mut self, candidate: usize, above: u64) -> Result<Option<Vec<KeptOutput>>, Failure> {
        self.kept = None;
        if !self.hello.can(capability::COMPARE_OUTPUTS) {
            return Ok(None);
        }
        let kept: KeptOutputs = self.on_outputs(candidate, Method::KeepOutputs { candidate, above })?;
        self.kept = kept.outputs.clone().map(|outputs| (candidate, outputs, self.info.epoch));
        Ok(kept.outputs)
    }

    /// Makes the worker compare the outputs of a candidate with the kept ones. A worker started since must first keep
    /// them again.
    fn compare_outputs(&mut self, candidate: usize, tolerances: &[Tolerance]) -> Result<Vec<ComparedOutput>, Failure> {
        if let Some((kept, before, epoch)) = self.kept.clone()
            && epoch != self.info.epoch
        {
            let lost = |reason: String| {
                let message = format!("the baseline's outputs cannot be produced again: {reason}");
                Failure::new(FailureKind::Device, message)
            };
            let again = self.keep_outputs(kept, 0).map_err(|failure| lost(failure.message));
            // they are requested again next time
            self.kept.get_or_insert((kept, before.clone(), epoch));
            let again = again?.ok_or_else(|| lost("the worker keeps none".to_owned()))?;
            let specs = |outputs: &[KeptOutput]| outputs.iter().map(|one| one.spec.clone()).collect::<Vec<_>>();
            if specs(&again) != specs(&before) {
                return Err(lost("they are different arrays".to_owned()));
            }
            if again != before {
                tracing::info!("candidate {kept} gives other outputs in another process");
            }
        }
        let call = Method::CompareOutputs { candidate, tolerances: tolerances.to_vec() };
        let compared: ComparedOutputs = self.on_outputs(candidate, call)?;
        match compared.outputs.iter().find(|output| !is_plausible(output)) {
            Some(output) => {
                let message = format!("the worker counts more differences than `{}` has elements", output.spec);
                Err(Failure::new(FailureKind::Protocol, message))
            }
            None => Ok(compared.outputs),
        }
    }

    /// A call that runs a candidate once and examines its outputs.
    fn on_outputs<T: serde::de::DeserializeOwned>(&mut self, candidate: usize, call: Method) -> Result<T, Failure> {
        self.check_loaded(candidate)?;
        let limit = self.limit(AwaitedCall::Outputs);
        let answer = self.client()?.request(call, limit.time);
        answer.map_err(|failure| limit.explain(failure))
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
    fn fresh_worker(&self) -> Result<WorkerClient, Failure> {
        let mut forgiven = false;
        loop {
            let (mut client, hello) = WorkerClient::start(&self.command, &self.limits)?;
            self.check_same(&hello)?;
            let Some(begin) = self.begin.clone() else { return Ok(client) };
            match client.request::<serde_json::Value>(Method::Begin(begin), self.limits.load) {
                Ok(_) => return Ok(client),
                Err(_) if client.was_killed() && !forgiven => forgiven = true,
                Err(failure) => return Err(failure),
            }
        }
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
            let mut loaded = client.request::<Loaded>(Method::Load(params.clone()), self.limit_of_load(params));
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
        if let Some(client) = self.client.take() {
            client.shutdown(&self.limits);
        }
    }
}

/// Compares a program's arguments with the recorded inputs, because a plugin would accept other bytes of the same
/// length.
pub(crate) fn check_signature(signature: &Signature, inputs: &[InputArray]) -> Result<(), Failure> {
    let mismatch = |message: String| Err(Failure::new(FailureKind::Signature, message));
    if signature.parameters.len() != inputs.len() {
        return mismatch(format!(
            "the program takes {} arguments, {} are recorded",
            signature.parameters.len(),
            inputs.len()
        ));
    }
    for (index, (parameter, input)) in signature.parameters.iter().zip(inputs).enumerate() {
        if *parameter != input.spec {
            return mismatch(format!(
                "argument {index} `{}`: the program takes {parameter}, {} is recorded",
                input.name, input.spec
            ));
        }
    }
    Ok(())
}

/// Whether a worker's comparison can be true.
fn is_plausible(output: &ComparedOutput) -> bool {
    let ComparedOutput { spec, mismatches, max_absolute, first, other_class } = output;
    let elements = spec.elements().unwrap_or(u64::MAX);
    *mismatches.max(other_class) <= elements
        && *max_absolute >= 0.0
        && first.is_some() == (*mismatches > 0)
        && first.as_ref().is_none_or(|first| first.element < elements)
}

/// No candidate is to blame if no folder can be created for a worker.
fn no_folder(scratch: &Path, error: std::io::Error) -> Failure {
    let message = format!("cannot make a folder in `{}`: {error}{}", scratch.display(), remedy(&error));
    Failure::new(FailureKind::Device, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_mismatch_names_the_argument() {
        let input = |name: &str, spec: &str| InputArray {
            name: name.into(),
            spec: spec.parse().unwrap(),
            path: PathBuf::new(),
            donated: false,
        };
        let signature = |specs: &[&str]| Signature::new(specs.iter().map(|spec| spec.parse().unwrap()).collect());
        let inputs = [input("query", "f32[2,4]"), input("lengths", "s32[2]")];
        assert_eq!(check_signature(&signature(&["f32[2,4]", "s32[2]"]), &inputs), Ok(()));
        let failure = check_signature(&signature(&["f32[2,4]", "f32[2]"]), &inputs).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Signature);
        assert_eq!(failure.message, "argument 1 `lengths`: the program takes f32[2], s32[2] is recorded");
        assert!(check_signature(&signature(&["f32[2,4]"]), &inputs).unwrap_err().message.contains("takes 1 arguments"));
        assert!(check_signature(&signature(&["f32[4,2]", "s32[2]"]), &inputs).is_err());
    }
}
