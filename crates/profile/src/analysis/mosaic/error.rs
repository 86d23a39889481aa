//! Why an on-device profile could not be read.

use std::io;
use std::path::PathBuf;

use crate::io_hint::io_hint;

/// An on-device profile, or its names, that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MosaicError {
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}{}", path.display(), io_hint(source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not an array of 32-bit integers as NumPy writes it.
    #[error("`{}` {what}; save the buffer with `numpy.save`, as uint32", path.display())]
    NotWords {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// The names are not names.
    #[error("`{}` holds no names: {what}; write `spec.interned_names` as JSON", path.display())]
    NotNames {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A block that is not made of whole warpgroups, or warps.
    #[error("a block of {threads} threads is not made of whole {unit}s of {size}; check --block and --scope")]
    Block {
        /// Threads of the block.
        threads: u64,
        /// What it is divided into.
        unit: &'static str,
        /// Threads of one.
        size: u64,
    },
    /// More traces than a buffer can hold.
    #[error("grid and block give more than {limit} traces; check --grid and --block")]
    TooMany {
        /// Most traces.
        limit: u64,
    },
    /// The buffer does not fit the grid.
    #[error("{words} words cannot be divided into {traces} traces of equal length; check --grid, --block and --scope")]
    Shape {
        /// Words of the buffer.
        words: u64,
        /// Traces of grid and block.
        traces: u64,
    },
    /// Fewer words than a header and one event take.
    #[error("{entries} words per trace are too few: a header takes 3, and each event 2")]
    TooSmall {
        /// Words per trace.
        entries: u64,
    },
    /// The kernel wrote more events than there was room for.
    #[error(
        "insufficient space to capture a full trace: trace {trace} used {used} of {entries} words; profile again with \
         more entries (`profile mosaic-size`)"
    )]
    Space {
        /// Number of the trace.
        trace: u64,
        /// Words used, header included.
        used: u64,
        /// Words available.
        entries: u64,
    },
    /// Some traces count words as one version of JAX does, some as another; none of them does that.
    #[error(
        "trace {trace} holds half an event: {used} words; memory was probably overwritten because the buffer is too \
         small: profile again with more entries"
    )]
    Odd {
        /// Number of the trace.
        trace: u64,
        /// Its count.
        used: u64,
    },
}
