//! How to tune.

use std::time::{Duration, Instant};

use crate::candidates::Peaks;
use crate::decision::{DecisionRules, Resolution};
use crate::measured_by::CacheState;
use crate::race::RaceOptions;
use crate::search::{Budget, Kind};
use crate::setters;

/// Settings of a tuning run. `rules` affect only what is decided; the rest affects only how much is measured.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TuneOptions {
    /// Interleaved rounds of one invocation, if a number is requested. A decided race ends earlier. An undecided race
    /// continues for as long as that many runs of every candidate would take, because dropped candidates left time.
    /// Without a number, the time is proportional to the compile time.
    pub rounds: Option<u32>,
    /// Time for one invocation, if there is a limit: for its rounds, and for compiling at most half of it.
    pub budget: Option<Duration>,
    /// When the run ends: afterwards no invocation is started, and the one in progress is finished.
    pub stop_at: Option<Instant>,
    /// What a winner must show.
    pub rules: DecisionRules,
    /// The noise floor that `selftest` found on this device.
    pub resolution: Resolution,
    /// Measure again what is already known.
    pub force: bool,
    /// Seed of the order inside a round and of searches; inputs have the seeds of their own names.
    pub seed: u64,
    /// If a whole round is one profile, its runs are repeated until those of the fastest candidate last about this
    /// long, nanoseconds.
    pub sample_ns: u64,
    /// Maximum number of runs of one candidate in such a round.
    pub max_runs: u32,
    /// What every timed run finds in the caches.
    pub cache_state: CacheState,
    /// Whether each call can have only one job, because its profiles are stored by call: no other is started to search
    /// for configs.
    pub one_job_a_call: bool,
    /// Whether every candidate is compiled and raced, including those predicted to be slow.
    pub thorough: bool,
    /// Programs that are compiled before the next look, if they are compiled in waves: enough to keep the cores busy.
    /// The first wave is half as large again.
    pub wave: usize,
    /// How to search if there are too many configs to race them all.
    pub search: SearchOptions,
    /// The device's peaks, for the roofline of the results; by default the published figures of its kind.
    pub peaks: Option<Peaks>,
}

setters!(TuneOptions {
    rounds: Option<u32>,
    budget: Option<Duration>,
    stop_at: Option<Instant>,
    rules: DecisionRules,
    resolution: Resolution,
    force: bool,
    seed: u64,
    sample_ns: u64,
    max_runs: u32,
    cache_state: CacheState,
    one_job_a_call: bool,
    thorough: bool,
    wave: usize,
    search: SearchOptions,
    peaks: Option<Peaks>,
});

/// Settings of a search, which picks the configs to race if there are more than [`MAX_RACED`](super::MAX_RACED).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchOptions {
    /// Which strategy picks the next config.
    pub kind: Kind,
    /// How many configs are tried, and for how long; at least one.
    pub budget: Budget,
    /// Rounds in which each tried config runs beside the baseline.
    pub rounds: u32,
    /// The best configs that are raced afterwards.
    pub finalists: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        let budget = Budget::default().evaluations(Some(128));
        Self { kind: Kind::Auto, budget, rounds: 1, finalists: 15 }
    }
}

setters!(SearchOptions { kind: Kind, budget: Budget, rounds: u32, finalists: usize });

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            rounds: None,
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
            thorough: false,
            // two per core, so that fewer cores wait for the longest compilation
            wave: std::thread::available_parallelism().map_or(4, |cores| (2 * cores.get()).clamp(4, 16)),
            search: SearchOptions::default(),
            peaks: None,
        }
    }
}

impl TuneOptions {
    /// The part of them that a race needs.
    pub(crate) fn race_options(&self) -> RaceOptions {
        RaceOptions::default()
            .rounds(self.rounds)
            .budget(self.budget)
            .rules(self.rules)
            .resolution(self.resolution.clone())
            .force(self.force)
            .seed(self.seed)
            .sample_ns(self.sample_ns)
            .max_runs(self.max_runs)
            .cache_state(self.cache_state.clone())
    }
}
