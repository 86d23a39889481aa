//! What can go wrong with a store.

use std::io;
use std::path::PathBuf;

use crate::remedy::remedy;

/// A store that cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has the folder open.
    #[error("the cache `{path}` is in use by {holder}; wait for it to end or choose another folder with `--cache`", path = path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The other process, as its lock file names it.
        holder: String,
    },
    /// A file or folder cannot be read or written.
    #[error("cannot {action} `{path}`: {source}{next}", path = path.display(), next = remedy(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// sled refused.
    #[cfg(feature = "tuner")]
    #[error("cannot {action} the sled cache `{path}`: {source}{next}", path = path.display(), next = after_sled(source))]
    Sled {
        /// What was tried.
        action: &'static str,
        /// The folder.
        path: PathBuf,
        /// sled's reason.
        source: sled::Error,
    },
    /// A value is not what was written.
    #[error("an entry of `{path}` is damaged: {what}; `autotune-lowered cache rebuild` makes it again from the sample log", path = path.display())]
    Damaged {
        /// The store.
        path: PathBuf,
        /// Which, and how.
        what: String,
    },
    /// A snapshot is not what was written.
    #[error("the snapshot `{path}` cannot be used: {what}; publish it again with `autotune-lowered cache snapshot`", path = path.display())]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// What, and where.
        what: String,
    },
    /// A snapshot of a later program.
    #[error("the snapshot `{path}` has version {version}, which this program does not read; use a newer autotune-lowered", path = path.display())]
    NewerSnapshot {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The store cannot be written by its nature.
    #[error("the {0} tier is read-only")]
    ReadOnly(&'static str),
}

impl StoreError {
    /// Wraps a system error.
    pub(super) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

#[cfg(feature = "tuner")]
fn after_sled(source: &sled::Error) -> &'static str {
    match source {
        sled::Error::Io(error) if !remedy(error).is_empty() => remedy(error),
        _ => "; `autotune-lowered cache rebuild` makes it again from the sample log",
    }
}
