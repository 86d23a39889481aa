//! Where kept executables lie, and how much of them is kept.

use std::path::{Path, PathBuf};

use crate::ledger::Ledger;
use crate::timer::pjrt::{ExecutableBounds, bound_executables, keeps_executables};

use super::exit;
use super::fault::Fault;

/// The most that kept executables of a cache folder take together, in MiB.
const LIMIT: &str = "AUTOTUNE_LOWERED_EXECUTABLES_MIB";

/// The bounds that the user set, or else the usual ones.
pub(super) fn bounds() -> Result<ExecutableBounds, Fault> {
    let mut bounds = ExecutableBounds::default();
    if let Some(value) = std::env::var_os(LIMIT) {
        let mib = value.to_str().and_then(|text| text.trim().parse::<u64>().ok());
        let mib = mib.ok_or_else(|| {
            let message = format!("{LIMIT} is `{}`: a number of MiB is expected", value.to_string_lossy());
            Fault::new(exit::USAGE, message)
        })?;
        bounds.bytes = mib.saturating_mul(1 << 20);
    }
    Ok(bounds)
}

/// The folder for a run's executables: that of the cache, brought within its bounds, where this process may write it, and
/// else one that ends with the run.
pub(super) fn folder_for(ledger: &Ledger, scratch: &Path) -> Result<PathBuf, Fault> {
    match ledger.root().filter(|_| ledger.keeps_samples()) {
        Some(root) => within_bounds(root),
        None => Ok(scratch.to_owned()),
    }
}

/// The folder that a run would find executables in, of one that only says what it would do.
pub(super) fn folder_to_look_in(cache: Option<&Path>, scratch: &Path) -> PathBuf {
    cache.filter(|cache| keeps_executables(cache)).unwrap_or(scratch).to_owned()
}

/// A cache folder, within its bounds, that this process holds the lock of.
pub(super) fn within_bounds(root: &Path) -> Result<PathBuf, Fault> {
    match bound_executables(root, &bounds()?, false) {
        Ok(bound) => tracing::debug!("kept executables of `{}`: {bound:?}", root.display()),
        // too many of them cost room and nothing else
        Err(error) => tracing::warn!("kept executables of `{}` cannot be inspected: {error}", root.display()),
    }
    Ok(root.to_owned())
}
