//! Errors of a sample log.

use std::io;
use std::path::PathBuf;

use crate::io_hint::io_hint;

/// A sample log that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file cannot be opened or read.
    #[error("cannot read the sample log `{path}`: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A frame cannot be written or synced.
    #[error("cannot write the sample log `{path}`: {source}{next}", path = path.display(), next = io_hint(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file was removed or replaced while it was open: what is written to it is lost.
    #[error("the sample log `{path}` was removed during the run; what was measured is lost, run it \
             again", path = path.display())]
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// The file was made by a newer version.
    #[error("the sample log `{path}` has schema {found}, this version reads up to {known}; update \
             autotune-lowered", path = path.display())]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema known here.
        known: u32,
    },
    /// The file is something else.
    #[error("`{path}` is not a sample log; move it away", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A record is longer than a frame may be.
    #[error("a record of {bytes} bytes is longer than a frame of the sample log may be")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}
