//! The tiers together: overlay, memory, then the stores below; hits below are promoted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::{CacheKey, ConfigStore, Entry, MemoryStore, SNAPSHOT_FILE, SnapshotStore, StoreError, Tier};
use crate::batch::{preference, to_words};
use crate::call::{Direction, split_op_id};
use crate::device::{DeviceFingerprint, DeviceMatch, MatchMode};
use crate::mapped_file::Mapping;

/// Why a hit is to be taken with care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlagKind {
    /// Same device, other driver, plugin or flags.
    StaleEnvironment,
    /// Another device, accepted by the match mode.
    OtherDevice,
    /// The same call, mapped by other `vmap`s or by none.
    OtherBatch,
}

/// A flag with its detail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flag {
    /// What kind.
    pub kind: FlagKind,
    /// What differs.
    pub detail: String,
}

/// An entry that applies.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Its key; the device is the one that it was tuned on.
    pub key: CacheKey,
    /// The entry.
    pub entry: Arc<Entry>,
    /// Where it was found.
    pub tier: Tier,
    /// What to know before using it.
    pub flags: Vec<Flag>,
}

/// The answer to a look-up.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    /// An entry applies.
    Hit(Box<Hit>),
    /// None does; one line says why.
    Miss(String),
}

type Layer = (u64, BTreeMap<CacheKey, Arc<Entry>>);

/// All tiers of one process, asked from the fastest to the slowest.
pub struct TieredCache {
    overlays: Arc<Mutex<(u64, Vec<Layer>)>>,
    memory: MemoryStore,
    below: Vec<Box<dyn ConfigStore>>,
}

/// Keeps an overlay in force until it is dropped. Guards may be dropped in any order.
#[must_use = "the overlay ends when the guard is dropped"]
pub struct OverlayGuard {
    overlays: Arc<Mutex<(u64, Vec<Layer>)>>,
    id: u64,
}

impl Drop for OverlayGuard {
    fn drop(&mut self) {
        let mut overlays = self.overlays.lock().unwrap_or_else(PoisonError::into_inner);
        overlays.1.retain(|(id, _)| *id != self.id);
    }
}

impl TieredCache {
    /// Tiers below the memory, fastest first.
    pub fn new(below: Vec<Box<dyn ConfigStore>>) -> Self {
        Self { overlays: Arc::default(), memory: MemoryStore::default(), below }
    }

    /// What programs look configs up in at run time: the snapshot that was published in a cache folder, and `lower` below
    /// it. Takes no lock and writes nothing: any number of processes do so beside a tuner. What is published later is
    /// seen after a [`refresh`](Self::refresh).
    ///
    /// A mapped snapshot must be replaced by a rename, as a tuner, `cache snapshot` and `cache pull` do, and never by a copy
    /// over it ([`Mapping::WhereLocal`] says why). Where you cannot be sure of that, open it with [`Mapping::Never`].
    ///
    /// # Errors
    /// Where there is a snapshot that cannot be used.
    pub fn published(folder: &Path, mapping: Mapping, lower: Vec<Box<dyn ConfigStore>>) -> Result<Self, StoreError> {
        let mut below = vec![SnapshotStore::at(&folder.join(SNAPSHOT_FILE), mapping)?];
        below.extend(lower);
        Ok(Self::new(below))
    }

    /// Takes what other processes published since; `true` where there is something new. Overlays stay in force, and so
    /// does what was put into memory alone.
    ///
    /// # Errors
    /// Where what was published cannot be used: then everything stays as it was.
    pub fn refresh(&mut self) -> Result<bool, StoreError> {
        let newer: Vec<_> = self.below.iter().map(|store| store.refreshed()).collect::<Result<_, _>>()?;
        if newer.iter().all(Option::is_none) {
            return Ok(false);
        }
        for (key, entry) in self.memory.entries()? {
            // what memory holds by promotion is equal to what is below
            if self.below.iter().any(|store| matches!(store.get(&key), Ok(Some(below)) if below == entry)) {
                self.memory.remove(&key)?;
            }
        }
        for (store, newer) in self.below.iter_mut().zip(newer) {
            if let Some(newer) = newer {
                *store = newer;
            }
        }
        Ok(true)
    }

    /// The tier in memory.
    pub fn memory(&self) -> &MemoryStore {
        &self.memory
    }

    /// Puts entries above every tier until the guard is dropped; a later overlay hides an earlier one.
    pub fn overlay(&self, entries: impl IntoIterator<Item = (CacheKey, Arc<Entry>)>) -> OverlayGuard {
        let mut overlays = self.overlays.lock().unwrap_or_else(PoisonError::into_inner);
        overlays.0 += 1;
        let id = overlays.0;
        overlays.1.push((id, entries.into_iter().collect()));
        OverlayGuard { overlays: Arc::clone(&self.overlays), id }
    }

