//! `cache merge`, `diff`, `verify`, `prune`, `coverage` and JSON lines, as a user runs them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::executable::write_executable;
use crate::support::pjrt::build;
use crate::support::prerequisite::plugin;
use crate::support::program::*;
use autotune_lowered::ledger::Ledger;
use serde_json::{Value, json};

fn device(kind: &str) -> Value {
    json!({"platform": "cuda", "device_kind": kind, "hardware": {"mig": "none"}})
}

/// An entry as one line of JSON.
fn line(kind: &str, call_key: &str, block: u32, rounds: u32, decided_at: u64) -> String {
    let provenance = json!({
        "job": "00".repeat(32), "timer": "pjrt", "source": "device-profile", "metric": "busy",
        "environment": {"platform_version": "cuda 12090", "driver": "570"}, "baseline": {"block": 1},
        "baseline_ns": 100.5, "best_ns": 85.25, "ratio": 0.85,
        "interval": {"low": 0.8, "high": 0.9, "confidence": 0.95}, "rounds": rounds, "measured": 3, "failed": 0,
        "tie_set": [], "tool": "a test", "decided_at": decided_at,
    });
    let entry = json!({"device": device(kind), "op_id": "op@v1", "call_key": call_key, "direction": "forward",
                       "config": {"block": block}, "provenance": provenance});
    format!("{entry}\n")
}

impl Place {
    /// A file of lines.
    fn lines(&self, name: &str, lines: &[String]) -> String {
        self.file(name, lines.concat())
    }

