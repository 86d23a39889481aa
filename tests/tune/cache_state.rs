//! Warm and cold caches, unlocked and locked clocks in a tuning run, with a simulated timer: samples of one condition
//! are never used for another.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::scripted::*;
use autotune_lowered::cache::ConfigStore;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measured_by::{CacheState, Clocks};
use autotune_lowered::tune::{Status, TuneOptions};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;

#[test]
fn cold_samples_are_their_own_and_the_entry_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    let run = |ns: [u64; 3], cache_state| {
        let options = TuneOptions::default().cache_state(cache_state);
        let mut timer = ScriptedTimer::new(&ns);
        let result = tune(&registry, &invocation, &mut timer, &ledger, &options, None).unwrap();
        let entries = ledger.cache().memory().entries().unwrap();
        let provenance = serde_json::to_value(entries[0].1.provenance.as_ref().unwrap()).unwrap();
        (result.operations[0].clone(), provenance)
    };
    let (operation, warm) = run([10 * MS, 8 * MS, 5 * MS], CacheState::Warm);
    assert_eq!(operation.best.unwrap().config, config(2));
    assert_eq!(warm.get("cache_state"), None, "absent when warm");
    let (operation, cold) = run([10 * MS, 6 * MS, 9 * MS], CacheState::Cold);
    assert_eq!((operation.status, operation.rounds_kept), (Status::Tuned, 0), "nothing warm counts");
    assert_eq!(operation.best.unwrap().config, config(1));
    assert_eq!(cold["cache_state"], json!("cold"));
    assert_ne!(cold["job"], warm["job"]);
    // back to warm: the warm samples still exist
    let (operation, again) = run([1, 1, 1], CacheState::Warm);
    assert_eq!(operation.best.unwrap().config, config(2));
    assert_eq!((again["job"].clone(), again.get("cache_state")), (warm["job"].clone(), None::<&Value>));
}

#[test]
fn samples_of_set_clocks_are_their_own_and_free_ones_are_as_those_that_nobody_told() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 3, &distinct_program);
    let ledger = Ledger::open(&folder.path().join("cache"), vec![]).unwrap();
    let run = |ns: [u64; 3], clocks| {
        let mut timer = ScriptedTimer::new(&ns);
        timer.info.clocks = clocks;
        let result = tune(&registry, &invocation, &mut timer, &ledger, &TuneOptions::default(), None).unwrap();
        let entries = ledger.cache().memory().entries().unwrap();
        let provenance = serde_json::to_value(entries[0].1.provenance.as_ref().unwrap()).unwrap();
        (result.operations[0].clone(), provenance)
    };
    let told = |sm_mhz| Some(Clocks { sm_mhz, memory_mhz: 2619, max_sm_mhz: 1980, max_memory_mhz: 2619 });
    let (_, unknown) = run([10 * MS, 8 * MS, 5 * MS], None);
    assert_eq!(unknown.get("clocks"), None, "absent where nobody told");
    let (operation, free) = run([1, 1, 1], told(1980));
    assert_eq!((operation.status, &free["job"]), (Status::Cached, &unknown["job"]));
    let (operation, set) = run([10 * MS, 6 * MS, 9 * MS], told(1410));
    assert_eq!((operation.status, operation.rounds_kept), (Status::Tuned, 0), "nothing free counts");
    assert_eq!((operation.best.unwrap().config, &set["clocks"]["sm_mhz"]), (config(1), &json!(1410)));
    assert_ne!(set["job"], unknown["job"]);
}
