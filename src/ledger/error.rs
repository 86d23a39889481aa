//! Why a cache folder cannot be opened, read or written.

use crate::cache::StoreError;
use crate::samples::LogError;

/// A cache folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A cache tier failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sample log failed.
    #[error(transparent)]
    Log(#[from] LogError),
}
