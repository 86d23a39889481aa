//! The tuner: one invocation after the other, from the plan to the caches.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::cache::{CacheKey, Entry, Tier};
use crate::config::Config;
use crate::core_limits::CoreLimits;
use crate::counted::counted;
use crate::decision::{Judgement, Outcome, judge};
use crate::device::DeviceFingerprint;
use crate::failure::FailureKind;
use crate::hlo::Evidence;
use crate::ledger::LedgerError;
use crate::measured_by::TOOL;
use crate::peaks::Peaks;
use crate::registry::{Invocation, NotRunnable};
use crate::samples::Record;
use crate::search::{Expected, Surrogate};
use crate::timer::events::{Events, Kind, Phase, Slice};
use crate::timer::{Forecast, ProgramFile};

use super::commit::{candidate_results, entry_of, fill_from_entry, fill_from_judgement, status_of};
use super::device_seats::Seat;
use super::goodness::fill_work;
use super::job::{InputFolder, JobIdentity, own_programs};
use super::measure::Aborted;
use super::possible::{count_possible, why_alone};
use super::rounds::JobRounds;
use super::searching::{InvocationPlan, Race};
use super::time_breakdown::{Tally, time_breakdown};
use super::tuner::{Autotuner, Decided, Extent, Tuned, known_before, timed_otherwise};
use super::waves::Waves;
use super::{
    AutotuningResult, CandidateResult, MAX_RACED, MoreTime, OperationResult, PlannedInvocation, RESULT_SCHEMA, Status,
    TuneError, ended_by_user,
};

/// The result of one planned invocation.
pub(super) struct Step {
    pub(super) operation: Option<OperationResult>,
    pub(super) entry: Option<(CacheKey, Arc<Entry>)>,
    /// What stops the run.
    pub(super) error: Option<TuneError>,
    /// Whether the snapshot could be written.
    pub(super) published: Result<(), LedgerError>,
}

impl Default for Step {
    fn default() -> Self {
        Self { operation: None, entry: None, error: None, published: Ok(()) }
    }
}