    /// A cache folder with these entries.
    fn folder(&self, name: &str, lines: &[String]) -> String {
        let file = self.lines(&format!("{name}.jsonl"), lines);
        let done = run(&self.path(name), &["cache", "import", "--format", "jsonl", &file]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        self.text(name)
    }

    fn cache(&self, arguments: &[&str]) -> Run {
        self.run(&[&["cache"], arguments].concat())
    }
}

/// One config per call, read from a cache folder by another process.
fn blocks(cache: &Path) -> Vec<(String, u64)> {
    let rows = run(cache, &["cache", "ls", "--format", "json"]).json();
    let rows = rows["entries"].as_array().unwrap();
    rows.iter()
        .map(|row| (row["call_key"].as_str().unwrap().to_owned(), row["config"]["block"].as_u64().unwrap()))
        .collect()
}

#[test]
fn caches_of_every_kind_merge_to_the_same_bytes_in_any_order() {
    let place = Place::new();
    let a = place.folder("a", &[line("H200", "k1", 1, 10, 100), line("H200", "k2", 2, 10, 100)]);
    let b = place.lines("b.jsonl", &[line("H200", "k1", 7, 11, 100), line("A100", "k1", 3, 10, 100)]);
    let c = place.folder("c", &[line("H200", "k3", 4, 10, 100)]);
    let c = {
        let snapshot = place.text("c.snapshot");
        assert_eq!(run(Path::new(&c), &["cache", "snapshot", &snapshot]).code, 0);
        snapshot
    };
    let before = fs::read(place.path("a/samples-v1.log")).unwrap();
    for kind in ["snapshot", "json", "jsonl"] {
        let (one, other) = (place.text(&format!("one.{kind}")), place.text(&format!("other.{kind}")));
        let merged = place.cache(&["merge", &a, &b, &c, "-o", &one]);
        assert_eq!(merged.code, 0, "{}", merged.stderr);
        assert!(merged.stdout.trim_end().ends_with(&one), "{}", merged.stdout);
        assert_eq!(place.cache(&["merge", &c, &a, &b, &a, "-o", &other]).code, 0);
        assert_eq!(fs::read(&one).unwrap(), fs::read(&other).unwrap(), "{kind}");
        // the export equals the import
        assert_eq!(place.cache(&["diff", &one, &place.text("one.snapshot")]).code, 0);
    }
    assert_eq!(fs::read(place.path("a/samples-v1.log")).unwrap(), before, "an input stays as it is");

    let (folder, snapshot) = (place.text("merged"), place.text("one.snapshot"));
    assert_eq!(place.cache(&["merge", &a, &b, &c, "-o", &folder]).code, 0);
    let expected = [("k1", 3), ("k1", 7), ("k2", 2), ("k3", 4)].map(|(key, block)| (key.to_owned(), block));
    assert_eq!(blocks(Path::new(&folder)), expected);
    assert_eq!(fs::read(place.path("merged/best-v1.snapshot")).unwrap(), fs::read(&snapshot).unwrap());
    assert_eq!(place.cache(&["verify", &folder, &snapshot]).code, 0);
    // a second time, with the folder itself among the caches: nothing changes, not even in the log
    let log = fs::read(place.path("merged/samples-v1.log")).unwrap();
    assert_eq!(place.cache(&["merge", &folder, &b, "-o", &folder]).code, 0);
    assert_eq!(fs::read(place.path("merged/samples-v1.log")).unwrap(), log);
    // the loser's provenance is kept
    let rows = run(Path::new(&folder), &["cache", "ls", "--format", "json"]).json();
    assert_eq!(rows["entries"][1]["superseded"][0]["provenance"]["rounds"], 10);
    assert_eq!(rows["entries"][1]["superseded"][0]["config"]["block"], 1);
}

#[test]
fn an_input_that_is_none_is_named_and_nothing_is_written() {
    let place = Place::new();
    let good = place.lines("good.jsonl", &[line("H200", "k1", 1, 10, 100)]);
    let snapshot = place.text("a.snapshot");
    assert_eq!(place.cache(&["merge", &good, "-o", &snapshot]).code, 0);
    let bytes = fs::read(&snapshot).unwrap();
    let flipped = {
        let mut bytes = bytes.clone();
        let at = bytes.windows(8).position(|window| window == b"\"rounds\"").unwrap();
        bytes[at + 9] ^= 1;
        fs::write(place.path("flipped.snapshot"), bytes).unwrap();
        place.text("flipped.snapshot")
    };
    fs::write(place.path("cut.snapshot"), &bytes[..bytes.len() - 1]).unwrap();
    fs::create_dir(place.path("empty")).unwrap();
    let folder = place.folder("log", &[line("H200", "k1", 1, 10, 100), line("H200", "k2", 1, 10, 100)]);
    let log = place.path("log/samples-v1.log");
    let mut bytes = fs::read(&log).unwrap();
    let at = bytes.windows(2).position(|window| window == b"k1").unwrap();
    bytes[at] ^= 1;
    fs::write(&log, bytes).unwrap();
    let torn = place.lines("torn.jsonl", &["{\"device\":".to_owned()]);
    for (input, expected) in [
        (flipped.as_str(), "record at byte"),
        (&place.text("cut.snapshot"), "bytes"),
        (&place.text("empty"), "is not a cache folder"),
        (&folder, "is not a record"),
        (&torn, "line 1"),
        (&place.text("nowhere"), "No such file"),
        ("/dev/null", "is not a cache"),
    ] {
        let out = place.text("out.snapshot");
        let merged = place.cache(&["merge", &good, input, "-o", &out]);
        assert_eq!((merged.code, merged.stdout.as_str()), (BAD_INPUT, ""), "{input}");
        assert!(merged.fault().contains(input) && merged.fault().contains(expected), "{}", merged.fault());
        assert!(!Path::new(&out).exists());
        assert_eq!(place.cache(&["diff", &good, input]).code, BAD_INPUT);
        let verified = place.cache(&["verify", &good, input]);
        assert_eq!(verified.code, BAD_INPUT, "{input}: {}", verified.stdout);
        assert!(verified.fault().contains(input), "{}", verified.fault());
        assert!(verified.stdout.contains("good") && verified.stdout.contains("problem:"), "{}", verified.stdout);
    }
    let nothing = place.lines("nothing.jsonl", &[]);
    let merged = place.cache(&["merge", &nothing, "-o", &snapshot]);
    assert_eq!(merged.code, NOTHING_MATCHED);
    assert_eq!(place.cache(&["verify", &snapshot]).code, 0, "what was there is there still");
    let wrong = place.cache(&["merge", &good, "-o", &place.text("out.snap")]);
    assert_eq!(wrong.code, USAGE);
    assert!(wrong.fault().contains("`.snapshot`, `.json` or `.jsonl`"), "{}", wrong.fault());
}

#[test]
fn a_cache_in_use_is_read_and_its_holder_named_but_not_written() {
    let place = Place::new();
    let folder = place.folder("a", &[line("H200", "k1", 1, 10, 100)]);
    let held = Ledger::open(Path::new(&folder), vec![]).unwrap();
    let merged = place.cache(&["merge", &folder, "-o", &place.text("out.jsonl")]);
    assert_eq!(merged.code, 0, "{}", merged.stderr);
    let holder = format!("in use by process {} ", std::process::id());
    assert!(merged.stderr.contains(&holder) && merged.stderr.contains(&folder), "{}", merged.stderr);
    assert_eq!(fs::read_to_string(place.path("out.jsonl")).unwrap().lines().count(), 1);
    let verified = place.cache(&["verify", &folder]);
    assert_eq!(verified.code, 0, "{}", verified.stdout);
    assert!(verified.stdout.contains(&holder), "{}", verified.stdout);
    let into = place.cache(&["merge", &place.text("out.jsonl"), "-o", &folder]);
    assert_eq!(into.code, CACHE_TROUBLE, "{}", into.stderr);
    drop(held);
    assert_eq!(place.cache(&["merge", &place.text("out.jsonl"), "-o", &folder]).code, 0);
    // a published snapshot without its log is also a cache
    fs::remove_file(place.path("a/samples-v1.log")).unwrap();
    let alone = place.cache(&["merge", &folder, "-o", &place.text("alone.jsonl")]);
    assert!(alone.stderr.contains("reading its snapshot"), "{}", alone.stderr);
    assert_eq!(fs::read(place.path("alone.jsonl")).unwrap(), fs::read(place.path("out.jsonl")).unwrap());
}

#[test]
fn every_flipped_byte_of_a_cache_folder_is_found_where_it_is() {
    let place = Place::new();
    let folder = place.folder("a", &[line("H200", "k1", 1, 10, 100), line("H200", "k2", 2, 10, 100)]);
    let good = place.cache(&["verify", &folder, "--format", "json"]).json();
    let kinds: Vec<_> = good["checked"].as_array().unwrap().iter().map(|row| (&row["kind"], &row["entries"])).collect();
    assert_eq!(
        kinds,
        [(&json!("sample-log"), &json!(2)), (&json!("sled"), &json!(2)), (&json!("snapshot"), &json!(2))]
    );
    let files: Vec<PathBuf> = [fs::read_dir(place.path("a/sled-v1")).unwrap(), fs::read_dir(place.path("a")).unwrap()]
        .into_iter()
        .flatten()
        .map(|item| item.unwrap().path())
        .filter(|path| path.is_file() && !path.ends_with("lock"))
        .collect();
    assert!(files.len() >= 4, "{files:?}");
    for path in files {
        let bytes = fs::read(&path).unwrap();
        // eight positions of each file, including the first and the last byte
        for n in 0..8 {
            let at = (bytes.len() - 1) * n / 7;
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            fs::remove_file(&path).unwrap();
            fs::write(&path, bad).unwrap();
            let found = place.cache(&["verify", &folder, "--format", "json"]);
            assert_eq!(found.code, BAD_INPUT, "byte {at} of {}: {}", path.display(), found.stdout);
            let in_sled = path.starts_with(place.path("a/sled-v1")) || path.ends_with("sled-v1.state");
            let named = if in_sled { place.path("a/sled-v1") } else { path.clone() };
            assert!(found.fault().contains(&named.display().to_string()), "{}", found.fault());
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    assert_eq!(place.cache(&["verify", &folder]).code, 0);
    // a log that was cut at the end of a record has no wrong byte: sled reveals it
    let log = place.path("a/samples-v1.log");
    let text = fs::read_to_string(&log).unwrap();
    let last = text.trim_end().rfind('\n').unwrap();
    fs::write(&log, &text[..=last]).unwrap();
    let found = place.cache(&["verify", &folder]);
    assert_eq!(found.code, BAD_INPUT);
    assert!(found.stdout.contains("its entries are not those of the sample log"), "{}", found.stdout);
    assert!(found.stdout.contains("1 entry not as in the sample log"), "{}", found.stdout);
}

#[test]
fn what_was_decided_under_other_software_is_pruned() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let plugin = plugin.display().to_string();
    let device = place.run(&["device", "--plugin", &plugin, "--format", "json"]).json();
    let device = &device["plugins"][0]["devices"][0];
    let entry = |call_key: &str, identity: &Value, environment: &Value| {
        let mut entry: Value = serde_json::from_str(&line("x", call_key, 1, 10, 100)).unwrap();
        entry["device"] = identity.clone();
        entry["provenance"]["environment"] = environment.clone();
        format!("{entry}\n")
    };
    let (here, elsewhere) = (&device["identity"], json!({"platform": "cpu", "device_kind": "another"}));
    let (mut old, present) = (device["environment"].clone(), &device["environment"]);
    old["driver"] = json!("1.0");
    let lines = [entry("old", here, &old), entry("present", here, present), entry("elsewhere", &elsewhere, &old)];
    let cache = place.folder("cache", &lines);
    let done = place.cache(&["prune", "--stale", "--plugin", &plugin]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains("op@v1:old") && done.stdout.contains("driver `1.0` there"), "{}", done.stdout);
    let left: Vec<_> = blocks(Path::new(&cache)).into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, ["elsewhere", "present"]);
}

#[test]
fn an_entry_of_clocks_that_were_set_is_flagged_and_drawn() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let told = |sm_mhz: u32| json!({"sm_mhz": sm_mhz, "memory_mhz": 2619, "max_sm_mhz": 1980, "max_memory_mhz": 2619});
    let entry = |call_key: &str, clocks: Value| {
        let mut entry: Value = serde_json::from_str(&line("H100", call_key, 1, 10, 100)).unwrap();
        entry["provenance"]["clocks"] = clocks;
        format!("{entry}\n")
    };
    place.folder("cache", &[entry("set", told(1410)), entry("free", told(1980))]);
    let get = |key: &str| {
        let words = ["get", "op@v1", key, "--match", "any", "--plugin", plugin.to_str().unwrap(), "--format", "json"];
        let found = place.cache(&words).json();
        (found["provenance"]["clocks"].clone(), found["flags"].to_string())
    };
    let words = "the GPU's clocks were set there: 1410 of 1980 MHz, memory 2619 of 2619 MHz";
    let (clocks, flags) = get("set");
    assert!(clocks == told(1410) && flags.contains(words), "{clocks} {flags}");
    let (clocks, flags) = get("free");
    assert!(clocks == told(1980) && !flags.contains("clocks"), "{clocks} {flags}");
    // more rounds at other clocks do not replace the latest decision, which has other conditions
    let decided = |name: &str, block, rounds, at, clocks: Value| {
        let mut entry: Value = serde_json::from_str(&line("H100", "k", block, rounds, at)).unwrap();
        entry["provenance"]["clocks"] = clocks;
        place.lines(name, &[format!("{entry}\n")])
    };
    for (clocks, expected) in [(told(1410), 3), (told(1980), 2)] {
        let inputs = [decided("a.jsonl", 2, 10, 200, told(1410)), decided("b.jsonl", 3, 50, 100, clocks)];
        let out = place.text("merged.jsonl");
        assert_eq!(place.cache(&["merge", &inputs[0], &inputs[1], "-o", &out]).code, 0);
        let merged: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
        assert_eq!(merged["config"]["block"], expected, "{merged}");
        fs::remove_file(out).unwrap();
    }
    let done = place.run(&["report", &place.text("cache"), "-o", &place.text("page.html")]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("<dd>1410 of 1980 MHz, memory 2619 of 2619 MHz</dd>"), "{page}");
}

