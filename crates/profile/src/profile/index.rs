//! The first pass over the events: which module executions there are, which chunks contain their events, and in which
//! order to read those so that the second pass meets the events of all lines by time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::gather::{Key, Origin, Pass, Piece, Tally, WRITTEN, read};
use super::id_table::MetadataIds;
use super::interval::Interval;
use super::outside::OutsideEvents;
use super::plane_view::{Layout, OPERATION_LINES, PlaneView};
use super::record::Record;
use super::space::{EventChunk, Line};
use super::sparse_core::JoinedWindows;

/// A chunk that holds events of executions.
#[derive(Debug)]
pub(super) struct Chunk<'v, 'a> {
    pub(super) view_number: usize,
    view: &'v PlaneView<'a>,
    line: Line<'a>,
    events: EventChunk<'a>,
    /// No event of an execution in this chunk or a later one starts before this.
    pub(super) from_ps: i64,
    /// Events of executions.
    pub(super) records: usize,
    /// The launch of a command buffer in which the line's chunks before ended.
    launch: Option<i64>,
}

impl<'v, 'a> Chunk<'v, 'a> {
    fn new(view_number: usize, view: &'v PlaneView<'a>, line: Line<'a>, events: EventChunk<'a>) -> Self {
        Self { view_number, view, line, events, from_ps: i64::MIN, records: 0, launch: None }
    }
}

/// An execution that was found. If events name no run, it is all executions of a program on a device.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) view_number: usize,
    pub(super) origin: Origin,
    /// Index of the last chunk with events of it; `None` for a window without any.
    pub(super) last_chunk: Option<usize>,
}

/// The result of the first pass.
#[derive(Debug)]
pub(super) struct Index<'v, 'a> {
    pub(super) views: &'v [PlaneView<'a>],
    /// By start. The chunks of a line in which a later event starts before an earlier one come first of all, so that
    /// all its events are available when the first of them is needed.
    pub(super) chunks: Vec<Chunk<'v, 'a>>,
    pub(super) executions: Vec<Found>,
    /// Tallies by plane view.
    pub(super) tallies: Vec<Tally>,
    /// Events outside every execution, by view.
    pub(super) outside: Vec<OutsideEvents>,
    /// Events that count in executions of another plane, by view.
    pub(super) joined_events: Vec<u64>,
    joined: JoinedWindows,
    /// Events that start before their predecessor, by view and line.
    pub(super) backwards: Vec<(usize, usize, u64)>,
    /// Names that were written out in stats, in the numbers' order.
    pub(super) written_names: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, u32>,
    places: HashMap<(usize, Origin), u32>,
    /// By view, the metadata of events of executions.
    ids: Vec<MetadataIds>,
    /// By chunk, the stored records, so that it need not be read again.
    held: Mutex<Vec<Option<Grouped>>>,
}

/// The records of a chunk, each with its line, those of an execution together.
#[derive(Debug, Default)]
pub(super) struct Grouped {
    records: Vec<Record>,
    /// The number of each execution, and where its records end.
    ends: Vec<(u32, usize)>,
}

impl Grouped {
    /// Each execution's number and records.
    pub(super) fn of_executions(&self) -> impl Iterator<Item = (u32, &[Record])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        let runs = self.ends.iter().zip(starts);
        runs.filter_map(|(&(execution, end), start)| Some((execution, self.records.get(start..end)?)))
    }
}

/// Numbers of lines from one SparseCore of a device to the next.
const LINES_OF_CORE: u32 = 1 << 16;

/// Number of chunks read per thread before their results are merged.
const BATCH: usize = 8;

