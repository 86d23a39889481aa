//! Writes a plane: names once, each line's events by their starts.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use crate::wire::Message;

/// A stat's value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum WrittenStat<'a> {
    /// A number.
    Int(i64),
    /// Text, which is stored once.
    Text(&'a str),
}

/// A plane under construction. Protobuf messages can be concatenated, so its bytes are a capture of their own and,
/// appended to another capture, one more plane of that.
#[derive(Debug, Default)]
pub struct PlaneWriter {
    name: String,
    lines: Vec<WrittenLine>,
    events: Numbers,
    stats: Numbers,
    /// Stats of all events, encoded.
    encoded: Message,
    /// Entries of the programs, encoded.
    programs: Message,
}

#[derive(Debug)]
struct WrittenLine {
    name: String,
    timestamp_ns: i64,
    events: Vec<WrittenEvent>,
}

#[derive(Debug, Clone, Default)]
struct WrittenEvent {
    /// The number of its name; 0 while it is open.
    name: u64,
    offset_ps: i64,
    duration_ps: i64,
    /// Its part of the encoded stats.
    stats: Range<usize>,
}

/// A number for each text, from one.
#[derive(Debug, Default)]
struct Numbers(HashMap<String, u64>);

impl Numbers {
    fn of(&mut self, text: &str) -> u64 {
        if let Some(number) = self.0.get(text) {
            return *number;
        }
        let number = self.0.len() as u64 + 1;
        self.0.insert(text.to_owned(), number);
        number
    }

    /// As entries of a map from number to metadata.
    fn write(&self, field: u32, plane: &mut Message) {
        let mut list: Vec<(u64, &str)> = self.0.iter().map(|(text, number)| (*number, text.as_str())).collect();
        list.sort_unstable();
        for (number, text) in list {
            plane.message(field, |entry| {
                entry.number(field::KEY, number).message(field::VALUE, |metadata| {
                    metadata.number(field::METADATA_ID, number).bytes(field::METADATA_NAME, text.as_bytes());
                });
            });
        }
    }
}

/// Numbers of fields (openxla/xla, `xplane.proto`).
mod field {
    pub(super) const SPACE_PLANES: u32 = 1;
    pub(super) const PLANE_NAME: u32 = 2;
    pub(super) const PLANE_LINES: u32 = 3;
    pub(super) const EVENT_METADATA: u32 = 4;
    pub(super) const STAT_METADATA: u32 = 5;
    pub(super) const KEY: u32 = 1;
    pub(super) const VALUE: u32 = 2;
    pub(super) const METADATA_ID: u32 = 1;
    pub(super) const METADATA_NAME: u32 = 2;
    pub(super) const METADATA_STATS: u32 = 5;
    pub(super) const LINE_ID: u32 = 1;
    pub(super) const LINE_NAME: u32 = 2;
    pub(super) const LINE_TIMESTAMP_NS: u32 = 3;
    pub(super) const LINE_EVENTS: u32 = 4;
    pub(super) const EVENT_METADATA_ID: u32 = 1;
    pub(super) const EVENT_OFFSET_PS: u32 = 2;
    pub(super) const EVENT_DURATION_PS: u32 = 3;
    pub(super) const EVENT_STATS: u32 = 4;
    pub(super) const STAT_METADATA_ID: u32 = 1;
    pub(super) const STAT_INT64: u32 = 4;
    pub(super) const STAT_BYTES: u32 = 6;
    pub(super) const STAT_REF: u32 = 7;
}

impl PlaneWriter {
    /// A plane without lines.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds a line whose events count from `timestamp_ns`, and returns its index. A line without events is not written.
    pub fn line(&mut self, name: &str, timestamp_ns: i64) -> usize {
        self.lines.push(WrittenLine { name: name.to_owned(), timestamp_ns, events: Vec::new() });
        self.lines.len() - 1
    }

