//! `compare`: files that are not programs, and a program beside itself on a real plugin.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use crate::support::prerequisite::plugin;
use crate::support::program::*;

const PROGRAM: &str = "tests/data/timer/add.mlir";

#[test]
fn files_that_are_no_programs_get_one_line() {
    let place = Place::new();
    let (zero, fifo) = (place.path("zero"), place.path("fifo"));
    std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for file in ["missing.mlir", zero.to_str().unwrap(), fifo.to_str().unwrap()] {
        let run = place.run(&["compare", PROGRAM, file]);
        assert_eq!(run.code, BAD_INPUT, "{}", run.stderr);
        assert!(run.fault().contains(file), "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
    let alone = place.run(&["compare", PROGRAM]);
    assert_eq!(alone.code, USAGE, "{}", alone.stderr);
    assert!(alone.stderr.contains("two or more"), "{}", alone.stderr);
}

#[test]
fn a_program_beside_itself_with_an_option() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let option = "xla_cpu_enable_fast_math=False";
    let plugin = plugin.display().to_string();
    let given = ["compare", PROGRAM, PROGRAM, "--options", option, "--plugin", &plugin, "--rounds", "6"];
    let run = place.run(&[&given[..], &["--timer", "pjrt", "--format", "json"]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let found = run.json();
    let [first, second] = found["contestants"].as_array().unwrap().as_slice() else { panic!("{found}") };
    assert_eq!(first["outputs"]["status"], "reference");
    // a sum of two has one result, whatever the compiler may do
    assert_eq!(second["outputs"], serde_json::json!({"status": "equal", "max_error": 0.0}));
    assert_eq!(second["options"]["xla_cpu_enable_fast_math"], "False");
    assert_eq!(first["program"], second["program"]);
    assert!(second["ratio"].as_f64().unwrap() > 0.0, "{found}");
    assert!(found["rounds"].as_u64().unwrap() >= 6 && found["noise"]["ratio"].is_number(), "{found}");
}
