//! `cache merge`, `diff`, `verify`, `prune`, `coverage` and JSON lines, as a user runs them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::executable::write_executable;
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
fn a_diff_is_told_as_a_table_and_as_json() {
    let place = Place::new();
    let before = place.lines("a.jsonl", &[line("H200", "k1", 1, 10, 100), line("H200", "k2", 2, 10, 100)]);
    let after = place.lines("b.jsonl", &[line("H200", "k1", 1, 12, 100), line("H200", "k3", 3, 10, 100)]);
    let same = place.cache(&["diff", &before, &before]);
    assert_eq!((same.code, same.stdout.as_str()), (0, "0 differ, 2 are the same\n"));
    let table = place.cache(&["diff", &before, &after]);
    assert_eq!(table.code, DIFFERENT);
    for expected in ["evidence", "1.18× in 12 rounds by device-profile", "removed", "added", "3 differ, 0 are the same"]
    {
        assert!(table.stdout.contains(expected), "{expected}: {}", table.stdout);
    }
    let found = place.cache(&["diff", &before, &after, "--format", "json"]).json();
    let told: Vec<_> = found["differences"].as_array().unwrap().iter().map(|row| &row["change"]).collect();
    assert_eq!(told, ["evidence", "removed", "added"]);
    assert_eq!(found["differences"][0]["after"]["provenance"]["rounds"], 12);
    assert_eq!(found["differences"][2]["before"], Value::Null);
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
fn pruning_removes_what_all_conditions_hold_of() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let day = 24 * 3600;
    let place = Place::new();
    let by_hand = json!({"device": "cuda:H200", "op_id": "op@v1", "call_key": "hand", "config": {"block": 9}});
    let cache = place.folder(
        "cache",
        &[
            line("H200", "old", 1, 10, now - 100 * day),
            line("H200", "new", 2, 10, now - 80 * day),
            line("A100", "old", 3, 10, now - 100 * day),
            line("H200", "tomorrow", 4, 10, now + 10 * day),
            format!("{by_hand}\n"),
        ],
    );
    let cache = Path::new(&cache);
    let all = blocks(cache);
    assert_eq!(all.len(), 5);
    assert_eq!(place.cache(&["prune"]).code, USAGE, "everything is not meant by nothing");
    assert_eq!(place.cache(&["prune", "--older-than", "90"]).code, USAGE);
    let said = place.cache(&["prune", "--older-than", "90d", "--for", "H200", "--dry-run"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stdout.contains("op@v1:old") && said.stdout.contains("decided 100 days ago"), "{}", said.stdout);
    assert!(said.stdout.ends_with("would remove 1\n"), "{}", said.stdout);
    assert_eq!(blocks(cache), all);
    let done = place.cache(&["prune", "--older-than", "90d", "--for", "H200", "--format", "json"]).json();
    assert_eq!((&done["removed"][0]["call_key"], done["removed"].as_array().unwrap().len()), (&json!("old"), 1));
    let left: Vec<_> = blocks(cache).into_iter().map(|(_, block)| block).collect();
    assert_eq!(left, [9, 2, 3, 4]);
    assert_eq!(place.cache(&["prune", "--older-than", "12w"]).stdout.lines().last(), Some("removed 1"));
    let nothing = place.cache(&["prune", "--older-than", "12w"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (0, "removed 0\n"));
    // durable in every store, and published
    let verified = place.cache(&["verify", &cache.display().to_string(), "--format", "json"]).json();
    for row in verified["checked"].as_array().unwrap() {
        assert_eq!((&row["entries"], &row["notes"]), (&json!(3), &json!([])), "{row}");
    }
}

#[test]
fn kept_executables_are_bounded_by_prune_and_by_a_run() {
    let place = Place::new();
    let cache = place.path("cache");
    let folder = cache.join("executables-v2");
    fs::create_dir_all(&folder).unwrap();
    let put = |digit: &str, kib: usize, days: u64| {
        let path = folder.join(format!("{}.exe", digit.repeat(64)));
        fs::write(&path, vec![0; kib << 10]).unwrap();
        let used = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        fs::File::open(&path).unwrap().set_modified(used).unwrap();
    };
    put("a", 800, 0);
    put("b", 800, 1);
    put("c", 1, 40);
    let exist = || ["a", "b", "c"].map(|digit| folder.join(format!("{}.exe", digit.repeat(64))).exists());
    let words = ["prune", "--executables"];
    let said = place.cache(&[&words[..], &["--dry-run"]].concat());
    let expected = "would remove 0\nkept executables: would remove 1 (1.02 kB), 2 stay (1.64 MB)\n";
    assert_eq!((said.code, said.stdout.as_str(), exist()), (0, expected, [true; 3]), "{}", said.stderr);
    let note = folder.join(".open-elsewhere-Abc123");
    fs::write(&note, b"").unwrap();
    let said = place.cache(&words);
    assert!(
        said.stdout.ends_with("none of them can be removed: the host `elsewhere` has it open\n"),
        "{}",
        said.stdout
    );
    assert_eq!(exist(), [true; 3]);
    fs::remove_file(note).unwrap();
    let bounded = |mib: &str, words: &[&str]| {
        let mut command = command(&cache);
        let output = command.env("AUTOTUNE_LOWERED_EXECUTABLES_MIB", mib).args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let json = ["cache", "prune", "--executables", "--format", "json"];
    let (code, _, stderr) = bounded("much", &json);
    assert_eq!((code, exist()), (Some(USAGE), [true; 3]));
    assert!(stderr.contains("a number of MiB is expected"), "{stderr}");
    let (_, stdout, _) = bounded("1", &json);
    let done: Value = serde_json::from_str(&stdout).unwrap();
    let expected = json!({"kept": 1, "kept_bytes": 800 << 10, "removed": 2, "removed_bytes": 801 << 10});
    assert_eq!((&done["executables"], exist()), (&expected, [true, false, false]));
    // and without a command: by every tuner in this folder
    let registry = example().join("registry").display().to_string();
    let replay = place.path("replay.json");
    write_replay(Path::new(&registry), &replay);
    let timer = format!("replay:{}", replay.display());
    let (code, _, stderr) = bounded("0", &[&module(), "--registry", &registry, "--timer", &timer]);
    assert_eq!((code, exist()), (Some(0), [false; 3]), "{stderr}");
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
fn the_class_of_kept_options_is_shown() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let entry = |key: &str, config: &str| {
        format!(
            "{{\"device\":\"cpu:cpu\",\"op_id\":\"compiler_options@v1\",\"call_key\":\"{key}\",\"config\":{config}}}\n"
        )
    };
    let lines = [
        entry("aa", r#"{"xla_cpu_enable_fast_math":true,"xla_cpu_prefer_vector_width":512}"#),
        entry("bb", r#"{"xla_cpu_prefer_vector_width":512}"#),
        entry("cc", r#"{"xla_own":1}"#),
        entry("dd", "{}"),
    ];
    let file = place.lines("entries.jsonl", &lines);
    assert_eq!(place.cache(&["import", "--format", "jsonl", &file]).code, 0);
    let table = place.cache(&["ls"]).stdout;
    let ends = ["512 (fast-math)", "512 (safe)", "xla_own=1 (class unknown)", "XLA's defaults"];
    let rows: Vec<&str> =
        table.lines().filter(|line| line.contains("compiler_options@v1:")).map(str::trim_end).collect();
    assert!(rows.len() == 4 && rows.iter().zip(ends).all(|(row, end)| row.ends_with(end)), "{table}");
    let json = place.cache(&["ls", "--format", "json"]).json();
    let classes: Vec<&Value> = json["entries"].as_array().unwrap().iter().map(|row| &row["class"]).collect();
    assert_eq!(classes, [&json!("fast-math"), &json!("safe"), &Value::Null, &Value::Null]);
    let get = ["get", "compiler_options@v1", "aa", "--match", "any", "--plugin", plugin.to_str().unwrap()];
    let found = place.cache(&get);
    assert!(found.stderr.contains("options of the class `fast-math`"), "{}", found.stderr);
    assert!(!found.stdout.contains("class"), "{}", found.stdout);
}

#[test]
fn compiler_options_are_printed_as_flags() {
    let place = Place::new();
    let entry = |key: &str, device: &str, config: &str| {
        format!(
            "{{\"device\":\"{device}\",\"op_id\":\"compiler_options@v1\",\"call_key\":\"{key}\",\"config\":{config}}}\n"
        )
    };
    let lines = [
        entry("aa01", "cuda:NVIDIA H200", r#"{"xla_b":"True","xla_a":2}"#),
        entry("bb02", "cuda:NVIDIA H200", r#"{"xla_a":3}"#),
        entry("cc03", "tpu:TPU v6e", r#"{"xla_tpu_a":1}"#),
    ];
    let file = place.lines("entries.jsonl", &lines);
    assert_eq!(place.cache(&["import", "--format", "jsonl", &file]).code, 0);
    let one = place.cache(&["export", "--format", "xla-flags", "--key", "aa"]);
    assert_eq!((one.code, one.stdout.as_str()), (0, "XLA_FLAGS=--xla_a=2 --xla_b=true\n"), "{}", one.stderr);
    // the process's own flags stay, in front
    let mut of_process = command(&place.path("cache"));
    of_process.env("XLA_FLAGS", "--xla_b=false  --xla_dump_to=/d");
    let after = ended(of_process.args(["cache", "export", "--format", "xla-flags", "--key", "aa"]));
    assert_eq!(after.stdout, "XLA_FLAGS=--xla_dump_to=/d --xla_a=2 --xla_b=true\n", "{}", after.stderr);
    let after = ended(of_process.env("XLA_FLAGS", "flags.txt"));
    assert!(after.code == 4 && after.fault().contains("names the file `flags.txt`"), "{}", after.stderr);
    let tpu = place.cache(&["export", "--format", "libtpu-init-args"]);
    assert_eq!((tpu.code, tpu.stdout.as_str()), (0, "LIBTPU_INIT_ARGS=--xla_tpu_a=1\n"), "{}", tpu.stderr);
    let several = place.cache(&["export", "--format", "xla-flags"]);
    assert!(several.code != 0 && several.stdout.is_empty(), "{}", several.stdout);
    assert!(several.stderr.contains("2 entries have different compiler options"), "{}", several.stderr);
    assert_eq!(place.cache(&["export", "--format", "xla-flags", "--key", "cc"]).code, 3);
    assert!(place.cache(&["export", "--format", "json"]).stderr.contains("name the file or folder to write"));
    // all of them by program, for tools that compile one by one
    let options = place.cache(&["export", "--format", "options-json"]).json();
    let by_digest = json!({"aa01": {"xla_b": "True", "xla_a": 2}, "bb02": {"xla_a": 3}, "cc03": {"xla_tpu_a": 1}});
    assert_eq!(options, json!({"schema": 1, "compiler_options": by_digest}));
    let of_tpu = place.cache(&["export", "--format", "options-json", "--for", "TPU"]).json();
    assert_eq!(of_tpu["compiler_options"], json!({"cc03": {"xla_tpu_a": 1}}));
    assert_eq!(place.cache(&["export", "--format", "options-json", "--key", "dd"]).code, 3);
    let other = place.lines("other.jsonl", &[entry("aa01", "cuda:NVIDIA L4", r#"{"xla_a":9}"#)]);
    assert_eq!(place.cache(&["import", "--format", "options-json", &other]).code, 4);
    assert_eq!(place.cache(&["import", "--format", "jsonl", &other]).code, 0);
    let two = place.cache(&["export", "--format", "options-json"]);
    assert!(
        two.code != 0 && two.stderr.contains("entries of `aa01` have different compiler options"),
        "{}",
        two.stderr
    );
}

#[test]
fn lines_are_stable_and_little_is_enough() {
    let place = Place::new();
    place.folder("cache", &[line("H200", "k2", 1, 10, 100), line("H200", "k1", 2, 10, 100)]);
    let out = place.text("anything.txt");
    assert_eq!(place.cache(&["export", "--format", "jsonl", &out]).code, 0);
    let text = fs::read_to_string(&out).unwrap();
    let keys: Vec<Value> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["call_key"].clone()).collect();
    assert_eq!(keys, ["k1", "k2"]);
    let again = place.text("again.jsonl");
    assert_eq!(run(&place.path("other"), &["cache", "import", "--format", "jsonl", &out]).code, 0);
    assert_eq!(run(&place.path("other"), &["cache", "export", "--format", "json", &again]).code, 0);
    assert_eq!(fs::read_to_string(&again).unwrap(), text);

    let short = place.lines(
        "short.jsonl",
        &["{\"device\":\"cuda:NVIDIA H200\",\"op_id\":\"a@v1\",\"call_key\":\"k\",\"config\":{\"b\":2}}\n".to_owned()],
    );
    let third = place.path("third");
    assert_eq!(run(&third, &["cache", "import", "--format", "jsonl", &short]).stdout, "imported 1 of 1\n");
    let row = &run(&third, &["cache", "ls", "--format", "json"]).json()["entries"][0];
    assert_eq!(row["device"], json!({"platform": "cuda", "device_kind": "NVIDIA H200", "hardware": {}}));
    for (device, expected) in [
        ("\"H200\"", "PLATFORM:KIND"),
        ("\":x\"", "PLATFORM:KIND"),
        ("\"cpu:cpu (cores=2)\"", "as an object"),
        ("7", "PLATFORM:KIND"),
        ("{\"platform\":\"cpu\"}", "PLATFORM:KIND"),
    ] {
        let text = fs::read_to_string(&short).unwrap().replace("\"cuda:NVIDIA H200\"", device);
        let file = place.lines("wrong.jsonl", &[text]);
        let refused = run(&third, &["cache", "import", "--format", "jsonl", &file]);
        assert_eq!(refused.code, BAD_INPUT);
        assert!(refused.fault().contains("line 1") && refused.fault().contains(expected), "{}", refused.fault());
    }
}

#[test]
fn coverage_tells_which_labels_have_a_config() {
    let place = Place::new();
    let replay = place.path("replay.json");
    write_replay(&example().join("registry"), &replay);
    let module = module();
    let tuned = place.run(&[&module, "--timer", &format!("replay:{}", replay.display())]);
    assert_eq!(tuned.code, 0, "{}", tuned.stderr);
    let snapshot = place.text("best.snapshot");
    assert_eq!(place.cache(&["merge", &place.text("cache"), "-o", &snapshot]).code, 0);
    let all = place.cache(&["coverage", &module, "--of", &snapshot, "--for", "simulated", "--format", "json"]);
    assert_eq!(all.code, 0, "{}", all.stderr);
    let all = all.json();
    let calls = all["calls"].as_array().unwrap();
    assert!(calls.len() > 1 && all["covered"] == calls.len(), "{all}");
    assert!(calls.iter().all(|call| call["config"].is_object() && call.get("flags").is_none()), "{all}");

    // without one of its entries
    let lost = calls[0]["op_id"].as_str().unwrap();
    assert_eq!(place.cache(&["rm", lost]).code, 0);
    let of = ["--of", &place.text("cache"), "--for", "simulated"];
    let some = place.cache(&[&["coverage", &module], &of[..]].concat());
    assert_eq!(some.code, DIFFERENT, "{}", some.stdout);
    assert!(some.stdout.contains("missing") && some.stdout.contains("nothing is cached for"), "{}", some.stdout);
    assert_eq!(place.cache(&[&["coverage", &module, "--require", "10%"], &of[..]].concat()).code, 0);
    assert_eq!(place.cache(&[&["coverage", &module, "--require", "101%"], &of[..]].concat()).code, USAGE);

    // a StableHLO module's labels are complete: no registry is needed
    let alone = place.text("alone.mlir");
    fs::copy(example().join("module.stablehlo.mlir"), &alone).unwrap();
    let whole = place.cache(&["coverage", &alone, "--of", &snapshot, "--for", "simulated"]);
    assert_eq!(whole.code, 0, "{}\n{}", whole.stdout, whole.stderr);
    // those of HLO text are cut
    let alone = place.text("alone.hlo.txt");
    fs::copy(&module, &alone).unwrap();
    let cut = place.cache(&["coverage", &alone, "--of", &snapshot, "--for", "simulated"]);
    assert_eq!(cut.code, DIFFERENT, "{}", cut.stdout);
    assert!(cut.stdout.contains("name the recordings with `--registry`"), "{}", cut.stdout);

    let nobody = place.cache(&["coverage", &module, "--of", &snapshot, "--for", "H200"]);
    assert_eq!(nobody.code, NOTHING_MATCHED);
    assert!(nobody.fault().contains("`H200`"), "{}", nobody.fault());
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
    assert_eq!(covered.code, DIFFERENT, "{}", covered.stderr);
    assert_eq!(of(&["device", "--timer", "pjrt"]).code, DEVICE_TROUBLE);
}

#[test]
fn a_cache_that_is_not_there_is_named() {
    let place = Place::new();
    let (nowhere, out, module) = (place.text("nowhere"), place.text("out.json"), module());
    for words in [
        &["export", "--format", "json", &*out][..],
        &["ls"],
        &["seed", &*out],
        &["snapshot", &*out],
        &["coverage", &*module],
        &["prune", "--older-than", "1d", "--dry-run"],
    ] {
        let run = place.cache(&[words, &["--cache", &nowhere]].concat());
        assert_eq!(run.code, CACHE_TROUBLE, "{words:?}: {}", run.stderr);
        assert!(run.fault().contains(&format!("there is no cache `{nowhere}`")), "{}", run.stderr);
    }
    assert!(!place.path("out.json").exists() && !place.path("nowhere").exists());
    // one that a variable names may come to be: it is named, and the list is empty
    let listed = place.cache(&["ls"]);
    assert!(listed.code == 0 && listed.stderr.contains(&place.text("cache")), "{}", listed.stderr);
    let unnamed = place.cache(&["export", "--format", "json"]);
    assert!(unnamed.code == USAGE && unnamed.fault().contains("OUT"), "{}", unnamed.stderr);
    let run = place.run(&["registry", "ls", &nowhere]);
    assert!(run.fault().contains(&format!("there is no registry `{nowhere}`")), "{}", run.stderr);
    // a second key of the same name
    let key = place.text("key");
    assert_eq!(place.cache(&["keygen", &key]).code, 0);
    let again = place.cache(&["keygen", &key]);
    assert!(again.code != 0 && again.fault().contains("choose another name"), "{}", again.stderr);
}

#[test]
fn a_snapshot_is_only_read() {
    let place = Place::new();
    let lines = place.lines("a.jsonl", &[line("H200", "k1", 1, 10, 100)]);
    let (snapshot, module) = (place.text("best.snapshot"), module());
    assert_eq!(place.cache(&["merge", &lines, "-o", &snapshot]).code, 0);
    let before = fs::read(&snapshot).unwrap();
    for words in [&[&*module, "--timer", "pjrt"][..], &["cache", "rebuild"], &["cache", "rm", "op@v1"]] {
        let run = place.run(&[words, &["--cache", &snapshot]].concat());
        assert_eq!(run.code, CACHE_TROUBLE, "{}", run.stderr);
        let what = format!("`{snapshot}` is a file, and a snapshot is only read: name a folder with `--cache`");
        assert!(run.fault().contains(&what), "{}", run.stderr);
    }
    assert_eq!(fs::read(&snapshot).unwrap(), before);
}

/// A part of a fleet may get no call.
#[test]
fn an_empty_part_merges_without_a_warning() {
    let place = Place::new();
    let full = place.folder("full", &[line("H200", "k1", 1, 10, 100)]);
    let empty = place.folder("empty", &[line("H200", "k2", 1, 10, 100)]);
    // what is removed leaves a log without decisions and an empty snapshot
    fs::create_dir(place.path("part")).unwrap();
    let done = run(Path::new(&empty), &["cache", "rm", "op@v1"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    fs::copy(place.path("empty/best-v1.snapshot"), place.path("part/best-v1.snapshot")).unwrap();
    let merged = place.cache(&["merge", &place.text("part"), &full, "-o", &place.text("c.snapshot")]);
    assert_eq!((merged.code, merged.stderr.contains("WARN")), (0, false), "{}", merged.stderr);
    // a folder that lost its log is told about
    fs::copy(place.path("full/best-v1.snapshot"), place.path("part/best-v1.snapshot")).unwrap();
    let merged = place.cache(&["merge", &place.text("part"), "-o", &place.text("c.snapshot")]);
    assert!(merged.stderr.contains("holds no decision; reading its snapshot"), "{}", merged.stderr);
}

#[test]
fn verify_asks_for_a_signature_where_a_key_is_given() {
    let place = Place::new();
    let lines = place.lines("a.jsonl", &[line("H200", "k", 64, 20, 1000)]);
    let (snapshot, copy) = (place.text("a.snapshot"), place.text("copy.snapshot"));
    assert_eq!(place.cache(&["merge", &lines, "-o", &snapshot]).code, 0);
    let (own, other) = (place.text("own"), place.text("other"));
    for key in [&own, &other] {
        assert_eq!(place.cache(&["keygen", key]).code, 0);
    }
    let (own_public, other_public) = (format!("{own}.pub"), format!("{other}.pub"));
    let unsigned = place.cache(&["verify", &snapshot, "--key", &own_public]);
    assert!(unsigned.code == BAD_INPUT && unsigned.stdout.contains("problem: "), "{}", unsigned.stdout);

    assert_eq!(place.cache(&["sign", &snapshot, "--key", &own]).code, 0);
    let signed = place.cache(&["verify", &snapshot, "--key", &own_public]);
    assert!(signed.code == 0 && signed.stdout.contains("note: signed by "), "{}{}", signed.stdout, signed.stderr);
    assert_eq!(place.cache(&["verify", &snapshot, "--key", &other_public]).code, BAD_INPUT);
    assert_eq!(place.cache(&["verify", &lines, "--key", &own_public]).code, BAD_INPUT, "text bears no signature");

    // another snapshot with this one's signature
    let more = place.lines("b.jsonl", &[line("H200", "k", 128, 20, 2000)]);
    assert_eq!(place.cache(&["merge", &more, "-o", &copy]).code, 0);
    fs::copy(format!("{snapshot}.sig"), format!("{copy}.sig")).unwrap();
    let forged = place.cache(&["verify", &copy, "--key", &own_public]);
    assert!(forged.code == BAD_INPUT && forged.stderr.contains("copy.snapshot"), "{}", forged.stderr);
}

#[test]
fn a_path_that_leads_nowhere_is_said_in_one_line_and_nothing_is_written() {
    let place = Place::new();
    let (good, none) = (place.lines("a.jsonl", &[line("H200", "k", 64, 20, 1000)]), place.text("none"));
    let out = place.text("out.snapshot");
    for words in [
        vec!["merge", &good, &none, "-o", &out],
        vec!["diff", &good, &none],
        vec!["sign", &none, "--key", &none],
        vec!["verify", &good, "--key", &none],
        vec!["import", "--format", "jsonl", &none],
    ] {
        let run = place.cache(&words);
        assert_eq!(run.code, BAD_INPUT, "{words:?}: {}", run.stderr);
        let one_line = run.stderr.lines().count() == 1;
        assert!(one_line && run.stderr.contains(&none) && run.stderr.contains("check the path"), "{}", run.stderr);
    }
    assert!(!Path::new(&out).exists());
    let verified = place.cache(&["verify", &none]);
    assert!(verified.code == BAD_INPUT && verified.stdout.contains("unreadable"), "{}", verified.stdout);
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
fn ls_reads_a_snapshot_and_says_what_a_folder_takes() {
    let place = Place::new();
    let folder = place.folder("folder", &[line("H200", "k1", 1, 10, 100), line("H200", "k2", 2, 10, 100)]);
    let folder = Path::new(&folder);
    let snapshot = place.path("best.snapshot");
    assert_eq!(run(folder, &["cache", "snapshot", snapshot.to_str().unwrap()]).code, 0);
    // the same entries, without a note about a folder
    assert_eq!(blocks(&snapshot), blocks(folder));
    let listed = run(&snapshot, &["cache", "ls", "--format", "json"]).json();
    assert_eq!(listed["entries"][0]["tier"], "snapshot");
    assert_eq!(listed.get("folder_bytes"), None);
    let table = run(&snapshot, &["cache", "ls"]);
    assert_eq!((table.code, table.stderr.as_str()), (0, ""));
    let other = place.text("other.snapshot");
    assert_eq!(run(&snapshot, &["cache", "snapshot", &other]).code, 0);
    assert_eq!(fs::read(&other).unwrap(), fs::read(&snapshot).unwrap());
    let file = place.lines("no.snapshot", &["{}\n".to_owned()]);
    let foreign = run(Path::new(&file), &["cache", "ls"]);
    assert_eq!(foreign.code, CACHE_TROUBLE, "{}", foreign.stderr);
    assert!(foreign.fault().contains("it is not a snapshot"), "{}", foreign.stderr);
    let endless = run(Path::new("/dev/zero"), &["cache", "ls"]);
    assert_eq!(endless.code, CACHE_TROUBLE, "{}", endless.stderr);
    assert!(endless.fault().contains("`/dev/zero`: it is not a regular file"), "{}", endless.stderr);
    let tuned = run(&snapshot, &["cache", "rm", "op@v1"]);
    assert_eq!(tuned.code, CACHE_TROUBLE, "a snapshot is never changed: {}", tuned.stderr);

    fs::create_dir_all(folder.join("executables-v2/deep")).unwrap();
    fs::write(folder.join("executables-v2/deep/a.exe"), [0; 900]).unwrap();
    fs::create_dir(folder.join("sled-v1.set-aside-1700000000-0")).unwrap();
    fs::write(folder.join("sled-v1.set-aside-1700000000-0/db"), [0; 200]).unwrap();
    fs::write(folder.join("notes.txt"), [0; 30]).unwrap();
    std::os::unix::fs::symlink(&snapshot, folder.join("link")).unwrap();
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
