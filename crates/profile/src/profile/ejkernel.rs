//! ejkernel's semantics of [`Profiler`], in `n log n`.
//!
//! Its answer for a name is that of the name's last event by start, so only the children of that event are searched.

use std::collections::HashMap;
use std::fmt::Write;

use super::event::{Event, StatValue, text};
use regex::bytes::Regex;

use super::interval::{Interval, merge, union_ps};
use super::profiler::{Dropped, Profiler, Timings};
use super::space::Plane;

#[derive(Clone, Copy)]
struct KeptEvent {
    time: Interval,
    name: u32,
}

pub(super) fn timings(profiler: &Profiler, plane: Plane<'_>) -> Timings {
    let mut dropped = Dropped::default();
    let mut names = EventNames::new(plane);
    let mut last: Vec<Option<KeptEvent>> = Vec::new();
    let mut overwritten = 0;
    let with_regex = profiler.event_filter_regex.is_some();
    each_kept(profiler, plane, &mut names, &mut dropped, |event, name| {
        // with a regex the children's time counts, which is never negative
        if !name.starts_with(&profiler.prefix_filter) || (!with_regex && event.time.end_ps < event.time.start_ps) {
            return;
        }
        let place = event.name as usize;
        if last.len() <= place {
            last.resize(place + 1, None);
        }
        if let Some(slot) = last.get_mut(place) {
            overwritten += u64::from(slot.is_some());
            // among equal starts the later one in the file, as in a stable sort
            if slot.is_none_or(|known| event.time.start_ps >= known.time.start_ps) {
                *slot = Some(event);
            }
        }
    });
    dropped.overwritten = overwritten;
    let children =
        profiler.event_filter_regex.as_ref().map(|regex| Children::find(profiler, plane, &mut names, regex, &last));
    let mut samples = std::collections::BTreeMap::new();
    for (name, event) in names.list.iter().zip(&last) {
        let Some(event) = event else { continue };
        let ps = match &children {
            Some(children) => union_ps(children.of(event)),
            None => event.time.length_ps(),
        };
        samples.insert(name.clone(), vec![ps as f64 / 1e12]);
    }
    Timings { samples, dropped, ..Timings::default() }
}

/// Iterates over the events that ejkernel keeps, in file order, with their names.
fn each_kept<'a>(
    profiler: &Profiler,
    plane: Plane<'a>,
    names: &mut EventNames<'a>,
    dropped: &mut Dropped,
    mut each: impl FnMut(KeptEvent, &str),
) {
    let cap = profiler.max_events_per_profile.unwrap_or(usize::MAX);
    let min_duration = profiler.min_duration_ps();
    let (mut read, mut all, mut kept) = (0_u64, 0_u64, 0);
    for line in plane.lines() {
        all += line.event_count();
        if kept >= cap {
            continue;
        }
        for event in line.events() {
            if kept >= cap {
                break;
            }
            read += 1;
            let Ok(event) = event else { continue };
            if event.duration_ps < min_duration {
                dropped.too_short += 1;
                continue;
            }
            kept += 1;
            let end_ps = event.offset_ps.saturating_add(event.duration_ps);
            let time = Interval { start_ps: event.offset_ps, end_ps };
            let name = names.number(&event);
            each(KeptEvent { time, name }, names.list.get(name as usize).map_or("", String::as_str));
        }
    }
    dropped.beyond_cap = all - read;
}

/// Every event that matches and lies where some name's last event is, by start. Others have no parent, so the rest of a
/// large capture is not kept.
struct Children {
    sorted: Vec<KeptEvent>,
}

impl Children {
    fn find<'a>(
        profiler: &Profiler,
        plane: Plane<'a>,
        names: &mut EventNames<'a>,
        regex: &Regex,
        parents: &[Option<KeptEvent>],
    ) -> Self {
        let matches: Vec<bool> = names.list.iter().map(|name| regex.is_match(name.as_bytes())).collect();
        let mut inside: Vec<Interval> = parents.iter().flatten().map(|parent| parent.time).collect();
        inside.retain(|time| time.start_ps <= time.end_ps);
        merge(&mut inside);
        let mut sorted = Vec::new();
        each_kept(profiler, plane, names, &mut Dropped::default(), |event, _| {
            let place = inside.partition_point(|time| time.end_ps < event.time.start_ps);
            let is_inside = inside.get(place).is_some_and(|time| time.start_ps <= event.time.start_ps);
            if is_inside && matches.get(event.name as usize).copied().unwrap_or(false) {
                sorted.push(event);
            }
        });
        sorted.sort_by_key(|event| event.time.start_ps);
        Self { sorted }
    }

    /// The events of other names that lie within an event, whichever line they are of.
    fn of(&self, parent: &KeptEvent) -> Vec<Interval> {
        let first = self.sorted.partition_point(|event| event.time.start_ps < parent.time.start_ps);
        let after = self.sorted.get(first..).unwrap_or_default();
        after
            .iter()
            .take_while(|event| event.time.start_ps <= parent.time.end_ps)
            .filter(|event| event.name != parent.name && event.time.end_ps <= parent.time.end_ps)
            .map(|event| event.time)
            .collect()
    }
}