    /// The entry for a call on this device, or in one line why there is none.
    ///
    /// This device's own entry wins over another device's in whatever tier. Without a `direction`, an entry tuned
    /// forward with its vector-Jacobian product wins over a forward one. Where the call is not known under the `vmap`s
    /// that its key names, or under none, it is taken as it is known: first unmapped, then with the most calls.
    pub fn lookup(
        &self,
        device: &DeviceFingerprint,
        op_id: &str,
        call_key: &str,
        direction: Option<Direction>,
        mode: MatchMode,
    ) -> Result<Lookup, StoreError> {
        Ok(match self.find(device, op_id, call_key, direction, mode)? {
            Some(hit) => Lookup::Hit(Box::new(hit)),
            None => Lookup::Miss(self.explain_miss(device, op_id, call_key, direction, mode)?),
        })
    }

    /// The entry for a call on this device, chosen as [`lookup`](Self::lookup) does; a miss costs no search for its reason.
    pub fn find(
        &self,
        device: &DeviceFingerprint,
        op_id: &str,
        call_key: &str,
        direction: Option<Direction>,
        mode: MatchMode,
    ) -> Result<Option<Hit>, StoreError> {
        let directions = wanted(direction);
        for direction in directions {
            let key = CacheKey {
                op_id: op_id.to_owned(),
                call_key: call_key.to_owned(),
                direction: *direction,
                device: device.identity.clone(),
            };
            if let Some((entry, tier)) = self.get(&key)? {
                return Ok(Some(flagged(device, key, entry, tier, None)));
            }
        }
        let mut choices = Vec::new();
        for (key, entry, tier) in self.of_call(op_id, call_key)? {
            if !directions.contains(&key.direction) {
                continue;
            }
            let flag = match mode.compare(&device.identity, &key.device) {
                DeviceMatch::Same => None,
                DeviceMatch::Flagged(detail) => Some(Flag { kind: FlagKind::OtherDevice, detail }),
                DeviceMatch::Miss(_) => continue,
            };
            let rank = (flag.is_some(), key.call_key != call_key, preference(&key.call_key));
            choices.push((rank, key, entry, tier, flag));
        }
        // of equals the first
        Ok(choices.into_iter().min_by_key(|(rank, ..)| *rank).map(|(_, key, entry, tier, flag)| {
            let other_batch = (key.call_key != call_key).then(|| Flag {
                kind: FlagKind::OtherBatch,
                detail: format!("measured {}, asked for {}", to_words(&key.call_key), to_words(call_key)),
            });
            flagged(device, key, entry, tier, flag.into_iter().chain(other_batch))
        }))
    }

    /// Why [`find`](Self::find) finds nothing, in one line.
    pub fn explain_miss(
        &self,
        device: &DeviceFingerprint,
        op_id: &str,
        call_key: &str,
        direction: Option<Direction>,
        mode: MatchMode,
    ) -> Result<String, StoreError> {
        let others = self.of_call(op_id, call_key)?;
        let reason = others.iter().find_map(|(key, ..)| match mode.compare(&device.identity, &key.device) {
            _ if !wanted(direction).contains(&key.direction) => Some(format!("tuned {} only", key.direction)),
            DeviceMatch::Miss(reason) => Some(reason),
            DeviceMatch::Same | DeviceMatch::Flagged(_) => None,
        });
        match reason {
            Some(reason) => Ok(format!("`{op_id}:{call_key}` is cached, but not for this device: {reason}")),
            None => self.explain_absence(device, op_id, call_key),
        }
    }

    /// The entry of exactly this key and where it is.
    pub fn entry(&self, key: &CacheKey) -> Result<Option<(Arc<Entry>, Tier)>, StoreError> {
        self.get(key)
    }

    /// Stores an entry in memory and in every tier below that can be written, the lowest first.
    pub fn put(&self, key: &CacheKey, entry: &Arc<Entry>) -> Result<(), StoreError> {
        self.put_all(&[(key.clone(), Arc::clone(entry))])
    }

