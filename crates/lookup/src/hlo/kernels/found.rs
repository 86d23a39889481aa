//! The kernels of a module, as `scan --format json` prints them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::array::ArraySpec;

/// A kernel of a module, and how often the module calls it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FoundKernel {
    /// The target of its custom call.
    pub target: String,
    /// Its name, or that of its instruction, or its target if neither is known.
    pub name: String,
    /// What it is, if a template knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<KnownKernel>,
    /// The sides of its grid, if its call says them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grid: Vec<u64>,
    /// Warps of a block, if its call says them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_warps: Option<u64>,
    /// Pipeline stages, if its call says them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_stages: Option<u64>,
    /// What it says of itself: `kernel_metadata`, with the members of `xprof_metadata` among the others.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Shapes of its operands, as far as they are arrays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operands: Vec<ArraySpec>,
    /// The scopes of the first call.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// The source line of the first call, `file:line`, if the module says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Line of the first call in the module's file, from 1, if the form has lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Custom calls of it in the module.
    pub calls: u64,
}

/// What a kernel is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KnownKernel {
    /// The project that it is of; several with ` or ` between them if its name alone does not tell.
    pub project: String,
    /// The operation, as the project names it.
    pub operation: String,
    /// Its tunable parameters, as far as they can be read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Value>,
    /// What else of the call can be read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub static_arguments: BTreeMap<String, Value>,
    /// Whether its parameters are those that the project takes if nothing is tuned; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_defaults: Option<bool>,
}

impl FoundKernel {
    /// The same for calls of one kernel with the same parameters on arrays of the same shapes.
    pub(super) fn identity(&self) -> String {
        let of_all = Self { scope: String::new(), source: None, line: None, calls: 0, ..self.clone() };
        serde_json::to_string(&of_all).unwrap_or_default()
    }

    /// Whether it is known to run on the values that its project takes if nothing is tuned.
    pub fn is_on_defaults(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.on_defaults == Some(true))
    }
}
