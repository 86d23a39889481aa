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
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::entry::Entry;
use super::key::CacheKey;
use super::option_policy::{COMPILER_OPTIONS, why_refused};
use crate::call::{Call, Direction};
use crate::device::DeviceIdentity;

const SCHEMA: u64 = 1;

#[derive(Serialize, Deserialize)]
struct JsonEntry {
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

/// Writes entries in the order of their keys.
///
/// # Errors
/// If `out` fails.
pub fn write_entries(form: JsonForm, entries: &[(CacheKey, Arc<Entry>)], out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let mut sorted: Vec<&(CacheKey, Arc<Entry>)> = entries.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let (opening, between, closing) = match form {
        JsonForm::Object => (format!("{{\"schema\":{SCHEMA},\"entries\":[\n"), ",\n", "\n]}\n"),
        JsonForm::Lines => (String::new(), "\n", if sorted.is_empty() { "" } else { "\n" }),
    };
    out.write_all(opening.as_bytes())?;
    for (number, (key, entry)) in sorted.into_iter().enumerate() {
        if number > 0 {
            out.write_all(between.as_bytes())?;
        }
        let CacheKey { call, direction, device } = key.clone();
        serde_json::to_writer(&mut out, &JsonEntry { device, call, direction, entry: Entry::clone(entry) })?;
    }
    out.write_all(closing.as_bytes())?;
    out.flush()
}

/// Reads what [`write_entries`] wrote, or what `cache ls --format json` prints.
///
/// # Errors
/// If the text is something else, or an entry is invalid or sets what no entry may, with its number.
pub fn read_entries(form: JsonForm, text: &str) -> Result<Vec<(CacheKey, Arc<Entry>)>, String> {
    if form == JsonForm::Lines {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        return lines
            .map(|(number, line)| {
                let entry = serde_json::from_str(line).map_err(|error| in_line(number + 1, &error))?;
                allowed(entry).map_err(|why| format!("line {}: the entry {why}", number + 1))
            })
            .collect();
    }
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match value.get("schema").and_then(Value::as_u64) {
        Some(SCHEMA) => {}
        Some(schema) => return Err(format!("its schema is {schema}, this program reads {SCHEMA}")),
        None => return Err("it has no `schema`".to_owned()),
    }
    let Some(Value::Array(entries)) = value.get("entries") else { return Err("it has no `entries`".to_owned()) };
    entries
        .iter()
        .enumerate()
        .map(|(number, entry)| match JsonEntry::deserialize(entry) {
            Ok(entry) => allowed(entry).map_err(|why| format!("entry {number} {why}")),
            Err(error) => Err(format!("entry {number}: {error}")),
        })
        .collect()
}

/// The pair, or why no entry may be such.
fn allowed(JsonEntry { device, call, direction, entry }: JsonEntry) -> Result<(CacheKey, Arc<Entry>), String> {
    let why = (call.op_id == COMPILER_OPTIONS).then(|| why_refused(&entry.config)).flatten();
    why.map_or(Ok((CacheKey { call, direction, device }, Arc::new(entry))), Err)
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
