//! From a dump's words to times that can be compared.
//!
//! Differences of times are taken in 32 bits and read as signed, so that a wrapping counter needs no special case; only
//! two events more than 2³¹ cycles apart, more than a second, would be misread.

use super::error::MosaicError;
use super::spec::{Extent, HEADER, ProfilerSpec, Scope};
use super::words::Words;

/// What recording an event costs at most, in cycles; less where two events are closer.
const MOST_OVERHEAD: i64 = 12;

const EXIT: u32 = 1 << 31;

/// The buffer of one launch.
#[derive(Debug)]
pub struct Dump<'w> {
    words: &'w Words,
    entries: u64,
    traces: u64,
    per_block: u64,
    scope: Scope,
    /// Words of each header's count that are not events.
    counted: u64,
    overhead: i64,
    /// The origin of the starts, so that none is negative.
    first_start: u32,
    base_ns: i64,
}

/// The beginning or the end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Number of its name.
    pub name: u32,
    /// Whether the range begins here.
    pub begins: bool,
    /// Cycles after the trace's first record, without the cost of recording.
    pub cycles: i64,
    /// If the clock went back: the time that it showed. The record is set one cycle after the one before it.
    pub went_back_to: Option<i64>,
}

/// The records of one trace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timeline {
    /// In the order in which they were made.
    Records(Vec<Record>),
    /// The clock went back to before the first record, so the rest is unusable.
    BeforeItsStart,
}

impl<'w> Dump<'w> {
    /// The traces of a launch. How a header counts is recognized by the counts: with the header's three words they are
    /// odd.
    ///
    /// # Errors
    /// If the buffer does not fit the launch, or a trace did not fit the buffer.
    pub fn new(words: &'w Words, grid: Extent, block: Extent, scope: Scope) -> Result<Self, MosaicError> {
        let spec = ProfilerSpec { entries: 0, scope };
        let (traces, per_block) = (spec.traces(grid, block)?, spec.traces_per_block(block)?);
        if !words.len().is_multiple_of(traces) {
            return Err(MosaicError::Shape { words: words.len(), traces });
        }
        let entries = words.len() / traces;
        if entries < HEADER {
            return Err(MosaicError::TooSmall { entries });
        }
        let counted = if words.get(2) % 2 == 1 { HEADER } else { 0 };
        let first_start = words.get(0);
        let mut dump = Self { words, entries, traces, per_block, scope, counted, overhead: 0, first_start, base_ns: 0 };
        let (mut closest, mut earliest) = (MOST_OVERHEAD, 0);
        for trace in 0..traces {
            dump.check(trace)?;
            earliest = earliest.min(dump.start(trace));
            let times = (0..dump.events(trace)).map(|event| dump.time(trace, event));
            let mut last = None;
            for time in times {
                let step = last.replace(time).map(|last| i64::from(time.wrapping_sub(last) as i32));
                closest = closest.min(step.filter(|step| *step >= 0).unwrap_or(closest));
            }
        }
        dump.overhead = (closest - 1).max(0);
        // the counter may pass zero between two starts
        dump.base_ns = i64::from(first_start);
        if dump.base_ns + earliest < 0 {
            dump.base_ns += 1 << 32;
        }
        Ok(dump)
    }

    /// JAX's own space check, for either way of counting.
    fn check(&self, trace: u64) -> Result<(), MosaicError> {
        let used = u64::from(self.word(trace, 2));
        if used % 2 != self.counted % 2 || used < self.counted {
            return Err(MosaicError::Odd { trace, used });
        }
        let has_room = match self.counted {
            0 => used + HEADER <= self.entries,
            _ => used + 2 <= self.entries,
        };
        let used = used - self.counted + HEADER;
        if has_room { Ok(()) } else { Err(MosaicError::Space { trace, used, entries: self.entries }) }
    }

    #[inline]
    fn word(&self, trace: u64, place: u64) -> u32 {
        self.words.get(trace * self.entries + place)
    }

    fn events(&self, trace: u64) -> u64 {
        u64::from(self.word(trace, 2)).saturating_sub(self.counted) / 2
    }

    #[inline]
    fn time(&self, trace: u64, event: u64) -> u32 {
        self.word(trace, HEADER + 2 * event + 1)
    }

    /// Nanoseconds after the first trace's start, or before it.
    fn start(&self, trace: u64) -> i64 {
        i64::from(self.word(trace, 0).wrapping_sub(self.first_start) as i32)
    }

    /// How many traces there are.
    pub fn traces(&self) -> u64 {
        self.traces
    }

    /// Traces of each block.
    pub fn per_block(&self) -> u64 {
        self.per_block
    }

    /// The scope of one trace.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Cycles that are subtracted for each record before another.
    pub fn overhead_cycles(&self) -> i64 {
        self.overhead
    }

    /// The SM on which a trace was made.
    pub fn sm(&self, trace: u64) -> u32 {
        self.word(trace, 1)
    }

    /// When a trace began, in nanoseconds of the device's global timer.
    pub fn start_ns(&self, trace: u64) -> i64 {
        self.base_ns + self.start(trace)
    }

    /// The records of a trace.
    pub fn timeline(&self, trace: u64) -> Timeline {
        let mut records = Vec::new();
        let (mut elapsed, mut last_time, mut last) = (0_i64, None, None);
        for event in 0..self.events(trace) {
            let time = self.time(trace, event);
            elapsed += last_time.replace(time).map_or(0, |last| i64::from(time.wrapping_sub(last) as i32));
            let mut cycles = elapsed - self.overhead * event as i64;
            if cycles < 0 {
                return Timeline::BeforeItsStart;
            }
            let shown = cycles;
            let went_back_to = last.filter(|last| *last >= cycles).map(|last| {
                cycles = last + 1;
                shown
            });
            last = Some(cycles);
            let tag = self.word(trace, HEADER + 2 * event);
            records.push(Record { name: tag & !EXIT, begins: tag & EXIT == 0, cycles, went_back_to });
        }
        Timeline::Records(records)
    }
}
