//! The second pass over the events: each execution's events arrive by start, from all lines, and are folded as they
//! arrive. Only the events of the current chunks are held, never those of a whole execution.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use super::gather::Key;
use super::index::{Chunk, ExecutionSource, Grouped, Index};
use super::record::Record;
use super::split::{FirstKernel, first_kernel, places_of, split};

/// A fold of the events of an execution.
pub(super) trait Fold: Sync {
    /// An execution in progress.
    type Open: Send;
    /// A completed one.
    type Done: Send;
    /// A thread's state that is reused for the next execution.
    type Scratch: Default;

    fn open(&self, source: &ExecutionSource<'_, '_>) -> Self::Open;

    /// Takes events, by start and the longest first. No later event starts before one of them.
    fn add(&self, open: &mut Self::Open, records: &[Record], scratch: &mut Self::Scratch);

    fn close(&self, open: Self::Open, source: &ExecutionSource<'_, '_>) -> Self::Done;
}

/// How often the program of these events ran, if known.
pub(super) type RunsOfKey<'r> = &'r (dyn Fn(Key) -> Option<u64> + Sync);

/// An execution in progress.
struct Open<O> {
    /// Events that others may still precede.
    pending: Vec<Record>,
    state: Option<O>,
    /// For events that name no run: what each execution begins with.
    begins_with: Option<FirstKernel>,
}

/// Number of events read at once per thread; a thread's first chunk is read at any size.
const EVENTS_PER_THREAD: usize = 1 << 13;

/// The executions of an index, as far as they were read.
pub(super) struct Sweep<'s, 'v, 'a, F: Fold> {
    index: &'s Index<'v, 'a>,
    runs_of: RunsOfKey<'s>,
    fold: &'s F,
    under_way: HashMap<u32, Open<F::Open>>,
    /// The next chunk to read.
    next: usize,
}

/// Passes each execution to `give` when its last event was read, with its number in the index.
pub(super) fn sweep<F: Fold>(
    index: &Index<'_, '_>,
    runs_of: RunsOfKey<'_>,
    fold: &F,
    give: &mut dyn FnMut(u32, F::Done),
) {
    let mut sweep = Sweep::new(index, runs_of, fold, give);
    while sweep.step(give) {}
}

impl<'s, 'v, 'a, F: Fold> Sweep<'s, 'v, 'a, F> {
    /// Passes on the executions without events, and starts before the first event.
    pub(super) fn new(
        index: &'s Index<'v, 'a>,
        runs_of: RunsOfKey<'s>,
        fold: &'s F,
        give: &mut dyn FnMut(u32, F::Done),
    ) -> Self {
        for (number, found) in (0..).zip(&index.executions).filter(|(_, found)| found.last_chunk.is_none()) {
            if let Some(source) = index.source(found) {
                give(number, fold.close(fold.open(&source), &source));
            }
        }
        Self { index, runs_of, fold, under_way: HashMap::new(), next: 0 }
    }

    /// The start of the first unread event; `None` if all were read.
    pub(super) fn next_ps(&self) -> Option<i64> {
        self.index.chunks.get(self.next).map(|chunk: &Chunk<'_, '_>| chunk.from_ps)
    }

