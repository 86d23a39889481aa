//! Why a capture could not be read.

use std::io;

/// A capture that could not be read: which file of it, and why.
#[derive(Debug, thiserror::Error)]
#[error("`{place}`: {kind}")]
#[non_exhaustive]
pub struct NsysError {
    /// The zip or folder, and the file in it.
    pub place: String,
    /// What is wrong.
    #[source]
    pub kind: NsysErrorKind,
}

/// What is wrong with a capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NsysErrorKind {
    /// It cannot be opened or read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The zip is damaged.
    #[error("is not a complete zip: {0}; copy the capture again")]
    Zip(String),
    /// It is implausibly large.
    #[error("is larger than {0} bytes, which no capture is; check where it comes from")]
    TooLarge(u64),
    /// It has no usable content.
    #[error(
        "holds neither `nvtx_gpu_proj_trace/trace.parquet` nor `report_nvtx_pushpop_trace.parquet` (or `.csv.xz`); \
         give what nsys-jax wrote"
    )]
    NoCapture,
    /// A Parquet file is damaged, or compressed in a way that pandas does not use by default.
    #[error("cannot be read as Parquet: {0}; copy the capture again, or write the file with Snappy or no compression")]
    Parquet(String),
    /// An xz file is damaged.
    #[error("its xz stream is damaged: {0}; copy the capture again")]
    Xz(io::Error),
    /// A table lacks a column.
    #[error("has no column `{0}`; this version of nsys-jax is unknown")]
    NoColumn(&'static str),
    /// A row cannot be understood.
    #[error("line {line}: {what}; copy the capture again")]
    Row {
        /// Its number, from one.
        line: u64,
        /// What is wrong.
        what: &'static str,
    },
}
