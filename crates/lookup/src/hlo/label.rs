//! The label that a kernel library stamps on a tunable operation: the operation, and the call of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::call::split_op_id;

/// Identifies one tunable call as far as the module kept it: the operation and the key of its arguments.
///
/// `op_id` is `name@vN` where the version is known, the bare `name` where the module lost it; for tokamax it is the
/// class path. `call_key` is 16 hexadecimal digits for ejkernel and tokamax, free text for a user's own labels, and
/// `None` if the module lost it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Label {
    /// Operation, `name@vN` or the bare name.
    pub op_id: String,
    /// Key of the call's arguments, if the module kept it.
    pub call_key: Option<String>,
}

impl Label {
    /// A label from its two parts.
    pub fn new(op_id: impl Into<String>, call_key: Option<String>) -> Self {
        Self { op_id: op_id.into(), call_key }
    }

    /// The operation's name without its version: `flash_attention` for `flash_attention@v2`.
    pub fn op_name(&self) -> &str {
        split_op_id(&self.op_id).0
    }

    /// The operation's version, if the module kept it.
    pub fn version(&self) -> Option<u32> {
        split_op_id(&self.op_id).1
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.call_key {
            Some(key) => write!(f, "{}:{}", self.op_id, key),
            None => write!(f, "{}:?", self.op_id),
        }
    }
}

/// How much of a label the module kept, from strongest to weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The whole label.
    Exact,
    /// The call key was recomputed from the arguments in a json stamp; the version is lost.
    Recomputed,
    /// Only the operation's name survived (cut at `@`); version and key must come from the registry.
    ByName,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exact => "exact",
            Self::Recomputed => "recomputed",
            Self::ByName => "by-name",
        })
    }
}
