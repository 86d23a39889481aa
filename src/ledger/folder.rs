//! The ledger: samples and decisions go into the sample log first, then into the caches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::{
    CacheKey, ConfigStore, Entry, FolderLock, KeyRef, SNAPSHOT_FILE, SnapshotStore, StoreError, StoreErrorKind, Tier,
    TieredCache, by_key, write_snapshot,
};
use crate::digest::Digest;
use crate::mapped_file::Mapping;
use crate::samples::{JobHistory, LogError, LogRecord, Replay, SampleLog};

use super::error::LedgerError;
use super::repair::{LOG_FILE, RepairedStores, repair};

/// A snapshot of more entries than this is not written after each decision. The limit is a size and not a time, because
/// otherwise a busy disk would determine whether a decision is already published when it is reported.
const SMALL: usize = 30_000;

/// A cache folder with its sample log, or the same in memory only.
///
/// Field order matters: the cache closes sled before the lock is released.
pub struct Ledger {
    cache: TieredCache,
    log: Option<Mutex<SampleLog>>,
    /// Gets the log's length at the end.
    log_bytes: Option<Arc<AtomicU64>>,
    /// The log of a folder that is open read-only.
    read_log: Option<Replay>,
    notes: Vec<String>,
    root: Option<PathBuf>,
    /// When a large snapshot was published last, and how long that took.
    published: Mutex<Option<(Instant, Duration)>>,
    /// Whether anything was committed or removed since.
    is_behind: AtomicBool,
    _lock: Option<FolderLock>,
}

impl Ledger {
    /// An in-memory ledger. `lower` are read-only tiers.
    pub fn in_memory(lower: Vec<Box<dyn ConfigStore>>) -> Self {
        Self {
            cache: TieredCache::new(lower),
            log: None,
            log_bytes: None,
            read_log: None,
            notes: Vec::new(),
            root: None,
            published: Mutex::default(),
            is_behind: AtomicBool::new(false),
            _lock: None,
        }
    }

    /// Opens a cache folder, creating it if necessary. `lower` are read-only tiers below sled.
    ///
    /// sled is compared with what the sample log states; if they differ, the log is right, unless it is damaged: then a
    /// sled that was closed cleanly, or else the published snapshot, restores what the log lost. No decision in the log
    /// is ever given up for a store that lacks it, unless the log itself states that sled's entries are the last ones.
    ///
    /// # Errors
    /// If another process holds the folder's lock, or one of its stores cannot be read or written.
    pub fn open(root: &Path, lower: Vec<Box<dyn ConfigStore>>) -> Result<Self, LedgerError> {
        Self::open_with(root, lower, false)
    }

    /// Opens a cache folder for look-ups. If another process holds its lock, or it cannot be written, the decisions are
    /// read from the sample log alone, which needs neither lock nor writing; a note says so. A missing folder is empty.
    /// The path may also be a snapshot.
    ///
    /// # Errors
    /// If a file that a look-up needs cannot be read, or is of a later version.
    pub fn open_for_reading(root: &Path, lower: impl Fn() -> Vec<Box<dyn ConfigStore>>) -> Result<Self, LedgerError> {
        let log_path = root.join(LOG_FILE);
        if !root.exists() {
            return Ok(Self::in_memory(lower()));
        }
        if !root.is_dir() {
            let mut tiers = vec![SnapshotStore::at(root, Mapping::Never)?];
            tiers.extend(lower());
            return Ok(Self::in_memory(tiers));
        }
        let why = match Self::open(root, lower()) {
            Err(LedgerError::Store(error)) if matches!(error.kind(), StoreErrorKind::Locked | StoreErrorKind::Io) => {
                error.to_string()
            }
            Err(LedgerError::Log(error @ LogError::Write { .. })) => error.to_string(),
            other => return other,
        };
        let replay = SampleLog::read(&log_path)?;
        let mut entries = BTreeMap::new();
        for (key, value) in &replay.entries {
            if let (Some(key), Ok(entry)) = (CacheKey::from_text(key), serde_json::from_str::<Entry>(value)) {
                entries.insert(key, Arc::new(entry));
            }
        }
        let mut notes = vec![format!("decisions are read from the sample log: {why}")];
        if !replay.is_consistent() {
            notes.push(format!("`{}` is damaged: some decisions are missing", log_path.display()));
        }
        let mut below: Vec<Box<dyn ConfigStore>> = vec![Box::new(ReadLog { entries })];
        below.extend(lower());
        Ok(Self {
            cache: TieredCache::new(below),
            log: None,
            log_bytes: None,
            read_log: Some(replay),
            notes,
            root: Some(root.to_owned()),
            published: Mutex::default(),
            is_behind: AtomicBool::new(false),
            _lock: None,
        })
    }

