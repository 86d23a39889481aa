//! An XSpace in memory: metadata decoded, lines indexed, events read in place.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use bytes::Bytes;
use prost::Message;
use rayon::prelude::*;

use crate::wire::{WireCursor, WireError, WireValue};

use super::error::ProfileErrorKind;
use super::event::{Event, Stat, StatValue, first_id, text};
use super::id_table::IdTable;
use super::other_file::{OTHER_MESSAGE, other_file};
use super::xplane;

/// Bytes of a line per unit of work for a thread.
const CHUNK_BYTES: usize = 256 << 10;

/// Maximum decompressed size of a string.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// A capture of one host: planes, their lines, and the lines' events.
#[derive(Debug)]
pub struct XSpace {
    pub(super) bytes: Bytes,
    planes: Vec<PlaneIndex>,
    errors: Vec<String>,
    warnings: Vec<String>,
    base_ns: i64,
    pub(super) held_events: usize,
}

/// Number of executions' events that an analysis holds instead of reading them twice: 24 MiB.
const HELD_EVENTS: usize = 1 << 20;

#[derive(Debug)]
struct PlaneIndex {
    metadata: xplane::XPlane,
    /// Names of stats, and the index of each id's.
    stat_names: Vec<Bytes>,
    stat_places: IdTable,
    lines: Vec<LineIndex>,
}

/// The ranges of a line's parts, from the start of the XSpace.
#[derive(Debug, Default)]
struct LineIndex {
    id: i64,
    name: Range<usize>,
    display_name: Range<usize>,
    timestamp_ns: i64,
    events: u64,
    /// Pieces of the line that begin and end between two fields.
    chunks: Vec<Range<usize>>,
}

impl XSpace {
    /// Indexes a serialized XSpace. No event is decoded yet.
    ///
    /// # Errors
    ///
    /// Bytes that are not an XSpace, or that end early.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self, ProfileErrorKind> {
        let bytes: Bytes = bytes.into();
        if bytes.is_empty() {
            return Err(ProfileErrorKind::Empty);
        }
        let indexed = Self::index(bytes.clone());
        // another message's bytes may be read as planes that have nothing
        let has_name = |space: &Self| space.planes.iter().any(|plane| !plane.metadata.name.is_empty());
        if indexed.as_ref().is_ok_and(has_name) {
            return indexed;
        }
        let is_message = indexed.as_ref().is_ok_and(|space| !space.planes.is_empty());
        match other_file(&bytes).or(is_message.then_some(OTHER_MESSAGE)) {
            Some((what, next)) => Err(ProfileErrorKind::Other { what, next }),
            None => indexed,
        }
    }

    fn index(bytes: Bytes) -> Result<Self, ProfileErrorKind> {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let (mut planes, mut lines) = (Vec::new(), Vec::new());
        let wire = |base, part| move |error: WireError| ProfileErrorKind::wire(&error, base, part);
        let mut cursor = WireCursor::new(&bytes);
        while let Some(field) = cursor.next() {
            match field.map_err(wire(0, "the XSpace"))? {
                (1, WireValue::Bytes(plane)) => {
                    let start = cursor.position() - plane.len();
                    let mut inner = WireCursor::new(plane);
                    while let Some(field) = inner.next() {
                        if let (3, WireValue::Bytes(line)) = field.map_err(wire(start, "a plane"))? {
                            let end = start + inner.position();
                            lines.push((planes.len(), end - line.len()..end));
                        }
                    }
                    let source = bytes.slice(start..cursor.position());
                    let metadata = xplane::XPlane::decode(source)
                        .map_err(|error| ProfileErrorKind::Metadata { plane: planes.len(), what: error.to_string() })?;
                    let stats = &metadata.stat_metadata;
                    let stat_names = stats.values().map(|stat| stat.name.clone()).collect();
                    let stat_places = IdTable::new(stats.keys().copied().zip(0..));
                    planes.push(PlaneIndex { metadata, stat_names, stat_places, lines: Vec::new() });
                }
                (2, WireValue::Bytes(message)) => errors.push(text(message).into_owned()),
                (3, WireValue::Bytes(message)) => warnings.push(text(message).into_owned()),
                _ => {}
            }
        }
        let indexed: Vec<_> = lines.into_par_iter().map(|(plane, range)| (plane, index_line(&bytes, range))).collect();
        for (plane, line) in indexed {
            if let Some(plane) = planes.get_mut(plane) {
                plane.lines.push(line?);
            }
        }
        let with_events = planes.iter().flat_map(|plane| &plane.lines).filter(|line| line.events > 0);
        let base_ns = with_events.map(|line| line.timestamp_ns).min().unwrap_or(0);
        Ok(Self { bytes, planes, errors, warnings, base_ns, held_events: HELD_EVENTS })
    }

    /// How many events of executions an analysis may hold, at 32 bytes each; 1,048,576 by default. Further events are
    /// read twice, with the same result, which takes longer.
    pub fn hold_events(&mut self, events: usize) {
        self.held_events = events;
    }

    /// Its bytes as they were read, decompressed.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A part of its bytes that shares their memory; of other bytes a copy.
    pub(crate) fn shared(&self, part: &[u8]) -> Bytes {
        let start = (part.as_ptr() as usize).wrapping_sub(self.bytes.as_ptr() as usize);
        match start.checked_add(part.len()).filter(|&end| end <= self.bytes.len()) {
            Some(end) => self.bytes.slice(start..end),
            None => Bytes::copy_from_slice(part),
        }
    }

    /// The planes, in file order.
    pub fn planes(&self) -> impl ExactSizeIterator<Item = Plane<'_>> + Clone {
        self.planes.iter().enumerate().map(|(number, index)| Plane { space: self, index, number })
    }

    /// What the profiler itself reported as errors.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    /// The profiler's own warnings.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The smallest timestamp of a line that has events: the zero of [`Line::start_ps`], in nanoseconds of the
    /// profiler's clock.
    pub fn base_ns(&self) -> i64 {
        self.base_ns
    }

    /// Events in all lines.
    pub fn event_count(&self) -> u64 {
        self.planes.iter().flat_map(|plane| &plane.lines).map(|line| line.events).sum()
    }
}

