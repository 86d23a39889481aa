//! What the rounds of one process say about a candidate.

use serde::{Deserialize, Serialize};

use super::noise::RoundNoise;
use super::paired::{Round, log_ratios};
use crate::stats::median;

/// Fewest rounds of a process that count.
const LEAST_ROUNDS: usize = 3;
/// From a standard deviation to the standard error of a median: √(π/2).
const OF_MEDIAN: f64 = 1.253_3;

/// What one process says about a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessRatio {
    /// The process, numbered over all that measured the job.
    pub epoch: u32,
    /// Median of the candidate's time over the baseline's, round by round.
    pub ratio: f64,
    /// Standard error of its logarithm.
    pub error: f64,
    /// Rounds that count.
    pub rounds: usize,
    /// Whether other processes used the cores meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_contended: bool,
}

impl ProcessRatio {
    /// What a process says whose rounds have this ratio and this standard error of its logarithm.
    pub fn new(epoch: u32, ratio: f64, error: f64) -> Self {
        Self { epoch, ratio, error, rounds: LEAST_ROUNDS, is_contended: false }
    }

    /// The same beside this ratio.
    #[must_use]
    pub fn over(self, ratio: f64) -> Self {
        Self { ratio: self.ratio / ratio, ..self }
    }

    /// The baseline's time over the candidate's.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self { ratio: 1.0 / self.ratio, ..self }
    }

    /// The same times this ratio, which another process told.
    #[must_use]
    pub fn times(self, other: &Self) -> Self {
        Self {
            ratio: self.ratio * other.ratio,
            error: self.error.hypot(other.error),
            rounds: self.rounds.min(other.rounds),
            is_contended: self.is_contended || other.is_contended,
            ..self
        }
    }

    /// The same of another process, with its ratio.
    #[must_use]
    pub(super) fn with_ratio(self, epoch: u32, ratio: f64) -> Self {
        Self { epoch, ratio, ..self }
    }

    pub(super) fn log(&self) -> f64 {
        self.ratio.ln()
    }
}

/// What one process says about a candidate's own time, for programs that no process runs side by side.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ProcessTime {
    /// The process, numbered over all that measured the job.
    pub epoch: u32,
    /// Logarithm of the median time, of nanoseconds.
    pub log_ns: f64,
    /// Standard error of that.
    pub error: f64,
    /// Rounds that count.
    pub rounds: usize,
    /// Whether other processes used the cores meanwhile.
    pub is_contended: bool,
}

impl ProcessTime {
    /// This time over another process's, as what this process says.
    pub fn over(&self, other: &Self) -> ProcessRatio {
        ProcessRatio {
            epoch: self.epoch,
            ratio: (self.log_ns - other.log_ns).exp(),
            error: self.error.hypot(other.error),
            rounds: self.rounds.min(other.rounds),
            is_contended: self.is_contended || other.is_contended,
        }
    }
}

/// The time of a candidate in each process that measured it often enough, in the processes' order.
pub fn process_times(rounds: &[Round], candidate: usize) -> Vec<ProcessTime> {
    let time = |rounds: &[Round]| {
        let logs: Vec<f64> = rounds.iter().filter_map(|round| round.sample_ns(candidate)).map(f64::ln).collect();
        let told = told_by(&logs, rounds)?;
        Some(ProcessTime {
            epoch: told.epoch,
            log_ns: told.ratio.ln(),
            error: told.error,
            rounds: told.rounds,
            is_contended: told.is_contended,
        })
    };
    rounds.chunk_by(is_same_process).filter_map(time).collect()
}

/// The ratio of a candidate in each process that measured it beside the baseline often enough, in the processes' order.
pub fn process_ratios(rounds: &[Round], candidate: usize, baseline: usize) -> Vec<ProcessRatio> {
    let ratio = |rounds: &[Round]| told_by(&log_ratios(rounds, candidate, baseline), rounds);
    rounds.chunk_by(is_same_process).filter_map(ratio).collect()
}

fn is_same_process(one: &Round, other: &Round) -> bool {
    one.epoch == other.epoch
}

/// What each process says about one candidate beside another, if it measured both beside the same baseline. The
/// baseline's own noise is in both, so the error is larger than that of their quotient.
pub fn quotients(of: &[ProcessRatio], to: &[ProcessRatio]) -> Vec<ProcessRatio> {
    let quotient = |one: &ProcessRatio| {
        let other = to.iter().find(|other| other.epoch == one.epoch)?;
        Some(ProcessRatio { error: one.error.hypot(other.error), ..one.over(other.ratio) })
    };
    of.iter().filter_map(quotient).collect()
}

/// What logarithms of one process's rounds say, if they are enough.
fn told_by(logs: &[f64], rounds: &[Round]) -> Option<ProcessRatio> {
    if logs.len() < LEAST_ROUNDS {
        return None;
    }
    let contended = rounds.iter().filter(|round| round.is_contended).count();
    Some(ProcessRatio {
        epoch: rounds.first()?.epoch,
        ratio: median(logs)?.exp(),
        error: RoundNoise::of_one(logs).deviation() * OF_MEDIAN / (logs.len() as f64).sqrt(),
        rounds: logs.len(),
        is_contended: 2 * contended > rounds.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_two_processes_make_a_ratio_that_is_as_uncertain_as_both() {
        let round = |epoch, ns: f64| Round::new(epoch, vec![Some(ns)]);
        // two processes of at least three rounds; the last one is too short
        let slow: Vec<Round> = [(0, 20.0), (0, 20.0), (0, 20.0), (1, 21.0), (1, 21.0), (1, 21.0), (2, 99.0)]
            .map(|(epoch, ns)| round(epoch, ns))
            .to_vec();
        let slow = process_times(&slow, 0);
        assert_eq!(slow.iter().map(|time| time.epoch).collect::<Vec<_>>(), [0, 1]);
        let noisy: Vec<Round> = [10.0, 10.2, 10.0, 9.8].map(|ns| round(7, ns)).to_vec();
        let noisy = process_times(&noisy, 0);
        let ratio = slow[0].over(&noisy[0]);
        assert!((ratio.ratio - 2.0).abs() < 0.01, "{ratio:?}");
        assert_eq!((ratio.epoch, ratio.rounds, slow[0].error), (0, 3, 0.0));
        assert_eq!(ratio.error, noisy[0].error);
        assert!(process_times(&[], 0).is_empty());
    }
}
