//! The steps of a check: look up, measure again, report the verdict.

use crate::cache::{Lookup, StoreError};
use crate::call::{Call, Direction};
use crate::decision::Round;
use crate::device::MatchMode;
use crate::failure::{Failure, FailureKind};
use crate::hlo::Evidence;
use crate::measured_by::TOOL;
use crate::registry::NotRunnable;
use crate::setters;
use crate::stats::median;
use crate::timer::events::{Kind, Slice};
use crate::tune::{CopiesError, Plan, PlannedInvocation, Session, Stopped, TimeBreakdown, TuneError, TuneOptions};

use super::expected::{Expected, program_of};
use super::look::{Change, Limits, Look, MIN_ROUNDS, look, margin};
use super::{CHECK_SCHEMA, CheckResult, OperationCheck, Verdict};

/// Number of series of rounds, each in a worker process of its own, after which a still uncertain change counts as
/// none.
pub(super) const MOST_SERIES: u32 = 4;

/// How a check is made.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Which devices' entries may be used for this device.
    pub match_mode: MatchMode,
    /// Maximum probability that a check wrongly calls any of its configs regressed.
    pub false_positive_rate: f64,
    /// Further comparisons, such as a module's [compiler options](super::check_compiler_options): that probability is
    /// divided among all.
    pub others: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { match_mode: MatchMode::Exact, false_positive_rate: 0.01, others: 0 }
    }
}

setters!(CheckOptions { match_mode: MatchMode, false_positive_rate: f64, others: usize });

/// Checks what is cached for every planned invocation, on the first device of a session; `on_checked` gets each result.
/// A failure affects one operation.
///
/// The session's ledger is read and gets samples, but no decision. Of its options `rounds` are those of a series, and
/// `rules.min_improvement` is the least change that matters.
///
/// # Errors
/// If the ledger, a cache tier or the scratch folder fails; earlier results are returned with the error.
pub fn check(
    session: &mut Session<'_>,
    plan: &Plan,
    options: CheckOptions,
    on_checked: &mut dyn FnMut(&OperationCheck),
) -> Result<CheckResult, Stopped<CheckResult>> {
    let mut of_timer = session.timer().info().notes.clone();
    let notes: Vec<String> = plan.notes.iter().chain(session.ledger().notes()).cloned().collect();
    let (mut result, stopped_by) = Gate { session, options, on_checked }.run(plan);
    of_timer.extend(session.timer().info().clocks_seen.clone());
    result.missed.clone_from(&plan.missed);
    result.notes = notes.into_iter().chain(of_timer).chain(plan.shard_note()).collect();
    Stopped::unless_ended(result, stopped_by)
}

struct Gate<'g, 'a> {
    session: &'g mut Session<'a>,
    options: CheckOptions,
    on_checked: &'g mut dyn FnMut(&OperationCheck),
}

impl Gate<'_, '_> {
    fn run(&mut self, plan: &Plan) -> (CheckResult, Option<TuneError>) {
        let mut result = self.nothing_yet();
        let mut operations = Vec::with_capacity(plan.invocations.len());
        for planned in &plan.invocations {
            let mut operation = draft(planned);
            match self.look_up(planned, &mut operation) {
                Ok(expected) => operations.push((planned, operation, expected)),
                Err(error) => return (result, Some(error.into())),
            }
        }
        // of the whole module, so that its shards together keep the error bound
        result.compared = operations.iter().filter(|(.., expected)| expected.is_some()).count();
        for planned in &plan.elsewhere {
            match self.look_up(planned, &mut draft(planned)) {
                Ok(expected) => result.compared += usize::from(expected.is_some()),
                Err(error) => return (result, Some(error.into())),
            }
        }
        result.compared += self.options.others;
        result.e_value_needed = result.compared.max(1) as f64 / self.options.false_positive_rate;
        let of = operations.len();
        let mut stopped_by = None;
        for (index, (planned, mut operation, expected)) in operations.into_iter().enumerate() {
            if let Some(expected) = expected {
                if stopped_by.is_some() {
                    "not started: the check was stopped by an error".clone_into(&mut operation.reason);
                } else if self.session.is_cancelled() {
                    result.interrupted = true;
                    "ended before it started".clone_into(&mut operation.reason);
                } else {
                    match self.measure((index, of), planned, &expected, &result, &mut operation) {
                        Ok(()) => {}
                        Err(CopiesError::Interrupted) => {
                            result.interrupted = true;
                            "ended by the user; there is no verdict".clone_into(&mut operation.reason);
                        }
                        Err(CopiesError::Failed(failure)) => {
                            operation.reason = failure.to_string();
                            operation.failure = Some(failure);
                        }
                        Err(CopiesError::Fatal(error)) => {
                            operation.reason = error.to_string();
                            stopped_by = Some(error);
                        }
                    }
                }
            }
            (self.on_checked)(&operation);
            result.operations.push(operation);
        }
        (result, stopped_by)
    }

