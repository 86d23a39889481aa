//! Writes Tokamax's files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::classes::{file_stem_of, folder_of, is_class_path};
use super::envelope::result_in;
use super::format::{DEVICE_KIND, FORMAT, MAX_FILE_BYTES, TOKAMAX};
use super::measured::median;
use crate::atomic_write::write_atomic;
use crate::cache::{CacheKey, Entry, PeerRecord};
use crate::call::Direction;
use crate::config::Config;
use crate::counted::counted;
use crate::exchange::ExchangeError;
use crate::exchange::file::io_error;
use crate::exchange::json_text::{Members, canonical, compact, indented, quoted};
use crate::hlo::tokamax_label;
use crate::outside_file;

/// Tokamax accepts no null for a required time, and cannot read back a NaN that it wrote. Since no time is negative,
/// this value marks times that were not measured, and the metadata name the members.
const NOT_MEASURED: f64 = -1.0;

/// The data of a call of which every config failed.
const NO_DATA: &str = "{}";

/// Why a call cannot be in a result.
const NAMELESS: &str = "no class of it is known, and Tokamax loads no result with it: export to a folder, or import \
                        its database again with `--operations`";

/// A call of Tokamax's that was tuned here.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TokamaxCall {
    /// `{"op":{"__type":…,…},"arguments":{…}}`, as Tokamax stamps it.
    pub stamp: Value,
    /// The candidates with the durations of their runs, nanoseconds.
    pub times_ns: Vec<(Config, Vec<u64>)>,
}

impl TokamaxCall {
    /// A call by its stamp, with its candidates' times.
    pub fn new(stamp: Value, times_ns: Vec<(Config, Vec<u64>)>) -> Self {
        Self { stamp, times_ns }
    }
}

/// The result of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokamaxExport {
    /// The files, sorted.
    pub files: Vec<PathBuf>,
    /// Calls in them that came from here.
    pub written: usize,
    /// What was left out, each with the reason.
    pub skipped: Vec<String>,
}

/// Writes entries as an `AutotuningResult` if the path ends in `.json`, otherwise into the databases of a folder, whose
/// other calls are kept.
///
/// An imported entry is exported unchanged. For any other, `measured` gives stamp and samples, or the reason why there
/// are none. `device_kind` is Tokamax's name of the device, if it differs from the entry's. A config that was faster
/// than the entry's by its median, but not by the paired rounds that decide, is left out, because Tokamax would choose
/// it.
///
/// # Errors
/// If two devices have one name there, the file can hold only one of several kinds, a database is broken, or a file
/// cannot be written. Then nothing is written.
pub fn export_tokamax(
    path: &Path,
    entries: &[(CacheKey, Arc<Entry>)],
    device_kind: Option<&str>,
    measured: &mut dyn FnMut(&CacheKey, &Entry) -> Result<TokamaxCall, String>,
) -> Result<TokamaxExport, ExchangeError> {
    let mut export = TokamaxExport::default();
    let records = records(entries, device_kind, measured, &mut export.skipped)?;
    let is_file = path.extension().is_some_and(|extension| extension == "json") && !path.is_dir();
    let contents = if is_file {
        result(path, records, &mut export)?.into_iter().collect()
    } else {
        databases(path, records, &mut export)?
    };
    for (path, content) in contents {
        write_atomic(&path, |file| file.write_all(content.as_bytes())).map_err(io_error("write", &path))?;
        export.files.push(path);
    }
    Ok(export)
}

/// One call to be written.
struct Record<'a> {
    kind: String,
    key: &'a CacheKey,
    own: PeerRecord,
}

/// The calls to be written; no two are one call for Tokamax.
#[derive(Default)]
struct Records<'a> {
    records: Vec<Record<'a>>,
    /// The index of each, by device kind and canonical stamp.
    places: BTreeMap<(String, String), usize>,
}

fn records<'a>(
    entries: &'a [(CacheKey, Arc<Entry>)],
    device_kind: Option<&str>,
    measured: &mut dyn FnMut(&CacheKey, &Entry) -> Result<TokamaxCall, String>,
    skipped: &mut Vec<String>,
) -> Result<Vec<Record<'a>>, ExchangeError> {
    let mut all = Records::default();
    for (key, entry) in entries {
        let own_kind = key.device.hardware.get(DEVICE_KIND).unwrap_or(&key.device.device_kind);
        let kind = device_kind.unwrap_or(own_kind);
        let of_entry = match &entry.peer {
            Some(peer) if peer.format == FORMAT => peer.records.clone(),
            _ => match measured(key, entry).and_then(|call| texts_of(key, entry, &call, skipped)) {
                // after those with an index
                Ok((stamp, value)) => vec![PeerRecord { place: u64::MAX, key: stamp, value, envelope: None }],
                Err(reason) => {
                    skipped.push(format!("`{}`: {reason}", key.call));
                    continue;
                }
            },
        };
        for own in of_entry {
            all.put(Record { kind: kind.to_owned(), key, own }, skipped)?;
        }
    }
    // stable: equal indices stay in the keys' order
    all.records.sort_by_key(|record| record.own.place);
    Ok(all.records)
}

