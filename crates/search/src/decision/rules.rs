//! What a verdict must show.

use serde::{Deserialize, Serialize};

use crate::setters;

/// No choice of blocks and stages is known to gain as much as this. A program that appears to usually computes
/// something else, or nothing, or escapes the clock.
const MAX_SPEED_UP: f64 = 1000.0;

/// What a candidate must show to win, or to be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DecisionRules {
    /// Part of the baseline's time that a winner must save: 0.02 is two per cent.
    pub min_improvement: f64,
    /// Confidence of every interval, and the probability that the race never drops the truly fastest candidate.
    pub confidence: f64,
    /// Minimum number of paired rounds for a decision.
    pub min_rounds: usize,
    /// This machine's noise floor, a minimum independent of the samples: the smallest relative difference that means
    /// anything; 0 if it is unknown.
    pub resolution: f64,
    /// A candidate that takes this many times the leader's time is dropped.
    pub cut_off: f64,
    /// A speed-up above this is implausible: nothing is decided, and the reason states it.
    pub max_speed_up: f64,
}

impl DecisionRules {
    /// No candidate is dropped and nothing decides the race. The cut-off is finite, because it becomes a time.
    pub const ALL_ROUNDS: Self = Self {
        min_improvement: 0.0,
        confidence: 1.0,
        min_rounds: usize::MAX,
        resolution: 0.0,
        cut_off: 1e6,
        max_speed_up: f64::INFINITY,
    };
}

impl Default for DecisionRules {
    fn default() -> Self {
        Self {
            min_improvement: 0.02,
            confidence: 0.95,
            min_rounds: 6,
            resolution: 0.0,
            cut_off: 2.0,
            max_speed_up: MAX_SPEED_UP,
        }
    }
}

setters!(DecisionRules {
    min_improvement: f64,
    confidence: f64,
    min_rounds: usize,
    resolution: f64,
    cut_off: f64,
    max_speed_up: f64,
});
