//! The result of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::analysis::Work;
use crate::batch::BatchAxis;
use crate::cache::{CacheKey, Entry};
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::counted::listed;
use crate::device::DeviceFingerprint;
use crate::failure::Failure;
use crate::hlo::{Evidence, Label};
use crate::measured_by::{MachineLoad, MeasuredBy};
use crate::peaks::Peaks;
use crate::stats::Interval;
use crate::timer::Forecast;

use super::{CandidateResult, MoreTime, Searched, TimeBreakdown};
use crate::race::Confirmation;

/// Version of the results' JSON.
pub const RESULT_SCHEMA: u32 = 1;

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Status {
    /// A config beats the baseline.
    Tuned,
    /// Nothing beats the baseline; this is now known and cached.
    BaselineKept,
    /// Already known: nothing was measured.
    Cached,
    /// Values that determine control flow are unknown: it was not run.
    ValuesUnknown,
    /// A config is implausibly fast: nothing is decided.
    NotBelieved,
    /// A config won in the process that chose it; fresh ones have not confirmed it yet.
    Provisional,
    /// Its winner varies by process: the baseline stays, and nothing is cached.
    Undecided,
    /// It could not be decided.
    Failed,
    /// The run ended before it was decided; its samples are kept.
    Interrupted,
    /// It would be tuned (`--dry-run`).
    Planned,
    /// The run's time was used up before it started.
    NotStarted,
}

impl Status {
    /// The word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tuned => "tuned",
            Self::BaselineKept => "baseline kept",
            Self::Cached => "cached",
            Self::ValuesUnknown => "values unknown",
            Self::NotBelieved => "not believed",
            Self::Provisional => "provisional",
            Self::Undecided => "undecided",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Planned => "planned",
            Self::NotStarted => "not started",
        }
    }

    /// Whether the best config is known.
    pub fn is_decided(self) -> bool {
        matches!(self, Self::Tuned | Self::BaselineKept | Self::Cached)
    }
}

/// Why there is no result of what the user ended after this many rounds.
pub(crate) fn ended_by_user(rounds: u32) -> &'static str {
    match rounds {
        0 => "ended by the user; nothing measured yet",
        _ => "ended by the user; its samples are kept",
    }
}

/// A config and its median time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigTime {
    /// The config.
    pub config: Config,
    /// Median of its samples, nanoseconds.
    pub median_ns: Option<f64>,
    /// Peak temporary bytes of a run (neither arguments nor results), if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_bytes: Option<u64>,
    /// The minimum work of a call, done in that time, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
}

impl ConfigTime {
    /// A config without further information about its program.
    pub(crate) fn new(config: Config, median_ns: Option<f64>) -> Self {
        Self { config, median_ns, temporary_bytes: None, work: None }
    }
}

/// What one process says about a call with other values of its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DistributionResult {
    /// Their name.
    pub name: String,
    /// The fastest config with them, or the baseline if none is faster.
    pub best: ConfigTime,
    /// What that takes of the time of the config to use, with these values.
    pub ratio: f64,
    /// Whether the config to use depends on the values: with these, the best one is faster by the minimum improvement.
    pub differs: bool,
}

/// What fresh processes say about a rival: a config that the first process found nearly as fast as its winner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RivalResult {
    /// The rival.
    pub config: Config,
    /// Geometric mean over processes of its time over the baseline's.
    pub ratio: f64,
    /// Interval of that mean.
    pub interval: Interval,
    /// Processes that measured it.
    pub processes: usize,
}

/// The result of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationResult {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// The `vmap`s around the call, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batch: Vec<BatchAxis>,
    /// What was tuned.
    pub direction: Direction,
    /// Weakest evidence among the matching labels.
    pub evidence: Evidence,
    /// Stamps of those labels in the module.
    pub occurrences: u64,
    /// How often the module calls it, if its form shows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_sites: Option<u64>,
    /// How the labels were matched.
    pub how: String,
    /// Caveats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Its share of the profiled step's time, if a profile was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// How it ended.
    pub status: Status,
    /// One line that says why.
    pub reason: String,
    /// What failed, if the whole operation did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The config in use without tuning.
    pub baseline: ConfigTime,
    /// The config to use; absent when it is not decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<ConfigTime>,
    /// The baseline's time over the best's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_up: Option<f64>,
    /// Interval of the speed-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_up_interval: Option<Interval>,
    /// What fresh processes say about the config that the first one chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<Confirmation>,
    /// What they say about the others that they measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<RivalResult>,
    /// Probability that a fresh run over the same candidates publishes the same config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stability: Option<f64>,
    /// What other values of its arguments say, if it was recorded with some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distributions: Vec<DistributionResult>,
    /// Configs that cannot be distinguished from the best.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tie_set: Vec<Config>,
    /// How the candidates were found, if there were too many configs to race them all and this run searched them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Searched>,
    /// Probability that a candidate that was not compiled is better than the best by the minimum improvement, if there
    /// is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untried_chance: Option<f64>,
    /// Every candidate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<CandidateResult>,
    /// Rounds measured in this run.
    pub rounds_measured: u32,
    /// Rounds that the sample log held before.
    pub rounds_kept: u32,
    /// Disturbed rounds, measured again.
    #[serde(default)]
    pub rounds_set_aside: u32,
    /// The noise floor of the rounds, the smallest relative difference that they can detect: 0.01 is one per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<f64>,
    /// What other processes did on the cores meanwhile; absent if they were quiet.
    #[serde(default, skip_serializing_if = "MachineLoad::is_quiet")]
    pub load: MachineLoad,
    /// How many more rounds would separate the configs of the tie set, if that is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_time: Option<MoreTime>,
    /// How much slower the baseline was in the last rounds than in the first: 0.1 is ten per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<f64>,
    /// The cost of compiling its programs, if the run only plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
    /// Where the time went in this run.
    #[serde(default)]
    pub time_breakdown: TimeBreakdown,
}

