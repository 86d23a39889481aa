//! The tuner searches if there are too many configs to race them all: with a simulated timer, and through the command
//! line with a worker that simulates times.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::formula::{FormulaTimer, after, planned, processor_time, tune_one, tune_with};
use crate::support::prerequisite::python3;
use crate::support::{program, scripted};
use autotune_lowered::candidates::CandidateSpace;
use autotune_lowered::config::Config;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::registry::Candidate;
use autotune_lowered::search::{Budget, StrategyKind};
use autotune_lowered::tune::{OperationResult, SearchEnd, SearchOptions, Session, Status, TuneOptions};
use serde_json::json;

/// Processes that confirm a winner on a quiet machine.
const PROCESSES: usize = 3;

const A: &str = "0123456789abcdef";
const B: &str = "fedcba9876543210";

/// 4073 configs: 32 × 32 × 4 without the 23 in which `a` and `b` make 40 with `c` = 8.
const SPACE: &str = r#"{"schema": 1, "op": "op", "parameters": {"a": {"from": 0, "to": 31, "step": 1},
    "b": {"from": 0, "to": 31, "step": 1}, "c": [1, 2, 4, 8]}, "constraints": ["a + b != 40 || c != 8"],
    "baseline": {"a": 0, "b": 0, "c": 1}}"#;

fn space() -> CandidateSpace {
    CandidateSpace::parse("op.json", SPACE).unwrap()
}

fn number(config: &Config, name: &str) -> i64 {
    config.get(name).and_then(serde_json::Value::as_i64).unwrap()
}

/// A bowl with its minimum at a = 21, b = 9, c = 4; the baseline takes 2.6 times as long.
fn bowl(config: &Config) -> u64 {
    let (a, b, c) = (number(config, "a"), number(config, "b"), number(config, "c"));
    let c = (c as f64).log2() - 2.0;
    let above = (a - 21).pow(2) as f64 / 400.0 + (b - 9).pow(2) as f64 / 300.0 + c * c * 0.05;
    (1e6 * (1.0 + above)) as u64
}

fn all_configs() -> Vec<Config> {
    space().configs().map(Result::unwrap).collect()
}

/// How many configs are faster than this one.
fn rank(config: &Config) -> usize {
    all_configs().iter().filter(|other| bowl(other) < bowl(config)).count()
}

fn options(kind: StrategyKind, evaluations: usize) -> TuneOptions {
    let budget = Budget::default().evaluations(Some(evaluations));
    TuneOptions::default().search(SearchOptions::default().kind(kind).budget(budget))
}

fn best(operation: &OperationResult) -> &Config {
    &operation.best.as_ref().unwrap_or_else(|| panic!("{operation:?}")).config
}

fn memory() -> Ledger {
    Ledger::in_memory(vec![])
}

#[test]
fn one_of_the_best_per_cent_is_found_within_the_budget() {
    for seed in 0..3 {
        let mut timer = FormulaTimer::new(bowl);
        let options = options(StrategyKind::Auto, 64).seed(seed);
        let operation = tune_one(&planned(A, &space()), &mut timer, &memory(), &options);
        assert_eq!(operation.status, Status::Tuned);
        assert!(rank(best(&operation)) < 39, "seed {seed}: {} is the {}th", best(&operation), rank(best(&operation)));
        let search = operation.search.as_ref().unwrap();
        assert_eq!((search.configs, search.evaluations, search.reused, search.failed), (4073, 64, 0, 0));
        assert_eq!((search.ended, search.sampled, search.strategy.as_str()), (SearchEnd::Budget, false, "auto"));
        assert_eq!(timer.tried().iter().collect::<HashSet<_>>().len(), 64, "no config is tried twice");
        // the baseline and fifteen others are raced
        assert_eq!((operation.candidates.len(), timer.jobs.len()), (16, 65 + PROCESSES));
        assert_eq!(operation.candidates[0].config, *space().baseline());
        let told = search.best_ratio.unwrap();
        let truth = timer.tried().iter().map(bowl).min().unwrap() as f64 / bowl(space().baseline()) as f64;
        assert!((told / truth - 1.0).abs() < 0.01, "{told} {truth}");
        assert!(
            operation.time_breakdown.searching_ns > 0 && operation.time_breakdown.compile_ns > 0,
            "{:?}",
            operation.time_breakdown
        );
    }
}