#[test]
fn a_look_up_says_in_which_state_it_finds_the_hardwares_caches() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let entry = |call_key: &str, state: &str| {
        let mut entry: Value = serde_json::from_str(&line("H100", call_key, 1, 10, 100)).unwrap();
        entry["provenance"]["cache_state"] = state.into();
        format!("{entry}\n")
    };
    place.folder("cache", &[entry("warm", "warm"), entry("cold", "cold")]);
    let flags = |key: &str, asked: &[&str]| {
        let words = ["get", "op@v1", key, "--match", "any", "--plugin", plugin.to_str().unwrap(), "--format", "json"];
        place.cache(&[&words[..], asked].concat()).json()["flags"].to_string()
    };
    let cold = ["--cache-state", "cold"];
    assert!(!flags("warm", &[]).contains("caches") && !flags("cold", &cold).contains("caches"));
    assert!(flags("cold", &[]).contains("caches `cold` there, `warm` here"));
    assert!(flags("warm", &cold).contains("caches `warm` there, `cold` here"));
}

#[test]
fn the_class_of_kept_options_is_said() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let row = r#"{"device":"cpu:cpu","op_id":"compiler_options@v1","call_key":"aa","config":{"xla_cpu_enable_fast_math":true}}"#;
    let file = place.file("entries.jsonl", row);
    assert_eq!(place.cache(&["import", "--format", "jsonl", &file]).code, 0);
    let get = ["get", "compiler_options@v1", "aa", "--match", "any", "--plugin", plugin.to_str().unwrap()];
    let found = place.cache(&get);
    assert!(found.stderr.contains("options of the class `fast-math`"), "{}", found.stderr);
    assert!(!found.stdout.contains("class"), "{}", found.stdout);
}

