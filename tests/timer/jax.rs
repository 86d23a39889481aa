//! The `jax` worker on a real JAX: it follows the protocol, and the main job decides by device time from profiles.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::path::Path;

use crate::support::executable::write_executable;
use crate::support::prerequisite::python_with;
use crate::support::program::*;

#[test]
fn the_jax_worker_conforms() {
    let Some(python) = python_with("jax") else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/autotune_lowered/worker.py");
    let run = run(folder.path(), &["worker", "check", &format!("{} {}", python.display(), script.display())]);
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("`measure-round` gives a profile of every run"), "{}", run.stdout);
}

#[test]
fn a_python_without_jax_is_told_what_to_install() {
    let place = Place::new();
    let python = place.path("python");
    // ignores the packages of all environments
    write_executable(&python, "#!/bin/sh\nexec python3 -I -S \"$@\"\n");
    let run = place.run(&[&module(), "--timer", &format!("jax:{}", python.display())]);
    assert_eq!(run.code, DEVICE_TROUBLE, "{}", run.stderr);
    assert!(run.fault().contains("-m pip install jax"), "{}", run.fault());
}

#[test]
fn the_main_job_decides_on_device_time() {
    let Some(python) = python_with("jax") else { return };
    let folder = tempfile::tempdir().unwrap();
    let timer = format!("jax:{}", python.display());
    let logs = folder.path().join("logs");
    let kept = ["--keep-profiles", logs.to_str().unwrap(), "--profile-every", "1", "--profiles-kept", "2"];
    let module = small_module();
    let only = ["--only", SMALL_CALL];
    let arguments =
        [&[&*module, "--timer", &timer, "--rounds", "6", "--format", "json"], &only[..], &kept[..]].concat();
    let run = run(&folder.path().join("cache"), &arguments);
    assert_eq!(run.code, 0, "{}", run.stderr);
    // the last round's profile names the candidates that ran in it, including the baseline
    assert_eq!(std::fs::read_dir(logs.join("plugins/profile")).unwrap().count(), 2);
    for capture in autotune_lowered::profile::captures(&logs).unwrap() {
        let bytes = std::fs::read(&capture.path).unwrap();
        let named = |name: &str| bytes.windows(name.len()).any(|window| window == name.as_bytes());
        assert!(named("autotune-lowered candidate 0"), "{}", capture.path.display());
    }
    let result = run.json();
    assert_eq!((&result["source"], &result["metric"]), (&"device-profile".into(), &"span".into()));
    for operation in result["operations"].as_array().unwrap() {
        assert!(operation["rounds_measured"].as_u64() >= Some(1), "{operation}");
        let candidates = operation["candidates"].as_array().unwrap();
        assert!(candidates.iter().all(|candidate| candidate["median_ns"].as_f64().unwrap() > 1000.0), "{operation}");
        // the parts of a sum need memory, and a product of 128 × 128 by 128 × 64 has this many operations without that
        // sum
        assert!(candidates.iter().any(|candidate| candidate["temporary_bytes"].as_u64() > Some(0)), "{operation}");
        // the product and, backward, one for each of its factors
        let flops = operation["best"]["work"]["flops"].as_f64().unwrap() / (3.0 * 2.0 * 128.0 * 128.0 * 64.0);
        assert!((1.0..1.1).contains(&flops), "{flops}: {operation}");
    }
}

/// Profiles slow each operation of a CPU down: there, `--timer auto` uses JAX's compiler and the host clock.
#[test]
fn on_a_cpu_auto_takes_jax_and_the_host_clock() {
    let Some(python) = python_with("jax") else { return };
    let folder = tempfile::tempdir().unwrap();
    let environment = python.parent().and_then(Path::parent).unwrap();
    let auto = |cache: &str, more: &[&str]| {
        let module = small_module();
        // nothing gains that much: the decision does not depend on how busy the machine is
        let words = ["--only", SMALL_CALL, "--rounds", "6", "--min-improvement", "0.9", "--format", "json"];
        let words = [&[&*module], &words[..], more].concat();
        let run = ended(command(&folder.path().join(cache)).args(words).env("VIRTUAL_ENV", environment));
        assert!(run.code == 0 && run.stderr.contains("the timer is `jax`"), "{}", run.stderr);
        run
    };
    let by_clock = auto("cache", &[]);
    let result = by_clock.json();
    let notes = result["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().starts_with("timed by the host clock: ")), "{result}");
    assert_eq!((&result["source"], &result["metric"]), (&"host-wall".into(), &"elapsed".into()));
    let operation = &result["operations"][0];
    assert!(operation["rounds_measured"].as_u64() >= Some(6), "{operation}");
    let candidates = operation["candidates"].as_array().unwrap();
    assert!(candidates.iter().all(|candidate| candidate["median_ns"].as_f64().unwrap() > 1000.0), "{operation}");
    // by its name it is the same timer
    let timer = format!("jax:{}", python.display());
    let named =
        [&*small_module(), "--only", SMALL_CALL, "--timer", &timer, "--rounds", "6", "--min-improvement", "0.9"];
    let named = run(&folder.path().join("cache"), &named);
    assert!(named.code == 0 && named.stderr.contains("nothing measured"), "{}", named.stderr);
    // keeping profiles requires a timer that takes them
    let kept = folder.path().join("kept").display().to_string();
    let keeps = auto("cache", &["--force", "--dry-run", "--keep-profiles", &kept]);
    assert_eq!(keeps.json()["source"], "device-profile");
}

/// `tests/python/test_worker.py` shows, inside the worker, that the caches are flushed before every run.
#[test]
fn cold_caches_show_in_what_is_measured_and_in_the_provenance() {
    let Some(python) = python_with("jax") else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/column_sums.mlir");
    let timer = format!("jax:{}", python.display());
    let program = program.display().to_string();
    for state in ["cold", "warm"] {
        let words =
            ["measure", &program, "--timer", &timer, "--cache-state", state, "--iterations", "3", "--format", "json"];
        let run = run(folder.path(), &words);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let document = run.json();
        assert_eq!(document["cache_state"], state);
        assert!(document["quartiles_ns"][0].as_f64().unwrap() > 1000.0, "{document}");
    }

    let cache = folder.path().join("cache");
    // no config is that much faster, so that no fresh process needs to flush the caches as well
    let words = ["--rounds", "6", "--cache-state", "cold", "--min-improvement", "0.99", "--only", SMALL_CALL];
    let tuned = run(&cache, &[&[small_module().as_str(), "--timer", &timer], &words[..]].concat());
    assert_eq!(tuned.code, 0, "{}", tuned.stderr);
    let listed = run(&cache, &["cache", "ls", "--format", "json"]).json();
    let entries = listed["entries"].as_array().unwrap();
    assert!(!entries.is_empty(), "{listed}");
    assert!(entries.iter().all(|entry| entry["provenance"]["cache_state"] == "cold"), "{listed}");
}