#[test]
fn the_same_search_again_asks_and_decides_the_same() {
    for kind in StrategyKind::ALL {
        let run = || {
            let mut timer = FormulaTimer::new(bowl);
            let operation = tune_one(&planned(A, &space()), &mut timer, &memory(), &options(kind, 30));
            (timer.jobs, operation.search, operation.best, operation.tie_set)
        };
        assert_eq!(run(), run(), "{kind:?}");
    }
}

/// The rounds in the sample log.
fn rounds_in(cache: &std::path::Path) -> usize {
    std::fs::read_to_string(cache.join("samples-v1.log")).unwrap().matches(r#""record":"round""#).count()
}

#[test]
fn each_config_is_measured_in_as_many_rounds_as_any_other() {
    for rounds in [1, 2, 7] {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path(), vec![]).unwrap();
        let mut options = options(StrategyKind::Random, 25);
        options.search.rounds = rounds;
        let operation = tune_one(&planned(A, &space()), &mut FormulaTimer::new(bowl), &ledger, &options);
        let text = std::fs::read_to_string(folder.path().join("samples-v1.log")).unwrap();
        let confirming = text.matches(r#""confirming":true"#).count();
        let searched = rounds_in(folder.path()) - confirming - operation.rounds_measured as usize;
        assert_eq!(searched, 25 * rounds as usize);
    }
}

/// After a kill, the log has what it had at that moment: the test copies it while the search continues.
#[test]
fn a_killed_search_goes_on_where_it_was() {
    for kind in [StrategyKind::Auto, StrategyKind::Random] {
        let folder = tempfile::tempdir().unwrap();
        let (cache, killed) = (folder.path().join("cache"), folder.path().join("killed"));
        std::fs::create_dir(&killed).unwrap();
        let mut whole = FormulaTimer::new(bowl);
        let ledger = Ledger::open(&cache, vec![]).unwrap();
        let (from, to) = (cache.join("samples-v1.log"), killed.join("samples-v1.log"));
        let options = options(kind, 50);
        let plan = [planned(A, &space())];
        let expected = tune_with(&plan, &mut whole, &ledger, &options, move |done, _| {
            if done == 20 {
                std::fs::copy(&from, &to).unwrap();
            }
        });
        let ledger = Ledger::open(&killed, vec![]).unwrap();
        let mut resumed = FormulaTimer::new(bowl);
        let operation = tune_one(&plan[0], &mut resumed, &ledger, &options);
        assert_eq!(operation.search.as_ref().unwrap().reused, 20, "{kind:?}");
        let tried = whole.tried();
        assert_eq!(tried.len(), 50);
        assert_eq!(resumed.tried(), tried[20..], "{kind:?}: nothing is measured again");
        assert_eq!(operation.best, expected.operations[0].best);
    }
}

#[test]
fn an_interrupted_search_keeps_what_it_tried() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), vec![]).unwrap();
    let plan = [planned(A, &space()), planned(B, &space())];
    let mut timer = FormulaTimer::new(bowl);
    let options = options(StrategyKind::Auto, 40);
    let result = tune_with(&plan, &mut timer, &ledger, &options, after(10));
    assert!(result.interrupted);
    assert!(result.operations.iter().all(|operation| operation.status == Status::Interrupted));
    let search = result.operations[0].search.as_ref().unwrap();
    assert_eq!((search.evaluations, search.ended), (10, SearchEnd::Interrupted));
    assert!(result.entries.is_empty(), "nothing is decided yet");
    // another strategy and another budget use the same results
    let other = options.clone().search(options.search.clone().kind(StrategyKind::Model));
    let operation = tune_one(&plan[0], &mut timer, &ledger, &other);
    assert_eq!(operation.search.as_ref().unwrap().reused, 10);
    assert_eq!(timer.tried().len(), 40);
}

