//! A snapshot as a cache tier.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reader::{Snapshot, SnapshotRecord};
use crate::cache::entry::Entry;
use crate::cache::error::StoreError;
use crate::cache::key::{CacheKey, KeyRef};
use crate::cache::store::{ConfigStore, Tier};
use crate::mapped_file::Mapping;

/// Name of the snapshot in a cache folder. Readers look under this name in every version of the format: the file states
/// its version, so that a program of another version can say what to do, and never finds an orphaned file.
pub const SNAPSHOT_FILE: &str = "best-v1.snapshot";

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

    /// The tier of the snapshot at a path. If there is none yet, it is empty until it is
    /// [refreshed](ConfigStore::refreshed).
    ///
    /// # Errors
    /// As [`Snapshot::open`], except for a file that does not exist.
    pub fn at(path: &Path, mapping: Mapping) -> Result<Box<dyn ConfigStore>, StoreError> {
        match Snapshot::open(path, mapping) {
            Ok(snapshot) => Ok(Box::new(Self::new(snapshot))),
            Err(error) if error.is_not_found() => Ok(Box::new(Unpublished { path: path.to_owned(), mapping })),
            Err(error) => Err(error),
        }
    }

    /// The snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn entry(&self, record: SnapshotRecord<'_>) -> Result<(CacheKey, Arc<Entry>), StoreError> {
        self.snapshot.row(&record)?.to_pair()
    }
}

impl ConfigStore for SnapshotStore {
    fn tier(&self) -> Tier {
        Tier::Snapshot
    }

    fn get(&self, key: KeyRef<'_>) -> Result<Option<Arc<Entry>>, StoreError> {
        let Some(device) = self.snapshot.device(key.device) else { return Ok(None) };
        let record = self.snapshot.get(device, key.op_id, key.call_key, key.direction)?;
        record.map(|record| self.snapshot.entry(&record)).transpose()
    }

    fn of_call(&self, op_id: &str, call_key: &str) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        self.snapshot.of_call(op_id, call_key)?.into_iter().map(|record| self.entry(record)).collect()
    }

    fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        self.snapshot.records().map(|record| self.entry(record?)).collect()
    }

    fn keys(&self) -> Result<Vec<CacheKey>, StoreError> {
        self.snapshot.records().map(|record| Ok(record?.key.to_key())).collect()
    }

    fn refreshed(&self) -> Result<Option<Box<dyn ConfigStore>>, StoreError> {
        Ok(self.snapshot.refreshed()?.map(|snapshot| Box::new(Self::new(snapshot)) as Box<dyn ConfigStore>))
    }
}

/// The tier of a snapshot that is not published yet.
struct Unpublished {
    path: PathBuf,
    mapping: Mapping,
}

impl ConfigStore for Unpublished {
    fn tier(&self) -> Tier {
        Tier::Snapshot
    }

    fn get(&self, _: KeyRef<'_>) -> Result<Option<Arc<Entry>>, StoreError> {
        Ok(None)
    }

    fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        Ok(Vec::new())
    }

    fn refreshed(&self) -> Result<Option<Box<dyn ConfigStore>>, StoreError> {
        match Snapshot::open(&self.path, self.mapping) {
            Ok(snapshot) => Ok(Some(Box::new(SnapshotStore::new(snapshot)))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
