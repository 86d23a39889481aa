//! The tier in this process's memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use super::entry::Entry;
use super::error::StoreError;
use super::key::{CacheKey, KeyRef, hash_of_call};
use super::store::{ConfigStore, Tier};

type Pairs = Vec<(CacheKey, Arc<Entry>)>;
/// The entries by the hash of their call; those with the same hash are distinguished by their keys.
type ByCall = HashMap<u64, Pairs, BuildHasherDefault<Hashed>>;

/// A hasher for keys that already are hashes.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        // never called for hashes
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }
}

/// Entries in memory; shared freely between threads.
#[derive(Debug, Default)]
pub struct MemoryStore {
    entries: RwLock<ByCall>,
}

impl MemoryStore {
    fn read<T>(&self, look: impl FnOnce(&ByCall) -> T) -> T {
        // a panic elsewhere cannot leave a map half changed, because every change is one call
        look(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut ByCall) -> T) -> T {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner))
    }
}

fn sorted(mut pairs: Pairs) -> Pairs {
    pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    pairs
}

fn hash_of(key: &CacheKey) -> u64 {
    hash_of_call(&key.call.op_id, &key.call.call_key)
}

impl ConfigStore for MemoryStore {
    fn tier(&self) -> Tier {
        Tier::Memory
    }

    fn get(&self, key: KeyRef<'_>) -> Result<Option<Arc<Entry>>, StoreError> {
        let hash = hash_of_call(key.op_id, key.call_key);
        Ok(self.read(|entries| {
            let (_, entry) = entries.get(&hash)?.iter().find(|(known, _)| known.parts() == key)?;
            Some(Arc::clone(entry))
        }))
    }

    fn of_call(&self, op_id: &str, call_key: &str) -> Result<Pairs, StoreError> {
        let hash = hash_of_call(op_id, call_key);
        let found = self.read(|entries| entries.get(&hash).cloned()).unwrap_or_default();
        let of_call = |(key, _): &(CacheKey, _)| key.is_of_call(op_id, call_key);
        Ok(sorted(found.into_iter().filter(of_call).collect()))
    }

    fn entries(&self) -> Result<Pairs, StoreError> {
        Ok(sorted(self.read(|entries| entries.values().flatten().cloned().collect())))
    }

    fn put(&self, key: &CacheKey, entry: &Arc<Entry>) -> Result<(), StoreError> {
        self.write(|entries| {
            let pairs = entries.entry(hash_of(key)).or_default();
            match pairs.iter_mut().find(|(known, _)| known == key) {
                Some((_, known)) => *known = Arc::clone(entry),
                None => pairs.push((key.clone(), Arc::clone(entry))),
            }
        });
        Ok(())
    }

    fn remove(&self, key: &CacheKey) -> Result<bool, StoreError> {
        Ok(self.write(|entries| {
            let Some(pairs) = entries.get_mut(&hash_of(key)) else { return false };
            let before = pairs.len();
            pairs.retain(|(known, _)| known != key);
            let removed = pairs.len() < before;
            if pairs.is_empty() {
                entries.remove(&hash_of(key));
            }
            removed
        }))
    }
}