#[test]
fn nothing_new_is_measured_on_a_second_run() {
    let time = Budget::default().time(Some(Duration::from_millis(100)));
    let both = time.evaluations(Some(20));
    for budget in [Budget::default().evaluations(Some(20)), time, both] {
        let folder = tempfile::tempdir().unwrap();
        let options = TuneOptions::default().search(SearchOptions::default().budget(budget));
        let planned = planned(A, &space());
        let ledger = Ledger::open(folder.path(), vec![]).unwrap();
        let mut timer = FormulaTimer::new(bowl);
        let first = tune_one(&planned, &mut timer, &ledger, &options);
        assert!(first.search.as_ref().unwrap().evaluations > 0);
        drop(ledger);
        let ledger = Ledger::open(folder.path(), vec![]).unwrap();
        let mut second = FormulaTimer::new(bowl);
        let again = tune_one(&planned, &mut second, &ledger, &options);
        assert_eq!((again.status, second.calls), (Status::Cached, 0), "{budget:?}");
        assert_eq!((&again.best, again.candidates.len()), (&first.best, first.candidates.len()));
        assert_eq!(again.search, None);

        // other rules decide again on the same samples
        let mut strict = options.clone();
        strict.race.rules.min_improvement = 0.9;
        let kept = tune_one(&planned, &mut second, &ledger, &strict);
        assert_eq!((kept.status, second.calls), (Status::BaselineKept, 0));
        // and `--force` measures all of it again
        let force = options.force(true);
        let forced = tune_one(&planned, &mut second, &ledger, &force);
        let search = forced.search.unwrap();
        // each on its own, the race, and the processes that confirm
        assert_eq!((search.reused, second.jobs.len()), (0, search.evaluations + 1 + PROCESSES));
        assert!(forced.status.is_decided() && forced.status != Status::Cached, "{:?}", forced.status);
    }
}

#[test]
fn a_larger_budget_goes_on_from_the_smaller_one() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), vec![]).unwrap();
    let planned = planned(A, &space());
    let mut timer = FormulaTimer::new(bowl);
    tune_one(&planned, &mut timer, &ledger, &options(StrategyKind::Random, 10));
    let more = tune_one(&planned, &mut timer, &ledger, &options(StrategyKind::Random, 30));
    // earlier results are asked first now, and random search asks for the same configs again
    let search = more.search.unwrap();
    assert_eq!((search.evaluations, search.reused), (30, 10));
    assert_eq!(timer.tried().iter().collect::<HashSet<_>>().len(), 30);
}

/// A quarter does not compile, a quarter has wrong outputs, and every third of the rest crashes.
#[test]
fn bad_configs_cost_themselves_alone() {
    let folder = tempfile::tempdir().unwrap();
    let bad = |config: &Config, method: &str| match (number(config, "a") % 4, number(config, "b") % 3) {
        (1, _) if method == "prepare" => Err(Failure::new(FailureKind::Compile, "too much shared memory")),
        (3, 1) if method == "measure" => Err(Failure::new(FailureKind::Crash, "SIGSEGV")),
        _ => Ok(()),
    };
    let ledger = Ledger::open(folder.path(), vec![]).unwrap();
    let mut timer = FormulaTimer::new(bowl).behaving(bad);
    timer.is_wrong = |config| number(config, "a") % 4 == 2;
    let operation = tune_one(&planned(A, &space()), &mut timer, &ledger, &options(StrategyKind::Auto, 100));
    let search = operation.search.as_ref().unwrap();
    let count = |is_bad: fn(i64, i64) -> bool| {
        timer.tried().iter().filter(|config| is_bad(number(config, "a"), number(config, "b"))).count()
    };
    let expected = [
        ("compile", count(|a, _| a % 4 == 1)),
        ("crash", count(|a, b| a % 4 == 3 && b % 3 == 1)),
        ("wrong-output", count(|a, _| a % 4 == 2)),
    ];
    for (kind, count) in expected {
        assert!(count > 0, "{kind}");
        assert_eq!(search.failures.get(&FailureKind::from(kind)), Some(&count), "{kind}");
    }
    assert_eq!(search.failed, expected.iter().map(|(_, count)| count).sum::<usize>());
    // a crash must be seen twice
    assert_eq!(timer.info.epoch as usize, 2 * expected[1].1 + PROCESSES);
    let winner = best(&operation).clone();
    let is_good = |config: &Config| match number(config, "a") % 4 {
        0 => true,
        3 => number(config, "b") % 3 != 1,
        _ => false,
    };
    assert!(is_good(&winner), "{winner}");
    let mut good: Vec<u64> = all_configs().iter().filter(|config| is_good(config)).map(bowl).collect();
    good.sort_unstable();
    assert!(good.iter().position(|&ns| ns == bowl(&winner)).unwrap() < good.len() / 50, "{winner}");

    // none of them is tried again by the next search, which knows more
    let mut second = FormulaTimer::new(bowl).behaving(bad);
    second.is_wrong = timer.is_wrong;
    tune_one(&planned(A, &space()), &mut second, &ledger, &options(StrategyKind::Auto, 101));
    assert!(second.tried().iter().all(|config| !timer.tried().contains(config)), "{:?}", second.tried());
}

