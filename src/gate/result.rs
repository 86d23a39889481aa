//! The result of a check.

use serde::{Deserialize, Serialize};

use crate::cache::Tier;
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::device::{DeviceFingerprint, DeviceIdentity};
use crate::failure::Failure;
use crate::hlo::Evidence;
use crate::measured_by::MeasuredBy;
use crate::stats::Interval;
use crate::tune::{MissedLabel, TimeBreakdown};

/// Version of the check's JSON.
pub const CHECK_SCHEMA: u32 = 1;

/// The outcome of one cached config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CheckVerdict {
    /// No change was found.
    Holds,
    /// Its ratio to the baseline is significantly below what it was: tuning again may find more.
    Faster,
    /// No change was found, but it was decided under other software, by another clock or for other programs.
    Stale,
    /// Its ratio to the baseline is significantly above what it was; it still saves the minimum improvement.
    Regressed,
    /// The same, and it no longer saves the minimum improvement.
    NotBetter,
    /// It fails where the baseline runs: it does not compile, crashes, hangs or computes something else.
    Broken,
    /// Nothing is cached for this call and device.
    Missing,
    /// It could not be measured.
    Failed,
}

impl CheckVerdict {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Holds,
        Self::Faster,
        Self::Stale,
        Self::Regressed,
        Self::NotBetter,
        Self::Broken,
        Self::Missing,
        Self::Failed,
    ];

    /// The words for tables and titles.
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Faster => "faster",
            Self::Stale => "stale",
            Self::Regressed => "regressed",
            Self::NotBetter => "not better",
            Self::Broken => "broken",
            Self::Missing => "missing",
            Self::Failed => "failed",
        }
    }

    /// Whether the cached config does harm, so that the gate fails.
    pub fn is_alarm(self) -> bool {
        matches!(self, Self::Regressed | Self::NotBetter | Self::Broken)
    }

    /// Whether the cached config could not be checked, or there is none.
    pub fn is_unchecked(self) -> bool {
        matches!(self, Self::Missing | Self::Failed)
    }
}

/// The entry that was checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckedEntry {
    /// The device that it was decided on.
    pub device: DeviceIdentity,
    /// Where it was found.
    pub tier: Tier,
    /// The config.
    pub config: Config,
    /// Median of its time over the baseline's when it was decided, if comparable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Interval of that ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// When it was decided, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<u64>,
}

/// The result of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationCheck {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// What is cached.
    pub direction: Direction,
    /// Weakest evidence among the labels that led here.
    pub evidence: Evidence,
    /// Occurrences of those labels in the module.
    pub occurrences: u64,
    /// Line of the first of them, if the module has lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The verdict.
    pub verdict: CheckVerdict,
    /// One line that says why.
    pub reason: String,
    /// What is cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<CheckedEntry>,
    /// What has changed since the entry was decided, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<String>,
    /// Caveats of the match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Median of its time over the baseline's now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Interval of that ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The ratio above which it has regressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// The e-value of the change that the rounds show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e_value: Option<f64>,
    /// Median of the baseline now, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_ns: Option<f64>,
    /// Median of the cached config now, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_ns: Option<f64>,
    /// Rounds that count.
    pub rounds: usize,
    /// Worker processes that measured them.
    pub processes: usize,
    /// What failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Where the time went.
    #[serde(default)]
    pub time_breakdown: TimeBreakdown,
}

/// The whole result of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Version of this schema: [`CHECK_SCHEMA`].
    pub schema: u32,
    /// Program and version.
    pub tool: String,
    /// The device that was measured on.
    pub device: DeviceFingerprint,
    /// How it was measured.
    #[serde(flatten)]
    pub measured_by: MeasuredBy,
    /// Maximum probability that any of these operations is wrongly called regressed.
    pub false_positive_rate: f64,
    /// Operations among which that probability is divided: all that are measured in the module, in any shard.
    pub compared: usize,
    /// The e-value that a change must reach.
    pub e_value_needed: f64,
    /// One per invocation.
    pub operations: Vec<OperationCheck>,
    /// Labels that matched none.
    pub missed: Vec<MissedLabel>,
    /// Notes on the module, the stores and the timer.
    pub notes: Vec<String>,
    /// Whether the check ended early.
    pub interrupted: bool,
}
