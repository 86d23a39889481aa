//! From times to the numbers that the model is fitted to.

use crate::search::strategy::TrialOutcome;
use crate::stats;

/// Times above this quantile, plus a margin, are clipped: how slow a slow config is must not distort the model where it
/// matters.
const SLOW: f64 = 0.75;
const BEYOND: f64 = 0.5;

/// Logarithms of times, clipped above and standardised. A failed config counts as one at the clip.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeTargets {
    ceiling: f64,
    centre: f64,
    spread: f64,
}

impl TimeTargets {
    /// The clip for these outcomes; `None` while nothing ran.
    pub(super) fn cut(observed: &[(usize, TrialOutcome)]) -> Option<Self> {
        let logarithms: Vec<f64> = observed
            .iter()
            .filter_map(|(_, outcome)| match outcome {
                TrialOutcome::Time(time) => Some(time.ln()),
                TrialOutcome::Failed => None,
            })
            .collect();
        let (best, slow) = (stats::quantile(&logarithms, 0.0)?, stats::quantile(&logarithms, SLOW)?);
        Some(Self { ceiling: slow + BEYOND * (slow - best), centre: 0.0, spread: 1.0 })
    }

    /// Standardised for the outcomes that the model takes in.
    pub(super) fn standardised(self, used: &[(usize, TrialOutcome)]) -> Self {
        let values: Vec<f64> = used.iter().map(|&(_, outcome)| self.of(outcome)).collect();
        let count = values.len().max(1) as f64;
        let centre = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - centre).powi(2)).sum::<f64>() / count;
        // outcomes that are all the same keep a spread that can be divided by
        Self { centre, spread: variance.sqrt().max(1e-9), ..self }
    }

    /// The number of an outcome.
    pub(super) fn of(&self, outcome: TrialOutcome) -> f64 {
        let cut = match outcome {
            TrialOutcome::Time(time) => time.ln().min(self.ceiling),
            TrialOutcome::Failed => self.ceiling,
        };
        (cut - self.centre) / self.spread
    }
}