impl<'v, 'a> Index<'v, 'a> {
    /// Reads the events of all views. The names in `known` have numbers already; up to `held_events` are kept.
    pub(super) fn new(views: &'v [PlaneView<'a>], known: &[&[u8]], held_events: usize) -> Self {
        let mut chunks: Vec<Chunk<'v, 'a>> = Vec::new();
        for (view_number, view) in views.iter().enumerate() {
            for line in view.plane.lines() {
                if view.layout != Layout::ModuleLines || OPERATION_LINES.contains(&&*line.name()) {
                    let of_line = line.chunks();
                    chunks.extend(of_line.map(|events| Chunk::new(view_number, view, line, events)));
                }
            }
        }
        let mut index = Self {
            views,
            chunks: Vec::new(),
            executions: Vec::new(),
            tallies: views.iter().map(|_| Tally::default()).collect(),
            outside: views.iter().map(|_| OutsideEvents::default()).collect(),
            joined_events: vec![0; views.len()],
            joined: JoinedWindows::of(views),
            backwards: Vec::new(),
            written_names: Vec::new(),
            numbers: HashMap::new(),
            places: HashMap::new(),
            ids: vec![MetadataIds::default(); views.len()],
            held: Mutex::default(),
        };
        for (view_number, view) in views.iter().enumerate() {
            for window in 0..view.windows.len() {
                let (of_view, window) = index.joined.place(view_number, window as u32);
                index.execution(of_view, Origin::Window(window));
            }
        }
        let mut lines = Lines { may_hold: held_events, ..Lines::default() };
        let mut unread = chunks.into_iter();
        loop {
            let batch: Vec<Chunk<'v, 'a>> = unread.by_ref().take(BATCH * rayon::current_num_threads().max(1)).collect();
            if batch.is_empty() {
                break;
            }
            let pass = Pass::First { with_records: lines.may_hold > 0 };
            let pieces: Vec<Piece> =
                batch.par_iter().map(|chunk| read(chunk.view, &chunk.line, chunk.events, pass)).collect();
            for (chunk, piece) in batch.into_iter().zip(pieces) {
                index.add(chunk, piece, known, &mut lines);
            }
        }
        index.in_order_of_time(&mut lines);
        index
    }

    /// The view and the origin of an execution, whichever plane its events are on.
    fn place(&self, view_number: usize, origin: Origin) -> (usize, Origin) {
        let Origin::Window(window) = origin else { return (view_number, origin) };
        let (view_number, window) = self.joined.place(view_number, window);
        (view_number, Origin::Window(window))
    }

    fn execution(&mut self, view_number: usize, origin: Origin) -> u32 {
        let executions = &mut self.executions;
        *self.places.entry((view_number, origin)).or_insert_with(|| {
            executions.push(Found { view_number, origin, last_chunk: None });
            (executions.len() - 1) as u32
        })
    }

    fn add(&mut self, chunk: Chunk<'v, 'a>, mut piece: Piece, known: &[&[u8]], lines: &mut Lines) {
        let at = (chunk.view_number, chunk.line.number());
        if let Some(tally) = self.tallies.get_mut(chunk.view_number) {
            tally.add(&piece.tally);
        }
        let mut backwards = piece.backwards;
        if let Some((first, last)) = piece.offsets {
            backwards += u64::from(lines.offset.is_some_and(|(before, offset)| before == at && first < offset));
            lines.offset = Some((at, last));
        }
        let launch = lines.launch.filter(|(line, _)| *line == at).map(|(_, launch)| launch);
        lines.launch = piece.last_launch.or(launch).map(|launch| (at, launch));
        if let Some(launch) = launch {
            piece.continue_launch(launch);
        }
        match self.backwards.last_mut() {
            _ if backwards == 0 => {}
            Some((view, line, events)) if (*view, *line) == at => *events += backwards,
            _ => self.backwards.push((at.0, at.1, backwards)),
        }
        let written = self.number(&piece.written, known);
        if let Some(outside) = self.outside.get_mut(at.0) {
            outside.join(piece.outside, |number| renumbered(number, &written));
        }
        let Some([first, last]) = piece.ends else { return };
        let line = match lines.list.last_mut() {
            Some(line) if line.at == at => line,
            _ => {
                lines.list.push(OfLine { at, last: first, is_sorted: true, chunks: 0 });
                lines.list.last_mut().unwrap_or(&mut lines.spare)
            }
        };
        line.is_sorted &= piece.is_sorted && line.last <= first;
        line.last = last;
        line.chunks += 1;
        if let Some(ids) = self.ids.get_mut(chunk.view_number) {
            ids.join(&piece.ids);
        }
        let mut of_others = false;
        let executions: Box<[u32]> = piece
            .origins
            .iter()
            .map(|origin| {
                let (view_number, origin) = self.place(at.0, renamed(*origin, &written));
                of_others |= view_number != at.0;
                self.execution(view_number, origin)
            })
            .collect();
        if let Some(events) = self.joined_events.get_mut(at.0).filter(|_| of_others) {
            *events += piece.count as u64;
        }
        let fits = lines.may_hold >= piece.count && !piece.records.is_empty();
        // ends with the first that does not fit
        lines.may_hold = if fits { lines.may_hold - piece.count } else { 0 };
        lines.held.push(fits.then(|| grouped(piece.records, &chunk, &written, |place| executions.get(place).copied())));
        lines.executions.push(executions);
        self.chunks.push(Chunk { from_ps: first.0, records: piece.count, launch, ..chunk });
    }

    /// Numbers names that were written out.
    fn number(&mut self, written: &[Vec<u8>], known: &[&[u8]]) -> Vec<u32> {
        if !written.is_empty() && self.numbers.is_empty() {
            self.numbers.extend(known.iter().zip(0..).map(|(name, number)| (name.to_vec(), number)));
        }
        let of_name = |name: &Vec<u8>| match self.numbers.get(name) {
            Some(&number) => number,
            None => {
                let next = (known.len() + self.written_names.len()) as u32;
                self.written_names.push(name.clone());
                self.numbers.insert(name.clone(), next);
                next
            }
        };
        written.iter().map(of_name).collect()
    }

    fn in_order_of_time(&mut self, lines: &mut Lines) {
        let mut at = 0;
        for line in &lines.list {
            let own = self.chunks.get_mut(at..at + line.chunks).unwrap_or_default();
            if !line.is_sorted {
                own.iter_mut().for_each(|chunk| chunk.from_ps = i64::MIN);
            }
            at += line.chunks;
        }
        let mut order: Vec<usize> = (0..self.chunks.len()).collect();
        // stable, so that the chunks of a line keep their order
        order.sort_by_key(|&chunk| self.chunks.get(chunk).map(|chunk| chunk.from_ps));
        let mut place_of = vec![0; order.len()];
        for (place, &chunk) in order.iter().enumerate() {
            if let Some(slot) = place_of.get_mut(chunk) {
                *slot = place;
            }
            for &execution in lines.executions.get(chunk).into_iter().flatten() {
                if let Some(found) = self.executions.get_mut(execution as usize) {
                    found.last_chunk = Some(place);
                }
            }
        }
        self.chunks.sort_by_key(|chunk| chunk.from_ps);
        let held = order.iter().map(|&chunk| lines.held.get_mut(chunk).and_then(Option::take));
        self.held = Mutex::new(held.collect());
    }

    /// The records of the chunk with this number, once.
    pub(super) fn records(&self, number: usize) -> Grouped {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).get_mut(number).and_then(Option::take);
        held.unwrap_or_else(|| self.read_again(number).unwrap_or_default())
    }

    fn read_again(&self, number: usize) -> Option<Grouped> {
        let chunk = self.chunks.get(number)?;
        let pass = Pass::Second { ids: self.ids.get(chunk.view_number)?, launch: chunk.launch };
        let piece = read(chunk.view, &chunk.line, chunk.events, pass);
        let written: Vec<u32> = piece.written.iter().map(|name| self.numbers.get(name).copied().unwrap_or(0)).collect();
        Some(grouped(piece.records, chunk, &written, |place| {
            let origin = renamed(*piece.origins.get(place)?, &written);
            self.places.get(&self.place(chunk.view_number, origin)).copied()
        }))
    }

    /// The identity of an execution: the device and the program.
    pub(super) fn source(&self, found: &Found) -> Option<ExecutionSource<'v, 'a>> {
        let view = self.views.get(found.view_number)?;
        Some(match found.origin {
            Origin::Stats(key) => ExecutionSource {
                view,
                module: key.module,
                program: key.program,
                run: key.run,
                device: key.ordinal,
                window: None,
                several: (key.run.is_none() && view.layout == Layout::DeviceStreams).then_some(key),
            },
            Origin::Window(number) => {
                let window = view.windows.get(number as usize)?;
                ExecutionSource {
                    view,
                    module: window.module,
                    program: window.program,
                    run: window.run,
                    device: view.ordinal,
                    window: Some(window.time),
                    several: None,
                }
            }
        })
    }
}

