//! A dump as Chrome's JSON: a process for each SM, a thread for each trace, a pair of events for each range.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

use serde::Serialize;

use super::dump::{Dump, Record, Timeline};
use crate::analysis::trace::{ChromeFrame, json};

/// Backward steps of the clock that are too small to report, as between two instructions.
const SMALL_STEP: i64 = 10;

/// The length of a cycle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clock {
    /// The SMs ran at this many megahertz.
    Megahertz(f64),
    /// Unknown: a cycle is drawn as a nanosecond.
    Unknown,
}

impl Clock {
    fn nanoseconds(self, cycles: i64) -> f64 {
        match self {
            Self::Megahertz(megahertz) => cycles as f64 * 1e3 / megahertz,
            Self::Unknown => cycles as f64,
        }
    }
}

/// Counts of what was drawn and what was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drawn {
    /// Traces with events.
    pub traces: u64,
    /// Traces without.
    pub empty: u64,
    /// Traces left out because the clock went back to before their first event.
    pub dropped: u64,
    /// Events, two of a range.
    pub events: u64,
    /// Events at which the clock went back or stood still.
    pub clamped: u64,
    /// Of these, those by more than 10 cycles.
    pub steps_back: u64,
    /// The first of those, in words.
    pub first_step_back: Option<String>,
    /// Events whose name's number is not among the names.
    pub nameless: u64,
    /// Ends without a beginning.
    pub unpaired: u64,
    /// Beginnings without an end, as where a trace is full; they end with its last event.
    pub open: u64,
}

impl Drawn {
    /// Notes for the reader of the trace, one line each.
    pub fn notes(&self, clock: Clock) -> Vec<String> {
        let mut notes = Vec::new();
        if clock == Clock::Unknown && self.events > 0 {
            notes.push(
                "starts are nanoseconds and the rest is cycles: each cycle is drawn as a nanosecond; give the SMs' \
                 clock with --clock MHZ"
                    .to_owned(),
            );
        }
        if let Some(first) = &self.first_step_back {
            notes.push(format!(
                "events at which the clock went back by more than 10 cycles: {}, first {first}",
                self.steps_back
            ));
        }
        let counts = [
            (self.dropped, "traces left out, whose clock went back to before their first event"),
            (self.nameless, "events whose name is not among the names, named by its number"),
            (self.unpaired, "ends of ranges that were not begun, or not last"),
            (
                self.open,
                "ranges without an end, drawn up to their trace's last event: the kernel left them open, or the \
                         buffer was full (profile again with more entries)",
            ),
        ];
        notes.extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}")));
        notes
    }
}

#[derive(Serialize)]
struct Pair<'n> {
    name: &'n str,
    ph: &'static str,
    /// Microseconds.
    ts: f64,
    pid: u64,
    tid: u64,
}

/// Writes a dump as a trace; blocks come in the order in which they began.
///
/// # Errors
/// If `out` fails.
pub fn draw(dump: &Dump<'_>, names: &HashMap<u32, String>, clock: Clock, out: &mut dyn Write) -> io::Result<Drawn> {
    let mut drawing =
        Drawing { dump, names, clock, frame: ChromeFrame::default(), sms: BTreeSet::new(), drawn: Drawn::default() };
    let mut order: Vec<(i64, u64)> = Vec::new();
    for trace in 0..dump.traces() {
        match dump.timeline(trace) {
            Timeline::BeforeItsStart => drawing.drawn.dropped += 1,
            Timeline::Records(records) if records.is_empty() => drawing.drawn.empty += 1,
            Timeline::Records(_) => order.push((dump.start_ns(trace), trace)),
        }
    }
    order.sort();
    let megahertz = match clock {
        Clock::Megahertz(megahertz) => megahertz.to_string(),
        Clock::Unknown => "null".to_owned(),
    };
    let about = format!(r#"{{"clock_mhz":{megahertz},"overhead_cycles":{}}}"#, dump.overhead_cycles());
    drawing.frame.start(Some(&about));
    for (start_ns, trace) in order {
        if let Timeline::Records(records) = dump.timeline(trace) {
            drawing.trace(trace, start_ns, &records);
        }
        out.write_all(drawing.frame.written())?;
        drawing.frame.written().clear();
    }
    drawing.frame.finish();
    out.write_all(drawing.frame.written())?;
    Ok(drawing.drawn)
}

/// A dump while it is drawn.
struct Drawing<'d> {
    dump: &'d Dump<'d>,
    names: &'d HashMap<u32, String>,
    clock: Clock,
    frame: ChromeFrame,
    /// Those that have a name by now.
    sms: BTreeSet<u32>,
    drawn: Drawn,
}

