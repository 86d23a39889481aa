//! A snapshot as a cache tier.

use std::sync::Arc;

use super::reader::{Snapshot, SnapshotRecord};
use crate::cache::{CacheKey, ConfigStore, Entry, StoreError, Tier};

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

    /// The snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn entry(&self, record: SnapshotRecord<'_>) -> Result<(CacheKey, Arc<Entry>), StoreError> {
        let key = record.to_key();
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
}
