//! The result of the races of a step's variants.

use serde::{Deserialize, Serialize};

use super::manifest::StepCall;
use crate::compare::{CompareResult, ContestantResult};
use crate::decision::Relation;
use crate::device::DeviceFingerprint;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::measure::MadeInput;
use crate::measured_by::MeasuredBy;
use crate::stats::Interval;

/// The gain of a step, and the contribution of each call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProveResult {
    /// Where it ran.
    pub device: DeviceFingerprint,
    /// How samples were taken.
    pub measured_by: MeasuredBy,
    /// The races, in the sample log.
    pub jobs: Vec<Digest>,
    /// The inputs, in the step's order.
    pub inputs: Vec<MadeInput>,
    /// All tuned over all at their baselines.
    pub step: Effect,
    /// Median time of the step with all calls at their baselines, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_ns: Option<f64>,
    /// The calls, in the manifest's order.
    pub calls: Vec<CallEffect>,
    /// The sets whose contribution is known, in the order in which they were raced.
    pub sets: Vec<SetEffect>,
    /// The set that is proven; `None` if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven: Option<ProvenSet>,
    /// The calls, by number, to revert if several lose and no variant leaves out exactly these.
    pub dump_without: Vec<usize>,
    /// Rounds measured in this run, in all races.
    pub rounds_measured: u32,
    /// Rounds that the sample log held.
    pub rounds_kept: u32,
    /// Notes.
    pub notes: Vec<String>,
}

/// A call, and its contribution to the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallEffect {
    /// The call as it was dumped.
    #[serde(flatten)]
    pub call: StepCall,
    /// Its contribution: the step without it over the step with all tuned.
    pub in_step: Effect,
    /// Whether it belongs to the proven set.
    pub is_proven: bool,
}

/// A set of calls, and its contribution to the step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetEffect {
    /// The calls, by number.
    pub calls: Vec<usize>,
    /// Its contribution: the step without it over the step with all tuned.
    pub in_step: Effect,
}

/// The calls that are proven to make the step faster together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProvenSet {
    /// The calls, by number.
    pub calls: Vec<usize>,
    /// The step with these tuned over all at their baselines.
    pub in_step: Effect,
}

/// The effect of a set of tuned configs on the step's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// In a word.
    pub verdict: StepVerdict,
    /// The step's time without it over its time with it; above one is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_up: Option<f64>,
    /// Its interval; those of all races hold simultaneously.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The largest relative difference due to noise alone in its race.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    /// Rounds that count.
    pub rounds: usize,
    /// Why it has no times, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// An [`Effect`] in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StepVerdict {
    /// The step is faster with it, by more than noise.
    Gains,
    /// The step is slower with it, by more than noise.
    Loses,
    /// It differs, but the same program twice may differ as much.
    WithinNoise,
    /// It differs in the first process, and fresh ones do not agree on it.
    VariesByProcess,
    /// It was not raced by itself, or not long enough.
    NotSeparated,
    /// The step is the same program with and without it.
    NoEffect,
    /// It was reverted to its baseline in every variant.
    PutBack,
    /// The step without it, or with it, fails or gives other outputs.
    Failed,
}

impl StepVerdict {
    /// In words, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gains => "gains",
            Self::Loses => "loses",
            Self::WithinNoise => "within noise of A/A",
            Self::VariesByProcess => "varies by process",
            Self::NotSeparated => "not separated",
            Self::NoEffect => "no effect",
            Self::PutBack => "put back",
            Self::Failed => "failed",
        }
    }
}

impl Effect {
    /// An effect known without a race.
    pub(super) fn unmeasured(verdict: StepVerdict) -> Self {
        Self { verdict, speed_up: None, interval: None, noise: None, rounds: 0, failure: None }
    }

    /// The effect of the first contestant's absence: the other one is the step without something.
    pub(super) fn of_removal(row: &ContestantResult, race: &CompareResult) -> Self {
        let times = row.ratio.zip(row.interval);
        Self::of(row, race, [StepVerdict::Loses, StepVerdict::Gains], times)
    }

    /// The effect of the other contestant, which is the first with something more tuned.
    pub(super) fn of_addition(row: &ContestantResult, race: &CompareResult) -> Self {
        let inverse = |(ratio, interval)| (1.0 / ratio, inverse(interval));
        let times = row.ratio.zip(row.interval).map(inverse);
        Self::of(row, race, [StepVerdict::Gains, StepVerdict::Loses], times)
    }

    fn of(
        row: &ContestantResult,
        race: &CompareResult,
        [faster, slower]: [StepVerdict; 2],
        times: Option<(f64, Interval)>,
    ) -> Self {
        let verdict = match row.relation {
            _ if row.failure.is_some() => StepVerdict::Failed,
            Some(Relation::Faster) => faster,
            Some(Relation::Slower) => slower,
            Some(Relation::WithinNoise) => StepVerdict::WithinNoise,
            Some(Relation::VariesByProcess) => StepVerdict::VariesByProcess,
            Some(Relation::NotSeparated) | None => StepVerdict::NotSeparated,
        };
        Self {
            verdict,
            speed_up: times.map(|(speed_up, _)| speed_up),
            interval: times.map(|(_, interval)| interval),
            noise: race.noise.as_ref().and_then(|noise| noise.bound),
            rounds: row.rounds,
            failure: row.failure.clone(),
        }
    }

    /// The effect of the step without a losing set, derived from all tuned over the baselines and the set's own
    /// contribution: both are proven, and their intervals hold simultaneously.
    pub(super) fn without(&self, part: &Self) -> Option<Self> {
        let (whole, lost) = (self.interval?, part.interval?);
        let interval = Interval {
            low: whole.low / lost.high,
            high: whole.high / lost.low,
            confidence: (whole.confidence + lost.confidence - 1.0).max(0.0),
        };
        let proven = self.verdict == StepVerdict::Gains && part.verdict == StepVerdict::Loses;
        let noise = self.noise.zip(part.noise).map(|(whole, lost)| whole.max(lost));
        proven.then_some(Self {
            speed_up: self.speed_up.zip(part.speed_up).map(|(whole, lost)| whole / lost),
            interval: Some(interval),
            noise,
            rounds: self.rounds.min(part.rounds),
            ..Self::unmeasured(StepVerdict::Gains)
        })
    }
}

fn inverse(Interval { low, high, confidence }: Interval) -> Interval {
    Interval { low: 1.0 / high, high: 1.0 / low, confidence }
}