    fn nothing_yet(&self) -> CheckResult {
        let timer = self.session.timer();
        CheckResult {
            schema: CHECK_SCHEMA,
            tool: TOOL.to_owned(),
            device: timer.info().device.clone(),
            measured_by: timer.info().measured_by(&self.session.options.cache_state),
            false_positive_rate: self.options.false_positive_rate,
            compared: 0,
            e_value_needed: 0.0,
            operations: Vec::new(),
            missed: Vec::new(),
            notes: Vec::new(),
            interrupted: false,
        }
    }

    /// Looks up the cached entry; `None` if there is nothing to measure, which the operation then says.
    fn look_up(
        &self,
        planned: &PlannedInvocation,
        operation: &mut OperationCheck,
    ) -> Result<Option<Expected>, StoreError> {
        let invocation = &planned.invocation;
        let timer = self.session.timer();
        let (op_id, key, direction) = (&invocation.call.op_id, &invocation.call.call_key, Some(invocation.direction));
        let lookup = self.session.ledger().cache().lookup(
            &timer.info().device,
            op_id,
            key,
            direction,
            self.options.match_mode,
        )?;
        let hit = match lookup {
            // its own job decides what is best for it
            Lookup::Hit(hit) if hit.key().call_key != *key => {
                let measured = crate::batch::to_words(hit.key().call_key);
                Err(format!("`{}` is not cached, only the same call {measured}", invocation.call))
            }
            Lookup::Hit(hit) => Ok(hit),
            Lookup::Miss(miss) => Err(miss.reason()?.to_string()),
        };
        let expected = match hit {
            Ok(hit) => Expected::of(hit, invocation, timer, &self.session.options.cache_state),
            Err(reason) => {
                operation.verdict = Verdict::Missing;
                operation.reason = reason;
                return Ok(None);
            }
        };
        operation.stale.clone_from(&expected.stale);
        operation.entry = Some(expected.entry.clone());
        let config = &expected.entry.config;
        let is_same_program = program_of(invocation, config)
            .zip(program_of(invocation, &invocation.baseline))
            .is_some_and(|(config, baseline)| config == baseline);
        if *config == invocation.baseline || is_same_program {
            let what = if *config == invocation.baseline { "config" } else { "program" };
            operation.verdict = if expected.stale.is_empty() { Verdict::Holds } else { Verdict::Stale };
            operation.reason = format!("it is the baseline's {what}: it has nothing to lose, so nothing was measured");
            return Ok(None);
        }
        // the timer decides about a missing program: some timers build programs themselves
        if let Err(reason @ NotRunnable::ValuesUnknown(_)) = invocation.runnable() {
            operation.reason = reason.to_string();
            return Ok(None);
        }
        Ok(Some(expected))
    }

    /// Measures until the verdict is clear, in at most [`MOST_SERIES`] series: one that shows no change is enough.
    fn measure(
        &mut self,
        (index, of): (usize, usize),
        planned: &PlannedInvocation,
        expected: &Expected,
        result: &CheckResult,
        operation: &mut OperationCheck,
    ) -> Result<(), CopiesError> {
        let config = &expected.entry.config;
        let name = operation.call.to_string();
        let mut remeasurement = self.session.remeasure(&planned.invocation, config)?;
        let events = self.session.first_events().clone();
        let _operation = events.open(Slice::Operation { name: &name, index, of });
        events.tell(Kind::Started { programs: 2, rounds_kept: 0 });
        let mut series = 0;
        let ended = loop {
            let measured = self.session.measure_series(&mut remeasurement);
            series += 1;
            operation.time_breakdown = remeasurement.time_breakdown();
            measured?;
            if let Some(failure) = remeasurement.failure() {
                break Err(failure.clone());
            }
            let rounds = remeasurement.rounds();
            let limits = limits(&self.session.options, &rounds, expected, result.compared);
            operation.limit = Some(limits.slower);
            let Some(seen) = look(&rounds, &limits) else { break Ok(None) };
            let is_over = seen.change.is_none() || seen.is_proven(result.e_value_needed) || series == MOST_SERIES;
            if is_over {
                break Ok(Some(seen));
            }
        };
        match ended {
            Err(failure) => {
                operation.verdict = if is_its_own(&failure) { Verdict::Broken } else { Verdict::Failed };
                operation.reason = failure.to_string();
                operation.failure = Some(failure);
            }
            Ok(None) => {
                let why = match self.session.options.budget {
                    Some(budget) => format!("in the budget of {}s: allow more time", budget.as_secs_f64()),
                    None => "count: its samples are not times, or the machine is too noisy".to_owned(),
                };
                operation.reason = format!("fewer than {MIN_ROUNDS} rounds {why}");
            }
            Ok(Some(seen)) => fill(&self.session.options, operation, &seen, expected, result.e_value_needed),
        }
        Ok(())
    }
}

