//! How to tune.

use std::time::Duration;

use crate::decision::DecisionRules;
use crate::timer::CacheState;

/// Settings of a tuning run. Only what is decided depends on `rules`; only how much is measured on the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct TuneOptions {
    /// Interleaved rounds of one invocation that count. A race that is settled ends before; one that is not goes on for as
    /// long as so many runs of every candidate would take, since those that were dropped left time.
    pub rounds: u32,
    /// Time for the rounds of one invocation, if there is a limit.
    pub budget: Option<Duration>,
    /// What a winner must show.
    pub rules: DecisionRules,
    /// Measure again what is already known.
    pub force: bool,
    /// Seed of the order inside a round; inputs have the seeds of their own names.
    pub seed: u64,
    /// Where a whole round is one profile, runs in it are repeated until those of the fastest candidate last about this
    /// long, nanoseconds.
    pub sample_ns: u64,
    /// The most runs of one candidate in such a round.
    pub max_runs: u32,
    /// What every timed run finds in the caches.
    pub cache_state: CacheState,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            rounds: 20,
            budget: None,
            rules: DecisionRules::default(),
            force: false,
            seed: 0,
            sample_ns: 300_000,
            max_runs: 50,
            cache_state: CacheState::Warm,
        }
    }
}
