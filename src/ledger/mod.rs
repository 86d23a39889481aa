//! Sample log, sled and snapshot of a cache folder together: opened under one lock, made to agree, committed to, published.
//!
//! [`Ledger`] is for who writes. [`read_cache`] reads a cache of any kind as it lies, without a lock; [`verify_cache`] compares
//! its bytes with their checksums and its stores with each other; [`FolderBytes`] says what it takes on the disk.

mod error;
mod folder;
mod folder_bytes;
mod mend;
mod stored;
mod tokamax;
mod verify;

pub use error::LedgerError;
pub use folder::Ledger;
pub use folder_bytes::FolderBytes;
pub use mend::LOG_FILE;
pub use stored::{Stored, StoredError, StoredKind, read_cache};
pub(crate) use stored::{entries_of, log_findings};
pub use verify::{Verified, verify_cache};
