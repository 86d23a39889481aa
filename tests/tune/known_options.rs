//! What a search of compiler options keeps, on the simulated compiler: what is known, under which conditions, and what
//! is tried if nothing runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use autotune_lowered::digest::Digest;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::gate::{CheckOptions, CheckVerdict, CheckedModule, check_compiler_options};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measure::{InputOptions, MeasuredProgram};
use autotune_lowered::measured_by::CacheState;
use autotune_lowered::race::{RaceOptions, Runner};
use autotune_lowered::timer::events::Events;
use autotune_lowered::tune::{OperationResult, Status};

use super::compiler_options::{
    Compiler, LEVEL, Outcome, Overrides, WIDE, best, has, module, takes, tune, two_that_add_up, wide_crashes,
    wide_halves,
};

/// A compiler that must not be used.
fn asks_nothing() -> Compiler {
    Compiler::new(|_, _| panic!("nothing is to be compiled"))
}

fn fails_at(place: &'static str, kind: FailureKind) -> Outcome {
    Outcome { fails: Some((place, Failure::new(kind, "the worker died"))), ..takes(1.0) }
}

fn says(operation: &OperationResult, text: &str) -> bool {
    operation.flags.iter().any(|flag| flag.contains(text))
}

#[test]
fn an_entry_counts_under_the_conditions_that_it_was_found_under() {
    let ledger = Ledger::in_memory(vec![]);
    let mut timer = Compiler::new(two_that_add_up);
    timer.info.device.environment.plugin = Some("p.so".to_owned());
    let warm = RaceOptions::default();
    let cold = warm.clone().cache_state(CacheState::Cold);
    let twice = |timer: &mut Compiler, options: &RaceOptions| {
        [(); 2].map(|()| tune(timer, &ledger, &module(), options).operation.status)
    };
    assert_eq!(twice(&mut timer, &warm), [Status::Tuned, Status::Cached]);
    assert_eq!(twice(&mut timer, &cold), [Status::Tuned, Status::Cached]);
    timer.info.device.environment.xla_flags = vec!["--xla_cpu_max_isa=AVX2".to_owned()];
    assert_eq!(twice(&mut timer, &cold), [Status::Tuned, Status::Cached]);
    // conditions without an effect on the code do not count
    timer.info.device.environment.driver = Some("1".to_owned());
    assert_eq!(twice(&mut timer, &cold), [Status::Cached; 2]);
}

#[test]
fn another_program_of_the_same_digest_is_measured_and_said() {
    let ledger = Ledger::in_memory(vec![]);
    let mut timer = Compiler::new(two_that_add_up);
    let first = module();
    tune(&mut timer, &ledger, &first, &RaceOptions::default());
    let mut second = module();
    second.program = MeasuredProgram::of_text("module @m { func.func @other() { return } }");
    let found = tune(&mut timer, &ledger, &second, &RaceOptions::default()).operation;
    assert_eq!(found.status, Status::Tuned);
    assert!(says(&found, "found with another program of the same StableHLO digest"), "{:?}", found.flags);
    let again = tune(&mut asks_nothing(), &ledger, &second, &RaceOptions::default()).operation;
    assert_eq!((again.status, again.flags), (Status::Cached, Vec::new()));
    // a check of the first one's entry is informed, too
    let checked = CheckedModule::new(first.program.clone(), first.key.clone().unwrap());
    let (options, asked) = (RaceOptions::default(), CheckOptions::default());
    let (never, events) = (AtomicBool::new(false), Events::default());
    let mut runner = Runner::new(&mut timer, &ledger, &never, &events);
    let found = check_compiler_options(&mut runner, &checked, (&options, asked), 1);
    let stale = found.unwrap().unwrap().stale;
    assert!(stale.iter().any(|line| line.contains("another program")), "{stale:?}");
}

