//! The result of a comparison.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::array::ComparedBy;
use crate::decision::{ProcessOutcome, Relation};
use crate::device::DeviceFingerprint;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::measure::MadeInput;
use crate::measured_by::MeasuredBy;
use crate::race::Confirmation;
use crate::stats::Interval;

/// Every contestant beside the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompareResult {
    /// Where it ran.
    pub device: DeviceFingerprint,
    /// How samples were taken.
    pub measured_by: MeasuredBy,
    /// The job, in the sample log.
    pub job: Digest,
    /// The contestants, in the given order.
    pub contestants: Vec<ContestantResult>,
    /// The first contestant against itself; `None` if not requested.
    pub noise: Option<SelfNoise>,
    /// The inputs, in the programs' order.
    pub inputs: Vec<MadeInput>,
    /// Rounds that count.
    pub rounds: u32,
    /// Rounds measured in this run.
    pub rounds_measured: u32,
    /// Rounds that the sample log held.
    pub rounds_kept: u32,
    /// Disturbed rounds.
    pub rounds_set_aside: u32,
    /// Whether each contestant is distinguished from the first, or known to differ by less than what matters.
    pub is_settled: bool,
    /// Notes.
    pub notes: Vec<String>,
}

/// One contestant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContestantResult {
    /// Its name.
    pub name: String,
    /// SHA-256 of its program's bytes.
    pub program: Digest,
    /// Options of the compiler for it alone.
    pub options: BTreeMap<String, String>,
    /// Which timer ran it, by number.
    pub timer: usize,
    /// SHA-256 of its executable, if the timer knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<Digest>,
    /// The index of the first earlier contestant with the same executable of the same timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_executable: Option<usize>,
    /// The comparison of its outputs.
    pub outputs: Outputs,
    /// Rounds that count and contain both it and the first.
    pub rounds: usize,
    /// Median of its samples, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_ns: Option<f64>,
    /// Its time over the first one's; below one is faster: the geometric mean over fresh processes, or the median over
    /// the rounds of the first process where no other was needed. `None` for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Interval of that ratio; all intervals of a comparison hold together, at every look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// How it compares with the first. `None` for the first, and for one that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relation: Option<Relation>,
    /// What fresh processes say about it, if it seemed to differ. Ratio and interval are theirs then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
    /// Why it has no times, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// How a contestant's outputs compare with the first one's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Outputs {
    /// They are the first one's, which the others are compared with.
    Reference,
    /// They are as good as the first one's.
    Equal {
        /// The largest absolute difference of two finite elements.
        max_error: f64,
        /// The rule that says so.
        compared_by: ComparedBy,
    },
    /// They are not; the failure says where.
    Different,
    /// There are none, because it failed before.
    NotCompared,
}

/// The first contestant against itself, compiled and loaded twice (A/A).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SelfNoise {
    /// Median of the copy's time over the first one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Interval of that ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The largest relative difference that noise alone may cause; `None` before there are enough rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Whether both compilations gave the same bytes; `None` if the timer does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_executable: Option<bool>,
    /// Why there are no times for the copy, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl CompareResult {
    /// Whether every contestant ran and returned the first one's outputs.
    pub fn all_ran(&self) -> bool {
        self.contestants.iter().all(|contestant| contestant.failure.is_none())
    }
}

impl CompareResult {
    /// The contestants that differ from the first by the rounds of one process.
    pub(super) fn differing(&self) -> Vec<usize> {
        let differs = |one: &ContestantResult| matches!(one.relation, Some(Relation::Faster | Relation::Slower));
        self.contestants.iter().enumerate().filter(|(_, one)| differs(one)).map(|(place, _)| place).collect()
    }

    /// Lets fresh processes have the word about a contestant.
    pub(super) fn take_confirmation(&mut self, place: usize, confirmation: Option<Confirmation>) {
        let Some(one) = self.contestants.get_mut(place) else { return };
        let Some(known) = confirmation else {
            // it failed there
            one.relation = Some(Relation::VariesByProcess);
            return;
        };
        let verdict = &known.verdict;
        (one.ratio, one.interval) = (Some(verdict.ratio), Some(verdict.interval));
        one.relation = Some(match verdict.outcome {
            ProcessOutcome::Confirmed if verdict.ratio < 1.0 => Relation::Faster,
            ProcessOutcome::Confirmed => Relation::Slower,
            ProcessOutcome::Refuted => Relation::NotSeparated,
            _ => Relation::VariesByProcess,
        });
        one.confirmation = Some(known);
    }
}
