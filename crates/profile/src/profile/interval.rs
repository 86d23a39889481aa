//! Arithmetic of time intervals, in picoseconds: unions, and the time that belongs to each event itself.

/// A half-open interval of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    /// First picosecond.
    pub start_ps: i64,
    /// First picosecond after it.
    pub end_ps: i64,
}

impl Interval {
    /// Its length; zero if it ends before it starts.
    pub fn length_ps(&self) -> u64 {
        u64::try_from(self.end_ps.saturating_sub(self.start_ps)).unwrap_or(0)
    }
}

/// Makes a list of intervals sorted and disjoint without changing what it covers; empty ones are removed.
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

/// The union of intervals that arrive by start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Union {
    /// The last interval, which a later one can still extend.
    last: Option<Interval>,
    before_ps: u64,
}

impl Union {
    /// Adds an interval that starts no earlier than those before it.
    pub fn add(&mut self, interval: Interval) {
        match &mut self.last {
            _ if interval.start_ps >= interval.end_ps => {}
            Some(last) if interval.start_ps <= last.end_ps => last.end_ps = last.end_ps.max(interval.end_ps),
            last => {
                self.before_ps += last.map_or(0, |last| last.length_ps());
                *last = Some(interval);
            }
        }
    }

    /// The time that all of them cover.
    pub fn length_ps(&self) -> u64 {
        self.before_ps + self.last.map_or(0, |last| last.length_ps())
    }

    /// The time that they cover before a moment that is no earlier than any start.
    pub fn length_before_ps(&self, moment_ps: i64) -> u64 {
        let until = |last: Interval| Interval { end_ps: last.end_ps.min(moment_ps), ..last };
        self.before_ps + self.last.map_or(0, |last| until(last).length_ps())
    }
}

/// Divides the time that events of one line cover among them, as they arrive: each moment belongs to the running event
/// that started last, of two that start together to the later one. Of nested events that is each one's duration without
/// its children.
///
/// Events come by start, and those that start together with the longest first. `give(event, piece)` is called for
/// pieces that are disjoint and together are the events' union. Only the events that hold one another are kept.
#[derive(Debug)]
pub struct OwnTime<T> {
    /// By start; each ends before the one below it.
    open: Vec<(T, i64)>,
    now: i64,
}

impl<T> Default for OwnTime<T> {
    fn default() -> Self {
        Self { open: Vec::new(), now: i64::MIN }
    }
}

impl<T: Copy> OwnTime<T> {
    /// The innermost event in progress that lasts at least as long as one that starts now and ends at this time.
    pub fn enclosing(&self, end_ps: i64) -> Option<T> {
        self.open.iter().rev().find(|(_, end)| *end >= end_ps).map(|(event, _)| *event)
    }

    /// Adds an event, and gives the time before it.
    pub fn add(&mut self, event: T, time: Interval, give: impl FnMut(T, Interval)) {
        self.advance(time.start_ps, give);
        if time.start_ps < time.end_ps {
            // an event that ends before it has no time left
            while self.open.pop_if(|(_, end_ps)| *end_ps <= time.end_ps).is_some() {}
            self.open.push((event, time.end_ps));
        }
    }

    /// Gives the time before a moment; no later event starts before it.
    pub fn advance(&mut self, until: i64, mut give: impl FnMut(T, Interval)) {
        while let Some(&(event, end_ps)) = self.open.last() {
            if end_ps > self.now {
                let piece = Interval { start_ps: self.now, end_ps: end_ps.min(until) };
                if piece.start_ps < piece.end_ps {
                    give(event, piece);
                    self.now = piece.end_ps;
                }
                if end_ps > until {
                    break;
                }
            }
            self.open.pop();
        }
        self.now = until;
    }
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
        fn a_union_is_the_moments_that_some_interval_covers(
            list in intervals(), from in -40_i64..40, length in 0_i64..50
        ) {
            let moments = |window: &Interval| {
                (-60..60)
                    .filter(|&moment| covers(window, moment) && list.iter().any(|one| covers(one, moment)))
                    .count() as u64
            };
            let all = Interval { start_ps: -60, end_ps: 60 };
            prop_assert_eq!(union_ps(list.clone()), moments(&all));
            let (mut by_start, mut union) = (list.clone(), Union::default());
            by_start.sort();
            for interval in &by_start {
                union.add(*interval);
                let upto = by_start.iter().filter(|one| *one <= interval).count();
                let before = Interval { start_ps: -60, end_ps: interval.start_ps + 1 };
                let seen = |moment: &i64| by_start[..upto].iter().any(|one| covers(one, *moment));
                let expected = (-60..60).filter(|moment| covers(&before, *moment) && seen(moment)).count() as u64;
                prop_assert_eq!(union.length_before_ps(interval.start_ps + 1), expected);
            }
            prop_assert_eq!(union.length_ps(), moments(&all));
            let window = Interval { start_ps: from, end_ps: from + length };
            prop_assert_eq!(Coverage::new(list.clone()).of(window), moments(&window));
        }

        #[test]
        fn own_time_is_the_moments_at_which_an_event_started_last(mut list in intervals()) {
            list.sort_by_key(|event| (event.start_ps, std::cmp::Reverse(event.end_ps)));
            let mut own = vec![0; list.len()];
            let mut line = OwnTime::default();
            for (index, event) in list.iter().enumerate() {
                line.add(index, *event, |index: usize, piece| own[index] += piece.length_ps());
            }
            line.advance(i64::MAX, |index, piece| own[index] += piece.length_ps());
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
        let (mut own, mut line) = ([0; 4], OwnTime::default());
        for (index, time) in [event(0, 100), event(10, 40), event(20, 30), event(50, 90)].into_iter().enumerate() {
            line.add(index, time, |index: usize, piece| own[index] += piece.length_ps());
            // a stop anywhere before the next event changes nothing
            line.advance(time.start_ps + 2, |index, piece| own[index] += piece.length_ps());
        }
        line.advance(i64::MAX, |index, piece| own[index] += piece.length_ps());
        assert_eq!(own, [30, 20, 10, 40]);
    }

    #[test]
    fn events_that_overlap_in_a_chain_are_not_kept() {
        let mut line = OwnTime::default();
        let mut given = 0;
        for start_ps in 0..1000 {
            let time = Interval { start_ps, end_ps: start_ps + 3 };
            line.add((), time, |(), piece| given += piece.length_ps());
            assert_eq!(line.open.len(), 1);
        }
        line.advance(i64::MAX, |(), piece| given += piece.length_ps());
        assert_eq!(given, 1002);
    }
}