impl Autotuner<'_> {
    /// Tunes every planned invocation. A failure affects one operation; an error stops the run and is returned with
    /// what was decided, and committed, before it.
    pub(super) fn run(&mut self, plan: &[PlannedInvocation]) -> (AutotuningResult, Option<TuneError>) {
        let mut result = self.nothing_yet(plan);
        let mut stopped_by = None;
        for index in 0..plan.len() {
            let done = self.step(index, plan, stopped_by.is_some());
            result.take(done.operation, done.entry);
            note_unpublished(done.published, &mut result.notes);
            stopped_by = stopped_by.or(done.error);
        }
        let _publishing = self.events.open(Slice::Step("publish"));
        note_unpublished(self.ledger.publish().map(drop), &mut result.notes);
        (result, stopped_by)
    }

    /// The result of one planned invocation, failures included.
    pub(super) fn step(&mut self, index: usize, plan: &[PlannedInvocation], is_stopped: bool) -> Step {
        let mut published = Ok(());
        let (mut entry, mut error) = (None, None);
        let Some(planned) = plan.get(index) else { return Step::default() };
        let mut operation = draft(planned);
        let (events, tally) = Tally::of(&self.events);
        let name = operation.call.to_string();
        let _operation = events.open(Slice::Operation { name: &name, index, of: plan.len() });
        if is_stopped {
            "not started: the run was stopped by an error".clone_into(&mut operation.reason);
        } else if self.cancel.load(Ordering::Relaxed) {
            operation.status = Status::Interrupted;
            "ended before it started".clone_into(&mut operation.reason);
        } else if self.options.stop_at.is_some_and(|stop_at| Instant::now() >= stop_at) {
            operation.status = Status::NotBegun;
            "the budget of the run was used up before it started".clone_into(&mut operation.reason);
        } else {
            self.seat.iter_mut().for_each(Seat::work);
            let done = self.plan_race(&events, planned, &mut operation).and_then(|plan| match plan {
                InvocationPlan::Race(race) => self.tune(&events, &race, &mut operation),
                InvocationPlan::Finished(known) => Ok(known),
            });
            match done {
                Ok(decided) => {
                    entry = decided;
                    let _publishing = events.open(Slice::Step("publish"));
                    published = self.ledger.publish_if_due();
                }
                Err(stopped_by) => {
                    operation.status = Status::Failed;
                    operation.reason = stopped_by.to_string();
                    error = Some(stopped_by);
                }
            }
        }
        self.seat.iter_mut().for_each(Seat::rest);
        fill_work(&mut operation, self.peaks().as_ref());
        operation.time_breakdown = time_breakdown(&tally);
        let OperationResult { status, reason, speed_up, .. } = &operation;
        events.tell(Kind::Finished { status: status.name(), reason, speed_up: *speed_up });
        Step { operation: Some(operation), entry, error, published }
    }

    /// What [`run`](Self::run) would tune; nothing is measured.
    pub(super) fn preview(&self, plan: &[PlannedInvocation]) -> AutotuningResult {
        let mut result = self.nothing_yet(plan);
        for planned in plan {
            let mut operation = draft(planned);
            match planned.invocation.runnable() {
                Err(reason @ NotRunnable::ValuesUnknown(_)) => {
                    operation.status = Status::ValuesUnknown;
                    operation.reason = reason.to_string();
                }
                runnable => {
                    operation.status = Status::Planned;
                    let work = match own_programs(&planned.invocation).len() {
                        many if planned.space.is_some() || many > MAX_RACED => {
                            format!("a search over more than {MAX_RACED} configs")
                        }
                        _ => counted(planned.invocation.candidates.len(), "candidate"),
                    };
                    // a worker may build what was recorded without a program
                    operation.reason = match runnable {
                        Err(reason) => format!("{work}; {reason}"),
                        Ok(()) => work,
                    };
                    operation.forecast = self.forecast(&planned.invocation);
                }
            }
            result.operations.push(operation);
        }
        result.notes.extend(forecast_note(&result.operations));
        result
    }

    /// The cost of compiling all of a call's programs here.
    fn forecast(&self, invocation: &Invocation) -> Option<Forecast> {
        let program = |candidate: usize| {
            let program = invocation.candidates.get(candidate)?.program.as_ref()?;
            let path = self.registry.checked_program_path(program).ok()?;
            Some(ProgramFile::new(path, program.clone()))
        };
        let programs: Vec<ProgramFile> = own_programs(invocation).into_iter().filter_map(program).collect();
        if programs.is_empty() { None } else { self.timer.forecast(&programs) }
    }

    /// The device's peaks, if known.
    fn peaks(&self) -> Option<Peaks> {
        self.options.peaks.clone().or_else(|| Peaks::of_kind(&self.timer.info().device.identity.device_kind))
    }

    /// A result without operations; its notes say if programs were recorded under another compiler.
    pub(super) fn nothing_yet(&self, plan: &[PlannedInvocation]) -> AutotuningResult {
        AutotuningResult {
            schema: RESULT_SCHEMA,
            tool: TOOL.to_owned(),
            device: self.timer.info().device.clone(),
            peaks: self.peaks(),
            measured_by: self.timer.info().measured_by(&self.options.cache_state),
            operations: Vec::new(),
            missed: Vec::new(),
            step: None,
            notes: other_compiler(plan, &self.timer.info().device).into_iter().collect(),
            interrupted: false,
            entries: Vec::new(),
        }
    }

    fn tune(&mut self, events: &Events, race: &Race, result: &mut OperationResult) -> Result<Decided, TuneError> {
        let invocation = &*race.invocation;
        // the timer decides about a missing program: some timers build programs themselves
        if let Err(reason @ NotRunnable::ValuesUnknown(_)) = invocation.runnable() {
            result.status = Status::ValuesUnknown;
            result.reason = reason.to_string();
            return Ok(None);
        }
        let identity = match self.identity(invocation) {
            Ok(identity) => identity,
            Err(reason) => {
                result.reason = reason;
                return Ok(None);
            }
        };
        let operation: Tuned = (invocation.call.op_id.clone(), invocation.direction);
        let before = self.lock_surrogates().remove(&operation);
        let surrogate = before.unwrap_or_else(|| Surrogate::new(self.options.seed));
        // configs found by a search are already compiled
        let is_whole = race.search.is_some() || self.timer.info().can.only_one_job_a_call;
        let waves = match is_whole {
            true => Err(surrogate),
            false => Waves::begin(surrogate, invocation, &identity, self.options),
        };
        let (decided, surrogate) = match waves {
            Ok(mut waves) => {
                let limits = self.core_limits();
                let of_candidate = |candidate: usize| {
                    let program = invocation.candidates.get(candidate)?.program.as_ref()?;
                    self.timer.foreknown(program, &|| None).figures
                };
                waves.add_compiler_figures(limits.as_ref(), of_candidate);
                let decided = self.tune_waves(events, (race, identity), Some(&mut waves), result);
                (decided, waves.into_surrogate())
            }
            Err(surrogate) => (self.tune_waves(events, (race, identity), None, result), surrogate),
        };
        self.lock_surrogates().insert(operation, surrogate);
        decided
    }

    /// The occupancy limits of a GPU's multiprocessors.
    pub(super) fn core_limits(&self) -> Option<CoreLimits> {
        CoreLimits::of(self.timer.info().device.identity.hardware.get("compute_capability")?)
    }

    /// The same, in waves or all at once.
    fn tune_waves(
        &mut self,
        events: &Events,
        (race, identity): (&Race, JobIdentity),
        mut waves: Option<&mut Waves>,
        result: &mut OperationResult,
    ) -> Result<Decided, TuneError> {
        let invocation = &*race.invocation;
        let cached = self.cached(&identity.key)?;
        let history = if self.options.force { Default::default() } else { self.ledger.history(identity.digest)? };
        let known_job = history.job.is_some();
        let mut rounds = JobRounds::from_history(history);
        let distinct = identity.distinct();
        let wanted = rounds.competing(&identity);
        if let Some(waves) = &mut waves {
            rounds.leave_unseen(&identity);
            // this reads the whole cache, so only for a first wave
            if rounds.is_empty() {
                waves.know(&self.priors(&identity.key)?);
            }
        }
        result.rounds_kept = rounds.count();
        // a shipped entry is a look-up's last resort; tuning measures it here
        let own = cached.as_ref().is_some_and(|(_, tier)| *tier != Tier::Shipped);
        let cached = cached.map(|(entry, _)| entry);
        let same_job = |entry: &Entry| own && entry.provenance.as_ref().is_some_and(|from| from.job == identity.digest);
        // `--thorough` also measures what was skipped
        let is_whole = |entry: &Entry| {
            !self.options.thorough || entry.provenance.as_ref().is_none_or(|provenance| provenance.left == 0)
        };
        if rounds.is_empty()
            && !self.options.force
            && let Some(entry) = cached.as_ref().filter(|entry| same_job(entry) && is_whole(entry))
        {
            // decided elsewhere, or its samples are gone: only the entry is left
            return Ok(Some(known_before(result, identity.key, entry)));
        }
        let of_other_timer = |entry: &&Arc<Entry>| {
            let theirs = self.identity_of_other_timer(invocation, entry);
            own && theirs.is_some_and(|theirs| entry.provenance.as_ref().is_some_and(|from| from.job == theirs.digest))
        };
        if rounds.is_empty()
            && !self.options.force
            && let Some(entry) = cached.as_ref().filter(of_other_timer)
        {
            result.flags.extend(timed_otherwise(entry, &self.timer.info().name));
            return Ok(Some(known_before(result, identity.key, entry)));
        }
        // a lone program is measured for its time, also if no other can run here; a lone survivor of failures is not worth a
        // decision
        let enough = |rounds: &JobRounds| count_possible(&identity, rounds).min(2);
        let comparable = wanted.len() >= enough(&rounds) && wanted.contains(&identity.baseline);
        let race_state = self.judge(&identity, &rounds, None).race_state;
        // a race that a budget ended early continues if there is more time
        let left_enough = |entry: &Entry| {
            let Some(provenance) = &entry.provenance else { return true };
            let is_enough = |chance| waves.as_ref().is_none_or(|waves| waves.is_enough(chance));
            // what was left without predictions was left for lack of time
            provenance.chance_left.map_or(provenance.left == 0, is_enough)
        };
        let is_decided =
            !self.options.force && cached.as_ref().is_some_and(|entry| same_job(entry) && left_enough(entry));
        let leaves = is_decided || waves.as_mut().is_none_or(|waves| waves.predict(&rounds, &identity).next.is_empty());
        // a decided call is measured further if more rounds are requested
        let is_short = match self.options.rounds {
            Some(rounds) => race_state.rounds < rounds as usize,
            // nothing is known about a new one
            None => !is_decided || race_state.rounds == 0,
        };
        let wants_more = (race_state.settled.is_none() && is_short) || !leaves;
        if wants_more && comparable {
            events.tell(Kind::Started { programs: distinct.len(), rounds_kept: result.rounds_kept });
            if !known_job {
                self.ledger.append(&Record::Job(Box::new(self.job_record(invocation, &identity))))?;
            }
            let before = rounds.next_round();
            let measured = self.measure(events, (invocation, &identity), waves.as_deref_mut(), &mut rounds);
            result.rounds_measured = rounds.next_round().saturating_sub(before);
            result.flags.append(&mut rounds.notes);
            match measured {
                Ok(measured) => result.rounds_measured = measured,
                Err(Aborted::Fatal(error)) => return Err(error),
                Err(Aborted::Failed(failure)) => {
                    result.reason = failure.to_string();
                    result.failure = Some(failure);
                    let judgement = self.judge(&identity, &rounds, None);
                    result.candidates = rows(invocation, &identity, &judgement, &rounds, &[]);
                    return Ok(None);
                }
                Err(Aborted::Interrupted) => {
                    result.status = Status::Interrupted;
                    ended_by_user(result.rounds_kept + result.rounds_measured).clone_into(&mut result.reason);
                    return Ok(None);
                }
            }
        }
        let incumbent = cached
            .as_ref()
            .and_then(|entry| invocation.candidates.iter().position(|candidate| candidate.config == entry.config));
        let deciding = events.open(Slice::Step("decide"));
        let judgement = self.judge(&identity, &rounds, incumbent);
        let predictions = waves.as_mut().map(|waves| waves.predict(&rounds, &identity)).unwrap_or_default();
        result.candidates = rows(invocation, &identity, &judgement, &rounds, &predictions.left);
        result.chance_left = (!predictions.left.is_empty()).then_some(predictions.chance);
        // without waves, only the budget leaves programs uncompiled
        let not_compiled = if waves.is_some() { 0 } else { rounds.count_left() };
        fill_from_judgement(result, &judgement);
        let decided = rounds.to_decision(identity.same_as.len(), identity.baseline);
        result.more_time = MoreTime::of(&judgement, &rounds, &self.options.rules_for(&decided, identity.baseline));
        drop(deciding);
        if judgement.outcome == Outcome::NotBelieved {
            result.status = Status::NotBelieved;
            result.reason = not_believed(result);
            return Ok(None);
        }
        if let (Outcome::Undecided, Some(budget)) = (judgement.outcome, self.options.budget) {
            let (done, needed) = (judgement.race_state.leader_rounds, self.options.rules.min_rounds);
            // as `--budget` takes it
            let budget = budget.as_secs_f64();
            result.reason = format!("{done} rounds in the budget of {budget}s, {needed} are needed: allow more time");
        }
        if judgement.outcome == Outcome::BaselineKept
            && !is_decided
            && (!predictions.next.is_empty() || not_compiled > 0)
        {
            // a config that was not compiled may be faster
            let (left, all) = (predictions.left.len().max(not_compiled), counted(identity.same_as.len(), "config"));
            result.reason = format!("{left} of {all} were not compiled when the time was used up: allow more time");
            return Ok(None);
        }
        let survivors = distinct.iter().filter(|candidate| !rounds.failures.contains_key(candidate)).count();
        if rounds.failures.contains_key(&identity.baseline) || survivors < enough(&rounds) {
            result.reason = only_failures(&rounds, &identity);
            return Ok(None);
        }
        if judgement.outcome == Outcome::BaselineKept
            // the race was among the search's picks from a larger space
            && let Some(reason) = match &race.search {
                Some(_) => race.all_failed.clone(),
                None => why_alone(&identity, &rounds),
            }
        {
            result.reason = reason;
        }
        let by = (&*self.timer, &self.options.cache_state);
        let entry = entry_of(invocation, &identity, &judgement, &rounds, by, race.search.clone(), &predictions);
        let Some(mut entry) = entry else { return Ok(None) };
        if let Some(provenance) = entry.provenance.as_mut().filter(|_| not_compiled > 0) {
            provenance.left = not_compiled as u32;
        }
        let is_measured = |old: &Entry| old.provenance.is_some() && !old.is_replayed();
        if entry.is_replayed() && cached.as_deref().is_some_and(is_measured) {
            fill_from_entry(result, &entry);
            result.status = status_of(judgement.outcome);
            result.flags.push("not kept: runs on this device decided what the cache has".to_owned());
            return Ok(None);
        }
        let is_same = |old: &Entry| old.config == entry.config && old.search() == entry.search();
        if let Some(old) = cached.filter(|old| same_job(old) && is_same(old) && result.rounds_measured == 0) {
            return Ok(Some(known_before(result, identity.key, &old)));
        }
        let entry = Arc::new(entry);
        let committing = events.open(Slice::Step("commit"));
        self.ledger.commit(Some(identity.digest), &identity.key, &entry)?;
        drop(committing);
        fill_from_entry(result, &entry);
        result.status = status_of(judgement.outcome);
        Ok(Some((identity.key, entry)))
    }

    fn measure(
        &mut self,
        events: &Events,
        (invocation, identity): (&Invocation, &JobIdentity),
        waves: Option<&mut Waves>,
        rounds: &mut JobRounds,
    ) -> Result<u32, Aborted> {
        let making = events.open(Slice::Phase(Phase::MakeInputs));
        let input_folder = InputFolder::new(invocation, self.registry)?.map_err(Aborted::Failed)?;
        drop(making);
        self.measure_at(events, &input_folder, (self.options, Extent::Race(waves)), (invocation, identity), rounds)
    }

    fn judge(&self, identity: &JobIdentity, rounds: &JobRounds, incumbent: Option<usize>) -> Judgement {
        let candidates = identity.same_as.len();
        let (decided, competing) = (rounds.to_decision(candidates, identity.baseline), rounds.competing(identity));
        let rules = self.options.rules_for(&decided, identity.baseline);
        // stored samples have no memory figures
        let is_kept = self.options.one_job_a_call;
        let temporary_bytes = if is_kept { Vec::new() } else { rounds.temporary_bytes(candidates) };
        judge(&decided, candidates, &competing, identity.baseline, incumbent, &temporary_bytes, &rules)
    }
}

