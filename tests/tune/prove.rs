//! The gain of a step, and the contribution of each call, on simulated machines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::support::scripted::*;
use crate::support::step::{seal, write_step, write_variants};
use autotune_lowered::cache::{CacheKey, Entry, Mapping, Snapshot, write_snapshot};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::compare::CompareOptions;
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::Failure;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::prove::{ProveError, ProveResult, StepVariants, StepVerdict, prove, proven_entries};
use autotune_lowered::race::Runner;
use autotune_lowered::timer::{
    Job, OutputsAs, Prepared, ProgramSignature, RoundRequest, RoundSamples, TakenOutputs, Timer, TimerInfo,
};
use serde_json::{Value, json};

const MS: f64 = 1e6;

/// A step whose tuned calls multiply its time by factors, with a random scatter of one per cent.
struct StepTimer {
    inner: ScriptedTimer,
    factors: Vec<f64>,
    state: u64,
    /// The first race of this many programs takes at least this long.
    takes: Option<(usize, Duration)>,
}

impl StepTimer {
    fn new(factors: &[f64], seed: u64) -> Self {
        let state = seed.wrapping_mul(2) + 1;
        Self { inner: ScriptedTimer::new(&[]), factors: factors.to_vec(), state, takes: None }
    }

    /// Uniform between zero and one: xorshift (Marsaglia, Xorshift RNGs, 2003).
    fn chance(&mut self) -> f64 {
        for (left, by) in [(true, 13), (false, 7), (true, 17)] {
            self.state ^= if left { self.state << by } else { self.state >> by };
        }
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn time(&self, program: &str) -> f64 {
        let (_, tuned) = program.split_once("// ").unwrap();
        let tuned = tuned.lines().next().unwrap().split(' ').filter_map(|number| number.parse::<usize>().ok());
        tuned.map(|call| self.factors[call]).product::<f64>() * 10.0 * MS
    }
}

/// The step with these calls tuned, in a text that the timer reads.
fn program(tuned: &[usize]) -> String {
    let tuned: Vec<String> = tuned.iter().map(usize::to_string).collect();
    format!(
        "module @m {{ func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{ // {}\n return %a : tensor<4xf32> }} }}",
        tuned.join(" ")
    )
}

impl StepTimer {
    fn times(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        let ns = self.inner.ns[candidate] as f64;
        Ok((0..runs).map(|_| (ns * (0.995 + 0.01 * self.chance())) as u64).collect())
    }
}

impl Timer for StepTimer {
    fn info(&self) -> &TimerInfo {
        &self.inner.info
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        let texts = job.candidates.iter().map(|one| fs::read_to_string(&one.program.as_ref().unwrap().path).unwrap());
        self.inner.ns = texts.map(|text| self.time(&text) as u64).collect();
        self.inner.outputs = vec![1.0; job.candidates.len()];
        self.inner.begin(job)
    }
    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        self.inner.prepare(candidate)
    }
    fn signature(&mut self, candidate: usize) -> Result<Option<ProgramSignature>, Failure> {
        self.inner.signature(candidate)
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
        if let Some((_, time)) = self.takes.take_if(|(programs, _)| *programs == self.inner.ns.len()) {
            std::thread::sleep(time);
        }
        self.inner.end();
    }
}

fn run(folder: &Path, factors: &[f64], seed: u64, options: &CompareOptions) -> Result<ProveResult, ProveError> {
    run_on(&mut StepTimer::new(factors, seed), folder, &options.clone().seed(seed))
}

fn run_on(timer: &mut StepTimer, folder: &Path, options: &CompareOptions) -> Result<ProveResult, ProveError> {
    let (step, scratch) = (StepVariants::open(folder)?, tempfile::tempdir().unwrap());
    let ledger = Ledger::in_memory(Vec::new());
    let (never, events) = (AtomicBool::new(false), Default::default());
    prove(&mut Runner::new(timer, &ledger, &never, &events), &step, options, scratch.path())
}

fn verdicts(found: &ProveResult) -> Vec<StepVerdict> {
    found.calls.iter().map(|call| call.in_step.verdict).collect()
}

