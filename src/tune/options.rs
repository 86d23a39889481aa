//! How to tune.

use crate::decision::DecisionRules;
use crate::timer::CacheState;

/// Settings of a tuning run. Only what is decided depends on `rules`; only how much is measured on the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct TuneOptions {
    /// Interleaved rounds of each invocation.
    pub rounds: u32,
    /// What a winner must show.
    pub rules: DecisionRules,
    /// Measure again what is already known.
    pub force: bool,
    /// Seed of the order inside a round; inputs have the seeds of their own names.
    pub seed: u64,
    /// Runs of a fast candidate are repeated in a round until they last about this long, nanoseconds.
    pub sample_ns: u64,
    /// The most runs of one candidate in one round.
    pub max_runs: u32,
    /// What every timed run finds in the caches.
    pub cache_state: CacheState,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            rounds: 20,
            rules: DecisionRules::default(),
            force: false,
            seed: 0,
            sample_ns: 1_000_000,
            max_runs: 50,
            cache_state: CacheState::Warm,
        }
    }
}
