//! A snapshot as a cache tier.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reader::{Snapshot, SnapshotRecord};
use crate::cache::{CacheKey, ConfigStore, Entry, StoreError, Tier};
use crate::mapped_file::Mapping;

/// The tier of a snapshot; never written.
#[derive(Debug)]
pub struct SnapshotStore {
    snapshot: Snapshot,
}

impl SnapshotStore {
    /// The tier of an open snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self { snapshot }
    }

    /// The tier of the snapshot at a path. Where there is none yet it is empty, and shows the first one when it is
    /// [refreshed](ConfigStore::refreshed).
    ///
    /// # Errors
    /// As [`Snapshot::open`], but for a file that is not there.
    pub fn at(path: &Path, mapping: Mapping) -> Result<Box<dyn ConfigStore>, StoreError> {
        match Snapshot::open(path, mapping) {
            Ok(snapshot) => Ok(Box::new(Self::new(snapshot))),
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(Box::new(Unpublished { path: path.to_owned(), mapping }))
            }
            Err(error) => Err(error),
        }
    }

    /// The snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn entry(&self, record: SnapshotRecord<'_>) -> Result<(CacheKey, Arc<Entry>), StoreError> {
        let key = record.to_key();
        self.snapshot.origin(&record)?;
        match record.to_entry() {
            Some(entry) => Ok((key, Arc::new(entry))),
            None => {
                let what = format!("the entry of `{}:{}` is no config with its provenance", key.op_id, key.call_key);
                Err(StoreError::Snapshot { path: self.snapshot.path().to_owned(), what })
            }
        }
    }
}

impl ConfigStore for SnapshotStore {
    fn tier(&self) -> Tier {
        Tier::Snapshot
    }

    fn get(&self, key: &CacheKey) -> Result<Option<Arc<Entry>>, StoreError> {
        let Some(device) = self.snapshot.device(&key.device) else { return Ok(None) };
        let record = self.snapshot.get(device, &key.op_id, &key.call_key, key.direction)?;
        Ok(record.map(|record| self.entry(record)).transpose()?.map(|(_, entry)| entry))
    }

    fn of_call(&self, op_id: &str, call_key: &str) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        let mut entries: Vec<_> = self
            .snapshot
            .of_call(op_id, call_key)?
            .into_iter()
            .map(|record| self.entry(record))
            .collect::<Result<_, _>>()?;
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        self.snapshot.records().map(|record| self.entry(record?)).collect()
    }

    fn keys(&self) -> Result<Vec<CacheKey>, StoreError> {
        self.snapshot.records().map(|record| Ok(record?.to_key())).collect()
    }

    fn put(&self, _: &CacheKey, _: &Arc<Entry>) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly("snapshot"))
    }

    fn remove(&self, _: &CacheKey) -> Result<bool, StoreError> {
        Err(StoreError::ReadOnly("snapshot"))
    }

    fn refreshed(&self) -> Result<Option<Box<dyn ConfigStore>>, StoreError> {
        Ok(self.snapshot.refreshed()?.map(|snapshot| Box::new(Self::new(snapshot)) as Box<dyn ConfigStore>))
    }
}

/// The tier of a snapshot that nobody published yet.
struct Unpublished {
    path: PathBuf,
    mapping: Mapping,
}

impl ConfigStore for Unpublished {
    fn tier(&self) -> Tier {
        Tier::Snapshot
    }

    fn get(&self, _: &CacheKey) -> Result<Option<Arc<Entry>>, StoreError> {
        Ok(None)
    }

    fn of_call(&self, _: &str, _: &str) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        Ok(Vec::new())
    }

    fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        Ok(Vec::new())
    }

    fn put(&self, _: &CacheKey, _: &Arc<Entry>) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly("snapshot"))
    }

    fn remove(&self, _: &CacheKey) -> Result<bool, StoreError> {
        Err(StoreError::ReadOnly("snapshot"))
    }

    fn refreshed(&self) -> Result<Option<Box<dyn ConfigStore>>, StoreError> {
        let is_there = self.path.try_exists().map_err(StoreError::io("look at", &self.path))?;
        if is_there { SnapshotStore::at(&self.path, self.mapping).map(Some) } else { Ok(None) }
    }
}
