//! What a file of the store holds besides the executable.

use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::key::ExecutableKey;
use crate::config::Config;
use crate::digest::Digest;
use crate::timer::protocol::{CostAnalysis, ExecutableRef, KernelUse, MemoryStats, ProgramSignature};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct EntryHeader {
    pub(super) key: ExecutableKey,
    pub(super) payload_digest: Digest,
    pub(super) payload_bytes: u64,
    pub(super) signature: Option<ProgramSignature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<CompileNote>,
}

/// The cost and the outcome of compiling a program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CompileNote {
    /// Nanoseconds.
    pub(crate) compile_ns: u64,
    /// Processor time, nanoseconds; zero if it is not known.
    #[serde(default)]
    pub(crate) cpu_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<MemoryStats>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kernels: Vec<KernelUse>,
    /// Why they are unknown, for a GPU's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kernels_unknown: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<CostAnalysis>,
    /// Why the compiler refused the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// The target's program, if it was compiled for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<CompiledFor>,
}

/// Identifies a compiled program by what stays the same when the program or the compiler changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CompiledFor {
    /// As the user named it.
    pub target: String,
    /// `op@vN:key` and the direction, or the module's file.
    pub operation: String,
    /// The config; empty for a module.
    pub config: Config,
}

/// A file of the store, known by its header, which is intact; its payload was not read.
#[derive(Debug)]
pub(crate) struct ListedExecutable {
    pub(crate) path: PathBuf,
    pub(crate) key: ExecutableKey,
    pub(crate) note: Option<CompileNote>,
    pub(crate) payload_bytes: u64,
    /// Time of its last write or use, to the hour.
    pub(crate) used: SystemTime,
    /// The digest that signatures of the file cover.
    pub(crate) digest: Digest,
}

impl ListedExecutable {
    /// Seconds of its compilation, if known, and its bytes.
    pub(crate) fn cost(&self) -> Option<(f64, u64)> {
        Some((self.note.as_ref()?.compile_ns as f64 / 1e9, self.payload_bytes))
    }
}

/// The files of a store.
#[derive(Debug, Default)]
pub(crate) struct StoreListing {
    pub(crate) listed: Vec<ListedExecutable>,
    /// What cannot be used, and why.
    pub(crate) damaged: Vec<(PathBuf, String)>,
}

/// The recorded result of compiling a program.
#[derive(Debug)]
pub(crate) struct KeptOutcome {
    pub(crate) note: CompileNote,
    pub(crate) payload_bytes: u64,
    pub(crate) path: PathBuf,
    /// The digest that signatures of the file cover.
    pub(crate) digest: Digest,
}

/// An executable found in the store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredExecutable {
    pub(crate) executable: ExecutableRef,
    pub(crate) signature: Option<ProgramSignature>,
}
