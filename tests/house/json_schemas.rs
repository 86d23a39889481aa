//! The program's JSON, its schemas and their page agree.
//!
//! All JSON that any test of the program reads is validated against its schema (`tests/support/schemas.rs`). This file
//! tests the commands that no other test reads, and errors that a schema must detect.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::prerequisite::{plugin, python3};
use crate::support::program::*;
use crate::support::schemas::{self, DEFINITIONS};

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md")).unwrap()
}

/// The names of members in a schema, and the objects in it that also allow others.
fn members(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(members)) = fields.get("properties") {
                names.extend(members.keys().cloned());
                assert_eq!(fields.get("additionalProperties"), Some(&json!(false)), "{schema:#}");
            }
            fields.values().for_each(|value| members(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| members(item, names)),
        _ => {}
    }
}

#[test]
fn every_schema_is_linked_and_every_member_is_explained() {
    let page = page();
    for (name, path) in schemas::files() {
        assert!(page.contains(&format!("(schemas/{name}.schema.json)")), "docs/json.md does not link {name}");
        let schema: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{name}");
        assert!(name == DEFINITIONS || schema["properties"]["schema"] == json!({"const": 1}), "{name}");
        let mut names = BTreeSet::new();
        members(&schema, &mut names);
        assert!(names.len() > 1, "{name}");
        let unexplained: Vec<_> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
        assert!(unexplained.is_empty(), "docs/json.md does not say what these of {name} are: {unexplained:?}");
    }
}

#[test]
fn what_the_program_prints_is_as_its_schemas_say() {
    let place = Place::new();
    let (cache, replay, registry) = (place.path("cache"), place.path("replay.json"), place.text("registry"));
    copy_folder(&example().join("registry"), Path::new(&registry));
    write_replay(Path::new(&registry), &replay);
    let (module, timer) = (module(), measured_as_in(&replay));
    let worker = "tests/data/cli/profiling_worker.py cpu tests/data/xplane/trivial.xplane.pb '' ''";
    let captured = format!("command:{} {worker}", python3());
    let (capture, stored) = ("tests/data/xplane/trivial.xplane.pb", cache.display().to_string());
    let (old, other) = ("tests/data/cache/plain.jsonl", "tests/data/xplane/multi8_shardmap.xplane.pb.gz");
    let step = "tests/data/xplane/tf2_step.xplane.pb.gz";
    let superseding = place.text("superseding.snapshot");
    assert_eq!(place.run(&["cache", "merge", "tests/data/cache/superseding.jsonl", "-o", &superseding]).code, 0);
    for (code, arguments) in [
        (0, &[module.as_str(), "--timer", &timer, "--registry", &registry, "--dry-run"][..]),
        (0, &[module.as_str(), "--timer", &timer, "--registry", &registry]),
        (0, &[module.as_str(), "--timer", &timer, "--registry", &registry, "--profile", step]),
        (0, &["check", &module, "--timer", &timer, "--registry", &registry]),
        (3, &["tests/data/timer/add.mlir", "--timer", &timer, "--registry", &registry]),
        (0, &["scan", &module]),
        (0, &["cache", "ls"]),
        (0, &["cache", "ls", "--cache", &superseding]),
        (8, &["cache", "diff", &stored, old]),
        (0, &["cache", "verify", &stored, old]),
        (0, &["cache", "prune", "--for", "simulated", "--dry-run"]),
        (1, &["cache", "coverage", &module, "--of", old, "--for", "cpu:cpu"]),
        (0, &["cache", "coverage", &module, "--registry", &registry, "--for", "simulated"]),
        (0, &["registry", "ls", &registry]),
        (0, &["registry", "show", &registry, "flash_attention@v2"]),
        (0, &["registry", "verify", &registry]),
        (0, &["candidates", "ls"]),
        (0, &["candidates", "show", "flash_attention"]),
        (0, &["candidates", "options"]),
        (0, &["profile", "timings", capture]),
        (0, &["profile", "timings", capture, "--compat", "ejkernel"]),
        (0, &["profile", "collectives", other]),
        (0, &["profile", "compile", "tests/data/compile/compile2.xplane.pb.gz"]),
        (0, &["profile", "diff", capture, capture]),
        (0, &["profile", "summary", other]),
        (0, &["profile", "summary", step, "--peaks", "cuda:h100_sxm"]),
        (0, &["profile", "list", "tests/data/xplane"]),
        (0, &["profile", "mosaic-size", "--grid", "1", "--block", "128", "--entries", "7"]),
        (
            0,
            &[
                "measure",
                "tests/data/timer/add.mlir",
                "--mode",
                "kernels",
                "--per-kernel",
                "--iterations",
                "4",
                "--timer",
                &captured,
            ],
        ),
    ] {
        let run = place.run(&[arguments, &["--format", "json"]].concat());
        assert_eq!(run.code, code, "{arguments:?}: {}", run.stderr);
        run.json();
    }
    let described = json!({
        "target": {"platform": "cpu"}, "op_id": "by_hand@v1", "call_key": "rows=3", "arguments": [],
        "baseline": {}, "candidates": [{"config": {}, "not_lowered": "made for a test"}],
    });
    let described = place.file("described.json", described.to_string());
    let added = place.run(&["registry", "add", &place.text("added"), &described, "--format", "json"]).json();
    let record = fs::read_to_string(added["path"].as_str().unwrap()).unwrap();
    assert!(
        record.contains("by_hand@v1") && Path::new(added["path"].as_str().unwrap()).starts_with(place.path("added"))
    );
    let exported = place.text("exported.json");
    assert_eq!(place.run(&["cache", "export", "--format", "json", &exported]).code, 0);
    let entries = serde_json::from_str(&fs::read_to_string(&exported).unwrap()).unwrap();
    assert_eq!(schemas::wrong("cache-export", &entries), None);
    let Some(plugin) = plugin() else { return };
    let plugin = plugin.display().to_string();
    for command in [
        &["device"][..],
        &["selftest", "--copies", "2", "--rounds", "6"],
        &["cache", "get", "flash_attention@v2", "d9a668bdbb2245c3", "--match", "kind"],
    ] {
        let run = place.run(&[command, &["--plugin", &plugin, "--format", "json"]].concat());
        assert_eq!(run.code, 0, "{command:?}: {}", run.stderr);
        run.json();
    }
}

