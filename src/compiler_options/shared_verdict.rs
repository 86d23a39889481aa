//! Pure: chooses one set for all modules from the results of each set on each module.
//!
//! A set loses on a module if it fails, is significantly slower, or is slower by more than the default differs from its
//! copy. Of the sets that lose nowhere and win somewhere, the one that saves the most wins. Of sets that save the same,
//! the smallest wins.

use crate::stats::Interval;

/// A total gain below this does not count.
const NO_GAIN: f64 = 0.01;

/// The last rounds of one module.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OnModule {
    /// The module's weight.
    pub(super) weight: f64,
    /// How far the default differs from its copy; infinite if unknown.
    pub(super) copy_bound: f64,
    /// The median ratio of each set and its interval; `None` if it fails or too little is known.
    pub(super) ratios: Vec<Option<(f64, Interval)>>,
}

/// One set for all modules, or where each set loses.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SharedVerdict {
    /// The set to use.
    pub(super) winner: Option<usize>,
    /// The modules on which each set loses.
    pub(super) losses: Vec<Vec<usize>>,
}

impl OnModule {
    /// Whether a set loses here.
    fn loses(&self, set: usize) -> bool {
        self.ratio(set).is_none_or(|(ratio, interval)| {
            !self.copy_bound.is_finite() || interval.low > 1.0 || ratio > 1.0 + self.copy_bound
        })
    }

    /// Whether a set is significantly faster.
    pub(super) fn wins(&self, set: usize, min_improvement: f64) -> bool {
        self.ratio(set).is_some_and(|(_, interval)| interval.high < 1.0 - self.copy_bound.max(min_improvement))
    }

    /// Whether more rounds would not change the result of any set here.
    pub(super) fn is_settled(&self) -> bool {
        let is_open = |(_, interval): &(f64, Interval)| interval.low <= 1.0 && interval.high > 1.0 + self.copy_bound;
        self.copy_bound.is_finite() && !self.ratios.iter().flatten().any(is_open)
    }

    fn ratio(&self, set: usize) -> Option<(f64, Interval)> {
        self.ratios.get(set).copied().flatten()
    }
}

/// Decides. `sizes` are the numbers of options in each set.
pub(super) fn decide_shared(modules: &[OnModule], sizes: &[usize], min_improvement: f64) -> SharedVerdict {
    let losses: Vec<Vec<usize>> = (0..sizes.len())
        .map(|set| modules.iter().enumerate().filter(|(_, on)| on.loses(set)).map(|(module, _)| module).collect())
        .collect();
    let total: f64 = modules.iter().map(|module| module.weight).sum();
    let saved = |set: usize| {
        let of = |on: &OnModule| on.ratio(set).map_or(0.0, |(ratio, _)| on.weight * (1.0 - ratio));
        modules.iter().map(of).sum::<f64>() / total
    };
    let is_good = |set: &usize| {
        losses.get(*set).is_some_and(Vec::is_empty) && modules.iter().any(|on| on.wins(*set, min_improvement))
    };
    let good: Vec<(usize, f64)> =
        (0..sizes.len()).filter(is_good).map(|set| (set, saved(set))).filter(|(_, saved)| *saved > 0.0).collect();
    let most = good.iter().map(|(_, saved)| *saved).fold(0.0, f64::max);
    let close = good.iter().filter(|(_, saved)| *saved >= most - NO_GAIN);
    let winner = close.min_by(|(a, of_a), (b, of_b)| sizes.get(*a).cmp(&sizes.get(*b)).then(of_b.total_cmp(of_a)));
    SharedVerdict { winner: winner.map(|(set, _)| *set), losses }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(weight: f64, copy_bound: f64, ratios: &[f64]) -> OnModule {
        let around = |ratio: &f64| {
            let interval = Interval { low: ratio - 0.01, high: ratio + 0.01, confidence: 0.95 };
            ratio.is_finite().then_some((*ratio, interval))
        };
        OnModule { weight, copy_bound, ratios: ratios.iter().map(around).collect() }
    }

    #[test]
    fn what_loses_anywhere_is_out() {
        // the first halves one module and slows the other, the second fails on one, the third gains little and loses
        // nothing
        let modules = [on(1.0, 0.02, &[0.5, 0.5, 0.9]), on(1.0, 0.02, &[1.2, f64::NAN, 1.005])];
        let verdict = decide_shared(&modules, &[1, 1, 1], 0.02);
        assert_eq!(verdict, SharedVerdict { winner: Some(2), losses: vec![vec![1], vec![1], vec![]] });
        // slower by less than the default's copy is not a loss, unless it is significant
        let noisy = [on(1.0, 0.1, &[0.7]), on(1.0, 0.1, &[1.009])];
        assert_eq!(decide_shared(&noisy, &[1], 0.02).winner, Some(0));
        let slower = [on(1.0, 0.1, &[0.7]), on(1.0, 0.1, &[1.05])];
        assert_eq!(decide_shared(&slower, &[1], 0.02).losses, [[1]]);
        // without a result of the copy no set can win
        let unknown = [on(1.0, 0.02, &[0.7]), on(1.0, f64::INFINITY, &[0.7])];
        assert_eq!(decide_shared(&unknown, &[1], 0.02).winner, None);
    }

    #[test]
    fn the_time_of_the_modules_counts_and_small_sets_win_ties() {
        let ratios = [[0.5, 0.99, 0.985], [0.99, 0.8, 0.795]];
        let by = |weights: [f64; 2]| {
            let modules = [on(weights[0], 0.0, &ratios[0]), on(weights[1], 0.0, &ratios[1])];
            decide_shared(&modules, &[1, 1, 2], 0.02).winner
        };
        assert_eq!((by([1.0, 1.0]), by([1.0, 9.0])), (Some(0), Some(1)));
        // nothing is faster anywhere
        assert_eq!(decide_shared(&[on(1.0, 0.02, &[0.995])], &[1], 0.02).winner, None);
    }

    #[test]
    fn more_rounds_are_measured_while_a_loss_is_open() {
        let wide = |low, high| {
            let interval = Interval { low, high, confidence: 0.95 };
            OnModule { weight: 1.0, copy_bound: 0.02, ratios: vec![Some((f64::midpoint(low, high), interval)), None] }
        };
        assert!(wide(0.5, 0.6).is_settled() && wide(1.01, 1.3).is_settled() && wide(0.98, 1.01).is_settled());
        assert!(!wide(0.9, 1.1).is_settled());
    }
}
