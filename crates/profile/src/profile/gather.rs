//! Reads a chunk of events: which module executions they belong to, and, on request, the events of executions as
//! records of 32 bytes.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::wire::WireError;

use super::event::{Event, Stat, StatValue, first_id};
use super::id_table::MetadataIds;
use super::interval::Interval;
use super::outside::{OutsideEvents, may_be_work};
use super::plane_view::{COMMAND_BUFFER, END_MARK, Layout, PlaneView, Role, UNKNOWN, Unusable, interval_after};
use super::record::Record;
use super::space::{EventChunk, Line};

/// Which execution an event belongs to, if its stats say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) module: u32,
    pub(super) program: Option<i64>,
    pub(super) run: Option<i64>,
    pub(super) ordinal: Option<i64>,
}

/// The origin of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// Events with this key in their stats.
    Stats(Key),
    /// The window with this number in its plane.
    Window(u32),
}

/// Counts of what was left out.
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

/// The pass in which a chunk is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pass<'i> {
    /// The first: which executions there are, and on request their events.
    First { with_records: bool },
    /// The second: the executions' events, which are among those of this metadata. The chunks before ended in this
    /// launch of a command buffer.
    Second { ids: &'i MetadataIds, launch: Option<i64> },
}

/// One thread's result for one chunk; a record's `place` is the index in `origins`.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) origins: Vec<Origin>,
    pub(super) records: Vec<Record>,
    /// Names that were written out in stats, in the order of their numbers.
    pub(super) written: Vec<Vec<u8>>,
    pub(super) tally: Tally,
    /// Offsets of the first and the last event.
    pub(super) offsets: Option<(i64, i64)>,
    pub(super) backwards: u64,
    /// The first and the last record by their order, unless records were out of it.
    pub(super) ends: Option<[(i64, Reverse<i64>); 2]>,
    pub(super) is_sorted: bool,
    /// Events of executions, kept or not.
    pub(super) count: usize,
    /// Of the events of executions.
    pub(super) ids: MetadataIds,
    /// The first launch of a command buffer, which may have begun in an earlier chunk, and its first record.
    first_launch: Option<(i64, Record)>,
    /// The last launch of a command buffer.
    pub(super) last_launch: Option<i64>,
    /// Work outside every execution.
    pub(super) outside: OutsideEvents,
}

impl Piece {
    /// Continues the launch in which the chunks before ended.
    pub(super) fn continue_launch(&mut self, launch: i64) {
        if let Some((first, begins)) = self.first_launch
            && first == launch
            && let Some(record) = self.records.iter_mut().find(|record| **record == begins)
        {
            *record = begins.continuing(true);
        }
    }
}

/// The bytes after the module's stat up to the last of the others, if none of them precedes it and the operation's,
/// which changes from event to event, is not among them.
fn after_module<'a>(message: &'a [u8], operation: &[u8], stats: [&[u8]; 4]) -> Option<&'a [u8]> {
    let base = message.as_ptr() as usize;
    let place = |stat: &[u8]| {
        let start = (stat.as_ptr() as usize).checked_sub(base)?;
        Some(start..start + stat.len())
    };
    let [module, others @ ..] = stats;
    let from = place(module)?.end;
    let mut to = from;
    for stat in others.into_iter().filter(|stat| !stat.is_empty()) {
        let stat = place(stat)?;
        if stat.start < from {
            return None;
        }
        to = to.max(stat.end);
    }
    if !operation.is_empty() && (from..to).contains(&place(operation)?.start) {
        return None;
    }
    message.get(from..to)
}

/// Numbers from here on are indices in `Piece::written`.
pub(super) const WRITTEN: u32 = 1 << 31;

struct Reader<'v, 'a> {
    view: &'v PlaneView<'a>,
    base_ps: Option<i64>,
    keeps_records: bool,
    is_first: bool,
    /// Whether events outside every execution are to be added up.
    counts_outside: bool,
    piece: Piece,
    places: HashMap<Origin, u32>,
    last: Option<(Origin, u32)>,
    last_key: Option<Keyed<'a>>,
    written: HashMap<Vec<u8>, u32>,
}

/// The stats that name an execution: the next event of it has the same bytes.
#[derive(Clone, Copy)]
struct Keyed<'a> {
    /// The stats of module, program, run and device.
    stats: [&'a [u8]; 4],
    /// The bytes after the module's up to the last of them, if they are adjacent.
    after_module: Option<&'a [u8]>,
    key: Option<Key>,
    place: Option<u32>,
}

/// An event with the stats that identify it.
struct Telling<'a> {
    event: Event<'a>,
    /// By role the last stat of it, in wire format; empty if there is none.
    stats: [&'a [u8]; 8],
    /// Stats whose metadata is missing.
    unknown: u64,
    /// Whether the stats of module, program, run and device are those of the last event.
    is_last_key: bool,
}

