//! Removes entries that are too old, of a device, or of outdated software.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cache::{CacheKey, Entry};
use crate::device::DeviceFingerprint;
use crate::ledger::{Ledger, LedgerError};
use crate::setters;

const DAY: u64 = 24 * 3600;

/// Which entries to remove: those that meet all given conditions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PruneOptions {
    /// Entries decided longer ago.
    pub older_than: Option<Duration>,
    /// Entries of devices whose name contains this.
    pub of_device: Option<String>,
    /// Entries decided for this device under other software than its present one.
    pub stale_on: Option<DeviceFingerprint>,
}

setters!(PruneOptions {
    older_than: Option<Duration>,
    of_device: Option<String>,
    stale_on: Option<DeviceFingerprint>,
});

/// An entry to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// Its key.
    pub key: CacheKey,
    /// Why, one line.
    pub reason: String,
}

/// The entries to remove at a given time.
pub fn to_prune(
    entries: impl IntoIterator<Item = (CacheKey, Arc<Entry>)>,
    options: &PruneOptions,
    now: SystemTime,
) -> Vec<Pruned> {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let pruned = entries.into_iter().filter_map(|(key, entry)| {
        let reason = options.why_pruned(now, &key, &entry)?;
        Some(Pruned { key, reason })
    });
    pruned.collect()
}

/// Removes entries from a cache folder. Returns by how many bytes the sample log shrank.
///
/// # Errors
/// If a store of the folder fails.
pub fn prune(ledger: &Ledger, going: &[Pruned]) -> Result<u64, LedgerError> {
    let keys: Vec<CacheKey> = going.iter().map(|pruned| pruned.key.clone()).collect();
    ledger.remove_all(&keys)?;
    ledger.publish()?;
    ledger.compact()
}

impl PruneOptions {
    /// Why an entry is removed; `None` if one of the conditions does not hold or cannot be checked.
    fn why_pruned(&self, now: u64, key: &CacheKey, entry: &Entry) -> Option<String> {
        let mut why = Vec::new();
        let provenance = entry.provenance.as_ref();
        if let Some(limit) = self.older_than {
            let seconds = now.checked_sub(provenance?.decided_at).filter(|seconds| *seconds > limit.as_secs())?;
            why.push(match seconds / DAY {
                0 => format!("decided {} minutes ago", seconds / 60),
                days => format!("decided {days} days ago"),
            });
        }
        if let Some(text) = &self.of_device {
            let name = key.device.to_string();
            why.push(name.contains(text).then(|| format!("its device has `{text}`"))?);
        }
        if let Some(here) = &self.stale_on {
            let differences = here.environment.differences(&provenance?.environment);
            let is_stale = key.device == here.identity && !differences.is_empty();
            why.push(is_stale.then(|| differences.join("; "))?);
        }
        Some(why.join("; "))
    }
}
