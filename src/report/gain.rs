//! The gain of a run, estimated from its own samples.

use crate::tune::AutotuningResult;

/// The time of one call of each operation, before and after.
///
/// An operation without a decision counts as unchanged, one without a time not at all. How often a step calls an
/// operation is unknown here: a label in a loop appears once in the module.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ExpectedGain {
    /// Operations that are counted.
    pub counted: usize,
    /// Operations without a time, which are not.
    pub uncounted: usize,
    /// Sum of the baselines' times, nanoseconds.
    pub baseline_ns: f64,
    /// Sum of the best ones'.
    pub best_ns: f64,
    /// The same if every speed-up is at the high end of its interval.
    pub least_ns: f64,
    /// The same for the low end.
    pub most_ns: f64,
}

impl ExpectedGain {
    /// Sums the operations of some results.
    pub fn of<'a>(results: impl IntoIterator<Item = &'a AutotuningResult>) -> Self {
        let mut gain = Self::default();
        for operation in results.into_iter().flat_map(|result| &result.operations) {
            let Some(baseline_ns) = operation.baseline.median_ns.filter(|ns| ns.is_finite()) else {
                gain.uncounted += 1;
                continue;
            };
            gain.counted += 1;
            gain.baseline_ns += baseline_ns;
            let changed = operation.best.as_ref().is_some_and(|best| best.config != operation.baseline.config);
            match (operation.speed_up, operation.speed_up_interval) {
                (Some(speed_up), Some(interval)) if changed && speed_up > 0.0 && interval.low > 0.0 => {
                    // by the paired ratio, which determined the decision, and not by the medians
                    gain.best_ns += baseline_ns / speed_up;
                    gain.least_ns += baseline_ns / interval.high;
                    gain.most_ns += baseline_ns / interval.low;
                }
                _ => {
                    gain.best_ns += baseline_ns;
                    gain.least_ns += baseline_ns;
                    gain.most_ns += baseline_ns;
                }
            }
        }
        gain
    }

    /// Returns the speed-up of all of them together; `None` if nothing is known.
    pub fn speed_up(&self) -> Option<f64> {
        (self.counted > 0 && self.best_ns > 0.0).then(|| self.baseline_ns / self.best_ns)
    }
}
