//! The times of one execution and of its operations, from a stream of events by start.

use super::interval::{Coverage, Interval, OwnTime, Union};
use super::names::NameId;
use super::record::Record;

/// The events of one operation within one execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// The instruction's name.
    pub name: NameId,
    /// The operation that encloses the first of its events on the same line.
    pub inside: Option<NameId>,
    /// Start of the first of them.
    pub start_ps: i64,
    /// Events.
    pub count: u64,
    /// Sum of their durations.
    pub total_ps: u64,
    /// The part of it during which no operation that started later ran on the same line; for control flow (`while`,
    /// `conditional`, `call`) also without the work of other lines in the same execution.
    pub self_ps: u64,
}

/// Which operations are control flow, and which count as busy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) control: &'a [bool],
    pub(super) wanted: Option<&'a [bool]>,
}

impl Choice<'_> {
    fn is_control(&self, operation: u32) -> bool {
        self.control.get(operation as usize).copied().unwrap_or(false)
    }

    fn is_wanted(&self, operation: u32) -> bool {
        self.wanted.is_none_or(|wanted| wanted.get(operation as usize).copied().unwrap_or(false))
    }
}

/// A thread's table of the indices of operations and lines in the current execution.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    operations: Places,
    lines: Places,
}

/// Places by number, valid where the mark is the execution's.
#[derive(Debug, Default)]
struct Places {
    list: Vec<(u64, u32)>,
    mark: u64,
}

impl Places {
    fn begin(&mut self, numbers: impl Iterator<Item = u32>) {
        self.mark += 1;
        for (number, place) in numbers.zip(0..) {
            *self.of(number) = (self.mark, place);
        }
    }

    fn of(&mut self, number: u32) -> &mut (u64, u32) {
        let number = number as usize;
        if self.list.len() <= number {
            self.list.resize(number + 1, (0, 0));
        }
        &mut self.list[number]
    }

    /// The index of a number, and whether it is new: then it is the given one.
    #[inline]
    fn place(&mut self, number: u32, next: usize) -> (usize, bool) {
        let mark = self.mark;
        let place = self.of(number);
        let is_new = place.0 != mark;
        if is_new {
            *place = (mark, next as u32);
        }
        (place.1 as usize, is_new)
    }
}

/// The state of an execution while its events arrive.
#[derive(Debug, Default)]
pub(super) struct Folding {
    operations: Vec<OfOperation>,
    lines: Vec<OfLine>,
    pub(super) events: u64,
    /// From the first start to the last end.
    pub(super) time: Option<Interval>,
    kernels: Union,
    all: Union,
    across: Across,
}

#[derive(Debug)]
struct OfOperation {
    operation: Operation,
    /// Its first line, and its first event's place there.
    first: (u32, u64),
}

#[derive(Debug)]
struct OfLine {
    line: u32,
    events: u64,
    own: OwnTime<(u32, bool)>,
}

/// Control flow's time that may belong to other lines: pieces that are pending until all lines have passed.
#[derive(Debug, Default)]
struct Across {
    control: Vec<(u32, Interval)>,
    leaves: Vec<Interval>,
    /// Last end of control flow.
    until_ps: Option<i64>,
}

/// Maximum number of pending pieces.
const MAX_PIECES: usize = 4096;

impl Folding {
    /// Adds events by start, the longest first; none may start before an earlier one.
    pub(super) fn add(&mut self, records: &[Record], choice: Choice<'_>, scratch: &mut Scratch) {
        scratch.operations.begin(self.operations.iter().map(|one| one.operation.name.0));
        scratch.lines.begin(self.lines.iter().map(|line| line.line));
        for record in records {
            self.add_one(record, choice, scratch);
        }
    }

    #[inline]
    fn add_one(&mut self, record: &Record, choice: Choice<'_>, scratch: &mut Scratch) {
        let (Record { time, operation: name, .. }, line) = (*record, record.place());
        let (line_place, is_new) = scratch.lines.place(line, self.lines.len());
        if is_new {
            self.lines.push(OfLine { line, events: 0, own: OwnTime::default() });
        }
        let several = self.lines.len() > 1;
        let Some(of_line) = self.lines.get_mut(line_place) else { return };
        let first = (line, of_line.events);
        of_line.events += 1;
        let (place, is_new) = scratch.operations.place(name, self.operations.len());
        if is_new {
            let around = of_line.own.enclosing(time.end_ps).and_then(|(place, _)| self.operations.get(place as usize));
            let inside = around.map(|one| one.operation.name);
            let operation =
                Operation { name: NameId(name), inside, start_ps: time.start_ps, count: 0, total_ps: 0, self_ps: 0 };
            self.operations.push(OfOperation { operation, first });
        }
        if let Some(one) = self.operations.get_mut(place) {
            one.first = one.first.min(first);
            one.operation.count += 1;
            one.operation.total_ps += time.length_ps();
        }
        self.events += 1;
        let so_far = self.time.get_or_insert(time);
        so_far.end_ps = so_far.end_ps.max(time.end_ps);
        let is_control = choice.is_control(name);
        if choice.is_wanted(name) {
            self.all.add(time);
            if !is_control {
                self.kernels.add(time);
            }
        }
        if is_control {
            self.across.until_ps = self.across.until_ps.max(Some(time.end_ps));
        }
        let Self { operations, across, .. } = self;
        of_line.own.add((place as u32, is_control), time, |owner, piece| {
            give(operations, across, several, owner, piece);
        });
        if across.control.len() + across.leaves.len() > MAX_PIECES {
            self.settle(time.start_ps);
        }
    }

    /// Subtracts other lines' work from control flow, up to a moment before which no later event starts.
    fn settle(&mut self, until_ps: i64) {
        let Self { operations, across, lines, .. } = self;
        let several = lines.len() > 1;
        for line in lines {
            line.own.advance(until_ps, |owner, piece| give(operations, across, several, owner, piece));
        }
        let leaves = Coverage::new(std::mem::take(&mut across.leaves));
        for (place, piece) in across.control.drain(..) {
            if let Some(one) = operations.get_mut(place as usize) {
                one.operation.self_ps += piece.length_ps() - leaves.of(piece);
            }
        }
    }

    pub(super) fn busy_ps(&self) -> u64 {
        self.all.length_ps()
    }

    pub(super) fn kernels_busy_ps(&self) -> u64 {
        self.kernels.length_ps()
    }

    /// The operations, by first appearance in the lines' order.
    pub(super) fn operations(mut self) -> Vec<Operation> {
        self.settle(i64::MAX);
        self.operations.sort_unstable_by_key(|one| one.first);
        self.operations.into_iter().map(|one| one.operation).collect()
    }
}

/// Self time of an event. With several lines, that of control flow is pending until theirs is known.
#[inline]
fn give(
    operations: &mut [OfOperation],
    across: &mut Across,
    several: bool,
    (place, is_control): (u32, bool),
    piece: Interval,
) {
    if several && is_control {
        across.control.push((place, piece));
        return;
    }
    if let Some(one) = operations.get_mut(place as usize) {
        one.operation.self_ps += piece.length_ps();
    }
    // an event after all control flow so far takes nothing from it, and later events start later
    if several && across.until_ps.is_some_and(|until| piece.start_ps < until) {
        across.leaves.push(piece);
    }
}