#[test]
fn an_entry_with_what_is_on_no_list_is_refused() {
    let ledger = Ledger::in_memory(vec![]);
    let mut timer = Compiler::new(two_that_add_up);
    let (key, entry) = tune(&mut timer, &ledger, &module(), &RaceOptions::default()).entry.unwrap();
    let mut forged = (*entry).clone();
    forged.config = serde_json::from_str(r#"{"xla_dump_to":"/x"}"#).unwrap();
    ledger.cache().put(&key, &Arc::new(forged)).unwrap();
    let module = module();
    let checked = CheckedModule::new(module.program.clone(), module.key.clone().unwrap());
    let (options, asked) = (RaceOptions::default(), CheckOptions::default());
    let (never, events) = (AtomicBool::new(false), Events::default());
    let mut asked_nothing = asks_nothing();
    let mut runner = Runner::new(&mut asked_nothing, &ledger, &never, &events);
    let found = check_compiler_options(&mut runner, &checked, (&options, asked), 1);
    let found = found.unwrap().unwrap();
    assert_eq!(found.verdict, CheckVerdict::Broken);
    let expected = format!("the entry of `{}` sets `xla_dump_to` to `/x`, which is on no list", key.call);
    assert!(found.reason.starts_with(&expected), "{}", found.reason);
    let found = tune(&mut timer, &ledger, &module, &RaceOptions::default()).operation;
    assert_eq!((found.status, best(&found)), (Status::Tuned, entry.config.as_str().to_owned()));
    assert!(says(&found, "is not used: it sets `xla_dump_to` to `/x`, which is on no list"), "{:?}", found.flags);
}

#[test]
fn a_default_that_does_not_run_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| Ledger::open(&folder.path().join(name), vec![]).unwrap();
    let usual = RaceOptions::default();
    // if nothing runs
    let first = tune(&mut Compiler::new(|_, _| fails_at("compile", FailureKind::Crash)), &open("a"), &module(), &usual);
    assert_eq!(first.operation.status, Status::Failed);
    assert!(first.operation.reason.ends_with("other sets tried, and none of them runs"), "{}", first.operation.reason);
    let ledger = open("a");
    let again = tune(&mut asks_nothing(), &ledger, &module(), &usual).operation;
    assert_eq!((again.status, &again.failure), (Status::Failed, &first.operation.failure));
    assert!(again.reason.ends_with("already known (`--force` tries it again)"), "{}", again.reason);
    // other inputs are another question
    let mut other = module();
    other.inputs = InputOptions::default().seed(1);
    assert_eq!(tune(&mut Compiler::new(two_that_add_up), &ledger, &other, &usual).operation.status, Status::Tuned);
    // meanwhile it runs
    let forced = tune(&mut Compiler::new(two_that_add_up), &ledger, &module(), &usual.clone().force(true)).operation;
    assert_eq!(forced.status, Status::Tuned);
    assert_eq!(tune(&mut asks_nothing(), &ledger, &module(), &usual).operation.status, Status::Cached);
    // if another set runs: one that crashes during compilation is not compiled again
    let rescued = |options: &Overrides, _: u32| match has(options, LEVEL) {
        true => takes(1.0),
        false => fails_at("compile", FailureKind::Crash),
    };
    let first = tune(&mut Compiler::new(rescued), &open("b"), &module(), &usual).operation;
    assert_eq!((first.status, best(&first).as_str()), (Status::Tuned, r#"{"xla_backend_optimization_level":1}"#));
    let again = tune(&mut asks_nothing(), &open("b"), &module(), &usual).operation;
    assert_eq!((again.status, best(&again)), (Status::Cached, best(&first)));
}

#[test]
fn what_may_end_otherwise_next_time_is_not_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), vec![]).unwrap();
    for kind in [FailureKind::Timeout, FailureKind::Memory] {
        let mut timer = Compiler::new(|_, _| fails_at("compile", FailureKind::Timeout));
        if kind == FailureKind::Memory {
            timer = Compiler::new(|_, _| fails_at("compile", FailureKind::Memory));
        }
        let found = tune(&mut timer, &ledger, &module(), &RaceOptions::default()).operation;
        assert_eq!(found.failure.unwrap().kind, kind);
    }
    let by_now = tune(&mut Compiler::new(two_that_add_up), &ledger, &module(), &RaceOptions::default()).operation;
    assert_eq!(by_now.status, Status::Tuned, "{}", by_now.reason);
}

#[test]
fn a_rescue_ends_with_the_time_with_the_user_and_with_the_third_set_that_hangs() {
    let search = |timer: &mut Compiler, budget| {
        let options = RaceOptions::default().budget(budget);
        tune(timer, &Ledger::in_memory(vec![]), &module(), &options).operation
    };
    let mut late = Compiler::new(|_, _| fails_at("compile", FailureKind::Crash));
    let found = search(&mut late, Some(Duration::ZERO));
    assert_eq!((late.asked, found.status), (1, Status::Failed));
    assert!(found.reason.ends_with("the time was used up before one ran"), "{}", found.reason);

    let mut ended = Compiler::new(|_, _| fails_at("compile", FailureKind::Crash));
    ended.ends_after = 2;
    assert_eq!((search(&mut ended, None).status, ended.asked), (Status::Interrupted, 2));

    for (hangs, asked) in [
        (Compiler::new(|_, _| fails_at("compile", FailureKind::Timeout)), 3),
        // it hangs when run, and its signature is known before that
        (Compiler::new(|_, _| fails_at("run", FailureKind::Timeout)), 1),
    ] {
        let mut hangs = hangs;
        let found = search(&mut hangs, None);
        assert_eq!(hangs.asked, asked);
        assert!(found.reason.ends_with("2 other sets tried, and others hang, too"), "{}", found.reason);
    }
}

