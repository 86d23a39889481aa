//! The tier in this process's memory.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::{CacheKey, ConfigStore, Entry, StoreError, Tier};

/// Entries in memory; shared freely between threads.
#[derive(Debug, Default)]
pub struct MemoryStore {
    entries: RwLock<BTreeMap<CacheKey, Arc<Entry>>>,
}

impl MemoryStore {
    fn read<T>(&self, look: impl FnOnce(&BTreeMap<CacheKey, Arc<Entry>>) -> T) -> T {
        // a panic elsewhere cannot leave a map half changed: every change is one call
        look(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut BTreeMap<CacheKey, Arc<Entry>>) -> T) -> T {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ConfigStore for MemoryStore {
    fn tier(&self) -> Tier {
        Tier::Memory
    }

    fn get(&self, key: &CacheKey) -> Result<Option<Arc<Entry>>, StoreError> {
        Ok(self.read(|entries| entries.get(key).cloned()))
    }

    fn of_call(&self, op_id: &str, call_key: &str) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        Ok(self.read(|entries| {
            let of_call = |key: &&CacheKey| key.op_id == op_id && key.call_key == call_key;
            let pairs = entries.iter().filter(|(key, _)| of_call(key));
            pairs.map(|(key, entry)| (key.clone(), Arc::clone(entry))).collect()
        }))
    }

    fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        Ok(self.read(|entries| entries.iter().map(|(key, entry)| (key.clone(), Arc::clone(entry))).collect()))
    }

    fn put(&self, key: &CacheKey, entry: &Arc<Entry>) -> Result<(), StoreError> {
        self.write(|entries| entries.insert(key.clone(), Arc::clone(entry)));
        Ok(())
    }

    fn remove(&self, key: &CacheKey) -> Result<bool, StoreError> {
        Ok(self.write(|entries| entries.remove(key).is_some()))
    }
}
