//! Programs of two partitions on a real JAX with two host devices: separate parts, outputs compared as whole arrays,
//! durations from the profile; the same on plugins, in groups of devices; and refused programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::prerequisite::{plugins, python_with};
use crate::support::program::*;
use serde_json::{Value, json};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer").join(name)
}

/// A registry with one call of `hostile@v1`, a label of the module of `tests/data/cli`.
fn record(folder: &Path, candidates: &[(&str, &Path)]) {
    record_call(folder, "hostile@v1", "0123456789abcdef", candidates);
}

fn record_call(folder: &Path, op_id: &str, call_key: &str, candidates: &[(&str, &Path)]) {
    let rows: Vec<Value> =
        candidates.iter().map(|(name, file)| json!({"config": {"form": name}, "program_file": file})).collect();
    let argument = |name: &str, spec: &str, donated: bool| json!({"name": name, "spec": spec, "fill": {"kind": "normal", "scale": 1.0}, "donated": donated});
    let description = json!({
        "target": {"platform": "cpu"}, "op_id": op_id, "call_key": call_key,
        "arguments": [argument("x", "f32[64,128]", true), argument("w", "f32[128,32]", false), argument("b", "f32[32]", false)],
        "baseline": {"form": candidates[0].0}, "candidates": rows,
    });
    let file = folder.join("description.json");
    fs::write(&file, description.to_string()).unwrap();
    let registry = folder.join("registry");
    let added = run(folder, &["registry", "add", registry.to_str().unwrap(), file.to_str().unwrap()]);
    assert_eq!(added.code, 0, "{}", added.stderr);
}

/// Tunes with this many host devices.
fn tune(folder: &Path, devices: usize, timer: &str, more: &[&str]) -> Run {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli/module.mlir");
    let (module, registry) = (module.display().to_string(), folder.join("registry").display().to_string());
    let mut arguments = vec![&*module, "--registry", &registry, "--timer", timer, "--rounds", "6", "--format", "json"];
    arguments.extend(more);
    let flags = format!("--xla_force_host_platform_device_count={devices}");
    let output = command(&folder.join("cache")).args(&arguments).env("XLA_FLAGS", flags).output().unwrap();
    Run::of(output, &arguments)
}

fn operation(result: &Value) -> &Value {
    operation_of(result, "hostile@v1")
}

fn operation_of<'a>(result: &'a Value, op_id: &str) -> &'a Value {
    let operations = result["operations"].as_array().unwrap();
    operations.iter().find(|operation| operation["op_id"] == op_id).unwrap()
}

/// All candidates were measured, and the one with other outputs was dropped.
fn assert_measured(operation: &Value, run: &Run) {
    assert!(operation["rounds_measured"].as_u64() >= Some(1), "{operation}\n{}", run.stderr);
    for candidate in operation["candidates"].as_array().unwrap() {
        if candidate["config"]["form"] == "wrong" {
            assert_eq!(candidate["failure"]["kind"], "wrong-output", "{candidate}");
        } else {
            assert!(candidate["median_ns"].as_f64().unwrap() > 1000.0, "{candidate}");
        }
    }
}