#[test]
fn where_every_config_fails_the_baseline_stays_and_the_reason_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), vec![]).unwrap();
    let baseline = space().baseline().clone();
    let mut timer = FormulaTimer::new(bowl).behaving(move |config, method| match method {
        "prepare" if *config != baseline => Err(Failure::new(FailureKind::Compile, "no such instruction")),
        _ => Ok(()),
    });
    let planned = planned(A, &space());
    let operation = tune_one(&planned, &mut timer, &ledger, &options(StrategyKind::Auto, 25));
    assert_eq!(operation.status, Status::BaselineKept);
    assert_eq!(best(&operation), space().baseline());
    let reason = &operation.reason;
    assert!(reason.starts_with("all 25 configs that were tried failed, the first a="), "{reason}");
    assert!(reason.ends_with("with compile: no such instruction"), "{reason}");
    assert_eq!(operation.search.as_ref().unwrap().failed, 25);
    let calls = timer.calls;
    let again = tune_one(&planned, &mut timer, &ledger, &options(StrategyKind::Auto, 25));
    assert_eq!((again.status, timer.calls), (Status::Cached, calls));
}

#[test]
fn a_baseline_that_fails_ends_the_search_at_once_and_is_not_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), vec![]).unwrap();
    let baseline = space().baseline().clone();
    let mut timer = FormulaTimer::new(bowl).behaving(move |config, _| match *config == baseline {
        true => Err(Failure::new(FailureKind::Compile, "no luck")),
        false => Ok(()),
    });
    let planned = planned(A, &space());
    let operation = tune_one(&planned, &mut timer, &ledger, &options(StrategyKind::Auto, 25));
    assert_eq!((operation.status, timer.calls), (Status::Failed, 1));
    assert!(operation.reason.contains("the baseline failed") && operation.reason.contains("no luck"));
    assert_eq!(operation.search.as_ref().unwrap().ended, SearchEnd::Failed);
    let again = tune_one(&planned, &mut timer, &ledger, &options(StrategyKind::Auto, 25));
    assert_eq!((again.status, timer.calls), (Status::Failed, 1));
    assert!(again.reason.contains("no luck; `--force` tries again"), "{}", again.reason);

    let mut timeless = FormulaTimer::new(|config| if *config == *space().baseline() { 0 } else { bowl(config) });
    let operation = tune_one(&planned, &mut timeless, &memory(), &options(StrategyKind::Auto, 25));
    assert!(operation.reason.contains("the baseline gave no usable time"), "{}", operation.reason);
    assert_eq!((operation.status, timeless.jobs.len()), (Status::Failed, 1));
}