impl<'a> Telling<'a> {
    /// Decodes an event; what follows the module's stat is skipped if the last event had the same bytes there.
    #[inline(always)]
    fn read(message: &'a [u8], view: &PlaneView<'a>, last: Option<Keyed<'a>>) -> Result<Self, WireError> {
        const MODULE: u8 = Role::Module as u8;
        // the identifying stats, which a writer puts first
        let mut stats: [&[u8]; 8] = [&[]; 8];
        let (mut unknown, mut damaged, mut is_last_key) = (0, None, false);
        let event = Event::decode_with(message, |stat, rest| {
            match view.role(stat) {
                Ok(0) => {}
                Ok(UNKNOWN) => unknown += 1,
                Ok(role) => {
                    if let Some(slot) = stats.get_mut(usize::from(role)) {
                        *slot = stat;
                    }
                    is_last_key &= role == Role::Operation as u8;
                    if role == MODULE
                        && let Some(Keyed { stats: [module, program, run, ordinal], after_module: Some(after), .. }) =
                            last
                        && stat == module
                        && rest.starts_with(after)
                    {
                        let [_, operation, .., node, correlation] = stats;
                        stats = [&[], operation, stat, program, run, ordinal, node, correlation];
                        is_last_key = true;
                        return after.len();
                    }
                }
                Err(error) => damaged = Some(error),
            }
            0
        })?;
        damaged.map_or(Ok(Self { event, stats, unknown, is_last_key }), Err)
    }
}

/// Reads a chunk of a line.
pub(super) fn read<'a>(view: &PlaneView<'a>, line: &Line<'a>, chunk: EventChunk<'a>, pass: Pass<'_>) -> Piece {
    let last_launch = match pass {
        Pass::First { .. } => None,
        Pass::Second { launch, .. } => launch,
    };
    let mut reader = Reader {
        view,
        base_ps: line.base_ps(),
        keeps_records: !matches!(pass, Pass::First { with_records: false }),
        is_first: matches!(pass, Pass::First { .. }),
        counts_outside: matches!(pass, Pass::First { .. })
            && view.layout != Layout::HostThunks
            && may_be_work(&view.plane.name(), &line.name()),
        piece: Piece { is_sorted: true, last_launch, ..Piece::default() },
        places: HashMap::new(),
        last: None,
        last_key: None,
        written: HashMap::new(),
    };
    match pass {
        Pass::First { .. } => reader.origins(chunk),
        Pass::Second { ids, .. } => reader.records(chunk, ids),
    }
    // an execution's events are adjacent, unless executions overlap on one thread
    let records = &mut reader.piece.records;
    if !records.is_sorted_by_key(Record::place) {
        records.sort_by_key(Record::place);
    }
    reader.piece
}

