//! Where executables are kept, and how many.

use std::path::{Path, PathBuf};

use crate::ledger::Ledger;
use crate::timer::pjrt::{ExecutableBounds, bound_executables, keeps_executables};

use super::exit;
use super::fault::Fault;

/// Variable for the maximum total size of a cache folder's executables, in MiB.
const LIMIT: &str = "AUTOTUNE_LOWERED_EXECUTABLES_MIB";

/// The bounds that the user set, or the defaults.
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

/// The folder for a run's executables: that of the cache, pruned to its bounds, if this process may write it, or else a
/// temporary one.
pub(super) fn folder_for(ledger: &Ledger, scratch: &Path) -> Result<PathBuf, Fault> {
    match ledger.root().filter(|_| ledger.keeps_samples()) {
        Some(root) => within_bounds(root),
        None => Ok(scratch.to_owned()),
    }
}

/// The folder in which a run would find executables, for a dry run.
pub(super) fn folder_to_look_in(cache: Option<&Path>, scratch: &Path) -> PathBuf {
    cache.filter(|cache| keeps_executables(cache)).unwrap_or(scratch).to_owned()
}

/// A cache folder, pruned to its bounds, whose lock this process holds.
pub(super) fn within_bounds(root: &Path) -> Result<PathBuf, Fault> {
    match bound_executables(root, &bounds()?, false) {
        Ok(bound) => tracing::debug!("kept executables of `{}`: {bound:?}", root.display()),
        // too many of them only cost space
        Err(error) => tracing::warn!("kept executables of `{}` cannot be inspected: {error}", root.display()),
    }
    Ok(root.to_owned())
}