#[test]
fn a_config_without_a_usable_time_is_a_failure_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), vec![]).unwrap();
    let zero = |config: &Config| if number(config, "a") > 15 { 0 } else { bowl(config) };
    let mut timer = FormulaTimer::new(zero);
    let operation = tune_one(&planned(A, &space()), &mut timer, &ledger, &options(StrategyKind::Random, 40));
    let none = timer.tried().iter().filter(|config| number(config, "a") > 15).count();
    assert!(none > 5);
    assert_eq!(operation.search.as_ref().unwrap().failures, [(FailureKind::NoTime, none)].into());
    assert!(number(best(&operation), "a") <= 15);
    let tried = timer.tried().len();
    tune_one(&planned(A, &space()), &mut timer, &ledger, &options(StrategyKind::Random, 41));
    assert_eq!(timer.tried().len(), tried + 1, "nor is such a config tried again");
}

#[test]
fn budgets_of_one_and_of_none() {
    let mut timer = FormulaTimer::new(bowl);
    let operation = tune_one(&planned(A, &space()), &mut timer, &memory(), &options(StrategyKind::Auto, 1));
    assert_eq!((operation.search.as_ref().unwrap().evaluations, operation.candidates.len()), (1, 2));
    assert!(operation.status.is_decided(), "{operation:?}");

    let budget = Budget::default().time(Some(Duration::from_nanos(1)));
    let short = TuneOptions::default().search(SearchOptions::default().budget(budget));
    let operation = tune_one(&planned(A, &space()), &mut timer, &memory(), &short);
    assert_eq!(operation.search.as_ref().unwrap().evaluations, 1, "at least one is tried");

    let operation = tune_one(&planned(A, &space()), &mut timer, &memory(), &options(StrategyKind::Auto, 0));
    assert_eq!(operation.status, Status::Failed);
    assert!(operation.reason.starts_with("the budget is empty"), "{}", operation.reason);
}

#[test]
fn what_another_call_found_is_tried_first() {
    for kind in [StrategyKind::Auto, StrategyKind::Random] {
        let ledger = memory();
        let options = options(kind, 24);
        let plan = [planned(A, &space()), planned(B, &space())];
        let mut timer = FormulaTimer::new(bowl);
        let result = tune_with(&plan, &mut timer, &ledger, &options, |_, _| {});
        let first = best(&result.operations[0]);
        assert_eq!(timer.tried()[24], *first, "{kind:?}");
        // without it, the second call would have begun like the first one
        assert_ne!(timer.tried()[24], timer.tried()[0]);
        // as good as the first, or tied with it
        assert!(bowl(best(&result.operations[1])) <= bowl(first) / 100 * 101);
    }
}

#[test]
fn a_long_recorded_list_is_searched_by_its_programs() {
    let folder = tempfile::tempdir().unwrap();
    let program = |index: u64| scripted::distinct_program(if index == 199 { 198 } else { index });
    let (registry, invocation) = scripted::registry(&folder.path().join("registry"), 200, &program);
    let ns: Vec<u64> = (0..200_u64).map(|n| 1_000_000 + 10_000 * n.abs_diff(140)).collect();
    // candidates are known by their position, which a job of two does not reveal: their outputs and times follow the
    // config
    let mut timer = FormulaTimer::new(|config| 1_000_000 + 10_000 * number(config, "block").abs_diff(140));
    timer.info.device = scripted::device();
    let ledger = memory();
    let mut session = Session::new(&registry, &ledger, &mut timer).options(options(StrategyKind::Auto, 40));
    let result = session.run(&scripted::planned([&invocation])).unwrap();
    let operation = &result.operations[0];
    assert_eq!(operation.search.as_ref().unwrap().configs, 199);
    let found = number(best(operation), "block");
    assert!(ns[found as usize] <= 1_020_000, "{found}");
    let provenance = result.entries[0].1.provenance.as_ref().unwrap();
    assert!(provenance.search.is_some() && provenance.semantic_digest.is_some(), "the recorded programs are raced");
}

