//! A/A calibration on simulated machines, and a tuner that uses the figures of a cache folder.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::scripted::*;
use autotune_lowered::autotune::Autotune;
use autotune_lowered::cache::FolderLock;
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measured_by::CacheState;
use autotune_lowered::race::RaceError;
use autotune_lowered::selftest::{
    FigureKey, Figures, Point, SelftestError, SelftestOptions, SelftestProgram, StoredFigures, selftest,
};
use autotune_lowered::timer::ReplayTimer;
use autotune_lowered::timer::events::{Event, EventKind, Events};
use autotune_lowered::timer::{
    Job, OutputsAs, Prepared, RoundRequest, RoundSamples, TakenOutputs, Timer, TimerExt, TimerInfo,
};
use autotune_lowered::tune::{Status, TuneOptions};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const MS: u64 = 1_000_000;
fn eight() -> SelftestOptions {
    SelftestOptions::new(8, 20, CacheState::Warm)
}

/// A machine on which a copy's runs scatter by `rounds`, and copies by `copies`; a fifth of the runs is disturbed.
struct Machine {
    inner: ScriptedTimer,
    random: ChaCha8Rng,
    rounds: f64,
    levels: Vec<f64>,
}

impl Machine {
    fn new(seed: u64, rounds: f64, copies: f64) -> Self {
        let mut machine = Self {
            inner: ScriptedTimer::new(&[MS; 8]),
            random: ChaCha8Rng::seed_from_u64(seed),
            rounds,
            levels: Vec::new(),
        };
        machine.levels = (0..8).map(|_| copies * machine.normal()).collect();
        machine
    }

    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        // the sum of twelve uniform numbers is nearly normal
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

impl Machine {
    fn times(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        let ns = self.inner.run(candidate, runs)?;
        let level = self.levels[candidate];
        // one draw for all runs of a sample: a slow phase lasts for a while
        let scatter = self.rounds * self.normal();
        let disturbed = if self.uniform() < 0.2 { 3.0 * self.rounds * self.uniform() } else { 0.0 };
        Ok(ns.iter().map(|_| (1e6 * (level + scatter + disturbed).exp()) as u64).collect())
    }
}

impl Timer for Machine {
    fn info(&self) -> &TimerInfo {
        self.inner.info()
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.inner.begin(job)
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        self.inner.prepare(candidate)
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        round.one_by_one(|candidate, runs| self.times(candidate, runs))
    }

    fn outputs(&mut self, candidate: usize, taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        self.inner.outputs(candidate, taken)
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.inner.restart(without)
    }

    fn end(&mut self) {
        self.inner.end();
    }
}

fn elementwise() -> SelftestProgram {
    SelftestProgram::own().remove(0)
}

fn run(timer: &mut dyn Timer, cancel_after: u32) -> Result<Figures, SelftestError> {
    let scratch = tempfile::tempdir().unwrap();
    let cancel = Arc::new(AtomicBool::new(false));
    let (flag, mut rounds) = (Arc::clone(&cancel), 0);
    let events = Events::default().and(Arc::new(Mutex::new(move |event: &Event<'_>| {
        if let EventKind::Round { contenders, .. } = event.kind {
            assert_eq!(contenders, 8, "none leaves");
            rounds += 1;
            flag.store(rounds >= cancel_after, Ordering::Relaxed);
        }
    })));
    let point = selftest(timer, &elementwise(), (0, 1), &eight(), scratch.path(), &cancel, &events);
    point.map(|point| point.figures)
}

