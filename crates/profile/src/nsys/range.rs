//! The ranges of the traces.

use std::sync::Arc;

/// An NVTX range.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NsysRange {
    /// Its number in the trace.
    pub id: i64,
    /// The range around it on the same thread.
    pub parent: Option<i64>,
    /// Its name, for XLA's own without `TSL:`.
    pub name: Arc<str>,
    /// Whether XLA emitted it, and not NCCL or a library.
    pub is_xla: bool,
    /// Start, in nanoseconds.
    pub start_ns: i64,
    /// End, likewise.
    pub end_ns: i64,
    /// The process.
    pub pid: i64,
    /// The thread.
    pub tid: i64,
}