/// A look-up asks the timer that tunes for its device: right after a run nothing is stale.
#[test]
fn look_ups_are_for_the_device_of_the_timer_that_tunes() {
    let place = Place::new();
    write_replay(&example().join("registry"), &place.path("replay.json"));
    let mut recording: Value = serde_json::from_slice(&fs::read(place.path("replay.json")).unwrap()).unwrap();
    recording["device"]["environment"] = json!({"platform_version": "a compiler that nobody has"});
    let timer = format!("replay:{}", place.file("replay.json", recording.to_string()));
    let module = module();
    let tuned = place.run(&[&module, "--timer", &timer]);
    assert_eq!(tuned.code, 0, "{}", tuned.stderr);
    let covered = place.cache(&["coverage", &module, "--timer", &timer, "--format", "json"]);
    assert_eq!(covered.code, 0, "{}", covered.stderr);
    let covered = covered.json();
    let calls = covered["calls"].as_array().unwrap();
    assert!(calls.iter().all(|call| call["config"].is_object() && call.get("flags").is_none()), "{covered}");
    let (op, key) = (calls[0]["op_id"].as_str().unwrap(), calls[0]["call_key"].as_str().unwrap());
    let got = place.cache(&["get", op, key, "--timer", &timer, "--format", "json"]);
    assert_eq!((got.code, &*got.stderr), (0, ""));
    assert_eq!(got.json()["config"], calls[0]["config"]);
    let shown = place.run(&["device", "--timer", &timer, "--format", "json"]).json();
    let environment = &shown["plugins"][0]["devices"][0]["environment"];
    assert_eq!(*environment, recording["device"]["environment"]);
    let pruned = place.cache(&["prune", "--stale", "--dry-run", "--timer", &timer, "--format", "json"]);
    assert_eq!(pruned.json()["removed"], json!([]), "{}", pruned.stderr);
    let twice = place.cache(&["coverage", &module, "--timer", &timer, "--for", "simulated"]);
    assert_eq!(twice.code, USAGE, "{}", twice.stderr);
}

