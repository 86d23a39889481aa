//! Labels of a module in memory.

use autotune_lowered_lookup::digest::Digest;
use autotune_lowered_lookup::hlo::{self, ScanOptions, scan_bytes};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Scan the bytes of a module; gives the JSON text that `autotune-lowered scan --format json` prints.
#[pyfunction]
pub(crate) fn scan(py: Python<'_>, module: &[u8]) -> PyResult<String> {
    let wrong = |message: String| PyValueError::new_err(message);
    let scan = py.detach(|| scan_bytes(module, "the module", &ScanOptions::default()));
    let scan = scan.map_err(|error| wrong(error.to_string()))?;
    serde_json::to_string(&scan).map_err(|error| wrong(error.to_string()))
}

/// SHA-256 of bytes, as 64 hexadecimal digits.
#[pyfunction]
pub(crate) fn digest(py: Python<'_>, bytes: &[u8]) -> String {
    py.detach(|| Digest::of(bytes)).to_string()
}

/// The semantic digest of a program: what it computes, without locations and the module's name.
#[pyfunction]
pub(crate) fn semantic_digest(py: Python<'_>, program: &[u8]) -> PyResult<String> {
    let digest = py.detach(|| hlo::semantic_digest(program, "the module"));
    digest.map(|digest| digest.to_string()).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// What a program's arguments are called, in order: `params/w`, empty if it does not say; None if it says so nothing.
#[pyfunction]
pub(crate) fn argument_paths(py: Python<'_>, program: &[u8]) -> PyResult<Option<Vec<String>>> {
    let place = "the module";
    let arguments = py.detach(|| hlo::read_program(program, place).and_then(|program| program.arguments(place)));
    let arguments = arguments.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(arguments.map(|arguments| arguments.into_iter().map(|argument| argument.path).collect()))
}