    /// Reads as many events as are read at once. `false` if there was none.
    pub(super) fn step(&mut self, give: &mut dyn FnMut(u32, F::Done)) -> bool {
        let Self { index, runs_of, fold, under_way, next } = self;
        let threads = rayon::current_num_threads().max(1);
        let Some(unread) = index.chunks.get(*next..).filter(|unread| !unread.is_empty()) else { return false };
        let mut events = 0;
        let fit = unread.iter().take_while(|chunk| {
            let fits = events < threads * EVENTS_PER_THREAD;
            events += chunk.records;
            fits
        });
        let count = fit.count();
        let numbers = *next..*next + count;
        *next += count;
        let next = *next;
        let read: Vec<Grouped> = numbers.into_par_iter().map(|number| index.records(number)).collect();
        let mut of_executions: BTreeMap<u32, Vec<&[Record]>> = BTreeMap::new();
        for (execution, records) in read.iter().flat_map(Grouped::of_executions) {
            of_executions.entry(execution).or_default().push(records);
        }
        let until_ps = index.chunks.get(next).map_or(i64::MAX, |chunk: &Chunk<'_, '_>| chunk.from_ps);
        let work: Vec<_> = of_executions
            .into_iter()
            .map(|(execution, records)| (execution, under_way.remove(&execution), records))
            .collect();
        let steps = work.into_par_iter().map_init(Default::default, |scratch, (execution, open, records)| {
            let found = index.executions.get(execution as usize)?;
            let source = index.source(found)?;
            let is_last = found.last_chunk.is_none_or(|last| last < next);
            let open = open.unwrap_or(Open { pending: Vec::new(), state: None, begins_with: None });
            let mut step = Step { fold: *fold, source, runs_of: *runs_of, done: Vec::new(), scratch };
            let rest = step.take(open, &records, (!is_last).then_some(until_ps));
            Some((execution, rest, step.done))
        });
        let steps: Vec<_> = steps.flatten_iter().collect();
        for (execution, open, done) in steps {
            done.into_iter().for_each(|done| give(execution, done));
            if let Some(open) = open {
                under_way.insert(execution, open);
            }
        }
        true
    }
}

struct Step<'s, 'i, 'v, 'a, F: Fold> {
    fold: &'s F,
    source: ExecutionSource<'v, 'a>,
    runs_of: RunsOfKey<'i>,
    done: Vec<F::Done>,
    scratch: &'s mut F::Scratch,
}

impl<F: Fold> Step<'_, '_, '_, '_, F> {
    /// Takes events of an execution. Those that start at `until_ps` or later stay pending, since others may precede
    /// them; without such a time, these were the last.
    fn take(&mut self, mut open: Open<F::Open>, read: &[&[Record]], until_ps: Option<i64>) -> Option<Open<F::Open>> {
        let runs = self.source.several.and_then(self.runs_of);
        let waits = runs.is_some() && until_ps.is_some();
        let mut together;
        let records = match (&open.pending[..], read) {
            ([], [only]) if !waits && only.is_sorted_by_key(Record::order) => *only,
            _ => {
                together = std::mem::take(&mut open.pending);
                together.reserve_exact(read.iter().map(|more| more.len()).sum());
                read.iter().for_each(|more| together.extend_from_slice(more));
                if waits {
                    // with a known number of runs, all events are needed to split them
                    open.pending = together;
                    return Some(open);
                }
                if !together.is_sorted_by_key(Record::order) {
                    // lines are sorted, which a stable sort merges
                    together.sort_by_key(Record::order);
                }
                &together[..]
            }
        };
        let ready = until_ps.map_or(records.len(), |until| records.partition_point(|one| one.time.start_ps < until));
        let (ready, pending) = records.split_at(ready);
        open.pending = pending.to_vec();
        match (self.source.several, runs) {
            (None, _) => self.feed(&mut open.state, ready),
            (Some(_), None) => self.cut_as_they_come(&mut open, ready),
            (Some(_), Some(runs)) => {
                for records in split(ready, Some(runs)) {
                    let mut state = None;
                    self.feed(&mut state, records);
                    self.close(state);
                }
            }
        }
        if until_ps.is_some() {
            return Some(open);
        }
        self.close(open.state);
        None
    }

    /// A new execution begins where the first kernel occurs again.
    fn cut_as_they_come(&mut self, open: &mut Open<F::Open>, mut records: &[Record]) {
        if open.begins_with.is_none() {
            open.begins_with = first_kernel(records);
        }
        let starts = open.begins_with.map_or_else(Vec::new, |first| places_of(first, records));
        let mut before = 0;
        for start in starts {
            let (own, after) = records.split_at(start - before);
            self.feed(&mut open.state, own);
            self.close(open.state.take());
            (records, before) = (after, start);
        }
        self.feed(&mut open.state, records);
    }

    fn feed(&mut self, state: &mut Option<F::Open>, records: &[Record]) {
        if !records.is_empty() {
            let state = state.get_or_insert_with(|| self.fold.open(&self.source));
            self.fold.add(state, records, self.scratch);
        }
    }

    fn close(&mut self, state: Option<F::Open>) {
        if let Some(state) = state {
            self.done.push(self.fold.close(state, &self.source));
        }
    }
}
