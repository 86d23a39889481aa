//! `profile timings`: its output for each kind of input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::program::*;
use crate::support::xspace::*;
use serde_json::Value;

const AUTOTUNE: &str = "tests/data/xplane/autotune6x5.xplane.pb.gz";

fn timings(arguments: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &[&["profile", "timings"], arguments, &["--format", "json"]].concat())
}

fn oracle() -> Value {
    serde_json::from_str(&fs::read_to_string("tests/data/xplane/autotune6x5.oracle.json").unwrap()).unwrap()
}

/// Spans of each function from the oracle, in seconds: the mean without the lowest and the highest.
fn mean_span(function: usize) -> f64 {
    let oracle = oracle();
    let modules = oracle["modules"].as_array().unwrap().iter();
    let name = format!("jit_autotune_fn_{function}");
    let mut spans: Vec<u64> =
        modules.filter(|one| one["hlo_module"] == name.as_str()).map(|one| one["span_ps"].as_u64().unwrap()).collect();
    assert_eq!(spans.len(), 5);
    spans.sort_unstable();
    spans[1..4].iter().sum::<u64>() as f64 / 3e12
}

#[test]
fn every_execution_is_a_sample_and_the_seed_names_another_winner() {
    let mended = timings(&[AUTOTUNE]);
    assert_eq!(mended.code, 0, "{}", mended.stderr);
    let functions = mended.json()["functions"].clone();
    for function in 0..6 {
        let found = &functions[function.to_string()];
        assert_eq!(found["n"], 3);
        let (mean, expected) = (found["mean"].as_f64().unwrap(), mean_span(function));
        assert!((mean / expected - 1.0).abs() < 1e-12, "{function}: {mean} {expected}");
    }
    let seed = timings(&[AUTOTUNE, "--compat", "ejkernel"]).json();
    assert_eq!(seed["timings"], oracle()["seed_on_proto_default"]["result"]);
    // 7 724 events of the plane last less than a microsecond or belong to a function: each is accounted for
    assert!(seed["dropped"]["overwritten"].as_u64().unwrap() > 1000);
    let best = |document: &Value| {
        let of = document["functions"].as_object().unwrap();
        let mean = |one: &Value| one["mean"].as_f64().unwrap();
        of.iter().min_by(|a, b| mean(a.1).total_cmp(&mean(b.1))).unwrap().0.clone()
    };
    assert_eq!(best(&seed), "0");
    assert_ne!(best(&mended.json()), "0");
}

#[test]
fn several_files_drop_lowest_and_highest() {
    let seed = timings(&[AUTOTUNE, AUTOTUNE, AUTOTUNE, "--compat", "ejkernel"]).json();
    assert_eq!(seed["functions"]["3"]["n"], 1);
    let other = timings(&[AUTOTUNE, "tests/data/xplane/trivial.xplane.pb"]).json();
    assert_eq!(other["profiles"].as_array().unwrap().len(), 2);
    assert_eq!(other["findings"].as_array().unwrap().len(), 6, "{}", other["findings"]);
}

#[test]
fn filters_say_what_they_leave_out() {
    let all = timings(&[AUTOTUNE]).json();
    assert_eq!(all["dropped"], serde_json::json!({"too_short": 0, "beyond_cap": 0, "overwritten": 0}));
    let capped = timings(&[AUTOTUNE, "--max-events", "10"]).json();
    assert_eq!(capped["dropped"]["beyond_cap"], 20);
    let long = timings(&[AUTOTUNE, "--min-duration-ns", "4000000"]).json();
    let spans = oracle()["modules"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["span_ps"].as_u64() < Some(4_000_000_000))
        .count();
    assert_eq!(long["dropped"]["too_short"], spans);
    let none = timings(&[AUTOTUNE, "--prefix", "no such name"]);
    assert_eq!((none.code, none.json()["timings"].as_object().unwrap().len()), (3, 0));
    let plane = timings(&[AUTOTUNE, "--plane", "tpu"]);
    assert_eq!(plane.code, 4);
    assert!(plane.stderr.contains("no plane's name contains `tpu`; there are `/host:metadata`"), "{}", plane.stderr);
    assert_eq!(timings(&[AUTOTUNE, "--regex", "("]).code, 2);
}

