//! ejkernel's persistent caches: one JSON file per operation, `device_kind|platform_version|op@vN|call_key` to config.
//!
//! ejkernel reads a file once, at import, without checking it: an unknown field is a `TypeError` in the middle of a
//! model, a missing one an `AttributeError`. So a config is compared with the fields that its operation has, of the
//! version of ejkernel that `ejkernel.json` was made from (`python -m autotune_lowered.ejkernel_fields`), or of the
//! installed one, before a file is written.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::ExchangeError;
use super::file::io_error;
use crate::atomic_write::write_atomic;
use crate::batch::{own_key, preference, to_words};
use crate::cache::{CacheKey, Entry};
use crate::call::{Call, Direction, split_op_id};
use crate::config::Config;
use crate::device::DeviceIdentity;
use crate::outside_file;

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Where an imported key keeps what ejkernel calls a platform version: part of the identity, so that an entry of
/// unknown hardware is never taken for this device's own.
const PLATFORM_VERSION: &str = "ejkernel_platform_version";

/// The result of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EjkernelExport {
    /// The files, sorted.
    pub files: Vec<PathBuf>,
    /// Entries in them that came from here.
    pub written: usize,
    /// Operations that ejkernel does not have, or not in this version, each with the reason.
    pub skipped: BTreeMap<String, String>,
    /// Calls that were measured under `vmap`, which ejkernel's keys do not express: the chosen variant of each.
    pub other_batch: Vec<String>,
}

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct EjkernelImport {
    /// The entries, file by file.
    pub entries: Vec<(CacheKey, Arc<Entry>)>,
    /// What was left out, each with the reason.
    pub skipped: Vec<String>,
}

/// The operations of one version of ejkernel: their files, and the fields of their configs.
#[derive(Debug, Deserialize)]
pub struct EjkernelFields {
    ejkernel: String,
    operations: BTreeMap<String, Operation>,
}

#[derive(Debug, Deserialize)]
struct Operation {
    file: String,
    version: Value,
    typed: bool,
    fields: BTreeMap<String, Field>,
}