fn index_line(bytes: &Bytes, range: Range<usize>) -> Result<LineIndex, ProfileErrorKind> {
    let base = range.start;
    let mut line = LineIndex::default();
    let mut cursor = WireCursor::new(bytes.get(range).unwrap_or_default());
    let mut chunk = base;
    let in_file = |cursor: &WireCursor<'_>, value: &[u8]| {
        let end = base + cursor.position();
        end - value.len()..end
    };
    while let Some(field) = cursor.next() {
        match field.map_err(|error| ProfileErrorKind::wire(&error, base, "a line"))? {
            (4, WireValue::Bytes(_)) => {
                line.events += 1;
                let end = base + cursor.position();
                if end - chunk >= CHUNK_BYTES {
                    line.chunks.push(chunk..end);
                    chunk = end;
                }
            }
            (1, WireValue::Varint(id)) => line.id = id as i64,
            (2, WireValue::Bytes(name)) => line.name = in_file(&cursor, name),
            (3, WireValue::Varint(time)) => line.timestamp_ns = time as i64,
            (11, WireValue::Bytes(name)) => line.display_name = in_file(&cursor, name),
            _ => {}
        }
    }
    let end = base + cursor.position();
    if chunk < end && line.events > 0 {
        line.chunks.push(chunk..end);
    }
    Ok(line)
}

/// One device's, or one host's, part of a capture.
#[derive(Debug, Clone, Copy)]
pub struct Plane<'a> {
    space: &'a XSpace,
    index: &'a PlaneIndex,
    number: usize,
}

impl<'a> Plane<'a> {
    /// Its place in the file, from zero.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Such as `/host:CPU`.
    pub fn name(&self) -> Cow<'a, str> {
        text(&self.index.metadata.name)
    }

    /// The lines: threads, streams, or a device's views of one time.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = Line<'a>> + Clone + use<'a> {
        let space = self.space;
        self.index.lines.iter().enumerate().map(move |(number, index)| Line { space, index, number })
    }

    /// Stats of the plane itself.
    pub fn stats(&self) -> impl Iterator<Item = Stat<'a>> + use<'a> {
        self.index.metadata.stats.iter().map(Stat::of)
    }

    /// The metadata that events with this id share.
    pub fn event_metadata(&self, id: i64) -> Option<EventMetadata<'a>> {
        self.index.metadata.event_metadata.get(&id).map(|metadata| EventMetadata { id, metadata })
    }

    /// All event metadata, by id.
    pub fn all_event_metadata(&self) -> impl Iterator<Item = EventMetadata<'a>> + Clone + use<'a> {
        self.index.metadata.event_metadata.iter().map(|(&id, metadata)| EventMetadata { id, metadata })
    }

    /// The name of a stat, as in the file.
    #[inline]
    pub fn stat_name(&self, id: i64) -> Option<&'a [u8]> {
        self.index.stat_names.get(self.index.stat_places.get(id)? as usize).map(|name| &**name)
    }

    /// Id and name of all stats, by id.
    pub fn all_stat_names(&self) -> impl Iterator<Item = (i64, &'a [u8])> + Clone + use<'a> {
        self.index.metadata.stat_metadata.iter().map(|(&id, metadata)| (id, &*metadata.name))
    }

    /// The text of a stat that holds text, whether written out, by reference or compressed (gzip, zlib or zstd).
    ///
    /// A reference is followed once: the name that it leads to is plain text.
    pub fn stat_text(&self, value: StatValue<'a>) -> Option<Cow<'a, str>> {
        match value {
            StatValue::Str(bytes) => Some(text(bytes)),
            StatValue::Ref(id) => self.stat_name(i64::try_from(id).ok()?).map(text),
            StatValue::CompressedStr(bytes) => expand(bytes).map(|bytes| Cow::Owned(text(&bytes).into_owned())),
            _ => None,
        }
    }
}

fn expand(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut expanded = Vec::new();
    let read = match bytes {
        [0x1f, 0x8b, ..] => {
            flate2::bufread::MultiGzDecoder::new(bytes).take(MAX_TEXT_BYTES).read_to_end(&mut expanded).is_ok()
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(bytes).ok()?;
            decoder.take(MAX_TEXT_BYTES).read_to_end(&mut expanded).is_ok()
        }
        [first, ..] if first & 0x0f == 8 => {
            flate2::bufread::ZlibDecoder::new(bytes).take(MAX_TEXT_BYTES).read_to_end(&mut expanded).is_ok()
        }
        _ => false,
    };
    read.then_some(expanded)
}

/// The metadata that several events share.
#[derive(Debug, Clone, Copy)]
pub struct EventMetadata<'a> {
    id: i64,
    metadata: &'a xplane::XEventMetadata,
}

