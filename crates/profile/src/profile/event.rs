//! Events and stats, read in place: nothing is allocated for either.

use std::borrow::Cow;

use crate::wire::{WireCursor, WireError, WireValue};

use super::xplane;

/// One event of a line.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Which event metadata names it.
    pub metadata_id: i64,
    /// Start in picoseconds after the line's timestamp; zero for an aggregated event.
    pub offset_ps: i64,
    /// How many occurrences an aggregated event stands for.
    pub num_occurrences: Option<i64>,
    /// Duration in picoseconds.
    pub duration_ps: i64,
    /// From the first stat to the event's end.
    stats: &'a [u8],
}

impl<'a> Event<'a> {
    /// Reads an event; stats are stepped over, and read by [`Event::stats`].
    ///
    /// # Errors
    ///
    /// Bytes that are no such message.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        Self::decode_with(bytes, |_, _| 0)
    }

    /// Reads an event and passes the bytes of each stat, and what follows it, to `stat`, which returns how much of that
    /// to skip.
    #[inline(always)]
    pub(super) fn decode_with(
        bytes: &'a [u8],
        mut stat: impl FnMut(&'a [u8], &'a [u8]) -> usize,
    ) -> Result<Self, WireError> {
        let mut event = Self { metadata_id: 0, offset_ps: 0, num_occurrences: None, duration_ps: 0, stats: &[] };
        let mut cursor = WireCursor::new(bytes);
        // the order of every writer: these three, and then the stats
        if let Some(id) = cursor.varint_after(1 << 3) {
            event.metadata_id = id as i64;
        }
        if let Some(offset) = cursor.varint_after(2 << 3) {
            event.offset_ps = offset as i64;
        }
        if let Some(duration) = cursor.varint_after(3 << 3) {
            event.duration_ps = duration as i64;
        }
        let (mut before, mut first_stat) = (cursor.position(), usize::MAX);
        while let Some(value) = cursor.bytes_after(4 << 3 | 2) {
            first_stat = first_stat.min(before);
            let rest = bytes.get(cursor.position()..).unwrap_or_default();
            cursor.step_over(stat(value, rest));
            before = cursor.position();
        }
        while let Some(field) = cursor.next() {
            match field? {
                (4, WireValue::Bytes(value)) => {
                    first_stat = first_stat.min(before);
                    let rest = bytes.get(cursor.position()..).unwrap_or_default();
                    cursor.step_over(stat(value, rest));
                }
                (1, WireValue::Varint(id)) => event.metadata_id = id as i64,
                (2, WireValue::Varint(offset)) => {
                    (event.offset_ps, event.num_occurrences) = (offset as i64, None);
                }
                (3, WireValue::Varint(duration)) => event.duration_ps = duration as i64,
                (5, WireValue::Varint(count)) => {
                    (event.offset_ps, event.num_occurrences) = (0, Some(count as i64));
                }
                (1..=5, _) => return Err(WireError { what: "wire type that no event field has", offset: before }),
                _ => {}
            }
            before = cursor.position();
        }
        event.stats = bytes.get(first_stat..).unwrap_or_default();
        Ok(event)
    }

    /// The event's stats, in file order.
    #[inline]
    pub fn stats(&self) -> Stats<'a> {
        Stats { cursor: WireCursor::new(self.stats) }
    }
}

/// The metadata id at the start of an event's bytes, where every writer puts it, if it is small.
#[inline]
pub(super) fn first_id(message: &[u8]) -> Option<u16> {
    match *message {
        [0x08, one @ 0..0x80, ..] => Some(u16::from(one)),
        [0x08, one, two @ 0..0x80, ..] => Some(u16::from(one & 0x7f) | u16::from(two) << 7),
        _ => None,
    }
}

/// Iterates over the stats of an event.
#[derive(Debug, Clone)]
pub struct Stats<'a> {
    cursor: WireCursor<'a>,
}