/// An environment whose JAX is the only compiler: its worker is played.
#[test]
fn a_machine_with_jax_alone_needs_no_plugin() {
    let place = Place::new();
    for package in ["jax", "jaxlib"] {
        let package = place.path("venv/lib/python3.11/site-packages").join(package);
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("__init__.py"), "").unwrap();
    }
    fs::create_dir(place.path("venv/bin")).unwrap();
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli/worker.py");
    let script = format!("#!/bin/sh\nexec python3 -u {} fine {}\n", worker.display(), place.text("started"));
    write_executable(&place.path("venv/bin/python"), &script);
    let row = r#"{"device":"cpu:played","op_id":"a@v1","call_key":"k","config":{"block":2}}"#;
    let rows = place.lines("rows.jsonl", &[row.to_owned()]);
    assert_eq!(place.cache(&["import", "--format", "json", &rows]).code, 0);
    let of = |words: &[&str]| {
        let mut command = command(&place.path("cache"));
        for variable in ["PJRT_NAMES_AND_LIBRARY_PATHS", "PJRT_PLUGIN_LIBRARY_PATH"] {
            command.env_remove(variable);
        }
        ended(command.env("VIRTUAL_ENV", place.path("venv")).args(words))
    };
    let shown = of(&["device", "--format", "json"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let shown = shown.json();
    assert_eq!(shown["plugins"][0]["timer"], "jax", "{shown}");
    assert_eq!(shown["plugins"][0]["devices"][0]["identity"]["device_kind"], "played", "{shown}");
    let got = of(&["cache", "get", "a@v1", "k"]);
    assert_eq!(got.code, 0, "{}", got.stderr);
    let covered = of(&["cache", "coverage", &module()]);
    assert_eq!(covered.code, SOME_FAILED, "{}", covered.stderr);
    assert_eq!(of(&["device", "--timer", "pjrt"]).code, DEVICE_TROUBLE);
}

/// A snapshot that somebody overwrites, as `cp` does, is truncated first. A command that has it open must survive that.
#[test]
fn a_snapshot_that_is_cut_while_it_is_merged_ends_nothing() {
    let place = Place::new();
    // the command reports for each folder that it reads the snapshot, in more bytes than the pipe holds. So after the
    // first report, the first snapshot is open, and nothing is merged yet
    let folders: Vec<String> = (0..40).map(|number| format!("{number}-{}", "x".repeat(200))).collect();
    let filled = place.folder("filled", &[line("H200", "k1", 1, 10, 100)]);
    for name in &folders {
        fs::create_dir(place.path(name)).unwrap();
        fs::copy(Path::new(&filled).join("best-v1.snapshot"), place.path(name).join("best-v1.snapshot")).unwrap();
    }
    let (mut said, saying) = std::io::pipe().unwrap();
    let holds = rustix::pipe::fcntl_setpipe_size(&saying, 4096).unwrap();
    assert!(holds < 8000, "{holds}");
    let mut command = command(&place.path("cache"));
    command.args(["cache", "merge", "-o", &place.text("merged.snapshot")]);
    command.args(folders.iter().map(|name| place.path(name))).stderr(saying).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut first = [0];
    said.read_exact(&mut first).unwrap();
    let snapshot = fs::File::options().write(true).open(place.path(&folders[0]).join("best-v1.snapshot")).unwrap();
    snapshot.set_len(0).unwrap();
    let mut stderr = String::new();
    said.read_to_string(&mut stderr).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}: {stderr}");
    assert_eq!(run(&place.path("merged.snapshot"), &["cache", "ls"]).code, 0);
    // one that is truncated before it is opened is named
    let cut = place.cache(&["merge", &place.text(&folders[0]), &filled, "-o", &place.text("other.snapshot")]);
    assert_eq!(cut.code, BAD_INPUT, "{}", cut.stderr);
    assert!(cut.fault().contains("it is not a snapshot"), "{}", cut.stderr);
}