impl OperationResult {
    /// The config to use: the best one, or the baseline as long as none is decided.
    pub fn to_use(&self) -> &ConfigTime {
        self.best.as_ref().unwrap_or(&self.baseline)
    }

    /// Leaves the baseline in place.
    pub(crate) fn forget_winner(&mut self) {
        (self.best, self.speed_up, self.speed_up_interval) = (None, None, None);
        self.tie_set.clear();
    }

    /// An operation without labels or measurements yet.
    pub(crate) fn undecided(call: Call, direction: Direction, baseline: Config) -> OperationResult {
        OperationResult {
            call,
            batch: Vec::new(),
            direction,
            evidence: Evidence::Exact,
            occurrences: 0,
            call_sites: None,
            how: String::new(),
            flags: Vec::new(),
            share: None,
            status: Status::Failed,
            reason: String::new(),
            failure: None,
            baseline: ConfigTime::new(baseline, None),
            best: None,
            speed_up: None,
            speed_up_interval: None,
            confirmation: None,
            rivals: Vec::new(),
            stability: None,
            distributions: Vec::new(),
            tie_set: Vec::new(),
            search: None,
            untried_chance: None,
            candidates: Vec::new(),
            rounds_measured: 0,
            rounds_kept: 0,
            rounds_set_aside: 0,
            resolution: None,
            load: MachineLoad::default(),
            more_time: None,
            drift: None,
            forecast: None,
            time_breakdown: TimeBreakdown::default(),
        }
    }
}

/// A label that matched no invocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MissedLabel {
    /// Operation and call key as the module has them.
    #[serde(flatten)]
    pub label: Label,
    /// How much of the label the module kept.
    pub evidence: Evidence,
    /// Why nothing matches it.
    pub reason: String,
}

/// How much of a profiled step a run saves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfiledStep {
    /// The profile.
    pub profile: String,
    /// Time of all its module executions that count, nanoseconds; the shares are parts of it.
    pub modules_ns: f64,
    /// Share of all labels in it.
    pub labelled: f64,
    /// Share of the calls that are decided.
    pub decided: f64,
    /// Part of the step's time that the best configs save: Σ share · (1 − best ÷ baseline). Undecided calls save
    /// nothing.
    pub expected_gain: f64,
    /// The same if every ratio is at the end of its interval that saves least.
    pub expected_gain_low: f64,
    /// The same for the end that saves most.
    pub expected_gain_high: f64,
}

/// The result of a run; a cache accepts it as an overlay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AutotuningResult {
    /// Version of this schema: [`RESULT_SCHEMA`].
    pub schema: u32,
    /// Program and version.
    pub tool: String,
    /// The device it was tuned for.
    pub device: DeviceFingerprint,
    /// The device's peaks, if known, for the calls' rooflines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peaks: Option<Peaks>,
    /// How it was measured.
    #[serde(flatten)]
    pub measured_by: MeasuredBy,
    /// The operations, one per invocation.
    pub operations: Vec<OperationResult>,
    /// Labels that matched none.
    #[serde(default)]
    pub missed: Vec<MissedLabel>,
    /// How much of the profiled step is saved, if a profile was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<ProfiledStep>,
    /// Remarks on the module and the stores.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Whether the run was ended early.
    pub interrupted: bool,
    /// The entries that were decided or found, as a cache stores them.
    #[serde(skip)]
    pub entries: Vec<(CacheKey, Arc<Entry>)>,
}

/// A call that a result does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the result has no call {call}{because}")]
pub struct NoSuchResult {
    /// The call.
    pub call: Call,
    /// Why, or which calls it has.
    because: String,
}

impl AutotuningResult {
    /// The result of a call. Of several directions the one with a best config precedes, and of those the one that was
    /// measured with its backward pass.
    ///
    /// # Errors
    /// If the run had no such call; the error says why, or which calls there are.
    pub fn operation(&self, op_id: &str, call_key: &str) -> Result<&OperationResult, NoSuchResult> {
        let call = Call::new(op_id, call_key);
        let of_call = self.operations.iter().filter(|operation| operation.call == call);
        let found = of_call.max_by_key(|found| (found.best.is_some(), found.direction == Direction::ForwardVjp));
        found.ok_or_else(|| {
            let is_of_call = |label: &Label| label.op_id == op_id && label.call_key.as_deref() == Some(call_key);
            let because = match self.missed.iter().find(|missed| is_of_call(&missed.label)) {
                Some(missed) => format!(": {}", missed.reason),
                None if self.operations.is_empty() => ", nor any other".to_owned(),
                None => format!("; it has {}", listed(self.operations.iter().map(|of| of.call.to_string()))),
            };
            NoSuchResult { call, because }
        })
    }

    /// Adds the result of one operation.
    pub(crate) fn take(&mut self, operation: Option<OperationResult>, entry: Option<(CacheKey, Arc<Entry>)>) {
        self.interrupted |= operation.as_ref().is_some_and(|operation| operation.status == Status::Interrupted);
        self.operations.extend(operation);
        self.entries.extend(entry);
    }
}
