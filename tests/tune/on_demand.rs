//! Candidates that are lowered when they are needed: with a simulated timer, and a recorder without JAX.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::formula::FormulaTimer;
use crate::support::prerequisite::python3;
use crate::support::scripted;
use autotune_lowered::config::Config;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::lowering::Lowering;
use autotune_lowered::registry::{Candidate, Invocation, ProgramFormat, Registry};
use autotune_lowered::search::{Budget, StrategyKind};
use autotune_lowered::timer::{CompileTimes, Recorders, WorkerLimits};
use autotune_lowered::tune::{OperationResult, SearchOptions, Session, Status, TuneOptions, TuningPlan};
use serde_json::json;

/// What `tune --recorder` tries of a call by default.
const EVALUATIONS: usize = 64;

fn config(q: u64, kv: u64) -> Config {
    serde_json::from_value(json!({"q": q, "kv": kv})).unwrap()
}

fn number(config: &Config, name: &str) -> u64 {
    config.get(name).and_then(serde_json::Value::as_u64).unwrap()
}

/// Its minimum is at q = 13, kv = 6; the baseline takes twice as long.
fn bowl(config: &Config) -> u64 {
    let (q, kv) = (number(config, "q") as f64 - 13.0, number(config, "kv") as f64 - 6.0);
    (1e6 * (1.0 + q * q / 250.0 + kv * kv / 120.0)) as u64
}

/// A call with a program for its baseline, the first of these configs, alone.
struct Recorded {
    folder: tempfile::TempDir,
}

impl Recorded {
    fn new(configs: impl IntoIterator<Item = Config>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut registry = Registry::create_or_open(folder.path().join("registry")).unwrap();
        let mut candidates: Vec<Candidate> = configs.into_iter().map(Candidate::new).collect();
        let baseline = candidates[0].config.clone();
        let text = scripted::distinct_program(20 * number(&baseline, "q") + number(&baseline, "kv"));
        let digest = autotune_lowered::digest::Digest::of(text.as_bytes());
        let program =
            registry.writer().put_program(ProgramFormat::StablehloText, text.as_bytes(), digest, vec![]).unwrap();
        candidates[0].program = Some(program);
        let invocation = scripted::invocation("0123456789abcdef", baseline, candidates)
            .static_arguments([("lowered".to_owned(), json!("on-demand"))].into());
        registry.add(&invocation).unwrap();
        Self { folder }
    }

    /// 20 × 20 configs.
    fn large() -> Self {
        Self::new((0..20).flat_map(|q| (0..20).map(move |kv| config(q, kv))))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn registry(&self) -> Registry {
        Registry::open(self.path("registry")).unwrap()
    }

    fn invocation(&self) -> Arc<Invocation> {
        let registry = self.registry();
        assert_eq!((registry.invocations().len(), registry.record_count()), (1, 1), "one record, rewritten");
        assert!(registry.problems().is_empty() && registry.changes().is_empty());
        Arc::clone(&registry.invocations()[0])
    }

    fn recorders(&self, mode: &str, limits: WorkerLimits) -> Lowering {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/recorder.py");
        let (registry, log) = (self.path("registry"), self.path("log"));
        let command = format!("{} {} {} {} {mode}", python3(), script.display(), registry.display(), log.display());
        let exe = Path::new(env!("CARGO_BIN_EXE_autotune-lowered"));
        Lowering::new(Recorders::new(exe, &command, NonZeroUsize::new(2).unwrap(), limits))
    }

    /// The configs that were asked for so far, the baseline each time that it was.
    fn asked(&self) -> Vec<Config> {
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn tune(&self, lowering: Option<&Lowering>) -> OperationResult {
        self.tune_into(&Ledger::in_memory(Vec::new()), lowering)
    }

    fn tune_into(&self, ledger: &Ledger, lowering: Option<&Lowering>) -> OperationResult {
        self.tune_until(&AtomicBool::new(false), ledger, lowering)
    }

    fn tune_until(&self, cancel: &AtomicBool, ledger: &Ledger, lowering: Option<&Lowering>) -> OperationResult {
        let registry = self.registry();
        let mut plan: TuningPlan = scripted::planned([&registry.invocations()[0]]);
        if lowering.is_none() {
            plan.leave_open();
            assert!(
                plan.notes[0].contains("name the command that recorded them with `--recorder`"),
                "{:?}",
                plan.notes
            );
        }
        let mut timer = FormulaTimer::new(bowl);
        timer.info.device = scripted::device();
        timer.info.can.build_programs = false;
        let budget = Budget::default().evaluations(Some(EVALUATIONS));
        let search = SearchOptions::default().kind(StrategyKind::Auto).budget(budget);
        let options = TuneOptions::default().search(search);
        let session = Session::new(&registry, ledger, &mut timer).options(options).lowering(lowering);
        session.cancel(cancel).run(&plan).unwrap().operations.remove(0)
    }

    /// Tunes, and is ended when this holds; says how long it took.
    fn tune_and_end(&self, lowering: &Lowering, is_time: impl Fn() -> bool + Sync) -> (OperationResult, Duration) {
        let (cancel, begin) = (AtomicBool::new(false), Instant::now());
        let operation = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_time() {
                    thread::sleep(Duration::from_millis(5));
                }
                cancel.store(true, Ordering::Relaxed);
            });
            self.tune_until(&cancel, &Ledger::in_memory(Vec::new()), Some(lowering))
        });
        (operation, begin.elapsed())
    }
}

