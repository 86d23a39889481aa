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

    /// The same of another process, with its ratio.
    #[must_use]
    pub(super) fn with_ratio(self, epoch: u32, ratio: f64) -> Self {
        Self { epoch, ratio, ..self }
    }

    pub(super) fn log(&self) -> f64 {
        self.ratio.ln()
    }
}

/// The ratio of a candidate in each process that measured it beside the baseline often enough, in the processes' order.
pub fn process_ratios(rounds: &[Round], candidate: usize, baseline: usize) -> Vec<ProcessRatio> {
    let same = |one: &Round, other: &Round| one.epoch == other.epoch;
    rounds.chunk_by(same).filter_map(|rounds| process_ratio(rounds, candidate, baseline)).collect()
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

fn process_ratio(rounds: &[Round], candidate: usize, baseline: usize) -> Option<ProcessRatio> {
    let differences = log_ratios(rounds, candidate, baseline);
    if differences.len() < LEAST_ROUNDS {
        return None;
    }
    let contended = rounds.iter().filter(|round| round.is_contended).count();
    Some(ProcessRatio {
        epoch: rounds.first()?.epoch,
        ratio: median(&differences)?.exp(),
        error: RoundNoise::of_one(&differences).deviation() * OF_MEDIAN / (differences.len() as f64).sqrt(),
        rounds: differences.len(),
        is_contended: 2 * contended > rounds.len(),
    })
}