/// What is known about an operation before anything is measured.
pub(super) fn draft(planned: &PlannedInvocation) -> OperationResult {
    let invocation = &planned.invocation;
    OperationResult {
        evidence: planned.labels.iter().map(|label| label.evidence).max().unwrap_or(Evidence::Exact),
        occurrences: planned.labels.iter().map(|label| label.occurrences).sum(),
        call_sites: planned.labels.iter().map(|label| label.known_calls()).sum(),
        how: planned.how.clone(),
        flags: planned.flags.clone(),
        share: planned.share,
        batch: invocation.batch.clone(),
        ..OperationResult::undecided(invocation.call.clone(), invocation.direction, invocation.baseline.clone())
    }
}

fn rows(
    invocation: &Invocation,
    identity: &JobIdentity,
    judgement: &Judgement,
    rounds: &JobRounds,
    left: &[(usize, Expected)],
) -> Vec<CandidateResult> {
    let configs: Vec<Config> = invocation.candidates.iter().map(|candidate| candidate.config.clone()).collect();
    candidate_results(&configs, &identity.same_as, identity.baseline, judgement, rounds, left)
}

/// A note if the recorder's JAX has another compiler than the one that programs are timed with. Only on a CPU, where
/// JAX compiles by itself: elsewhere it uses a plugin too, whose name does not tell its version.
fn other_compiler(plan: &[PlannedInvocation], device: &DeviceFingerprint) -> Option<String> {
    let here = device.environment.compiler().filter(|_| device.identity.platform == "cpu")?;
    let recorded = plan.iter().filter_map(|planned| planned.invocation.recorded_on.as_ref()?.environment.compiler());
    let theirs = recorded.filter(|compiler| compiler.starts_with("jaxlib ")).find(|compiler| *compiler != here)?;
    Some(format!(
        "programs were recorded under {theirs} and are timed as {here} compiles them; `--timer jax` times them as the \
         active environment's JAX compiles them"
    ))
}