fn best(operation: &OperationResult) -> &Config {
    &operation.best.as_ref().unwrap_or_else(|| panic!("{operation:?}")).config
}

#[test]
fn of_a_large_space_only_what_the_search_visits_is_lowered() {
    let recorded = Recorded::large();
    let operation = recorded.tune(Some(&recorded.recorders("", WorkerLimits::default())));
    let asked = recorded.asked().len();
    // lowering them all takes as long as 400 of them do: the goal is a fifth
    assert!(asked <= EVALUATIONS + 1 && asked * 5 <= 400, "{asked} of 400 were lowered");
    let found = bowl(best(&operation));
    assert!(found <= 1_030_000, "{found}: {}", best(&operation));
    let kept = recorded.invocation();
    let lowered = kept.candidates.iter().filter(|candidate| candidate.program.is_some()).count();
    assert_eq!((kept.candidates.len(), lowered), (400, asked), "all, with the baseline's, are in the record");
    // another run lowers nothing again, and does not even start a recorder
    let again = recorded.tune(Some(&recorded.recorders("ending", WorkerLimits::default())));
    assert_eq!((again.status, best(&again), recorded.asked().len()), (Status::Tuned, best(&operation), asked));
}

#[test]
fn a_small_space_is_lowered_and_raced_as_a_whole() {
    let recorded = Recorded::new((0..12).map(|q| config(q, 6)));
    let operation = recorded.tune(Some(&recorded.recorders("", WorkerLimits::default())));
    assert_eq!((best(&operation), recorded.asked().len()), (&config(11, 6), 12));
    assert!(operation.search.is_none());
}

#[test]
fn what_a_kernel_refuses_is_a_result_with_its_message_and_stays_one() {
    let recorded = Recorded::large();
    let lowering = recorded.recorders("refusing", WorkerLimits::default());
    let operation = recorded.tune(Some(&lowering));
    let search = operation.search.as_ref().unwrap();
    assert!(search.failed > 0 && search.failed < search.evaluations, "{search:?}");
    assert_eq!(number(best(&operation), "kv") % 2, 0);
    let refused = |one: &&Candidate| one.not_lowered.as_deref() == Some("ValueError: kv is odd");
    assert_eq!(recorded.invocation().candidates.iter().filter(refused).count(), search.failed);
}

#[test]
fn a_candidate_that_ends_two_recorders_is_blamed_and_the_others_are_lowered() {
    let recorded = Recorded::new((0..6).map(|q| config(q, 6)));
    let operation = recorded.tune(Some(&recorded.recorders("dying", WorkerLimits::default())));
    assert_eq!(best(&operation), &config(5, 6));
    let invocation = recorded.invocation();
    let of_three = &invocation.candidates[3];
    let said = serde_json::to_string(&operation).unwrap();
    assert!(said.contains("it ended two recorders: the worker ended with exit code 11"), "{said}");
    // anybody may have sent a signal, so the record does not hold it against the candidate
    assert!(of_three.is_open(), "{of_three:?}");
    assert_eq!(invocation.candidates.iter().filter(|one| one.program.is_some()).count(), 5);
}

#[test]
fn what_says_nothing_about_a_candidate_is_told_and_decides_nothing() {
    let short = WorkerLimits::default().compile(Duration::from_millis(300));
    for (mode, limits, words) in [
        ("silent", short, "no answer to `lower` within 300ms"),
        ("changed", WorkerLimits::default(), "makes another program of the baseline than was recorded: record again"),
        ("other", WorkerLimits::default(), "recorded by tests, and the recorder is others: record again"),
        ("ending", WorkerLimits::default(), "no recorder: the worker ended with exit code 1"),
    ] {
        // a race of all, and a search
        for recorded in [Recorded::new((0..3).map(|q| config(q, 6))), Recorded::large()] {
            let ledger = Ledger::in_memory(Vec::new());
            let wrong = recorded.recorders(mode, limits.clone());
            let operation = recorded.tune_into(&ledger, Some(&wrong));
            assert!(operation.reason.contains(words), "{mode}: {operation:?}");
            assert_eq!((operation.status, operation.best.is_none()), (Status::Failed, true), "{mode}");
            let all = recorded.invocation().candidates.len();
            let open = recorded.invocation().candidates.iter().filter(|one| one.is_open()).count();
            assert_eq!(open, all - 1, "{mode}");
            // the same cache with the right recorder
            let operation = recorded.tune_into(&ledger, Some(&recorded.recorders("", WorkerLimits::default())));
            assert_eq!(operation.status, Status::Tuned, "{mode}: {operation:?}");
        }
    }
}