/// Rows of a project's table come first, and are measured like all others. A strategy with a model may see after one of
/// them that the others are not worth it.
#[test]
fn what_a_recorder_names_is_tried_first() {
    for (kind, expected) in [(StrategyKind::Random, &[61, 140][..]), (StrategyKind::Model, &[61])] {
        let folder = tempfile::tempdir().unwrap();
        let registry = folder.path().join("registry");
        let (registry, invocation) = scripted::registry(&registry, 200, &scripted::distinct_program);
        let starts = json!([{"block": 61}, {"block": 140}, {"block": 5000}, 7, {"block": 61}]);
        let named = (*invocation).clone().static_arguments([("starts".to_owned(), starts)].into());
        let mut timer = FormulaTimer::new(|config| 1_000_000 + 10_000 * number(config, "block").abs_diff(70));
        timer.info.device = scripted::device();
        let ledger = memory();
        let mut session = Session::new(&registry, &ledger, &mut timer).options(options(kind, 40));
        let result = session.run(&scripted::planned([&Arc::new(named)])).unwrap();
        let operation = &result.operations[0];
        let flag = "the search begins with 2 configs of its project's own table".to_owned();
        assert!(operation.flags.contains(&flag), "{operation:?}");
        let tried: Vec<i64> = timer.tried().iter().map(|config| number(config, "block")).collect();
        assert_eq!(&tried[..expected.len()], expected, "{}", kind.name());
        assert!((55..=85).contains(&number(best(operation), "block")), "{:?}", best(operation));
    }
}

#[test]
fn what_a_compiler_refused_costs_no_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = scripted::registry(&folder.path().join("registry"), 100, &scripted::distinct_program);
    let mut timer = FormulaTimer::new(|config| 1_000_000 + 10_000 * number(config, "block").abs_diff(70));
    timer.info.device = scripted::device();
    // the baseline too, and of all better configs only every third is left
    let refused = |block: i64| block == 0 || block % 3 != 0;
    let of = |candidate: &Candidate| {
        let program = candidate.program.as_ref().filter(|_| refused(number(&candidate.config, "block")));
        program.map(|program| program.digest)
    };
    timer.refused = invocation.candidates.iter().filter_map(of).collect();
    let ledger = memory();
    let mut session = Session::new(&registry, &ledger, &mut timer).options(options(StrategyKind::Auto, 200));
    let result = session.run(&scripted::planned([&invocation])).unwrap();
    let operation = &result.operations[0];
    let search = operation.search.as_ref().unwrap();
    // 33 of the blocks below 100, besides the baseline, are multiples of three
    assert_eq!((search.configs, search.evaluations, search.refused, search.failed), (100, 33, 66, 0), "{search:?}");
    assert!(search.to_line().contains(", 66 left out because a compiler refused them"), "{}", search.to_line());
    assert_eq!(number(best(operation), "block"), 69);
    assert!(timer.tried().iter().all(|config| !refused(number(config, "block"))));
}

#[test]
fn up_to_sixty_four_are_raced_as_they_are() {
    let small = r#"{"schema": 1, "op": "op", "parameters": {"a": {"from": 0, "to": 31, "step": 1}, "b": [8, 9],
        "c": [1]}, "baseline": {"a": 0, "b": 8, "c": 1}}"#;
    let mut timer = FormulaTimer::new(bowl);
    let planned = planned(A, &CandidateSpace::parse("op.json", small).unwrap());
    assert!(planned.space.is_none());
    let operation = tune_one(&planned, &mut timer, &memory(), &options(StrategyKind::Auto, 5));
    assert_eq!((operation.search, operation.candidates.len(), timer.jobs.len()), (None, 64, 1 + PROCESSES));
}

#[test]
fn where_a_call_can_have_one_job_only_the_first_configs_are_raced() {
    let mut timer = FormulaTimer::new(bowl);
    timer.info.can.only_one_job_a_call = true;
    let operation = tune_one(&planned(A, &space()), &mut timer, &memory(), &options(StrategyKind::Auto, 5));
    assert_eq!((&operation.search, operation.candidates.len(), timer.jobs.len()), (&None, 64, 1 + PROCESSES));
    assert!(operation.flags[0].starts_with("64 of its configs are tried, without a search"), "{operation:?}");
}

