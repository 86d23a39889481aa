//! `check` in CI: verdicts, exit codes, JUnit and annotations. Times are simulated by `replay` or played by a worker.

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
use autotune_lowered::gate::{CheckResult, Verdict, write_annotations, write_junit};
use serde_json::{Value, json};

const HOLDS: i32 = exit::FINE as i32;
const REGRESSED: i32 = exit::REGRESSED as i32;

const FLASH: &str = "flash_attention@v2";

impl Place {
    /// A tuned example with adjustable recorded times.
    fn tuned() -> Self {
        let place = Self::new();
        write_replay(&example().join("registry"), &place.path("replay.json"));
        let tuned = place.run(&[&module(), "--timer", &place.recording()]);
        assert_eq!(tuned.code, 0, "{}", tuned.stderr);
        place
    }

    fn recording(&self) -> String {
        format!("replay:{}", self.path("replay.json").display())
    }

    /// From now on, the operation's configs that take `from` nanoseconds take `to`.
    fn change(&self, op_id: &str, from: u64, to: u64) {
        let mut recording: Value = serde_json::from_slice(&fs::read(self.path("replay.json")).unwrap()).unwrap();
        let mut changed = 0;
        for invocation in recording["invocations"].as_array_mut().unwrap() {
            if invocation["op_id"] != op_id {
                continue;
            }
            for candidate in invocation["candidates"].as_array_mut().unwrap() {
                let time = candidate["epochs"][0][0].as_u64().unwrap();
                if time == from {
                    candidate["epochs"] = json!([[to, to + 1000, to - 1000, to + 500]]);
                    changed += 1;
                }
            }
        }
        assert!(changed > 0);
        fs::write(self.path("replay.json"), recording.to_string()).unwrap();
    }

    fn check(&self, more: &[&str]) -> Run {
        let (module, timer) = (module(), self.recording());
        let run = self.run(&[&["check", &module, "--timer", &timer], more].concat());
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        run
    }

    fn entries(&self) -> Value {
        self.run(&["cache", "ls", "--format", "json"]).json()["entries"].clone()
    }
}

fn verdicts(result: &Value) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for operation in result["operations"].as_array().unwrap() {
        let verdict = operation["verdict"].as_str().unwrap().to_owned();
        found.entry(verdict).or_default().push(operation["op_id"].as_str().unwrap().to_owned());
    }
    found
}

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

#[test]
fn a_planted_regression_closes_the_gate() {
    let place = Place::tuned();
    place.change(FLASH, 5_000_000, 6_500_000);
    let before = place.entries();
    let junit = place.path("report.xml");
    let words = ["--format", "json", "--annotations", "github", "--junit", junit.to_str().unwrap()];
    let check = place.check(&words);
    assert_eq!(check.code, REGRESSED, "{}", check.stderr);
    let result = check.json();
    assert_eq!(verdicts(&result)["regressed"], [FLASH], "{result}");
    assert_eq!(verdicts(&result)["holds"].len(), 3);
    let flash = result["operations"].as_array().unwrap().iter().find(|row| row["op_id"] == FLASH).unwrap();
    assert!((flash["ratio"].as_f64().unwrap() - 0.65).abs() < 0.001, "{flash}");
    assert!((flash["entry"]["ratio"].as_f64().unwrap() - 0.5).abs() < 0.001, "{flash}");
    assert!(flash["odds"].as_f64().unwrap() >= 400.0 && flash["processes"] == 2, "{flash}");
    assert_eq!(place.entries(), before);

    let annotations: Vec<&str> = check.stderr.lines().filter(|line| line.starts_with("::")).collect();
    let [annotation] = annotations.as_slice() else { panic!("{annotations:?}") };
    let line = result["operations"].as_array().unwrap().iter().find(|row| row["op_id"] == FLASH).unwrap()["line"]
        .as_u64()
        .unwrap();
    let head = format!("::error file={},line={line},title=flash_attention@v2%3A", module());
    assert!(annotation.starts_with(&head) && annotation.contains(" regressed::"), "{annotation}");
    let lines = fs::read_to_string(module()).unwrap();
    assert!(lines.lines().nth(line as usize - 1).unwrap().contains("flash_attention"), "the line has the label");

    let elements = parsed(&fs::read(&junit).unwrap());
    assert_eq!((elements[0].0.as_str(), elements[0].1["tests"].as_str()), ("testsuites", "4"));
    assert_eq!((elements[1].1["failures"].as_str(), elements[1].1["errors"].as_str()), ("1", "0"));
    let failures: Vec<_> = elements.iter().filter(|(tag, ..)| tag == "failure").collect();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].1["type"], "regressed");
    assert_eq!(failures[0].1["message"], flash["reason"].as_str().unwrap());
    assert!(failures[0].2.contains("\"q_blocksize\":256"), "{}", failures[0].2);

    // the gain is gone
    place.change(FLASH, 6_500_000, 9_990_000);
    let check = place.check(&["--format", "json"]);
    assert_eq!((check.code, verdicts(&check.json())["not-better"].len()), (REGRESSED, 1));
    // only the other operations
    assert_eq!(place.check(&["--only", "blocked_matmul@v1"]).code, HOLDS);
    // a change that does not matter to this user
    place.change(FLASH, 9_990_000, 5_200_000);
    assert_eq!(place.check(&[]).code, REGRESSED);
    assert_eq!(place.check(&["--min-improvement", "0.1"]).code, HOLDS);
}