    /// Rebuilds the sled cache of a folder from its sample log; the old one is set aside.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn rebuild(root: &Path) -> Result<Self, LedgerError> {
        Self::open_with(root, Vec::new(), true)
    }

    fn open_with(root: &Path, lower: Vec<Box<dyn ConfigStore>>, rebuild: bool) -> Result<Self, LedgerError> {
        let lock = FolderLock::acquire(root)?;
        let RepairedStores { mut log, sled, mut notes } = repair(root, &lock, rebuild)?;
        // sled is open, so no recorded length of the log is in force until it is closed
        if let Err(error) = log.compact_if_worth() {
            notes.push(format!("the sample log could not be compacted: {error}"));
        }
        let log_bytes = Some(sled.log_bytes());
        let mut below: Vec<Box<dyn ConfigStore>> = vec![Box::new(sled)];
        below.extend(lower);
        let root = Some(root.to_owned());
        Ok(Self {
            cache: TieredCache::new(below),
            log: Some(Mutex::new(log)),
            log_bytes,
            read_log: None,
            notes,
            root,
            published: Mutex::default(),
            // a killed run may have committed decisions that it could not publish
            is_behind: AtomicBool::new(true),
            _lock: Some(lock),
        })
    }

    /// The tiers.
    pub fn cache(&self) -> &TieredCache {
        &self.cache
    }

    /// The tiers, to say what look-ups are for.
    pub fn cache_mut(&mut self) -> &mut TieredCache {
        &mut self.cache
    }

    /// The folder; `None` in memory.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Whether samples are kept: not in memory, and not in a read-only folder.
    pub fn keeps_samples(&self) -> bool {
        self.log.is_some()
    }

    /// Problems found at opening and how they were repaired, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// A job's records in the sample log.
    ///
    /// # Errors
    /// If the sample log cannot be read.
    pub fn history(&self, job: Digest) -> Result<JobHistory, LedgerError> {
        match (self.log(), &self.read_log, &self.root) {
            (Some(log), ..) => Ok(log.history(job)?),
            (None, Some(log), Some(root)) => Ok(log.history_of(&root.join(LOG_FILE), job)?),
            _ => Ok(JobHistory::default()),
        }
    }

    fn log(&self) -> Option<MutexGuard<'_, SampleLog>> {
        // a panic elsewhere leaves at worst a half-written frame, which the log itself detects
        self.log.as_ref().map(|log| log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Appends a job, a round or a failure.
    pub(crate) fn append(&self, record: &LogRecord) -> Result<(), LedgerError> {
        Ok(self.log().map_or(Ok(()), |mut log| log.append(record))?)
    }

    /// Commits an entry: sample log, synced; then the caches.
    ///
    /// # Errors
    /// If a store cannot be written. What is in the sample log stays committed.
    pub fn commit(&self, job: Option<Digest>, key: &CacheKey, entry: &Arc<Entry>) -> Result<(), LedgerError> {
        // held over both, so that the last commit of a key is the last in the log and in the cache
        let mut log = self.log();
        if let Some(log) = &mut log {
            log.commit(job, &key.to_text(), &entry.to_text())?;
        }
        self.cache.put(key, entry)?;
        self.is_behind.store(true, Ordering::Release);
        Ok(())
    }

    /// Commits many entries that no job of this folder decided: sample log, synced once; then the caches.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_all(&self, entries: &[(CacheKey, Arc<Entry>)]) -> Result<(), LedgerError> {
        let mut log = self.log();
        if let Some(log) = &mut log {
            let texts: Vec<_> = entries.iter().map(|(key, entry)| (key.to_text(), entry.to_text())).collect();
            log.commit_all(texts.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
        }
        self.cache.put_all(entries)?;
        self.is_behind.store(true, Ordering::Release);
        Ok(())
    }

    /// Commits the entries that another tool decided, unless the existing one was decided later; returns how many were
    /// committed.
    ///
    /// # Errors
    /// As [`commit`](Self::commit), or if a tier cannot be read.
    pub fn import(&self, entries: &[(CacheKey, Arc<Entry>)]) -> Result<usize, LedgerError> {
        let decided_at = |entry: &Entry| entry.provenance.as_ref().map_or(0, |provenance| provenance.decided_at);
        self.commit_where(entries, |known, new| decided_at(known) <= decided_at(new))
    }

    /// Commits the entries that differ from the existing ones; returns how many.
    ///
    /// # Errors
    /// As [`import`](Self::import).
    pub fn commit_changes(&self, entries: &[(CacheKey, Arc<Entry>)]) -> Result<usize, LedgerError> {
        self.commit_where(entries, |_, _| true)
    }

    fn commit_where(
        &self,
        entries: &[(CacheKey, Arc<Entry>)],
        replaces: impl Fn(&Entry, &Entry) -> bool,
    ) -> Result<usize, LedgerError> {
        let mut taken: BTreeMap<CacheKey, Arc<Entry>> = BTreeMap::new();
        for (key, entry) in entries {
            let known = match taken.get(key) {
                Some(taken) => Some(Arc::clone(taken)),
                None => self.cache.entry(key)?.filter(|(_, tier)| *tier != Tier::Shipped).map(|(known, _)| known),
            };
            if known.is_none_or(|known| known != *entry && replaces(&known, entry)) {
                taken.insert(key.clone(), Arc::clone(entry));
            }
        }
        let taken: Vec<_> = taken.into_iter().collect();
        self.commit_all(&taken)?;
        Ok(taken.len())
    }

    /// Publishes this folder's own entries as its snapshot, for all look-ups; returns its digest, or `None` if there is
    /// no folder that this process may write.
    ///
    /// # Errors
    /// If an entry cannot be read or the snapshot cannot be written; then the old one is intact.
    pub fn publish(&self) -> Result<Option<Digest>, LedgerError> {
        let (Some(root), Some(_)) = (&self.root, &self._lock) else { return Ok(None) };
        // one at a time, so that the last one written has the most entries
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        // before the entries are read: what is committed in the meantime belongs to the next snapshot
        self.is_behind.store(false, Ordering::Release);
        let entries = self.own_entries();
        let is_large = entries.as_ref().is_ok_and(|entries| entries.len() > SMALL);
        let digest = entries.and_then(|entries| Ok(write_snapshot(&root.join(SNAPSHOT_FILE), &entries)?));
        self.is_behind.fetch_or(digest.is_err(), Ordering::Release);
        *published = is_large.then(|| (Instant::now(), start.elapsed()));
        digest.map(Some)
    }

    /// The same after a decision. A large cache is written if the last write took less than a tenth of the time since,
    /// and at the end of the run.
    pub(crate) fn publish_if_due(&self) -> Result<(), LedgerError> {
        let published = *self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = published.is_none_or(|(at, cost)| at.elapsed() >= cost * 10);
        if is_due && self.is_behind.load(Ordering::Acquire) { self.publish().map(drop) } else { Ok(()) }
    }

    /// Rewrites the sample log without superseded jobs, however little that saves; returns the bytes saved.
    ///
    /// # Errors
    /// If the log cannot be rewritten; then the old one is intact.
    pub fn compact(&self) -> Result<u64, LedgerError> {
        Ok(self.log().map_or(Ok(0), |mut log| log.compact())?)
    }

    /// The entries of this folder, without the shipped tiers.
    ///
    /// # Errors
    /// If a tier cannot be read.
    pub fn own_entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, LedgerError> {
        // a folder's snapshot tier is what others published; without a folder it is the only one
        let is_own = |tier| tier != Tier::Shipped && (tier != Tier::Snapshot || self.root.is_none());
        let entries = self.cache.entries()?.into_iter();
        Ok(entries.filter(|(.., tier)| is_own(*tier)).map(|(key, entry, _)| (key, entry)).collect())
    }

    /// Removes entries in the same way; returns how many existed.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn remove_all(&self, keys: &[CacheKey]) -> Result<usize, LedgerError> {
        let mut log = self.log();
        if let Some(log) = &mut log {
            let texts: Vec<String> = keys.iter().map(CacheKey::to_text).collect();
            log.remove_all(texts.iter().map(String::as_str))?;
        }
        let removed = self.cache.remove_all(keys)?;
        self.is_behind.fetch_or(removed > 0, Ordering::Release);
        Ok(removed)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if let (Some(log), Some(bytes)) = (self.log(), &self.log_bytes) {
            bytes.store(log.bytes(), Ordering::Release);
        }
    }
}

/// The decisions of a sample log as a tier.
struct ReadLog {
    entries: BTreeMap<CacheKey, Arc<Entry>>,
}

impl ConfigStore for ReadLog {
    fn tier(&self) -> Tier {
        Tier::SampleLog
    }

    fn get(&self, key: KeyRef<'_>) -> Result<Option<Arc<Entry>>, StoreError> {
        Ok(by_key(&self.entries, key).cloned())
    }

    fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        Ok(self.entries.iter().map(|(key, entry)| (key.clone(), Arc::clone(entry))).collect())
    }
}
