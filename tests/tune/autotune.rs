//! A module tuned in one call, with simulated times.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use autotune_lowered::autotune::{Autotune, AutotuneError};
use autotune_lowered::timer::ReplayTimer;
use autotune_lowered::timer::events::{Event, EventKind, Events};
use autotune_lowered::tune::{AutotuningResult, PlanOptions, Status};
use serde_json::Value;

const MODULE: &str = "module.hlo.txt";
const CALL: (&str, &str) = ("blocked_matmul@v1", "4a92df18023cfca8");

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/transformer").join(name)
}

fn timer() -> ReplayTimer {
    ReplayTimer::open(&example("simulated.json")).unwrap()
}

/// A run's result, and how many rounds it measured.
fn run(autotune: Autotune) -> (AutotuningResult, u32) {
    let rounds = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&rounds);
    let events = Events::default().and(Arc::new(Mutex::new(move |event: &Event<'_>| {
        *counted.lock().unwrap() += u32::from(matches!(event.kind, EventKind::Round { .. }));
    })));
    let result = autotune.events(events).run(&mut timer()).unwrap();
    let rounds = *rounds.lock().unwrap();
    (result, rounds)
}

/// The config with the least time of each simulated call, by call and in the recording's own words.
fn fastest() -> Vec<(String, Value)> {
    let recording: Value = serde_json::from_slice(&fs::read(example("simulated.json")).unwrap()).unwrap();
    let least = |candidate: &Value| candidate["epochs"][0].as_array().unwrap().iter().map(|ns| ns.as_u64()).min();
    let of_call = |call: &Value| {
        let best = call["candidates"].as_array().unwrap().iter().min_by_key(|candidate| least(candidate)).unwrap();
        let name = format!("{}:{}", call["op_id"].as_str().unwrap(), call["call_key"].as_str().unwrap());
        (name, best["config"].clone())
    };
    recording["invocations"].as_array().unwrap().iter().map(of_call).collect()
}

#[test]
fn a_cache_folder_keeps_what_one_call_decided() {
    let folder = tempfile::tempdir().unwrap();
    let autotune = Autotune::module(example(MODULE)).cache(folder.path().join("cache"));
    let (first, rounds) = run(autotune.clone());
    let best = |result: &AutotuningResult| {
        let best = result.operations.iter().map(|of| {
            let config = serde_json::to_value(&of.to_use().config).unwrap();
            (of.call.to_string(), config)
        });
        best.collect::<Vec<_>>()
    };
    let mut expected = fastest();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    // both directions are recorded, with the same times
    expected.dedup();
    assert_eq!((best(&first), first.operations.len()), (expected, 4));
    assert!(rounds > 0 && first.operations.iter().all(|operation| operation.status == Status::Tuned));

    let (again, rounds) = run(autotune);
    assert_eq!((best(&again), rounds), (best(&first), 0), "nothing is measured again");
    assert!(again.operations.iter().all(|operation| operation.status == Status::Cached), "{again}");
    assert!(again.to_string().lines().filter(|line| line.contains("cached")).count() == 4, "{again}");

    // without a cache it is decided for the caller alone
    let (alone, rounds) = run(Autotune::module(example(MODULE)).registry(example("registry")));
    assert_eq!(best(&alone), best(&first));
    assert!(rounds > 0);
}

#[test]
fn what_is_not_there_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let message = |autotune: Autotune| {
        let message = autotune.run(&mut timer()).unwrap_err().to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    };
    let missing = folder.path().join("missing.mlir");
    assert!(message(Autotune::module(&missing)).contains("missing.mlir`: no such file"));
    // a module beside which there is no registry
    let module = folder.path().join(MODULE);
    fs::copy(example(MODULE), &module).unwrap();
    let beside = folder.path().join("registry");
    assert!(message(Autotune::module(&module)).contains(&format!("no registry `{}`", beside.display())));
    // a file where the cache should be
    let named = Autotune::module(&module).registry(example("registry"));
    assert!(matches!(named.clone().cache(&module).run(&mut timer()), Err(AutotuneError::Cache(_))));
    let only = PlanOptions::default().only(vec!["softmax@v1".to_owned()]);
    assert!(message(named.clone().plan(only)).contains("softmax@v1"));
    // without a label, and cut short
    let text = fs::read_to_string(&module).unwrap();
    fs::write(&module, "HloModule empty\n\nENTRY main {\n  ROOT x = f32[] parameter(0)\n}\n").unwrap();
    assert!(matches!(named.run(&mut timer()), Err(AutotuneError::Unusable { .. })));
    fs::write(&module, &text[..text.len() / 2]).unwrap();
    assert!(message(named).contains("is cut short"));
}

#[test]
fn a_result_is_asked_by_call() {
    let only = PlanOptions::default().only(vec![CALL.0.to_owned()]);
    let (result, _) = run(Autotune::module(example(MODULE)).plan(only));
    let operation = result.operation(CALL.0, CALL.1).unwrap();
    assert_eq!((operation.call.op_id.as_str(), operation.call.call_key.as_str()), CALL);
    let (_, fastest) = fastest().into_iter().find(|(call, _)| *call == format!("{}:{}", CALL.0, CALL.1)).unwrap();
    assert_eq!(serde_json::to_value(&operation.to_use().config).unwrap(), fastest);
    let error = result.operation(CALL.0, "0000000000000000").unwrap_err().to_string();
    assert!(error.contains(":0000000000000000") && error.contains(CALL.1) && !error.contains('\n'), "{error}");
}
