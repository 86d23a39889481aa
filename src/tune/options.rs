//! How to tune.

use std::time::{Duration, Instant};

use crate::decision::{DecisionRules, Resolution, Round};
use crate::measured_by::CacheState;
use crate::search::{Budget, Kind};
use crate::stats::median;

/// Settings of a tuning run. Only what is decided depends on `rules`; only how much is measured on the rest.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TuneOptions {
    /// Interleaved rounds of one invocation that count. A race that is settled ends before; one that is not goes on for as
    /// long as so many runs of every candidate would take, since those that were dropped left time.
    pub rounds: u32,
    /// Time for the rounds of one invocation, if there is a limit.
    pub budget: Option<Duration>,
    /// When the run ends: no invocation is begun afterwards, and the one that is under way is finished.
    pub stop_at: Option<Instant>,
    /// What a winner must show.
    pub rules: DecisionRules,
    /// What `selftest` found programs to differ from themselves on this device.
    pub resolution: Resolution,
    /// Measure again what is already known.
    pub force: bool,
    /// Seed of the order inside a round and of searches; inputs have the seeds of their own names.
    pub seed: u64,
    /// Where a whole round is one profile, runs in it are repeated until those of the fastest candidate last about this
    /// long, nanoseconds.
    pub sample_ns: u64,
    /// The most runs of one candidate in such a round.
    pub max_runs: u32,
    /// What every timed run finds in the caches.
    pub cache_state: CacheState,
    /// Whether each call can have one job only, since its profiles are kept by calls: no other is begun to search for configs.
    pub one_job_a_call: bool,
    /// How to search where there are too many configs to race them all.
    pub search: SearchOptions,
}

/// Settings of a search, which finds the configs that are raced where there are more than
/// [`MAX_RACED`](super::MAX_RACED).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchOptions {
    /// Who says which config comes next.
    pub kind: Kind,
    /// How many configs are tried, and for how long. At least one is tried.
    pub budget: Budget,
    /// Rounds in which a config that is tried runs beside the baseline.
    pub rounds: u32,
    /// The best configs that are raced afterwards.
    pub finalists: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        let budget = Budget { evaluations: Some(128), time: None };
        Self { kind: Kind::Auto, budget, rounds: 1, finalists: 15 }
    }
}

impl SearchOptions {
    /// A search of a kind, with a budget.
    pub fn new(kind: Kind, budget: Budget) -> Self {
        Self { kind, budget, ..Self::default() }
    }
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            rounds: 20,
            budget: None,
            stop_at: None,
            rules: DecisionRules::default(),
            resolution: Resolution::default(),
            force: false,
            seed: 0,
            sample_ns: 300_000,
            max_runs: 50,
            cache_state: CacheState::Warm,
            one_job_a_call: false,
            search: SearchOptions::default(),
        }
    }
}

impl TuneOptions {
    /// The same with so many [`rounds`](Self::rounds) of an invocation.
    #[must_use]
    pub fn with_rounds(self, rounds: u32) -> Self {
        Self { rounds, ..self }
    }

    /// The same with so much time for the rounds of an invocation.
    #[must_use]
    pub fn with_budget(self, budget: Duration) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// The same with other rules.
    #[must_use]
    pub fn with_rules(self, rules: DecisionRules) -> Self {
        Self { rules, ..self }
    }

    /// The same with what `selftest` found.
    #[must_use]
    pub fn with_resolution(self, resolution: Resolution) -> Self {
        Self { resolution, ..self }
    }

    /// The same with another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same with caches in this state before every timed run.
    #[must_use]
    pub fn with_cache_state(self, cache_state: CacheState) -> Self {
        Self { cache_state, ..self }
    }

    /// The same with another search.
    #[must_use]
    pub fn with_search(self, search: SearchOptions) -> Self {
        Self { search, ..self }
    }

    /// The same, but what is already known is measured again.
    #[must_use]
    pub fn forced(self) -> Self {
        Self { force: true, ..self }
    }

    /// The rules for one invocation, with the resolution that is known of programs of its baseline's duration.
    pub(super) fn rules_for(&self, rounds: &[Round], baseline: usize) -> DecisionRules {
        let times: Vec<f64> = rounds.iter().filter_map(|round| round.sample_ns(baseline)).collect();
        let known = median(&times).map_or(0.0, |ns| self.resolution.at(ns));
        DecisionRules { resolution: self.rules.resolution.max(known), ..self.rules }
    }
}
