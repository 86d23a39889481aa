//! Files of entries in [JSON](crate::cache::write_entries).

use std::path::Path;
use std::sync::Arc;

use super::ExchangeError;
use crate::atomic_write::write_atomic;
use crate::cache::{COMPILER_OPTIONS, CacheKey, Entry, JsonForm, read_entries, why_refused, write_entries};
use crate::outside_file;

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Writes entries to a file, in the form that its name says.
///
/// # Errors
/// If the file cannot be written; then its old content is intact.
pub fn export_json(path: &Path, entries: &[(CacheKey, Arc<Entry>)]) -> Result<(), ExchangeError> {
    export_json_as(JsonForm::of(path), path, entries)
}

/// Writes entries to a file.
///
/// # Errors
/// If an entry sets what no entry may, or the file cannot be written; then its old content is intact.
pub fn export_json_as(form: JsonForm, path: &Path, entries: &[(CacheKey, Arc<Entry>)]) -> Result<(), ExchangeError> {
    for (key, entry) in entries.iter().filter(|(key, _)| key.call.op_id == COMPILER_OPTIONS) {
        if let Some(why) = why_refused(&entry.config) {
            let (call, peer, what) = (key.call.clone(), "a JSON file".to_owned(), format!("it {why}"));
            return Err(ExchangeError::Refused { call, peer, what });
        }
    }
    write_atomic(path, |file| write_entries(form, entries, file)).map_err(|source| ExchangeError::Io {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// Reads what [`export_json`] wrote, or what `cache ls --format json` prints.
///
/// # Errors
/// If the file cannot be read, or an entry is invalid, with its number.
pub fn import_json(path: &Path) -> Result<Vec<(CacheKey, Arc<Entry>)>, ExchangeError> {
    import_json_as(JsonForm::of(path), path)
}

/// Reads a file of this form.
///
/// # Errors
/// If the file cannot be read, or an entry is invalid, with its number.
pub fn import_json_as(form: JsonForm, path: &Path) -> Result<Vec<(CacheKey, Arc<Entry>)>, ExchangeError> {
    let io = |source| ExchangeError::Io { action: "read", path: path.to_owned(), source };
    let text = outside_file::text(path, MAX_FILE_BYTES).map_err(io)?;
    read_entries(form, &text).map_err(|what| ExchangeError::NotEntries { path: path.to_owned(), what })
}
