//! One set of compiler options for all modules of a process, on the simulated compiler.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::AtomicBool;

use autotune_lowered::candidates::{OptionClass, OptionSpace};
use autotune_lowered::compiler_options::{OptionModule, SharedModule, SharedOptions, tune_shared_options};
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measure::MeasuredProgram;
use autotune_lowered::race::{RaceOptions, Runner};
use autotune_lowered::timer::events::Events;
use autotune_lowered::tune::Status;

use super::compiler_options::{
    Compiler, LEVEL, Outcome, Overrides, WIDE, best, has, takes, tune, wide_crashes, wide_halves,
};

/// A module of a process, and its behaviour.
pub(super) type Shape = (&'static str, fn(&Overrides, u32) -> Outcome);

pub(super) fn process(shapes: &[Shape]) -> (Compiler, Vec<SharedModule>) {
    let mut timer = Compiler::new(|_, _| takes(1.0));
    let modules = shapes.iter().map(|(name, of)| {
        let program = MeasuredProgram::of_text(&format!("module @{name} {{}}"));
        timer.others.insert(program.digest(), *of);
        let choices = OptionSpace::built_in("cpu").unwrap().choices(OptionClass::Safe);
        SharedModule::new(*name, OptionModule::new(program, Ok(Digest::of(name.as_bytes())), choices))
    });
    let modules = modules.collect();
    (timer, modules)
}

pub(super) fn share(timer: &mut Compiler, ledger: &Ledger, modules: &[SharedModule]) -> SharedOptions {
    let options = RaceOptions::default();
    let (never, events) = (AtomicBool::new(false), Events::default());
    tune_shared_options(&mut Runner::new(timer, ledger, &never, &events), modules, &options).unwrap()
}

fn wide_hurts_and_the_level_helps(options: &Overrides, _copy: u32) -> Outcome {
    takes(if has(options, WIDE) { 1.3 } else { 1.0 } * if has(options, LEVEL) { 0.8 } else { 1.0 })
}

#[test]
fn one_set_for_a_process_loses_on_no_module() {
    let (mut timer, modules) = process(&[("f", wide_halves), ("g", wide_hurts_and_the_level_helps)]);
    let ledger = Ledger::in_memory(vec![]);
    let shared = share(&mut timer, &ledger, &modules);
    let level = r#"{"xla_backend_optimization_level":1}"#;
    assert_eq!(shared.set.map(|set| set.to_config().as_str().to_owned()).as_deref(), Some(level), "{}", shared.reason);
    let found: Vec<_> = shared.operations.iter().map(|one| (one.how.as_str(), one.status, best(one))).collect();
    assert_eq!(found, [("f", Status::Tuned, level.to_owned()), ("g", Status::Tuned, level.to_owned())]);
    let speed_up = |index: usize| shared.operations[index].speed_up.unwrap();
    assert!((speed_up(0) - 1.0).abs() < 0.02 && (speed_up(1) - 1.25).abs() < 0.02, "1 and 1 / 0.8");
    assert_eq!(shared.entries.len(), 2);
    assert_eq!(shared.entries[1].0.call.call_key, Digest::of(b"g").to_string());

    // both took part in several races each
    assert!(shared.operations.iter().all(|one| one.rounds_measured > 21 && one.time_breakdown.total().as_nanos() > 0));
    let compiled = timer.compiled;
    let again = share(&mut timer, &ledger, &modules);
    assert!(again.operations.iter().all(|one| one.status == Status::Cached && best(one) == level));
    assert_eq!(
        (again.set.map(|set| set.to_config().as_str().to_owned()).as_deref(), timer.compiled),
        (Some(level), compiled)
    );
}

#[test]
fn what_won_on_one_module_is_tried_first_on_the_next() {
    let (mut timer, modules) = process(&[("f", wide_halves), ("g", wide_halves), ("h", wide_halves)]);
    let alone = {
        let mut timer = Compiler::new(wide_halves);
        tune(&mut timer, &Ledger::in_memory(vec![]), &modules[0].module, &RaceOptions::default());
        timer.compiled
    };
    let shared = share(&mut timer, &Ledger::in_memory(vec![]), &modules);
    assert_eq!(shared.set.unwrap().to_string(), "xla_cpu_prefer_vector_width=512");
    // for each module the base, its copy and the set, at most once per look; for two also when the set is first tried
    assert!(timer.compiled <= alone + 3 * (3 * 4 + 2), "{} against {alone} for one alone", timer.compiled);
}

#[test]
fn where_every_set_loses_somewhere_the_base_stays_and_names_are_told() {
    let (mut timer, modules) = process(&[("f", wide_halves), ("g", wide_crashes)]);
    let shared = share(&mut timer, &Ledger::in_memory(vec![]), &modules);
    assert_eq!((shared.set, shared.operations[0].status), (None, Status::BaselineKept));
    assert!(shared.reason.contains("or not known not to be, on `g`"), "{}", shared.reason);
    assert_eq!(best(&shared.operations[0]), "{}");
    // a module whose default does not run is a failed row, and the others get their set
    let never = |_: &Overrides, _: u32| {
        let why = Failure::new(FailureKind::Compile, "no code for it");
        Outcome { fails: Some(("compile", why)), ..takes(1.0) }
    };
    let differs = |_: &Overrides, copy: u32| Outcome { output: copy as f32, ..takes(1.0) };
    let (mut timer, modules) =
        process(&[("never", never), ("f", wide_halves), ("differs", differs), ("g", wide_halves)]);
    let ledger = Ledger::in_memory(vec![]);
    let shared = share(&mut timer, &ledger, &modules);
    assert_eq!(shared.set.as_ref().unwrap().to_string(), "xla_cpu_prefer_vector_width=512", "{}", shared.reason);
    let seen: Vec<_> = shared.operations.iter().map(|one| (one.how.as_str(), one.status)).collect();
    let (tuned, failed) = (Status::Tuned, Status::Failed);
    assert_eq!(seen, [("never", failed), ("f", tuned), ("differs", failed), ("g", tuned)]);
    let kinds: Vec<_> = shared.operations.iter().filter_map(|one| Some(one.failure.as_ref()?.kind.clone())).collect();
    assert_eq!(kinds, [FailureKind::Compile, FailureKind::WrongOutput]);
    assert!(shared.operations[2].reason.contains("nondeterministic"), "{}", shared.operations[2].reason);
    assert!(shared.reason.contains("without `never`, `differs`"), "{}", shared.reason);
    let keys: Vec<_> = shared.entries.iter().map(|(key, _)| key.call.call_key.clone()).collect();
    assert_eq!(keys, ["f", "g"].map(|name| Digest::of(name.as_bytes()).to_string()));
    // if none runs, there is nothing to decide
    let (mut timer, modules) = process(&[("never", never)]);
    let shared = share(&mut timer, &Ledger::in_memory(vec![]), &modules);
    assert_eq!((shared.set, shared.operations[0].status, shared.entries.len()), (None, Status::Failed, 0));
    // a result without a winner is also known afterwards
    let (mut timer, modules) = process(&[("f", |_, _| takes(1.0))]);
    let ledger = Ledger::in_memory(vec![]);
    let none = share(&mut timer, &ledger, &modules);
    assert_eq!(
        (none.operations[0].status, none.reason.as_str()),
        (Status::BaselineKept, "no module has options that are faster")
    );
    assert_eq!(share(&mut timer, &ledger, &modules).operations[0].status, Status::Cached);
}

/// A second run reports it at once, and `--force` finds that it runs meanwhile.
#[test]
fn a_module_of_a_process_that_does_not_run_is_remembered() {
    let never = |_: &Overrides, _: u32| {
        let why = Failure::new(FailureKind::Compile, "no code for it");
        Outcome { fails: Some(("compile", why)), ..takes(1.0) }
    };
    let folder = tempfile::tempdir().unwrap();
    let statuses = |found: &SharedOptions| found.operations.iter().map(|one| one.status).collect::<Vec<_>>();
    for (shapes, cached) in [
        (
            vec![("never", never as fn(&Overrides, u32) -> Outcome), ("f", wide_halves)],
            vec![Status::Failed, Status::Cached],
        ),
        (vec![("never", never)], vec![Status::Failed]),
    ] {
        let cache = folder.path().join(shapes.len().to_string());
        let (mut timer, modules) = process(&shapes);
        let first = share(&mut timer, &Ledger::open(&cache, vec![]).unwrap(), &modules);
        assert_eq!(first.operations[0].status, Status::Failed);
        let (mut timer, _) = process(&shapes);
        timer.of = |_, _| panic!("nothing is to be compiled");
        timer.others.clear();
        let ledger = Ledger::open(&cache, vec![]).unwrap();
        let again = share(&mut timer, &ledger, &modules);
        assert_eq!((statuses(&again), again.entries.len()), (cached, shapes.len() - 1));
        assert_eq!(again.operations[0].failure, first.operations[0].failure);
        assert!(again.operations[0].reason.ends_with("already known (`--force` tries it again)"), "{again:?}");
        assert!(again.reason.ends_with("; without `never`, which does not run as it is"), "{}", again.reason);
        assert_eq!(again.set, first.set);
        // meanwhile it runs
        let (mut timer, _) = process(&shapes);
        timer.others.clear();
        let (forced, usual) = (RaceOptions::default().force(true), RaceOptions::default());
        for (options, status) in [(forced, Status::BaselineKept), (usual, Status::Cached)] {
            let (never, events) = (AtomicBool::new(false), Events::default());
            let mut runner = Runner::new(&mut timer, &ledger, &never, &events);
            let found = tune_shared_options(&mut runner, &modules, &options).unwrap();
            assert_eq!(found.operations[0].status, status, "{}", found.reason);
        }
    }
}
