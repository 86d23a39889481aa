//! The native part of the Python package: labels, the registry's writer and the look-up. It never opens sled and never
//! measures; tuning from Python starts the program.

mod device;
mod labels;
mod registry;
mod store;

use pyo3::prelude::*;

/// The native part of `autotune_lowered`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<device::Fingerprint>()?;
    module.add_class::<store::Store>()?;
    module.add_function(wrap_pyfunction!(store::snapshot_of, module)?)?;
    module.add_class::<registry::RegistryWriter>()?;
    module.add_function(wrap_pyfunction!(registry::not_runnable, module)?)?;
    module.add_function(wrap_pyfunction!(labels::scan, module)?)?;
    module.add_function(wrap_pyfunction!(labels::digest, module)?)?;
    module.add_function(wrap_pyfunction!(labels::semantic_digest, module)?)?;
    module.add_function(wrap_pyfunction!(labels::argument_paths, module)?)?;
    Ok(())
}
