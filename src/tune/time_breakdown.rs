//! Where the time went.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::timer::events::{Event, EventKind, Events, Phase, Sink, Slice};

/// Wall time of each part of the work, nanoseconds; the parts do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeBreakdown {
    /// Inputs made, written and loaded.
    pub inputs_ns: u64,
    /// Programs lowered on demand, compiled or taken from the store, and loaded.
    pub compile_ns: u64,
    /// Outputs compared with the baseline's.
    pub checking_ns: u64,
    /// Runs before the first round.
    pub warm_up_ns: u64,
    /// Searching a space for the configs to race: everything that was done for it, which no other part counts.
    pub searching_ns: u64,
    /// Rounds.
    pub measuring_ns: u64,
    /// Rounds of a winner in fresh processes, with starting them, loading and first runs there.
    pub confirming_ns: u64,
    /// Workers started again after failures.
    pub waiting_ns: u64,
    /// CPU time of the compilations, over all cores; not included in another part.
    pub compile_cpu_ns: u64,
    /// Sum of the compile times of the baselines in this run; not included in another part, since several are compiled
    /// at once.
    pub compile_baselines_ns: u64,
    /// The same of the other candidates; zero if all of them were stored, or compiled elsewhere.
    pub compile_candidates_ns: u64,
    /// The sum of all samples of the rounds: the part of `measuring_ns` in which programs ran.
    pub running_ns: u64,
}

impl TimeBreakdown {
    /// All of it.
    pub fn total(&self) -> Duration {
        let parts = [
            self.inputs_ns,
            self.compile_ns,
            self.checking_ns,
            self.warm_up_ns,
            self.searching_ns,
            self.measuring_ns,
            self.confirming_ns,
            self.waiting_ns,
        ];
        Duration::from_nanos(parts.into_iter().fold(0, u64::saturating_add))
    }
}

