//! Errors that end a whole run; a failure of only one operation is a [`Status`](super::Status).

use crate::ledger::LedgerError;
use crate::remedy::scratch_remedy;

/// A run that cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The sample log or a cache tier failed.
    #[error(transparent)]
    Ledger(LedgerError),
    /// The scratch folder cannot be made or written.
    #[error("cannot write input arrays under `{path}`: {source}{}", scratch_remedy(source), path = path.display())]
    Scratch {
        /// Where.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl<E: Into<LedgerError>> From<E> for TuneError {
    fn from(error: E) -> Self {
        Self::Ledger(error.into())
    }
}
