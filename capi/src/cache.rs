//! An open cache that many threads query while others refresh it.

use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use autotune_lowered_lookup::cache::{
    self, CacheKey, ConfigStore, Entry, KeyRef, Mapping, PlaceError, ShippedConfigs, Snapshot, SnapshotStore,
    StoreError, Tier, TieredCache,
};
use autotune_lowered_lookup::call::Direction;
use autotune_lowered_lookup::device::MatchMode;
use autotune_lowered_lookup::digest::Digest;
use autotune_lowered_lookup::measured_by::CacheState;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::device::Device;
use crate::fault::{Fault, Status};
use crate::hit::Hit;

/// Maximum number of cached hits: further ones are looked up each time. A program requests some thousands.
const MOST_KEPT: usize = 1 << 20;

/// The query of a look-up. Its names are valid UTF-8 only if they were found; otherwise they were not checked.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) device: &'a Device,
    pub(crate) operation: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) direction: Option<Direction>,
    pub(crate) mode: MatchMode,
}

impl Question<'_> {
    /// Direction and match mode as one number.
    pub(crate) fn choice(&self) -> u64 {
        let direction = match self.direction {
            None => 0,
            Some(Direction::Forward) => 1,
            Some(Direction::ForwardVjp) => 2,
        };
        let mode = match self.mode {
            MatchMode::Exact => 0,
            MatchMode::Kind => 1,
            _ => 2,
        };
        direction << 2 | mode
    }

    fn hash(&self, hasher: &DefaultHashBuilder) -> u64 {
        let mut hasher = hasher.build_hasher();
        hasher.write(self.operation);
        hasher.write(self.key);
        hasher.write_u64(self.choice());
        hasher.write_u128(self.device.id);
        hasher.finish()
    }

    fn texts(&self) -> Result<(&str, &str), Fault> {
        let text = |name: &str, bytes| std::str::from_utf8(bytes).map_err(|_| Fault::argument(name, "is not UTF-8"));
        Ok((text("operation", self.operation)?, text("key", self.key)?))
    }
}

/// Where the snapshot is, and the requirements for it.
#[derive(Debug)]
struct Place {
    /// The caller's name for it, for messages.
    named: PathBuf,
    snapshot: PathBuf,
    mapping: Mapping,
    /// Of the runs that look-ups are for.
    cache_state: CacheState,
    /// Whether they find what replayed samples decided.
    finds_replayed: bool,
    pin: Option<Digest>,
}

/// The content of an `atl_cache`.
pub(crate) struct Cache {
    place: Place,
    shipped: Vec<Shared>,
    hasher: DefaultHashBuilder,
    state: RwLock<State>,
    /// Held during a refresh.
    refreshing: Mutex<()>,
}

/// The published state at one time. It is replaced as a whole, and hits have owners of their own.
struct State {
    tiers: Arc<TieredCache>,
    snapshot: Option<Arc<SnapshotStore>>,
    /// Hits by their queries.
    kept: HashTable<Arc<Hit>>,
}

impl State {
    fn new(snapshot: Option<Snapshot>, shipped: &[Shared], place: &Place) -> Self {
        let snapshot = snapshot.map(|snapshot| Arc::new(SnapshotStore::new(snapshot)));
        let mut below: Vec<Box<dyn ConfigStore>> = Vec::new();
        if let Some(snapshot) = &snapshot {
            below.push(Box::new(Shared(Arc::clone(snapshot) as Arc<dyn ConfigStore>)));
        }
        below.extend(shipped.iter().map(|shipped| Box::new(shipped.clone()) as Box<dyn ConfigStore>));
        let mut tiers = TieredCache::new(below);
        tiers.set_cache_state(place.cache_state.clone());
        tiers.set_finds_replayed(place.finds_replayed);
        Self { tiers: Arc::new(tiers), snapshot, kept: HashTable::new() }
    }

    fn kept(&self, hash: u64, question: &Question<'_>) -> Option<Arc<Hit>> {
        self.kept.find(hash, |hit| hit.answers(question)).map(Arc::clone)
    }
}

impl Cache {
    /// Opens a cache folder or a snapshot; with a note of what was left out.
    pub(crate) fn open(
        path: &Path,
        shipped: Option<&Path>,
        pin: Option<Digest>,
        (mapping, cache_state, finds_replayed): (Mapping, CacheState, bool),
    ) -> Result<(Self, String), Fault> {
        let snapshot = snapshot_of(path)?;
        let place = Place { named: path.to_owned(), snapshot, mapping, cache_state, finds_replayed, pin };
        let mut notes = Vec::new();
        let snapshot = match Snapshot::open(&place.snapshot, mapping) {
            Err(error) if error.is_not_found() => None,
            opened => Some(opened?),
        };
        place.check_pin(snapshot.as_ref())?;
        let mut tiers = Vec::new();
        if let Some(folder) = shipped {
            let (store, problems) = ShippedConfigs::read_folder(folder);
            notes.extend(problems.iter().map(|one| format!("`{}` is left out: {}", one.path.display(), one.reason)));
            tiers.push(Shared(Arc::new(store)));
        }
        tiers.push(Shared(Arc::new(ShippedConfigs::built_in())));
        let state = RwLock::new(State::new(snapshot, &tiers, &place));
        let hasher = DefaultHashBuilder::default();
        Ok((Self { place, shipped: tiers, hasher, state, refreshing: Mutex::default() }, notes.join("; ")))
    }

