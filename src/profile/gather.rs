//! One pass over the events: those of module executions become records of 24 bytes, grouped by execution and line.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::wire::WireError;

use super::event::{Event, Stat, StatValue};
use super::interval::Interval;
use super::plane_view::{END_MARK, Layout, OPERATIONS_LINE, PlaneView, UNKNOWN, Unusable, interval_after};
use super::space::{EventChunk, Line};

/// Which execution an event belongs to, where its stats say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) module: u32,
    pub(super) program: Option<i64>,
    pub(super) run: Option<i64>,
    pub(super) ordinal: Option<i64>,
}

/// Where an execution came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// Events with this key in their stats.
    Stats(Key),
    /// The window with this number in its plane.
    Window(u32),
}

/// One event of an execution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) time: Interval,
    pub(super) operation: u32,
    /// While a piece is read: the place of its execution in the piece.
    place: u32,
}

#[cfg(test)]
impl Record {
    pub(super) fn new(time: Interval, operation: u32) -> Self {
        Self { time, operation, place: 0 }
    }
}

/// The part of a piece that belongs to one execution: all of one line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) execution: u32,
    pub(super) line: u32,
    pub(super) piece: u32,
    start: u32,
    end: u32,
}

impl Run {
    /// The records of the run, in file order.
    pub(super) fn of<'p>(&self, pieces: &'p [Vec<Record>]) -> &'p [Record] {
        let piece = pieces.get(self.piece as usize).map(Vec::as_slice).unwrap_or_default();
        piece.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// The records of all executions, where their threads left them.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Plane view and origin of each execution.
    pub(super) executions: Vec<(usize, Origin)>,
    /// By execution, line and place in the line.
    pub(super) runs: Vec<Run>,
    pub(super) pieces: Vec<Vec<Record>>,
    /// Tallies by plane view.
    pub(super) tallies: Vec<Tally>,
    /// Events that start before their predecessor, by view and line.
    pub(super) backwards: Vec<(usize, usize, u64)>,
    /// Names that were written out in stats, in the numbers' order.
    pub(super) written_names: Vec<Vec<u8>>,
}

/// What was seen and left out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) malformed: u64,
    pub(super) unknown: u64,
    pub(super) negative: u64,
    pub(super) out_of_range: u64,
    pub(super) outside: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.malformed += other.malformed;
        self.unknown += other.unknown;
        self.negative += other.negative;
        self.out_of_range += other.out_of_range;
        self.outside += other.outside;
    }
}

/// What one thread made of one chunk; a record's `place` is that in `origins`.
#[derive(Debug, Default)]
struct Piece {
    origins: Vec<Origin>,
    records: Vec<Record>,
    written: Vec<Vec<u8>>,
    tally: Tally,
    offsets: Option<(i64, i64)>,
    backwards: u64,
}

/// Numbers from here on are places in `Piece::written`.
const WRITTEN: u32 = 1 << 31;

