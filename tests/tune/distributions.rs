//! Calls that get several distributions of values, on a simulated device.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::scripted::*;
use autotune_lowered::array::Fill;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::registry::{Argument, Distribution, Invocation, Registry};
use autotune_lowered::tune::{OperationResult, Status, TuneOptions};

/// The values of the input, which the simulated device tells apart.
const MIXED: u8 = 1;
const DECODE: u8 = 2;

fn of(value: u8) -> Fill {
    Fill::Constant { value: f64::from(value) }
}

/// A call with a batch that is `mixed`, or `decode`.
fn call(folder: &tempfile::TempDir) -> (Registry, Arc<Invocation>) {
    let (mut registry, plain) = registry(&folder.path().join("registry"), 4, &distinct_program);
    let decode = Distribution::new("decode", BTreeMap::from([("lens".to_owned(), of(DECODE))]));
    let call = Invocation::clone(&plain)
        .arguments(vec![Argument::new("lens", "s32[4]".parse().unwrap(), of(MIXED))])
        .distribution(Some("mixed".to_owned()))
        .other_distributions(vec![decode])
        .recorded_at(2);
    registry.add(&call).unwrap();
    let stored = Arc::clone(&registry.invocations()[0]);
    assert_eq!(stored.other_distributions, call.other_distributions);
    (registry, stored)
}

fn timer(decode: [u64; 4]) -> ScriptedTimer {
    let mut timer = ScriptedTimer::new(&[10_000_000, 7_000_000, 8_000_000, 9_000_000]);
    timer.ns_of_input = BTreeMap::from([(DECODE, decode.to_vec())]);
    timer
}

fn tuned(folder: &tempfile::TempDir, timer: &mut ScriptedTimer) -> OperationResult {
    tuned_with(folder, timer, &TuneOptions::default())
}

fn tuned_with(folder: &tempfile::TempDir, timer: &mut ScriptedTimer, options: &TuneOptions) -> OperationResult {
    let (registry, call) = call(folder);
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    let result = tune(&registry, &call, timer, &ledger, options, None).unwrap();
    result.operations.into_iter().next().unwrap()
}

#[test]
fn a_winner_that_depends_on_the_values_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let found = tuned(&folder, &mut timer([4_000_000, 5_000_000, 3_000_000, 4_500_000]));
    assert_eq!((found.status, &found.best.as_ref().unwrap().config), (Status::Tuned, &config(1)), "{}", found.reason);
    let other = &found.distributions[0];
    assert_eq!((other.name.as_str(), &other.best.config, other.differs), ("decode", &config(2), true));
    assert!((other.ratio - 0.6).abs() < 0.01, "{}", other.ratio);
    let note = found.flags.iter().find(|flag| flag.contains("depends on the values")).unwrap();
    assert!(note.contains("`decode`") && note.contains("mixed") && note.contains("0.60"), "{note}");
    // the next run has the samples, and says the same without measuring
    let mut unused = timer([1; 4]);
    let again = tuned(&folder, &mut unused);
    assert_eq!((unused.measured, again.status), (0, Status::Cached));
    assert_eq!(again.distributions, found.distributions);
}

#[test]
fn a_winner_that_is_the_best_with_all_values_needs_no_note() {
    let folder = tempfile::tempdir().unwrap();
    let found = tuned(&folder, &mut timer([4_000_000, 3_000_000, 3_010_000, 4_500_000]));
    assert_eq!(found.best.unwrap().config, config(1));
    assert_eq!((found.distributions.len(), found.distributions[0].differs, found.flags), (1, false, vec![]));
}

#[test]
fn a_run_that_is_ended_in_the_race_with_other_values_goes_on_there() {
    let times = [4_000_000, 5_000_000, 3_000_000, 4_500_000];
    let whole = tuned(&tempfile::tempdir().unwrap(), &mut timer(times));
    let folder = tempfile::tempdir().unwrap();
    let (registry, call) = call(&folder);
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    let (options, first) = (TuneOptions::default(), u64::from(whole.rounds_measured));
    let ended = tune(&registry, &call, &mut timer(times), &ledger, &options, Some(first + 1)).unwrap();
    assert_eq!(ended.operations[0].status, Status::Interrupted, "{}", ended.operations[0].reason);
    let found = tune(&registry, &call, &mut timer(times), &ledger, &options, None).unwrap().operations.remove(0);
    assert_eq!((found.status, found.rounds_measured), (Status::Tuned, 0), "{}", found.reason);
    assert_eq!((found.distributions.len(), found.distributions[0].differs), (1, true));
}

#[test]
fn a_config_that_fails_with_other_values_is_not_published() {
    let folder = tempfile::tempdir().unwrap();
    // the fastest config fails in the second job
    let (mut jobs, mut ran) = (0, false);
    let mut timer = timer([4_000_000, 3_000_000, 3_500_000, 4_500_000]).with_script(move |candidate, method, _| {
        // every job prepares the baseline first
        jobs += u32::from(candidate == 0 && method == "prepare");
        ran |= method == "measure";
        match jobs == 2 && candidate == 1 && method == "measure" && ran {
            true => Err(Failure::new(FailureKind::Execute, "index out of bounds")),
            false => Ok(()),
        }
    });
    let found = tuned(&folder, &mut timer);
    assert_eq!((found.status, &found.best.as_ref().unwrap().config), (Status::Tuned, &config(2)), "{}", found.reason);
    let failed = found.candidates.iter().find(|row| row.config == config(1)).unwrap();
    let said = serde_json::to_string(failed).unwrap();
    assert!(said.contains("with the values of `decode`: index out of bounds"), "{said}");
}

#[test]
fn a_budget_holds_for_all_values_together() {
    let folder = tempfile::tempdir().unwrap();
    let no_time = TuneOptions::default().budget(Some(Duration::from_nanos(1)));
    let found = tuned_with(&folder, &mut timer([4_000_000, 5_000_000, 3_000_000, 4_500_000]), &no_time);
    let said = "not measured with the values of `decode`: the budget was used up: allow more time";
    assert!(found.flags.iter().any(|flag| flag == said), "{:?}", found.flags);
    assert!(found.distributions.is_empty(), "{found:?}");
}