pub(super) fn only_failures(rounds: &JobRounds, identity: &JobIdentity) -> String {
    let of_baseline = rounds.failures.get(&identity.baseline);
    let first = of_baseline.or_else(|| rounds.failures.values().next());
    match (of_baseline, first) {
        (Some(failure), _) => format!("the baseline failed: {failure}; `--force` tries again"),
        (None, Some(failure)) if failure.kind == FailureKind::NoProgram => {
            format!("no other candidate has a program; the first because of {failure}; record it again, on the device")
        }
        (None, Some(failure)) => {
            format!("every other candidate failed, the first with {failure}; `--force` tries again")
        }
        (None, None) => "there is nothing to compare".to_owned(),
    }
}

/// What was observed, why it is not a win, and what to do about it.
fn not_believed(result: &OperationResult) -> String {
    let measured =
        result.candidates.iter().filter_map(|row| row.times().map(|times| (times.ratio, times.median_ns, row)));
    let Some((ratio, ns, row)) = measured.min_by(|a, b| a.0.total_cmp(&b.0)) else { return result.reason.clone() };
    format!(
        "{} takes {ns:.0} ns, {}: most likely its program computes something else, or nothing; look at it, and accept it with \
         `--max-speed-up {:.0}` if it is right",
        row.config.to_brief(),
        result.reason,
        (2.0 / ratio).ceil()
    )
}

