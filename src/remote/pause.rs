//! How long to wait for others who do the same.

use std::hash::{BuildHasher, Hasher};

/// A number below a bound that no two processes share: it only spreads them out.
pub(super) fn random_below(bound: u64) -> u64 {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() % bound.max(1)
}
