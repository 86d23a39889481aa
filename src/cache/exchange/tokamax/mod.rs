//! Tokamax's autotuning data: an `AutotuningResult`, one JSON object for one device kind, and the layout of the databases
//! that Tokamax ships, one file an operation.
//!
//! ```text
//! {"device_kind":"cpu","data":[[{"op":{"__type":"CLASS"},"arguments":{…}},{"CONFIG":MEASURED,…}],…]}
//!
//! DEVICE_KIND/OPERATION.json: {"ARGUMENTS":{"CONFIG":MEASURED,…},…}, or nothing
//! ```
//!
//! `CONFIG` and `ARGUMENTS` are JSON in a string. `MEASURED` is `{"compile_time_ms":…,"lower_time_ms":…,
//! "evaluation_times_ms":[…],"metadata":{…},"peak_memory_mb":…}`, of which only the last may be missing or null. Tokamax
//! takes the config with the least median (tokamax 0.0.12: `autotuning/autotuner.py`, `fastest_config`; of all
//! evaluations, the first as well), of equal ones the first. A database's folder is the device kind in lower case with `_`
//! for blanks, its file the class in snake case (`autotuning/cache.py`); which class that is, `tokamax.json` says, made by
//! `python/tokamax_table.py`.
//!
//! What Tokamax wrote is kept word for word ([`Peer`](crate::cache::Peer)), so that it leaves as it came.

mod classes;
mod export;
mod import;
mod measured;

pub use export::{TokamaxCall, TokamaxExport, export_tokamax};
pub use import::{TokamaxImport, import_tokamax};

/// The tool, in messages.
const TOKAMAX: &str = "Tokamax";
/// What an imported entry's [`Peer`](crate::cache::Peer) is marked with.
const FORMAT: &str = "tokamax";
/// Where an imported key keeps what Tokamax calls its device: part of the identity, so that an entry that knows its
/// hardware only by this name is never taken for this device's own.
const DEVICE_KIND: &str = "tokamax_device_kind";
/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Longest text of all records of one call.
const MAX_CALL_BYTES: usize = 1 << 20;
/// Most records that share one label.
const MAX_RECORDS: usize = 64;