impl<'a> Records<'a> {
    /// Adds a call, or decides between it and what it is for Tokamax.
    fn put(&mut self, record: Record<'a>, skipped: &mut Vec<String>) -> Result<(), ExchangeError> {
        let name = format!("`{}`", record.key.call);
        let Some(canonical) = canonical(&record.own.key) else {
            skipped.push(format!("{name}: its record is not JSON"));
            return Ok(());
        };
        let place = *self.places.entry((record.kind.clone(), canonical)).or_insert(self.records.len());
        let Some(known) = self.records.get_mut(place) else {
            self.records.push(record);
            return Ok(());
        };
        // a call without data cannot contradict others
        if record.own.value == NO_DATA {
            return Ok(());
        }
        if known.own.value == NO_DATA {
            *known = record;
            return Ok(());
        }
        if known.key.device != record.key.device {
            if known.own.value == record.own.value {
                return Ok(());
            }
            return Err(ExchangeError::Ambiguous {
                peer: TOKAMAX,
                call: record.key.call.clone(),
                one: Box::new(known.key.device.clone()),
                other: Box::new(record.key.device.clone()),
                fingerprint: record.kind,
            });
        }
        // Tokamax tunes a forward pass by itself; its backward passes are operations of their own
        skipped.push(format!("{name}: the config of `forward-vjp` cannot be stored beside that of `forward`"));
        if record.key.direction == Direction::Forward {
            *known = record;
        }
        Ok(())
    }
}

/// Stamp and measurements of a call that was tuned here.
fn texts_of(
    key: &CacheKey,
    entry: &Entry,
    call: &TokamaxCall,
    skipped: &mut Vec<String>,
) -> Result<(String, String), String> {
    let object = |member: &str| call.stamp.get(member).and_then(Value::as_object);
    let (Some(op), Some(arguments)) = (object("op"), object("arguments")) else {
        return Err("its recording has no Tokamax stamp".to_owned());
    };
    let class = op.get("__type").cloned().unwrap_or_default();
    let mut op_members = vec![format!("\"__type\":{class}")];
    // Tokamax asks with neither: a stamp names the config that was in force
    let settings = op.iter().filter(|(name, _)| !["__type", "config", "vjp"].contains(&name.as_str()));
    op_members.extend(settings.map(|(name, value)| format!("{}:{value}", quoted(name))));
    let arguments = Value::Object(arguments.clone());
    let stamp = format!("{{\"op\":{{{}}},\"arguments\":{arguments}}}", op_members.join(","));
    let label = tokamax_label(&stamp);
    if label.is_none_or(|label| label.op_id != key.call.op_id || label.call_key.as_ref() != Some(&key.call.call_key)) {
        return Err("its recording is stamped as another call".to_owned());
    }

    let in_ms = |samples: &[u64]| -> Vec<f64> { samples.iter().map(|ns| *ns as f64 / 1e6).collect() };
    let of_best = call.times_ns.iter().find(|(config, _)| *config == entry.config);
    let best = of_best.map(|(_, samples)| in_ms(samples)).unwrap_or_default();
    let least = median(best.clone()).ok_or("the sample log holds no sample of its config")?;
    let mut configs = vec![measured_as_json(key, &entry.config, &best)];
    for (config, samples) in call.times_ns.iter().filter(|(config, _)| *config != entry.config) {
        let samples = in_ms(samples);
        match median(samples.clone()) {
            None => {}
            Some(median) if median < least => skipped.push(format!(
                "`{}`: the config `{}` has a smaller median, but the paired rounds did not prove it faster",
                key.call,
                config.to_brief()
            )),
            Some(_) => configs.push(measured_as_json(key, config, &samples)),
        }
    }
    Ok((stamp, format!("{{{}}}", configs.join(","))))
}

/// `"CONFIG":MEASURED`.
fn measured_as_json(key: &CacheKey, config: &Config, evaluation_times_ms: &[f64]) -> String {
    let mut metadata = Map::new();
    metadata.insert("not_measured".to_owned(), json!(["compile_time_ms", "lower_time_ms"]));
    if key.direction == Direction::ForwardVjp {
        // Tokamax's name for it
        metadata.insert("mode".to_owned(), json!("forward_and_vjp"));
    }
    format!(
        "{}:{{\"compile_time_ms\":{NOT_MEASURED:.1},\"lower_time_ms\":{NOT_MEASURED:.1},\"evaluation_times_ms\":{},\
         \"metadata\":{},\"peak_memory_mb\":null}}",
        quoted(config.as_str()),
        json!(evaluation_times_ms),
        Value::Object(metadata)
    )
}