/// The programs of two partitions in every form, and one with another factor in one of its outputs.
fn forms(folder: &Path) -> [(&'static str, PathBuf); 5] {
    let wrong = folder.join("wrong.mlir");
    let text = fs::read_to_string(data("sharded2.mlir")).unwrap();
    let other = text.replace("dense<2.000000e+00>", "dense<2.500000e+00>");
    assert_ne!(text, other);
    fs::write(&wrong, other).unwrap();
    [
        ("parts", data("sharded2.mlir")),
        ("bytecode", data("sharded2.mlirbc")),
        ("whole", data("sharded2_whole.mlir")),
        ("gspmd", data("sharded2_gspmd.mlir")),
        ("wrong", wrong),
    ]
}

#[test]
fn two_partitions_are_tuned_on_two_devices() {
    let Some(python) = python_with("jax") else { return };
    let folder = tempfile::tempdir().unwrap();
    let candidates = forms(folder.path());
    let candidates: Vec<(&str, &Path)> = candidates.iter().map(|(name, file)| (*name, file.as_path())).collect();
    record(folder.path(), &candidates);
    let timer = format!("jax:{}", python.display());
    let kept = folder.path().join("kept").display().to_string();
    let run = tune(folder.path(), 2, &timer, &["--keep-profiles", &kept]);
    let result = run.json();
    assert_eq!((&result["source"], &result["metric"]), (&"device-profile".into(), &"span".into()), "{}", run.stderr);
    assert_measured(operation(&result), &run);
    // the profiles alone give the same
    fs::rename(folder.path().join("cache"), folder.path().join("cache of the timer")).unwrap();
    let again = tune(folder.path(), 1, &format!("replay:{kept}"), &[]);
    let medians = |run: &Run| -> Vec<Value> {
        let result = run.json();
        let candidates = self::operation(&result)["candidates"].as_array().unwrap();
        candidates.iter().map(|candidate| candidate["median_ns"].clone()).collect()
    };
    assert_eq!(medians(&again), medians(&run), "{}", again.stderr);
}

#[test]
fn a_list_of_devices_falls_into_groups() {
    for plugin in plugins() {
        let folder = tempfile::tempdir().unwrap();
        let candidates = forms(folder.path());
        let candidates: Vec<(&str, &Path)> = candidates.iter().map(|(name, file)| (*name, file.as_path())).collect();
        record(folder.path(), &candidates);
        record_call(folder.path(), "steady@v1", "fedcba9876543210", &candidates);
        let (plugin, trace) = (plugin.display().to_string(), folder.path().join("run.json").display().to_string());
        let eight = ["--plugin", &plugin, "--client-option", "cpu_device_count=8", "--trace-run", &trace];
        let run = tune(folder.path(), 1, "pjrt", &[&eight[..], &["--devices", "0-7"]].concat());
        assert!([0, 1].contains(&run.code), "{}", run.stderr);
        let result = run.json();
        for op_id in ["hostile@v1", "steady@v1"] {
            assert_measured(operation_of(&result, op_id), &run);
        }
        // eight devices, two for each
        let trace = fs::read_to_string(&trace).unwrap();
        let tuners: Vec<bool> = (1..=8).map(|tuner| trace.contains(&format!("\"tuner {tuner}\""))).collect();
        assert_eq!(tuners, [true, true, true, true, false, false, false, false]);
    }
}

#[test]
fn too_few_devices_and_other_timers_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let (parts, bytecode) = (data("sharded2_whole.mlir"), data("sharded2.mlirbc"));
    record(folder.path(), &[("bytecode", &bytecode), ("whole", &parts)]);
    let failure = |run: &Run| {
        let result = run.json();
        let failure = operation(&result)["failure"].clone();
        assert_eq!(failure["kind"], "device", "{result}\n{}", run.stderr);
        failure["message"].as_str().unwrap().to_owned()
    };
    for plugin in plugins() {
        let plugin = plugin.display().to_string();
        let tune = |more: &[&str]| tune(folder.path(), 1, "pjrt", &[&["--plugin", &*plugin], more].concat());
        // not enough devices for all partitions: they are spread over several hosts
        let hosts = tune(&[]);
        assert_eq!(hosts.code, BAD_INPUT, "{}", hosts.stderr);
        assert_eq!(
            hosts.fault(),
            "autotune-lowered: `hostile@v1:0123456789abcdef` has a program of 2 partitions, and 1 device is here: use \
             `compile --target` for programs that run on several hosts; `--client-option cpu_device_count=2` makes as \
             many of a CPU"
        );
        let eight = ["--client-option", "cpu_device_count=8"];
        let last = tune(&[&eight[..], &["--device", "7"]].concat());
        assert_eq!(last.code, DEVICE_TROUBLE, "{}", last.stderr);
        assert!(failure(&last).contains("needs as many devices, from number 7 on; 8 are there"), "{}", last.stdout);
        for list in ["0-6", "0,2", "1"] {
            let run = tune(&[&eight[..], &["--devices", list]].concat());
            assert_eq!(run.code, USAGE, "{list}: {}", run.stderr);
            let expected = "`--devices`: `hostile@v1:0123456789abcdef` has a program of 2 partitions";
            assert!(run.fault().contains(expected), "{}", run.fault());
        }
    }
    let measured = run(folder.path(), &["measure", bytecode.to_str().unwrap()]);
    assert!(measured.code != 0 && measured.fault().contains("is a program of 2 partitions"), "{}", measured.stderr);
    let Some(python) = python_with("jax") else { return };
    let message = failure(&tune(folder.path(), 1, &format!("jax:{}", python.display()), &[]));
    assert!(message.contains("2 partitions") && message.contains("number 0 on; 1 are there"), "{message}");
    assert!(message.contains("XLA_FLAGS=--xla_force_host_platform_device_count=2"), "{message}");
}