/// The compile cost of all calls, with the device time: compiling dominates a run, and measuring is proportional to it.
fn forecast_note(operations: &[OperationResult]) -> Option<String> {
    let forecasts: Vec<&Forecast> = operations.iter().filter_map(|operation| operation.forecast.as_ref()).collect();
    let first = forecasts.first()?;
    let sum = |of: fn(&Forecast) -> usize| forecasts.iter().map(|forecast| of(forecast)).sum::<usize>();
    let (to_compile, kept) = (sum(|one| one.to_compile), sum(|one| one.kept));
    let seconds: Option<f64> = forecasts.iter().map(|forecast| forecast.seconds).sum();
    let bytes: Option<u64> = forecasts.iter().map(|forecast| forecast.bytes).sum();
    let cost = match (seconds, bytes) {
        _ if to_compile == 0 => "nothing is compiled".to_owned(),
        (Some(seconds), Some(bytes)) => format!(
            "at most {:.1} minutes of compiling with {} at once, a fifth of that for measuring, and {:.1} MB",
            seconds / 60.0,
            first.jobs,
            bytes as f64 / 1e6
        ),
        _ => "how long that takes is unknown, because nothing was compiled for this device before".to_owned(),
    };
    Some(format!("{} to compile at most, {kept} kept: {cost}", counted(to_compile, "program")))
}

/// If a snapshot cannot be written, readers lack the newest entries until the next one; this run is not affected.
pub(super) fn note_unpublished(published: Result<(), LedgerError>, notes: &mut Vec<String>) {
    let Err(error) = published else { return };
    let note = format!("the snapshot was not published: {error}");
    if !notes.contains(&note) {
        tracing::warn!("{note}");
        notes.push(note);
    }
}
