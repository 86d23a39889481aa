//! `cargo bench --bench search`, from its arguments to its figures and errors.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[allow(dead_code)]
#[path = "../../benches/search/main.rs"]
mod search;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::support::executable::write_executable;
use serde_json::{Value, json};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// 12 by 12 configs; the median of (t - 1, t, t + 40) is t, whatever the recorded number.
fn t4() -> Value {
    let entry = |a: i64, b: i64| {
        let t = 10 + (a - 7).pow(2) + (b - 4).pow(2);
        json!({"timestamp": "2026", "configuration": {"a": a, "b": b}, "times": {"compilation": 1.5, "runtimes": [t - 1, t, t + 40]},
               "invalidity": "correct", "correctness": 1, "measurements": [{"name": "time", "value": 999.0, "unit": ""}],
               "objectives": ["time"]})
    };
    let mut results: Vec<Value> = (0..12).flat_map(|a| (0..12).map(move |b| entry(a, b))).collect();
    results[0] = json!({"configuration": {"a": 0, "b": 0}, "times": {"compilation": 3.0}, "invalidity": "runtime",
                        "measurements": [{"name": "time", "value": "RuntimeFailedConfig", "unit": ""}]});
    json!({"metadata": {"timeunit": "miliseconds"}, "schema_version": "1.0.0", "results": results})
}

/// The same space as Kernel Tuner's cache.
fn cache() -> Value {
    let t4 = t4();
    let entries = t4["results"].as_array().unwrap().iter().map(|entry| {
        let mut fields = entry["configuration"].as_object().unwrap().clone();
        match entry["times"].get("runtimes") {
            Some(times) => fields.extend([("time".to_owned(), json!(999.0)), ("times".to_owned(), times.clone())]),
            None => fields.extend([("time".to_owned(), json!("RuntimeFailedConfig"))]),
        }
        (format!("{},{}", fields["a"], fields["b"]), Value::Object(fields))
    });
    let entries: serde_json::Map<_, _> = entries.collect();
    json!({"device_name": "d", "kernel_name": "k", "problem_size": [1], "tune_params_keys": ["a", "b"],
           "tune_params": {"a": [0], "b": [0]}, "objective": "time", "cache": entries})
}

/// The output of `main`, and its exit code.
struct Run {
    code: u8,
    stdout: String,
    stderr: String,
}

impl Run {
    fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }

    fn fault(&self) -> &str {
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        &self.stderr
    }
}

fn bench(arguments: &[&str]) -> Run {
    let mut out = Vec::new();
    let result = search::run(["search"].iter().chain(arguments).map(|word| (*word).into()), &mut out);
    let (code, stderr) = result.map_or_else(|fault| (fault.code, fault.message), |()| (0, String::new()));
    Run { code, stdout: String::from_utf8(out).unwrap(), stderr }
}

#[test]
fn both_formats_are_read_gzip_or_not_and_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        write(folder.path(), "one.json", t4().to_string()),
        write(folder.path(), "two.json.gz", gzip(t4().to_string().as_bytes())),
        write(folder.path(), "three.json", cache().to_string()),
        write(folder.path(), "four.json.gz", gzip(cache().to_string().as_bytes())),
    ];
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let mut arguments: Vec<&str> = files.iter().map(String::as_str).collect();
    arguments.extend(["--seeds", "5", "--strategy", "auto", "--strategy", "random", "--format", "json"]);
    let document = bench(&arguments).json();
    let spaces = document["spaces"].as_array().unwrap();
    let names: Vec<&str> = spaces.iter().map(|space| space["space"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "two", "three", "four"]);
    for space in spaces {
        assert_eq!((&space["configs"], &space["failed"], &space["optimum"]), (&json!(144), &json!(1), &json!(10.0)));
    }
    assert_eq!(
        (&document["seeds"], &document["axis"], &document["cut_off"]),
        (&json!(5), &json!("evaluations"), &json!(0.95))
    );
    let scores = |at: usize| -> Vec<f64> {
        let rows = document["strategies"][at]["scores"].as_array().unwrap();
        rows.iter().map(|row| row["score"].as_f64().unwrap()).collect()
    };
    let (auto, random) = (scores(0), scores(1));
    assert_eq!((auto[0], random[0]), (auto[1], random[1]));
    assert_eq!((auto[2], random[2]), (auto[3], random[3]));
    assert!(auto.iter().all(|auto| *auto > 0.5) && random.iter().all(|random| *random < 0.3), "{auto:?} {random:?}");
}