impl AddAssign for TimeBreakdown {
    fn add_assign(&mut self, other: Self) {
        let sums = [
            (&mut self.inputs_ns, other.inputs_ns),
            (&mut self.compile_ns, other.compile_ns),
            (&mut self.checking_ns, other.checking_ns),
            (&mut self.warm_up_ns, other.warm_up_ns),
            (&mut self.searching_ns, other.searching_ns),
            (&mut self.measuring_ns, other.measuring_ns),
            (&mut self.confirming_ns, other.confirming_ns),
            (&mut self.waiting_ns, other.waiting_ns),
            (&mut self.compile_cpu_ns, other.compile_cpu_ns),
            (&mut self.compile_baselines_ns, other.compile_baselines_ns),
            (&mut self.compile_candidates_ns, other.compile_candidates_ns),
            (&mut self.running_ns, other.running_ns),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

/// A part of the work that is in progress.
#[derive(Debug)]
struct OpenSlice {
    start_ns: u64,
    /// Time of nested parts, which are counted separately.
    inner_ns: u64,
    is_search: bool,
}

/// Adds up where the time goes, from the events.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(super) time_breakdown: TimeBreakdown,
    /// Whole rounds that were measured.
    rounds: u32,
    open: Vec<OpenSlice>,
    /// What the last wave's compilation was accounted with.
    last_compile_ns: u64,
}

/// The part that a slice's time is accounted to.
fn booked<'s>(time_breakdown: &'s mut TimeBreakdown, slice: &Slice<'_>) -> Option<&'s mut u64> {
    Some(match slice {
        Slice::Phase(Phase::MakeInputs | Phase::LoadInputs) => &mut time_breakdown.inputs_ns,
        Slice::Phase(Phase::Lower | Phase::Compile) => &mut time_breakdown.compile_ns,
        Slice::Phase(Phase::CompareOutputs) => &mut time_breakdown.checking_ns,
        Slice::Phase(Phase::WarmUp) => &mut time_breakdown.warm_up_ns,
        Slice::Phase(Phase::Confirm) => &mut time_breakdown.confirming_ns,
        Slice::Phase(Phase::Measure) => &mut time_breakdown.measuring_ns,
        Slice::Phase(Phase::ListConfigs) | Slice::Search { .. } => &mut time_breakdown.searching_ns,
        Slice::Restart(_) => &mut time_breakdown.waiting_ns,
        _ => return None,
    })
}

impl Sink for Tally {
    fn take(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        let Self { time_breakdown, rounds, open, last_compile_ns } = self;
        // everything done in a search is accounted to the search
        let in_search = open.last().is_some_and(|part| part.is_search);
        match event.kind {
            EventKind::Round { .. } => *rounds = rounds.saturating_add(1),
            EventKind::End(slice) if !in_search || matches!(slice, Slice::Search { .. }) => {
                if let Some(sum) = booked(time_breakdown, slice)
                    && let Some(OpenSlice { start_ns, inner_ns, .. }) = open.pop()
                {
                    let took = event.at_ns.saturating_sub(start_ns);
                    let own = took.saturating_sub(inner_ns);
                    *sum = sum.saturating_add(own);
                    if matches!(slice, Slice::Phase(Phase::Compile)) {
                        *last_compile_ns = own;
                    }
                    if let Some(outer) = open.last_mut() {
                        outer.inner_ns = outer.inner_ns.saturating_add(took);
                    }
                }
            }
            _ if in_search => {}
            EventKind::Begin(slice) if booked(time_breakdown, slice).is_some() => {
                let is_search = matches!(slice, Slice::Search { .. });
                open.push(OpenSlice { start_ns: event.at_ns, inner_ns: 0, is_search });
            }
            EventKind::Prepared { cost, is_baseline, .. } => {
                time_breakdown.compile_cpu_ns = time_breakdown.compile_cpu_ns.saturating_add(cost.cpu_ns);
                let of = match is_baseline {
                    true => &mut time_breakdown.compile_baselines_ns,
                    false => &mut time_breakdown.compile_candidates_ns,
                };
                *of = of.saturating_add(cost.compile_ns);
            }
            // each call is accounted its share of the time, so that the shares add up to the whole
            EventKind::CompiledBeside { calls } => {
                let own = *last_compile_ns / (calls.max(1) as u64);
                time_breakdown.compile_ns =
                    time_breakdown.compile_ns.saturating_sub(last_compile_ns.saturating_sub(own));
                *last_compile_ns = own;
            }
            EventKind::Sampled { running_ns } => {
                time_breakdown.running_ns = time_breakdown.running_ns.saturating_add(running_ns)
            }
            _ => {}
        }
        Ok(())
    }
}

impl Tally {
    /// The same events, and where the time goes from here on.
    pub(crate) fn of(events: &Events) -> (Events, Arc<Mutex<Self>>) {
        let tally = Arc::new(Mutex::new(Self::default()));
        (events.and(tally.clone()), tally)
    }
}

/// The totals so far.
pub(crate) fn time_breakdown(tally: &Mutex<Tally>) -> TimeBreakdown {
    tally.lock().unwrap_or_else(PoisonError::into_inner).time_breakdown
}

/// The rounds so far, of all races.
pub(crate) fn rounds_measured(tally: &Mutex<Tally>) -> u32 {
    tally.lock().unwrap_or_else(PoisonError::into_inner).rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    /// A restart is subtracted from its phase, and a search includes everything in it.
    #[test]
    fn parts_do_not_overlap() {
        let clock = std::sync::atomic::AtomicU64::new(0);
        // a second from each event to the next
        let events = Events::by(move || clock.fetch_add(1_000_000_000, std::sync::atomic::Ordering::Relaxed));
        let (events, tally) = Tally::of(&events);
        let failure = Failure::new(FailureKind::Crash, "SIGSEGV");
        let compile = || {
            let _compile = events.open(Slice::Phase(Phase::Compile));
            let _candidate = events.open(Slice::Candidate { number: 0, config: None });
            drop(events.open(Slice::Restart(&failure)));
            let cost = crate::timer::Prepared { compile_ns: 3, cpu_ns: 7, ..Default::default() };
            events.tell(EventKind::Prepared { cost: &cost, is_baseline: true, done: 1, of: 1 });
        };
        compile();
        {
            let _search = events.open(Slice::Search { strategy: "random", configs: 70, sampled: false });
            compile();
            events.tell(EventKind::Sampled { running_ns: 5 });
        }
        events.tell(EventKind::Sampled { running_ns: 11 });
        {
            let _compile = events.open(Slice::Phase(Phase::Compile));
        }
        // five calls worked in that second
        events.tell(EventKind::CompiledBeside { calls: 5 });
        let second = 1_000_000_000;
        let expected = TimeBreakdown {
            compile_ns: 5 * second + second / 5,
            waiting_ns: second,
            searching_ns: 9 * second,
            compile_cpu_ns: 7,
            compile_baselines_ns: 3,
            running_ns: 11,
            ..TimeBreakdown::default()
        };
        assert_eq!(time_breakdown(&tally), expected);
    }
}
