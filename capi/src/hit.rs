//! A config that was found: everything that can be queried is prepared once, so that queries do not allocate.

use autotune_lowered_lookup::cache;
use autotune_lowered_lookup::printable::printable;
use serde_json::{Map, Value};

use crate::cache::Question;
use crate::fault::{Fault, Status};
use crate::layout::{HitInfo, Text, direction_number, flag, tier_number};

/// Operation and key of most calls together are shorter.
const SHORT_NAMES: usize = 48;

/// The content of an `atl_hit`; immutable. The fields that a look-up compares come first, beside the reference
/// count, because a look-up among many is bound by memory latency.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Hit {
    asked: OwnedQuery,
    /// The hash of its query.
    pub(crate) hash: u64,
    /// Each text in it ends in NUL.
    config: Map<String, Value>,
    direction: u32,
    tier: u32,
    flags: u32,
    // these end in NUL, too
    config_json: String,
    entry_json: String,
    device_json: String,
    notes: String,
}

/// An owned query.
#[derive(Debug)]
#[repr(C)]
struct OwnedQuery {
    device: u128,
    choice: u64,
    operation_bytes: usize,
    names_bytes: usize,
    /// The operation followed by the key, if they fit.
    short: [u8; SHORT_NAMES],
    /// Both, if they do not fit.
    long: Box<[u8]>,
}

impl OwnedQuery {
    fn new(question: &Question<'_>) -> Self {
        let names = [question.operation, question.key].concat();
        let (operation_bytes, names_bytes) = (question.operation.len(), names.len());
        let mut short = [0; SHORT_NAMES];
        short.iter_mut().zip(&names).for_each(|(place, byte)| *place = *byte);
        let long = if names_bytes > SHORT_NAMES { names.into() } else { Box::default() };
        Self { device: question.device.id, choice: question.choice(), operation_bytes, names_bytes, short, long }
    }

    fn names(&self) -> Option<(&[u8], &[u8])> {
        self.short.get(..self.names_bytes).unwrap_or(&self.long).split_at_checked(self.operation_bytes)
    }
}

impl Hit {
    pub(crate) fn new(question: &Question<'_>, hash: u64, found: &cache::Hit<'_>, tier: cache::Tier) -> Self {
        let entry = &found.entry;
        let mut config = entry.config.as_map().clone();
        config.values_mut().for_each(end_texts);
        let (mut flags, mut notes) = (0, Vec::new());
        for cache::Flag { kind, detail, .. } in &found.flags {
            let (bit, name) = flag(*kind);
            flags |= bit;
            notes.push(format!("{name}: {detail}"));
        }
        Self {
            asked: OwnedQuery::new(question),
            hash,
            config,
            direction: direction_number(found.key().direction),
            tier: tier_number(tier),
            flags,
            config_json: ended(entry.config.as_str()),
            entry_json: ended(&entry.to_text()),
            device_json: ended(&serde_json::to_string(found.key().device).unwrap_or_default()),
            notes: ended(&printable(&notes.join("; "))),
        }
    }

    /// Whether it matches a query.
    pub(crate) fn answers(&self, question: &Question<'_>) -> bool {
        self.asked.device == question.device.id
            && self.asked.choice == question.choice()
            && self.asked.names() == Some((question.operation, question.key))
    }

    /// A value of the config that has a wanted type.
    pub(crate) fn value<'a, T>(
        &'a self,
        path: &str,
        wanted: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, Fault> {
        let value = member(&self.config, path).ok_or_else(|| self.nothing_at(path))?;
        read(value).ok_or_else(|| {
            let text = format!("`{path}` of the config is {}, not {wanted}", kind(value));
            Fault::new(Status::WrongType, text)
        })
    }

    fn nothing_at(&self, path: &str) -> Fault {
        let config = self.config_json.trim_end_matches('\0');
        Fault::new(Status::NoMember, format!("the config has no `{path}`: it is {config}"))
    }

    /// Everything but the size.
    pub(crate) fn info(&self) -> HitInfo {
        HitInfo {
            struct_size: 0,
            flags: self.flags,
            tier: self.tier,
            direction: self.direction,
            reserved: 0,
            config: Text::of(&self.config_json),
            entry: Text::of(&self.entry_json),
            device: Text::of(&self.device_json),
            notes: Text::of(&self.notes),
        }
    }
}

fn ended(text: &str) -> String {
    [text, "\0"].concat()
}

/// Terminates each text in a value with a NUL.
fn end_texts(value: &mut Value) {
    match value {
        Value::String(text) => text.push('\0'),
        Value::Array(items) => items.iter_mut().for_each(end_texts),
        Value::Object(fields) => fields.values_mut().for_each(end_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The value at a path: a member of this name, or else nested members by the names around a point.
fn member<'a>(fields: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    fields.get(path).or_else(|| {
        path.match_indices('.').find_map(|(point, _)| {
            let (name, rest) = path.split_at_checked(point)?;
            within(fields.get(name)?, rest.strip_prefix('.')?)
        })
    })
}

fn within<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => member(fields, path),
        Value::Array(items) => {
            let (place, rest) = path.split_once('.').map_or((path, None), |(place, rest)| (place, Some(rest)));
            let item = items.get(place.parse::<usize>().ok()?)?;
            rest.map_or(Some(item), |rest| within(item, rest))
        }
        _ => None,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a number that is not an integer",
        Value::Number(number) if number.is_i64() => "an integer",
        Value::Number(_) => "an integer beyond 64 bits with a sign",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
