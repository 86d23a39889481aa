//! Sample log, sled and snapshot of a cache folder together: opened under one lock, made to agree, committed to,
//! published.
//!
//! [`Ledger`] is for writers. [`read_cache`] reads a cache of any kind without a lock and without changing it;
//! [`verify_cache`] compares its bytes with their checksums and its stores with each other; [`FolderBytes`] says how
//! much disk space it takes.

mod error;
mod folder;
mod folder_bytes;
mod repair;
mod stored;
mod tokamax;
mod verify;

pub use error::LedgerError;
pub use folder::Ledger;
pub use folder_bytes::FolderBytes;
pub use repair::LOG_FILE;
pub use stored::{StoredCache, StoredError, StoredKind, read_cache};
pub(crate) use stored::{entries_of, log_findings};
pub use verify::{Verified, verify_cache};