#[test]
fn a_call_that_wins_alone_and_loses_in_the_step_is_left_out() {
    use StepVerdict::{Gains, Loses};
    let folder = tempfile::tempdir().unwrap();
    write_step(folder.path(), 4, &program);
    for seed in 0..20 {
        let found = run(folder.path(), &[0.9, 0.95, 1.06, 0.93], seed, &CompareOptions::default()).unwrap();
        assert_eq!(verdicts(&found), [Gains, Gains, Loses, Gains], "seed {seed}: {found:?}");
        assert_eq!(found.step.verdict, Gains, "seed {seed}");
        let proven = found.proven.as_ref().unwrap();
        assert_eq!(proven.calls, [0, 1, 3], "seed {seed}");
        // 1 / (0.9 · 0.95 · 0.93)
        assert!((proven.in_step.speed_up.unwrap() - 1.2576).abs() < 0.01, "seed {seed}: {proven:?}");
        let part = found.calls[2].in_step.interval.unwrap();
        // one comparison of eight, and the copy
        assert!(part.low <= 1.0 / 1.06 && 1.0 / 1.06 <= part.high && part.confidence > 0.99, "{part:?}");
        assert!(found.dump_without.is_empty() && found.calls[2].call.alone == Some(2.0));
    }
}

#[test]
fn parts_that_cancel_out_are_found_and_several_losers_are_put_back_by_another_dump() {
    use StepVerdict::{Gains, Loses, PutBack};
    let folder = tempfile::tempdir().unwrap();
    write_step(folder.path(), 4, &program);
    // each half gains nothing as a whole
    let factors = [0.9, 1.0 / 0.9, 1.08, 1.0 / 1.08];
    let found = run(folder.path(), &factors, 1, &CompareOptions::default()).unwrap();
    assert_eq!(verdicts(&found), [Gains, Loses, Loses, Gains]);
    assert!(!matches!(found.step.verdict, Gains | Loses));
    assert_eq!((found.proven.unwrap().calls, found.dump_without), (vec![0, 2, 3], vec![1, 2]));
    // as `dump(…, without=…)` writes it
    let variants = [vec![], vec![0, 3], vec![0], vec![3]];
    write_variants(folder.path(), 4, &variants, &program);
    let found = run(folder.path(), &factors, 2, &CompareOptions::default()).unwrap();
    assert_eq!(verdicts(&found), [Gains, PutBack, PutBack, Gains]);
    assert_eq!((found.proven.unwrap().calls, found.dump_without), (vec![0, 3], vec![]));
}

#[test]
fn nothing_is_proven_where_nothing_is_gained_or_there_is_no_time() {
    let folder = tempfile::tempdir().unwrap();
    write_step(folder.path(), 2, &program);
    let none = run(folder.path(), &[1.0, 1.0], 3, &CompareOptions::default()).unwrap();
    assert!(none.proven.is_none() && proven_entries(&none, &[]).is_empty(), "{none:?}");
    let hurry = CompareOptions::default().budget(Some(Duration::from_nanos(1)));
    let hurried = run(folder.path(), &[0.8, 0.9], 4, &hurry).unwrap();
    assert_eq!(verdicts(&hurried), [StepVerdict::NotSeparated; 2]);
    assert_eq!((hurried.step.verdict, hurried.rounds_measured), (StepVerdict::NotSeparated, 0));
    assert!(hurried.proven.is_none() && hurried.notes.iter().any(|note| note.contains("--budget")), "{hurried:?}");
    // a call that the step does not contain, and a step that contains none
    write_step(folder.path(), 2, &|tuned| {
        program(&tuned.iter().copied().filter(|&call| call == 0).collect::<Vec<_>>())
    });
    let half = run(folder.path(), &[0.8, 1.0], 5, &CompareOptions::default()).unwrap();
    assert_eq!(verdicts(&half), [StepVerdict::Gains, StepVerdict::NoEffect]);
    write_step(folder.path(), 2, &|_| program(&[]));
    let same = run(folder.path(), &[0.8, 1.0], 6, &CompareOptions::default()).unwrap();
    assert!(same.step.verdict == StepVerdict::NoEffect && same.proven.is_none() && same.sets.is_empty(), "{same:?}");
    // one call alone is the step's gain
    write_step(folder.path(), 1, &program);
    let one = run(folder.path(), &[0.8], 7, &CompareOptions::default()).unwrap();
    assert_eq!((verdicts(&one), one.calls[0].in_step.clone()), (vec![StepVerdict::Gains], one.step.clone()));
    assert_eq!(one.proven.unwrap().calls, [0]);
}