fn result(
    path: &Path,
    mut records: Vec<Record<'_>>,
    export: &mut TokamaxExport,
) -> Result<Option<(PathBuf, String)>, ExchangeError> {
    // one class that Tokamax cannot import, and it loads nothing of the file
    records.retain(|record| {
        let stamp: Option<Stamp<'_>> = serde_json::from_str(&record.own.key).ok();
        let nameless = stamp.filter(|stamp| !is_class_path(&stamp.op.path));
        if let Some(stamp) = &nameless {
            export.skipped.push(format!("a call of `{}`: {NAMELESS}", stamp.op.path.escape_debug()));
        }
        nameless.is_none()
    });
    let kinds: BTreeSet<&str> = records.iter().map(|record| record.kind.as_str()).collect();
    let kind = match kinds.iter().copied().collect::<Vec<_>>().as_slice() {
        [] => return Ok(None),
        [kind] => quoted(kind),
        _ => {
            let kinds = kinds.iter().map(|kind| format!("`{}`", kind.escape_debug())).collect::<Vec<_>>().join(", ");
            return Err(ExchangeError::SeveralKinds { path: path.to_owned(), kinds });
        }
    };
    let mut envelopes = records.iter().filter_map(|record| record.own.envelope.as_deref());
    let envelope = envelopes.next();
    let others = envelopes.filter(|other| Some(*other) != envelope).count();
    if others > 0 {
        export.skipped.push(format!(
            "what the results of {} held besides their calls, because a file holds it once: it is that of the first \
             call, `{}`",
            counted(others, "call"),
            envelope.unwrap_or_default().escape_debug()
        ));
    }
    let calls: Vec<String> =
        records.iter().map(|record| format!("[{},{}]", compact(&record.own.key), record.own.value)).collect();
    export.written = calls.len();
    let content = result_in(envelope, &kind, &format!("[{}]", calls.join(",")));
    Ok(Some((path.to_owned(), content)))
}

#[derive(Deserialize)]
struct Stamp<'a> {
    #[serde(borrow)]
    op: Class<'a>,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

#[derive(Deserialize)]
struct Class<'a> {
    #[serde(borrow, rename = "__type")]
    path: std::borrow::Cow<'a, str>,
}

/// The calls of one database.
#[derive(Default)]
struct Calls {
    /// The text of the arguments, and the data.
    calls: Vec<(String, String)>,
    /// The index of each, by the canonical spelling of the arguments.
    places: HashMap<String, usize>,
}

impl Calls {
    /// Adds a call, or returns the existing one.
    fn put(&mut self, arguments: String, data: String) -> Option<&mut String> {
        let name = canonical(&arguments).unwrap_or_else(|| arguments.clone());
        if let Some(place) = self.places.get(&name) {
            return self.calls.get_mut(*place).map(|(_, data)| data);
        }
        self.places.insert(name, self.calls.len());
        self.calls.push((arguments, data));
        None
    }
}

fn databases(
    root: &Path,
    records: Vec<Record<'_>>,
    export: &mut TokamaxExport,
) -> Result<Vec<(PathBuf, String)>, ExchangeError> {
    let mut files: BTreeMap<PathBuf, Calls> = BTreeMap::new();
    for record in records {
        let name = format!("`{}`", record.key.call);
        let stamp: Option<Stamp<'_>> = serde_json::from_str(&record.own.key).ok();
        let file = stamp.as_ref().and_then(|stamp| file_stem_of(&stamp.op.path));
        let (Some(stamp), Some(file), Some(folder)) = (&stamp, file, folder_of(&record.kind)) else {
            export.skipped.push(format!("{name}: its class or device kind is not a valid file name"));
            continue;
        };
        let calls = files.entry(root.join(folder).join(format!("{file}.json"))).or_default();
        let data = record.own.value;
        match calls.put(stamp.arguments.get().to_owned(), data.clone()) {
            None => export.written += 1,
            // kept by the name of its database, and once more by its class
            Some(known) if *known == data => {}
            Some(_) => {
                let reason =
                    "a database does not distinguish the operation's own settings; it has the first one's config";
                export.skipped.push(format!("{name}: {reason}"));
            }
        }
    }
    // every file is read before the first is written
    let mut contents = Vec::new();
    for (path, new) in files {
        let mut all = if path.exists() { read(&path)? } else { Calls::default() };
        for (arguments, data) in new.calls {
            if let Some(known) = all.put(arguments, data.clone()) {
                *known = data;
            }
        }
        let members: Vec<String> =
            all.calls.iter().map(|(arguments, data)| format!("{}:{data}", quoted(arguments))).collect();
        contents.push((path, indented(&format!("{{{}}}", members.join(","))) + "\n"));
    }
    Ok(contents)
}

fn read(path: &Path) -> Result<Calls, ExchangeError> {
    let foreign = |what: String| ExchangeError::Foreign { peer: TOKAMAX, path: path.to_owned(), what };
    let bytes = outside_file::bytes(path, MAX_FILE_BYTES).map_err(io_error("read", path))?;
    let mut calls = Calls::default();
    if bytes.trim_ascii().is_empty() {
        return Ok(calls);
    }
    let Members(members) = serde_json::from_slice(&bytes).map_err(|error| foreign(error.to_string()))?;
    for (arguments, data) in members {
        // if a call occurs twice, the last one counts, as for Tokamax
        if let Some(known) = calls.put(arguments, data.get().to_owned()) {
            *known = data.get().to_owned();
        }
    }
    Ok(calls)
}
