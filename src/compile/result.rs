//! The result of compiling for targets.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::changes::{FigureSummary, ProgramChange};
use super::figure::{CompiledFigure, FigureUnit, GrowthLimits};
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::counted::counted;
use crate::device::DeviceFingerprint;
use crate::timer::Forecast;
use crate::timer::pjrt::CompileOutcome;

/// Version of the schema of a [`CompileResult`].
pub const COMPILE_RESULT_SCHEMA: u32 = 1;

/// A module's calls, or the module itself, compiled for one target after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompileResult {
    /// [`COMPILE_RESULT_SCHEMA`].
    pub schema: u32,
    /// Name and version of this program.
    pub tool: String,
    /// The targets, in the order in which they were named.
    pub targets: Vec<CompiledTarget>,
    /// Whether the user ended it: programs that were not started are missing.
    pub interrupted: bool,
}

impl CompileResult {
    /// An empty result.
    pub fn new() -> Self {
        let tool = crate::measured_by::TOOL.to_owned();
        Self { schema: COMPILE_RESULT_SCHEMA, tool, targets: Vec::new(), interrupted: false }
    }

    /// Programs of the targets that were begun.
    pub fn programs(&self) -> usize {
        let of_target = |target: &CompiledTarget| match target.calls.as_slice() {
            // the module itself
            [] => 1,
            calls => calls.iter().map(|call| call.candidates.len()).sum(),
        };
        self.targets.iter().map(of_target).sum()
    }
}

impl Default for CompileResult {
    fn default() -> Self {
        Self::new()
    }
}

/// The result of one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledTarget {
    /// As it was named.
    pub target: String,
    /// The device, as a machine that has it would report it, and the compiler.
    pub device: DeviceFingerprint,
    /// Memory of each device, if the target reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The calls.
    pub calls: Vec<CompiledCall>,
    /// The module itself, if no registry was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<CompileOutcome>,
    /// On how many devices the module runs; its memory is that of each.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub devices: u64,
    /// Notes on the module and the registry, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The cost of compiling, if nothing was compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
    /// The comparison with an earlier store, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<StoreComparison>,
}

fn one() -> u64 {
    1
}

// serde passes a reference
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(count: &u64) -> bool {
    *count == 1
}

/// Programs compared with an earlier store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreComparison {
    /// Programs that the store has an outcome for.
    pub compared: usize,
    /// Programs that it does not have.
    pub unknown: usize,
    /// Programs of the target that only it has.
    pub only_in_baseline: usize,
    /// Regressions.
    pub regressions: Vec<Regression>,
    /// The ratios of each figure over all programs that compiled before and compile now.
    pub figures: Vec<FigureSummary>,
    /// These programs, those that changed most first.
    pub changes: Vec<ProgramChange>,
}

impl StoreComparison {
    /// Says for which programs a limit judges nothing: one note for each figure.
    pub fn not_judged(&self, limits: &GrowthLimits) -> Vec<String> {
        let note = |(figure, _): (CompiledFigure, f64)| {
            let is_unknown = |change: &&ProgramChange| {
                change.figure(figure).is_none_or(|change| change.before.is_none() || change.now.is_none())
            };
            let unknown = self.changes.iter().filter(is_unknown).count();
            let advice = match figure {
                CompiledFigure::Bundles | CompiledFigure::Vmem => "; compile both stores with `--llo`",
                _ => "",
            };
            (unknown > 0).then(|| {
                let (name, programs) = (figure.name(), counted(unknown, "program"));
                format!("the growth of {name} is not judged in {programs}, where a store does not know it{advice}")
            })
        };
        limits.iter().filter_map(note).collect()
    }
}

/// A call's candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledCall {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// The direction.
    pub direction: Direction,
    /// The config in use without tuning.
    pub baseline: Config,
    /// Its configs, in the registry's order.
    pub candidates: Vec<CompiledCandidate>,
}

/// A config.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledCandidate {
    /// The config.
    pub config: Config,
    /// The result of its program; `None` if it was not started.
    #[serde(flatten)]
    pub outcome: Option<CompileOutcome>,
}

/// Regressions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Regression {
    /// It was accepted before and is now refused.
    Refused {
        /// The call and its direction, or the module's file.
        operation: String,
        /// The config.
        config: Config,
        /// The compiler's message.
        reason: String,
    },
    /// A figure grew by more than its limit.
    Growth {
        /// The figure.
        figure: CompiledFigure,
        /// The call and its direction, or the module's file.
        operation: String,
        /// The config.
        config: Config,
        /// What it was.
        before: f64,
        /// What it is.
        now: f64,
        /// By which part of what it was it may grow.
        limit: f64,
    },
}

impl Regression {
    /// The call or module that it concerns.
    pub fn operation(&self) -> &str {
        match self {
            Self::Refused { operation, .. } | Self::Growth { operation, .. } => operation,
        }
    }
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { operation, config, reason } => {
                write!(f, "{operation} {config} was compiled before and is refused now: {reason}")
            }
            Self::Growth { figure, operation, config, before, now, limit } => {
                let amount = |value: &f64| match figure.unit() {
                    FigureUnit::Bytes => format!("{value} bytes"),
                    FigureUnit::Seconds => format!("{value:.2} s"),
                    FigureUnit::Count => value.to_string(),
                };
                let (name, before_text, now_text) = (figure.name(), amount(before), amount(now));
                write!(f, "{operation} {config}: {name} grew from {before_text} to {now_text}")?;
                if *before > 0.0 {
                    write!(f, ", by {:.1}%", (now / before - 1.0) * 100.0)?;
                }
                write!(f, "; {:.1}% is allowed", limit * 100.0)
            }
        }
    }
}

impl CompiledCall {
    /// `op@vN:key`, and the direction unless it is forward.
    pub fn name(&self) -> String {
        name_of(&self.call, self.direction)
    }

    /// The outcomes of those that were started.
    pub fn outcomes(&self) -> impl Iterator<Item = &CompileOutcome> + Clone {
        self.candidates.iter().filter_map(|candidate| candidate.outcome.as_ref())
    }
}

pub(super) fn name_of(call: &Call, direction: Direction) -> String {
    match direction {
        Direction::Forward => call.to_string(),
        other => format!("{call} ({other})"),
    }
}

impl CompiledTarget {
    /// The memory that a run of the module allocates on each device, and the device's memory; `None` if either is
    /// unknown.
    pub fn module_memory(&self) -> Option<(u64, u64)> {
        match self.module.as_ref()? {
            CompileOutcome::Compiled { memory, .. } => Some((memory.as_ref()?.allocated_bytes(), self.memory_bytes?)),
            _ => None,
        }
    }

    /// Every outcome.
    pub fn outcomes(&self) -> impl Iterator<Item = &CompileOutcome> + Clone {
        self.calls.iter().flat_map(CompiledCall::outcomes).chain(self.module.as_ref())
    }
}
