//! How much of an execution's collectives computation hides, from a stream of events by start.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::profile::interval::{Interval, Union};

/// A collective of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timed {
    /// The number of its operation.
    pub(super) operation: u32,
    pub(super) time: Interval,
    pub(super) hidden_ps: u64,
    pub(super) overlaps_ps: u64,
}

/// The role of an event here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    /// The collective with this number.
    Communication(u32),
    Computation,
    /// Neither.
    Other,
}

/// The collectives of one execution and concurrent computation. Events arrive by start.
#[derive(Debug, Default)]
pub(super) struct Hiding {
    /// For those in progress, the computation done before their start.
    timed: Vec<Timed>,
    /// Ends of those in progress, with their places.
    ends: BinaryHeap<Reverse<(i64, usize)>>,
    covered: Union,
    overlaps: Overlaps,
}

impl Hiding {
    pub(super) fn add(&mut self, event_kind: EventKind, time: Interval) {
        match event_kind {
            EventKind::Other => {}
            EventKind::Computation => {
                self.end_until(time.start_ps);
                self.covered.add(time);
                self.overlaps.add(time);
            }
            EventKind::Communication(operation) => {
                self.end_until(time.start_ps);
                let (hidden_ps, overlaps_ps) = self.done_before(time.start_ps);
                self.ends.push(Reverse((time.end_ps, self.timed.len())));
                self.timed.push(Timed { operation, time, hidden_ps, overlaps_ps });
            }
        }
    }

    fn done_before(&mut self, moment_ps: i64) -> (u64, u64) {
        (self.covered.length_before_ps(moment_ps), self.overlaps.before(moment_ps))
    }

    fn end_until(&mut self, moment_ps: i64) {
        while let Some(&Reverse((end_ps, place))) = self.ends.peek().filter(|Reverse((end, _))| *end <= moment_ps) {
            self.ends.pop();
            let (covered, overlaps) = self.done_before(end_ps);
            if let Some(timed) = self.timed.get_mut(place) {
                timed.hidden_ps = covered.saturating_sub(timed.hidden_ps);
                timed.overlaps_ps = overlaps.wrapping_sub(timed.overlaps_ps);
            }
        }
    }

    /// The collectives, by start and end.
    pub(super) fn finish(mut self) -> Vec<Timed> {
        self.end_until(i64::MAX);
        self.timed.sort_by_key(|timed| timed.time);
        self.timed
    }
}

/// The lengths of intervals before a moment, added up.
#[derive(Debug, Default)]
struct Overlaps {
    over_ps: u64,
    /// End and start of those in progress.
    open: BinaryHeap<Reverse<(i64, i64)>>,
    /// Sum of the starts of those.
    starts_ps: i128,
}

impl Overlaps {
    fn add(&mut self, time: Interval) {
        if time.start_ps < time.end_ps {
            self.open.push(Reverse((time.end_ps, time.start_ps)));
            self.starts_ps += i128::from(time.start_ps);
        }
    }

    /// Moments arrive in order, and none is before a start.
    fn before(&mut self, moment_ps: i64) -> u64 {
        while let Some(&Reverse((end_ps, start_ps))) = self.open.peek().filter(|Reverse((end, _))| *end <= moment_ps) {
            self.open.pop();
            self.starts_ps -= i128::from(start_ps);
            self.over_ps = self.over_ps.wrapping_add(Interval { start_ps, end_ps }.length_ps());
        }
        let open = i128::from(moment_ps) * self.open.len() as i128 - self.starts_ps;
        // only differences matter, and those fit
        self.over_ps.wrapping_add(open as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(start_ps: i64, end_ps: i64) -> Interval {
        Interval { start_ps, end_ps }
    }

    #[test]
    fn overlaps_are_added_up_and_the_union_is_not() {
        let of = |window: Interval| {
            let mut events: Vec<(Interval, EventKind)> = [time(0, 10), time(5, 20), time(30, 40), time(12, 12)]
                .map(|time| (time, EventKind::Computation))
                .into();
            events.push((window, EventKind::Communication(3)));
            events.sort_by_key(|(time, _)| *time);
            let mut hiding = Hiding::default();
            events.into_iter().for_each(|(time, event_kind)| hiding.add(event_kind, time));
            let [timed] = hiding.finish()[..] else { panic!() };
            (timed.hidden_ps, timed.overlaps_ps)
        };
        // by hand: 10 - 4, 20 - 5, and 35 - 30
        assert_eq!(of(time(4, 35)), (16 + 5, 6 + 15 + 5));
        assert_eq!(of(time(20, 30)), (0, 0));
    }

    proptest! {
        #[test]
        fn hidden_is_what_is_covered_moment_by_moment(
            events in prop::collection::vec((0_i64..60, 0_i64..20, any::<bool>()), 0..30)
        ) {
            let mut events: Vec<(Interval, bool)> =
                events.iter().map(|&(start, length, computes)| (time(start, start + length), computes)).collect();
            events.sort();
            let mut hiding = Hiding::default();
            for (time, computes) in &events {
                hiding.add(if *computes { EventKind::Computation } else { EventKind::Communication(0) }, *time);
            }
            let computing = |moment: i64| {
                let over = |time: &Interval| time.start_ps <= moment && moment < time.end_ps;
                events.iter().filter(|(time, computes)| *computes && over(time)).count() as u64
            };
            let expected: Vec<(Interval, u64, u64)> = events
                .iter()
                .filter(|(_, computes)| !computes)
                .map(|(time, _)| {
                    let moments = || (time.start_ps..time.end_ps).map(computing);
                    (*time, moments().filter(|count| *count > 0).count() as u64, moments().sum())
                })
                .collect();
            let found = hiding.finish().into_iter().map(|timed| (timed.time, timed.hidden_ps, timed.overlaps_ps));
            prop_assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }
}
