//! How a race measures.

use std::time::{Duration, Instant};

use super::contention::{LoadPolicy, QuietWait};
use crate::decision::{DecisionRules, ProcessRatio, ProcessSpread, Resolution, Round};
use crate::measured_by::CacheState;
use crate::setters;
use crate::stats::median;

use super::OutputTolerances;

/// How much a race measures, and what a winner must show. `rules` and `resolution` affect only what is decided; the
/// rest affects only how much is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct RaceOptions {
    /// Interleaved rounds, if a number is requested. A decided race ends earlier. An undecided race continues for as
    /// long as that many runs of every candidate would take, because dropped candidates left time. Without a number,
    /// the time is proportional to the compile time.
    pub rounds: Option<u32>,
    /// Time for one race, if there is a limit: for its rounds, and for compiling at most half of it.
    pub budget: Option<Duration>,
    /// What a winner must show.
    pub rules: DecisionRules,
    /// The noise floor that `selftest` found on this device.
    pub resolution: Resolution,
    /// Fresh processes that may confirm a winner in one run; of a busy machine half as many again. Without any, what
    /// the first process chose is final.
    pub processes: u32,
    /// What `selftest` found about the spread between processes on this device.
    pub spread: Option<ProcessSpread>,
    /// What is done about other processes on the cores.
    pub load: LoadPolicy,
    /// How long all races of a run may wait for a quiet machine.
    pub quiet: QuietWait,
    /// Measure again what the log holds.
    pub force: bool,
    /// Seed of the order inside a round and of searches; inputs have the seeds of their own names.
    pub seed: u64,
    /// What every timed run finds in the caches.
    pub cache_state: CacheState,
    /// Tolerances of outputs that replace those of their types.
    pub tolerances: OutputTolerances,
}

setters!(RaceOptions {
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

impl Default for RaceOptions {
    fn default() -> Self {
        Self {
            rounds: None,
            budget: None,
            rules: DecisionRules::default(),
            resolution: Resolution::default(),
            processes: PROCESSES,
            spread: None,
            load: LoadPolicy::default(),
            quiet: QuietWait::default(),
            force: false,
            seed: 0,
            cache_state: CacheState::Warm,
            tolerances: OutputTolerances::default(),
        }
    }
}

/// Rounds if no number is requested but one is needed: under a profiler, and in a series of a check.
const ROUNDS: u32 = 20;

/// Fresh processes that may confirm a winner: three agree where it is quiet, and the others are for small gains.
const PROCESSES: u32 = 8;

/// Fewer cannot confirm a winner, however fast it is, because the evidence of each is bounded.
pub(crate) const LEAST_PROCESSES: u32 = 3;

/// The same on a busy machine, where each process is worth less.
const LEAST_BUSY_PROCESSES: u32 = 5;

impl RaceOptions {
    /// The spread to assume of a call that these processes measured.
    pub(crate) fn spread_of(&self, processes: &[ProcessRatio]) -> ProcessSpread {
        if is_busy(processes) {
            return ProcessSpread::CONTENDED;
        }
        self.spread.unwrap_or(ProcessSpread::QUIET)
    }

    /// How many processes may measure it in one run.
    pub(crate) fn most_processes(&self, processes: &[ProcessRatio]) -> u32 {
        match self.processes {
            0 => 0,
            quiet if is_busy(processes) => (quiet.saturating_mul(3) / 2).max(LEAST_BUSY_PROCESSES),
            quiet => quiet,
        }
    }

    /// The requested number of rounds, or the usual one.
    pub(crate) fn usual_rounds(&self) -> u32 {
        self.rounds.unwrap_or(ROUNDS)
    }

    /// The same for a race in which no candidate is dropped and nothing is decided.
    #[must_use]
    pub(crate) fn without_verdict(self) -> Self {
        Self { rules: DecisionRules::ALL_ROUNDS, resolution: Resolution::default(), ..self }
    }

    /// The rules for one job, with the noise floor known for programs of its baseline's duration.
    pub(crate) fn rules_for(&self, rounds: &[Round], baseline: usize) -> DecisionRules {
        let times: Vec<f64> = rounds.iter().filter_map(|round| round.sample_ns(baseline)).collect();
        let known = median(&times).map_or(0.0, |ns| self.resolution.at(ns));
        self.rules.resolution(self.rules.resolution.max(known))
    }
}

fn is_busy(processes: &[ProcessRatio]) -> bool {
    processes.iter().any(|process| process.is_contended)
}

/// When the time for races is over; never if there is no budget.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// After this time from now.
    pub(crate) fn after(budget: Option<Duration>) -> Self {
        Self(budget.and_then(|budget| Instant::now().checked_add(budget)))
    }

    /// Whether there is one.
    pub(crate) fn is_set(self) -> bool {
        self.0.is_some()
    }

    /// Whether the time is over.
    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(|until| Instant::now() >= until)
    }

    /// The time that is left, if it is limited.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|until| until.saturating_duration_since(Instant::now()))
    }
}
