//! Reads Tokamax's files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::calls::{Calls, TokamaxCallData};
use super::classes::{TokamaxOperations, folder_of, is_file_stem};
use super::envelope::envelope_of;
use super::format::{MAX_ENVELOPE_BYTES, MAX_FILE_BYTES, TOKAMAX};
use crate::cache::{CacheKey, Entry};
use crate::counted::counted;
use crate::exchange::ExchangeError;
use crate::exchange::file::io_error;
use crate::exchange::json_text::{Members, compact, quoted};
use crate::outside_file;

/// Maximum number of files examined below one folder.
const MAX_FILES: usize = 10_000;

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct TokamaxImport {
    /// The entries, in the order of the files.
    pub entries: Vec<(CacheKey, Arc<Entry>)>,
    /// What was left out, each with the reason.
    pub skipped: Vec<String>,
    /// Notes on the entries, one line each.
    pub notes: Vec<String>,
}

/// Other members are the file's envelope.
#[derive(Deserialize)]
struct ResultFile<'a> {
    device_kind: String,
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
}

/// Reads an `AutotuningResult`, a file of a database, or a folder of either, two levels deep. If `device_kind` is
/// given, only data of that device counts, and a database, whose folder only hints at its device, is taken as exactly
/// that kind.
///
/// Operation and call key are those that a scan finds in a module which calls the operation. The config is the one that
/// Tokamax chooses. The device has only what Tokamax knows, its kind: such an entry never applies by itself to a device
/// whose hardware is known, only under a wider match mode.
///
/// `operations` are those of the Tokamax that wrote the databases, if its version differs from those that this program
/// knows. The operation of a database that they lack is named like the database.
///
/// # Errors
/// If the named file or folder cannot be read or is not Tokamax's. In a folder, a bad file is skipped and named.
pub fn import_tokamax(
    path: &Path,
    device_kind: Option<&str>,
    operations: Option<&TokamaxOperations>,
) -> Result<TokamaxImport, ExchangeError> {
    let operations = operations.unwrap_or(TokamaxOperations::shipped());
    let mut import = Import { device_kind, operations, calls: Calls::default(), unknown: BTreeMap::new() };
    if path.is_dir() {
        for file in files_below(path)? {
            if let Err(error) = import.file(&file) {
                import.calls.skipped.push(error.to_string());
            }
        }
    } else {
        import.file(path)?;
    }
    import.tell_unknown();
    let entries = import.calls.finish();
    let Calls { skipped, notes, .. } = import.calls;
    Ok(TokamaxImport { entries, skipped, notes })
}

fn files_below(root: &Path) -> Result<Vec<PathBuf>, ExchangeError> {
    let mut files = Vec::new();
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for item in fs::read_dir(&folder).map_err(io_error("list", &folder))? {
            let path = item.map_err(io_error("list", &folder))?.path();
            if path.is_dir() {
                if depth < 2 {
                    folders.push((path, depth + 1));
                }
            } else if path.extension().is_some_and(|extension| extension == "json") {
                files.push(path);
            }
            if files.len() > MAX_FILES {
                let what = format!("it holds more than {MAX_FILES} files");
                return Err(ExchangeError::Foreign { peer: TOKAMAX, path: root.to_owned(), what });
            }
        }
    }
    files.sort();
    Ok(files)
}

struct Import<'a> {
    device_kind: Option<&'a str>,
    operations: &'a TokamaxOperations,
    calls: Calls,
    /// The number of calls of each operation whose class is not known.
    unknown: BTreeMap<String, usize>,
}