impl<'a> Iterator for Stats<'a> {
    type Item = Result<Stat<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        for field in self.cursor.by_ref() {
            match field {
                Ok((4, WireValue::Bytes(bytes))) => return Some(Stat::decode(bytes)),
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

/// A value with the id of its name.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Stat<'a> {
    /// Which stat metadata names it.
    pub metadata_id: i64,
    /// The value.
    pub value: StatValue<'a>,
}

/// A stat's value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum StatValue<'a> {
    /// None was written.
    Missing,
    /// A float.
    Double(f64),
    /// An unsigned integer.
    Uint(u64),
    /// A signed integer.
    Int(i64),
    /// Text, as far as it is UTF-8.
    Str(&'a [u8]),
    /// Anything.
    Bytes(&'a [u8]),
    /// Text: the name of the stat metadata with this id.
    Ref(u64),
    /// Text that the producer compressed.
    CompressedStr(&'a [u8]),
}

impl<'a> Stat<'a> {
    /// Reads a stat. If it has several values the last one counts, as in every protobuf reader.
    ///
    /// # Errors
    ///
    /// Bytes that are no such message.
    #[inline(always)]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        // most stats are a small id and a small number
        if let &[0x08, id @ 0..0x80, tag, value @ 0..0x80] = bytes {
            let value = match tag {
                0x18 => StatValue::Uint(u64::from(value)),
                0x20 => StatValue::Int(i64::from(value)),
                0x38 => StatValue::Ref(u64::from(value)),
                _ => return Self::decode_any(bytes),
            };
            return Ok(Self { metadata_id: i64::from(id), value });
        }
        Self::decode_any(bytes)
    }

    fn decode_any(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut stat = Self { metadata_id: 0, value: StatValue::Missing };
        for field in WireCursor::new(bytes) {
            match field? {
                (1, WireValue::Varint(id)) => stat.metadata_id = id as i64,
                (2, WireValue::Fixed64(bits)) => stat.value = StatValue::Double(f64::from_bits(bits)),
                (3, WireValue::Varint(value)) => stat.value = StatValue::Uint(value),
                (4, WireValue::Varint(value)) => stat.value = StatValue::Int(value as i64),
                (5, WireValue::Bytes(value)) => stat.value = StatValue::Str(value),
                (6, WireValue::Bytes(value)) => stat.value = StatValue::Bytes(value),
                (7, WireValue::Varint(value)) => stat.value = StatValue::Ref(value),
                (8, WireValue::Bytes(value)) => stat.value = StatValue::CompressedStr(value),
                (1..=8, _) => return Err(WireError { what: "wire type that no stat field has", offset: 0 }),
                _ => {}
            }
        }
        Ok(stat)
    }

    /// A stat of a plane or of event metadata.
    pub(super) fn of(stat: &'a xplane::XStat) -> Self {
        use xplane::x_stat::Value;
        let value = match &stat.value {
            None => StatValue::Missing,
            Some(Value::DoubleValue(value)) => StatValue::Double(*value),
            Some(Value::Uint64Value(value)) => StatValue::Uint(*value),
            Some(Value::Int64Value(value)) => StatValue::Int(*value),
            Some(Value::StrValue(value)) => StatValue::Str(value),
            Some(Value::BytesValue(value)) => StatValue::Bytes(value),
            Some(Value::RefValue(value)) => StatValue::Ref(*value),
            Some(Value::CompressedStrValue(value)) => StatValue::CompressedStr(value),
        };
        Self { metadata_id: stat.metadata_id, value }
    }
}

impl StatValue<'_> {
    /// The value if it is a 64-bit integer; an unsigned one keeps its bits, because profilers write ids either way.
    #[inline]
    pub fn as_integer(&self) -> Option<i64> {
        match *self {
            Self::Int(value) => Some(value),
            Self::Uint(value) => Some(value as i64),
            _ => None,
        }
    }
}

/// Text of a file: invalid UTF-8 becomes a replacement character.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