    /// Adds an event to a line, from and until a number of nanoseconds after the line's own time. Of two that begin and
    /// end together, the one added first contains the other.
    pub fn event(&mut self, line: usize, name: &str, times_ns: (i64, i64), stats: &[(&str, WrittenStat<'_>)]) {
        let place = self.open(line);
        self.close((line, place), name, times_ns, stats);
    }

    /// Adds an open event, and returns its index in the line: it is not written until it is closed.
    pub fn open(&mut self, line: usize) -> usize {
        let Some(line) = self.lines.get_mut(line) else { return usize::MAX };
        line.events.push(WrittenEvent::default());
        line.events.len() - 1
    }

    /// Sets the event at a line and index.
    pub fn close(
        &mut self,
        (line, place): (usize, usize),
        name: &str,
        (start_ns, end_ns): (i64, i64),
        stats: &[(&str, WrittenStat<'_>)],
    ) {
        let Some(event) = self.lines.get_mut(line).and_then(|line| line.events.get_mut(place)) else { return };
        let begin = self.encoded.0.len();
        for (name, value) in stats {
            let name = self.stats.of(name);
            let text = if let WrittenStat::Text(text) = value { self.stats.of(text) } else { 0 };
            self.encoded.message(field::EVENT_STATS, |stat| {
                stat.number(field::STAT_METADATA_ID, name);
                match value {
                    WrittenStat::Int(value) => stat.number(field::STAT_INT64, *value as u64),
                    WrittenStat::Text(_) => stat.number(field::STAT_REF, text),
                };
            });
        }
        *event = WrittenEvent {
            name: self.events.of(name),
            offset_ps: start_ns.saturating_mul(1000),
            duration_ps: end_ns.saturating_sub(start_ns).max(0).saturating_mul(1000),
            stats: begin..self.encoded.0.len(),
        };
    }

    /// Adds a program as JAX leaves it in `/host:metadata`: an event's metadata with the program's id and `HloProto`.
    pub fn program(&mut self, name: &str, id: i64, proto: &[u8]) {
        let (of_id, of_proto) = (self.stats.of("program_id"), self.stats.of("Hlo Proto"));
        self.programs.message(field::EVENT_METADATA, |entry| {
            entry.number(field::KEY, id as u64).message(field::VALUE, |metadata| {
                let name = format!("{name}({id})");
                metadata.number(field::METADATA_ID, id as u64).bytes(field::METADATA_NAME, name.as_bytes());
                metadata.message(field::METADATA_STATS, |stat| {
                    stat.number(field::STAT_METADATA_ID, of_id).number(field::STAT_INT64, id as u64);
                });
                metadata.message(field::METADATA_STATS, |stat| {
                    stat.number(field::STAT_METADATA_ID, of_proto).bytes(field::STAT_BYTES, proto);
                });
            });
        });
    }

    /// The bytes of an XSpace with only this plane, its lines in order of addition.
    pub fn to_space(&self) -> Vec<u8> {
        self.to_space_by(|_| ())
    }

    /// The same with the lines sorted by `key` of their names.
    pub fn to_space_by<K: Ord>(&self, key: impl Fn(&str) -> K) -> Vec<u8> {
        let mut plane = Message::default();
        plane.bytes(field::PLANE_NAME, self.name.as_bytes());
        let mut lines: Vec<(u64, &WrittenLine)> = (1..).zip(&self.lines).collect();
        lines.sort_by_key(|(_, line)| key(&line.name));
        for (id, line) in lines {
            let mut events: Vec<&WrittenEvent> = line.events.iter().filter(|event| event.name != 0).collect();
            if events.is_empty() {
                continue;
            }
            // of simultaneous ones the longest first, since the others are inside it
            events.sort_by_key(|event| (event.offset_ps, Reverse(event.duration_ps)));
            plane.message(field::PLANE_LINES, |written| {
                written.number(field::LINE_ID, id).bytes(field::LINE_NAME, line.name.as_bytes());
                written.number(field::LINE_TIMESTAMP_NS, line.timestamp_ns as u64);
                for event in events {
                    written.message(field::LINE_EVENTS, |written| self.write_event(event, written));
                }
            });
        }
        plane.0.extend_from_slice(&self.programs.0);
        self.events.write(field::EVENT_METADATA, &mut plane);
        self.stats.write(field::STAT_METADATA, &mut plane);
        let mut space = Message::default();
        space.bytes(field::SPACE_PLANES, &plane.0);
        space.0
    }

    fn write_event(&self, event: &WrittenEvent, written: &mut Message) {
        written.number(field::EVENT_METADATA_ID, event.name);
        written.number(field::EVENT_OFFSET_PS, event.offset_ps as u64);
        written.number(field::EVENT_DURATION_PS, event.duration_ps as u64);
        written.0.extend_from_slice(self.encoded.0.get(event.stats.clone()).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{StatValue, XSpace};

    #[test]
    fn what_is_written_is_read_behind_other_planes_too() {
        let mut written = PlaneWriter::new("/host:one");
        let line = written.line("first", -5);
        written.event(line, "inner", (10, 20), &[("n", WrittenStat::Int(-7))]);
        written.event(
            line,
            "outer",
            (10, 40),
            &[("text", WrittenStat::Text("same")), ("more", WrittenStat::Text("same"))],
        );
        // it contains events that begin and end with it, even though it is closed later
        let line = written.line("second", 0);
        let outer = written.open(line);
        written.event(line, "inner", (1, 2), &[]);
        written.open(line);
        written.close((line, outer), "outer", (1, 2), &[]);
        let other = PlaneWriter::new("/host:two").to_space();
        let space = XSpace::from_bytes([other, written.to_space()].concat()).unwrap();
        let names: Vec<String> = space.planes().map(|plane| plane.name().into_owned()).collect();
        assert_eq!(names, ["/host:two", "/host:one"]);
        let plane = space.planes().nth(1).unwrap();
        let line = plane.lines().next().unwrap();
        assert_eq!((&*line.name(), line.base_ps(), space.base_ns()), ("first", Some(0), -5));
        let events: Vec<_> = line.events().map(Result::unwrap).collect();
        let shown = |place: usize| {
            let event = &events[place];
            let name = plane.event_metadata(event.metadata_id).unwrap().name().to_vec();
            (String::from_utf8(name).unwrap(), event.offset_ps, event.duration_ps)
        };
        assert_eq!(shown(0), ("outer".to_owned(), 10_000, 30_000));
        assert_eq!(shown(1), ("inner".to_owned(), 10_000, 10_000));
        let stats = |place: usize| {
            let stats = events[place].stats().map(Result::unwrap);
            stats.map(|stat| (plane.stat_name(stat.metadata_id).unwrap(), stat.value)).collect::<Vec<_>>()
        };
        assert_eq!(stats(1), [(&b"n"[..], StatValue::Int(-7))]);
        let texts: Vec<_> = stats(0).into_iter().map(|(_, value)| plane.stat_text(value).unwrap()).collect();
        assert_eq!(texts, ["same", "same"]);
        let second = plane.lines().nth(1).unwrap();
        let ids = second.events().map(|event| event.unwrap().metadata_id);
        let names: Vec<_> = ids.map(|id| plane.event_metadata(id).unwrap().name()).collect();
        assert_eq!(names, [b"outer", b"inner"]);
    }
}