impl Import<'_> {
    fn file(&mut self, path: &Path) -> Result<(), ExchangeError> {
        let foreign = |what: String| ExchangeError::Foreign { peer: TOKAMAX, path: path.to_owned(), what };
        let bytes = outside_file::bytes(path, MAX_FILE_BYTES).map_err(io_error("read", path))?;
        let text = std::str::from_utf8(&bytes).map_err(|error| foreign(error.to_string()))?;
        // Tokamax ships such files: no data of that operation
        if text.trim().is_empty() {
            return Ok(());
        }
        let Members(members) = serde_json::from_str(text).map_err(|error| foreign(error.to_string()))?;
        if members.iter().any(|(name, _)| name == "device_kind") {
            let result = serde_json::from_str(text).map_err(|error| foreign(error.to_string()))?;
            self.result(path, &result, envelope_of(&members));
        } else {
            self.database(path, &members);
        }
        Ok(())
    }

    fn result(&mut self, path: &Path, result: &ResultFile<'_>, envelope: Option<String>) {
        let file = path.display();
        if self.device_kind.is_some_and(|wanted| wanted != result.device_kind) {
            let kind = result.device_kind.escape_debug();
            return self.calls.skipped.push(format!("`{file}` is of the device kind `{kind}`"));
        }
        let fits = envelope.as_ref().is_none_or(|text| text.len() <= MAX_ENVELOPE_BYTES);
        if !fits {
            let what = format!("what it holds besides its calls, more than {MAX_ENVELOPE_BYTES} bytes");
            self.calls.skipped.push(format!("`{file}`: {what}"));
        }
        for (index, call) in result.data.iter().enumerate() {
            match serde_json::from_str::<(&RawValue, &RawValue)>(call.get()) {
                Ok((stamp, data)) => {
                    let envelope = envelope.clone().filter(|_| fits);
                    let data = TokamaxCallData { stamp: compact(stamp.get()), value: compact(data.get()), envelope };
                    self.calls.put(&result.device_kind, data, || format!("`{file}`, call {index}"));
                }
                Err(error) => self.calls.skipped.push(format!("`{file}`, call {index}: no call with data: {error}")),
            }
        }
    }

    fn database(&mut self, path: &Path, members: &[(String, &RawValue)]) {
        let file = path.display();
        let name = |path: Option<&std::ffi::OsStr>| path.and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder = name(absolute.parent().and_then(Path::file_name));
        let device_kind = match self.device_kind {
            Some(kind) if folder_of(kind).as_deref() == Some(&folder) => kind.to_owned(),
            Some(_) => return self.calls.skipped.push(format!("`{file}` is of the device kind `{folder}`")),
            None => folder,
        };
        let stem = name(path.file_stem());
        let class = self.operations.class_of(&stem);
        if class.is_none() && !is_file_stem(&stem) {
            let reason = format!("no operation of Tokamax is called `{}`", stem.escape_debug());
            return self.calls.skipped.push(format!("`{file}`: {reason}"));
        }
        let mut last = BTreeMap::new();
        for (index, (arguments, _)) in members.iter().enumerate() {
            if last.insert(arguments.as_str(), index).is_some() {
                self.calls.skipped.push(format!("`{file}`: call {index} occurs twice; the last one counts"));
            }
        }
        for (index, (arguments, data)) in members.iter().enumerate() {
            if last.get(arguments.as_str()) != Some(&index) {
                continue;
            }
            if !matches!(serde_json::from_str(arguments), Ok(Value::Object(_))) {
                self.calls.skipped.push(format!("`{file}`, call {index}: its arguments are not a JSON object"));
                continue;
            }
            let class = quoted(class.unwrap_or(&stem));
            // the text between the quotes is a key there, to be exported unchanged
            let stamp = format!("{{\"op\":{{\"__type\":{class}}},\"arguments\":{arguments}}}");
            let data = TokamaxCallData { stamp, value: compact(data.get()), envelope: None };
            self.calls.put(&device_kind, data, || format!("`{file}`, call {index}"));
        }
        if class.is_none() {
            *self.unknown.entry(stem).or_default() += members.len();
        }
    }

    fn tell_unknown(&mut self) {
        for (name, count) in &self.unknown {
            self.calls.notes.push(format!(
                "`{name}`: {} kept by the name of the database, because the operations of Tokamax {} have none of this \
                 name, and labels hold its class: import again with `--operations FILE`, which `python -m \
                 autotune_lowered.tokamax_operations` prints for the installed Tokamax",
                counted(*count, "call"),
                self.operations.tokamax.escape_debug()
            ));
        }
    }
}