/// A stat's value without floats, so that it can be looked up: kind, number, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Raw<'a>(u8, u64, &'a [u8]);

impl<'a> Raw<'a> {
    const ABSENT: Self = Raw(0, 0, b"");

    fn of(value: StatValue<'a>) -> Self {
        match value {
            StatValue::Missing => Raw(1, 0, b""),
            StatValue::Double(value) => Raw(2, value.to_bits(), b""),
            StatValue::Uint(value) => Raw(3, value, b""),
            StatValue::Int(value) => Raw(4, value as u64, b""),
            StatValue::Ref(value) => Raw(5, value, b""),
            StatValue::Str(value) => Raw(6, 0, value),
            StatValue::Bytes(value) => Raw(7, 0, value),
            // ejkernel's protobuf schema does not know the field
            StatValue::CompressedStr(_) => Raw(1, 0, b""),
        }
    }

    /// As Python's `str`, with `None` for zero and missing values.
    fn python(self, plane: Plane<'_>) -> String {
        match self {
            Raw(5, id, _) if id != 0 => text(plane.stat_name(id as i64).unwrap_or_default()).into_owned(),
            Raw(2, bits, _) if f64::from_bits(bits) != 0.0 => python_float(f64::from_bits(bits)),
            Raw(3, value, _) if value != 0 => value.to_string(),
            Raw(4, value, _) if value != 0 => (value as i64).to_string(),
            Raw(6, _, bytes) if !bytes.is_empty() => text(bytes).into_owned(),
            Raw(7, _, bytes) if !bytes.is_empty() => python_bytes(bytes),
            _ => "None".to_owned(),
        }
    }
}

/// Python's `repr` of a float: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
fn python_float(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    if (1e-4..1e16).contains(&value.abs()) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, size) = exponent.strip_prefix('-').map_or(('+', exponent), |size| ('-', size));
    format!("{digits}e{sign}{size:0>2}")
}

/// Python's `repr` of bytes.
fn python_bytes(bytes: &[u8]) -> String {
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { '"' } else { '\'' };
    let mut text = format!("b{quote}");
    for &byte in bytes {
        match byte {
            b'\\' => text += "\\\\",
            b'\t' => text += "\\t",
            b'\n' => text += "\\n",
            b'\r' => text += "\\r",
            0x20..0x7f if char::from(byte) == quote => text.extend(['\\', quote]),
            0x20..0x7f => text.push(char::from(byte)),
            // writing to a string never fails
            _ => _ = write!(text, "\\x{byte:02x}"),
        }
    }
    text.push(quote);
    text
}

/// Numbers the names `name(program_id-scope_range_id)` of a plane's events.
pub(super) struct EventNames<'a> {
    plane: Plane<'a>,
    ids: [Vec<i64>; 4],
    known: HashMap<(i64, [Raw<'a>; 3]), u32>,
    numbers: HashMap<String, u32>,
    pub(super) list: Vec<String>,
}

impl<'a> EventNames<'a> {
    pub(super) fn new(plane: Plane<'a>) -> Self {
        let ids = [&b"hlo_module"[..], b"program_id", b"run_id", b"scope_range_id"].map(|wanted| {
            plane.all_stat_names().filter(|(_, name)| *name == wanted).map(|(id, _)| id).collect::<Vec<_>>()
        });
        Self { plane, ids, known: HashMap::new(), numbers: HashMap::new(), list: Vec::new() }
    }

    pub(super) fn number(&mut self, event: &Event<'a>) -> u32 {
        let mut found = [Raw::ABSENT; 4];
        for stat in event.stats().filter_map(Result::ok) {
            for (slot, ids) in found.iter_mut().zip(&self.ids) {
                if ids.contains(&stat.metadata_id) {
                    *slot = Raw::of(stat.value);
                }
            }
        }
        let [module, program, run, scope] = found;
        let program = if program == Raw::ABSENT { run } else { program };
        let own = if module == Raw::ABSENT { event.metadata_id } else { 0 };
        if let Some(&number) = self.known.get(&(own, [module, program, scope])) {
            return number;
        }
        let name = match module {
            Raw::ABSENT => text(self.plane.event_metadata(own).map_or(b"", |metadata| metadata.name())).into_owned(),
            _ => module.python(self.plane),
        };
        let name = format!("{name}({}-{})", program.python(self.plane), scope.python(self.plane));
        let next = self.list.len() as u32;
        let list = &mut self.list;
        let number = *self.numbers.entry(name).or_insert_with_key(|name| {
            list.push(name.clone());
            next
        });
        self.known.insert((own, [module, program, scope]), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_python_prints_them() {
        // repr() in Python 3.11
        let floats = [(1.0, "1.0"), (0.1, "0.1"), (1e16, "1e+16"), (1.5e-7, "1.5e-07"), (-2.5e300, "-2.5e+300")];
        for (value, text) in floats {
            assert_eq!(python_float(value), text);
        }
        assert_eq!(python_bytes(b"a'b\n\x00\xff\\"), "b\"a'b\\n\\x00\\xff\\\\\"");
        assert_eq!(python_bytes(b"\"'"), "b'\"\\''");
    }
}
