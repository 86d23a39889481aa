//! Look-ups: a snapshot, and the shipped configs below it.

use std::path::PathBuf;

use autotune_lowered_lookup::cache::{
    self, ConfigStore, Entry, Hit, KeyRef, Mapping, ShippedConfigs, Snapshot, SnapshotStore, StoreError,
    StoreErrorKind, Tier, TieredCache,
};
use autotune_lowered_lookup::call::Direction;
use autotune_lowered_lookup::measured_by::CacheState;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::device::{Fingerprint, match_mode};

/// The snapshot that a program opens for the name of a cache.
#[pyfunction]
pub(crate) fn snapshot_of(name: PathBuf) -> PyResult<PathBuf> {
    cache::snapshot_of(&name).map_err(|error| PyFileNotFoundError::new_err(error.to_string()))
}

/// What a look-up found.
type Found = (String, Option<String>, String, String, String, Vec<(String, String)>);

/// One snapshot, or none, with the shipped configs below it. Never changes once it is open.
#[pyclass(frozen, module = "autotune_lowered._native")]
pub(crate) struct Store {
    cache: TieredCache,
    digest: Option<String>,
    entries: u64,
    mapped: bool,
    problems: Vec<String>,
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (snapshot=None, shipped=None, mapped=true, cache_state="warm", replayed=false))]
    fn new(
        py: Python<'_>,
        snapshot: Option<PathBuf>,
        shipped: Option<PathBuf>,
        mapped: bool,
        cache_state: &str,
        replayed: bool,
    ) -> PyResult<Self> {
        let looks_for = (parse_cache_state(cache_state)?, replayed);
        py.detach(|| Self::open(snapshot, shipped, mapped, looks_for)).map_err(raise)
    }

    /// SHA-256 that names the snapshot's content.
    #[getter]
    fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// Whether the snapshot is mapped, and not read into memory.
    #[getter]
    fn mapped(&self) -> bool {
        self.mapped
    }

    /// The files of shipped configs that were left out, each with the reason.
    #[getter]
    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }

    /// Number of entries in the snapshot.
    fn __len__(&self) -> usize {
        usize::try_from(self.entries).unwrap_or(usize::MAX)
    }

    /// `(config, provenance, tier, direction, device, flags)`, the first five as text, or `None`.
    #[pyo3(signature = (device, op_id, call_key, direction=None, mode="exact"))]
    fn find(
        &self,
        device: &Fingerprint,
        op_id: &str,
        call_key: &str,
        direction: Option<&str>,
        mode: &str,
    ) -> PyResult<Option<Found>> {
        let (direction, mode) = (parse_direction(direction)?, match_mode(mode)?);
        let hit = self.cache.find(&device.fingerprint, op_id, call_key, direction, mode).map_err(raise)?;
        hit.map(|hit| found(&hit)).transpose()
    }

    /// Why `find` finds nothing, in one line.
    #[pyo3(signature = (device, op_id, call_key, direction=None, mode="exact"))]
    fn explain_miss(
        &self,
        py: Python<'_>,
        device: &Fingerprint,
        op_id: &str,
        call_key: &str,
        direction: Option<&str>,
        mode: &str,
    ) -> PyResult<String> {
        let (direction, mode) = (parse_direction(direction)?, match_mode(mode)?);
        py.detach(|| self.cache.explain_miss(&device.fingerprint, op_id, call_key, direction, mode))
            .map(|reason| reason.to_string())
            .map_err(raise)
    }

    /// Every entry as `(op_id, call_key, found)`, in the order of operation, call, direction and device.
    fn entries(&self, py: Python<'_>) -> PyResult<Vec<(String, String, Found)>> {
        let entries = py.detach(|| self.cache.entries()).map_err(raise)?;
        let rows = entries.into_iter().map(|(key, entry, tier)| {
            let found = describe(key.parts(), &entry, tier, Vec::new())?;
            Ok((key.call.op_id, key.call.call_key, found))
        });
        rows.collect()
    }
}

impl Store {
    fn open(
        snapshot: Option<PathBuf>,
        shipped: Option<PathBuf>,
        mapped: bool,
        (cache_state, finds_replayed): (CacheState, bool),
    ) -> Result<Self, StoreError> {
        let mapping = if mapped { Mapping::WhereLocal } else { Mapping::Never };
        let mut problems = Vec::new();
        let snapshot = snapshot.map(|path| Snapshot::open(&path, mapping)).transpose()?;
        let digest = snapshot.as_ref().map(|snapshot| snapshot.digest().to_string());
        let entries = snapshot.as_ref().map_or(0, Snapshot::len);
        let mapped = snapshot.as_ref().is_some_and(Snapshot::is_mapped);
        let mut below: Vec<Box<dyn ConfigStore>> = Vec::new();
        if let Some(snapshot) = snapshot {
            below.push(Box::new(SnapshotStore::new(snapshot)));
        }
        if let Some(folder) = shipped {
            let (store, skipped) = ShippedConfigs::read_folder(&folder);
            problems.extend(skipped.iter().map(|problem| format!("`{}`: {}", problem.path.display(), problem.reason)));
            below.push(Box::new(store));
        }
        below.push(Box::new(ShippedConfigs::built_in()));
        let mut cache = TieredCache::new(below);
        cache.set_cache_state(cache_state);
        cache.set_finds_replayed(finds_replayed);
        Ok(Self { cache, digest, entries, mapped, problems })
    }
}

fn parse_cache_state(text: &str) -> PyResult<CacheState> {
    match CacheState::from(text) {
        state @ (CacheState::Warm | CacheState::Cold) => Ok(state),
        _ => Err(PyValueError::new_err(format!("`{text}` is no state of caches: `warm` or `cold`"))),
    }
}

fn parse_direction(text: Option<&str>) -> PyResult<Option<Direction>> {
    match text {
        None => Ok(None),
        Some("forward") => Ok(Some(Direction::Forward)),
        Some("forward-vjp") => Ok(Some(Direction::ForwardVjp)),
        Some(other) => {
            Err(PyValueError::new_err(format!("`{other}` is not a direction: use forward, forward-vjp or None")))
        }
    }
}

fn found(hit: &Hit<'_>) -> PyResult<Found> {
    let flags = hit.flags.iter().map(|flag| {
        let kind = serde_json::to_value(flag.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
        (kind.unwrap_or_default(), flag.detail.clone())
    });
    describe(hit.key(), &hit.entry, hit.tier, flags.collect())
}

fn describe(key: KeyRef<'_>, entry: &Entry, tier: Tier, flags: Vec<(String, String)>) -> PyResult<Found> {
    let json = |value: serde_json::Result<String>| value.map_err(|error| PyValueError::new_err(error.to_string()));
    let provenance = entry.provenance.as_ref().map(serde_json::to_string).map(json).transpose()?;
    let device = json(serde_json::to_string(key.device))?;
    Ok((entry.config.as_str().to_owned(), provenance, tier.to_string(), key.direction.to_string(), device, flags))
}

fn raise(error: StoreError) -> PyErr {
    match error.kind() {
        StoreErrorKind::Io => PyOSError::new_err(error.to_string()),
        StoreErrorKind::Refused => PyPermissionError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}
