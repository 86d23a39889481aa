//! `check` in CI: on a real runtime, with a worker that plays times, and its reports of names that look like markup.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::prerequisite::{plugin, python3};
use crate::support::program::*;
use crate::tune::compiled_step;
use autotune_lowered::cli::exit;
use autotune_lowered::gate::{CheckResult, CheckVerdict, write_annotations, write_junit};
use serde_json::{Value, json};

const HOLDS: i32 = exit::FINE as i32;
const REGRESSED: i32 = exit::REGRESSED as i32;

/// Another parser's view of a document: tag, attributes and text of each element, in order.
fn parsed(xml: &[u8]) -> Vec<(String, BTreeMap<String, String>, String)> {
    let program = "import sys, json, xml.etree.ElementTree as tree\n\
                   root = tree.fromstring(sys.stdin.buffer.read())\n\
                   print(json.dumps([[e.tag, e.attrib, e.text or ''] for e in root.iter()]))";
    let mut child =
        Command::new(python3()).args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(xml).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "not well-formed:\n{}", String::from_utf8_lossy(xml));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// An operation of two configs, of four ms and two, and a worker with an adjustable pace.
fn paced(place: &Path, pace: &Value, arguments: &[&str]) -> Run {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli");
    let (registry, control) = (place.join("registry"), place.join("control.json"));
    if !registry.exists() {
        let rows = [4_000_000, 2_000_000].map(|ns| {
            let file = place.join(format!("{ns}.mlir"));
            fs::write(&file, format!("module @m {{ func.func @main() {{ return }} }} // {ns}")).unwrap();
            json!({"config": {"ns": ns}, "program_file": file})
        });
        let description = json!({
            "target": {"platform": "cpu"}, "op_id": "steady@v1", "call_key": "fedcba9876543210",
            "arguments": [{"name": "x", "spec": "f32[1024]", "fill": {"kind": "normal", "scale": 1.0}}],
            "baseline": {"ns": 4_000_000}, "candidates": rows,
        });
        fs::write(place.join("steady.json"), description.to_string()).unwrap();
        let file = place.join("steady.json");
        let add = ["registry", "add", registry.to_str().unwrap(), file.to_str().unwrap()];
        assert_eq!(run(&place.join("cache"), &add).code, 0);
    }
    fs::write(&control, pace.to_string()).unwrap();
    let worker = data.join("paced_worker.py");
    let timer = format!("command:{} '{}' '{}'", python3(), worker.display(), control.display());
    let module = data.join("module.mlir");
    let fixed = [module.to_str().unwrap(), "--registry", registry.to_str().unwrap(), "--timer", &timer];
    let only = ["--only", "steady@v1", "--format", "json"];
    run(&place.join("cache"), &[arguments, &fixed, &only].concat())
}

#[test]
fn a_worker_of_ones_own_is_measured_again_in_fresh_processes() {
    let folder = tempfile::tempdir().unwrap();
    let usual = json!({});
    // the module's other label is not recorded
    assert_eq!(paced(folder.path(), &usual, &[]).code, 1);
    let check = paced(folder.path(), &usual, &["check", "--allow-missing"]);
    assert_eq!(check.code, HOLDS, "{}", check.stderr);
    let check = paced(folder.path(), &json!({"pace": {"2000000": 1.5}}), &["check", "--allow-missing"]);
    assert_eq!(check.code, REGRESSED, "{}", check.stderr);
    let operation = &check.json()["operations"][0];
    assert_eq!((&operation["verdict"], &operation["processes"]), (&json!("regressed"), &json!(3)), "{operation}");
    assert!((operation["ratio"].as_f64().unwrap() - 0.75).abs() < 0.001, "{operation}");
    // a machine that is slower in general is no regression
    let slow = json!({"pace": {"2000000": 3, "4000000": 3}});
    assert_eq!(paced(folder.path(), &slow, &["check", "--allow-missing"]).code, HOLDS);

    let ended = paced(folder.path(), &json!({"terminate": true}), &["check", "--allow-missing"]);
    assert_eq!(ended.code, i32::from(exit::INTERRUPTED), "{}", ended.stderr);
    let result = ended.json();
    assert_eq!((&result["interrupted"], &result["operations"][0]["verdict"]), (&json!(true), &json!("failed")));
}

