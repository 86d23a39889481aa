//! The tiers together: overlay, memory, then the stores below; hits below are promoted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::entry::Entry;
use super::error::{StoreError, StoreErrorKind};
use super::hit::{Flag, FlagKind, Hit};
use super::key::{CacheKey, KeyRef};
use super::memory::MemoryStore;
use super::miss::MissReason;
use super::option_policy::refuse;
use super::overlay::{OverlayGuard, Overlays};
use super::snapshot::{SNAPSHOT_FILE, SnapshotStore};
use super::store::{ConfigStore, Tier};
use crate::batch::{preference, to_words};
use crate::call::{Call, Direction, split_op_id};
use crate::device::{DeviceFingerprint, DeviceMatch, MatchMode};
use crate::mapped_file::Mapping;
use crate::measured_by::CacheState;

/// The answer to a look-up.
#[derive(Debug, Clone)]
pub enum Lookup<'a> {
    /// An entry applies.
    Hit(Hit<'a>),
    /// None does; the reason is determined on request.
    Miss(Miss<'a>),
}

/// A look-up that found nothing. Finding the reason costs time only on request.
#[derive(Clone, Copy)]
pub struct Miss<'a> {
    cache: &'a TieredCache,
    question: LookupQuestion<'a>,
}

#[derive(Debug, Clone, Copy)]
struct LookupQuestion<'a> {
    device: &'a DeviceFingerprint,
    op_id: &'a str,
    call_key: &'a str,
    direction: Option<Direction>,
    mode: MatchMode,
}

impl Lookup<'_> {
    /// The owned hit, or why there is none.
    ///
    /// # Errors
    /// If a tier needed for the reason cannot be read.
    pub fn found(self) -> Result<Result<Hit<'static>, MissReason>, StoreError> {
        match self {
            Self::Hit(hit) => Ok(Ok(hit.into_owned())),
            Self::Miss(miss) => miss.reason().map(Err),
        }
    }
}

impl Miss<'_> {
    /// Why nothing applies; this reads what is cached for the call, or else every key.
    ///
    /// # Errors
    /// If a tier cannot be read.
    pub fn reason(&self) -> Result<MissReason, StoreError> {
        self.cache.explain(self.question)
    }
}

impl fmt::Debug for Miss<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Miss").field(&self.question).finish()
    }
}

impl fmt::Display for Miss<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Ok(reason) => reason.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

/// All tiers of one process, queried from the fastest to the slowest.
pub struct TieredCache {
    overlays: Overlays,
    memory: MemoryStore,
    below: Vec<Box<dyn ConfigStore>>,
    /// The state of the hardware's caches in the runs that the configs are for.
    cache_state: CacheState,
    finds_replayed: bool,
}

impl TieredCache {
    /// Tiers below the memory, fastest first.
    pub fn new(below: Vec<Box<dyn ConfigStore>>) -> Self {
        let (overlays, memory) = (Overlays::default(), MemoryStore::default());
        Self { overlays, memory, below, cache_state: CacheState::Warm, finds_replayed: false }
    }

    /// The look-ups of programs at run time: the snapshot that was published in a cache folder, and `lower` below it.
    /// Takes no lock and writes nothing, so any number of processes can use it beside a tuner. Later publications
    /// appear after a [`refresh`](Self::refresh).
    ///
    /// A mapped snapshot must be replaced by a rename, as a tuner, `cache snapshot` and `cache pull` do, and never by a
    /// copy over it ([`Mapping::WhereLocal`] says why). If you cannot be sure of that, open it with [`Mapping::Never`].
    ///
    /// # Errors
    /// If there is a snapshot that cannot be used. One of an earlier format counts as none, and a warning says what to
    /// do.
    pub fn published(folder: &Path, mapping: Mapping, lower: Vec<Box<dyn ConfigStore>>) -> Result<Self, StoreError> {
        let mut below = vec![SnapshotStore::at(&folder.join(SNAPSHOT_FILE), mapping)?];
        below.extend(lower);
        Ok(Self::new(below))
    }

