//! What matching found, with every reason.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::hlo::Label;
use crate::registry::Invocation;

/// Whether a label matched by name alone may match many recorded calls: `--by-name`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ByName {
    /// Use the label if it matches at most eight recorded invocations; otherwise only list them
    #[default]
    Few,
    /// Use all matching invocations
    All,
}

/// How a label was matched to its invocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MatchBasis {
    /// Operation with version, and call key, are equal.
    Exact,
    /// The call key, computed again from the stamp, and the operation's name are equal; the version is the registry's.
    Recomputed,
    /// The operation's name is equal; nothing else of the label was left.
    ByName {
        /// Recorded calls of that operation that the device may run.
        of: usize,
        /// Whether the shapes at the label's call sites chose among them.
        by_shapes: bool,
    },
}

impl fmt::Display for MatchBasis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Recomputed => f.write_str("recomputed"),
            Self::ByName { of, by_shapes: true } => write!(f, "by name and shapes, of {of} recorded"),
            Self::ByName { of, by_shapes: false } => write!(f, "by name, of {of} recorded"),
        }
    }
}

/// One label that matches an invocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatchedLabel {
    /// Its place in [`Scan::labels`](crate::hlo::Scan::labels).
    pub index: usize,
    /// The label.
    pub label: Label,
    /// How it was matched.
    pub how: MatchBasis,
}

/// An invocation to tune, once, and all labels that match it.
#[derive(Debug, Clone, PartialEq)]
pub struct Matched {
    /// The invocation.
    pub invocation: Arc<Invocation>,
    /// The labels, in the order of the scan.
    pub labels: Vec<MatchedLabel>,
    /// Caveats: another device's recording, a backward pass that is not exercised, …; each once.
    pub flags: Vec<String>,
}

/// Why a label has no invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MissReason {
    /// The operation was never recorded.
    NotRecorded,
    /// The operation was recorded, not this call of it.
    OtherKey,
    /// This call was recorded for another version of the operation.
    OtherVersion,
    /// This call was recorded for another device.
    OtherDevice,
    /// Only the name is left and it matches too many recorded calls.
    TooMany,
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotRecorded => "not-recorded",
            Self::OtherKey => "other-key",
            Self::OtherVersion => "other-version",
            Self::OtherDevice => "other-device",
            Self::TooMany => "too-many",
        })
    }
}

/// A label without an invocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// Its place in [`Scan::labels`](crate::hlo::Scan::labels).
    pub index: usize,
    /// The label.
    pub label: Label,
    /// Why, for programs.
    pub reason: MissReason,
    /// Why and what to do, for people; one line.
    pub text: String,
}

/// The labels of a module, each matched or missed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Matching {
    /// Invocations, each once, in the order of their first labels.
    pub matched: Vec<Matched>,
    /// Labels without one.
    pub missed: Vec<Missed>,
}