#[test]
fn a_noisy_machine_tells_less() {
    let of = |seed, rounds, copies| run(&mut Machine::new(seed, rounds, copies), u32::MAX).unwrap();
    for seed in 0..5 {
        let (quiet, noisy, lucky) = (of(seed, 0.002, 0.0), of(seed, 0.04, 0.0), of(seed, 0.002, 0.03));
        assert!(quiet.resolution < 0.005, "{quiet:?}");
        assert!(noisy.resolution > 5.0 * quiet.resolution, "{noisy:?}");
        // scatter that more rounds do not remove is distinguished from scatter that they do
        assert!((0.001..0.004).contains(&lucky.between_rounds) && (0.02..0.08).contains(&noisy.between_rounds));
        assert!((0.01..0.06).contains(&lucky.between_copies) && quiet.between_copies < 0.001, "{lucky:?}");
        assert!(lucky.resolution > 3.0 * lucky.claimed, "{lucky:?}");
        assert!(quiet.false_wins.at_zero <= 2 && noisy.false_wins.at_zero <= 2, "{quiet:?} {noisy:?}");
        assert!(lucky.false_wins.at_zero > 20 && lucky.false_wins.at_resolution <= 2, "{lucky:?}");
        assert_eq!((lucky.copies, lucky.false_wins.decisions), (8, 168));
        assert!(noisy.rounds >= 20, "{noisy:?}");
    }
}

#[test]
fn all_rounds_are_measured_and_every_copy_is_in_them() {
    let mut timer = ScriptedTimer::new(&[MS; 8]);
    timer.wobble = 0;
    let figures = run(&mut timer, u32::MAX).unwrap();
    assert_eq!((figures.rounds, figures.resolution, figures.false_wins.at_zero), (20, 0.0, 0), "{figures:?}");
    // three runs of the baseline before, and two of each copy whose outputs were taken; then three of each in twenty
    // rounds, and in eight of them the baseline's two more
    let choosing = 3 + 7 * 2 + 20 * 8 * 3 + 8 * 2 * 3;
    // then eight processes, each with eight rounds at least
    let spread = figures.between_processes.unwrap();
    assert!(timer.measured > choosing + 8 * 8 * 8, "{}", timer.measured);
    assert!(spread.degrees == 7.0 && spread.deviation < 0.005, "{spread:?}");
    // twice as slow as the leader, but still measured to the end
    timer.ns[3] = 2 * MS;
    let figures = run(&mut timer, u32::MAX).unwrap();
    assert_eq!((figures.rounds, figures.resolution), (20, 1.0001));
}

#[test]
fn what_gives_no_figures_says_why() {
    let ended = run(&mut ScriptedTimer::new(&[MS; 8]), 3).unwrap_err();
    assert!(matches!(ended, SelftestError::Copies(RaceError::Interrupted)), "{ended}");
    let zero = run(&mut ScriptedTimer::new(&[0; 8]), u32::MAX).unwrap_err();
    assert!(zero.to_string().contains("usable times"), "{zero}");
    let mut one = ScriptedTimer::new(&[MS; 8]).with_script(|candidate, method, _| {
        let failure = || Failure::new(FailureKind::Compile, "no room");
        if candidate == 5 && method == "prepare" { Err(failure()) } else { Ok(()) }
    });
    let scratch = tempfile::tempdir().unwrap();
    let never = AtomicBool::new(false);
    let error =
        selftest(&mut one, &elementwise(), (0, 1), &eight(), scratch.path(), &never, &Events::default()).unwrap_err();
    assert!(
        error.to_string().contains("copy of the program failed") && error.to_string().contains("no room"),
        "{error}"
    );
    // the timer reports no signatures, which are known only of our own programs
    one.signatures = (0..8).map(|candidate| (candidate, None)).collect();
    let unknown = elementwise().parameters(None);
    let scratch = tempfile::tempdir().unwrap();
    let error = selftest(&mut one, &unknown, (0, 1), &eight(), scratch.path(), &never, &Events::default()).unwrap_err();
    assert!(error.to_string().contains("does not report the program's inputs"), "{error}");
}

/// Keeps figures in a folder as `selftest` does.
fn keep(folder: &Path, setting: &FigureKey, points: &[(f64, f64)]) {
    let mut timer = ScriptedTimer::new(&[MS; 8]);
    let figures = run(&mut timer, u32::MAX).unwrap();
    let point = |&(median_ns, resolution): &(f64, f64)| {
        let mut figures = figures;
        (figures.median_ns, figures.resolution) = (median_ns, resolution);
        Point::new("planted", Digest::of(&median_ns.to_le_bytes()), figures)
    };
    let mut stored = StoredFigures::default();
    stored.add(setting, points.iter().map(point).collect());
    stored.write(&FolderLock::acquire(folder).unwrap()).unwrap();
}