/// Three calls are halved into two and one. The race of these sets takes all the time: the single call has its part,
/// and the two were not raced individually. A race has a third of the time, which a busy machine may use up before the
/// first round: then all is repeated with more.
#[test]
fn calls_for_which_no_time_is_left_are_not_separated() {
    use StepVerdict::{Gains, NotSeparated};
    let folder = tempfile::tempdir().unwrap();
    write_step(folder.path(), 3, &program);
    let found = [1, 10, 100].iter().find_map(|&seconds| {
        let budget = Duration::from_secs(seconds);
        let mut timer = StepTimer::new(&[0.9, 0.95, 0.8], 10);
        // all tuned, each set put back, and the copy
        timer.takes = Some((4, budget));
        let options = CompareOptions::default().seed(10).budget(Some(budget));
        let found = run_on(&mut timer, folder.path(), &options).unwrap();
        assert!(found.notes.iter().any(|note| note.contains("--budget")), "{:?}", found.notes);
        let raced = found.sets.iter().filter(|set| set.in_step.verdict == Gains).count();
        (found.step.verdict == Gains && raced == 2).then_some(found)
    });
    let found = found.unwrap();
    assert_eq!(verdicts(&found), [NotSeparated, NotSeparated, Gains], "{found:?}");
    let sets: Vec<_> = found.sets.iter().map(|set| (set.calls.clone(), set.in_step.speed_up.unwrap())).collect();
    let [(first, of_first), (second, of_second)] = &sets[..] else { panic!("{sets:?}") };
    assert_eq!((first.as_slice(), second.as_slice()), (&[0, 1][..], &[2][..]));
    // 1 / (0.9 · 0.95) and 1 / 0.8
    assert!((of_first - 1.1696).abs() < 0.01 && (of_second - 1.25).abs() < 0.01, "{sets:?}");
    assert_eq!(found.calls[2].in_step.speed_up, Some(*of_second));
    assert_eq!(found.proven.unwrap().calls, [0, 1, 2], "no call loses");
}

#[test]
fn a_snapshot_holds_exactly_the_proven_set() {
    let folder = tempfile::tempdir().unwrap();
    write_step(folder.path(), 3, &program);
    let found = run(folder.path(), &[0.9, 1.1, 0.9], 8, &CompareOptions::default()).unwrap();
    let key = |number: usize| CacheKey {
        call: Call::new("op@v1", format!("{number:016x}")),
        direction: Direction::Forward,
        device: device().identity,
    };
    // in the cache, an entry with the same config stays unchanged, and one with another config does not count
    let of_cache = |number, block| (key(number), Arc::new(Entry::new(config(block))));
    let known = [of_cache(0, 64), of_cache(2, 9)];
    let entries = proven_entries(&found, &known);
    assert!(Arc::ptr_eq(&entries[0].1, &known[0].1));
    let file = folder.path().join("proven.snapshot");
    write_snapshot(&file, &entries).unwrap();
    let read = Snapshot::open(&file, Mapping::Never).unwrap();
    let read: Vec<_> = read.records().map(|one| one.and_then(|one| read.entry(&one)).unwrap().config.clone()).collect();
    assert_eq!(read, [config(64), config(66)]);
}