#[test]
fn outputs_that_are_not_finite_decide_nothing() {
    let of_nan: fn(&Overrides, u32) -> Outcome = |_, _| Outcome { output: f32::NAN, ..takes(1.0) };
    let ledger = Ledger::in_memory(vec![]);
    let found = tune(&mut Compiler::new(of_nan), &ledger, &module(), &RaceOptions::default());
    let operation = found.operation;
    assert_eq!((operation.status, operation.best, found.entry), (Status::Failed, None, None));
    assert_eq!(operation.failure.unwrap().kind, FailureKind::NotFinite);
    for said in ["output 0 of the baseline, `f32[4]`, has 4 of 4 elements", "`--inputs DIR`", "`--fill ARGUMENT="] {
        assert!(operation.reason.contains(said), "{}", operation.reason);
    }
}

#[test]
fn a_search_that_was_ended_measures_only_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| Ledger::open(&folder.path().join(name), vec![]).unwrap();
    let options = RaceOptions::default();
    let mut whole = Compiler::new(two_that_add_up);
    let expected = tune(&mut whole, &open("whole"), &module(), &options).operation;
    // two thirds of the way: the choices alone and the first pairs were raced
    let mut first = Compiler::new(two_that_add_up);
    first.ends_after = whole.asked + whole.measured * 2 / 3;
    let ended = tune(&mut first, &open("parts"), &module(), &options).operation;
    assert_eq!((ended.status, ended.best), (Status::Interrupted, None));
    let mut rest = Compiler::new(two_that_add_up);
    let found = tune(&mut rest, &open("parts"), &module(), &options).operation;
    assert_eq!((found.status, best(&found)), (Status::Tuned, best(&expected)));
    assert!(rest.measured < whole.measured / 2, "{} of {}", rest.measured, whole.measured);
}

#[test]
fn cached_options_are_checked_against_what_they_were_decided_against() {
    let ledger = Ledger::in_memory(vec![]);
    let module = module();
    tune(&mut Compiler::new(wide_halves), &ledger, &module, &RaceOptions::default());
    let checked = CheckedModule::new(module.program.clone(), module.key.clone().unwrap());
    let verdict = |of: fn(&Overrides, u32) -> Outcome| {
        let (options, asked) = (RaceOptions::default(), CheckOptions::default());
        let (never, events) = (AtomicBool::new(false), Events::default());
        let mut timer = Compiler::new(of);
        let mut runner = Runner::new(&mut timer, &ledger, &never, &events);
        let found = check_compiler_options(&mut runner, &checked, (&options, asked), 1);
        let found = found.unwrap().unwrap();
        assert_eq!(found.entry.as_ref().unwrap().config.as_str(), r#"{"xla_cpu_prefer_vector_width":512}"#);
        (found.verdict, found.ratio.map(|ratio| (ratio * 10.0).round() / 10.0))
    };
    assert_eq!(verdict(wide_halves), (CheckVerdict::Holds, Some(0.5)));
    assert_eq!(
        verdict(|options, _| takes(if has(options, WIDE) { 0.8 } else { 1.0 })),
        (CheckVerdict::Regressed, Some(0.8))
    );
    assert_eq!(
        verdict(|options, _| takes(if has(options, WIDE) { 1.2 } else { 1.0 })),
        (CheckVerdict::NotBetter, Some(1.2))
    );
    assert_eq!(verdict(wide_crashes), (CheckVerdict::Broken, None));
    let other = CheckedModule::new(module.program.clone(), Digest::of(b"other"));
    let (options, asked) = (RaceOptions::default(), CheckOptions::default());
    let (never, events) = (AtomicBool::new(false), Events::default());
    let mut timer = Compiler::new(wide_halves);
    let mut runner = Runner::new(&mut timer, &ledger, &never, &events);
    let none = check_compiler_options(&mut runner, &other, (&options, asked), 1);
    assert!(none.unwrap().is_none());
}
