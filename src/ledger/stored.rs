//! Reads a cache of any kind at a path without changing it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cache::{CacheKey, Cached, Entry, FolderLock, SNAPSHOT_FILE, Snapshot, StoreError};
use crate::counted::counted;
use crate::exchange::{ExchangeError, import_json};
use crate::mapped_file::Mapping;
use crate::outside_file;
use crate::samples::{Damage, LogError, Replay, SampleLog};

use super::repair::LOG_FILE;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StoredKind {
    /// A cache folder.
    Folder,
    /// A snapshot.
    Snapshot,
    /// A sample log.
    SampleLog,
    /// Entries as JSON, in one object or one per line.
    Json,
    /// The sled database of a cache folder.
    Sled,
}

/// The entries at a path.
#[derive(Debug)]
pub struct StoredCache {
    /// The entries.
    pub cached: Cached,
    /// Notes, one line each.
    pub notes: Vec<String>,
}

/// Why the entries at a path cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// A snapshot or a store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A sample log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A JSON file.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// A folder without a cache.
    #[error("`{path}` is not a cache folder: it holds neither `{LOG_FILE}` nor `{SNAPSHOT_FILE}`; check the \
             path", path = .0.display())]
    NoCache(PathBuf),
    /// A file of an unknown kind.
    #[error("`{path}` is not a cache: neither a snapshot nor a sample log, and its name ends in neither `.json` nor \
             `.jsonl`", path = .0.display())]
    Unknown(PathBuf),
    /// A log that lost some of its decisions.
    #[error("`{path}` is damaged: {what}; `autotune-lowered cache rebuild --cache {folder}` recovers what is \
             possible", path = path.display(), folder = path.parent().unwrap_or(Path::new(".")).display())]
    Lossy {
        /// The log.
        path: PathBuf,
        /// Where and how many.
        what: String,
    },
    /// A log with an invalid entry.
    #[error("`{path}` holds an entry that cannot be read: `{key}`", path = path.display())]
    NoEntry {
        /// The log.
        path: PathBuf,
        /// Its key.
        key: String,
    },
}

/// Reads all entries at a path: of a cache folder, a snapshot, a sample log or a JSON file.
///
/// A cache folder is read from its sample log, which needs neither lock nor writing: another process may have it open,
/// and a note names it. One that has only a snapshot is read from that.
///
/// # Errors
/// If there is no cache, or part of it is damaged.
pub fn read_cache(path: &Path) -> Result<StoredCache, StoredError> {
    let mut notes = Vec::new();
    let cached = match kind_of(path)? {
        StoredKind::Folder => read_folder(path, &mut notes)?,
        StoredKind::SampleLog => read_log(path, &SampleLog::read_named(path)?, &mut notes)?,
        StoredKind::Snapshot => Cached::of_snapshot(Snapshot::open(path, Mapping::Never)?),
        _ => Cached::Entries(import_json(path)?),
    };
    Ok(StoredCache { cached, notes })
}

/// A folder's sample log; if that never held a decision, the published snapshot.
fn read_folder(folder: &Path, notes: &mut Vec<String>) -> Result<Cached, StoredError> {
    let (log, published) = (folder.join(LOG_FILE), folder.join(SNAPSHOT_FILE));
    if let Some(holder) = FolderLock::holder(folder) {
        notes.push(format!("`{}` is in use by {holder}; reading the decisions made so far", folder.display()));
    }
    let replay = SampleLog::read(&log)?;
    if replay.stated_at.is_none() && replay.damage.is_empty() && published.exists() {
        let snapshot = Snapshot::open(&published, Mapping::Never)?;
        // the snapshot of an empty part is as empty as its log
        if !snapshot.is_empty() {
            notes.push(format!("the sample log of `{}` holds no decision; reading its snapshot", folder.display()));
        }
        return Ok(Cached::of_snapshot(snapshot));
    }
    if !log.exists() {
        return Err(StoredError::NoCache(folder.to_owned()));
    }
    read_log(&log, &replay, notes)
}

fn read_log(path: &Path, replay: &Replay, notes: &mut Vec<String>) -> Result<Cached, StoredError> {
    let findings = log_findings(replay);
    if let Some(what) = findings.problems.into_iter().next() {
        return Err(StoredError::Lossy { path: path.to_owned(), what });
    }
    notes.extend(findings.notes.into_iter().map(|note| format!("`{}`: {note}", path.display())));
    Ok(Cached::Entries(entries_of(path, replay)?))
}

/// The entries in force by a sample log.
pub(crate) fn entries_of(path: &Path, replay: &Replay) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoredError> {
    let pairs = replay.entries.iter().map(|(key, value)| {
        match (CacheKey::from_text(key), serde_json::from_str::<Entry>(value)) {
            (Some(key), Ok(entry)) => Ok((key, Arc::new(entry))),
            _ => Err(StoredError::NoEntry { path: path.to_owned(), key: key.clone() }),
        }
    });
    pairs.collect()
}

/// Errors in a sample log, and mere notes on it.
#[derive(Default)]
pub(crate) struct LogFindings {
    pub(crate) problems: Vec<String>,
    pub(crate) notes: Vec<String>,
}

pub(crate) fn log_findings(replay: &Replay) -> LogFindings {
    let mut found = LogFindings::default();
    for Damage { offset, bytes, torn_tail } in &replay.damage {
        if *torn_tail {
            found
                .notes
                .push(format!("it ends in an incomplete record of {bytes} bytes; everything before it is intact"));
        } else if *offset < replay.noted_until {
            found.notes.push(format!(
                "byte {offset} ({bytes} bytes) is not a record; this was reported and repaired \
                                      before"
            ));
        } else {
            found.problems.push(format!("byte {offset} ({bytes} bytes) is not a record"));
        }
    }
    if !replay.is_consistent() {
        let (stated, there) = (replay.stated.count, replay.committed.count);
        found.problems.push(format!("it states {stated} entries, but gives {there} others"));
    }
    if replay.unknown > 0 {
        found.notes.push(format!("{} of a kind unknown to this version", counted(replay.unknown, "record")));
    }
    found
}

/// What is at a path, by its content; JSON by its name.
pub(super) fn kind_of(path: &Path) -> Result<StoredKind, StoredError> {
    let io = |source| StoreError::io("read", path)(source);
    let metadata = std::fs::metadata(path).map_err(io)?;
    if metadata.is_dir() {
        return Ok(StoredKind::Folder);
    }
    if !metadata.is_file() {
        return Err(StoredError::Unknown(path.to_owned()));
    }
    let mut start = Vec::new();
    outside_file::open(path, u64::MAX).map_err(io)?.take(8).read_to_end(&mut start).map_err(io)?;
    let named = |extension: &str| path.extension().is_some_and(|found| found == extension);
    match start.as_slice() {
        start if start == Snapshot::MAGIC || named("snapshot") => Ok(StoredKind::Snapshot),
        start if start.starts_with(b"ATL1 ") || named("log") => Ok(StoredKind::SampleLog),
        _ if named("json") || named("jsonl") => Ok(StoredKind::Json),
        _ => Err(StoredError::Unknown(path.to_owned())),
    }
}
