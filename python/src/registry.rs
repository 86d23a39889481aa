//! The registry's writer.

use std::path::PathBuf;

use autotune_lowered_lookup::digest::Digest;
use autotune_lowered_lookup::registry::{self, RegistryError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::device::{Fingerprint, match_mode};

/// Writes recorded invocations into a registry's folder, which is made if there is none.
#[pyclass(frozen, module = "autotune_lowered._native")]
pub(crate) struct RegistryWriter {
    writer: registry::RegistryWriter,
}

#[pymethods]
impl RegistryWriter {
    #[new]
    fn new(folder: PathBuf) -> PyResult<Self> {
        registry::RegistryWriter::create_or_open(folder).map(|writer| Self { writer }).map_err(raise)
    }

    /// The folder.
    #[getter]
    fn folder(&self) -> PathBuf {
        self.writer.root().to_owned()
    }

    /// Store a program; gives `{"format", "digest", "semantic_digest", "custom_calls"}` as JSON text.
    #[pyo3(signature = (program, semantic_digest=None, custom_calls=None))]
    fn put_program(
        &self,
        py: Python<'_>,
        program: &[u8],
        semantic_digest: Option<&str>,
        custom_calls: Option<Vec<String>>,
    ) -> PyResult<String> {
        let semantic: Option<Digest> =
            semantic_digest.map(str::parse).transpose().map_err(|_| wrong("`semantic_digest` is not a SHA-256"))?;
        let stored = py.detach(|| self.writer.put_any_program(program, semantic, custom_calls)).map_err(raise)?;
        to_json(&stored)
    }

    /// Store the dense little-endian bytes of an array; gives its `fill` as JSON text.
    fn put_array(&self, py: Python<'_>, array: &[u8]) -> PyResult<String> {
        to_json(&py.detach(|| self.writer.put_array(array)).map_err(raise)?)
    }

    /// Store an invocation, JSON text with the fields of `docs/registry.md`; gives the path of its record.
    fn add(&self, py: Python<'_>, invocation: &str) -> PyResult<PathBuf> {
        let invocation: registry::Invocation =
            serde_json::from_str(invocation).map_err(|error| wrong(format!("not an invocation: {error}")))?;
        py.detach(|| self.writer.store(&invocation)).map_err(raise)
    }
}

/// Why a call that is recorded for a device cannot be tuned from its record alone; None where it can, or was not
/// recorded.
#[pyfunction]
pub(crate) fn not_runnable(
    py: Python<'_>,
    folder: PathBuf,
    device: &Fingerprint,
    op_id: &str,
    call_key: &str,
    mode: &str,
) -> PyResult<Option<String>> {
    let (mode, device) = (match_mode(mode)?, &device.fingerprint.identity);
    let registry = py.detach(|| registry::Registry::open(folder)).map_err(raise)?;
    Ok(registry.not_runnable(mode, device, op_id, call_key).map(|reason| reason.to_string()))
}

fn to_json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| wrong(error.to_string()))
}

fn wrong(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}

fn raise(error: RegistryError) -> PyErr {
    match error {
        RegistryError::Io { .. } => PyOSError::new_err(error.to_string()),
        other => wrong(other.to_string()),
    }
}
