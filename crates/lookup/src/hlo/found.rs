//! The result types of a scan, as `scan --format json` prints them.

use serde::{Deserialize, Serialize};

use super::kernels::found::FoundKernel;
use super::{Evidence, Label};
use crate::array::ArraySpec;

/// The form of a module, detected from its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModuleForm {
    /// HLO text.
    HloText,
    /// StableHLO (MLIR) text.
    StablehloText,
    /// Serialized `HloModuleProto` or `HloProto`.
    HloProto,
    /// MLIR bytecode, portable artifacts included.
    StablehloBytecode,
    /// An XLA dump folder.
    DumpFolder,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One call site of a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallSite {
    /// Line in the file, from 1, if the form has lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Name of the instruction or of the called function.
    pub name: String,
    /// Whether this call is under `transpose(…)`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backward: bool,
    /// Shapes of the input values except constants; empty if the form does not show them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operands: Vec<ArraySpec>,
}

impl CallSite {
    /// A forward call on values of these shapes.
    pub fn new(name: impl Into<String>, operands: Vec<ArraySpec>) -> Self {
        Self { line: None, name: name.into(), backward: false, operands }
    }
}

/// A distinct label of a module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FoundLabel {
    /// Operation and call key.
    #[serde(flatten)]
    pub label: Label,
    /// How much of it the module kept.
    pub evidence: Evidence,
    /// Label family: `ejkernel-hash`, `ejkernel-json`, `tokamax` or `user`.
    pub family: String,
    /// How often it occurs in the file.
    pub occurrences: u64,
    /// Line of the first, from 1, if the form has lines.
    pub line: Option<u64>,
    /// Whether it occurs under `transpose(…)`: the backward pass runs too.
    pub backward: bool,
    /// Whether it occurs under `vmap(…)`, as far as its own names show.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mapped: bool,
    /// Number of its call sites in the forward pass, complete even where the list is not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub forward_calls: u64,
    /// Number of those under `transpose(…)`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub backward_calls: u64,
    /// Where it is called, as far as the form shows it; at most [`FoundLabel::MAX_CALL_SITES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub call_sites: Vec<CallSite>,
    /// The call's arguments as the label carries them (json stamps and tokamax).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Value>,
}

impl FoundLabel {
    /// Maximum number of call sites kept per label.
    pub const MAX_CALL_SITES: usize = 256;

    /// A label that occurs once; it is exact if it has a call key, else by name.
    pub fn new(label: Label, family: impl Into<String>) -> Self {
        Self {
            evidence: if label.call_key.is_some() { Evidence::Exact } else { Evidence::ByName },
            label,
            family: family.into(),
            occurrences: 1,
            line: None,
            backward: false,
            mapped: false,
            forward_calls: 0,
            backward_calls: 0,
            call_sites: Vec::new(),
            arguments: None,
        }
    }

    /// How often the module calls it, if the form shows that. The backward pass of a call is no call of its own.
    pub fn known_calls(&self) -> Option<u64> {
        [self.forward_calls, self.backward_calls].into_iter().find(|&calls| calls > 0)
    }

    /// Counts a call site, and lists it if there is room.
    pub fn add_call_site(&mut self, site: CallSite) {
        *(if site.backward { &mut self.backward_calls } else { &mut self.forward_calls }) += 1;
        if self.call_sites.len() < Self::MAX_CALL_SITES {
            self.call_sites.push(site);
        }
    }

    /// Whether there are more call sites than are listed.
    pub fn is_list_cut(&self) -> bool {
        self.forward_calls + self.backward_calls > self.call_sites.len() as u64
    }

    /// Adds the call sites of the same label in another module.
    pub(crate) fn add_calls_of(&mut self, other: Self) {
        self.forward_calls += other.forward_calls;
        self.backward_calls += other.backward_calls;
        let room = Self::MAX_CALL_SITES.saturating_sub(self.call_sites.len());
        self.call_sites.extend(other.call_sites.into_iter().take(room));
    }
}

/// A diagnosis: why labels are missing or weak, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Stable identifier: `no-labels`, `labels-cut`, `no-metadata`, ….
    pub code: String,
    /// What was found in this file, and the command that writes a file with labels.
    pub message: String,
}

/// The result of scanning one module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Scan {
    /// Version of this schema: 1.
    pub schema: u32,
    /// The module's form.
    pub form: ModuleForm,
    /// Name of the module, if the form shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// SHA-256 of the file's bytes as they are on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<crate::digest::Digest>,
    /// Whether the module is already partitioned (its shapes are local), if the form reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitioned: Option<bool>,
    /// Every distinct label, sorted.
    pub labels: Vec<FoundLabel>,
    /// The kernels that its custom calls hold, labelled or not, in the order of their first calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<FoundKernel>,
    /// The diagnoses.
    pub diagnosis: Vec<Diagnosis>,
}