/// The cases of each keyword; Python's `jsonschema` gets the same.
#[test]
fn each_keyword_of_a_schema_decides() {
    let cases = fs::read_to_string("tests/data/cli/schema_cases.json").unwrap();
    let cases: Vec<Value> = serde_json::from_str(&cases).unwrap();
    for case in &cases {
        for (verdict, documents) in [(true, &case["good"]), (false, &case["bad"])] {
            for document in documents.as_array().unwrap() {
                let fault = schemas::fault(&case["schema"], document);
                assert_eq!(fault.is_none(), verdict, "{document} against {}: {fault:?}", case["schema"]);
            }
        }
    }
}

/// Each error alone, in an otherwise valid document.
#[test]
fn a_schema_sees_what_is_missing_added_or_of_another_type() {
    let place = Place::new();
    let replay = place.path("replay.json");
    write_replay(&example().join("registry"), &replay);
    let timer = format!("replay:{}", replay.display());
    let good = place.run(&[&module(), "--timer", &timer, "--format", "json"]).json();
    assert_eq!(schemas::wrong("tune", &good), None);
    for (at, value) in [
        ("/schema", json!(2)),
        ("/added", json!(1)),
        ("/interrupted", Value::Null),
        ("/device/identity/added", json!("x")),
        ("/operations/0/status", json!("splendid")),
        ("/operations/0/speed_up", json!("2")),
        ("/operations/0/candidates/0/added", json!([])),
        ("/operations/0/candidates/1/interval/low", json!("-")),
        ("/operations/0/time_breakdown/compile_ns", json!(-1)),
    ] {
        let mut document = good.clone();
        let (parent, name) = at.rsplit_once('/').unwrap();
        document.pointer_mut(parent).and_then(Value::as_object_mut).expect(at).insert(name.to_owned(), value);
        assert!(schemas::wrong("tune", &document).is_some(), "{at}");
    }
    let mut document = good;
    document["operations"][0].as_object_mut().unwrap().remove("baseline");
    assert!(schemas::wrong("tune", &document).is_some_and(|wrong| wrong.contains("baseline")));
}