/// Which program an execution is of, and where it ran.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecutionSource<'v, 'a> {
    pub(super) view: &'v PlaneView<'a>,
    pub(super) module: u32,
    pub(super) program: Option<i64>,
    pub(super) run: Option<i64>,
    pub(super) device: Option<i64>,
    /// Its time, if that does not follow from its events.
    pub(super) window: Option<Interval>,
    /// If events name no run, so that it may be several executions: what they name.
    pub(super) several: Option<Key>,
}

/// The records of a piece by execution, whose numbers `execution` tells by place in the piece.
fn grouped(
    mut records: Vec<Record>,
    chunk: &Chunk<'_, '_>,
    written: &[u32],
    execution: impl Fn(usize) -> Option<u32>,
) -> Grouped {
    // a SparseCore's lines are apart from those of its device
    let of_core = chunk.view.core.as_ref().map_or(0, |(_, core)| (u32::from(*core) + 1) * LINES_OF_CORE);
    let line = of_core.saturating_add(chunk.line.number() as u32);
    let mut ends: Vec<(u32, usize)> = Vec::new();
    let mut at = 0;
    for run in records.chunk_by_mut(|one, next| one.place() == next.place()) {
        at += run.len();
        // each was found in the first pass; an unknown number is skipped
        let execution = run.first().and_then(|record| execution(record.place() as usize)).unwrap_or(u32::MAX);
        ends.push((execution, at));
        for record in run {
            *record = record.at(line, renumbered(record.operation, written));
        }
    }
    records.shrink_to_fit();
    Grouped { records, ends }
}

/// What is known about lines while chunks are added.
#[derive(Default)]
struct Lines {
    /// Remaining capacity for records.
    may_hold: usize,
    /// By chunk.
    held: Vec<Option<Grouped>>,
    /// Offset of the last event, and of which view and line.
    offset: Option<((usize, usize), i64)>,
    /// The last launch of a command buffer, and of which view and line.
    launch: Option<((usize, usize), i64)>,
    list: Vec<OfLine>,
    spare: OfLine,
    /// By chunk.
    executions: Vec<Box<[u32]>>,
}

#[derive(Default)]
struct OfLine {
    at: (usize, usize),
    last: (i64, std::cmp::Reverse<i64>),
    is_sorted: bool,
    chunks: usize,
}

fn renumbered(number: u32, written: &[u32]) -> u32 {
    match number.checked_sub(WRITTEN) {
        Some(place) => written.get(place as usize).copied().unwrap_or(0),
        None => number,
    }
}

fn renamed(origin: Origin, written: &[u32]) -> Origin {
    match origin {
        Origin::Stats(key) => Origin::Stats(Key { module: renumbered(key.module, written), ..key }),
        Origin::Window(_) => origin,
    }
}
