//! Reads Tokamax's files.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::classes::{class_of, folder_of, platform_of, version};
use super::format::{DEVICE_KIND, FORMAT, MAX_CALL_BYTES, MAX_FILE_BYTES, MAX_RECORDS, TOKAMAX};
use super::measured::fastest;
use crate::cache::{CacheKey, Entry, Peer, PeerRecord};
use crate::call::{Call, Direction};
use crate::device::DeviceIdentity;
use crate::exchange::ExchangeError;
use crate::exchange::file::io_error;
use crate::exchange::json_text::{Members, canonical, compact, quoted};
use crate::hlo::tokamax_label;
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultFile<'a> {
    device_kind: String,
    #[serde(borrow)]
    data: Vec<(&'a RawValue, &'a RawValue)>,
}

/// Reads an `AutotuningResult`, a file of a database, or a folder of either, two levels deep. If `device_kind` is
/// given, only data of that device counts, and a database, whose folder only hints at its device, is taken as exactly
/// that kind.
///
/// Operation and call key are those that a scan finds in a module which calls the operation. The config is the one that
/// Tokamax chooses. The device has only what Tokamax knows, its kind: such an entry never applies by itself to a device
/// whose hardware is known, only under a wider match mode.
///
/// # Errors
/// If the named file or folder cannot be read or is not Tokamax's. In a folder, a bad file is skipped and named.
pub fn import_tokamax(path: &Path, device_kind: Option<&str>) -> Result<TokamaxImport, ExchangeError> {
    let mut import = Import { device_kind, ..Import::default() };
    if path.is_dir() {
        for file in files_below(path)? {
            if let Err(error) = import.file(&file) {
                import.skipped.push(error.to_string());
            }
        }
    } else {
        import.file(path)?;
    }
    import.keep_without_config();
    let entries = import.entries.into_iter().map(|(key, entry)| (key, Arc::new(entry))).collect();
    Ok(TokamaxImport { entries, skipped: import.skipped, notes: import.notes })
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

#[derive(Default)]
struct Import<'a> {
    device_kind: Option<&'a str>,
    entries: Vec<(CacheKey, Entry)>,
    places: HashMap<CacheKey, usize>,
    /// Records of calls without a config, by device kind.
    without_config: BTreeMap<String, Vec<PeerRecord>>,
    skipped: Vec<String>,
    notes: Vec<String>,
    place: u64,
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
            self.result(path, &result);
        } else {
            self.database(path, &members);
        }
        Ok(())
    }

    fn result(&mut self, path: &Path, result: &ResultFile<'_>) {
        if self.device_kind.is_some_and(|wanted| wanted != result.device_kind) {
            let kind = result.device_kind.escape_debug();
            return self.skipped.push(format!("`{}` is of the device kind `{kind}`", path.display()));
        }
        for (index, (stamp, data)) in result.data.iter().enumerate() {
            let what = || format!("`{}`, call {index}", path.display());
            self.call(what, &result.device_kind, compact(stamp.get()), data.get());
        }
    }

    fn database(&mut self, path: &Path, members: &[(String, &RawValue)]) {
        let name = |path: Option<&std::ffi::OsStr>| path.and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder = name(absolute.parent().and_then(Path::file_name));
        let device_kind = match self.device_kind {
            Some(kind) if folder_of(kind).as_deref() == Some(&folder) => kind.to_owned(),
            Some(_) => {
                return self.skipped.push(format!("`{}` is of the device kind `{folder}`", path.display()));
            }
            None => folder,
        };
        let stem = name(path.file_stem());
        let Some(class) = class_of(&stem) else {
            let reason = format!("Tokamax {} has no operation `{}`", version(), stem.escape_debug());
            return self.skipped.push(format!("`{}`: {reason}", path.display()));
        };
        let mut last = BTreeMap::new();
        for (index, (arguments, _)) in members.iter().enumerate() {
            if last.insert(arguments.as_str(), index).is_some() {
                self.skipped.push(format!("`{}`: call {index} occurs twice; the last one counts", path.display()));
            }
        }
        for (index, (arguments, data)) in members.iter().enumerate() {
            if last.get(arguments.as_str()) != Some(&index) {
                continue;
            }
            let what = || format!("`{}`, call {index}", path.display());
            if !matches!(serde_json::from_str(arguments), Ok(Value::Object(_))) {
                self.skipped.push(format!("{}: its arguments are not a JSON object", what()));
                continue;
            }
            // the text between the quotes is a key there, to be exported unchanged
            let stamp = format!("{{\"op\":{{\"__type\":{}}},\"arguments\":{arguments}}}", quoted(class));
            self.call(what, &device_kind, stamp, data.get());
        }
    }

    fn call(&mut self, what: impl Fn() -> String, device_kind: &str, stamp: String, data: &str) {
        let value = compact(data);
        if stamp.len() + value.len() > MAX_CALL_BYTES {
            return self.skipped.push(format!("{}: more than {MAX_CALL_BYTES} bytes for one call", what()));
        }
        let Some((op_id, call_key)) = tokamax_label(&stamp).and_then(|label| Some((label.op_id, label.call_key?)))
        else {
            return self.skipped.push(format!("{}: it names no operation with its arguments", what()));
        };
        let config = match fastest(&value) {
            Ok(Some(config)) => config,
            // every config failed there: nothing to look up, but Tokamax keeps the record
            Ok(None) => {
                let record = PeerRecord { place: self.place, key: stamp, value };
                self.place += 1;
                return self.without_config.entry(device_kind.to_owned()).or_default().push(record);
            }
            Err(reason) => {
                return self.skipped.push(format!("{}, `{}`: {reason}", what(), Call::new(op_id, call_key)));
            }
        };
        let key = CacheKey {
            call: Call { op_id, call_key },
            direction: Direction::Forward,
            device: DeviceIdentity {
                platform: platform_of(device_kind).to_owned(),
                device_kind: device_kind.to_owned(),
                hardware: BTreeMap::from([(DEVICE_KIND.to_owned(), device_kind.to_owned())]),
            },
        };
        let record = PeerRecord { place: self.place, key: stamp, value };
        self.place += 1;
        let known = self.places.get(&key).and_then(|place| self.entries.get_mut(*place));
        let Some((key, entry)) = known else {
            let peer = Some(Peer { format: FORMAT.to_owned(), records: vec![record] });
            self.places.insert(key.clone(), self.entries.len());
            return self.entries.push((key, Entry { peer, ..Entry::new(config) }));
        };
        let name = format!("`{}`", key.call);
        let Some(peer) = &mut entry.peer else { return };
        if let Some((index, same)) =
            peer.records.iter_mut().enumerate().find(|(_, known)| canonical(&known.key) == canonical(&record.key))
        {
            *same = record;
            if index == 0 {
                entry.config = config;
            }
            return self.skipped.push(format!("{name} occurs twice; the last one counts"));
        }
        if !has_room(peer, &record) {
            let reason = format!("more than {MAX_RECORDS} calls or {MAX_CALL_BYTES} bytes for one label");
            return self.skipped.push(format!("{name}: {reason}"));
        }
        peer.records.push(record);
        self.notes.push(format!(
            "{name}: a label does not distinguish the operation's own settings; look-ups give the first one's config, \
             an export gives all"
        ));
    }
    /// Attaches each record without a config to an entry of its device, because there is no entry without a config.
    fn keep_without_config(&mut self) {
        for (kind, records) in std::mem::take(&mut self.without_config) {
            let count = records.len();
            let peers = self.entries.iter_mut().filter(|(key, _)| key.device.device_kind == kind);
            let mut peers = peers.filter_map(|(_, entry)| entry.peer.as_mut()).peekable();
            let mut kept = 0;
            for record in records {
                while peers.next_if(|peer| !has_room(peer, &record)).is_some() {}
                if let Some(peer) = peers.peek_mut() {
                    peer.records.push(record);
                    kept += 1;
                }
            }
            let kind = kind.escape_debug();
            if kept > 0 {
                self.notes.push(format!("`{kind}`: {kept} calls have no config; they are kept only for exports"));
            }
            if kept < count {
                self.skipped.push(format!("`{kind}`: {} calls have no config", count - kept));
            }
        }
    }
}

/// Whether a label can hold one more record.
fn has_room(peer: &Peer, record: &PeerRecord) -> bool {
    let length = |record: &PeerRecord| record.key.len() + record.value.len();
    let held: usize = peer.records.iter().map(length).sum();
    peer.records.len() < MAX_RECORDS && held + length(record) <= MAX_CALL_BYTES
}