    /// Loads what other processes have published since; `true` if there is something new. Overlays stay in force, and
    /// so do entries that were put only into memory.
    ///
    /// # Errors
    /// If what was published cannot be used; then everything stays as it was.
    pub fn refresh(&mut self) -> Result<bool, StoreError> {
        let newer: Vec<_> = self.below.iter().map(|store| store.refreshed()).collect::<Result<_, _>>()?;
        if newer.iter().all(Option::is_none) {
            return Ok(false);
        }
        for (key, entry) in self.memory.entries()? {
            // promoted entries in memory equal those below
            if self.below.iter().any(|store| matches!(store.get(key.parts()), Ok(Some(below)) if below == entry)) {
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

    /// Makes this a cache for runs that find the hardware's caches in this state, [`CacheState::Warm`] by default. A
    /// hit that was measured in another state is flagged.
    pub fn set_cache_state(&mut self, state: CacheState) {
        self.cache_state = state;
    }

    /// Whether look-ups also find entries that [replayed](Entry::is_replayed) samples decided; by default they do not.
    pub fn set_finds_replayed(&mut self, finds_replayed: bool) {
        self.finds_replayed = finds_replayed;
    }

    /// The tier in memory.
    pub fn memory(&self) -> &MemoryStore {
        &self.memory
    }

    /// Puts entries above every tier until the guard is dropped; a later overlay hides an earlier one.
    pub fn overlay(&self, entries: impl IntoIterator<Item = (CacheKey, Arc<Entry>)>) -> OverlayGuard {
        self.overlays.add(entries)
    }

    /// The entry for a call on this device, or a miss.
    ///
    /// This device's own entry wins over another device's in every tier. Without a `direction`, an entry tuned forward
    /// with its vector-Jacobian product wins over a forward one. If the call is unknown under the `vmap`s of its key,
    /// or under none, a known variant is used: first the unmapped one, then the one with the most calls.
    ///
    /// A hit of the exact key allocates nothing, except for the first hit of a call that only a store below the memory
    /// has.
    ///
    /// # Errors
    /// If a tier cannot be read, or an entry on the way is damaged, or sets what no entry may.
    pub fn lookup<'a>(
        &'a self,
        device: &'a DeviceFingerprint,
        op_id: &'a str,
        call_key: &'a str,
        direction: Option<Direction>,
        mode: MatchMode,
    ) -> Result<Lookup<'a>, StoreError> {
        Ok(match self.find(device, op_id, call_key, direction, mode)? {
            Some(hit) => Lookup::Hit(hit),
            None => {
                let question = LookupQuestion { device, op_id, call_key, direction, mode };
                Lookup::Miss(Miss { cache: self, question })
            }
        })
    }

    /// The entry for a call on this device, chosen as [`lookup`](Self::lookup) does.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    pub fn find<'a>(
        &self,
        device: &'a DeviceFingerprint,
        op_id: &'a str,
        call_key: &'a str,
        direction: Option<Direction>,
        mode: MatchMode,
    ) -> Result<Option<Hit<'a>>, StoreError> {
        let directions = wanted(direction);
        for direction in directions {
            let key = KeyRef { op_id, call_key, direction: *direction, device: &device.identity };
            if let Some((entry, tier)) = self.get(key, |entry| self.may_answer(entry))? {
                return self.checked(device, Hit::asked(key, entry, tier)).map(Some);
            }
        }
        let mut choices = Vec::new();
        for (key, entry, tier) in self.of_call(op_id, call_key, |entry| self.may_answer(entry))? {
            if !directions.contains(&key.direction) {
                continue;
            }
            let flag = match mode.compare(&device.identity, &key.device) {
                DeviceMatch::Same => None,
                DeviceMatch::Flagged(detail) => Some(Flag::new(FlagKind::OtherDevice, detail)),
                DeviceMatch::Miss(_) => continue,
            };
            let rank = (flag.is_some(), key.call.call_key != call_key, preference(&key.call.call_key));
            choices.push((rank, key, entry, tier, flag));
        }
        // the first among equals
        let first = choices.into_iter().min_by_key(|(rank, ..)| *rank).map(|(_, key, entry, tier, flag)| {
            let other_batch = (key.call.call_key != call_key).then(|| {
                let detail = format!("measured {}, asked for {}", to_words(&key.call.call_key), to_words(call_key));
                Flag::new(FlagKind::OtherBatch, detail)
            });
            self.checked(device, Hit::other(key, entry, tier, flag.into_iter().chain(other_batch).collect()))
        });
        first.transpose()
    }

    /// Why [`find`](Self::find) finds nothing.
    ///
    /// # Errors
    /// If a tier cannot be read.
    pub fn explain_miss(
        &self,
        device: &DeviceFingerprint,
        op_id: &str,
        call_key: &str,
        direction: Option<Direction>,
        mode: MatchMode,
    ) -> Result<MissReason, StoreError> {
        self.explain(LookupQuestion { device, op_id, call_key, direction, mode })
    }

    fn explain(&self, question: LookupQuestion<'_>) -> Result<MissReason, StoreError> {
        let LookupQuestion { device, op_id, call_key, direction, mode } = question;
        for (key, entry, _) in self.of_call(op_id, call_key, |_| true)? {
            let call = Call::new(op_id, call_key);
            let difference = mode.compare(&device.identity, &key.device);
            if !wanted(direction).contains(&key.direction) {
                return Ok(MissReason::Direction { call, tuned: key.direction });
            }
            if let DeviceMatch::Miss(difference) = difference {
                return Ok(MissReason::Device { call, difference });
            }
            if !self.may_answer(&entry) {
                return Ok(MissReason::Replayed { call });
            }
        }
        self.explain_absence(device, op_id, call_key)
    }

    /// The entry of exactly this key and where it is.
    ///
    /// # Errors
    /// If a tier cannot be read, or the entry is damaged.
    pub fn entry(&self, key: &CacheKey) -> Result<Option<(Arc<Entry>, Tier)>, StoreError> {
        self.get(key.parts(), |_| true)
    }

    /// Stores an entry in memory and in every tier below that can be written, the lowest first.
    ///
    /// # Errors
    /// If such a tier fails to write; then the tiers above it are left as they were.
    pub fn put(&self, key: &CacheKey, entry: &Arc<Entry>) -> Result<(), StoreError> {
        self.put_all(&[(key.clone(), Arc::clone(entry))])
    }

    /// Stores many entries in the same way.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_all(&self, entries: &[(CacheKey, Arc<Entry>)]) -> Result<(), StoreError> {
        for store in self.below.iter().rev() {
            match store.put_all(entries) {
                Err(error) if error.kind() != StoreErrorKind::ReadOnly => return Err(error),
                _ => {}
            }
        }
        self.memory.put_all(entries)
    }

    /// Removes an entry from memory and from every tier below that can be written.
    ///
    /// # Errors
    /// If such a tier fails to write; then the tiers below it still have the entry.
    pub fn remove(&self, key: &CacheKey) -> Result<bool, StoreError> {
        Ok(self.remove_all(std::slice::from_ref(key))? > 0)
    }

    /// Removes many entries in the same way; returns how many the tier with the most of them had.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_all(&self, keys: &[CacheKey]) -> Result<usize, StoreError> {
        let mut removed = self.memory.remove_all(keys)?;
        for store in &self.below {
            match store.remove_all(keys) {
                Ok(found) => removed = removed.max(found),
                Err(error) if error.kind() == StoreErrorKind::ReadOnly => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Every entry in force, each key once, from the fastest tier that has it.
    ///
    /// # Errors
    /// If a tier cannot be read, or an entry is damaged.
    pub fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>, Tier)>, StoreError> {
        self.merged(|store| store.entries(), |_| true, |_| true)
    }

    fn of_call(
        &self,
        op_id: &str,
        call_key: &str,
        counts: impl Fn(&Entry) -> bool,
    ) -> Result<Vec<(CacheKey, Arc<Entry>, Tier)>, StoreError> {
        let is_of_call = |key: &CacheKey| key.is_of_call(op_id, call_key);
        let mut found = self.merged(|store| store.of_call(op_id, call_key), is_of_call, counts)?;
        // newest first, then by key: the same answer in every process
        let decided = |entry: &Entry| entry.provenance.as_ref().map_or(0, |provenance| provenance.decided_at);
        found.sort_by(|a, b| decided(&b.1).cmp(&decided(&a.1)).then_with(|| a.0.cmp(&b.0)));
        found.sort_by_key(|(key, ..)| key.direction != Direction::ForwardVjp);
        Ok(found)
    }

    /// Whether look-ups may find it.
    fn may_answer(&self, entry: &Entry) -> bool {
        self.finds_replayed || !entry.is_replayed()
    }

    /// The entry of a key in the fastest tier whose one counts. Overlays always do: they are the user's own.
    fn get(&self, key: KeyRef<'_>, counts: impl Fn(&Entry) -> bool) -> Result<Option<(Arc<Entry>, Tier)>, StoreError> {
        if let Some(entry) = self.overlays.get(key) {
            return Ok(Some((entry, Tier::Overlay)));
        }
        if let Some(entry) = self.memory.get(key)?.filter(|entry| counts(entry)) {
            return Ok(Some((entry, Tier::Memory)));
        }
        for store in &self.below {
            if let Some(entry) = store.get(key)?.filter(|entry| counts(entry)) {
                self.memory.put(&key.to_key(), &entry)?;
                return Ok(Some((entry, store.tier())));
            }
        }
        Ok(None)
    }

    /// A hit with its caveats, unless it sets what no entry may: an overlay is the user's own.
    fn checked<'a>(&self, device: &DeviceFingerprint, mut hit: Hit<'a>) -> Result<Hit<'a>, StoreError> {
        if hit.tier != Tier::Overlay {
            refuse(hit.key(), &hit.entry.config)?;
        }
        if let Some(provenance) = &hit.entry.provenance {
            let mut differences = device.environment.differences(&provenance.environment);
            differences.extend(provenance.measured_by.differences(&self.cache_state));
            if !differences.is_empty() {
                hit.flags.push(Flag::new(FlagKind::StaleEnvironment, differences.join("; ")));
            }
        }
        Ok(hit)
    }

    fn merged(
        &self,
        read: impl Fn(&dyn ConfigStore) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError>,
        wanted: impl Fn(&CacheKey) -> bool,
        counts: impl Fn(&Entry) -> bool,
    ) -> Result<Vec<(CacheKey, Arc<Entry>, Tier)>, StoreError> {
        let overlaid = self.overlays.entries(wanted).into_iter();
        let mut found: BTreeMap<CacheKey, (Arc<Entry>, Tier)> =
            overlaid.map(|(key, entry)| (key, (entry, Tier::Overlay))).collect();
        let counting = |entries: Vec<(CacheKey, Arc<Entry>)>| entries.into_iter().filter(|(_, entry)| counts(entry));
        let in_memory: BTreeMap<_, _> = counting(read(&self.memory)?).collect();
        for store in &self.below {
            for (key, entry) in counting(read(store.as_ref())?) {
                // an entry promoted to memory is listed under the tier that stores it; a different one hides it
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
        let mut keys: BTreeSet<CacheKey> = self.overlays.entries(|_| true).into_keys().collect();
        keys.extend(self.memory.keys()?);
        for store in &self.below {
            keys.extend(store.keys()?);
        }
        Ok(keys)
    }

    fn explain_absence(
        &self,
        device: &DeviceFingerprint,
        op_id: &str,
        call_key: &str,
    ) -> Result<MissReason, StoreError> {
        let name = split_op_id(op_id).0;
        let (mut others, mut cached) = (0, Vec::new());
        for key in self.keys()? {
            if key.call.op_id == op_id && key.device == device.identity {
                others += 1;
            } else if key.call.op_id != op_id && key.call.op_name() == name {
                cached.push(key.call.op_id);
            }
        }
        cached.dedup();
        let call = Call::new(op_id, call_key);
        Ok(match (others, cached.is_empty()) {
            (0, true) => MissReason::Operation { op_id: call.op_id },
            (0, false) => MissReason::Version { op_id: call.op_id, cached },
            _ => MissReason::Call { call, others },
        })
    }
}

/// The acceptable directions, the preferred one first.
fn wanted(direction: Option<Direction>) -> &'static [Direction] {
    match direction {
        Some(Direction::Forward) => &[Direction::Forward],
        Some(Direction::ForwardVjp) => &[Direction::ForwardVjp],
        None => &[Direction::ForwardVjp, Direction::Forward],
    }
}
