//! What came of compiling for targets.

use serde::{Deserialize, Serialize};

use crate::call::{Call, Direction};
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::timer::pjrt::Outcome;

/// Version of the schema of a [`CompileResult`].
pub const COMPILE_RESULT_SCHEMA: u32 = 1;

/// A module's calls, or the module itself, compiled for one target after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompileResult {
    /// [`COMPILE_RESULT_SCHEMA`].
    pub schema: u32,
    /// Name and version of this program.
    pub tool: String,
    /// In the order in which they were named.
    pub targets: Vec<CompiledTarget>,
    /// Whether the user ended it: what was not begun is missing.
    pub interrupted: bool,
}

impl CompileResult {
    /// Nothing yet.
    pub fn new() -> Self {
        let tool = crate::measured_by::TOOL.to_owned();
        Self { schema: COMPILE_RESULT_SCHEMA, tool, targets: Vec::new(), interrupted: false }
    }
}

impl Default for CompileResult {
    fn default() -> Self {
        Self::new()
    }
}

/// What came of one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompiledTarget {
    /// As it was named.
    pub target: String,
    /// The device, as it would be told where it is, and the compiler.
    pub device: DeviceFingerprint,
    /// The calls.
    pub calls: Vec<CompiledCall>,
    /// The module itself, where no registry was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<Outcome>,
    /// What was seen in module and registry, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A call's candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompiledCall {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// What the programs compute.
    pub direction: Direction,
    /// The config in use without tuning.
    pub baseline: Config,
    /// In the registry's order.
    pub candidates: Vec<CompiledCandidate>,
}

/// A config.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompiledCandidate {
    /// The config.
    pub config: Config,
    /// What came of its program; `None` where it was not begun.
    #[serde(flatten)]
    pub outcome: Option<Outcome>,
}

impl CompiledTarget {
    /// Every outcome.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        let of_calls = self.calls.iter().flat_map(|call| &call.candidates);
        of_calls.filter_map(|candidate| candidate.outcome.as_ref()).chain(self.module.as_ref())
    }
}
