//! Which environment of a list is compared next with the first one, for calls whose verdict changes somewhere in it.

use std::collections::BTreeSet;

/// What a comparison with the first environment says of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Holds,
    Changed,
    Undecided,
}

/// What is known of one call.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownRange {
    /// The last environment at which it held. At the first one it holds by definition.
    pub(super) held: usize,
    /// The first one after that at which it was changed.
    pub(super) changed: Option<usize>,
    /// Those that did not decide it.
    undecided: BTreeSet<usize>,
}

impl KnownRange {
    /// Environments between the two that are known.
    fn between(&self) -> impl Iterator<Item = usize> {
        let end = self.changed.unwrap_or_default();
        (self.held + 1..end).filter(|place| !self.undecided.contains(place))
    }

    /// The environment that is best compared next for this call alone.
    fn wanted(&self, last: usize) -> Option<usize> {
        if self.changed.is_none() {
            return (self.held < last && !self.undecided.contains(&last)).then_some(last);
        }
        // the middle of what may decide it, which is a neighbour of one that did not
        let between: Vec<usize> = self.between().collect();
        between.get(between.len().saturating_sub(1) / 2).copied()
    }

    fn tell(&mut self, place: usize, answer: Answer) {
        match answer {
            Answer::Holds => self.held = place,
            Answer::Changed => self.changed = Some(place),
            Answer::Undecided => _ = self.undecided.insert(place),
        }
    }
}

/// Searches for the change of several calls at once.
#[derive(Debug, Clone)]
pub(super) struct Halving {
    last: usize,
    pub(super) ranges: Vec<KnownRange>,
}

impl Halving {
    /// Nothing is known yet of so many calls; `last` is the place of the last environment.
    pub(super) fn new(last: usize, calls: usize) -> Self {
        Self { last, ranges: vec![KnownRange::default(); calls] }
    }

    /// The environment that is the best next one for most calls, and of several such the one that serves most others.
    pub(super) fn next(&self) -> Option<usize> {
        let wanted: Vec<usize> = self.ranges.iter().filter_map(|range| range.wanted(self.last)).collect();
        let votes = |place: usize| wanted.iter().filter(|one| **one == place).count();
        let served = |place: usize| (0..self.ranges.len()).filter(|call| self.serves(place, *call)).count();
        let places: BTreeSet<usize> = wanted.iter().copied().collect();
        places.into_iter().rev().max_by_key(|place| (votes(*place), served(*place)))
    }

    /// Whether comparing an environment says something new about a call.
    pub(super) fn serves(&self, place: usize, call: usize) -> bool {
        self.ranges
            .get(call)
            .is_some_and(|range| range.wanted(self.last) == Some(place) || range.between().any(|one| one == place))
    }

    /// Takes what a comparison says of a call that it serves.
    pub(super) fn tell(&mut self, place: usize, call: usize, answer: Answer) {
        if self.serves(place, call) {
            self.ranges.iter_mut().skip(call).take(1).for_each(|range| range.tell(place, answer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search with simulated answers. Returns what is known of each call at the end, and the comparisons.
    fn searched(environments: usize, calls: &[&dyn Fn(usize) -> Answer]) -> (Vec<(usize, Option<usize>)>, Vec<usize>) {
        let mut search = Halving::new(environments - 1, calls.len());
        let mut compared = Vec::new();
        while let Some(place) = search.next() {
            assert!(!compared.contains(&place), "{place} is compared twice");
            compared.push(place);
            for (call, answer) in calls.iter().enumerate() {
                // an answer that was not asked for changes nothing
                search.tell(place, call, answer(place));
            }
        }
        (search.ranges.iter().map(|range| (range.held, range.changed)).collect(), compared)
    }

    fn from(change: usize) -> impl Fn(usize) -> Answer {
        move |place| if place >= change { Answer::Changed } else { Answer::Holds }
    }

    #[test]
    fn one_change_among_eight_takes_at_most_four_comparisons() {
        for change in 1..8 {
            let (known, compared) = searched(8, &[&from(change)]);
            assert_eq!(known, [(change - 1, Some(change))]);
            assert!(compared.len() <= 4, "{change}: {compared:?}");
        }
    }

    #[test]
    fn a_thousand_environments_take_eleven_comparisons() {
        for change in 1..1000 {
            let (known, compared) = searched(1000, &[&from(change)]);
            assert_eq!(known, [(change - 1, Some(change))]);
            // the last one, and then half of 999 places each time: 2^10 are more than that
            assert!(compared.len() <= 11, "{change}: {compared:?}");
        }
    }

    #[test]
    fn without_a_change_at_the_end_the_last_one_is_enough() {
        assert_eq!(searched(8, &[&from(8)]), (vec![(7, None)], vec![7]));
        assert_eq!(searched(8, &[&|_| Answer::Undecided]), (vec![(0, None)], vec![7]));
        assert_eq!(searched(2, &[&from(1)]), (vec![(0, Some(1))], vec![1]));
        assert_eq!(searched(8, &[]), (vec![], vec![]));
    }

    #[test]
    fn an_undecided_comparison_moves_to_a_neighbour() {
        for change in 1..8 {
            for open in 1..7 {
                let answer = |place| if place == open { Answer::Undecided } else { from(change)(place) };
                let (known, compared) = searched(8, &[&answer]);
                // what is next to the undecided one is known up to that one
                let held = if open == change - 1 { change - 2 } else { change - 1 };
                let changed = if open == change { change + 1 } else { change };
                assert_eq!(known, [(held, Some(changed))], "changed at {change}, undecided at {open}");
                assert!(compared.len() <= 5, "{change}, {open}: {compared:?}");
            }
        }
    }

    #[test]
    fn if_none_decides_the_range_is_left() {
        let answer = |place| if place == 7 { Answer::Changed } else { Answer::Undecided };
        let (known, mut compared) = searched(8, &[&answer]);
        assert_eq!(known, [(0, Some(7))]);
        compared.sort_unstable();
        assert_eq!(compared, [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn several_calls_share_comparisons() {
        for first in 1..8 {
            for second in 1..8 {
                let (known, compared) = searched(8, &[&from(first), &from(second), &from(first), &from(8)]);
                let expected = |change: usize| (change - 1, Some(change));
                assert_eq!(known, [expected(first), expected(second), expected(first), (7, None)]);
                // the last one and the middle serve both, and then at most two comparisons are each one's own
                let most = if first == second { 4 } else { 6 };
                assert!(compared.len() <= most, "{first}, {second}: {compared:?}");
            }
        }
    }

    #[test]
    fn of_a_change_that_goes_back_some_change_is_found() {
        let is_changed = [false, true, true, false, false, true, true, true];
        let answer = |place: usize| if is_changed[place] { Answer::Changed } else { Answer::Holds };
        let (known, compared) = searched(8, &[&answer]);
        let [(held, Some(changed))] = known[..] else { panic!("{known:?}") };
        assert!(!is_changed[held] && is_changed[changed] && changed == held + 1, "{known:?}");
        assert!(compared.len() <= 4);
        // it is back at the end
        let answer = |place: usize| if (2..5).contains(&place) { Answer::Changed } else { Answer::Holds };
        assert_eq!(searched(8, &[&answer]), (vec![(7, None)], vec![7]));
    }
}