/// 10^12 points, of which one in a thousand is valid; the first constraint to check reads the last parameter.
#[test]
fn a_space_of_a_million_million_points_is_searched() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let parameters: Vec<String> =
        names.iter().map(|name| format!(r#""{name}": {{"from": 0, "to": 9, "step": 1}}"#)).collect();
    let text = format!(
        r#"{{"schema": 1, "op": "op", "parameters": {{{}}}, "constraints": ["j == 3", "k == a", "l == 7"],
        "baseline": {{"a": 0, "b": 0, "c": 0, "d": 0, "e": 0, "f": 0, "g": 0, "h": 0, "i": 0, "j": 3, "k": 0, "l": 7}}}}"#,
        parameters.join(", ")
    );
    let distance = |config: &Config| {
        let off = ["a", "b", "c", "d"].map(|name| number(config, name).abs_diff(6));
        1_000_000 + 50_000 * off.iter().map(|off| off * off).sum::<u64>()
    };
    let mut timer = FormulaTimer::new(distance);
    let planned = planned(A, &CandidateSpace::parse("op.json", &text).unwrap());
    assert!(planned.space.is_some());
    let operation = tune_one(&planned, &mut timer, &memory(), &options(StrategyKind::Auto, 100));
    let search = operation.search.as_ref().unwrap();
    // and ended at its bound
    assert!(search.sampled && (16_385..=1 << 20).contains(&search.configs), "the sample grew: {search:?}");
    assert_eq!(search.evaluations, 100);
    // of 10^4 combinations one is the best and eight are next to it
    assert!(distance(best(&operation)) <= 1_050_000, "{}", best(&operation));
}

#[test]
fn a_space_that_cannot_be_searched_is_said_in_one_line() {
    let large = |constraint: &str| {
        let text = SPACE.replace("a + b != 40 || c != 8", constraint);
        let text = text.replace(r#""baseline""#, r#""configs": [{"a": 0, "b": 0, "c": 1}], "baseline""#);
        CandidateSpace::parse("op.json", &text).unwrap()
    };
    // contradictory: nothing but the listed configs
    let mut timer = FormulaTimer::new(bowl);
    let operation = tune_one(&planned(A, &large("a > 40")), &mut timer, &memory(), &options(StrategyKind::Auto, 5));
    assert_eq!((operation.status, operation.search), (Status::BaselineKept, None));
    // an expression that fails during evaluation
    let failing = planned(A, &large("a < 10 || a / (a - a) > 1"));
    let operation = tune_one(&failing, &mut timer, &memory(), &options(StrategyKind::Auto, 5));
    assert_eq!(operation.status, Status::BaselineKept, "what is recorded is raced");
    let flag = &operation.flags[0];
    assert!(flag.starts_with("the search space cannot be searched: op.json:") && !flag.contains('\n'), "{flag}");
}

/// What a search writes, and its processor time outside the timer, with the log on a disk: the time is printed.
#[test]
fn an_evaluation_costs_the_tuner_little() {
    const COUNT: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path(), vec![]).unwrap();
    let mut before_it = 0;
    for (kind, key) in [(StrategyKind::Random, B), (StrategyKind::Auto, A)] {
        let mut timer = FormulaTimer::new(bowl);
        let plan = [planned(key, &space())];
        let (spent, mut begin, took) = (Arc::clone(&timer.spent), None, Arc::new(Mutex::new(Duration::ZERO)));
        let so_far = Arc::clone(&took);
        tune_with(&plan, &mut timer, &ledger, &options(kind, COUNT + 1), move |done, _| match done {
            1 => begin = Some((processor_time(), spent.load(Ordering::Relaxed))),
            _ => {
                let (begin, before) = begin.unwrap();
                let of_timer = Duration::from_nanos(spent.load(Ordering::Relaxed) - before);
                *so_far.lock().unwrap() = processor_time() - begin - of_timer;
            }
        });
        let each = *took.lock().unwrap() / COUNT as u32;
        let written = std::fs::metadata(folder.path().join("samples-v1.log")).unwrap().len() - before_it;
        before_it += written;
        eprintln!("{}: {each:?} and {} bytes an evaluation, without the timer", kind.name(), written / COUNT as u64);
        assert!(!each.is_zero() && timer.jobs.len() > COUNT, "{kind:?}: {each:?}, {} jobs", timer.jobs.len());
        assert!((1..4096).contains(&(written / COUNT as u64)), "{kind:?}: {written} bytes");
    }
}

