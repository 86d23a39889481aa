//! Tokamax's autotuning data: an `AutotuningResult`, one JSON object for one device kind, and the layout of the
//! databases that Tokamax ships, one file an operation.
//!
//! ```text
//! {"device_kind":"cpu","data":[[{"op":{"__type":"CLASS"},"arguments":{…}},{"CONFIG":MEASURED,…}],…],
//!  "tokamax_version":"0.0.17"}
//!
//! DEVICE_KIND/OPERATION.json: {"ARGUMENTS":{"CONFIG":MEASURED,…},…}, or nothing
//! ```
//!
//! `CONFIG` and `ARGUMENTS` are JSON in a string. `MEASURED` is `{"compile_time_ms":…,"lower_time_ms":…,
//! "evaluation_times_ms":[…],"metadata":{…},"peak_memory_mb":…}`, of which only the last may be missing or null.
//! Tokamax chooses the config with the smallest median (tokamax 0.0.12: `autotuning/autotuner.py`, `fastest_config`;
//! over all evaluations, including the first), among equal ones the first. A database's folder is the device kind in
//! lower case with `_` for blanks, its file the class in snake case (`autotuning/cache.py`); `tokamax.json`, printed by
//! `python -m autotune_lowered.tokamax_operations` for Tokamax 0.0.12 to 0.0.17, maps operations to classes.
//!
//! Tokamax's records are kept verbatim ([`Peer`](crate::cache::Peer)), so that they are exported unchanged, with
//! members that this program does not know. Results have `tokamax_version` since Tokamax 0.0.13.

mod calls;
mod classes;
mod envelope;
mod export;
mod format;
mod import;
mod measured;

pub use classes::TokamaxOperations;
pub use export::{TokamaxCall, TokamaxExport, export_tokamax};
pub use import::{TokamaxImport, import_tokamax};
