//! Recorders that hang, and a user who ends the run meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::simulated_tpu::Tpu;
use crate::support::prerequisite::python3;
use crate::support::program::*;

const MODULE: &str = "tests/data/cli/module.mlir";

/// A registry with a call of three configs, of which the baseline alone is lowered.
fn registry_on_demand(place: &Place, platform: &str) -> String {
    let program = place.file("program.mlir", fs::read("tests/data/timer/add.mlir").unwrap());
    let argument = |name: &str| json!({"name": name, "spec": "f32[4]", "fill": {"kind": "normal", "scale": 1.0}});
    let mut candidates = vec![json!({"config": {"q": 0, "kv": 0}, "program_file": program})];
    candidates.extend((1..3).map(|q| json!({"config": {"q": q, "kv": 0}})));
    let description = json!({
        "target": {"platform": platform}, "op_id": "hostile@v1", "call_key": "0123456789abcdef",
        "arguments": [argument("x"), argument("y")], "recorder": "tests", "baseline": {"q": 0, "kv": 0},
        "static_arguments": {"lowered": "on-demand"}, "candidates": candidates,
    });
    let (file, registry) = (place.file("description.json", description.to_string()), place.text("registry"));
    let added = place.run(&["registry", "add", &registry, &file]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    registry
}

/// The options of a run whose recorder hangs; its own time limit is the longest there is.
fn hanging_recorder(place: &Place, registry: &str, mode: &str) -> [String; 6] {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/recorder.py");
    let recorder = format!("{} {} {registry} {} {mode}", python3(), script.display(), place.text("log"));
    ["--registry", registry, "--recorder", &recorder, "--timeout", "86400"].map(str::to_owned)
}

/// Starts a run, ends it with the signal when its recorder hangs, and asserts that no process is left.
fn ended_while_it_hangs(place: &Place, command: &mut Command, signal: Signal) -> Run {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let processes = place.path("log.processes");
    let hangs = || fs::read_to_string(&processes).is_ok();
    let mut child = child;
    while !hangs() {
        if child.try_wait().unwrap().is_some() {
            panic!("it ended: {}", String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let begin = Instant::now();
    kill_process(Pid::from_child(&child), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    // a second or two; the machine may be busy
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    // its supervisor, itself, and what it started
    let ids = fs::read_to_string(&processes).unwrap();
    let left: Vec<&str> = ids.split(' ').filter(|id| Path::new("/proc").join(id).exists()).collect();
    assert!(ids.split(' ').count() == 3 && left.is_empty(), "{left:?} of {ids}");
    fs::remove_file(processes).unwrap();
    let run = Run::of(output, &[]);
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    run
}

#[test]
fn tune_does_not_wait_for_a_recorder_that_hangs() {
    let place = Place::new();
    let registry = registry_on_demand(&place, "cpu");
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli/worker.py");
    let timer = format!("command:{} '{}' none '{}'", python3(), worker.display(), place.text("processes"));
    for (mode, signal) in [("mute", Signal::INT), ("mute", Signal::TERM), ("silent", Signal::INT)] {
        let mut command = command(&place.path("cache"));
        command.arg(MODULE).args(hanging_recorder(&place, &registry, mode)).args(["--timer", &timer]);
        let run = ended_while_it_hangs(&place, command.args(["--format", "json"]), signal);
        assert_eq!(run.code, 130, "{mode}: {}", run.stderr);
        let result = run.json();
        assert_eq!(result["interrupted"], true, "{mode}: {result}");
        assert_eq!(result["operations"][0]["status"], "interrupted", "{mode}: {result}");
    }
}

#[test]
fn compile_does_not_wait_for_a_recorder_that_hangs() {
    let tpu = Tpu::new();
    let registry = registry_on_demand(&tpu.place, "tpu");
    for (mode, signal) in [("mute", Signal::INT), ("silent", Signal::TERM)] {
        let recorder = hanging_recorder(&tpu.place, &registry, mode);
        let words: Vec<&str> = recorder.iter().map(String::as_str).chain(["--format", "json"]).collect();
        let run = ended_while_it_hangs(&tpu.place, &mut tpu.command(MODULE, &words, ""), signal);
        assert_eq!(run.code, 130, "{mode}: {}", run.stderr);
        // nobody tried the others, which is no failure
        let candidates = run.json()["targets"][0]["calls"][0]["candidates"].clone();
        assert!(candidates.as_array().unwrap().iter().all(|one| one["status"].is_null()), "{mode}: {candidates}");
        assert!(run.stderr.contains("interrupted, 0 of 3 programs compiled; run again to go on"), "{}", run.stderr);
    }
}
