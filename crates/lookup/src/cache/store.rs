//! The interface of one cache tier.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::error::StoreError;
use super::key::{CacheKey, KeyRef};

/// Where a hit came from, fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Tier {
    /// An [overlay](super::OverlayGuard) in force.
    Overlay,
    /// This process's memory.
    Memory,
    /// The sled database of a cache folder.
    Sled,
    /// The sample log's decisions, if sled cannot be opened.
    SampleLog,
    /// A published snapshot.
    Snapshot,
    /// Files that are shipped.
    Shipped,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Overlay => "overlay",
            Self::Memory => "memory",
            Self::Sled => "sled",
            Self::SampleLog => "sample-log",
            Self::Snapshot => "snapshot",
            Self::Shipped => "shipped",
        })
    }
}

/// One cache tier.
pub trait ConfigStore: Send + Sync {
    /// Which tier it is.
    fn tier(&self) -> Tier;

    /// The entry of exactly this key.
    ///
    /// # Errors
    /// If the tier cannot be read, or the entry is damaged.
    fn get(&self, key: KeyRef<'_>) -> Result<Option<Arc<Entry>>, StoreError>;

    /// Every entry of an operation and call, for any device, direction and `vmap`s around it, in the keys' order.
    ///
    /// # Errors
    /// If the tier cannot be read, or one of the entries is damaged.
    fn of_call(&self, op_id: &str, call_key: &str) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        let mut entries = self.entries()?;
        entries.retain(|(key, _)| key.is_of_call(op_id, call_key));
        Ok(entries)
    }

    /// Every entry, in the keys' order.
    ///
    /// # Errors
    /// If the tier cannot be read, or an entry is damaged.
    fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError>;

    /// The key of every entry, in order.
    ///
    /// # Errors
    /// If the tier cannot be read.
    fn keys(&self) -> Result<Vec<CacheKey>, StoreError> {
        Ok(self.entries()?.into_iter().map(|(key, _)| key).collect())
    }

    /// Stores an entry; if the tier is on disk, the entry is durable when this returns.
    ///
    /// # Errors
    /// If the tier is read-only, as most are, or cannot be written.
    fn put(&self, key: &CacheKey, entry: &Arc<Entry>) -> Result<(), StoreError> {
        let _ = (key, entry);
        Err(StoreError::read_only(self.tier()))
    }

    /// Removes an entry; `false` if there was none.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn remove(&self, key: &CacheKey) -> Result<bool, StoreError> {
        let _ = key;
        Err(StoreError::read_only(self.tier()))
    }

    /// Stores many entries; if the tier is on disk, they are durable when this returns.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn put_all(&self, entries: &[(CacheKey, Arc<Entry>)]) -> Result<(), StoreError> {
        entries.iter().try_for_each(|(key, entry)| self.put(key, entry))
    }

    /// Removes many entries; returns how many existed.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn remove_all(&self, keys: &[CacheKey]) -> Result<usize, StoreError> {
        keys.iter().try_fold(0, |removed, key| Ok(removed + usize::from(self.remove(key)?)))
    }

    /// The current state of the tier, if another process changed it since it was opened. Most tiers have one owner and
    /// never change this way.
    ///
    /// # Errors
    /// If it cannot be opened again; the open one stays valid.
    fn refreshed(&self) -> Result<Option<Box<dyn ConfigStore>>, StoreError> {
        Ok(None)
    }
}