#[test]
fn the_tuner_calls_nothing_better_below_what_can_be_told() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let timer = || ScriptedTimer::new(&[10 * MS, 8 * MS, 9 * MS]);
    let setting = FigureKey::of(&timer(), &CacheState::Warm);
    let mut elsewhere = setting.clone();
    elsewhere.device.environment.xla_flags.push("--xla_cpu_use_thunk_runtime=false".into());
    let cache = folder.path().join("cache");
    let tuned = |setting: &FigureKey, points: &[(f64, f64)]| {
        keep(&cache, setting, points);
        let (stored, note) = StoredFigures::read(&cache);
        assert_eq!(note, None);
        let resolution = stored.resolution(&FigureKey::of(&timer(), &CacheState::Warm));
        let options = TuneOptions::default().resolution(resolution);
        let ledger = Ledger::in_memory(vec![]);
        let result = tune(&registry, &invocation, &mut timer(), &ledger, &options, None).unwrap();
        result.operations.into_iter().next().unwrap()
    };
    let refused = tuned(&setting, &[(1e6, 0.3)]);
    assert_eq!((refused.status, refused.resolution), (Status::BaselineKept, Some(0.3)));
    assert!(refused.reason.contains("30 %"), "{}", refused.reason);
    assert!(refused.tie_set.contains(&config(0)), "the baseline cannot be told from the best");
    for (setting, points) in [
        (&elsewhere, &[(1e6, 0.3)][..]),
        (&setting, &[(1e6, 0.1)]),
        // with our duration, and with shorter and longer ones
        (&setting, &[(1e6, 0.3), (9e6, 0.01), (1e8, 0.3)]),
    ] {
        let tuned = tuned(setting, points);
        assert_eq!((tuned.status, tuned.best.unwrap().config), (Status::Tuned, config(1)), "{points:?}");
    }
    assert_eq!(tuned(&setting, &[(1e8, 0.3)]).status, Status::BaselineKept, "shorter than all that is known");
}

#[test]
fn one_call_takes_the_noise_floor_of_its_cache_unless_it_is_given_one() {
    let folder = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/transformer");
    let mut timer = ReplayTimer::open(&example.join("simulated.json")).unwrap();
    // its best configs take half the time
    keep(folder.path(), &FigureKey::of(&timer, &CacheState::Warm), &[(1e6, 0.9)]);
    let autotune = Autotune::module(example.join("module.hlo.txt")).cache(folder.path());
    let mut status_of = |autotune: &Autotune| autotune.run(&mut timer).unwrap().operations[0].status;
    assert_eq!(status_of(&autotune), Status::BaselineKept);
    let finer = TuneOptions::default().resolution(autotune_lowered::decision::Resolution::new([(1e6, 0.01)]));
    assert_eq!(status_of(&autotune.options(finer)), Status::Tuned);
}

#[test]
fn figures_that_come_later_decide_again_on_the_rounds_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 2, &distinct_program);
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    let mut timer = ScriptedTimer::new(&[10 * MS, 8 * MS]);
    let before = tune(&registry, &invocation, &mut timer, &ledger, &TuneOptions::default(), None).unwrap();
    assert_eq!(before.operations[0].status, Status::Tuned);
    let options = TuneOptions::default().resolution(autotune_lowered::decision::Resolution::new([(1e6, 0.3)]));
    let after = tune(&registry, &invocation, &mut timer, &ledger, &options, None).unwrap();
    assert_eq!(after.operations[0].status, Status::BaselineKept);
    assert!(after.operations[0].rounds_kept > 0 && after.operations[0].rounds_measured < 20);
    assert_eq!(after.operations[0].best.as_ref().unwrap().config, config(0));
}