/// Nobody waits for a recorder that hangs after the user ended the run. Its own limits are an hour here.
#[test]
fn a_recorder_that_hangs_is_not_waited_for_and_what_was_lowered_is_kept() {
    let hour = Duration::from_secs(3600);
    let patient = || WorkerLimits::default().start(hour).compile(hour);
    let recorded = Recorded::new((0..6).map(|q| config(q, 6)));
    let lowering = recorded.recorders("hanging-3", patient());
    // one of two recorders hangs, and the other one answers the rest
    let (operation, took) = recorded.tune_and_end(&lowering, || recorded.asked().len() == 6);
    assert_eq!(operation.status, Status::Interrupted, "{operation:?}");
    assert!(took < Duration::from_secs(600), "{took:?}");
    let kept = recorded.invocation();
    assert!(kept.candidates[3].is_open() && kept.candidates[..3].iter().all(|one| one.program.is_some()), "{kept:?}");
    let before = kept.candidates.iter().filter(|one| one.is_open()).count();
    // the next run lowers the rest, and asks for the baseline to compare it
    let operation = recorded.tune(Some(&recorded.recorders("", WorkerLimits::default())));
    assert_eq!((best(&operation), recorded.asked().len()), (&config(5, 6), 6 + 1 + before));
    // one that hangs at the baseline, and one that does not even start, before a race and before a search
    for mode in ["silent", "mute"] {
        for recorded in [Recorded::new((0..3).map(|q| config(q, 6))), Recorded::large()] {
            let lowering = recorded.recorders(mode, patient());
            let (operation, took) = recorded.tune_and_end(&lowering, || recorded.path("log.processes").exists());
            assert_eq!((operation.status, operation.failure), (Status::Interrupted, None), "{mode}");
            assert!(took < Duration::from_secs(600), "{mode}: {took:?}");
            let open = recorded.invocation().candidates.iter().filter(|one| one.is_open()).count();
            assert_eq!(open, recorded.invocation().candidates.len() - 1, "{mode}");
        }
    }
}

/// Its limit follows what the others took; here it rests on two seconds.
#[test]
fn a_candidate_that_hangs_costs_itself_alone_once_others_were_lowered() {
    let recorded = Recorded::new((0..10).map(|q| config(q, 6)));
    let times = CompileTimes::resting_on(Duration::from_secs(2));
    let limits = WorkerLimits::default().compile_times(Some(times)).compile(Duration::from_secs(3600));
    let operation = recorded.tune(Some(&recorded.recorders("hanging-7", limits)));
    assert_eq!(best(&operation), &config(9, 6));
    let hung = operation.candidates.iter().find(|one| one.config == config(7, 6)).unwrap();
    let said = serde_json::to_string(hung).unwrap();
    assert!(said.contains("no answer to `lower` within ") && said.contains("the time limit of a candidate"), "{said}");
    let open: Vec<Config> =
        recorded.invocation().candidates.iter().filter(|one| one.is_open()).map(|one| one.config.clone()).collect();
    assert_eq!(open, [config(7, 6)], "a busy machine may have been the reason");
}

#[test]
fn a_recording_that_no_recorder_comes_to_fails_its_calls_alone() {
    let recorded = Recorded::new((0..3).map(|q| config(q, 6)));
    let mut registry = recorded.registry();
    let first = Arc::clone(&registry.invocations()[0]);
    let mut second = Invocation::clone(&first);
    second.call.call_key = "fedcba9876543210".into();
    second.static_arguments.insert("lowered_by_recording".into(), json!(2));
    registry.add(&second).unwrap();
    for (mode, status) in [("first", Status::Failed), ("", Status::Tuned)] {
        let (ledger, lowering) = (Ledger::in_memory(Vec::new()), recorded.recorders(mode, WorkerLimits::default()));
        let registry = recorded.registry();
        // the later recording comes first
        let mut calls: Vec<&Arc<Invocation>> = registry.invocations().iter().collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.lowering_recording()));
        let mut timer = FormulaTimer::new(bowl);
        timer.info.device = scripted::device();
        let mut session = Session::new(&registry, &ledger, &mut timer).lowering(Some(&lowering));
        let operations = session.run(&scripted::planned(calls)).unwrap().operations;
        assert_eq!([operations[0].status, operations[1].status], [status, Status::Tuned], "{mode}: {operations:?}");
        let told = "exit code 0 during `hello`, before the end of its recording 2 on demand, which has the call";
        assert_eq!(operations[0].reason.contains(told), mode == "first", "{}", operations[0].reason);
    }
}

#[test]
fn without_a_recorder_they_are_left_out() {
    let operation = Recorded::large().tune(None);
    assert_eq!((operation.candidates.len(), operation.status), (1, Status::BaselineKept), "{operation:?}");
}