#[test]
fn a_worker_that_builds_programs_is_searched_through_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, registry, spaces) =
        (folder.path().join("cache"), folder.path().join("registry"), folder.path().join("spaces"));
    std::fs::create_dir(&spaces).unwrap();
    std::fs::write(spaces.join("hostile.json"), SPACE.replace(r#""op": "op""#, r#""op": "hostile""#)).unwrap();
    let baseline = json!({"a": 0, "b": 0, "c": 1});
    let description = json!({
        "target": {"platform": "cpu"}, "op_id": "hostile@v1", "call_key": "0123456789abcdef",
        "arguments": [{"name": "x", "spec": "f32[8]", "fill": {"kind": "normal", "scale": 1.0}}],
        "baseline": baseline, "candidates": [{"config": baseline, "not_lowered": "built by the worker"}],
    });
    let file = folder.path().join("hostile.json");
    std::fs::write(&file, description.to_string()).unwrap();
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let added = program::run(&cache, &["registry", "add", &text(&registry), &text(&file)]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    let (registry, spaces) = (text(&registry), text(&spaces));
    let timer = format!("command:{} tests/data/cli/building_worker.py", python3());
    let tune = |more: &[&str]| {
        let arguments = [
            "tests/data/cli/module.mlir",
            "--registry",
            &registry,
            "--candidates",
            &spaces,
            "--only",
            "hostile@v1",
            "--timer",
            &timer,
            "--search-evaluations",
            "40",
            "--seed",
            "3",
        ];
        program::run(&cache, &[&arguments[..], more].concat())
    };
    let planned = tune(&["--dry-run"]);
    assert!(planned.stdout.contains("a search over more than 64 configs"), "{}", planned.stdout);
    let run = tune(&["--format", "json"]);
    let result = run.json();
    let operation = &result["operations"][0];
    assert_eq!(operation["status"], "tuned", "{}\n{operation}", run.stderr);
    let search = &operation["search"];
    assert_eq!((&search["strategy"], &search["seed"], &search["evaluations"]), (&json!("auto"), &json!(3), &json!(40)));
    assert_eq!(
        (&search["configs"], &search["ended"], &search["sampled"]),
        (&json!(4073), &json!("budget"), &json!(false))
    );
    assert!(search["failures"]["compile"].as_u64().unwrap() > 0, "{search}");
    let documented = std::fs::read_to_string("docs/json.md").unwrap();
    for name in search.as_object().unwrap().keys() {
        assert!(documented.contains(&format!("`{name}`")), "docs/json.md does not say what `{name}` is");
    }
    let config: Config = serde_json::from_value(operation["best"]["config"].clone()).unwrap();
    assert!(rank(&config) < 80, "{config}");
    assert!(
        run.stderr.contains("searching 4073 configs") && run.stderr.contains("40 of 40 configs tried, the best at")
    );
    assert!(run.stderr.contains("40 configs tried, "), "{}", run.stderr);
    let again = tune(&[]);
    assert!(again.stdout.contains("cached") && again.stderr.contains("nothing measured"), "{}", again.stderr);
    let random = tune(&["--search", "random", "--search-seconds", "600"]);
    assert!(random.stdout.contains("searched 4073 configs: 40 tried (random, seed 3)"), "{}", random.stdout);
    let wrong = tune(&["--search", "lucky"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("expected one of auto, model"), "{}", wrong.stderr);
}
