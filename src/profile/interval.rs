//! Arithmetic of time intervals, in picoseconds: unions, and the time that belongs to each event itself.

/// A half-open stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    /// First picosecond.
    pub start_ps: i64,
    /// First picosecond after it.
    pub end_ps: i64,
}

impl Interval {
    /// Its length; zero where it ends before it starts.
    pub fn length_ps(&self) -> u64 {
        u64::try_from(self.end_ps.saturating_sub(self.start_ps)).unwrap_or(0)
    }
}

/// Makes a list of intervals sorted and disjoint without changing what it covers; empty ones go.
pub fn merge(intervals: &mut Vec<Interval>) {
    if !intervals.is_sorted() {
        // lists of several lines are sorted runs, which a stable sort merges
        intervals.sort();
    }
    intervals.retain(|interval| interval.start_ps < interval.end_ps);
    intervals.dedup_by(|next, kept| {
        let touches = next.start_ps <= kept.end_ps;
        if touches {
            kept.end_ps = kept.end_ps.max(next.end_ps);
        }
        touches
    });
}

/// The time that a list of intervals covers.
pub fn union_ps(mut intervals: Vec<Interval>) -> u64 {
    merge(&mut intervals);
    intervals.iter().map(Interval::length_ps).sum()
}

/// What a merged list covers of any interval, in logarithmic time.
#[derive(Debug)]
pub struct Coverage {
    merged: Vec<Interval>,
    /// Time covered before each interval.
    before: Vec<u64>,
}

impl Coverage {
    /// The coverage of these intervals.
    pub fn new(mut intervals: Vec<Interval>) -> Self {
        merge(&mut intervals);
        let before = intervals
            .iter()
            .scan(0, |sum, interval| {
                let before = *sum;
                *sum += interval.length_ps();
                Some(before)
            })
            .collect();
        Self { merged: intervals, before }
    }

    fn before(&self, time_ps: i64) -> u64 {
        let after = self.merged.partition_point(|interval| interval.start_ps < time_ps);
        let Some(last) = after.checked_sub(1) else { return 0 };
        match (self.before.get(last), self.merged.get(last)) {
            (Some(before), Some(interval)) => {
                before + Interval { end_ps: interval.end_ps.min(time_ps), ..*interval }.length_ps()
            }
            _ => 0,
        }
    }

    /// How much of an interval is covered.
    pub fn of(&self, interval: Interval) -> u64 {
        self.before(interval.end_ps).saturating_sub(self.before(interval.start_ps))
    }
}

/// Splits the time that events of one line cover among them: each moment belongs to the event under way that started
/// last, of two that start together to the shorter. Of nested events that is each one's duration without its children.
///
/// The events come sorted by start, and those that start together with the longest first. `give(index, piece)` is called
/// for pieces that are disjoint and together are the events' union.
pub fn own_time(events: &[Interval], mut give: impl FnMut(usize, Interval)) {
    let mut open: Vec<(usize, i64)> = Vec::new();
    let mut now = i64::MIN;
    let mut advance = |open: &mut Vec<(usize, i64)>, now: &mut i64, until: i64| {
        while let Some(&(index, end_ps)) = open.last() {
            if end_ps > *now {
                let piece = Interval { start_ps: *now, end_ps: end_ps.min(until) };
                if piece.start_ps < piece.end_ps {
                    give(index, piece);
                    *now = piece.end_ps;
                }
                if end_ps > until {
                    break;
                }
            }
            open.pop();
        }
        *now = until;
    };
    for (index, event) in events.iter().enumerate() {
        advance(&mut open, &mut now, event.start_ps);
        if event.start_ps < event.end_ps {
            open.push((index, event.end_ps));
        }
    }
    advance(&mut open, &mut now, i64::MAX);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn intervals() -> impl Strategy<Value = Vec<Interval>> {
        prop::collection::vec((-30_i64..30, 0_i64..25), 0..25).prop_map(|pairs| {
            let made = pairs.iter().map(|&(start_ps, length)| Interval { start_ps, end_ps: start_ps + length });
            made.collect()
        })
    }

    fn covers(interval: &Interval, moment: i64) -> bool {
        interval.start_ps <= moment && moment < interval.end_ps
    }

    proptest! {
        #[test]
        fn a_union_is_the_moments_that_some_interval_covers(list in intervals(), from in -40_i64..40, length in 0_i64..50) {
            let moments = |window: &Interval| {
                (-60..60).filter(|&moment| covers(window, moment) && list.iter().any(|one| covers(one, moment))).count() as u64
            };
            let all = Interval { start_ps: -60, end_ps: 60 };
            prop_assert_eq!(union_ps(list.clone()), moments(&all));
            let window = Interval { start_ps: from, end_ps: from + length };
            prop_assert_eq!(Coverage::new(list.clone()).of(window), moments(&window));
        }

        #[test]
        fn own_time_is_the_moments_at_which_an_event_started_last(mut list in intervals()) {
            list.sort_by_key(|event| (event.start_ps, std::cmp::Reverse(event.end_ps)));
            let mut own = vec![0; list.len()];
            own_time(&list, |index, piece| own[index] += piece.length_ps());
            let mut expected = vec![0; list.len()];
            for moment in -60..60 {
                // the last in this order is the last to start, and the shortest of those
                if let Some(index) = list.iter().rposition(|event| covers(event, moment)) {
                    expected[index] += 1;
                }
            }
            prop_assert_eq!(own, expected);
        }
    }

    #[test]
    fn nested_events_keep_what_their_children_leave() {
        let event = |start_ps, end_ps| Interval { start_ps, end_ps };
        let mut own = [0; 4];
        own_time(&[event(0, 100), event(10, 40), event(20, 30), event(50, 90)], |index, piece| {
            own[index] += piece.length_ps();
        });
        assert_eq!(own, [30, 20, 10, 40]);
    }
}
