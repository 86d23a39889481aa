//! The proven set as entries for a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::result::{CallEffect, ProveResult};
use crate::batch::is_same_call;
use crate::cache::{CacheKey, Entry};

/// One entry for each call of the proven set, none if nothing is proven. Of `known` entries, the one with the call's
/// key and config is taken with its provenance.
///
/// A look-up without an entry for a call under a `vmap` takes the config of another variant of that call. So an
/// unproven call with a proven variant gets an entry with its baseline.
pub fn proven_entries(result: &ProveResult, known: &[(CacheKey, Arc<Entry>)]) -> Vec<(CacheKey, Arc<Entry>)> {
    let known: BTreeMap<&CacheKey, &Arc<Entry>> = known.iter().map(|(key, entry)| (key, entry)).collect();
    let proven = || result.calls.iter().filter(|call| call.is_proven).map(|call| &call.call.call);
    let entry = |effect: &CallEffect| {
        let own = &effect.call;
        let is_variant = || {
            let mut proven = proven();
            proven.any(|call| call.op_id == own.call.op_id && is_same_call(&call.call_key, &own.call.call_key))
        };
        let config = match effect.is_proven {
            true => &own.tuned,
            false if is_variant() => &own.baseline,
            false => return None,
        };
        let device = result.device.identity.clone();
        let key = CacheKey { call: own.call.clone(), direction: own.direction, device };
        let same = known.get(&key).filter(|entry| entry.config == *config);
        let entry = same.map_or_else(|| Arc::new(Entry::new(config.clone())), |entry| Arc::clone(entry));
        Some((key, entry))
    };
    result.calls.iter().filter_map(entry).collect()
}
