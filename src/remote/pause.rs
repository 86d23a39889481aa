//! How long to wait for other publishers.

use std::hash::{BuildHasher, Hasher};

/// A number below a bound that differs between processes, to spread them out.
pub(super) fn random_below(bound: u64) -> u64 {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() % bound.max(1)
}