/// On a real runtime: an entry that claims a hundredth of the baseline's time, which no config reaches.
#[test]
fn the_real_runtime_is_asked_in_three_processes() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let module = small_module();
    write_replay(&Path::new(&module).with_file_name("registry"), &place.path("replay.json"));
    let timer = format!("replay:{}", place.text("replay.json"));
    assert_eq!(place.run(&[&module, "--only", SMALL_CALL, "--timer", &timer]).code, 0);
    let file = place.path("entries.json");
    let export = ["cache", "export", "--format", "json", file.to_str().unwrap()];
    assert_eq!(place.run(&export).code, 0);
    let mut entries: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let device = run(&place.path("none"), &["device", "--plugin", plugin.to_str().unwrap(), "--format", "json"]).json();
    let device = &device["plugins"][0]["devices"][0];
    for entry in entries["entries"].as_array_mut().unwrap() {
        entry["device"] = device["identity"].clone();
        let provenance = &mut entry["provenance"];
        provenance["environment"] = device["environment"].clone();
        provenance["source"] = json!("host-wall");
        provenance["timer"] = json!("pjrt");
        provenance["ratio"] = json!(0.01);
        provenance["interval"] = json!({"low": 0.009, "high": 0.011, "confidence": 0.95});
    }
    fs::write(&file, entries.to_string()).unwrap();
    let cache = compiled_step(&place.path("promised"), &plugin);
    assert_eq!(run(&cache, &["cache", "import", "--format", "json", file.to_str().unwrap()]).code, 0);
    let plugin = plugin.to_str().unwrap();
    let arguments = ["check", &module, "--only", SMALL_CALL, "--rounds", "8", "--plugin", plugin, "--format", "json"];
    let check = run(&cache, &arguments);
    assert_eq!(check.code, REGRESSED, "{}", check.stderr);
    let operation = &check.json()["operations"][0];
    // with twenty-four rounds, a busy machine may disturb too many
    let rounds = operation["rounds"].as_u64().unwrap();
    assert!(operation["processes"] == 3 && (15..=24).contains(&rounds), "{operation}");
    assert!(operation["stale"].is_null() && operation["ratio"].as_f64().unwrap() > 0.02, "{operation}");
    assert!(operation["baseline_ns"].as_f64().unwrap() > 1000.0, "{operation}");
}

/// A result with every verdict, and with these names and reasons.
fn hostile(texts: &[&str]) -> CheckResult {
    let operations: Vec<Value> = CheckVerdict::ALL
        .iter()
        .zip(texts.iter().cycle())
        .map(|(verdict, text)| {
            json!({"op_id": text, "call_key": text, "direction": "forward", "evidence": "exact", "occurrences": 1,
                   "line": 3, "verdict": verdict, "reason": text, "stale": [text], "rounds": 0, "processes": 0})
        })
        .collect();
    let missed = json!([{"op_id": texts[0], "call_key": null, "evidence": "by-name", "reason": texts[0]}]);
    let identity = json!({"platform": "cpu", "device_kind": texts[0], "hardware": {}});
    serde_json::from_value(json!({
        "schema": 1, "tool": "t", "device": {"identity": identity}, "timer": "t", "source": "replay", "metric": "elapsed",
        "false_positive_rate": 0.01, "compared": 8, "e_value_needed": 800.0, "operations": operations, "missed": missed,
        "notes": [], "interrupted": false,
    }))
    .unwrap()
}

#[test]
fn hostile_names_stay_names_in_every_report() {
    // characters that XML 1.0 does not allow become U+FFFD
    for (text, in_xml) in [
        ("a<b>&\"c'd]]>", "a<b>&\"c'd]]>"),
        ("x\u{0}\u{1b}[31m\u{ffff}", "x\u{fffd}\u{fffd}[31m\u{fffd}"),
        ("&#0;<!--", "&#0;<!--"),
        ("tab\tline\nreturn\r\n::error::x", "tab\tline\nreturn\r\n::error::x"),
        ("ünïcode ×—😀", "ünïcode ×—😀"),
        ("50% a,b:c", "50% a,b:c"),
    ] {
        let result = hostile(&[text]);
        for allow_missing in [false, true] {
            let mut xml = Vec::new();
            write_junit(&mut xml, &result, allow_missing).unwrap();
            let elements = parsed(&xml);
            let count = |wanted: &str| elements.iter().filter(|(tag, ..)| tag == wanted).count().to_string();
            let suite = &elements[1].1;
            assert_eq!(suite["tests"], count("testcase"));
            for (attribute, tag) in [("failures", "failure"), ("errors", "error"), ("skipped", "skipped")] {
                assert_eq!(suite[attribute], count(tag), "{attribute}");
            }
            let expected = if allow_missing { ("3", "1", "2") } else { ("3", "3", "0") };
            assert_eq!((&*suite["failures"], &*suite["errors"], &*suite["skipped"]), expected);
            let cases = elements.iter().filter(|(tag, ..)| tag == "testcase");
            assert!(
                cases.clone().count() == 9 && cases.clone().all(|(_, of, _)| of["classname"] == in_xml),
                "{text:?}"
            );
            let failures = elements.iter().filter(|(tag, ..)| tag == "failure");
            assert!(failures.clone().all(|(_, of, text)| of["message"] == in_xml && text.contains(in_xml)), "{text:?}");

            let mut told = Vec::new();
            write_annotations(&mut told, &result, Some(text), allow_missing).unwrap();
            let told = String::from_utf8(told).unwrap();
            let levels: Vec<&str> = told.split('\n').map(|line| line.split(' ').next().unwrap()).collect();
            let errors = if allow_missing { 4 } else { 6 };
            assert_eq!(levels.iter().filter(|level| **level == "::error").count(), errors, "{told}");
            let known = |level: &&str| ["::error", "::warning", "::notice", ""].contains(level);
            assert!(levels.iter().all(known) && !told.contains('\r'), "{told}");
            // the first three are dangerous
            assert!(
                told.lines().take(3).all(|line| !line.contains("failed::") && line.starts_with("::error")),
                "{told}"
            );
        }
    }
}