    /// Stores many entries likewise.
    pub fn put_all(&self, entries: &[(CacheKey, Arc<Entry>)]) -> Result<(), StoreError> {
        for store in self.below.iter().rev() {
            match store.put_all(entries) {
                Ok(()) | Err(StoreError::ReadOnly(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.memory.put_all(entries)
    }

    /// Removes an entry from memory and from every tier below that can be written.
    pub fn remove(&self, key: &CacheKey) -> Result<bool, StoreError> {
        Ok(self.remove_all(std::slice::from_ref(key))? > 0)
    }

    /// Removes many entries likewise; how many the tier that had the most of them had.
    pub fn remove_all(&self, keys: &[CacheKey]) -> Result<usize, StoreError> {
        let mut removed = self.memory.remove_all(keys)?;
        for store in &self.below {
            match store.remove_all(keys) {
                Ok(found) => removed = removed.max(found),
                Err(StoreError::ReadOnly(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Every entry in force, each key once, from the fastest tier that has it.
    pub fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>, Tier)>, StoreError> {
        self.merged(|store| store.entries(), |_| true)
    }

    fn of_call(&self, op_id: &str, call_key: &str) -> Result<Vec<(CacheKey, Arc<Entry>, Tier)>, StoreError> {
        let mut found = self.merged(|store| store.of_call(op_id, call_key), |key| key.is_of_call(op_id, call_key))?;
        // newest first, then by key: the same answer in every process
        let decided = |entry: &Entry| entry.provenance.as_ref().map_or(0, |provenance| provenance.decided_at);
        found.sort_by(|a, b| decided(&b.1).cmp(&decided(&a.1)).then_with(|| a.0.cmp(&b.0)));
        found.sort_by_key(|(key, ..)| key.direction != Direction::ForwardVjp);
        Ok(found)
    }

    fn get(&self, key: &CacheKey) -> Result<Option<(Arc<Entry>, Tier)>, StoreError> {
        let overlays = self.overlays.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = overlays.1.iter().rev().find_map(|(_, entries)| entries.get(key)) {
            return Ok(Some((Arc::clone(entry), Tier::Overlay)));
        }
        drop(overlays);
        if let Some(entry) = self.memory.get(key)? {
            return Ok(Some((entry, Tier::Memory)));
        }
        for store in &self.below {
            if let Some(entry) = store.get(key)? {
                self.memory.put(key, &entry)?;
                return Ok(Some((entry, store.tier())));
            }
        }
        Ok(None)
    }

    fn merged(
        &self,
        read: impl Fn(&dyn ConfigStore) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError>,
        wanted: impl Fn(&CacheKey) -> bool,
    ) -> Result<Vec<(CacheKey, Arc<Entry>, Tier)>, StoreError> {
        let mut found: BTreeMap<CacheKey, (Arc<Entry>, Tier)> = BTreeMap::new();
        {
            let overlays = self.overlays.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, entry) in overlays.1.iter().rev().flat_map(|(_, entries)| entries) {
                if wanted(key) {
                    found.entry(key.clone()).or_insert_with(|| (Arc::clone(entry), Tier::Overlay));
                }
            }
        }
        let in_memory: BTreeMap<_, _> = read(&self.memory)?.into_iter().collect();
        for store in &self.below {
            for (key, entry) in read(store.as_ref())? {
                // an entry that memory holds by promotion is listed as the tier that keeps it; another one hides it
                if in_memory.get(&key).is_none_or(|known| *known == entry) {
                    found.entry(key).or_insert((entry, store.tier()));
                }
            }
        }
        for (key, entry) in in_memory {
            found.entry(key).or_insert((entry, Tier::Memory));
        }
        Ok(found.into_iter().map(|(key, (entry, tier))| (key, entry, tier)).collect())
    }

    /// Every key in force.
    fn keys(&self) -> Result<BTreeSet<CacheKey>, StoreError> {
        let overlays = self.overlays.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys: BTreeSet<CacheKey> = overlays.1.iter().flat_map(|(_, entries)| entries.keys()).cloned().collect();
        drop(overlays);
        keys.extend(self.memory.keys()?);
        for store in &self.below {
            keys.extend(store.keys()?);
        }
        Ok(keys)
    }

    fn explain_absence(&self, device: &DeviceFingerprint, op_id: &str, call_key: &str) -> Result<String, StoreError> {
        let name = split_op_id(op_id).0;
        let (mut same_op, mut versions) = (0, Vec::new());
        for key in self.keys()? {
            if key.op_id == op_id && key.device == device.identity {
                same_op += 1;
            } else if key.op_id != op_id && split_op_id(&key.op_id).0 == name {
                versions.push(key.op_id);
            }
        }
        versions.dedup();
        Ok(match (same_op, versions.first()) {
            (0, None) => format!("nothing is cached for `{op_id}`"),
            (0, Some(_)) => format!("`{op_id}` is cached in other versions only: {}", versions.join(", ")),
            (1, _) => format!("`{op_id}` is cached for another call key, not for `{call_key}`"),
            (count, _) => format!("`{op_id}` is cached for {count} other call keys, not for `{call_key}`"),
        })
    }
}

/// The directions that an answer may have, the preferred one first.
fn wanted(direction: Option<Direction>) -> &'static [Direction] {
    match direction {
        Some(Direction::Forward) => &[Direction::Forward],
        Some(Direction::ForwardVjp) => &[Direction::ForwardVjp],
        None => &[Direction::ForwardVjp, Direction::Forward],
    }
}

fn flagged(
    device: &DeviceFingerprint,
    key: CacheKey,
    entry: Arc<Entry>,
    tier: Tier,
    flags: impl IntoIterator<Item = Flag>,
) -> Hit {
    let mut flags: Vec<Flag> = flags.into_iter().collect();
    if let Some(provenance) = &entry.provenance {
        let differences = device.environment.differences(&provenance.environment);
        if !differences.is_empty() {
            flags.push(Flag { kind: FlagKind::StaleEnvironment, detail: differences.join("; ") });
        }
    }
    Hit { key, entry, tier, flags }
}
