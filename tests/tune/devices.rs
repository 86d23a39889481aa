//! Several devices of one kind at once, on simulated timers and on a real plugin's devices.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::scripted::*;
use autotune_lowered::cache::{Mapping, SNAPSHOT_FILE, Snapshot};
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::registry::Registry;
use autotune_lowered::timer::events::{Event, EventKind, Events};
use autotune_lowered::tune::{AutotuningResult, Session, Status, TuningPlan};

const MS: u64 = 1_000_000;

/// Calls of one operation with different keys.
fn plan(folder: &std::path::Path, count: usize) -> (Registry, TuningPlan) {
    let (mut registry, invocation) = registry(&folder.join("registry"), 3, &distinct_program);
    let mut calls = Vec::new();
    for number in 0..count {
        let mut another = (*invocation).clone();
        another.call.call_key = format!("{number:016x}");
        registry.add(&another).unwrap();
        calls.push(Arc::new(another));
    }
    (registry, planned(&calls))
}

/// Runs a plan on all timers at once.
fn on_all(
    registry: &Registry,
    ledger: &Ledger,
    timers: &mut [ScriptedTimer],
    events: &Events,
    plan: &TuningPlan,
) -> AutotuningResult {
    let (first, others) = timers.split_first_mut().unwrap();
    let mut session = Session::new(registry, ledger, first).events(events.clone());
    for timer in others {
        session = session.device(timer, events.clone());
    }
    session.run(plan).unwrap()
}

#[test]
fn every_operation_is_tuned_once_and_the_result_has_the_plans_order() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, plan) = plan(folder.path(), 7);
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    let mut timers: Vec<ScriptedTimer> = (0..3).map(|_| ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS])).collect();
    let finished = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&finished);
    let events = Events::default().and(Arc::new(Mutex::new(move |event: &Event<'_>| {
        if let EventKind::Finished { status: "tuned", .. } = event.kind {
            count.fetch_add(1, Ordering::Relaxed);
        }
    })));
    let result = on_all(&registry, &ledger, &mut timers, &events, &plan);
    assert!(result.notes.is_empty(), "{:?}", result.notes);
    assert_eq!(finished.load(Ordering::Relaxed), 7);
    let keys: Vec<&str> = result.operations.iter().map(|operation| operation.call.call_key.as_str()).collect();
    let planned: Vec<&str> = plan.invocations.iter().map(|planned| planned.invocation.call.call_key.as_str()).collect();
    assert_eq!(keys, planned);
    for operation in &result.operations {
        assert_eq!(operation.status, Status::Tuned);
        assert_eq!(operation.best.as_ref().unwrap().config, config(1));
        assert_eq!(operation.rounds_measured, 6);
    }
    assert_eq!(Snapshot::open(&folder.path().join("cache").join(SNAPSHOT_FILE), Mapping::Never).unwrap().len(), 7);
    assert_eq!(ledger.own_entries().unwrap().len(), 7);
    drop(ledger);
    let again = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    assert_eq!(again.notes(), &[] as &[String], "log and sled agree after commits from three threads");
    assert_eq!(again.own_entries().unwrap().len(), 7);
}

#[test]
fn a_device_that_is_lost_costs_the_others_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, plan) = plan(folder.path(), 6);
    let ledger = Ledger::in_memory(vec![]);
    let broken = |_: usize, _: &str, _: u64| Err(Failure::new(FailureKind::Device, "the device fell off the bus"));
    let mut lost = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]).with_script(broken);
    lost.failing_restart = Some(1);
    let good = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]);
    let mut timers = [lost, good];
    let result = on_all(&registry, &ledger, &mut timers, &Events::default(), &plan);
    let statuses: Vec<Status> = result.operations.iter().map(|operation| operation.status).collect();
    assert_eq!(statuses, [Status::Tuned; 6], "what the lost device had begun is done by the other one");
    assert_eq!(result.entries.len(), 6);
}

#[test]
fn the_last_device_that_is_lost_says_so_for_all_that_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, plan) = plan(folder.path(), 3);
    let ledger = Ledger::in_memory(vec![]);
    let broken = |_: usize, _: &str, _: u64| Err(Failure::new(FailureKind::Device, "the device fell off the bus"));
    let mut timers: Vec<ScriptedTimer> = (0..2)
        .map(|_| {
            let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS, 8 * MS]).with_script(broken);
            timer.failing_restart = Some(1);
            timer
        })
        .collect();
    let result = on_all(&registry, &ledger, &mut timers, &Events::default(), &plan);
    assert_eq!(result.operations.len(), 3, "each operation has its line");
    for operation in &result.operations {
        assert_eq!(operation.status, Status::Failed);
        assert!(!operation.reason.is_empty());
    }
}
