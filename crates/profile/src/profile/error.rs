//! Why a profile could not be read.

use std::io;

use crate::io_hint::io_hint;
use crate::wire::WireError;

/// A profile that could not be read: which, and why.
#[derive(Debug, thiserror::Error)]
#[error("`{place}`: {kind}")]
#[non_exhaustive]
pub struct ProfileError {
    /// The file, folder or stream.
    pub place: String,
    /// What is wrong with it.
    #[source]
    pub kind: ProfileErrorKind,
}

impl ProfileError {
    /// An error at a place.
    pub fn new(place: impl Into<String>, kind: ProfileErrorKind) -> Self {
        Self { place: place.into(), kind }
    }
}

/// What is wrong with a profile that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileErrorKind {
    /// It cannot be opened or read.
    #[error("cannot be read: {0}{next}", next = io_hint(.0))]
    Unreadable(#[from] io::Error),
    /// It is empty.
    #[error("is empty; capture the profile again, and stop the trace before the program ends")]
    Empty,
    /// It became shorter while it was read.
    #[error("became shorter while it was read; wait until the profiler has written it, then try again")]
    Shrank,
    /// It is larger than any XSpace can be.
    #[error("is larger than {limit} bytes, more than a profiler can write into one file; check where it comes from")]
    TooLarge {
        /// Most bytes taken.
        limit: u64,
    },
    /// It was compressed twice.
    #[error("is gzip inside gzip; decompress it once")]
    CompressedTwice,
    /// Its gzip stream is damaged.
    #[error("its gzip stream is damaged: {0}; compress or copy the file again")]
    Gzip(io::Error),
    /// It is a file of another kind.
    #[error("is {what}, not an XSpace; {next}")]
    Other {
        /// What it is.
        what: &'static str,
        /// What to do.
        next: &'static str,
    },
    /// Its bytes are not an XSpace.
    #[error(
        "is not a whole XSpace: {what} at byte {offset}, in {part}; copy the file again, or give the .xplane.pb of a \
         capture"
    )]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where, from the start of the (decompressed) file.
        offset: usize,
        /// The message that ends there, in words.
        part: &'static str,
    },
    /// A plane's metadata does not decode.
    #[error("the metadata of plane {plane} cannot be decoded: {what}; copy the file again")]
    Metadata {
        /// Number of the plane in the file, from zero.
        plane: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The folder holds no capture.
    #[error("holds no capture; expected `plugins/profile/<run>/<host>.xplane.pb`, as `jax.profiler.trace` writes it")]
    NoCapture,
    /// The folder has too many subfolders.
    #[error("has more than {limit} folders in it; give the log folder of a run")]
    TooManyFolders {
        /// Maximum number of folders.
        limit: usize,
    },
    /// No plane has the requested name.
    #[error("no plane's name contains `{wanted}`; there are {present}")]
    NoPlane {
        /// The requested name.
        wanted: String,
        /// The existing planes.
        present: String,
    },
}

impl ProfileErrorKind {
    /// An error of the wire format inside a message that starts at `base`.
    pub(super) fn wire(error: &WireError, base: usize, part: &'static str) -> Self {
        Self::Malformed { what: error.what, offset: base + error.offset, part }
    }
}
