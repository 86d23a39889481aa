//! Where a run's executables come from, and where and how many are kept.

use std::path::{Path, PathBuf};

use crate::ledger::Ledger;
use crate::timer::pjrt::{CompiledOptions, ExecutableBounds, bound_executables, keeps_executables};

use super::cache::{CacheUse, RunCache};
use super::exit;
use super::fault::Fault;
use super::signature::trusted_keys;

/// Variable for the maximum total size of a cache folder's executables, in MiB.
const LIMIT: &str = "AUTOTUNE_LOWERED_EXECUTABLES_MIB";

/// Where executables come from.
#[derive(Debug, Clone)]
pub(super) struct Executables {
    /// The folder of kept executables.
    pub(super) kept: PathBuf,
    /// Stores compiled without the device, if there are any.
    pub(super) compiled: Option<CompiledOptions>,
}

impl Executables {
    /// Only the executables of a folder.
    pub(super) fn kept(kept: impl Into<PathBuf>) -> Self {
        Self { kept: kept.into(), compiled: None }
    }

    /// The same and those of stores, signed by this user or by the owner of these keys.
    pub(super) fn and_compiled(mut self, stores: &[PathBuf], verify_key: Option<&Path>) -> Result<Self, Fault> {
        if !stores.is_empty() {
            let compiled = CompiledOptions::new(stores, trusted_keys(verify_key)?);
            compiled.check().map_err(Fault::input)?;
            self.compiled = Some(compiled);
        }
        Ok(self)
    }
}

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

/// The folder of the executables of a run that uses a cache so.
pub(super) fn folder_of_run(cache: &RunCache, how: CacheUse, scratch: &Path) -> Result<PathBuf, Fault> {
    match how {
        CacheUse::Looks => Ok(folder_to_look_in(cache.folder.as_deref(), scratch)),
        CacheUse::Ignores | CacheUse::Keeps => folder_for(&cache.ledger, scratch),
    }
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
