//! How to tune.

use std::time::{Duration, Instant};

use crate::decision::{DecisionRules, ProcessSpread, Resolution};
use crate::measured_by::CacheState;
use crate::peaks::Peaks;
use crate::race::{LoadPolicy, OutputTolerances, QuietWait, RaceOptions};
use crate::search::{Budget, StrategyKind};
use crate::setters;

/// Settings of a tuning run.
#[derive(Debug, Clone, PartialEq)]
pub struct TuneOptions {
    /// How each invocation is raced: its rounds, its time, and what a winner must show.
    pub race: RaceOptions,
    /// Until when races are started; the one in progress then is finished.
    pub choose_until: Option<Instant>,
    /// When the run ends: afterwards no fresh process is started to confirm what was chosen.
    pub stop_at: Option<Instant>,
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

setters!(TuneOptions.race {
    rounds: Option<u32>,
    budget: Option<Duration>,
    rules: DecisionRules,
    resolution: Resolution,
    processes: u32,
    spread: Option<ProcessSpread>,
    load: LoadPolicy,
    quiet: QuietWait,
    force: bool,
    seed: u64,
    cache_state: CacheState,
    tolerances: OutputTolerances,
});

setters!(TuneOptions {
    race: RaceOptions,
    choose_until: Option<Instant>,
    stop_at: Option<Instant>,
    one_job_a_call: bool,
    thorough: bool,
    wave: usize,
    search: SearchOptions,
    peaks: Option<Peaks>,
});

impl TuneOptions {
    /// The same with this time for each call: two thirds are for choosing, and the rest is for fresh processes.
    #[must_use]
    pub fn time_for_each(self, budget: Option<Duration>) -> Self {
        self.budget(budget.map(|budget| budget - budget / 3))
    }

    /// Whether no further race is started.
    pub(super) fn chooses_no_more(&self) -> bool {
        self.choose_until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Settings of a search, which picks the configs to race if there are more than [`MAX_RACED`](super::MAX_RACED).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchOptions {
    /// Which strategy picks the next config.
    pub kind: StrategyKind,
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
        Self { kind: StrategyKind::Auto, budget, rounds: 1, finalists: 15 }
    }
}

setters!(SearchOptions { kind: StrategyKind, budget: Budget, rounds: u32, finalists: usize });

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            race: RaceOptions::default(),
            choose_until: None,
            stop_at: None,
            one_job_a_call: false,
            thorough: false,
            // two per core, so that fewer cores wait for the longest compilation
            wave: std::thread::available_parallelism().map_or(4, |cores| (2 * cores.get()).clamp(4, 16)),
            search: SearchOptions::default(),
            peaks: None,
        }
    }
}
