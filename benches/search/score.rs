//! The community's performance score P(t) of a search strategy on a space of known times.
//!
//! Willemsen et al., A methodology for comparing optimization algorithms for auto-tuning (Future Generation Computer
//! Systems 159, 2024), as `autotuning_methodology` 1.1 computes it, on the axis of evaluations:
//!
//! - The baseline B(t), random search without replacement: after t evaluations the expected place of the best of N
//!   times in descending order is r(t) = round(t (N + 1) / (t + 1)), at most N - 1 (`baseline.py`, `_redwhite_index`).
//! - The target of a share p is optimum + (median - optimum) (1 - p). The first place i in descending order that
//!   reaches it gives t = ceil(i / (N + 1 - i)) (`searchspace_statistics.py`, `cutoff_point`); a place with the
//!   optimum itself is moved back by one. The axis goes from the share 0.01 to the cut-off's, both ends included.
//! - P(t) = (B(t) - F(t)) / (B(t) - optimum), where F(t) is the best time a strategy found by t, averaged over its runs
//!   (`baseline.py`, `get_standardised_curves`). The score is the mean of P(t) over the axis.
//!
//! The baseline scores 0; a strategy whose first evaluation is the optimum scores 1. The mean of random searches is
//! below 0 if times are skewed, since the time at the expected place is better than the expected time. Failed configs
//! are not among the N times, but cost a strategy an evaluation. A run without a result so far counts as the slowest
//! time.

/// The package's default share between median and optimum at which the axis ends.
pub(crate) const CUT_OFF: f64 = 0.95;
const START: f64 = 0.01;

/// Why a space's times give no scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoScale {
    /// Nothing ran.
    #[error("no config of the space ran: there is nothing to find")]
    AllFailed,
    /// At least half of the configs share the best time.
    #[error("the best time is also the median: there is nothing to find")]
    Flat,
    /// Too few configs.
    #[error("random search finds the best at once: the space is too small to tell strategies apart")]
    TooSmall,
}

/// The scale of one space.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    descending: Vec<f64>,
    /// The best time.
    pub(crate) optimum: f64,
    /// The median of the times.
    pub(crate) median: f64,
    /// Evaluations at which the axis begins.
    pub(crate) start: usize,
    /// Evaluations at which the axis ends.
    pub(crate) end: usize,
}

impl Scale {
    /// The scale of these times, ended at the share `cut_off` between 0 and 1.
    ///
    /// # Errors
    /// If the times cannot distinguish strategies.
    pub(crate) fn new(times: impl IntoIterator<Item = f64>, cut_off: f64) -> Result<Self, NoScale> {
        let mut descending: Vec<f64> = times.into_iter().collect();
        descending.sort_by(|a, b| b.total_cmp(a));
        let (Some(&optimum), Some(median)) = (descending.last(), autotune_lowered::stats::median(&descending)) else {
            return Err(NoScale::AllFailed);
        };
        if median <= optimum {
            return Err(NoScale::Flat);
        }
        let mut scale = Self { descending, optimum, median, start: 0, end: 0 };
        scale.start = scale.evaluations_to(START).max(1);
        scale.end = scale.evaluations_to(cut_off);
        // the package's margin: at least two evaluations apart
        if scale.end < scale.start + 2 {
            scale.end += 1;
            scale.start = (scale.start - 1).max(1);
        }
        // an axis on which random search is at the optimum would divide by zero
        while scale.end > 0 && scale.baseline(scale.end) <= optimum {
            scale.end -= 1;
        }
        if scale.end < scale.start { Err(NoScale::TooSmall) } else { Ok(scale) }
    }

    fn evaluations_to(&self, share: f64) -> usize {
        let target = self.optimum + (self.median - self.optimum) * (1.0 - share);
        let count = self.descending.len();
        let mut place = self.descending.iter().position(|&time| time <= target).unwrap_or(count - 1);
        if self.descending.get(place).is_some_and(|&time| time <= self.optimum) {
            place = place.saturating_sub(1);
        }
        place.div_ceil(count + 1 - place)
    }

    /// B(t): what random search is expected to have found after `evaluations`.
    pub(crate) fn baseline(&self, evaluations: usize) -> f64 {
        let count = self.descending.len();
        // rounds halves to even, as Python does
        let place = (evaluations as f64 * (count + 1) as f64 / (evaluations + 1) as f64).round_ties_even() as usize;
        self.descending.get(place.min(count - 1)).copied().unwrap_or(self.optimum)
    }

    /// The score of runs: each has the best time after 1, 2, … evaluations, `None` as long as nothing was found. A run
    /// that ended early keeps its last value.
    pub(crate) fn score(&self, runs: &[Vec<Option<f64>>]) -> f64 {
        if runs.is_empty() {
            return 0.0;
        }
        let slowest = self.descending.first().copied().unwrap_or(self.median);
        let found =
            |run: &Vec<Option<f64>>, at: usize| run.get(at - 1).or(run.last()).copied().flatten().unwrap_or(slowest);
        let curve = (self.start..=self.end).map(|at| {
            let mean = runs.iter().map(|run| found(run, at)).sum::<f64>() / runs.len() as f64;
            let baseline = self.baseline(at);
            (baseline - mean) / (baseline - self.optimum)
        });
        curve.sum::<f64>() / (self.end - self.start + 1) as f64
    }
}
