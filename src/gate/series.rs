//! Series of rounds of a config beside its baseline until it is clear whether its ratio changed, and the verdict.

use super::expected::ExpectedEntry;
use super::look::{EvidenceLook, Limits, MIN_ROUNDS, RatioChange, look, margin};
use super::{CheckVerdict, OperationCheck};
use crate::counted::counted;
use crate::decision::Round;
use crate::failure::{Failure, FailureKind};
use crate::race::{RaceError, RaceOptions};
use crate::stats::median;
use crate::tune::TuneError;

/// Number of series of rounds, each in a worker process of its own, after which a still uncertain change counts as
/// none, if so many processes could have proven one.
const MOST_SERIES: u32 = 8;
/// The same if they could not: a process on a busy machine proves less, and one change among many needs more.
const MOST_SERIES_TO_PROVE: u32 = 24;

/// Whether an entry still holds.
pub(super) struct EntryQuestion<'a> {
    /// Of these, `rules.min_improvement` is the least change that matters.
    pub(super) options: &'a RaceOptions,
    pub(super) expected: &'a ExpectedEntry,
    /// The number of comparisons that share the error probability.
    pub(super) compared: usize,
    pub(super) e_value_needed: f64,
    /// Why there may be too few rounds.
    pub(super) too_few: &'a str,
}

impl EntryQuestion<'_> {
    /// Writes the verdict into the operation. `series` takes one more series of rounds, by its number from zero, and
    /// returns all rounds so far, or the config's failure. One series that shows no change is enough. The last one is
    /// the one that adds no rounds, because time is up.
    pub(super) fn answer(
        &self,
        operation: &mut OperationCheck,
        mut series: impl FnMut(u32) -> Result<Result<Vec<Round>, Failure>, RaceError>,
    ) -> Result<(), RaceError> {
        let mut seen_rounds = 0;
        for number in 0..MOST_SERIES_TO_PROVE {
            let rounds = match series(number)? {
                Ok(rounds) => rounds,
                Err(failure) => {
                    operation.verdict = if is_its_own(&failure) { CheckVerdict::Broken } else { CheckVerdict::Failed };
                    operation.reason = failure.to_string();
                    operation.failure = Some(failure);
                    return Ok(());
                }
            };
            let limits = self.limits(&rounds);
            operation.limit = Some(limits.slower);
            let Some(seen) = look(&rounds, &limits, |processes| self.options.spread_of(processes)) else {
                operation.reason = format!("fewer than {MIN_ROUNDS} rounds {}", self.too_few);
                return Ok(());
            };
            let most = if seen.could_prove(self.e_value_needed) { MOST_SERIES } else { MOST_SERIES_TO_PROVE };
            let is_last = number + 1 >= most || rounds.len() == seen_rounds;
            if seen.change.is_none() || seen.is_proven(self.e_value_needed) || is_last {
                self.fill(operation, &seen);
                return Ok(());
            }
            seen_rounds = rounds.len();
        }
        Ok(())
    }

    /// Ratios beyond which the config has changed.
    fn limits(&self, rounds: &[Round]) -> Limits {
        let times: Vec<f64> = rounds.iter().filter_map(|round| round.sample_ns(0)).collect();
        let known = median(&times).map_or(0.0, |ns| self.options.resolution.at(ns));
        let rules = &self.options.rules;
        let margin = margin(rules.min_improvement, rules.resolution.max(known), self.compared);
        Limits::new(self.expected.interval(), margin)
    }

    /// Writes the measurements and the verdict into the operation.
    fn fill(&self, operation: &mut OperationCheck, seen: &EvidenceLook) {
        operation.ratio = Some(seen.ratio);
        operation.interval = Some(seen.interval);
        operation.e_value = seen.change.map(|_| seen.e_value);
        operation.baseline_ns = Some(seen.baseline_ns);
        operation.config_ns = Some(seen.config_ns);
        operation.rounds = seen.rounds;
        operation.processes = seen.processes;
        let was = match self.expected.entry.ratio.zip(self.expected.interval()) {
            Some((ratio, interval)) => {
                format!("it took {ratio:.3} ({:.3}–{:.3}) when it was decided", interval.low, interval.high)
            }
            None => "what it took when it was decided is not comparable".to_owned(),
        };
        let is = format!(
            "takes {:.3} of the baseline's time ({:.3}–{:.3})",
            seen.ratio, seen.interval.low, seen.interval.high
        );
        let limit = operation.limit.unwrap_or(1.0);
        let least = 1.0 - self.options.rules.min_improvement;
        let is_proven = seen.is_proven(self.e_value_needed);
        let (verdict, how) = match seen.change {
            Some(RatioChange::Slower) if is_proven && seen.ratio < least => {
                (CheckVerdict::Regressed, format!("significantly above the limit, {limit:.3}"))
            }
            Some(RatioChange::Slower) if is_proven => {
                (CheckVerdict::NotBetter, format!("significantly above the limit, {limit:.3}"))
            }
            Some(RatioChange::Faster) if is_proven => (CheckVerdict::Faster, "tuning again may find more".to_owned()),
            Some(RatioChange::Slower) if !seen.could_prove(self.e_value_needed) => {
                let processes = counted(seen.processes, "process");
                let why = "too few for a verdict: allow more time, or check while the machine is quiet";
                (CheckVerdict::Failed, format!("above the limit, {limit:.3}, in {processes}, {why}"))
            }
            Some(RatioChange::Slower) => {
                (CheckVerdict::Holds, "slower by its median, but not significantly".to_owned())
            }
            Some(RatioChange::Faster) => {
                (CheckVerdict::Holds, "faster by its median, but not significantly".to_owned())
            }
            None if seen.interval.high > limit => {
                (CheckVerdict::Holds, format!("these rounds cannot show whether it is below the limit, {limit:.3}"))
            }
            None => (CheckVerdict::Holds, format!("below the limit, {limit:.3}")),
        };
        let is_stale = !verdict.is_alarm() && !verdict.is_unchecked() && !self.expected.stale.is_empty();
        operation.verdict = if is_stale { CheckVerdict::Stale } else { verdict };
        operation.reason = format!("{is}; {was}: {how}");
    }
}

/// Writes why a measurement ended into the operation. Returns what stops the check.
pub(super) fn take_end(measured: Result<(), RaceError>, operation: &mut OperationCheck) -> Option<TuneError> {
    match measured {
        Ok(()) => {}
        Err(RaceError::Interrupted) => "ended by the user; there is no verdict".clone_into(&mut operation.reason),
        Err(RaceError::Failed(failure)) => {
            operation.reason = failure.to_string();
            operation.failure = Some(failure);
        }
        Err(RaceError::Inputs(error)) => operation.reason = error.to_string(),
        Err(RaceError::Fatal(error)) => {
            operation.reason = error.to_string();
            return Some(error);
        }
    }
    None
}

/// Whether a failure is the config's own and not the environment's.
fn is_its_own(failure: &Failure) -> bool {
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
