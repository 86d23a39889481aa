//! Options of a process, on the simulated compiler: workers are started with them, and their programs are measured in
//! another process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use autotune_lowered::candidates::OptionScope;
use autotune_lowered::compiler_options::OptionModule;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::race::RaceOptions;
use autotune_lowered::tune::{CandidateStatus, OperationResult, Status};

use super::compiler_options::{Compiler, LEVEL, Outcome, Overrides, best, has, module, takes, tune};
use super::shared_options::{process, share};

/// The dashes mean that it came from the flags of the compiling process.
const AVX2: (&str, &str) = ("--xla_cpu_max_isa", "AVX2");

/// The usual programs, and other code with `AVX2` in the process's flags; it is never given as an option of one
/// program.
fn avx2_helps(options: &Overrides, _copy: u32) -> Outcome {
    assert!(!options.contains_key("xla_cpu_max_isa"), "not of one compilation");
    takes(if has(options, AVX2) { 0.5 } else { 1.0 } * if has(options, LEVEL) { 0.8 } else { 1.0 })
}

fn entries(ledger: &Ledger) -> usize {
    ledger.cache().entries().unwrap().len()
}

/// Whether the screening's note reports one refused value.
fn refused(operation: &OperationResult) -> bool {
    operation.flags.iter().any(|flag| flag.contains(": 1 refused, 0 failed"))
}

#[test]
fn one_that_wins_is_a_flag_of_the_process_and_no_entry() {
    let (mut timer, modules) = process(&[("f", avx2_helps), ("g", avx2_helps)]);
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), vec![]).unwrap();
    let shared = share(&mut timer, &ledger, &modules);
    // 1 / (0.5 * 0.8)
    let both = "xla_backend_optimization_level=1 xla_cpu_max_isa=AVX2";
    assert_eq!(shared.set.as_ref().unwrap().to_string(), both, "{}", shared.reason);
    for operation in &shared.operations {
        assert_eq!(operation.status, Status::Tuned);
        assert!((operation.speed_up.unwrap() - 2.5).abs() < 0.05, "{:?}", operation.speed_up);
        let said = "not in the cache: `xla_cpu_max_isa` acts on a process";
        assert!(operation.flags.iter().any(|flag| flag.starts_with(said)), "{:?}", operation.flags);
    }
    assert_eq!((shared.entries.len(), entries(&ledger)), (0, 0));
    // the next run finds no entry, but this one's samples
    let measured = timer.measured;
    let again = share(&mut timer, &ledger, &modules);
    assert_eq!(again.set, shared.set);
    assert!(timer.measured - measured < measured / 4, "{measured}, then {}", timer.measured - measured);

    // if only options of single programs win, there are entries
    let wins_alone: fn(&Overrides, u32) -> Outcome = |options, _| takes(if has(options, LEVEL) { 0.5 } else { 1.0 });
    let (mut timer, modules) = process(&[("f", wins_alone)]);
    let shared = share(&mut timer, &ledger, &modules);
    assert_eq!(
        (shared.entries.len(), best(&shared.operations[0])),
        (1, r#"{"xla_backend_optimization_level":1}"#.into())
    );
}

#[test]
fn a_set_with_one_is_no_entry_of_a_module_either() {
    let ledger = Ledger::in_memory(vec![]);
    let found = tune(&mut Compiler::new(avx2_helps), &ledger, &module(), &RaceOptions::default());
    assert_eq!(found.operation.status, Status::Tuned, "{}", found.operation.reason);
    assert_eq!(best(&found.operation), r#"{"xla_backend_optimization_level":1,"xla_cpu_max_isa":"AVX2"}"#);
    assert_eq!((found.entry, entries(&ledger)), (None, 0));
}

/// The same setting for one process and for one program is a different question.
#[test]
fn what_acts_only_at_run_time_is_merged_and_what_kills_a_worker_is_refused() {
    let only = |name: &str, scope| {
        let mut module = module();
        module.choices.retain(|choice| choice.name == name);
        module.choices.iter_mut().for_each(|choice| choice.scope = scope);
        module
    };
    let tuned = |of, module: &OptionModule| {
        tune(&mut Compiler::new(of), &Ledger::in_memory(vec![]), module, &RaceOptions::default()).operation
    };
    // other code as an option of one program, and none as a flag: the measuring process does not have the flag
    let slow: fn(&Overrides, u32) -> Outcome =
        |options, _| takes(if options.contains_key("xla_llvm_disable_expensive_passes") { 2.0 } else { 1.0 });
    let row = |scope| {
        let operation = tuned(slow, &only("xla_llvm_disable_expensive_passes", scope));
        assert_eq!(operation.status, Status::BaselineKept);
        let row = operation.candidates.iter().find(|row| !row.config.as_map().is_empty()).unwrap();
        row.status()
    };
    assert_eq!(row(OptionScope::Process), CandidateStatus::SameProgram);
    assert_ne!(row(OptionScope::Compile), CandidateStatus::SameProgram);

    let dies: fn(&Overrides, u32) -> Outcome = |options, _| {
        let words = "this plugin does not accept `--xla_cpu_max_isa=AVX2` in XLA_FLAGS";
        let fails = has(options, AVX2).then(|| ("compile", Failure::new(FailureKind::Compile, words)));
        Outcome { fails, ..takes(1.0) }
    };
    let operation = tuned(dies, &only("xla_cpu_max_isa", OptionScope::Process));
    assert_eq!(operation.status, Status::BaselineKept);
    assert!(refused(&operation), "{:?}", operation.flags);
    let cannot_go: fn(&Overrides, u32) -> Outcome = |options, _| {
        let why = Failure::new(FailureKind::Compile, "the plugin does not serialize this executable");
        Outcome { fails: has(options, AVX2).then_some(("compile", why)), ..takes(1.0) }
    };
    let operation = tuned(cannot_go, &only("xla_cpu_max_isa", OptionScope::Process));
    let failed = operation.candidates.iter().find_map(|row| row.failure()).unwrap();
    assert!(failed.message.contains("does not serialize") && !refused(&operation), "{failed}");
}

/// A module's default is how it is compiled, so no flag of a process repairs it.
#[test]
fn a_default_that_does_not_run_is_not_rescued_by_one() {
    let crashes: fn(&Overrides, u32) -> Outcome = |options, _| {
        let crash = Failure::new(FailureKind::Crash, "the worker died of SIGSEGV");
        Outcome { fails: (!has(options, AVX2)).then_some(("run", crash)), ..takes(1.0) }
    };
    let found = tune(&mut Compiler::new(crashes), &Ledger::in_memory(vec![]), &module(), &RaceOptions::default());
    assert_eq!((found.operation.status, found.operation.best), (Status::Failed, None));
}

/// The winner on one module and the winner on another are raced together, each in its place.
#[test]
fn a_flag_and_an_option_of_two_modules_are_one_set() {
    let only_flag: fn(&Overrides, u32) -> Outcome = |options, _| takes(if has(options, AVX2) { 0.5 } else { 1.0 });
    let only_level: fn(&Overrides, u32) -> Outcome = |options, _| {
        assert!(!options.contains_key("xla_cpu_max_isa"), "not of one compilation");
        takes(if has(options, LEVEL) { 0.8 } else { 1.0 })
    };
    let (mut timer, modules) = process(&[("f", only_flag), ("g", only_level)]);
    let shared = share(&mut timer, &Ledger::in_memory(vec![]), &modules);
    let both = "xla_backend_optimization_level=1 xla_cpu_max_isa=AVX2";
    assert_eq!(shared.set.map(|set| set.to_string()).as_deref(), Some(both), "{}", shared.reason);
}