/// Operations that match a regex: their union equals the oracle's sum, since `ynn_fusion` runs on one line here.
#[test]
fn a_regex_leaves_the_time_of_matching_operations() {
    let found = timings(&[AUTOTUNE, "--regex", "^ynn_fusion$"]).json();
    let oracle = oracle();
    let modules = oracle["modules"].as_array().unwrap().iter();
    let mut sums: Vec<u64> = modules
        .filter(|one| one["hlo_module"] == "jit_autotune_fn_5")
        .map(|one| one["ops_sum_ps"]["ynn_fusion"].as_u64().unwrap())
        .collect();
    sums.sort_unstable();
    assert_eq!(found["timings"]["jit_autotune_fn_5(20-None)"].as_f64(), Some(sums[2] as f64 / 1e12));
}

#[test]
fn devices_stand_apart_and_standard_input_is_read() {
    let planes: Vec<PlaneBuilder> = (0..2)
        .map(|core| {
            let mut plane = PlaneBuilder::new(&format!("/device:TPU:{core}"));
            let module = plane.event(("jit_f(1)", ""), 0, 5_000_000 + core, &[]);
            plane.line("XLA Modules", 0, &[module]);
            plane
        })
        .collect();
    let mut child = Command::new(env!("CARGO_BIN_EXE_autotune-lowered"))
        .args(["profile", "timings", "-", "--format", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&space(&planes).0).unwrap();
    let document: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    let devices = document["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    assert_eq!((&devices[1]["plane"], &devices[1]["device"]), (&"/device:TPU:1".into(), &1.into()));
    assert_eq!(devices[1]["seconds"], serde_json::json!([5.000001e-6]));
    assert_eq!(document["sample_counts"]["jit_f(1-None)"], 2);
}

/// The names of a document's samples with their counts, and the seconds of each, sorted.
#[cfg(feature = "nsys")]
fn samples(document: &Value) -> std::collections::BTreeMap<String, Vec<f64>> {
    let mut all = std::collections::BTreeMap::<String, Vec<f64>>::new();
    for device in document["devices"].as_array().unwrap() {
        let seconds = device["seconds"].as_array().unwrap().iter().map(|one| one.as_f64().unwrap());
        all.entry(device["name"].as_str().unwrap().to_owned()).or_default().extend(seconds);
    }
    all.values_mut().for_each(|seconds| seconds.sort_by(f64::total_cmp));
    let counts = document["sample_counts"].as_object().unwrap();
    assert_eq!(counts.len(), all.len());
    assert!(all.iter().all(|(name, seconds)| counts[name] == seconds.len()), "{counts:?}");
    all
}

#[cfg(feature = "nsys")]
#[test]
fn executions_that_nsys_jax_captured_are_samples() {
    for capture in ["tests/data/nsys/synthetic.zip", "tests/data/nsys/synthetic_old"] {
        let found = timings(&[capture, "--min-duration-ns", "0"]);
        assert_eq!(found.code, 0, "{}", found.stderr);
        let document = found.json();
        // the content from `synthetic.py`: three executions on each of two devices, of which thunks cover 250 ns
        assert_eq!(samples(&document), [("jit_step(7-None)".to_owned(), vec![2.5e-7; 6])].into(), "{capture}");
        let [first, second] = [0, 1].map(|place| &document["devices"][place]);
        let devices = [&first["device"], &second["device"], &second["plane"]];
        assert_eq!(devices, [&0.into(), &1.into(), &Value::from("/device:GPU:1")]);
        let planes = &document["profiles"][0]["planes"];
        assert_eq!(planes, &serde_json::json!(["/device:GPU:0", "/device:GPU:1"]));
        let said = document["findings"].as_array().unwrap();
        assert!(said.iter().any(|one| one["message"].as_str().unwrap().contains("outside of any module")), "{said:?}");
        // `fusion.1` takes 100 ns of each, the autotuner's one execution 100
        let fusion = timings(&[capture, "--min-duration-ns", "0", "--regex", "^fusion.1$"]).json();
        assert_eq!(samples(&fusion)["jit_step(7-None)"], [1e-7; 6]);
        let all = timings(&[capture, "--min-duration-ns", "0", "--prefix", ""]).json();
        assert_eq!(samples(&all).values().map(Vec::len).sum::<usize>(), 7, "{all}");
        let host = timings(&[capture, "--min-duration-ns", "0", "--prefix", "XlaCompile:", "--plane", "/host:CPU"]);
        assert_eq!(samples(&host.json()).values().collect::<Vec<_>>(), [&vec![1e-6]], "{}", host.stdout);
    }
    // executions of less than a microsecond are left out by default
    let short = timings(&["tests/data/nsys/synthetic.zip"]);
    assert_eq!((short.code, &short.json()["dropped"]["too_short"]), (3, &6.into()));
}

#[cfg(feature = "nsys")]
#[test]
fn the_seed_reads_no_capture_of_nsys_jax() {
    let folder = tempfile::tempdir().unwrap();
    let seed = run(folder.path(), &["profile", "timings", "tests/data/nsys/synthetic.zip", "--compat", "ejkernel"]);
    assert_eq!((seed.code, seed.stdout.as_str(), seed.stderr.lines().count()), (2, "", 1), "{}", seed.stderr);
    assert!(seed.stderr.contains("synthetic.zip`: is a capture of nsys-jax"), "{}", seed.stderr);
    let mixed = run(folder.path(), &["profile", "timings", "tests/data/nsys/synthetic.zip", AUTOTUNE]);
    assert_eq!((mixed.code, mixed.stderr.lines().count()), (2, 1), "{}", mixed.stderr);
}

/// The real capture compared with pandas: `tests/data/nsys/timings.py`.
#[cfg(feature = "nsys")]
#[test]
fn the_real_capture_has_the_executions_that_pandas_finds() {
    let path = std::path::Path::new("../shared/data/nsys/pax_fsdp4_4proc_proc0.zip");
    let elsewhere = std::env::var_os("AUTOTUNE_LOWERED_TEST_NSYS").map(std::path::PathBuf::from);
    let Some(path) = elsewhere.into_iter().chain([path.to_owned()]).find(|path| path.is_file()) else {
        eprintln!("skipped: no `{}`; AUTOTUNE_LOWERED_TEST_NSYS may name it", path.display());
        return;
    };
    let path = fs::canonicalize(path).unwrap();
    let text = fs::read_to_string("tests/data/nsys/pax_fsdp4_4proc_proc0.timings.json").unwrap();
    let oracle: Value = serde_json::from_str(&text).unwrap();
    let expected = |what: &str| -> std::collections::BTreeMap<String, Vec<f64>> {
        let seconds = |list: &Value| list.as_array().unwrap().iter().map(|ns| ns.as_f64().unwrap() / 1e9).collect();
        oracle[what].as_object().unwrap().iter().map(|(name, list)| (name.clone(), seconds(list))).collect()
    };
    let arguments = [path.to_str().unwrap(), "--prefix", ""];
    assert_eq!(samples(&timings(&arguments).json()), expected("all"));
    let pattern = oracle["regex_pattern"].as_str().unwrap();
    assert_eq!(samples(&timings(&[&arguments[..], &["--regex", pattern]].concat()).json()), expected("regex"));
}

#[test]
fn a_capture_of_nsys_jax_is_no_log_folder() {
    let folder = tempfile::tempdir().unwrap();
    for capture in ["tests/data/nsys/synthetic.zip", "tests/data/nsys/synthetic_old"] {
        for command in [&["list", capture][..], &["extract", capture, "-o", "trace.json"]] {
            let refused = run(folder.path(), &[&["profile"], command].concat());
            assert_eq!((refused.code, refused.stdout.as_str(), refused.stderr.lines().count()), (4, "", 1));
            assert!(refused.stderr.contains("is a capture of nsys-jax, not a log folder"), "{}", refused.stderr);
        }
    }
}

#[cfg(not(feature = "nsys"))]
#[test]
fn a_capture_of_another_kind_names_the_feature() {
    let folder = tempfile::tempdir().unwrap();
    let refused = run(folder.path(), &["profile", "timings", "tests/data/nsys/synthetic.zip"]);
    assert_eq!(
        (refused.code, refused.stdout.as_str(), refused.stderr.lines().count()),
        (2, "", 1),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("build it with `--features nsys`"), "{}", refused.stderr);
}