struct Reader<'v, 'a> {
    view: &'v PlaneView<'a>,
    base_ps: Option<i64>,
    piece: Piece,
    places: HashMap<Origin, u32>,
    last: Option<(Origin, u32)>,
    key: Option<([&'a [u8]; 4], Option<Key>)>,
    written: HashMap<Vec<u8>, u32>,
}

impl<'v, 'a> Reader<'v, 'a> {
    fn read(view: &'v PlaneView<'a>, line: &Line<'a>, chunk: EventChunk<'a>) -> Piece {
        let mut reader = Self {
            view,
            base_ps: line.base_ps(),
            piece: Piece::default(),
            places: HashMap::new(),
            last: None,
            key: None,
            written: HashMap::new(),
        };
        for message in chunk.messages() {
            let read = match view.layout {
                Layout::ModuleLines => Event::decode(message).map(|event| {
                    reader.operation(&event);
                    event.offset_ps
                }),
                Layout::HostThunks | Layout::DeviceStreams => reader.thunk(message),
            };
            let Ok(offset) = read else {
                reader.piece.tally.malformed += 1;
                continue;
            };
            let (first, last) = reader.piece.offsets.unwrap_or((offset, offset));
            reader.piece.backwards += u64::from(offset < last);
            reader.piece.offsets = Some((first, offset));
        }
        // an execution's events stand together, unless executions overlap on one thread
        if !reader.piece.records.is_sorted_by_key(|record| record.place) {
            reader.piece.records.sort_by_key(|record| record.place);
        }
        reader.piece.records.shrink_to_fit();
        reader.piece
    }

    fn time(&mut self, event: &Event<'_>) -> Option<Interval> {
        match interval_after(self.base_ps, event) {
            Ok(time) => return Some(time),
            Err(Unusable::Negative) => self.piece.tally.negative += 1,
            Err(Unusable::OutOfRange) => self.piece.tally.out_of_range += 1,
        }
        None
    }

    fn push(&mut self, origin: Origin, operation: u32, time: Interval) {
        let place = match self.last {
            Some((last, place)) if last == origin => place,
            _ => {
                let origins = &mut self.piece.origins;
                let place = *self.places.entry(origin).or_insert_with(|| {
                    origins.push(origin);
                    (origins.len() - 1) as u32
                });
                self.last = Some((origin, place));
                place
            }
        };
        self.piece.records.push(Record { time, operation, place });
    }

    /// An event of the operations line: it belongs to the module that was under way when it started.
    fn operation(&mut self, event: &Event<'_>) {
        let Some(time) = self.time(event) else { return };
        let Some(name) = self.view.events.get(event.metadata_id) else {
            self.piece.tally.unknown += 1;
            return;
        };
        let windows = &self.view.windows;
        let after = windows.partition_point(|window| window.time.start_ps <= time.start_ps);
        match after.checked_sub(1).and_then(|last| windows.get(last).map(|window| (last, window))) {
            Some((last, window)) if time.start_ps < window.time.end_ps => {
                self.push(Origin::Window(last as u32), name, time);
            }
            _ => self.piece.tally.outside += 1,
        }
    }

    /// The execution that these stats name; `None` where the module has no name.
    fn key(&mut self, stats: [&'a [u8]; 4]) -> Result<Option<Key>, WireError> {
        let [module, program, run, ordinal] = stats;
        let integer = |stat: &'a [u8]| match stat {
            [] => Ok(None),
            stat => Stat::decode(stat).map(|stat| stat.value.as_integer()),
        };
        let (program, run) = (integer(program)?, integer(run)?);
        let on_host = self.view.layout == Layout::HostThunks;
        let ordinal = if on_host { integer(ordinal)? } else { self.view.ordinal };
        let module = self.name(Stat::decode(module)?.value);
        Ok(module.map(|module| Key { module, program, run, ordinal }))
    }

    /// An event that may name its module, program, run and device; gives its offset.
    #[inline]
    fn thunk(&mut self, message: &'a [u8]) -> Result<i64, WireError> {
        let view = self.view;
        // the stats that tell, which a writer puts first; the last of each counts
        let mut telling: [&[u8]; 6] = [&[]; 6];
        let (mut unknown, mut damaged) = (0, None);
        let event = Event::decode_with(message, |stat| match view.role(stat) {
            Ok(0) => {}
            Ok(UNKNOWN) => unknown += 1,
            Ok(role) => {
                if let Some(slot) = telling.get_mut(usize::from(role)) {
                    *slot = stat;
                }
            }
            Err(error) => damaged = Some(error),
        })?;
        if let Some(error) = damaged {
            return Err(error);
        }
        self.piece.tally.unknown += unknown;
        let [_, operation, module, program, run, ordinal] = telling;
        // on a host, what names no operation is the host's own work
        if module.is_empty() || (operation.is_empty() && view.layout == Layout::HostThunks) {
            return Ok(event.offset_ps);
        }
        // the next event of an execution has the same bytes
        let keyed = [module, program, run, ordinal];
        let key = match self.key {
            Some((bytes, key)) if bytes == keyed => key,
            _ => {
                let key = self.key(keyed)?;
                self.key = Some((keyed, key));
                key
            }
        };
        let mut operation = match operation {
            [] => None,
            operation => self.name(Stat::decode(operation)?.value),
        };
        let name = view.events.get(event.metadata_id);
        self.piece.tally.unknown += u64::from(name.is_none());
        // a device's kernel is work even where it names no operation
        if view.layout == Layout::DeviceStreams {
            operation = operation.or(name);
        }
        if let (Some(key), Some(operation)) = (key, operation)
            && name != Some(END_MARK)
            && let Some(time) = self.time(&event)
        {
            self.push(Origin::Stats(key), operation, time);
        }
        Ok(event.offset_ps)
    }

    #[inline]
    fn name(&mut self, value: StatValue<'_>) -> Option<u32> {
        if let StatValue::Ref(_) = value {
            let number = self.view.reference(value);
            self.piece.tally.unknown += u64::from(number.is_none());
            return number;
        }
        let text = self.view.plane.stat_text(value)?;
        if let Some(&number) = self.written.get(text.as_bytes()) {
            return Some(number);
        }
        let number = WRITTEN + self.piece.written.len() as u32;
        self.piece.written.push(text.as_bytes().to_vec());
        self.written.insert(text.into_owned().into_bytes(), number);
        Some(number)
    }
}

/// What one thread reads at a time.
struct Chunk<'v, 'a> {
    view_number: usize,
    view: &'v PlaneView<'a>,
    line: Line<'a>,
    events: EventChunk<'a>,
}

/// Reads the events of all views; `known` is how many names have numbers already.
pub(super) fn gather(views: &[PlaneView<'_>], known: &[&[u8]]) -> Gathered {
    let mut work: Vec<Chunk<'_, '_>> = Vec::new();
    for (view_number, view) in views.iter().enumerate() {
        for line in view.plane.lines() {
            if view.layout != Layout::ModuleLines || line.name() == OPERATIONS_LINE {
                work.extend(line.chunks().map(|events| Chunk { view_number, view, line, events }));
            }
        }
    }
    let pieces: Vec<Piece> = work.par_iter().map(|chunk| Reader::read(chunk.view, &chunk.line, chunk.events)).collect();

    merge(views, known, &work, pieces)
}

/// Numbers the executions and the names that were written out, over all pieces.
fn merge(views: &[PlaneView<'_>], known: &[&[u8]], work: &[Chunk<'_, '_>], pieces: Vec<Piece>) -> Gathered {
    let mut gathered = Gathered {
        executions: Vec::new(),
        runs: Vec::new(),
        pieces: Vec::with_capacity(pieces.len()),
        tallies: views.iter().map(|_| Tally::default()).collect(),
        backwards: Vec::new(),
        written_names: Vec::new(),
    };
    let mut numbers: HashMap<Vec<u8>, u32> = HashMap::new();
    if pieces.iter().any(|piece| !piece.written.is_empty()) {
        numbers.extend(known.iter().zip(0..).map(|(name, number)| (name.to_vec(), number)));
    }
    let mut places: HashMap<(usize, Origin), u32> = HashMap::new();
    for (view_number, view) in views.iter().enumerate() {
        for window in 0..view.windows.len() {
            places.insert((view_number, Origin::Window(window as u32)), gathered.executions.len() as u32);
            gathered.executions.push((view_number, Origin::Window(window as u32)));
        }
    }
    let mut last_offset = None;
    for (chunk, mut piece) in work.iter().zip(pieces) {
        let at = (chunk.view_number, chunk.line.number());
        if let Some(tally) = gathered.tallies.get_mut(chunk.view_number) {
            tally.add(&piece.tally);
        }
        let mut backwards = piece.backwards;
        if let Some((first, last)) = piece.offsets {
            backwards += u64::from(last_offset.is_some_and(|(before, offset)| before == at && first < offset));
            last_offset = Some((at, last));
        }
        match gathered.backwards.last_mut() {
            _ if backwards == 0 => {}
            Some((view, line, events)) if (*view, *line) == at => *events += backwards,
            _ => gathered.backwards.push((at.0, at.1, backwards)),
        }
        let written: Vec<u32> = piece
            .written
            .drain(..)
            .map(|name| {
                let next = (known.len() + gathered.written_names.len()) as u32;
                *numbers.entry(name).or_insert_with_key(|name| {
                    gathered.written_names.push(name.clone());
                    next
                })
            })
            .collect();
        let renumber = |number: u32| match number.checked_sub(WRITTEN) {
            Some(place) => written.get(place as usize).copied().unwrap_or(0),
            None => number,
        };
        if !written.is_empty() {
            piece.records.iter_mut().for_each(|record| record.operation = renumber(record.operation));
        }
        let number = gathered.pieces.len() as u32;
        let mut start = 0;
        for run in piece.records.chunk_by(|one, next| one.place == next.place) {
            let end = start + run.len() as u32;
            let origin = run.first().and_then(|record| piece.origins.get(record.place as usize));
            if let Some(&origin) = origin {
                let origin = match origin {
                    Origin::Stats(key) => Origin::Stats(Key { module: renumber(key.module), ..key }),
                    Origin::Window(_) => origin,
                };
                let executions = &mut gathered.executions;
                let execution = *places.entry((chunk.view_number, origin)).or_insert_with(|| {
                    executions.push((chunk.view_number, origin));
                    (executions.len() - 1) as u32
                });
                gathered.runs.push(Run { execution, line: at.1 as u32, piece: number, start, end });
            }
            start = end;
        }
        gathered.pieces.push(piece.records);
    }
    gathered.runs.sort_unstable();
    gathered
}
