//! Other tools' caches: exports entries to files that they read, and imports files that they wrote.

mod ejkernel;
mod error;
mod file;
mod flags;
mod json;
mod json_text;
mod tokamax;

pub use ejkernel::{EjkernelExport, EjkernelFields, EjkernelImport, export_ejkernel, import_ejkernel};
pub use error::ExchangeError;
pub use flags::{export_flags, export_options};
pub use json::{export_json, export_json_as, import_json, import_json_as};
pub use tokamax::{TokamaxCall, TokamaxExport, TokamaxImport, TokamaxOperations, export_tokamax, import_tokamax};
