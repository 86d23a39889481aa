//! A dump as Chrome's JSON: a process for each SM, a thread for each trace, a pair of events for each range.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

use serde::Serialize;

use super::dump::{Dump, Record, Timeline};

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
    /// Ends without a beginning, and beginnings without an end.
    pub unpaired: u64,
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
            (self.unpaired, "events without a counterpart: a range was not ended, or ended twice"),
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

#[derive(Serialize)]
struct Label<'n> {
    name: &'static str,
    ph: &'static str,
    pid: u64,
    tid: u64,
    args: LabelName<'n>,
}

#[derive(Serialize)]
struct LabelName<'n> {
    name: &'n str,
}

/// Writes a dump as a trace; blocks come in the order in which they began.
///
/// # Errors
/// If `out` fails.
pub fn draw(dump: &Dump<'_>, names: &HashMap<u32, String>, clock: Clock, out: &mut dyn Write) -> io::Result<Drawn> {
    let mut drawn = Drawn::default();
    let mut order: Vec<(i64, u64)> = Vec::new();
    for trace in 0..dump.traces() {
        match dump.timeline(trace) {
            Timeline::BeforeItsStart => drawn.dropped += 1,
            Timeline::Records(records) if records.is_empty() => drawn.empty += 1,
            Timeline::Records(_) => order.push((dump.start_ns(trace), trace)),
        }
    }
    order.sort();
    let megahertz = match clock {
        Clock::Megahertz(megahertz) => megahertz.to_string(),
        Clock::Unknown => "null".to_owned(),
    };
    write!(
        out,
        r#"{{"displayTimeUnit":"ns","otherData":{{"clock_mhz":{megahertz},"overhead_cycles":{}}},"traceEvents":["#,
        dump.overhead_cycles()
    )?;
    let mut separator = "\n";
    let mut sms = BTreeSet::new();
    for (start_ns, trace) in order {
        let Timeline::Records(records) = dump.timeline(trace) else { continue };
        let (sm, per_block) = (dump.sm(trace), dump.per_block());
        let (pid, tid) = (1 + u64::from(sm), 1 + trace);
        let place = format!("block {} {} {}", trace / per_block, dump.scope().name(), trace % per_block);
        let of_sm = format!("SM {sm}");
        let of_process = sms.insert(sm).then_some(("process_name", 0, of_sm.as_str()));
        for (what, tid, name) in of_process.into_iter().chain([("thread_name", tid, place.as_str())]) {
            put(out, &mut separator, &Label { name: what, ph: "M", pid, tid, args: LabelName { name } })?;
        }
        drawn.traces += 1;
        drawn.unpaired += unpaired(&records);
        let mut last = 0;
        for record in &records {
            let name: Cow<'_, str> = match names.get(&record.name) {
                Some(name) => name.into(),
                None => {
                    drawn.nameless += 1;
                    format!("#{}", record.name).into()
                }
            };
            if let Some(shown) = record.went_back_to {
                drawn.clamped += 1;
                if last - shown > SMALL_STEP {
                    drawn.steps_back += 1;
                    let side = if record.begins { "start" } else { "end" };
                    drawn
                        .first_step_back
                        .get_or_insert_with(|| format!("the {side} of `{name}` in {place}: cycle {last} to {shown}"));
                }
            }
            last = record.cycles;
            drawn.events += 1;
            let ph = if record.begins { "B" } else { "E" };
            let ts = (start_ns as f64 + clock.nanoseconds(record.cycles)) / 1e3;
            put(out, &mut separator, &Pair { name: &name, ph, ts, pid, tid })?;
        }
    }
    out.write_all(b"\n]}\n")?;
    Ok(drawn)
}

fn put(out: &mut dyn Write, separator: &mut &str, event: &impl Serialize) -> io::Result<()> {
    out.write_all(separator.as_bytes())?;
    *separator = ",\n";
    serde_json::to_writer(&mut *out, event)?;
    Ok(())
}

/// Ends that end nothing, or another range than the one in progress, and ranges that do not end.
fn unpaired(records: &[Record]) -> u64 {
    let (mut open, mut unpaired) = (Vec::new(), 0);
    for record in records {
        if record.begins {
            open.push(record.name);
        } else if open.pop() != Some(record.name) {
            unpaired += 1;
        }
    }
    unpaired + open.len() as u64
}
