//! Why a race has no result.

use crate::failure::Failure;
use crate::io_hint::scratch_hint;
use crate::ledger::LedgerError;
use crate::measure::MeasureError;

/// Why a race ended before its last round.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RaceError {
    /// The baseline, or the worker itself, failed: nothing can be decided.
    #[error(transparent)]
    Failed(Failure),
    /// The user ended it.
    #[error("ended by the user")]
    Interrupted,
    /// The inputs of its programs cannot be made.
    #[error(transparent)]
    Inputs(MeasureError),
    /// Nothing can continue.
    #[error(transparent)]
    Fatal(TuneError),
}

impl From<MeasureError> for RaceError {
    fn from(error: MeasureError) -> Self {
        match error {
            MeasureError::Failed(failure) => Self::Failed(failure),
            error => Self::Inputs(error),
        }
    }
}

impl<E: Into<TuneError>> From<E> for RaceError {
    fn from(error: E) -> Self {
        Self::Fatal(error.into())
    }
}

/// A run that cannot continue. A failure of only one operation is a [`Status`](crate::tune::Status).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The sample log or a cache tier failed.
    #[error(transparent)]
    Ledger(LedgerError),
    /// The scratch folder cannot be made or written.
    #[error("cannot write input arrays under `{path}`: {source}{}", scratch_hint(source), path = path.display())]
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
