//! How long a search may continue: evaluations, time, or both.

use std::time::Duration;

use crate::setters;

/// What may be spent; the smaller of the two if both are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Budget {
    /// Evaluations.
    pub evaluations: Option<usize>,
    /// Time of everything that a driver does for them.
    pub time: Option<Duration>,
}

setters!(Budget { evaluations: Option<usize>, time: Option<Duration> });

/// A budget that is too small for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoBudget {
    /// Nothing at all may be spent.
    #[error("the budget is empty; give at least one evaluation and a time above zero")]
    Nothing,
    /// The time ends before the first evaluation does.
    #[error("the budget of {time:?} is less than one evaluation takes ({cost:?}); give more time")]
    LessThanOne {
        /// The time that may be spent.
        time: Duration,
        /// What an evaluation takes.
        cost: Duration,
    },
}

impl Budget {
    /// Whether the budget suffices for anything, if one evaluation costs `cost`.
    ///
    /// # Errors
    /// If nothing may be spent, or less time than one evaluation takes.
    pub fn check(&self, cost: Option<Duration>) -> Result<(), NoBudget> {
        if self.evaluations == Some(0) || self.time.is_some_and(|time| time.is_zero()) {
            return Err(NoBudget::Nothing);
        }
        match (self.time, cost) {
            (Some(time), Some(cost)) if cost > time => Err(NoBudget::LessThanOne { time, cost }),
            _ => Ok(()),
        }
    }

    /// Evaluations left after those done and the time spent; each is assumed to cost the mean so far. 0: the search
    /// must end. `None`: no known bound, since none was given or nothing was evaluated yet.
    pub fn left(&self, evaluations: usize, spent: Duration) -> Option<usize> {
        let by_count = self.evaluations.map(|budget| budget.saturating_sub(evaluations));
        let by_time = self.time.and_then(|time| match time.saturating_sub(spent) {
            Duration::ZERO => Some(0),
            _ if evaluations == 0 || spent.is_zero() => None,
            left => Some((left.as_secs_f64() / spent.as_secs_f64() * evaluations as f64) as usize),
        });
        match (by_count, by_time) {
            (Some(count), Some(time)) => Some(count.min(time)),
            (one, other) => one.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesser_of_evaluations_and_time_is_left() {
        let second = Duration::from_secs;
        let both = Budget { evaluations: Some(10), time: Some(second(12)) };
        assert_eq!(both.left(0, Duration::ZERO), Some(10));
        // three in six seconds: three more in the other six
        assert_eq!(both.left(3, second(6)), Some(3));
        assert_eq!(both.left(9, second(1)), Some(1));
        // half an evaluation's time is left
        assert_eq!(both.left(4, second(11)), Some(0));
        assert_eq!(both.left(1, second(13)), Some(0));
        assert_eq!(both.left(20, second(1)), Some(0));
        let time = Budget { evaluations: None, time: Some(second(5)) };
        assert_eq!((time.left(0, second(1)), time.left(0, second(5))), (None, Some(0)));
        assert_eq!(Budget::default().left(1_000_000, second(1_000_000)), None);
    }

    #[test]
    fn a_budget_for_nothing_is_an_error() {
        let second = Duration::from_secs(1);
        assert_eq!(Budget { evaluations: Some(0), time: None }.check(None), Err(NoBudget::Nothing));
        let nothing = Budget { evaluations: Some(9), time: Some(Duration::ZERO) };
        assert_eq!(nothing.check(None), Err(NoBudget::Nothing));
        let short = Budget { evaluations: None, time: Some(second / 2) };
        assert!(matches!(short.check(Some(second)), Err(NoBudget::LessThanOne { .. })));
        assert_eq!(short.check(None), Ok(()));
        assert_eq!(Budget::default().check(Some(second)), Ok(()));
    }
}