#[test]
fn the_simulated_spaces_are_there_without_a_file() {
    let run = bench(&["--seeds", "2", "--strategy", "auto"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for part in ["simulated:tiles", "simulated:waves", "simulated:failures", "auto", "2 seeds"] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    let again = bench(&["simulated:tiles", "--seeds", "2", "--strategy", "auto", "--format", "json"]).json();
    let once_more = bench(&["simulated:tiles", "--seeds", "2", "--strategy", "auto", "--format", "json"]).json();
    assert_eq!(again["strategies"][0]["mean_score"], once_more["strategies"][0]["mean_score"]);
    assert_eq!(again["spaces"][0]["format"], "simulated");
}

#[test]
fn files_that_are_no_spaces_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let whole = t4().to_string();
    let compressed = gzip(whole.as_bytes());
    let failed = json!({"results": [{"configuration": {"a": 1}, "invalidity": "compile"}]}).to_string();
    let same = json!({"results": (0..9).map(|a| json!({"configuration": {"a": a}, "times": {"runtimes": [2.0]}})).collect::<Vec<_>>()});
    let twice = json!({"results": [{"configuration": {"a": 1}}, {"configuration": {"a": 1}}]}).to_string();
    let none_at_all = json!({"results": (0..9).map(|a| json!({"configuration": {"a": a}, "times": {"runtimes": [-f64::from(a)]}})).collect::<Vec<_>>()});
    for (name, bytes, reason) in [
        ("cut.json", whole.as_bytes()[..whole.len() / 2].to_vec(), "not the JSON of a recorded space"),
        ("cut.json.gz", compressed[..compressed.len() / 2].to_vec(), "fetch the file again"),
        ("twice.json.gz", gzip(&compressed), "compressed twice"),
        ("foreign.json", b"{\"entries\": []}".to_vec(), "neither `results` (T4) nor"),
        ("list.json", b"[1, 2]".to_vec(), "not the JSON of a recorded space"),
        ("empty.json", Vec::new(), "not the JSON of a recorded space"),
        ("text.json", b"no JSON\nat all".to_vec(), "not the JSON of a recorded space"),
        ("none.json", b"{\"results\": []}".to_vec(), "holds no config"),
        ("failed.json", failed.into_bytes(), "no config of the space ran"),
        ("negative.json", none_at_all.to_string().into_bytes(), "no config of the space ran"),
        ("same.json", same.to_string().into_bytes(), "the best time is also the median"),
        ("double.json", twice.into_bytes(), "occurs twice"),
    ] {
        let path = write(folder.path(), name, bytes);
        let run = bench(&[path.to_str().unwrap()]);
        assert_eq!(run.code, 4, "{name}: {}", run.stderr);
        assert!(run.fault().contains(reason) && run.fault().contains(name), "{name}: {}", run.fault());
        assert!(run.stdout.is_empty(), "{name}");
    }
    let run = bench(&["absent.json"]);
    assert_eq!(run.code, 4);
    assert!(run.fault().contains("absent.json"));
    assert_eq!(bench(&["--strategy", "best"]).code, 2);
    assert_eq!(bench(&["--cut-off", "1"]).code, 2);
    assert_eq!(bench(&["--seeds", "0"]).code, 2);
}

/// A Python without Kernel Tuner, and a program that is no Python, each give one line; a stand-in for the driver is
/// scored.
#[test]
fn a_peer_is_run_and_scored_or_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let run = bench(&["--seeds", "1", "--strategy", "random", "--peer", "/nowhere/python"]);
    assert_eq!(run.code, 4);
    assert!(run.fault().contains("cannot run `/nowhere/python`"), "{}", run.fault());
    // answers in the driver's format: one strategy asks for the first configs, one ran out of time
    let script = "#!/bin/sh\ncat > /dev/null\necho '{\"version\": \"1.5.0\"}'\n\
                  echo '{\"strategy\": \"steady\", \"seed\": 0, \"asked\": [0, 1, 2], \"failure\": null, \"seconds\": 0.003}'\n\
                  echo '{\"strategy\": \"slow\", \"failure\": \"not done within 1 s\"}'\n";
    let python = folder.path().join("python");
    write_executable(&python, script);
    let arguments =
        ["simulated:tiles", "--seeds", "1", "--strategy", "auto", "--strategy", "exhaustive", "--format", "json"];
    let document = bench(&[&arguments[..], &["--peer", python.to_str().unwrap()]].concat()).json();
    let rows = document["strategies"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["strategy"].as_str().unwrap()).collect();
    assert_eq!(names, ["auto", "exhaustive", "steady", "slow"]);
    assert_eq!(rows[2]["tool"], "kernel_tuner 1.5.0");
    assert_eq!(rows[2]["ms_per_evaluation"], 1.0);
    assert_eq!(rows[3]["scores"][0]["failure"], "not done within 1 s");
    assert_eq!(rows[3]["mean_score"], Value::Null);
    // it stays at the third config, while exhaustive search continues
    assert!(rows[2]["mean_score"].as_f64() <= rows[1]["mean_score"].as_f64());
    assert_eq!(document["best_peer"], "steady");
}
