//! The device that a look-up is for.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use autotune_lowered_lookup::device::{DeviceFingerprint, MatchMode};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A device with the software around it. Equal and hashable by both.
#[pyclass(frozen, module = "autotune_lowered._native")]
pub(crate) struct Fingerprint {
    pub(crate) fingerprint: DeviceFingerprint,
    hash: u64,
}

#[pymethods]
impl Fingerprint {
    /// From JSON text: `{"identity": {"platform", "device_kind", "hardware"}, "environment": {…}}`.
    #[new]
    fn new(json: &str) -> PyResult<Self> {
        let fingerprint: DeviceFingerprint = serde_json::from_str(json)
            .map_err(|error| PyValueError::new_err(format!("not a device fingerprint: {error}")))?;
        let mut hasher = DefaultHasher::new();
        fingerprint.hash(&mut hasher);
        Ok(Self { hash: hasher.finish(), fingerprint })
    }

    /// The same as JSON text.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.fingerprint).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// ejkernel's spelling, `device_kind|platform_version`.
    fn to_portable(&self) -> String {
        self.fingerprint.to_portable()
    }

    fn __hash__(&self) -> u64 {
        self.hash
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }

    fn __str__(&self) -> String {
        self.fingerprint.identity.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<device {}>", self.fingerprint.identity)
    }
}

/// `exact`, `kind` or `any`.
pub(crate) fn match_mode(text: &str) -> PyResult<MatchMode> {
    text.parse().map_err(|_| PyValueError::new_err(format!("`{text}` is not a match mode: use exact, kind or any")))
}
