//! One pass over the events: those of module executions become records of 24 bytes, sorted by execution and line.

use std::collections::HashMap;

use rayon::prelude::*;

use super::event::{Event, StatValue};
use super::interval::Interval;
use super::plane_view::{END_MARK, Layout, OPERATIONS_LINE, PlaneView, Role, Unusable, interval_after};
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
    /// Number of the track, see [`Gathered`].
    pub(super) track: u32,
    pub(super) operation: u32,
    pub(super) time: Interval,
}

/// Records by execution, and within it by line, in file order.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Plane view and origin of each execution.
    pub(super) executions: Vec<(usize, Origin)>,
    /// Execution of each track: a track is the part of one line that belongs to one execution.
    pub(super) tracks: Vec<u32>,
    /// Where each track's records end; they start where the track before ends.
    pub(super) ends: Vec<usize>,
    pub(super) records: Vec<Record>,
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

/// What one thread made of one chunk; `track` is the place in `origins`.
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
            written: HashMap::new(),
        };
        for event in chunk.events() {
            let Ok(event) = event else {
                reader.piece.tally.malformed += 1;
                continue;
            };
            let first = match reader.piece.offsets {
                Some((first, last)) => {
                    reader.piece.backwards += u64::from(event.offset_ps < last);
                    first
                }
                None => event.offset_ps,
            };
            reader.piece.offsets = Some((first, event.offset_ps));
            match view.layout {
                Layout::ModuleLines => reader.operation(&event),
                Layout::HostThunks | Layout::DeviceStreams => reader.thunk(&event),
            }
        }
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
        let track = match self.last {
            Some((last, track)) if last == origin => track,
            _ => {
                let origins = &mut self.piece.origins;
                let track = *self.places.entry(origin).or_insert_with(|| {
                    origins.push(origin);
                    (origins.len() - 1) as u32
                });
                self.last = Some((origin, track));
                track
            }
        };
        self.piece.records.push(Record { track, operation, time });
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

    /// An event that may name its module, program, run and device.
    #[inline]
    fn thunk(&mut self, event: &Event<'_>) {
        let mut key = Key { module: u32::MAX, program: None, run: None, ordinal: self.view.ordinal };
        let mut operation = None;
        for stat in event.stats() {
            let Ok(stat) = stat else {
                self.piece.tally.malformed += 1;
                return;
            };
            let Some(role) = self.view.roles.get(stat.metadata_id) else {
                self.piece.tally.unknown += 1;
                continue;
            };
            match Role::from_number(role) {
                Role::Other => {}
                Role::Operation => operation = self.name(stat.value),
                Role::Module => key.module = self.name(stat.value).unwrap_or(u32::MAX),
                Role::Program => key.program = stat.value.as_integer(),
                Role::Run => key.run = stat.value.as_integer(),
                Role::Ordinal if self.view.layout == Layout::HostThunks => key.ordinal = stat.value.as_integer(),
                Role::Ordinal => {}
            }
        }
        if key.module == u32::MAX {
            return;
        }
        let name = self.view.events.get(event.metadata_id);
        self.piece.tally.unknown += u64::from(name.is_none());
        if name == Some(END_MARK) {
            return;
        }
        // a device's kernel is work even where it names no operation; a host's event without one is the host's own
        let by_name = if self.view.layout == Layout::DeviceStreams { name } else { None };
        let Some(operation) = operation.or(by_name) else { return };
        if let Some(time) = self.time(event) {
            self.push(Origin::Stats(key), operation, time);
        }
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

/// Reads the events of all views; `known` is how many names have numbers already.
pub(super) fn gather(views: &[PlaneView<'_>], known: &[&[u8]]) -> Gathered {
    let mut work = Vec::new();
    for (view_number, view) in views.iter().enumerate() {
        for line in view.plane.lines() {
            if view.layout != Layout::ModuleLines || line.name() == OPERATIONS_LINE {
                work.extend(line.chunks().map(|chunk| (view_number, view, line, chunk)));
            }
        }
    }
    let pieces: Vec<Piece> = work.par_iter().map(|(_, view, line, chunk)| Reader::read(view, line, *chunk)).collect();

    let mut gathered = Gathered {
        executions: Vec::new(),
        tracks: Vec::new(),
        ends: Vec::new(),
        records: Vec::new(),
        tallies: views.iter().map(|_| Tally::default()).collect(),
        backwards: Vec::new(),
        written_names: Vec::new(),
    };
    // names that were written out get numbers after the known ones, or the known one's
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
    // (execution, line) of each origin of each piece, and what its names became
    let mut maps = Vec::with_capacity(pieces.len());
    let mut last_offset = None;
    for ((view_number, _, line, _), piece) in work.iter().zip(&pieces) {
        if let Some(tally) = gathered.tallies.get_mut(*view_number) {
            tally.add(&piece.tally);
        }
        let mut backwards = piece.backwards;
        if let Some((first, last)) = piece.offsets {
            let at = (*view_number, line.number());
            backwards += u64::from(last_offset.is_some_and(|(before, offset)| before == at && first < offset));
            last_offset = Some((at, last));
        }
        if backwards > 0 {
            match gathered.backwards.last_mut() {
                Some((view, number, events)) if (*view, *number) == (*view_number, line.number()) => {
                    *events += backwards;
                }
                _ => gathered.backwards.push((*view_number, line.number(), backwards)),
            }
        }
        let written = piece.written.iter().map(|name| match numbers.get(name) {
            Some(&number) => number,
            None => {
                let number = (known.len() + gathered.written_names.len()) as u32;
                gathered.written_names.push(name.clone());
                numbers.insert(name.clone(), number);
                number
            }
        });
        let written: Vec<u32> = written.collect();
        let renumber = |number: u32| match number.checked_sub(WRITTEN) {
            Some(place) if number != u32::MAX => written.get(place as usize).copied().unwrap_or(number),
            _ => number,
        };
        let tracks: Vec<(u32, usize)> = piece
            .origins
            .iter()
            .map(|&origin| {
                let origin = match origin {
                    Origin::Stats(key) => Origin::Stats(Key { module: renumber(key.module), ..key }),
                    Origin::Window(_) => origin,
                };
                let executions = &mut gathered.executions;
                let execution = *places.entry((*view_number, origin)).or_insert_with(|| {
                    executions.push((*view_number, origin));
                    (executions.len() - 1) as u32
                });
                (execution, line.number())
            })
            .collect();
        maps.push((tracks, written));
    }
    drop(places);
    let mut tracks: Vec<(u32, usize)> = maps.iter().flat_map(|(tracks, _)| tracks.iter().copied()).collect();
    tracks.sort_unstable();
    tracks.dedup();

    // a counting sort: where each track's records go, then one write for each record
    let mut next = vec![0_usize; tracks.len() + 1];
    let mut placed = Vec::with_capacity(pieces.len());
    for (piece, (origins, written)) in pieces.into_iter().zip(maps) {
        let of_origin: Vec<u32> =
            origins.iter().map(|track| tracks.binary_search(track).unwrap_or_default() as u32).collect();
        for record in &piece.records {
            if let Some(&track) = of_origin.get(record.track as usize)
                && let Some(count) = next.get_mut(track as usize + 1)
            {
                *count += 1;
            }
        }
        placed.push((piece.records, of_origin, written));
    }
    for at in 1..next.len() {
        next[at] += next[at - 1];
    }
    let total = next.last().copied().unwrap_or(0);
    let nothing = Record { track: 0, operation: 0, time: Interval { start_ps: 0, end_ps: 0 } };
    gathered.records = vec![nothing; total];
    for (records, of_origin, written) in placed {
        for mut record in records {
            let Some(&track) = of_origin.get(record.track as usize) else { continue };
            record.track = track;
            if let Some(place) = record.operation.checked_sub(WRITTEN) {
                record.operation = written.get(place as usize).copied().unwrap_or_default();
            }
            let slot = &mut next[track as usize];
            if let Some(at) = gathered.records.get_mut(*slot) {
                *at = record;
            }
            *slot += 1;
        }
    }
    // every start has moved to its track's end
    next.truncate(tracks.len());
    gathered.ends = next;
    gathered.tracks = tracks.into_iter().map(|(execution, _)| execution).collect();
    gathered
}
