//! `--compiled`: executables that were compiled without the device. No CPU plugin does that, so the test gives a run's
//! executables the keys of such ones, and signs them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use autotune_lowered::signature::{PrivateKey, Signer};
use serde_json::Value;

use crate::support::compiled_elsewhere::as_compiled_elsewhere;
use crate::support::prerequisite::plugin;
use crate::support::program::*;

#[test]
fn what_was_compiled_elsewhere_is_loaded_from_who_is_trusted_and_refusals_are_out() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let (key, _) = PrivateKey::generate(&place.path("key")).unwrap();
    let signer = Signer::Key(key);
    let module = small_module();
    let plugin = plugin.display().to_string();
    let tune = |cache: &str, arguments: &[&str]| {
        let fixed = [&*module, "--plugin", &plugin, "--thorough", "--rounds", "6", "--format", "json"];
        run(&place.path(cache), &[&fixed, &["--only", SMALL_CALL][..], arguments].concat())
    };
    let first = tune("first", &[]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let programs = as_compiled_elsewhere(&place.path("first"), &place.path("store"), &signer, |_, _| {});
    assert!(programs >= 6, "{programs}");
    let (store, keys) = (place.text("store"), place.text("key.pub"));
    let compiled = |run: &Run| {
        let spent = run.json()["operations"][0]["time_breakdown"].clone();
        (spent["compile_baselines_ns"].as_u64().unwrap(), spent["compile_candidates_ns"].as_u64().unwrap())
    };
    assert!(compiled(&first).1 > 0);

    let trusted = tune("second", &["--compiled", &store, "--verify-key", &keys]);
    assert_eq!((trusted.code, compiled(&trusted)), (0, (0, 0)), "{}", trusted.stderr);
    let statuses = |run: &Run| {
        let candidates = run.json()["operations"][0]["candidates"].as_array().unwrap().clone();
        candidates.into_iter().map(|one| (one["status"].clone(), one["failure"].clone())).collect::<Vec<_>>()
    };
    assert!(statuses(&trusted).iter().all(|(status, _)| status == "measured"), "{:?}", statuses(&trusted));

    // a compiler without a device numbers its devices from zero
    let second = ["--client-option", "cpu_device_count=2", "--device", "1"];
    let moved = tune("moved", &[&second[..], &["--compiled", &store, "--verify-key", &keys]].concat());
    assert_eq!((moved.code, compiled(&moved)), (0, (0, 0)), "{}", moved.stderr);
    assert!(statuses(&moved).iter().all(|(status, _)| status == "measured"), "{:?}", statuses(&moved));

    // native code of an unknown signer is not loaded, with a message
    let unknown = tune("third", &["--compiled", &store]);
    assert!(unknown.code == 0 && compiled(&unknown).1 > 0, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("are compiled again here"), "{}", unknown.stderr);

    // an executable that this device rejects is compiled here
    as_compiled_elsewhere(&place.path("first"), &place.path("cut"), &signer, |number, header| {
        if number == 1 {
            header["payload_bytes"] = 64.into();
        }
    });
    let cut = tune("cut-cache", &["--compiled", &place.text("cut"), "--verify-key", &keys]);
    assert_eq!(cut.code, 0, "{}", cut.stderr);
    assert!(cut.stderr.contains("compiled here, because the device does not accept its executable"), "{}", cut.stderr);
    assert!(statuses(&cut).iter().all(|(status, _)| status == "measured"), "{:?}", statuses(&cut));

    let refused = as_compiled_elsewhere(&place.path("first"), &place.path("refusing"), &signer, |number, header| {
        if number == 2 {
            header["note"]["refused"] = "Shared memory size limit exceeded".into();
            header["payload_bytes"] = 0.into();
        }
    });
    assert_eq!(refused, programs);
    let refusing = tune("fourth", &["--compiled", &place.text("refusing"), "--verify-key", &keys]);
    let told = "refused by the compiler without a device: Shared memory size limit exceeded";
    let failures = statuses(&refusing);
    let is_told = |failure: &Value| failure["message"].as_str().is_some_and(|message| message.contains(told));
    let operation = refusing.json()["operations"][0].clone();
    let of_baseline = operation["failure"]["message"].as_str().is_some_and(|message| message.contains(told));
    assert!(of_baseline || failures.iter().filter(|(_, failure)| is_told(failure)).count() == 1, "{operation}");

    // nothing to load, and a folder that is no store
    fs::create_dir_all(place.path("empty/executables-v1")).unwrap();
    let empty = tune("fifth", &["--compiled", &place.text("empty"), "--dry-run"]);
    assert!(empty.code == 0 && empty.stderr.contains("has nothing: everything is compiled here"), "{}", empty.stderr);
    for none in ["none", "file"] {
        let _ = fs::write(place.path("file"), "");
        let run = tune("fifth", &["--compiled", &place.text(none), "--dry-run"]);
        assert!(run.code == 4 && run.fault().contains("not a store of compiled programs"), "{}", run.stderr);
    }
}

#[test]
fn what_a_run_would_take_is_said_before_it() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let (module, plugin) = (small_module(), plugin.display().to_string());
    let fixed = [&*module, "--plugin", &plugin, "--only", SMALL_CALL, "--format", "json"];
    let note = |arguments: &[&str]| {
        let run = place.run(&[&fixed, arguments].concat());
        let notes = run.json()["notes"].as_array().unwrap().clone();
        notes.iter().filter_map(Value::as_str).find(|note| note.contains("to compile at most")).map(str::to_owned)
    };
    let before = note(&["--dry-run"]).unwrap();
    assert!(before.ends_with("nothing was compiled for this device before") && before.contains(", 0 kept"), "{before}");
    assert_eq!(note(&["--thorough", "--rounds", "6"]), None);
    let after = note(&["--dry-run", "--force"]).unwrap();
    assert!(after.starts_with("0 programs to compile at most") && after.ends_with("nothing is compiled"), "{after}");
}

#[test]
fn launches_are_chosen_for_gpus_alone() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let run = place.run(&[&module(), "--plugin", &plugin.display().to_string(), "--launch", "eager", "--dry-run"]);
    assert!(run.code == 2 && run.fault().contains("`--launch` is for GPUs"), "{}", run.stderr);
}