impl<'a> Reader<'_, 'a> {
    fn origins(&mut self, chunk: EventChunk<'a>) {
        let mut last_id = None;
        for message in chunk.messages() {
            let (offset, is_record) = match self.event(message) {
                Ok(read) => read,
                Err(_) => {
                    self.piece.tally.malformed += 1;
                    continue;
                }
            };
            let (first, last) = self.piece.offsets.unwrap_or((offset, offset));
            self.piece.backwards += u64::from(offset < last);
            self.piece.offsets = Some((first, offset));
            let id = first_id(message);
            if is_record && id != last_id {
                self.piece.ids.add(id);
                last_id = id;
            }
        }
    }

    fn records(&mut self, chunk: EventChunk<'a>, ids: &MetadataIds) {
        for message in chunk.messages().filter(|message| ids.contains(first_id(message))) {
            // damage was counted when the origins were searched
            let _ = self.event(message);
        }
    }

    /// Returns the event's offset, and whether it belongs to an execution.
    #[inline(always)]
    fn event(&mut self, message: &'a [u8]) -> Result<(i64, bool), WireError> {
        match self.view.layout {
            Layout::ModuleLines => {
                let event = Event::decode(message)?;
                Ok((event.offset_ps, self.operation(&event)))
            }
            Layout::HostThunks | Layout::DeviceStreams => self.thunk(message),
        }
    }

    fn time(&mut self, event: &Event<'_>) -> Option<Interval> {
        match interval_after(self.base_ps, event) {
            Ok(time) => return Some(time),
            Err(Unusable::Negative) => self.piece.tally.negative += 1,
            Err(Unusable::OutOfRange) => self.piece.tally.out_of_range += 1,
        }
        None
    }

    /// The index of an execution in the chunk.
    fn place(&mut self, origin: Origin) -> u32 {
        match self.last {
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
        }
    }

    #[inline]
    fn push(&mut self, record: Record) {
        self.piece.count += 1;
        if self.keeps_records {
            self.piece.records.push(record);
        }
        if !self.is_first {
            return;
        }
        let [first, last] = self.piece.ends.unwrap_or([record.order(); 2]);
        self.piece.is_sorted &= last <= record.order();
        self.piece.ends = Some([first, record.order()]);
    }

    /// An event of the operations line: it belongs to the module that was in progress when it started.
    fn operation(&mut self, event: &Event<'_>) -> bool {
        let Some(time) = self.time(event) else { return false };
        let Some(name) = self.view.events.get(event.metadata_id) else {
            self.piece.tally.unknown += 1;
            return false;
        };
        let windows = &self.view.windows;
        let after = windows.partition_point(|window| window.time.start_ps <= time.start_ps);
        match after.checked_sub(1).and_then(|last| windows.get(last).map(|window| (last, window))) {
            Some((last, window)) if time.start_ps < window.time.end_ps => {
                let place = self.place(Origin::Window(last as u32));
                self.push(Record::new(time, name, place));
                true
            }
            _ => {
                self.piece.tally.outside += 1;
                if self.counts_outside && name != END_MARK {
                    self.piece.outside.add(name, time);
                }
                false
            }
        }
    }

    /// The execution that these stats name; `None` if the module has no name.
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

    /// An event that may name its module, program, run and device.
    #[inline(always)]
    fn thunk(&mut self, message: &'a [u8]) -> Result<(i64, bool), WireError> {
        let (view, last) = (self.view, self.last_key);
        let Telling { event, stats: telling, unknown, is_last_key } = Telling::read(message, view, last)?;
        self.piece.tally.unknown += unknown;
        let [_, operation, module, program, run, ordinal, node, correlation] = telling;
        // on a host, an event without an operation is the host's own work, and one that is correlated with a device's
        // is the launch of a kernel
        let is_of_host = operation.is_empty() || !correlation.is_empty();
        if module.is_empty() || (is_of_host && view.layout == Layout::HostThunks) {
            if self.counts_outside
                && let Some(name) = view.events.get(event.metadata_id).filter(|name| *name != END_MARK)
                && let Ok(time) = interval_after(self.base_ps, &event)
            {
                self.piece.outside.add(name, time);
            }
            return Ok((event.offset_ps, false));
        }
        let keyed = match last {
            Some(last) if is_last_key || last.stats == [module, program, run, ordinal] => last,
            _ => {
                let stats = [module, program, run, ordinal];
                let after_module = if unknown == 0 { after_module(message, operation, stats) } else { None };
                let keyed = Keyed { stats, after_module, key: self.key(stats)?, place: None };
                self.last_key = Some(keyed);
                keyed
            }
        };
        let mut operation = match operation {
            [] => None,
            operation => self.name(Stat::decode(operation)?.value),
        };
        let name = view.events.get(event.metadata_id);
        self.piece.tally.unknown += u64::from(name.is_none());
        let (mut launch, mut before) = (None, None);
        if view.layout == Layout::DeviceStreams {
            // a device's kernel is work even if it names no operation
            operation = operation.or(name);
            if !node.is_empty() {
                (launch, before) = self.launch(correlation)?;
            }
            // XLA gives all kernels of a command buffer the buffer's name
            if operation.is_some_and(|operation| self.is_buffer(operation)) {
                operation = name.or(operation);
            }
        }
        if let (Some(key), Some(operation)) = (keyed.key, operation)
            && name != Some(END_MARK)
            && let Some(time) = self.time(&event)
        {
            let place = keyed.place.unwrap_or_else(|| {
                let place = self.place(Origin::Stats(key));
                self.last_key = Some(Keyed { place: Some(place), ..keyed });
                place
            });
            let is_of_device = view.layout == Layout::DeviceStreams;
            let kernel = name.filter(|_| is_of_device).unwrap_or_default();
            let record = Record::new(time, operation, place).of_kernel(kernel);
            if let (Some(launch), None) = (launch, before) {
                self.piece.first_launch = Some((launch, record));
            }
            self.push(record.continuing(launch.is_some() && launch == before));
            return Ok((event.offset_ps, true));
        }
        Ok((event.offset_ps, false))
    }

    /// Whether a name is one that XLA gives to command buffers.
    #[inline]
    fn is_buffer(&self, number: u32) -> bool {
        match number.checked_sub(WRITTEN) {
            None => self.view.buffers.contains(&number),
            Some(place) => {
                let written = self.piece.written.get(place as usize);
                written.is_some_and(|name| name.starts_with(COMMAND_BUFFER))
            }
        }
    }

    /// The launch of a command buffer's kernel, and the one before it.
    #[inline(always)]
    fn launch(&mut self, correlation: &[u8]) -> Result<(Option<i64>, Option<i64>), WireError> {
        let launch = if correlation.is_empty() { None } else { Stat::decode(correlation)?.value.as_integer() };
        let before = self.piece.last_launch;
        self.piece.last_launch = launch.or(before);
        Ok((launch, before))
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