/// Ratios beyond which a config has changed.
pub(super) fn limits(options: &TuneOptions, rounds: &[Round], expected: &Expected, compared: usize) -> Limits {
    let times: Vec<f64> = rounds.iter().filter_map(|round| round.sample_ns(0)).collect();
    let known = median(&times).map_or(0.0, |ns| options.resolution.at(ns));
    let margin = margin(options.rules.min_improvement, options.rules.resolution.max(known), compared);
    Limits::new(expected.interval(), margin)
}

/// Writes the measurements and the verdict into the operation.
pub(super) fn fill(
    options: &TuneOptions,
    operation: &mut OperationCheck,
    seen: &Look,
    expected: &Expected,
    e_value_needed: f64,
) {
    operation.ratio = Some(seen.ratio);
    operation.interval = Some(seen.interval);
    operation.e_value = seen.change.map(|_| seen.e_value);
    operation.baseline_ns = Some(seen.baseline_ns);
    operation.config_ns = Some(seen.config_ns);
    operation.rounds = seen.rounds;
    operation.processes = seen.processes;
    let was = match expected.entry.ratio.zip(expected.interval()) {
        Some((ratio, interval)) => {
            format!("it took {ratio:.3} ({:.3}–{:.3}) when it was decided", interval.low, interval.high)
        }
        None => "what it took when it was decided is not comparable".to_owned(),
    };
    let is =
        format!("takes {:.3} of the baseline's time ({:.3}–{:.3})", seen.ratio, seen.interval.low, seen.interval.high);
    let limit = operation.limit.unwrap_or(1.0);
    let least = 1.0 - options.rules.min_improvement;
    let is_proven = seen.is_proven(e_value_needed);
    let (verdict, how) = match seen.change {
        Some(Change::Slower) if is_proven && seen.ratio < least => {
            (Verdict::Regressed, format!("significantly above the limit, {limit:.3}"))
        }
        Some(Change::Slower) if is_proven => (Verdict::NotBetter, format!("significantly above the limit, {limit:.3}")),
        Some(Change::Faster) if is_proven => (Verdict::Faster, "tuning again may find more".to_owned()),
        Some(Change::Slower) => (Verdict::Holds, "slower by its median, but not significantly".to_owned()),
        Some(Change::Faster) => (Verdict::Holds, "faster by its median, but not significantly".to_owned()),
        None if seen.interval.high > limit => {
            (Verdict::Holds, format!("these rounds cannot show whether it is below the limit, {limit:.3}"))
        }
        None => (Verdict::Holds, format!("below the limit, {limit:.3}")),
    };
    let is_stale = !verdict.is_alarm() && !expected.stale.is_empty();
    operation.verdict = if is_stale { Verdict::Stale } else { verdict };
    operation.reason = format!("{is}; {was}: {how}");
}

/// Whether a failure is the config's own and not the environment's.
pub(super) fn is_its_own(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::Compile
            | FailureKind::Crash
            | FailureKind::Timeout
            | FailureKind::Memory
            | FailureKind::Execute
            | FailureKind::WrongOutput
    )
}

/// What is known about an operation before it is looked up.
fn draft(planned: &PlannedInvocation) -> OperationCheck {
    let invocation = &planned.invocation;
    OperationCheck {
        evidence: planned.labels.iter().map(|label| label.evidence).max().unwrap_or(Evidence::Exact),
        occurrences: planned.labels.iter().map(|label| label.occurrences).sum(),
        line: planned.labels.iter().filter_map(|label| label.line).min(),
        flags: planned.flags.clone(),
        ..draft_of(invocation.call.clone(), invocation.direction)
    }
}

/// An operation without a result yet.
pub(super) fn draft_of(call: Call, direction: Direction) -> OperationCheck {
    OperationCheck {
        call,
        direction,
        evidence: Evidence::Exact,
        occurrences: 0,
        line: None,
        verdict: Verdict::Failed,
        reason: String::new(),
        entry: None,
        stale: Vec::new(),
        flags: Vec::new(),
        ratio: None,
        interval: None,
        limit: None,
        e_value: None,
        baseline_ns: None,
        config_ns: None,
        rounds: 0,
        processes: 0,
        failure: None,
        time_breakdown: TimeBreakdown::default(),
    }
}
