//! Tracks on which slices nest: each event goes to the first lane of its line where it is nested in, or after, the
//! events there.

/// Viewers drop what is deeper: Perfetto's trace processor at 512.
const MAX_DEPTH: usize = 512;

/// Maximum number of lanes of one line; more concurrent events indicate damage.
const MAX_LANES: usize = 1024;

/// The lanes of one line.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    /// Ends of the slices in progress, the innermost last.
    open: Vec<i64>,
    /// Nothing may begin earlier: the latest begin or end that was written.
    written_ps: i64,
}

impl Lane {
    /// Ends the slices that end at or before a moment.
    fn end_until(&mut self, time_ps: i64, mut ended: impl FnMut(i64)) {
        while let Some(&end_ps) = self.open.last()
            && end_ps <= time_ps
        {
            self.open.pop();
            self.written_ps = self.written_ps.max(end_ps);
            ended(end_ps);
        }
    }
}

impl Lanes {
    /// Finds a lane for a slice; `ended(lane, end)` is called for the slices of that lane, and of those tried before,
    /// that are over by then. `None` if no lane is left.
    #[inline]
    pub(super) fn place(&mut self, start_ps: i64, end_ps: i64, mut ended: impl FnMut(usize, i64)) -> Option<usize> {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if start_ps < lane.written_ps {
                continue;
            }
            lane.end_until(start_ps, |end_ps| ended(number, end_ps));
            let is_inside = lane.open.last().is_none_or(|&outer_ps| end_ps <= outer_ps);
            if is_inside && lane.open.len() < MAX_DEPTH {
                lane.open.push(end_ps);
                lane.written_ps = start_ps;
                return Some(number);
            }
        }
        if self.lanes.len() == MAX_LANES {
            return None;
        }
        self.lanes.push(Lane { open: vec![end_ps], written_ps: start_ps });
        Some(self.lanes.len() - 1)
    }

    /// Ends everything: the line is over.
    pub(super) fn finish(mut self, mut ended: impl FnMut(usize, i64)) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            lane.end_until(i64::MAX, |end_ps| ended(number, end_ps));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lane of each slice, and for each lane what was written: `(begin?, time)`.
    fn placed(slices: &[(i64, i64)]) -> (Vec<usize>, Vec<Vec<(bool, i64)>>) {
        let (mut lanes, mut chosen) = (Lanes::default(), Vec::new());
        let mut written: Vec<Vec<(bool, i64)>> = vec![Vec::new(); slices.len()];
        for &(start, end) in slices {
            let lane = lanes.place(start, end, |lane, end| written[lane].push((false, end))).unwrap();
            written[lane].push((true, start));
            chosen.push(lane);
        }
        written.truncate(lanes.lanes.len());
        lanes.finish(|lane, end| written[lane].push((false, end)));
        (chosen, written)
    }

    #[test]
    fn what_nests_shares_a_lane_and_what_overlaps_does_not() {
        let nested = [(0, 100), (0, 40), (10, 40), (40, 60), (40, 40), (100, 120)];
        assert_eq!(placed(&nested).0, [0; 6]);
        assert_eq!(placed(&[(0, 10), (5, 15), (12, 20), (15, 16), (16, 30)]).0, [0, 1, 0, 0, 1]);
        // an event out of order begins a lane of its own
        assert_eq!(placed(&[(50, 60), (0, 100), (60, 70)]).0, [0, 1, 0]);
    }

    #[test]
    fn depth_and_lanes_have_an_end() {
        let deep: Vec<_> = (0..600).map(|at| (at, 2000 - at)).collect();
        let lanes = placed(&deep).0;
        assert_eq!((lanes[511], lanes[512], lanes[599]), (0, 1, 1));
        let mut lanes = Lanes::default();
        let found: Vec<_> = (0..1025).map(|at| lanes.place(at, 10_000 + at, |_, _| {})).collect();
        assert_eq!((found[1023], found[1024]), (Some(1023), None));
    }

    proptest! {
        /// Read with a stack, as every viewer does, each lane gives back the slices that were put there.
        #[test]
        fn every_lane_reads_back(slices in prop::collection::vec((0_i64..60, 0_i64..30), 0..40), sorted: bool) {
            let mut slices: Vec<(i64, i64)> = slices.iter().map(|&(start, length)| (start, start + length)).collect();
            if sorted {
                slices.sort_by_key(|&(start, end)| (start, -end));
            }
            let (chosen, written) = placed(&slices);
            for (lane, events) in written.iter().enumerate() {
                prop_assert!(events.is_sorted_by_key(|&(_, time)| time), "{:?}", events);
                let (mut open, mut read) = (Vec::new(), Vec::new());
                for &(begins, time) in events {
                    if begins {
                        open.push(time);
                    } else {
                        read.push((open.pop().unwrap(), time));
                    }
                }
                prop_assert!(open.is_empty());
                let here = slices.iter().zip(&chosen).filter(|(_, at)| **at == lane);
                let mut expected: Vec<_> = here.map(|(slice, _)| *slice).collect();
                read.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(read, expected);
            }
        }
    }
}
