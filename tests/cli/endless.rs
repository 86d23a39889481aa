//! Compilers that never end with one program, with the limit that users get: it rests on half a minute, so each of these
//! takes one. `AUTOTUNE_LOWERED_TEST_ENDLESS` asks for them (`.ci/full survival`); `tests/timer/endless.rs` has them
//! with a shorter limit.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use serde_json::{Value, json};

use crate::simulated_tpu::{Tpu, registry_of};
use crate::support::pjrt::NamedTimes;
use crate::support::prerequisite::{Promised, present};
use crate::support::program::*;

const MODULE: &str = "tests/data/cli/module.mlir";

/// Five are compiled before the limit follows them.
const FIRST: usize = 6;

fn is_asked_for() -> bool {
    let asked = std::env::var_os("AUTOTUNE_LOWERED_TEST_ENDLESS");
    present(asked.ok_or("AUTOTUNE_LOWERED_TEST_ENDLESS does not ask for two minutes"), Promised::ByNobody).is_some()
}

#[track_caller]
fn assert_told(message: &str) {
    let told = "timeout: no answer to `compile` within 60s, the time limit of a compilation, twice as long as nine in \
                ten took here; `--timeout` gives it more";
    assert!(message.contains(told), "{message}");
}

#[test]
fn compile_names_the_program_that_hangs_and_compiles_the_others() {
    if !is_asked_for() {
        return;
    }
    let tpu = Tpu::new();
    let registry = registry_of(&tpu.place, &[&["fine"; FIRST][..], &["endless", "fine"]].concat());
    let words = ["--registry", &registry, "--compile-jobs", "1", "--format", "json"];
    let run = tpu.compile(MODULE, &words, "");
    assert_eq!(run.code, SOME_FAILED, "{}", run.stderr);
    let candidates = run.json()["targets"][0]["calls"][0]["candidates"].as_array().unwrap().clone();
    for (number, candidate) in candidates.iter().enumerate() {
        if number == FIRST {
            assert_eq!(candidate["status"], "failed", "{candidate}");
            assert_told(candidate["reason"].as_str().unwrap());
        } else {
            assert_eq!(candidate["status"], "compiled", "{candidate}");
        }
    }
}

#[test]
fn tune_names_the_candidate_that_hangs_and_tunes_with_the_others() {
    let Some(plugin) = NamedTimes::new().filter(|_| is_asked_for()) else { return };
    let place = Place::new();
    let library = place.path("endless_8.so");
    plugin.copy(&library);
    let steps = fs::read_to_string("tests/data/cli/steps.mlir").unwrap();
    // the longest are compiled first
    let candidates = (0..FIRST + 2).map(|number| {
        let takes = if number == FIRST { 800_000 } else { 600_000 - 50_000 * number };
        // the name of a module is no part of its program
        let text = steps.replace("takes_400000", &format!("takes_{takes}"));
        let text = text.replace("dense<4000>", &format!("dense<{}>", 4000 + number));
        let file = place.file(&format!("{number}.mlir"), format!("{text}{}", "\n".repeat(100 - number)));
        json!({"config": {"form": number}, "program_file": file})
    });
    let description = json!({
        "target": {"platform": "cpu"}, "op_id": "hostile@v1", "call_key": "0123456789abcdef",
        "arguments": [{"name": "x", "spec": "f32[1024]", "fill": {"kind": "normal", "scale": 1.0}}],
        "baseline": {"form": 0}, "candidates": candidates.collect::<Vec<_>>(),
    });
    let (file, registry) = (place.file("description.json", description.to_string()), place.text("registry"));
    let added = place.run(&["registry", "add", &registry, &file]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    let mut command = command(&place.path("cache"));
    command.args([MODULE, "--registry", &registry, "--compile-jobs", "1", "--thorough", "--rounds", "8"]);
    command.args(["--only", "hostile@v1", "--format", "json", "--plugin"]).arg(&library);
    plugin.simulates(&mut command);
    let run = ended(&mut command);
    // the module's other call is not recorded
    assert_eq!(run.code, SOME_FAILED, "{}", run.stderr);
    let operation = run.json()["operations"][0].clone();
    assert_eq!(operation["status"], "tuned", "{operation}");
    assert_eq!(operation["best"]["config"], json!({"form": FIRST + 1}), "{operation}");
    for candidate in operation["candidates"].as_array().unwrap() {
        let hangs = candidate["config"] == json!({"form": FIRST});
        assert_eq!(candidate["failure"] != Value::Null, hangs, "{candidate}");
        if hangs {
            assert_told(candidate["failure"]["message"].as_str().unwrap());
        }
    }
}