#[test]
fn ls_says_what_a_folder_takes() {
    let place = Place::new();
    let folder = place.folder("folder", &[line("H200", "k1", 1, 10, 100), line("H200", "k2", 2, 10, 100)]);
    let folder = Path::new(&folder);
    fs::create_dir_all(folder.join("executables-v1/deep")).unwrap();
    fs::write(folder.join("executables-v1/deep/a.exe"), [0; 900]).unwrap();
    fs::create_dir(folder.join("sled-v1.set-aside-1700000000-0")).unwrap();
    fs::write(folder.join("sled-v1.set-aside-1700000000-0/db"), [0; 200]).unwrap();
    fs::write(folder.join("notes.txt"), [0; 30]).unwrap();
    std::os::unix::fs::symlink("best-v1.snapshot", folder.join("link")).unwrap();
    let taken = run(folder, &["cache", "ls", "--format", "json"]).json()["folder_bytes"].clone();
    let length = |name: &str| fs::metadata(folder.join(name)).unwrap().len();
    assert_eq!(
        (&taken["log"], &taken["snapshot"]),
        (&json!(length("samples-v1.log")), &json!(length("best-v1.snapshot")))
    );
    assert_eq!((&taken["executables"], &taken["set_aside"]), (&json!(900), &json!(200)));
    assert_eq!(taken["other"], json!(30 + length("lock")));
    assert!(taken["sled"].as_u64().unwrap() > length("sled-v1.state"));
    let table = run(folder, &["cache", "ls"]);
    assert!(table.stderr.contains(" takes ") && table.stderr.contains("executables 900 B"), "{}", table.stderr);
    assert!(!table.stdout.contains("takes"), "{}", table.stdout);
}

