//! `selftest` as a user starts it, on a real plugin.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::prerequisite::plugin;
use crate::support::program::*;
use serde_json::{Value, json};

const FILE: &str = "selftest-v1.json";

fn names(document: &Value) -> Vec<&str> {
    document["programs"].as_array().unwrap().iter().map(|point| point["program"].as_str().unwrap()).collect()
}

#[test]
fn programs_are_run_against_themselves_and_the_figures_kept() {
    let Some(plugin) = plugin() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let small = ["--copies", "3", "--rounds", "6", "--processes", "3", "--plugin", plugin.to_str().unwrap()];
    let own = run(&cache, &[&["selftest", "--format", "json"], &small[..]].concat());
    assert_eq!(own.code, 0, "{}", own.stderr);
    let document = own.json();
    assert_eq!(names(&document), ["elementwise", "matmul", "large-matmul", "reduction"]);
    for point in document["programs"].as_array().unwrap() {
        let number = |name: &str| point[name].as_f64().unwrap();
        // the noise floor of a busy machine may be high: this requires a number, but not that of a calm machine
        assert!(number("median_ns") > 1000.0 && number("resolution") >= 0.0, "{point}");
        assert!(number("claimed") > 0.0 && number("rounds") >= 6.0 && number("copies") == 3.0, "{point}");
        let wins = &point["false_wins"];
        // the six pairs over all rounds, and over each half with enough of them: a short program has time for more
        // rounds, and on a busy machine some of those do not count
        assert!([6, 12, 18].contains(&wins["decisions"].as_u64().unwrap()), "{point}");
        assert!(wins["at_default"].as_u64() <= wins["at_zero"].as_u64(), "{point}");
    }
    let kept: Value = serde_json::from_slice(&fs::read(cache.join(FILE)).unwrap()).unwrap();
    assert_eq!(kept["entries"][0]["points"], document["programs"]);
    assert_eq!(document["kept_in"], json!(cache.join(FILE)));

    // also a program of the user's, measured twice
    for _ in 0..2 {
        let more = run(&cache, &[&["selftest", "tests/data/timer/add.mlir"], &small[..]].concat());
        assert_eq!(more.code, 0, "{}", more.stderr);
        assert!(
            more.stdout.contains("noise floor") && more.stdout.contains("tests/data/timer/add.mlir"),
            "{}",
            more.stdout
        );
        assert!(more.stderr.contains("\ntests/data/timer/add.mlir: 3 programs"), "{}", more.stderr);
    }
    let kept: Value = serde_json::from_slice(&fs::read(cache.join(FILE)).unwrap()).unwrap();
    assert_eq!(kept["entries"].as_array().unwrap().len(), 1, "{kept}");
    assert_eq!(kept["entries"][0]["points"].as_array().unwrap().len(), 5, "{kept}");
    // the main job on the same plugin finds them
    let tuned = run(&cache, &[&module(), "--plugin", plugin.to_str().unwrap(), "--dry-run", "--format", "json"]);
    let notes = tuned.json()["notes"].to_string();
    assert!(notes.contains("noise floor here, by `selftest`"), "{notes}");
    let elapsed = ["selftest", "--metric", "span", "--plugin", plugin.to_str().unwrap()];
    assert_eq!(run(&cache, &elapsed).code, 5, "a plugin without a profiler has no span");
}

#[test]
fn a_program_that_the_compiler_refuses_is_one_line() {
    let Some(plugin) = plugin() else { return };
    let folder = tempfile::tempdir().unwrap();
    let refused = folder.path().join("refused.mlir");
    fs::write(
        &refused,
        "module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<5xf32> { return %x : tensor<4xf32> } }",
    )
    .unwrap();
    let other = folder.path().join("other");
    let arguments = ["selftest", refused.to_str().unwrap(), "--plugin", plugin.to_str().unwrap()];
    let run = run(&other, &arguments);
    assert_eq!(run.code, 4, "{}", run.stderr);
    assert!(run.fault().contains("refused.mlir"), "{}", run.fault());
    assert!(!other.join(FILE).exists(), "there is nothing to keep");
}

#[test]
fn ctrl_c_keeps_what_is_found() {
    let Some(plugin) = plugin() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let arguments = ["selftest", "--copies", "2", "--rounds", "50", "--format", "json", "--plugin"];
    let mut child =
        command(&cache).args(arguments).arg(&plugin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let found = lines.any(|line| line.contains("[3/4] large-matmul: round 10 of 50"));
    assert!(found, "the third program was not reached");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((names(&document), &document["interrupted"]), (vec!["elementwise", "matmul"], &json!(true)));
    assert!(cache.join(FILE).exists());
}