    /// The hit for a query; `None` if nothing applies.
    pub(crate) fn lookup(&self, question: &Question<'_>) -> Result<Option<Arc<Hit>>, Fault> {
        let hash = question.hash(&self.hasher);
        let (tiers, snapshot) = {
            let state = self.read();
            if let Some(hit) = state.kept(hash, question) {
                return Ok(Some(hit));
            }
            (Arc::clone(&state.tiers), state.snapshot.clone())
        };
        let (operation, key) = question.texts()?;
        let fingerprint = &question.device.fingerprint;
        let Some(found) = tiers.find(fingerprint, operation, key, question.direction, question.mode)? else {
            return Ok(None);
        };
        let hit = Arc::new(Hit::new(question, hash, &found, tier_of(&found, snapshot.as_deref())));
        let mut state = self.write();
        // a hit found before a refresh answers this query, and no later one
        if Arc::ptr_eq(&state.tiers, &tiers) && state.kept.len() < MOST_KEPT {
            if let Some(another_threads) = state.kept(hash, question) {
                return Ok(Some(another_threads));
            }
            state.kept.insert_unique(hash, Arc::clone(&hit), |hit| hit.hash);
        }
        Ok(Some(hit))
    }

    /// Why a look-up misses; `Err` with the hit if it does not.
    pub(crate) fn explain(&self, question: &Question<'_>) -> Result<Result<String, String>, Fault> {
        let (operation, key) = question.texts()?;
        let (tiers, is_published) = {
            let state = self.read();
            (Arc::clone(&state.tiers), state.snapshot.is_some())
        };
        let (device, direction, mode) = (&question.device.fingerprint, question.direction, question.mode);
        if let Some(hit) = tiers.find(device, operation, key, direction, mode)? {
            let direction = hit.key().direction;
            return Ok(Err(format!("`{operation}:{key}` has {} ({direction})", hit.entry.config)));
        }
        let mut reason = tiers.explain_miss(device, operation, key, direction, mode)?.to_string();
        if !is_published {
            let path = self.place.named.display();
            reason.push_str(&format!(
                "; nothing was published in `{path}` yet: run `autotune-lowered tune MODULE --cache {path}`"
            ));
        }
        Ok(Ok(reason))
    }

    /// Loads what was published since; returns whether that is new.
    pub(crate) fn refresh(&self) -> Result<bool, Fault> {
        let _one_at_a_time = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.read().snapshot.clone();
        let newer = match open {
            Some(store) => store.snapshot().refreshed()?,
            None => match Snapshot::open(&self.place.snapshot, self.place.mapping) {
                Err(error) if error.is_not_found() => None,
                opened => Some(opened?),
            },
        };
        let Some(newer) = newer else { return Ok(false) };
        self.place.check_pin(Some(&newer))?;
        let state = State::new(Some(newer), &self.shipped, &self.place);
        let old = std::mem::replace(&mut *self.write(), state);
        // unmapped and freed after the lock is released
        drop(old);
        Ok(true)
    }

    /// Calls with the snapshot that is open.
    pub(crate) fn with_snapshot<T>(&self, look: impl FnOnce(Option<&Snapshot>) -> T) -> T {
        look(self.read().snapshot.as_deref().map(SnapshotStore::snapshot))
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        // a panic elsewhere cannot leave the state half changed, because every change is one call
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn check_pin(&self, snapshot: Option<&Snapshot>) -> Result<(), Fault> {
        let (Some(pin), found) = (self.pin, snapshot.map(Snapshot::digest)) else { return Ok(()) };
        if found == Some(pin) {
            return Ok(());
        }
        let found = found.map_or_else(|| "there is none".to_owned(), |digest| format!("it is {digest}"));
        let text =
            format!("the snapshot `{}` is not the pinned one: {found}, {pin} is pinned", self.snapshot.display());
        Err(Fault::new(Status::NotPinned, text))
    }
}

/// The snapshot of a path: a folder's, or the path itself.
fn snapshot_of(path: &Path) -> Result<PathBuf, Fault> {
    if path.as_os_str().is_empty() {
        return Err(Fault::argument("path", "is empty: name a cache folder or a snapshot"));
    }
    cache::snapshot_of(path).map_err(|error| {
        let status = if matches!(error, PlaceError::Url(_)) { Status::BadArgument } else { Status::Io };
        Fault::new(status, error.to_string())
    })
}

/// The tier of a hit: memory only holds it for the next time.
fn tier_of(found: &cache::Hit<'_>, snapshot: Option<&SnapshotStore>) -> Tier {
    if found.tier != Tier::Memory {
        return found.tier;
    }
    let is_there = snapshot.is_some_and(|snapshot| matches!(snapshot.get(found.key()), Ok(Some(_))));
    if is_there { Tier::Snapshot } else { Tier::Shipped }
}

/// A tier shared by several states.
#[derive(Clone)]
struct Shared(Arc<dyn ConfigStore>);

impl ConfigStore for Shared {
    fn tier(&self) -> Tier {
        self.0.tier()
    }

    fn get(&self, key: KeyRef<'_>) -> Result<Option<Arc<Entry>>, StoreError> {
        self.0.get(key)
    }

    fn of_call(&self, op_id: &str, call_key: &str) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        self.0.of_call(op_id, call_key)
    }

    fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        self.0.entries()
    }

    fn keys(&self) -> Result<Vec<CacheKey>, StoreError> {
        self.0.keys()
    }
}