#[test]
fn a_clock_before_1970_is_said() {
    let place = Place::new();
    let row = place.lines("row.jsonl", &[line("a", "k", 64, 20, 7)]);
    let clock = place.path("early_clock.so");
    build("early_clock.c", &clock);
    let run = |words: &[&str]| ended(command(&place.path("cache")).args(words).env("LD_PRELOAD", &clock));
    for words in [&["cache", "import", "--format", "jsonl", &row][..], &["cache", "rebuild"], &["cache", "rm", "op@v1"]]
    {
        let run = run(words);
        assert_eq!((run.code, run.stderr.lines().count()), (CACHE_TROUBLE, 1), "{words:?}: {}", run.stderr);
        assert!(run.fault().contains("clock shows a time before 1970; set it"), "{}", run.stderr);
    }
    // what needs no database goes on
    let merged = run(&["cache", "merge", &row, "-o", &place.text("a.snapshot")]);
    assert_eq!(merged.code, 0, "{}", merged.stderr);
}

#[test]
fn a_limit_of_processes_is_said() {
    let place = Place::new();
    let row = place.lines("row.jsonl", &[line("a", "k", 64, 20, 7)]);
    let limit = place.path("no_threads.so");
    build("no_threads.c", &limit);
    let (module, out) = (small_module(), place.text("out.snapshot"));
    for words in [
        &["cache", "import", "--format", "jsonl", &row][..],
        &["cache", "merge", &row, "-o", &out],
        &["scan", &module],
        &[&module],
    ] {
        let run = ended(command(&place.path("cache")).args(words).env("LD_PRELOAD", &limit));
        assert_eq!((run.code, run.stderr.lines().count()), (DEVICE_TROUBLE, 1), "{words:?}: {}", run.stderr);
        assert!(run.fault().contains("raise the limit of processes"), "{}", run.stderr);
    }
    // what needs none goes on
    let run = ended(command(&place.path("cache")).args(["cache", "path"]).env("LD_PRELOAD", &limit));
    assert_eq!(run.code, 0, "{}", run.stderr);
}
