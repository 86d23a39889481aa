//! The tuner: one invocation after the other, from the plan to the caches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cache::{CacheKey, Entry, Tier};
use crate::counted::counted;
use crate::device::DeviceFingerprint;
use crate::hlo::Evidence;
use crate::ledger::LedgerError;
use crate::measured_by::TOOL;
use crate::peaks::Peaks;
use crate::race::{DeviceSlot, Runner};
use crate::registry::{Invocation, NotRunnable};
use crate::timer::events::{EventKind, Slice};
use crate::timer::{Forecast, ProgramFile, Timer};

use super::job::own_programs;
use super::provisional::{ProvisionalCall, TunedCall};
use super::searching::InvocationPlan;
use super::time_breakdown::{Tally, time_breakdown};
use super::tuner::{Autotuner, DecidedEntry, known_before};
use super::work::fill_work;
use super::{
    AutotuningResult, MAX_RACED, OperationResult, PlannedInvocation, RESULT_SCHEMA, Status, TuneError, TuneOptions,
};

/// The result of one planned invocation.
pub(super) struct TunedStep {
    pub(super) operation: Option<OperationResult>,
    pub(super) entry: Option<(CacheKey, Arc<Entry>)>,
    /// What stops the run.
    pub(super) error: Option<TuneError>,
    /// Whether the snapshot could be written.
    pub(super) published: Result<(), LedgerError>,
    /// What its winner still has to show.
    pub(super) provisional: Option<Box<ProvisionalCall>>,
}

impl Default for TunedStep {
    fn default() -> Self {
        Self { operation: None, entry: None, error: None, published: Ok(()), provisional: None }
    }
}

impl Autotuner<'_> {
    /// Tunes every planned invocation. A failure affects one operation; an error stops the run and is returned with
    /// what was decided, and committed, before it.
    pub(super) fn run(&mut self, plan: &[PlannedInvocation]) -> (AutotuningResult, Option<TuneError>) {
        let mut result = self.nothing_yet(plan);
        let mut stopped_by = None;
        let mut steps: Vec<TunedStep> = Vec::with_capacity(plan.len());
        for index in 0..plan.len() {
            let is_stopped = steps.iter().any(|step| step.error.is_some());
            steps.push(self.step(index, plan, is_stopped));
        }
        self.confirm(&mut steps);
        for done in steps {
            result.take(done.operation, done.entry);
            note_unpublished(done.published, &mut result.notes);
            stopped_by = stopped_by.or(done.error);
        }
        let _publishing = self.events.open(Slice::Step("publish"));
        note_unpublished(self.ledger.publish().map(drop), &mut result.notes);
        (result, stopped_by)
    }

    /// The result of one planned invocation, failures included.
    pub(super) fn step(&mut self, index: usize, plan: &[PlannedInvocation], is_stopped: bool) -> TunedStep {
        let mut published = Ok(());
        let (mut entry, mut error, mut provisional) = (None, None, None);
        let Some(planned) = plan.get(index) else { return TunedStep::default() };
        let mut operation = draft(planned);
        let (events, tally) = Tally::of(&self.events);
        let name = operation.call.to_string();
        let _operation = events.open(Slice::Operation { name: &name, index, of: plan.len() });
        if is_stopped {
            "not started: the run was stopped by an error".clone_into(&mut operation.reason);
        } else if self.cancel.load(Ordering::Relaxed) {
            operation.status = Status::Interrupted;
            "ended before it started".clone_into(&mut operation.reason);
        } else if self.options.chooses_no_more() {
            operation.status = Status::NotStarted;
            "the budget of the run was used up before it started".clone_into(&mut operation.reason);
        } else {
            self.slot.iter_mut().for_each(DeviceSlot::work);
            let done = self.plan_race(&events, planned, &mut operation).and_then(|plan| match plan {
                InvocationPlan::Race(race) => self.tune(&events, &race, &mut operation),
                InvocationPlan::Finished(known) => Ok(TunedCall::Ended(known)),
            });
            match done {
                Ok(TunedCall::Provisional(call)) => provisional = Some(call),
                Ok(TunedCall::Ended(decided)) => {
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
        self.slot.iter_mut().for_each(DeviceSlot::rest);
        fill_work(&mut operation, self.peaks().as_ref());
        operation.time_breakdown = time_breakdown(&tally);
        let OperationResult { status, reason, speed_up, .. } = &operation;
        events.tell(EventKind::Finished { status: status.name(), reason, speed_up: *speed_up });
        TunedStep { operation: Some(operation), entry, error, published, provisional }
    }

    /// What [`run`](Self::run) would tune; nothing is measured.
    pub(super) fn preview(&self, plan: &[PlannedInvocation]) -> AutotuningResult {
        let mut result = self.nothing_yet(plan);
        for planned in plan {
            let mut operation = draft(planned);
            if let Some((key, entry)) = self.decided_for(&planned.invocation) {
                known_before(&mut operation, key, &entry);
                result.operations.push(operation);
                continue;
            }
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

    /// What a run would find decided and would not measure again; of a call that is searched, nothing.
    fn decided_for(&self, invocation: &Invocation) -> DecidedEntry {
        if self.options.race.force || self.options.race.rounds.is_some() {
            return None;
        }
        let identity = self.identity(invocation).ok()?;
        let (entry, tier) = self.cached(&identity.key).ok()??;
        let from = entry.provenance.as_ref()?;
        let is_decided = tier != Tier::Shipped && from.job == identity.digest && from.untried == 0;
        is_decided.then_some((identity.key, entry))
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
    pub(super) fn peaks(&self) -> Option<Peaks> {
        peaks(&*self.timer, self.options)
    }

    /// A result without operations; its notes say if programs were recorded under another compiler.
    pub(super) fn nothing_yet(&self, plan: &[PlannedInvocation]) -> AutotuningResult {
        let notes = other_compiler(plan, &self.timer.info().device).into_iter().collect();
        AutotuningResult { notes, ..nothing(&*self.timer, self.options) }
    }
}

/// The result of a run on a module without labelled calls, to which those of the module itself are added.
pub fn without_calls(runner: &Runner<'_>, options: &TuneOptions, is_dry: bool) -> AutotuningResult {
    let (timer, ledger) = (&*runner.timer, runner.ledger);
    let mut result = AutotuningResult { notes: ledger.notes().to_vec(), ..nothing(timer, options) };
    if !is_dry {
        let _publishing = runner.events.open(Slice::Step("publish"));
        note_unpublished(ledger.publish().map(drop), &mut result.notes);
    }
    result.notes.extend(timer.info().notes.iter().cloned());
    result.notes.extend(timer.info().clocks_seen.clone().filter(|_| !is_dry));
    result
}

fn peaks(timer: &dyn Timer, options: &TuneOptions) -> Option<Peaks> {
    options.peaks.clone().or_else(|| Peaks::of_kind(&timer.info().device.identity.device_kind))
}

fn nothing(timer: &dyn Timer, options: &TuneOptions) -> AutotuningResult {
    AutotuningResult {
        schema: RESULT_SCHEMA,
        tool: TOOL.to_owned(),
        device: timer.info().device.clone(),
        peaks: peaks(timer, options),
        measured_by: timer.info().measured_by(&options.race.cache_state),
        operations: Vec::new(),
        missed: Vec::new(),
        step: None,
        notes: Vec::new(),
        interrupted: false,
        entries: Vec::new(),
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
