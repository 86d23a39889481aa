//! Other tools' caches: entries out to files that they obey, and in from files that they wrote.

mod ejkernel;
mod json;

pub use ejkernel::{EjkernelExport, EjkernelImport, ExchangeError, export_ejkernel, import_ejkernel};
pub use json::{export_json, import_json};