impl<'a> EventMetadata<'a> {
    /// The id by which events name it.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Name of the events, as in the file.
    pub fn name(&self) -> &'a [u8] {
        &self.metadata.name
    }

    /// Display name; empty if it is the name itself.
    pub fn display_name(&self) -> &'a [u8] {
        &self.metadata.display_name
    }

    /// Stats that hold for each of the events; `Hlo Proto` of `/host:metadata` is one.
    pub fn stats(&self) -> impl Iterator<Item = Stat<'a>> + use<'a> {
        self.metadata.stats.iter().map(Stat::of)
    }
}

/// A row of events: a thread, a stream, or a device's view of one time.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    space: &'a XSpace,
    index: &'a LineIndex,
    number: usize,
}

impl<'a> Line<'a> {
    /// Its place in the plane, from zero.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The id that the profiler gave it.
    pub fn id(&self) -> i64 {
        self.index.id
    }

    /// Such as `python` or `XLA Ops`.
    pub fn name(&self) -> Cow<'a, str> {
        text(self.space.bytes.get(self.index.name.clone()).unwrap_or_default())
    }

    /// The display name; empty if it is the name itself.
    pub fn display_name(&self) -> Cow<'a, str> {
        text(self.space.bytes.get(self.index.display_name.clone()).unwrap_or_default())
    }

    /// How many events it has.
    pub fn event_count(&self) -> u64 {
        self.index.events
    }

    /// The line's timestamp in picoseconds after the XSpace's; `None` if that is more than 26 days off.
    pub(super) fn base_ps(&self) -> Option<i64> {
        let ps = (i128::from(self.index.timestamp_ns) - i128::from(self.space.base_ns)) * 1000;
        i64::try_from(ps).ok().filter(|ps| ps.unsigned_abs() <= MAX_PS)
    }

    /// Start of an event in picoseconds after [`XSpace::base_ns`]; `None` if that is more than 26 days off.
    pub fn start_ps(&self, event: &Event<'_>) -> Option<i64> {
        self.base_ps()?.checked_add(event.offset_ps).filter(|ps| ps.unsigned_abs() <= MAX_PS)
    }

    /// The events, in file order, decoded lazily.
    pub fn events(&self) -> impl Iterator<Item = Result<Event<'a>, WireError>> + use<'a> {
        self.chunks().flat_map(|chunk| chunk.events())
    }

    /// The events in pieces of similar size, for several threads.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = EventChunk<'a>> + use<'a> {
        let bytes = &self.space.bytes;
        self.index.chunks.iter().map(|range| EventChunk { bytes: bytes.get(range.clone()).unwrap_or_default() })
    }
}

/// Times and durations beyond this are damage, not time: 26 days. Sums and differences of two such times fit an `i64`.
pub(super) const MAX_PS: u64 = 1 << 61;

/// A run of events of one line.
#[derive(Debug, Clone, Copy)]
pub struct EventChunk<'a> {
    bytes: &'a [u8],
}

impl<'a> EventChunk<'a> {
    /// The events, in file order.
    #[inline]
    pub fn events(&self) -> impl Iterator<Item = Result<Event<'a>, WireError>> + use<'a> {
        self.messages().map(Event::decode)
    }

    /// The events with a wanted metadata id, in file order. Others are not decoded.
    pub(crate) fn events_of(
        &self,
        is_wanted: impl Fn(i64) -> bool,
    ) -> impl Iterator<Item = Result<Event<'a>, WireError>> {
        let messages = self.messages().filter(move |message| match first_id(message) {
            Some(id) => is_wanted(i64::from(id)),
            None => Event::decode(message).is_ok_and(|event| is_wanted(event.metadata_id)),
        });
        messages.map(Event::decode)
    }

    /// The events' bytes, in file order. The line's index has checked every field, so none is damaged.
    #[inline]
    pub(super) fn messages(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut cursor = WireCursor::new(self.bytes);
        std::iter::from_fn(move || {
            loop {
                if let Some(event) = cursor.bytes_after(4 << 3 | 2) {
                    return Some(event);
                }
                match cursor.next()? {
                    Ok((4, WireValue::Bytes(event))) => return Some(event),
                    Ok(_) => {}
                    Err(_) => return None,
                }
            }
        })
    }
}