/// Another timer may compile the programs otherwise: only the measured pair itself is evidence against the config.
#[test]
fn what_another_timer_decided_is_stale_until_its_own_pair_says_more() {
    let place = Place::tuned();
    let exported = place.run(&["cache", "export", "--format", "json", &place.text("tuned.json")]);
    assert_eq!(exported.code, HOLDS, "{}", exported.stderr);
    let mut document: Value = serde_json::from_slice(&fs::read(place.path("tuned.json")).unwrap()).unwrap();
    for entry in document["entries"].as_array_mut().unwrap() {
        entry["provenance"]["timer"] = json!("jax");
        entry["provenance"]["environment"]["plugin"] = json!("jaxlib 0.10.2");
    }
    let changed = place.file("jax.json", document.to_string());
    let other = place.text("other");
    let imported = place.run(&["cache", "import", "--format", "json", &changed, "--cache", &other]);
    assert_eq!(imported.code, HOLDS, "{}", imported.stderr);
    // against its own timer's ratio, 0.65 instead of 0.5 is a regression
    place.change(FLASH, 5_000_000, 6_500_000);
    assert_eq!(place.check(&[]).code, REGRESSED);
    let check = place.check(&["--cache", &other, "--format", "json"]);
    assert_eq!(check.code, HOLDS, "{}", check.stderr);
    let result = check.json();
    assert_eq!(verdicts(&result)["stale"].len(), 4, "{result}");
    let note = "decided with the timer `jax` (jaxlib 0.10.2), measured with `replay:";
    let stale = result["operations"][0]["stale"].as_array().unwrap();
    let notes: Vec<&str> = stale.iter().map(|note| note.as_str().unwrap()).collect();
    assert!(notes.iter().any(|line| line.starts_with(note) && line.ends_with("name one with `--timer`")), "{notes:?}");
    // slower than the baseline
    place.change(FLASH, 6_500_000, 12_000_000);
    let check = place.check(&["--cache", &other, "--format", "json"]);
    assert_eq!((check.code, &verdicts(&check.json())["not-better"][..]), (REGRESSED, &[FLASH.to_owned()][..]));
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
fn a_worker_of_ones_own_is_measured_again_in_a_second_process() {
    let folder = tempfile::tempdir().unwrap();
    let usual = json!({});
    // the module's other label is not recorded
    assert_eq!(paced(folder.path(), &usual, &[]).code, 1);
    let check = paced(folder.path(), &usual, &["check", "--allow-missing"]);
    assert_eq!(check.code, HOLDS, "{}", check.stderr);
    let check = paced(folder.path(), &json!({"pace": {"2000000": 1.5}}), &["check", "--allow-missing"]);
    assert_eq!(check.code, REGRESSED, "{}", check.stderr);
    let operation = &check.json()["operations"][0];
    assert_eq!((&operation["verdict"], &operation["processes"]), (&json!("regressed"), &json!(2)), "{operation}");
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
fn the_real_runtime_is_asked_in_two_processes() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let module = small_module();
    write_replay(&Path::new(&module).with_file_name("registry"), &place.path("replay.json"));
    assert_eq!(place.run(&[&module, "--only", SMALL_CALL, "--timer", &place.recording()]).code, 0);
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
    // with sixteen rounds, a busy machine may disturb too many
    let rounds = operation["rounds"].as_u64().unwrap();
    assert!(operation["processes"] == 2 && (10..=16).contains(&rounds), "{operation}");
    assert!(operation["stale"].is_null() && operation["ratio"].as_f64().unwrap() > 0.02, "{operation}");
    assert!(operation["baseline_ns"].as_f64().unwrap() > 1000.0, "{operation}");
}

/// A result with every verdict, and with these names and reasons.
fn hostile(texts: &[&str]) -> CheckResult {
    let operations: Vec<Value> = Verdict::ALL
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
        "false_alarms": 0.01, "compared": 8, "odds_needed": 800.0, "operations": operations, "missed": missed,
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
