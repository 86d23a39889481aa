//! What ends a whole run; what costs only one operation is a [`Status`](super::Status).

use crate::cache::StoreError;
use crate::failure::Failure;
use crate::remedy::scratch_remedy;
use crate::samples::LogError;

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// A cache tier failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sample log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The device or its worker cannot be had.
    #[error("cannot use the device: {0}")]
    Device(Failure),
    /// The scratch folder cannot be made or written.
    #[error("cannot write input arrays under `{path}`: {source}{}", scratch_remedy(source), path = path.display())]
    Scratch {
        /// Where.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}
