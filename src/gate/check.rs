//! The steps of a check: look up, measure again, report the verdict.

use crate::cache::{Lookup, StoreError};
use crate::call::{Call, Direction};
use crate::device::MatchMode;
use crate::hlo::Evidence;
use crate::measured_by::TOOL;
use crate::race::{RaceError, RaceOptions, Runner};
use crate::registry::NotRunnable;
use crate::setters;
use crate::timer::Timer;
use crate::timer::events::{EventKind, Slice};
use crate::tune::{PlannedInvocation, Session, Stopped, TimeBreakdown, TuneError, TuningPlan};

use super::expected::{ExpectedEntry, program_of};
use super::series::{EntryQuestion, take_end};
use super::{CHECK_SCHEMA, CheckResult, CheckVerdict, OperationCheck};

/// How a check is made.
#[derive(Debug, Clone, Copy, PartialEq)]
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
    plan: &TuningPlan,
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

/// The result of a check of a module without labelled calls, to which that of the module itself is added.
pub fn without_calls(runner: &Runner<'_>, options: &RaceOptions, asked: CheckOptions) -> CheckResult {
    let (timer, compared) = (&*runner.timer, asked.others);
    let mut result = CheckResult { compared, ..nothing(timer, options, asked) };
    result.e_value_needed = e_value_needed(compared, asked);
    let of_timer = timer.info().notes.iter().cloned().chain(timer.info().clocks_seen.clone());
    result.notes = runner.ledger.notes().iter().cloned().chain(of_timer).collect();
    result
}

/// The e-value that a change needs among so many comparisons.
pub(super) fn e_value_needed(compared: usize, asked: CheckOptions) -> f64 {
    compared.max(1) as f64 / asked.false_positive_rate
}

fn nothing(timer: &dyn Timer, options: &RaceOptions, asked: CheckOptions) -> CheckResult {
    CheckResult {
        schema: CHECK_SCHEMA,
        tool: TOOL.to_owned(),
        device: timer.info().device.clone(),
        measured_by: timer.info().measured_by(&options.cache_state),
        false_positive_rate: asked.false_positive_rate,
        compared: 0,
        e_value_needed: 0.0,
        operations: Vec::new(),
        missed: Vec::new(),
        notes: Vec::new(),
        interrupted: false,
    }
}

struct Gate<'g, 'a> {
    session: &'g mut Session<'a>,
    options: CheckOptions,
    on_checked: &'g mut dyn FnMut(&OperationCheck),
}

impl Gate<'_, '_> {
    fn run(&mut self, plan: &TuningPlan) -> (CheckResult, Option<TuneError>) {
        let mut result = nothing(self.session.timer(), &self.session.options.race, self.options);
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
        result.e_value_needed = e_value_needed(result.compared, self.options);
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
                    let measured = self.measure((index, of), planned, &expected, &result, &mut operation);
                    result.interrupted |= matches!(measured, Err(RaceError::Interrupted));
                    stopped_by = take_end(measured, &mut operation);
                }
            }
            (self.on_checked)(&operation);
            result.operations.push(operation);
        }
        (result, stopped_by)
    }

    /// Looks up the cached entry; `None` if there is nothing to measure, which the operation then says.
    fn look_up(
        &self,
        planned: &PlannedInvocation,
        operation: &mut OperationCheck,
    ) -> Result<Option<ExpectedEntry>, StoreError> {
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
            Ok(hit) => ExpectedEntry::of(hit, invocation, timer, &self.session.options.race.cache_state),
            Err(reason) => {
                operation.verdict = CheckVerdict::Missing;
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
            operation.verdict = if expected.stale.is_empty() { CheckVerdict::Holds } else { CheckVerdict::Stale };
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

    /// Measures an entry beside the baseline until the verdict is clear.
    fn measure(
        &mut self,
        (index, of): (usize, usize),
        planned: &PlannedInvocation,
        expected: &ExpectedEntry,
        result: &CheckResult,
        operation: &mut OperationCheck,
    ) -> Result<(), RaceError> {
        let name = operation.call.to_string();
        let mut remeasurement = self.session.remeasure(&planned.invocation, &expected.entry.config)?;
        let events = self.session.first_events().clone();
        let _operation = events.open(Slice::Operation { name: &name, index, of });
        events.tell(EventKind::Started { programs: 2, rounds_kept: 0 });
        let options = self.session.options.race.clone();
        let too_few = match options.budget {
            Some(budget) => format!("in the budget of {}s: allow more time", budget.as_secs_f64()),
            None => "count: its samples are not times, or the machine is too noisy".to_owned(),
        };
        let (compared, e_value_needed) = (result.compared, result.e_value_needed);
        let question = EntryQuestion { options: &options, expected, compared, e_value_needed, too_few: &too_few };
        let session = &mut *self.session;
        let measured = question.answer(operation, |_| session.measure_series(&mut remeasurement));
        operation.time_breakdown = remeasurement.time_breakdown();
        measured
    }
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
        verdict: CheckVerdict::Failed,
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