impl<'d> Drawing<'d> {
    fn trace(&mut self, trace: u64, start_ns: i64, records: &[Record]) {
        let (sm, per_block) = (self.dump.sm(trace), self.dump.per_block());
        let (pid, tid) = (1 + u64::from(sm), 1 + trace);
        let place = format!("block {} {} {}", trace / per_block, self.dump.scope().name(), trace % per_block);
        if self.sms.insert(sm) {
            self.frame.describe("process_name", (pid, 0), ("name", &json(&format!("SM {sm}"))));
        }
        self.frame.describe("thread_name", (pid, tid), ("name", &json(&place)));
        self.drawn.traces += 1;
        let Open { ranges, unpaired } = Open::of(records);
        (self.drawn.unpaired, self.drawn.open) =
            (self.drawn.unpaired + unpaired, self.drawn.open + ranges.len() as u64);
        let mut last = 0;
        for record in records {
            let name = self.name(record);
            self.drawn.nameless += u64::from(!self.names.contains_key(&record.name));
            self.check_clock(record, last, (&name, &place));
            last = record.cycles;
            self.drawn.events += 1;
            self.event(&name, record.begins, start_ns, record.cycles, (pid, tid));
        }
        // the innermost first, as JAX does since 0.12
        for record in ranges.iter().rev() {
            let name = self.name(record);
            self.event(&name, false, start_ns, last, (pid, tid));
        }
    }

    fn event(&mut self, name: &str, begins: bool, start_ns: i64, cycles: i64, (pid, tid): (u64, u64)) {
        let ph = if begins { "B" } else { "E" };
        let ts = (start_ns as f64 + self.clock.nanoseconds(cycles)) / 1e3;
        let event = json(&Pair { name, ph, ts, pid, tid });
        self.frame.event().extend_from_slice(&event);
    }

    fn name(&self, record: &Record) -> Cow<'d, str> {
        match self.names.get(&record.name) {
            Some(name) => name.into(),
            None => format!("#{}", record.name).into(),
        }
    }

    /// Counts a backward step of the clock, which showed `last` before.
    fn check_clock(&mut self, record: &Record, last: i64, (name, place): (&str, &str)) {
        let Some(shown) = record.went_back_to else { return };
        self.drawn.clamped += 1;
        if last - shown > SMALL_STEP {
            self.drawn.steps_back += 1;
            let side = if record.begins { "start" } else { "end" };
            let step = || format!("the {side} of `{name}` in {place}: cycle {last} to {shown}");
            self.drawn.first_step_back.get_or_insert_with(step);
        }
    }
}

/// The ranges of a trace that were not ended, and how many ends ended nothing or another range.
struct Open {
    ranges: Vec<Record>,
    unpaired: u64,
}

impl Open {
    fn of(records: &[Record]) -> Self {
        let mut open = Self { ranges: Vec::new(), unpaired: 0 };
        for record in records {
            if record.begins {
                open.ranges.push(*record);
            } else if open.ranges.pop().is_none_or(|range| range.name != record.name) {
                open.unpaired += 1;
            }
        }
        open
    }
}
