//! The result of an upgrade's measurements.

use serde::{Deserialize, Serialize};

use crate::call::{Call, Direction};
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::failure::Failure;
use crate::tune::{MissedLabel, Status};

use super::change::Change;

/// Version of the schema of an [`UpgradeResult`].
pub const UPGRADE_SCHEMA: u32 = 1;

/// What another compiler does to the calls of a module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UpgradeResult {
    /// [`UPGRADE_SCHEMA`].
    pub schema: u32,
    /// Name and version of this program.
    pub tool: String,
    /// The compiler in use.
    pub old: CompilerSide,
    /// The one to change to.
    pub new: CompilerSide,
    /// The least change that matters, as a part of the time.
    pub min_difference: f64,
    /// The calls, in the plan's order.
    pub calls: Vec<UpgradedCall>,
    /// Labels that match no recorded invocation.
    pub missed: Vec<MissedLabel>,
    /// Notes.
    pub notes: Vec<String>,
    /// Whether the user ended it.
    pub interrupted: bool,
}

/// One of the two compilers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompilerSide {
    /// As it was named.
    pub name: String,
    /// The device, and the compiler in its environment.
    pub device: DeviceFingerprint,
}

impl CompilerSide {
    /// A compiler by the name that the user gave it.
    pub fn new(name: impl Into<String>, device: DeviceFingerprint) -> Self {
        Self { name: name.into(), device }
    }

    /// What compiles: the compiler with its version, or the name.
    pub fn compiler(&self) -> String {
        self.device.environment.compiler().unwrap_or_else(|| self.name.clone())
    }
}

/// A call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UpgradedCall {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// The direction.
    pub direction: Direction,
    /// Whether its config holds.
    pub verdict: UpgradeVerdict,
    /// One line that says why.
    pub reason: String,
    /// The config that its function has.
    pub in_force: InForce,
    /// Median time of that config under the old compiler, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_ns: Option<f64>,
    /// The same under the new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_ns: Option<f64>,
    /// Its time under the new compiler over that under the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// The same of the baseline, if that is another config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_change: Option<Change>,
    /// If the two environments lower it to different programs, and it became slower: the same for the old one's program,
    /// under both compilers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiler_change: Option<Change>,
    /// What made it slower, if it is and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<ChangeCause>,
    /// The best config of the new compiler, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<BestConfig>,
    /// How tuning under the new compiler ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuned: Option<TunedUnderNew>,
    /// What failed, if something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// The config that a function has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InForce {
    /// The config.
    pub config: Config,
    /// Whether it is from the cache; otherwise it is the baseline.
    pub is_cached: bool,
}

/// A config that is better under the new compiler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BestConfig {
    /// The config.
    pub config: Config,
    /// Its time over that of the config in force, under the new compiler.
    pub to_in_force: Change,
    /// Its time under the new compiler over that of the config in force under the old one.
    pub to_old: Change,
    /// Its time under the new compiler over that under the old one.
    pub change: Change,
}

/// What made a program slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ChangeCause {
    /// The compiler: the same program takes longer.
    Compiler,
    /// The lowering: the new environment makes another program of the same function.
    Lowering,
}

/// How tuning under the new compiler ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TunedUnderNew {
    /// In a word.
    pub status: Status,
    /// One line that says why.
    pub reason: String,
}

/// Whether a call's config holds with the new compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum UpgradeVerdict {
    /// It is as fast as before, and no other is faster.
    Holds,
    /// It is faster than before, and no other is faster.
    Improved,
    /// Another config is faster now, or may make up for what this one lost.
    Retune,
    /// It is slower than before, and the best config is, too.
    CompilerRegressed,
    /// The same, because the new environment lowers it to another program.
    LoweringRegressed,
    /// It fails under the new compiler, or computes something else.
    Breaks,
    /// More processes would tell.
    Undecided,
}

impl UpgradeVerdict {
    /// All of them, the worst first.
    pub const ALL: [Self; 7] = [
        Self::Breaks,
        Self::CompilerRegressed,
        Self::LoweringRegressed,
        Self::Retune,
        Self::Undecided,
        Self::Improved,
        Self::Holds,
    ];

    /// The word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Improved => "improved",
            Self::Retune => "retune",
            Self::CompilerRegressed => "compiler regressed",
            Self::LoweringRegressed => "lowering regressed",
            Self::Breaks => "breaks",
            Self::Undecided => "undecided",
        }
    }

    /// Whether somebody has to act before the change.
    pub fn is_alarm(self) -> bool {
        matches!(self, Self::Retune | Self::CompilerRegressed | Self::LoweringRegressed | Self::Breaks)
    }
}

impl UpgradedCall {
    /// `op@vN:key`, and the direction unless it is forward.
    pub fn name(&self) -> String {
        name(&self.call, self.direction)
    }
}

/// `op@vN:key`, and the direction unless it is forward.
pub(super) fn name(call: &Call, direction: Direction) -> String {
    match direction {
        Direction::Forward => call.to_string(),
        other => format!("{call} ({other})"),
    }
}
