//! Two caches to one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::{CacheKey, Entry, StoreError};

/// The entries of both, in the keys' order; of two for one key the later decision, then the greater text, so that the order
/// of merging makes no difference.
///
/// # Errors
/// Where an entry cannot be read.
pub fn merge(
    there: Vec<(CacheKey, Arc<Entry>)>,
    here: &[(CacheKey, Arc<Entry>)],
) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
    let rank = |entry: &Entry| (entry.provenance.as_ref().map_or(0, |from| from.decided_at), entry.to_text());
    let mut merged: BTreeMap<CacheKey, Arc<Entry>> = BTreeMap::new();
    for (key, entry) in there.into_iter().chain(here.iter().cloned()) {
        if merged.get(&key).is_none_or(|known| rank(&entry) > rank(known)) {
            merged.insert(key, entry);
        }
    }
    Ok(merged.into_iter().collect())
}
