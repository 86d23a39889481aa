//! Entries as JSON: one object with all of them, or one per line, to be reviewed and merged like any text.
//!
//! `{"schema":1,"entries":[…]}`, or in a `.jsonl` file one entry per line: `device`, `op_id`, `call_key` and `config`
//! are needed; `direction` is `forward` by default; `provenance` may be left out. Written in the keys' order, so that
//! equal caches are equal files.
//!
//! A `device` is an identity as `device` prints it, or for people `PLATFORM:KIND`, such as `cuda:NVIDIA H200`: a device
//! of which only that is known. It then belongs to no machine, unless that machine has no hardware part either:
//! `--match kind` lets it apply.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::ExchangeError;
use crate::cache::{COMPILER_OPTIONS, why_refused};
use crate::cache::{CacheKey, Entry};
use crate::call::{Call, Direction};
use crate::device::DeviceIdentity;
use crate::outside_file;
use crate::whole_file::write_whole;

const SCHEMA: u64 = 1;
/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(deserialize_with = "device")]
    device: DeviceIdentity,
    #[serde(flatten)]
    call: Call,
    #[serde(default = "forward")]
    direction: Direction,
    #[serde(flatten)]
    entry: Entry,
}

fn forward() -> Direction {
    Direction::Forward
}

/// A device in full, or by name.
fn device<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DeviceIdentity, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "a device is an object with `platform` and `device_kind`, or a string \
                                   `PLATFORM:KIND`"
    )]
    enum Named {
        InFull(DeviceIdentity),
        ByName(String),
    }
    let text = match Named::deserialize(deserializer)? {
        Named::InFull(device) => return Ok(device),
        Named::ByName(text) => text,
    };
    let wrong = |why: &str| D::Error::custom(format!("`{}` is not a device: {why}", text.escape_debug()));
    let Some((platform, kind)) =
        text.split_once(':').filter(|(platform, kind)| !platform.is_empty() && !kind.is_empty())
    else {
        return Err(wrong("write `PLATFORM:KIND`, such as `cuda:NVIDIA H200`"));
    };
    // the name that `cache ls` prints for a device with its hardware would become a kind that no device has
    if kind.ends_with(')') && kind.contains('=') {
        return Err(wrong("give its hardware as an object, as `cache ls --format json` prints it"));
    }
    Ok(DeviceIdentity { platform: platform.to_owned(), device_kind: kind.to_owned(), hardware: BTreeMap::new() })
}

/// The layout of entries in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonForm {
    /// All in one object.
    Object,
    /// One per line.
    Lines,
}

impl JsonForm {
    /// Lines if the name ends in `.jsonl`, else one object.
    pub fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|extension| extension == "jsonl") { Self::Lines } else { Self::Object }
    }
}

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
    let mut sorted: Vec<&(CacheKey, Arc<Entry>)> = entries.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let is_empty = sorted.is_empty();
    let rows = sorted.into_iter().map(|(key, entry)| Row {
        device: key.device.clone(),
        call: key.call.clone(),
        direction: key.direction,
        entry: Entry::clone(entry),
    });
    let write = |file: &mut fs::File| -> io::Result<()> {
        let mut out = io::BufWriter::new(file);
        let lines = form == JsonForm::Lines;
        if !lines {
            writeln!(out, "{{\"schema\":{SCHEMA},\"entries\":[")?;
        }
        for (number, row) in rows.enumerate() {
            if number > 0 {
                out.write_all(if lines { b"\n" } else { b",\n" })?;
            }
            serde_json::to_writer(&mut out, &row)?;
        }
        match (lines, is_empty) {
            (true, true) => {}
            (true, false) => out.write_all(b"\n")?,
            (false, _) => out.write_all(b"\n]}\n")?,
        }
        out.flush()
    };
    write_whole(path, write).map_err(|source| ExchangeError::Io { action: "write", path: path.to_owned(), source })
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
    let wrong = |what: String| ExchangeError::NotEntries { path: path.to_owned(), what };
    let io = |source| ExchangeError::Io { action: "read", path: path.to_owned(), source };
    let text = outside_file::text(path, MAX_FILE_BYTES).map_err(io)?;
    if form == JsonForm::Lines {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        return lines
            .map(|(number, line)| {
                let row: Row = serde_json::from_str(line).map_err(|error| wrong(in_line(number + 1, &error)))?;
                allowed(to_pair(row)).map_err(|why| wrong(format!("line {}: the entry {why}", number + 1)))
            })
            .collect();
    }
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match value.get("schema").and_then(Value::as_u64) {
        Some(SCHEMA) => {}
        Some(schema) => return Err(wrong(format!("its schema is {schema}, this program reads {SCHEMA}"))),
        None => return Err(wrong("it has no `schema`".to_owned())),
    }
    let Some(Value::Array(rows)) = value.get("entries") else { return Err(wrong("it has no `entries`".to_owned())) };
    rows.iter()
        .enumerate()
        .map(|(number, row)| match Row::deserialize(row) {
            Ok(row) => allowed(to_pair(row)).map_err(|why| wrong(format!("entry {number} {why}"))),
            Err(error) => Err(wrong(format!("entry {number}: {error}"))),
        })
        .collect()
}

/// The pair, or why no entry may be such.
fn allowed(pair: (CacheKey, Arc<Entry>)) -> Result<(CacheKey, Arc<Entry>), String> {
    let why = (pair.0.call.op_id == COMPILER_OPTIONS).then(|| why_refused(&pair.1.config)).flatten();
    why.map_or(Ok(pair), Err)
}

/// The place in a file of an error in one of its lines, then what is wrong.
fn in_line(number: usize, error: &serde_json::Error) -> String {
    let (text, column) = (error.to_string(), error.column());
    // the error's own text ends with its place in this line alone
    match text.strip_suffix(&format!(" at line {} column {column}", error.line())) {
        Some(what) => format!("line {number}, column {column}: {what}"),
        None => format!("line {number}: {text}"),
    }
}

fn to_pair(row: Row) -> (CacheKey, Arc<Entry>) {
    let Row { device, call, direction, entry } = row;
    (CacheKey { call, direction, device }, Arc::new(entry))
}