#[test]
fn a_call_that_is_left_out_does_not_take_the_config_of_its_variant() {
    let folder = tempfile::tempdir().unwrap();
    write_step(folder.path(), 2, &program);
    change(folder.path(), |manifest| manifest["calls"][1]["call_key"] = "0000000000000000~8-0a1b2c3d".into());
    let found = run(folder.path(), &[0.9, 1.1], 9, &CompareOptions::default()).unwrap();
    let entries = proven_entries(&found, &[]);
    let configs: Vec<Value> = entries.iter().map(|(_, entry)| Value::Object(entry.config.as_map().clone())).collect();
    assert_eq!(configs, [json!({"block": 64}), json!({"block": 8})]);
}

type Changes<'a> = &'a dyn Fn(&mut Value);

/// Changes a manifest and updates its digest.
fn change(folder: &Path, change: impl Fn(&mut Value)) {
    let text = fs::read_to_string(folder.join("prove.json")).unwrap();
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    change(&mut manifest);
    seal(folder, &manifest);
}

#[test]
fn damaged_manifests_and_programs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (at, manifest) = (folder.path(), folder.path().join("prove.json"));
    let refused = |why: &str| {
        let error = StepVariants::open(at).unwrap_err();
        assert!(error.is_of_input() && error.to_string().contains(why), "{why}: {error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    };
    write_step(at, 3, &program);
    let sound = fs::read(&manifest).unwrap();
    StepVariants::open(at).unwrap();
    for place in (0..sound.len()).step_by(7) {
        let mut flipped = sound.clone();
        flipped[place] ^= 1;
        fs::write(&manifest, &flipped).unwrap();
        refused("prove");
        fs::write(&manifest, &sound[..place]).unwrap();
        refused("prove.json");
    }
    let changes: [(Changes<'_>, &str); 15] = [
        (&|all| all["format"] = "autotune-lowered-prove-v2".into(), "expected `autotune-lowered-prove-v1`"),
        (&|all| all["calls"] = json!([]), "has 0 calls"),
        (&|all| all["calls"][1] = all["calls"][0].clone(), "twice"),
        (&|all| all["calls"][1]["share"] = 1.5.into(), "`share`"),
        (&|all| all["calls"][1]["alone"] = (-1.0).into(), "`alone`"),
        (&|all| all["calls"][1]["alone_interval"]["low"] = 3.0.into(), "`alone_interval`"),
        (&|all| all["variants"][1]["tuned"] = json!([0, 1, 3]), "below 3"),
        (&|all| all["variants"][1]["tuned"] = json!([1, 0]), "increasing"),
        (&|all| all["variants"][0]["tuned"] = json!([0]), "at their baselines"),
        (&|all| all["variants"][2]["tuned"] = all["variants"][3]["tuned"].clone(), "not a tree"),
        (&|all| all["variants"][0]["file"] = "../secret.mlir".into(), "is outside"),
        (&|all| all["variants"][0]["file"] = "gone.mlir".into(), "gone.mlir"),
        (&|all| all["variants"][0]["sha256"] = Digest::of(b"other").to_string().into(), "digest differs"),
        (&|all| all["compile_options"] = "%".into(), "not base64"),
        // a length beyond the end
        (&|all| all["compile_options"] = "Gn8=".into(), "are not a CompileOptionsProto"),
    ];
    for (by, why) in changes {
        write_step(at, 3, &program);
        change(at, by);
        refused(why);
    }
    for link in ["zero.mlir", "fifo.mlir", "whole.mlir"] {
        write_step(at, 3, &program);
        change(at, |all| all["variants"][0]["file"] = link.into());
        let mut files = fs::read_dir(at).unwrap().map(|one| one.unwrap().path());
        let mlir = files.find(|path| path.extension().is_some_and(|end| end == "mlir")).unwrap();
        match link {
            "zero.mlir" => std::os::unix::fs::symlink("/dev/zero", at.join(link)).unwrap(),
            "whole.mlir" => std::os::unix::fs::symlink(mlir, at.join(link)).unwrap(),
            _ => assert!(std::process::Command::new("mkfifo").arg(at.join(link)).status().unwrap().success()),
        }
        refused(if link == "fifo.mlir" { "not a regular file" } else { "symbolic link" });
    }
}
