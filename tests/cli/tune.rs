//! The main job as a user starts it, on a real plugin, and a program that loads its result.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::OnceLock;

use crate::support::prerequisite::{plugin, python3};
use crate::support::program::*;
use serde_json::Value;

/// The library's example reads the main job's result.
#[test]
fn a_program_loads_the_best_config_at_run_time() {
    let (place, module) = (Place::new(), module());
    write_replay(&example().join("registry"), &place.path("replay.json"));
    let timer = measured_as_in(&place.path("replay.json"));
    let result = place.run(&[&module, "--timer", &timer, "--format", "json"]).json();
    let operation = &result["operations"][0];
    let load = |key: &str| {
        let words = ["cpu", "cpu", operation["op_id"].as_str().unwrap(), key, "cpu_model=simulated"];
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.args(["run", "--quiet", "--locked", "--example", "load_best", "--"]).arg(place.path("cache")).args(words);
        let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let found = load(operation["call_key"].as_str().unwrap());
    let config = serde_json::to_string(&operation["best"]["config"]).unwrap();
    assert!(found.starts_with(&format!("{config} (from the snapshot tier)")), "{found}");
    assert!(found.contains("StaleEnvironment"), "the example knows no platform version: {found}");
    assert!(load("0000000000000000").contains("not for `0000000000000000`"));
}

/// Who pipes a module in may take his time, so the timer starts meanwhile; what is wrong with the module is said first.
#[test]
fn the_timer_starts_while_standard_input_is_read() {
    let place = Place::new();
    let pipe = place.text("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let worker = place.file("worker.sh", format!("echo begun > '{pipe}'\nexit 1\n"));
    let mut tune = command(&place.path("cache"));
    tune.args(["-", "--registry", "none", "--timer", &format!("command:sh {worker}")]).stdin(Stdio::piped());
    let mut tune = tune.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // nothing is written yet
    assert_eq!(fs::read_to_string(&pipe).unwrap(), "begun\n");
    tune.stdin.take().unwrap().write_all(b"no module").unwrap();
    let run = Run::of(tune.wait_with_output().unwrap(), &["-"]);
    assert!(run.fault().contains("`standard input`: is not a module"), "{}", run.stderr);
}

/// The candidates of a record that is being made are compiled before there is a module; of many, only the baseline is.
#[test]
fn candidates_that_are_named_before_the_module_are_compiled_meanwhile() {
    let place = Place::new();
    let registry = place.path("registry");
    copy_folder(Path::new("tests/data/small/registry"), &registry);
    let records = fs::read_dir(registry.join("invocations/split_matmul_v1")).unwrap();
    let read = |path: PathBuf| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let records = records.map(|file| read(file.unwrap().path())["invocation"].take());
    let count = |record: &Value| record["candidates"].as_array().unwrap().len();
    let record: Value = records.max_by_key(count).unwrap();
    let candidates = record["candidates"].as_array().unwrap();
    let asked = |name: &str, of: usize, lines: &dyn Fn(usize) -> String| {
        let pipe = place.text(name);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut tune = command(&place.path("cache"));
        let timer = format!("command:{} tests/data/cli/ahead_worker.py '{pipe}'", python3());
        tune.args(["-", "--candidates-ahead", "--timer", &timer, "--registry"]).arg(&registry);
        let mut tune = tune.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = tune.stdin.take().unwrap();
        let mut asked = BufReader::new(fs::File::open(&pipe).unwrap()).lines();
        let mut seen = Vec::new();
        for index in 0..candidates.len() {
            stdin.write_all(lines(index).as_bytes()).unwrap();
            // nothing else is written before it is asked for
            if index == 0 || of == candidates.len() {
                seen.push(asked.next().unwrap().unwrap());
            }
        }
        stdin.write_all(b"\nno module").unwrap();
        drop(stdin);
        let run = Run::of(tune.wait_with_output().unwrap(), &["-"]);
        seen.extend(asked.map(Result::unwrap));
        (seen, run)
    };
    let named = |index: usize, of: usize| {
        let (op_id, call_key, direction) = (&record["op_id"], &record["call_key"], &record["direction"]);
        let candidate = &candidates[index];
        let line = serde_json::json!({"op_id": op_id, "call_key": call_key, "direction": direction, "of": of,
            "candidate": candidate});
        format!("{line}\n")
    };
    let expected: Vec<String> = (candidates.iter().enumerate())
        .map(|(index, candidate)| {
            let (config, program) = (&candidate["config"], &candidate["program"]["digest"]);
            format!("0 {index} {} {}.mlirbc", serde_json::to_string(config).unwrap(), program.as_str().unwrap())
        })
        .collect();
    let all = candidates.len();
    assert!((2..=8).contains(&all));
    let (seen, run) = asked("few", all, &|index| named(index, all));
    assert_eq!(seen, expected);
    assert!(run.fault().contains("`standard input`: is not a module"), "{}", run.stderr);
    let (seen, _) = asked("many", 9, &|index| named(index, 9));
    assert_eq!(seen, expected[..1]);
}

/// The small step tuned on the real plugin, once for all tests here, and the resulting cache folder.
fn tuned_step(plugin: &Path) -> &'static (Run, PathBuf) {
    static TUNED: OnceLock<(Run, PathBuf)> = OnceLock::new();
    TUNED.get_or_init(|| {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tuned-step");
        if cache.exists() {
            fs::remove_dir_all(&cache).unwrap();
        }
        let arguments = [&small_module(), "--rounds", "8", "--plugin", plugin.to_str().unwrap(), "--format", "json"];
        (run(&cache, &arguments), cache)
    })
}

/// A cache folder with only the small step's executables.
pub(super) fn compiled_step(folder: &Path, plugin: &Path) -> PathBuf {
    let cache = folder.join("cache");
    let executables = "executables-v1";
    copy_folder(&tuned_step(plugin).1.join(executables), &cache.join(executables));
    cache
}

/// The call that is being measured when the next tests end a run, the second of four.
const SECOND: &str = "[2/4] split_matmul@v1:42e2c7e98f232139: ";

/// Starts the main job on the real plugin, waits until it reports two rounds of the second call, and ends it. Returns
/// its exit and its output until then: if this process does not run at once, the job may have continued for a while.
fn ended(cache: &Path, plugin: &Path, end: impl FnOnce(&mut Child)) -> (Output, Vec<String>) {
    let module = small_module();
    let arguments = [module.as_str(), "--rounds", "10", "--plugin", plugin.to_str().unwrap()];
    let mut child = command(cache).args(arguments).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut said: Vec<String> = Vec::new();
    let second = format!("{SECOND}round 2 of 10");
    while !said.last().is_some_and(|line| line.contains(&second)) {
        said.push(lines.next().expect("it ended before it was measured"));
    }
    end(&mut child);
    said.extend(lines);
    (child.wait_with_output().unwrap(), said)
}

/// Rounds in the log, over all calls, without those that confirm.
fn rounds_in(cache: &Path) -> u64 {
    let log = fs::read(cache.join("samples-v1.log")).unwrap();
    let log = String::from_utf8_lossy(&log);
    (log.matches(r#""record":"round""#).count() - log.matches(r#""confirming":true"#).count()) as u64
}

#[test]
fn a_killed_run_loses_no_written_round_and_goes_on() {
    let Some(plugin) = plugin() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = compiled_step(folder.path(), &plugin);
    let (_, said) = ended(&cache, &plugin, |child| child.kill().unwrap());
    // only every second round has a line
    let rounds = said.iter().filter_map(|line| line.split_once(SECOND)?.1.strip_prefix("round "));
    let reported = rounds.map(|rest| rest.split([' ', ',']).next().unwrap().parse::<u64>().unwrap()).max().unwrap();
    let written = rounds_in(&cache);

    let resumed =
        run(&cache, &[&small_module(), "--rounds", "10", "--plugin", plugin.to_str().unwrap(), "--format", "json"]);
    assert_eq!(resumed.code, 0, "{}", resumed.stderr);
    let result = resumed.json();
    let operations = result["operations"].as_array().unwrap();
    let number = |operation: &Value, name: &str| operation[name].as_u64().unwrap();
    // the first one had a winner, which fresh processes confirm now
    assert!(number(&operations[0], "rounds_kept") >= 6, "{}", operations[0]);
    let is_undecided = |operation: &Value| operation["status"] == "undecided";
    // unless a busy machine's noise hid it
    let first = (&operations[0]["status"], number(&operations[0], "rounds_measured"));
    assert!(first == (&"tuned".into(), 0) || is_undecided(&operations[0]), "{}", operations[0]);
    let second = &operations[1];
    assert!(number(second, "rounds_kept") >= reported, "{reported} rounds were reported: {second}");
    assert!(number(second, "rounds_kept") + number(second, "rounds_measured") >= 6, "{second}");
    // nothing written is lost, and the log grew only by what was measured now
    let measured: u64 = operations.iter().map(|operation| number(operation, "rounds_measured")).sum();
    assert_eq!(rounds_in(&cache), written + measured, "{result}");
    assert!(operations.iter().all(|operation| operation["best"].is_object() || is_undecided(operation)), "{result}");
}

#[test]
fn ctrl_c_ends_with_what_is_decided() {
    let Some(plugin) = plugin() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = compiled_step(folder.path(), &plugin);
    let (output, _) = ended(&cache, &plugin, |child| {
        rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::INT).unwrap();
    });
    assert_eq!(output.status.code(), Some(130));
    let table = String::from_utf8(output.stdout).unwrap();
    // what nobody confirmed yet is not decided
    let decided = table.lines().filter(|line| line.ends_with("tuned") || line.ends_with("baseline kept")).count();
    assert!(table.contains("interrupted") && table.contains("its samples are kept") && decided < 4, "{table}");
    let list = run(&cache, &["cache", "ls", "--format", "json"]);
    assert!(!list.stderr.contains("set aside"), "{}", list.stderr);
    assert_eq!(list.json()["entries"].as_array().unwrap().len(), decided, "{table}");
}

#[test]
fn the_real_runtime_tunes_a_step() {
    let Some(plugin) = plugin() else { return };
    let (run, _) = tuned_step(&plugin);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let result = run.json();
    assert_eq!(result["source"], "host-wall");
    assert_eq!(result["device"]["identity"]["platform"], "cpu");
    for operation in result["operations"].as_array().unwrap() {
        let measured: Vec<&Value> = operation["candidates"].as_array().unwrap().iter().collect();
        // a race ends early where one is left, as on a busy machine where the others are several times slower
        let is_dropped = |candidate: &&&Value| candidate["dropped"].is_string();
        let left: Vec<_> = measured.iter().filter(|candidate| !is_dropped(candidate)).collect();
        let has_enough = |candidate: &&&Value| candidate["rounds"].as_u64().unwrap() >= 6;
        assert!(left.len() == 1 || left.iter().all(has_enough), "{operation}");
        assert!(operation["resolution"].as_f64().unwrap() > 0.0, "{operation}");
        assert!(
            operation["time_breakdown"]["measuring_ns"].as_u64().unwrap()
                > operation["time_breakdown"]["running_ns"].as_u64().unwrap()
        );
        assert!(measured.iter().all(|candidate| candidate["median_ns"].as_f64().unwrap() > 1000.0), "{operation}");
    }
}

#[test]
fn operations_are_shared_among_devices() {
    let Some(plugin) = plugin() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = compiled_step(folder.path(), &plugin);
    let module = small_module();
    let plugin = plugin.display().to_string();
    let two = ["--client-option", "cpu_device_count=2", "--rounds", "6", "--format", "json"];
    let mut arguments = vec![module.as_str(), "--plugin", &plugin, "--devices", "0,1"];
    arguments.extend(two);
    let run_of_two = run(&cache, &arguments);
    assert!([0, 1].contains(&run_of_two.code), "{}", run_of_two.stderr);
    let result = run_of_two.json();
    assert_eq!(result["operations"].as_array().unwrap().len(), 4);
    for operation in result["operations"].as_array().unwrap() {
        // two programs in parallel on two cores may not be distinguished, or far apart after three rounds
        assert!(operation["rounds_measured"].as_u64() > Some(0), "{operation}");
    }
    for (list, expected) in
        [("0,0", "is not a list of devices"), ("1-0", "not a list"), ("a", "not a list"), ("0,7", "device 7")]
    {
        let refused = run(&cache, &[&module, "--plugin", &plugin, "--devices", list]);
        assert!([2, 5].contains(&refused.code) && refused.stderr.contains(expected), "{list}: {}", refused.stderr);
    }
    let refused = run(&cache, &[&module, "--devices", "0,1", "--timer", "replay:x"]);
    assert!(refused.code == 2 && refused.stderr.contains("has one device"), "{}", refused.stderr);
}
