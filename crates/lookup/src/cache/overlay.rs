//! Entries above every tier, while a guard holds them there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::entry::Entry;
use super::key::{CacheKey, KeyRef, by_key};

/// The overlays in force, the last one uppermost.
#[derive(Debug, Default, Clone)]
pub(super) struct Overlays {
    layers: Arc<Mutex<Layers>>,
}

#[derive(Debug, Default)]
struct Layers {
    /// The number of the last one.
    last: u64,
    layers: Vec<(u64, BTreeMap<CacheKey, Arc<Entry>>)>,
}

/// Keeps an overlay in force until it is dropped. Guards may be dropped in any order.
#[must_use = "the overlay ends when the guard is dropped"]
pub struct OverlayGuard {
    overlays: Overlays,
    id: u64,
}

impl Drop for OverlayGuard {
    fn drop(&mut self) {
        self.overlays.lock().layers.retain(|(id, _)| *id != self.id);
    }
}

impl Overlays {
    fn lock(&self) -> MutexGuard<'_, Layers> {
        // a panic elsewhere cannot leave them half changed, because every change is one call
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, entries: impl IntoIterator<Item = (CacheKey, Arc<Entry>)>) -> OverlayGuard {
        let entries = entries.into_iter().collect();
        let mut layers = self.lock();
        layers.last += 1;
        let id = layers.last;
        layers.layers.push((id, entries));
        OverlayGuard { overlays: self.clone(), id }
    }

    pub(super) fn get(&self, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        self.lock().layers.iter().rev().find_map(|(_, entries)| by_key(entries, key)).cloned()
    }

    /// The entries in force whose keys match.
    pub(super) fn entries(&self, wanted: impl Fn(&CacheKey) -> bool) -> BTreeMap<CacheKey, Arc<Entry>> {
        let layers = self.lock();
        let all = layers.layers.iter().flat_map(|(_, entries)| entries).filter(|(key, _)| wanted(key));
        // among equal keys the last one, from the uppermost overlay, is kept
        all.map(|(key, entry)| (key.clone(), Arc::clone(entry))).collect()
    }
}
