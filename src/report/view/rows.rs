//! Rows of a lane: an event inside another one is drawn below it, and events never overlap.

/// Maximum number of rows of a lane.
pub(super) const MAX_ROWS: usize = 64;

/// Returns the row of each interval `(start, end)`; `None` if all rows are taken. Intervals are ordered by start, those
/// with the same start by length, the longest first.
pub(super) fn rows(intervals: impl IntoIterator<Item = (i64, i64)>) -> Vec<Option<usize>> {
    // the ends of the intervals in progress
    let mut ends: [Option<i64>; MAX_ROWS] = [None; MAX_ROWS];
    let place = |(start, end): (i64, i64)| {
        let mut lowest = 0;
        for (row, open) in ends.iter_mut().enumerate() {
            match *open {
                Some(over) if over <= start => *open = None,
                Some(outer) if outer >= end => lowest = row + 1,
                _ => {}
            }
        }
        let (row, free) = ends.iter_mut().enumerate().skip(lowest).find(|(_, open)| open.is_none())?;
        *free = Some(end);
        Some(row)
    };
    intervals.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_stands_below_and_what_overlaps_beside() {
        let row = |intervals: &[(i64, i64)]| -> Vec<usize> {
            rows(intervals.iter().copied()).into_iter().flatten().collect()
        };
        assert_eq!(row(&[(0, 100), (0, 40), (10, 20), (20, 40), (40, 60), (100, 120)]), [0, 1, 2, 2, 1, 0]);
        // the last one is inside the second, which overlaps the first
        assert_eq!(row(&[(0, 10), (5, 15), (11, 14)]), [0, 1, 2]);
        // an interval of no length
        assert_eq!(row(&[(5, 5), (5, 5), (5, 6)]), [0, 0, 0]);
    }

    #[test]
    fn rows_have_an_end() {
        let found = rows((0..70).map(|at| (at, 1000 - at)));
        assert_eq!((found[63], found[64], found[69]), (Some(63), None, None));
    }
}
