//! Simulated machines with known times of each config, and random disturbances of each run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use autotune_lowered::config::Config;
use autotune_lowered::failure::Failure;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::timer::{Job, OutputsAs, Prepared, RoundRequest, RoundSamples, TakenOutputs, Timer, TimerInfo};
use autotune_lowered::tune::{Session, Status, TuneOptions};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::support::scripted::*;

pub(crate) const MS: u64 = 1_000_000;

/// A machine: relative deviation of a run, how often a disturbance at least doubles its time, and how much a process's
/// memory changes a program for its lifetime.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) deviation: f64,
    pub(crate) disturbed: f64,
    pub(crate) placement: f64,
}

pub(crate) const QUIET: Machine = Machine { deviation: 0.01, disturbed: 0.01, placement: 0.0 };
pub(crate) const BUSY: Machine = Machine { deviation: 0.05, disturbed: 0.15, placement: 0.0 };

/// Candidate `i` takes `times[i]` milliseconds on such a machine.
pub(crate) struct Noisy {
    pub(crate) timer: ScriptedTimer,
    random: ChaCha8Rng,
    machine: Machine,
    pub(crate) times: Vec<f64>,
    pub(crate) configs: Vec<Config>,
    placed: Vec<f64>,
    /// By candidate, the multiple of its time that the first run of a sample takes, if there are any.
    first: Vec<f64>,
}

impl Noisy {
    /// Times of `config(0)`, `config(1)`, …
    pub(crate) fn new(seed: u64, machine: Machine, times: &[f64]) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let placed = times.iter().map(|_| (machine.placement * normal(&mut random)).exp()).collect();
        let mut timer = ScriptedTimer::new(&vec![MS; times.len()]);
        timer.info.name = "noisy".to_owned();
        Self { timer, random, machine, times: times.to_vec(), configs: Vec::new(), placed, first: Vec::new() }
    }
}

fn uniform(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The sum of twelve uniform numbers is nearly normal.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

impl Noisy {
    fn times(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        let number = (0..self.times.len()).find(|&n| config(n as u64) == self.configs[candidate]).unwrap();
        let level = 1e6 * self.times[number] * self.placed[number];
        // a disturbance affects all runs of a sample; otherwise the fastest run would nearly always be undisturbed
        let beside = if uniform(&mut self.random) < self.machine.disturbed {
            1.0 + 2.0 * uniform(&mut self.random)
        } else {
            1.0
        };
        let first = self.first.get(number).copied().unwrap_or(1.0);
        let mut run =
            |times: f64| (level * beside * times * (self.machine.deviation * normal(&mut self.random)).exp()) as u64;
        Ok((0..runs).map(|index| run(if index == 0 { first } else { 1.0 })).collect())
    }
}

impl Timer for Noisy {
    fn info(&self) -> &TimerInfo {
        &self.timer.info
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.configs = job.candidates.iter().map(|candidate| candidate.config.clone()).collect();
        self.timer.begin(job)
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        self.timer.prepare(candidate)
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        round.one_by_one(|candidate, runs| self.times(candidate, runs))
    }

    fn outputs(&mut self, candidate: usize, taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        self.timer.outputs(candidate, taken)
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        let (random, deviation) = (&mut self.random, self.machine.placement);
        self.placed.iter_mut().for_each(|placed| *placed = (deviation * normal(random)).exp());
        self.timer.restart(without)
    }

    fn end(&mut self) {
        self.timer.end();
    }
}

/// Rounds that scatter by a multiple say nothing in six of them: the race goes on, and denies no gain that it cannot see.
#[test]
fn noise_that_may_hide_a_large_gain_is_no_reason_to_keep_the_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, _) = registry(folder.path(), 2, &distinct_program);
    let tuned = |seed, deviation| {
        let ledger = Ledger::in_memory(vec![]);
        let mut timer = Noisy::new(seed, Machine { deviation, disturbed: 0.0, placement: 0.0 }, &[1.0, 1.3]);
        let mut session = Session::new(&registry, &ledger, &mut timer).options(TuneOptions::default());
        session.run(&planned(registry.invocations())).unwrap().operations.remove(0)
    };
    let mut undecided = 0;
    for seed in 0..10 {
        let usual = tuned(seed, 0.05);
        assert_eq!(usual.status, Status::BaselineKept, "{seed}: {}", usual.reason);
        let noisy = tuned(seed, 1.5);
        assert!(noisy.rounds_measured >= 20, "{noisy:?}");
        if noisy.status == Status::Undecided {
            undecided += 1;
            assert!(noisy.reason.contains("a large gain may be hidden") && noisy.best.is_none(), "{noisy:?}");
        }
    }
    assert!(undecided >= 1, "{undecided} of 10");
}

/// The best config uses several cores, which other programs left idle, so that its first run after them is slow. In five of
/// six programs the first run is as good as the others, and the noise of the sixth's would excuse any first run.
#[test]
fn a_program_whose_first_run_is_slow_is_judged_by_its_fastest() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, _) = registry(folder.path(), 6, &distinct_program);
    for seed in 0..20 {
        let ledger = Ledger::in_memory(vec![]);
        let machine = Machine { deviation: 0.04, disturbed: 0.05, placement: 0.0 };
        let mut timer = Noisy::new(seed, machine, &[3.4, 4.7, 4.0, 3.9, 3.3, 2.3]);
        timer.first = vec![1.0, 1.0, 1.0, 1.0, 1.0, 1.6];
        let mut session = Session::new(&registry, &ledger, &mut timer).options(TuneOptions::default());
        let operation = session.run(&planned(registry.invocations())).unwrap().operations.remove(0);
        assert_eq!(operation.best.as_ref().map(|best| &best.config), Some(&config(5)), "{seed}: {operation:?}");
        assert!(operation.rounds_measured <= 16, "{seed}: {} rounds", operation.rounds_measured);
    }
}

/// Programs that run long and compile in no time, on a noisy machine: a limit relative to compile time is no reason to
/// keep a baseline that is half as slow again.
#[test]
fn slow_programs_whose_executables_are_kept_find_a_config_that_is_far_better() {
    let machine = Machine { deviation: 0.12, disturbed: 0.2, placement: 0.0 };
    // the baseline takes 7.5 ms, the best 5 ms, others up to 20 ms
    let mut times: Vec<f64> = (0..34).map(|i| 5.0 * 1.042_f64.powi((i * 13) % 34)).collect();
    times.swap(0, 8);
    times[0] = 7.5;
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    let folder = tempfile::tempdir().unwrap();
    let (registry, _) = registry(folder.path(), 34, &distinct_program);
    let regrets = (0..20).map(|seed| {
        let ledger = Ledger::in_memory(vec![]);
        let mut timer = Noisy::new(seed, machine, &times);
        let mut session = Session::new(&registry, &ledger, &mut timer).options(TuneOptions::default());
        let operation = session.run(&planned(registry.invocations())).unwrap().operations.remove(0);
        // an undecided call runs with its baseline
        let chosen = operation.best.map_or(config(0), |best| best.config);
        let chosen = (0..34).find(|&n| config(n) == chosen).unwrap() as usize;
        times[chosen] / best - 1.0
    });
    let mut regrets: Vec<f64> = regrets.collect();
    regrets.sort_by(f64::total_cmp);
    // one round in five is disturbed by more than the configs differ
    assert!(regrets[15] < 0.05, "{regrets:?}");
}
