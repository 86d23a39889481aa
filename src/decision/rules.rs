//! What a verdict must show.

use serde::{Deserialize, Serialize};

/// What a candidate must show to win, or to be left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DecisionRules {
    /// Part of the baseline's time that a winner must save: 0.02 is two per cent.
    pub min_improvement: f64,
    /// Confidence of every interval, and that the race drops no candidate that is in truth the fastest.
    pub confidence: f64,
    /// Paired rounds without which nothing is decided.
    pub min_rounds: usize,
    /// The least relative difference that means anything on this machine, whatever the samples say; 0 where it is not
    /// known.
    pub resolution: f64,
    /// A candidate that takes this many times the leader's time is measured no further.
    pub cut_off: f64,
}

impl Default for DecisionRules {
    fn default() -> Self {
        Self { min_improvement: 0.02, confidence: 0.95, min_rounds: 6, resolution: 0.0, cut_off: 2.0 }
    }
}
