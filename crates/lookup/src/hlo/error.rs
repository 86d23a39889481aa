//! Why a module could not be scanned.

use std::io;

/// A file that could not be scanned: which, and why.
#[derive(Debug, thiserror::Error)]
#[error("`{place}`: {kind}")]
#[non_exhaustive]
pub struct ScanError {
    /// The file, folder or stream.
    pub place: String,
    /// What is wrong with it.
    #[source]
    pub kind: ScanErrorKind,
}

/// What is wrong with a file that could not be scanned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanErrorKind {
    /// There is no such file.
    #[error("no such file or folder; give the path of a lowered module, or `-` for standard input")]
    Missing,
    /// It cannot be opened or read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// It is empty.
    #[error("is empty; write the module again, for example with `lowered.as_text(debug_info=True)`")]
    Empty,
    /// It is truncated.
    #[error("is truncated: {what} at byte {offset}; copy or write the file again")]
    Truncated {
        /// What was truncated.
        what: String,
        /// Where, from the start of the file.
        offset: u64,
    },
    /// It is not a module in any form known here.
    #[error(
        "is not a module: {seen}; expected HLO text, StableHLO text or bytecode, a serialized HloModuleProto, or an \
         XLA dump folder"
    )]
    NotAModule {
        /// What its first bytes look like.
        seen: String,
    },
    /// Its compressed stream is damaged.
    #[error("its {codec} stream is damaged: {source}; compress or copy the file again")]
    Compressed {
        /// `gzip` or `zstd`.
        codec: &'static str,
        /// The decoder's message.
        source: io::Error,
    },
    /// It is too large to be held in memory.
    #[error("{what} exceeds {limit} bytes; {advice}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The bound.
        limit: u64,
        /// What to do instead.
        advice: &'static str,
    },
    /// It is a module that cannot be compared by meaning.
    #[error("has no semantic digest: it holds {what}; compare by the digest of its bytes instead")]
    Unsupported {
        /// The part that is not supported.
        what: String,
    },
    /// Its side file cannot be used.
    #[error("{0}")]
    SideFile(String),
    /// A folder without a module.
    #[error("holds no module among its {files} files; {advice}")]
    NoModuleInFolder {
        /// Files looked at.
        files: usize,
        /// What to do instead: what its sub-folders hold, or how to write a dump.
        advice: String,
    },
}

impl ScanErrorKind {
    pub(crate) fn at(self, place: &str) -> ScanError {
        ScanError { place: place.to_owned(), kind: self }
    }
}