#[derive(Debug, Deserialize)]
struct Field {
    /// `null` is a default like any other.
    #[serde(default, deserialize_with = "present")]
    default: Option<Value>,
    fields: Option<BTreeMap<String, Field>>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

static SHIPPED: LazyLock<Option<EjkernelFields>> =
    LazyLock::new(|| serde_json::from_str(include_str!("ejkernel.json")).ok());

impl EjkernelFields {
    /// Reads what `python -m autotune_lowered.ejkernel_fields` printed of an installed ejkernel.
    ///
    /// # Errors
    /// If the file cannot be read or is something else.
    pub fn read(path: &Path) -> Result<Self, ExchangeError> {
        let wrong = |what: String| ExchangeError::NotFields { path: path.to_owned(), what };
        let text = outside_file::bytes(path, MAX_FILE_BYTES).map_err(io_error("read", path))?;
        let read: Self = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        // the names become paths: none may lead out of the folder that is written to
        let is_plain = |file: &str| Path::new(file).file_name().is_some_and(|name| name == file);
        match read.operations.values().find(|operation| !is_plain(&operation.file)) {
            Some(operation) => Err(wrong(format!("`{}` is not a file name", operation.file.escape_debug()))),
            None => Ok(read),
        }
    }
}

/// Writes entries into the persistent cache files of a folder; other content of the files is kept.
///
/// `fingerprint` is ejkernel's name of the device, `device_kind|platform_version`, if known; otherwise it is made from
/// the entry's own device. `fields` are those of the ejkernel that will read the files, if its version differs from the
/// one that this program knows. Nothing is written unless every entry of an operation that ejkernel has can be.
///
/// # Errors
/// If a config holds something that ejkernel rejects, two devices have one name, a file there is no cache, or it cannot
/// be written.
pub fn export_ejkernel(
    folder: &Path,
    entries: &[(CacheKey, Arc<Entry>)],
    fingerprint: Option<&str>,
    fields: Option<&EjkernelFields>,
) -> Result<EjkernelExport, ExchangeError> {
    let mut export = EjkernelExport::default();
    let Some(table) = fields.or(SHIPPED.as_ref()) else { return Ok(export) };
    let mut files: BTreeMap<PathBuf, BTreeMap<String, (&CacheKey, Value)>> = BTreeMap::new();
    let mut measured: BTreeMap<(&DeviceIdentity, &str, &str), BTreeSet<&str>> = BTreeMap::new();
    for (key, entry) in entries {
        let (name, version) = split_op_id(&key.call.op_id);
        let operation = match table.operations.get(name) {
            Some(operation) if version_of(operation) == version => operation,
            Some(operation) => {
                let reason = format!("ejkernel {} has version {}", table.ejkernel, brief(&operation.version));
                export.skipped.insert(key.call.op_id.clone(), reason);
                continue;
            }
            None => {
                export
                    .skipped
                    .insert(key.call.op_id.clone(), format!("ejkernel {} has no such operation", table.ejkernel));
                continue;
            }
        };
        let config = checked(&entry.config, operation).map_err(|what| ExchangeError::Refused {
            call: key.call.clone(),
            peer: format!("ejkernel {}", table.ejkernel),
            what,
        })?;
        measured
            .entry((&key.device, &*key.call.op_id, own_key(&key.call.call_key)))
            .or_default()
            .insert(&*key.call.call_key);
        let device = fingerprint.map_or_else(|| fingerprint_of(key, entry), str::to_owned);
        let name = format!("{device}|{}|{}", key.call.op_id, own_key(&key.call.call_key));
        let file = files.entry(folder.join(&operation.file)).or_default();
        match file.get(&name) {
            // ejkernel has one config per call: that of the unmapped call, else of the largest `vmap`; among these the
            // one whose backward pass was measured too
            Some((other, _)) if other.device == key.device => {
                let rank = |key: &CacheKey| (preference(&key.call.call_key), Reverse(key.direction));
                if rank(key) < rank(other) {
                    file.insert(name, (key, config));
                }
            }
            Some((_, known)) if *known == config => {}
            Some((other, _)) => {
                return Err(ExchangeError::Ambiguous {
                    peer: "ejkernel",
                    call: key.call.clone(),
                    one: Box::new(other.device.clone()),
                    other: Box::new(key.device.clone()),
                    fingerprint: device,
                });
            }
            None => {
                file.insert(name, (key, config));
            }
        }
    }
    for (key, _) in files.values().flat_map(BTreeMap::values) {
        let call = own_key(&key.call.call_key);
        let others = measured.get(&(&key.device, &*key.call.op_id, call)).into_iter().flatten();
        let others: BTreeSet<String> =
            others.filter(|other| **other != key.call.call_key).map(|other| to_words(other)).collect();
        if call == key.call.call_key && others.is_empty() {
            continue;
        }
        let but = match others.is_empty() {
            true => String::new(),
            false => format!(", not what was measured {}", others.into_iter().collect::<Vec<_>>().join(" or ")),
        };
        export.other_batch.push(format!(
            "`{}:{call}` has what was measured {}{but}",
            key.call.op_id,
            to_words(&key.call.call_key)
        ));
    }
    // every file is read before the first is written
    let mut contents = Vec::new();
    for (path, new) in files {
        let mut content = if path.exists() { read(&path)? } else { Map::new() };
        export.written += new.len();
        content.extend(new.into_iter().map(|(name, (_, config))| (name, config)));
        contents.push((path, content));
    }
    for (path, content) in contents {
        let mut text = serde_json::to_vec_pretty(&content).unwrap_or_default();
        text.push(b'\n');
        write_atomic(&path, |file| file.write_all(&text)).map_err(io_error("write", &path))?;
        export.files.push(path);
    }
    Ok(export)
}

/// Reads the persistent cache files of a folder, or one of them.
///
/// The device has only what ejkernel knows: its kind and the platform's version. Such an entry never applies by itself
/// to a device whose hardware is known, only under a wider match mode.
///
/// # Errors
/// If a file cannot be read or is not a cache.
pub fn import_ejkernel(path: &Path) -> Result<EjkernelImport, ExchangeError> {
    let mut files = Vec::new();
    if path.is_dir() {
        for file in fs::read_dir(path).map_err(io_error("list", path))? {
            let file = file.map_err(io_error("list", path))?.path();
            if file.extension().is_some_and(|extension| extension == "json") {
                files.push(file);
            }
        }
        files.sort();
    } else {
        files.push(path.to_owned());
    }
    let EjkernelImport { mut entries, mut skipped } = EjkernelImport::default();
    for path in files {
        for (name, value) in read(&path)? {
            match (parse_key(&name), value) {
                (Some(key), Value::Object(config)) => {
                    let entry = Entry::new(Config::new(config));
                    entries.push((key, Arc::new(entry)));
                }
                (None, _) => skipped.push(format!("`{}`: `{}` is not a key", path.display(), name.escape_debug())),
                // what ejkernel writes for a call that was recorded under `jit`, and treats as a miss itself
                (Some(key), Value::Null) => {
                    skipped.push(format!("`{}`: `{}` has no config", path.display(), key.call));
                }
                (Some(key), _) => skipped.push(format!("`{}`: `{}` is not an object", path.display(), key.call)),
            }
        }
    }
    Ok(EjkernelImport { entries, skipped })
}

fn version_of(operation: &Operation) -> Option<u32> {
    brief(&operation.version).parse().ok()
}

fn brief(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// ejkernel's name of the device of an entry.
fn fingerprint_of(key: &CacheKey, entry: &Entry) -> String {
    let device = &key.device;
    if let Some(version) = device.hardware.get(PLATFORM_VERSION) {
        return format!("{}|{version}", device.device_kind);
    }
    let version = entry.provenance.as_ref().map(|from| from.environment.platform_version.as_str()).unwrap_or_default();
    if device.platform == "cpu" {
        // JAX's own CPU client, regardless of the plugin that measured
        return "cpu|cpu".to_owned();
    }
    // JAX prepends a line to a plugin's version
    let prefix = "PJRT C API\n";
    let version = version.strip_prefix(prefix).unwrap_or(version);
    format!("{}|{prefix}{version}", device.device_kind)
}

/// The key of a name, from the right: a device kind or version may hold a bar.
fn parse_key(name: &str) -> Option<CacheKey> {
    let mut parts = name.rsplitn(3, '|');
    let (call_key, op_id, fingerprint) = (parts.next()?, parts.next()?, parts.next()?);
    split_op_id(op_id).1?;
    let (device_kind, version) = fingerprint.split_once('|')?;
    let platform = ["cuda", "rocm", "tpu", "cpu"]
        .into_iter()
        .find(|platform| version.to_lowercase().contains(platform) || device_kind.to_lowercase().starts_with(platform))
        .unwrap_or("unknown");
    Some(CacheKey {
        call: Call::new(op_id, call_key),
        direction: Direction::Forward,
        device: DeviceIdentity {
            platform: platform.to_owned(),
            device_kind: device_kind.to_owned(),
            hardware: BTreeMap::from([(PLATFORM_VERSION.to_owned(), version.to_owned())]),
        },
    })
}

/// The config in ejkernel's form.
fn checked(config: &Config, operation: &Operation) -> Result<Value, String> {
    let mut fields = config.as_map().clone();
    known(&fields, &operation.fields, "")?;
    for (name, field) in &operation.fields {
        if fields.contains_key(name) {
            continue;
        }
        match &field.default {
            None => return Err(format!("it lacks the field `{name}`, which has no default")),
            // a typed config fills in its own defaults; without a type, missing fields stay missing
            Some(default) if !operation.typed => drop(fields.insert(name.clone(), default.clone())),
            Some(_) => {}
        }
    }
    Ok(Value::Object(fields))
}

fn known(given: &Map<String, Value>, fields: &BTreeMap<String, Field>, within: &str) -> Result<(), String> {
    for (name, value) in given {
        let Some(field) = fields.get(name) else { return Err(format!("it has no field `{within}{name}`")) };
        match (value, &field.fields) {
            (Value::Object(inner), Some(fields)) => known(inner, fields, &format!("{within}{name}."))?,
            (Value::Object(_), None) => return Err(format!("the field `{within}{name}` holds no object there")),
            _ => {}
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Map<String, Value>, ExchangeError> {
    let foreign = |what: String| ExchangeError::Foreign { peer: "ejkernel", path: path.to_owned(), what };
    let text = outside_file::bytes(path, MAX_FILE_BYTES).map_err(io_error("read", path))?;
    match serde_json::from_slice(&text) {
        Ok(Value::Object(content)) => Ok(content),
        Ok(_) => Err(foreign("it holds no JSON object".to_owned())),
        Err(error) => Err(foreign(error.to_string())),
    }
}
