//! `--trace-run`: the run's own timeline, on a simulated clock, and from the program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::prerequisite::{plugin, python3};
use crate::support::program::{module, run};
use crate::support::scripted::{ScriptedTimer, config, distinct_program, registry, tune_told};
use autotune_lowered::analysis::trace::TraceFormat;
use autotune_lowered::cli::exit;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::report::RunTrace;
use autotune_lowered::timer::events::Events;
use autotune_lowered::tune::{Status, TuneOptions};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;
/// A time in 2025, nanoseconds since 1970.
const START_NS: u64 = 1_750_000_000_000_000_000;
const CALL: &str = "op@v1:0123456789abcdef";

/// A slice of a row, with times in nanoseconds after the trace's beginning.
#[derive(Debug, Clone, PartialEq)]
struct Slice {
    row: String,
    depth: usize,
    name: String,
    start_ns: u64,
    end_ns: u64,
    arguments: Value,
}

/// The slices of a Chrome trace by row and time; fails if one exceeds the slice that it began in.
fn slices(trace: &Value) -> Vec<Slice> {
    let events = trace["traceEvents"].as_array().unwrap();
    let row = |event: &Value| {
        let is_name = |one: &&Value| one["name"] == "thread_name" && one["tid"] == event["tid"];
        events.iter().find(is_name).unwrap()["args"]["name"].as_str().unwrap().to_owned()
    };
    let ns = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as u64;
    let mut found: Vec<Slice> = events
        .iter()
        .filter(|event| event["ph"] == "X")
        .map(|event| Slice {
            row: row(event),
            depth: 0,
            name: event["name"].as_str().unwrap().to_owned(),
            start_ns: ns(&event["ts"]),
            end_ns: ns(&event["ts"]) + ns(&event["dur"]),
            arguments: event["args"].clone(),
        })
        .collect();
    found.sort_by_key(|slice| (slice.row.clone(), slice.start_ns, std::cmp::Reverse(slice.end_ns)));
    let mut open: Vec<(String, u64, u64)> = Vec::new();
    for slice in &mut found {
        // a slice without length belongs to the one in progress until then
        let is_over = |(row, start, end): &(String, u64, u64)| {
            *row != slice.row
                || if slice.start_ns == slice.end_ns {
                    *end < slice.start_ns
                } else {
                    *end <= slice.start_ns.max(*start)
                }
        };
        while open.last().is_some_and(is_over) {
            open.pop();
        }
        assert!(open.last().is_none_or(|(_, _, end)| slice.end_ns <= *end), "{slice:?} overlaps another");
        slice.depth = open.len();
        if slice.start_ns < slice.end_ns {
            open.push((slice.row.clone(), slice.start_ns, slice.end_ns));
        }
    }
    found
}

/// The simulated timer's calls: method, candidate, start and end.
type Calls = Arc<Mutex<Vec<(String, usize, u64, u64)>>>;

/// A timer whose calls move the clock: preparing takes 3 ms, outputs 2 ms, measuring the candidate's time.
fn simulated(
    ns: &[u64],
    clock: &Arc<AtomicU64>,
    mut script: impl FnMut(usize, &str, u64) -> Result<(), Failure> + Send + 'static,
) -> (ScriptedTimer, Calls) {
    let calls = Calls::default();
    let (clock, noted, times) = (Arc::clone(clock), Arc::clone(&calls), ns.to_vec());
    let timer = ScriptedTimer::new(ns).with_script(move |candidate, method, number| {
        let takes = match method {
            "prepare" => 3 * MS,
            "outputs" => 2 * MS,
            _ => times[candidate],
        };
        let start_ns = clock.fetch_add(takes, Ordering::Relaxed) - START_NS;
        noted.lock().unwrap().push((method.to_owned(), candidate, start_ns, start_ns + takes));
        script(candidate, method, number)
    });
    (timer, calls)
}

#[test]
fn every_call_is_a_slice_of_its_candidate_in_its_phase() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 5, &distinct_program);
    let clock = Arc::new(AtomicU64::new(START_NS));
    let mut has_crashed = false;
    let (mut timer, calls) =
        simulated(&[10 * MS, 8 * MS, 5 * MS, 12 * MS, 9 * MS], &clock, move |candidate, method, number| {
            match (candidate, method) {
                (3, "prepare") => Err(Failure::new(FailureKind::Compile, "no such layout")),
                // once, in the rounds
                (1, "measure") if number > 25 && !std::mem::replace(&mut has_crashed, true) => {
                    Err(Failure::new(FailureKind::Crash, "SIGSEGV"))
                }
                _ => Ok(()),
            }
        });
    timer.outputs[4] = 2.0;
    let now = Arc::clone(&clock);
    let trace = Arc::new(Mutex::new(RunTrace::default()));
    let events = Events::by(move || now.load(Ordering::Relaxed)).and(trace.clone());
    let ledger = Ledger::in_memory(vec![]);
    let result = tune_told(&registry, &invocation, &mut timer, &ledger, &TuneOptions::default(), None, &events);
    let trace = trace.lock().unwrap();
    let operation = &result.unwrap().operations[0];
    assert_eq!((operation.status, &operation.best.as_ref().unwrap().config), (Status::Tuned, &config(2)));

    let path = folder.path().join("run.json");
    let traced = trace.write(&path, TraceFormat::Chrome).unwrap();
    assert_eq!((traced.extra_tracks, traced.notes().len(), trace.skipped()), (0, 0, 0), "{traced:?}");
    let document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(document["otherData"]["start_ns"], START_NS.to_string());
    let slices = slices(&document);
    assert_eq!(slices.len() as u64, traced.slices);
    assert!(slices.iter().all(|slice| slice.row == slices[0].row), "one thread, one row");

    // the operation's first slice takes as long as its calls until a winner is known; the others are those of the
    // processes that confirm it
    let calls = calls.lock().unwrap();
    let whole = slices.iter().find(|slice| slice.name == CALL).unwrap();
    let last = calls.iter().rev().find(|(.., end_ns)| *end_ns <= whole.end_ns).unwrap();
    assert_eq!((whole.depth, whole.start_ns, whole.end_ns), (0, 0, last.3));
    assert_eq!(whole.arguments["status"], "provisional");
    let concluded = slices.iter().rfind(|slice| slice.name == CALL).unwrap();
    assert_eq!(concluded.arguments["status"], "tuned");
    let phases: Vec<&str> = slices
        .iter()
        .filter(|slice| slice.depth == 1 && slice.start_ns < slice.end_ns)
        .map(|slice| slice.name.as_str())
        .collect();
    let confirming = ["confirm"; 3];
    let choosing = ["compile", "warm-up", "compare outputs", "warm-up", "measure"];
    assert_eq!(phases, [&choosing[..], &confirming].concat());
    for moment in ["make inputs", "load inputs", "decide", "commit", "publish"] {
        assert!(slices.iter().any(|slice| slice.name == moment), "{moment}");
    }

    // each call is in a slice of its candidate, with the config, in the phase that makes such calls
    let in_phase = |start_ns: u64| {
        let is_phase = |slice: &&Slice| slice.depth == 1 && (slice.start_ns..slice.end_ns).contains(&start_ns);
        slices.iter().find(is_phase).unwrap().name.as_str()
    };
    for (method, candidate, start_ns, end_ns) in &*calls {
        let name = format!("candidate {candidate}");
        let around = |slice: &&Slice| slice.name == name && slice.start_ns <= *start_ns && slice.end_ns >= *end_ns;
        let phase = in_phase(*start_ns);
        match (method.as_str(), slices.iter().find(around)) {
            (_, Some(_)) if phase == "confirm" => assert!([0, 2].contains(candidate), "the baseline and the winner"),
            ("prepare", Some(slice)) => {
                assert_eq!((phase, slice.start_ns, slice.end_ns), ("compile", *start_ns, *end_ns));
            }
            ("outputs", Some(slice)) => {
                assert_eq!((phase, slice.start_ns, slice.end_ns), ("compare outputs", *start_ns, *end_ns));
            }
            ("measure", Some(slice)) if phase == "measure" => {
                assert_eq!((slice.start_ns, slice.end_ns), (*start_ns, *end_ns), "{slice:?}");
                // after a crash the baseline and the candidate run once more, outside any round
                assert!(slice.depth == 3 || slice.depth == 2 && [0, 1].contains(candidate), "{slice:?}");
            }
            ("measure", Some(slice)) => assert_eq!((phase, slice.depth), ("warm-up", 2)),
            (_, slice) => panic!("{method} of {name}: {slice:?}"),
        }
        if let Some(slice) = slices.iter().find(around) {
            assert_eq!(slice.arguments["config"], config(*candidate as u64).as_str(), "{slice:?}");
        }
    }
    // and no candidate's slice is longer than its calls
    let took = |name: &str| -> u64 {
        let of_candidates = slices.iter().filter(|slice| slice.name == name);
        of_candidates.map(|slice| slice.end_ns - slice.start_ns).sum()
    };
    let called = |wanted: usize| -> u64 {
        calls.iter().filter(|(_, candidate, ..)| *candidate == wanted).map(|(_, _, start, end)| end - start).sum()
    };
    assert_eq!(took("candidate 2"), called(2));
    assert_eq!(took("candidate 3"), 3 * MS, "it was prepared and nothing else");

    // rounds are numbered, and have the baseline at both ends
    let choosing = |slice: &&Slice| slice.name.starts_with("round ") && slice.end_ns <= whole.end_ns;
    let rounds: Vec<&Slice> = slices.iter().filter(choosing).collect();
    let names: Vec<String> = (1..=rounds.len()).map(|round| format!("round {round}")).collect();
    assert_eq!(rounds.iter().map(|slice| slice.name.clone()).collect::<Vec<_>>(), names);
    for round in rounds {
        let inside: Vec<&Slice> = slices
            .iter()
            .filter(|slice| slice.depth == 3 && slice.start_ns >= round.start_ns && slice.end_ns <= round.end_ns)
            .collect();
        assert_eq!(
            inside.iter().map(|slice| slice.end_ns - slice.start_ns).sum::<u64>(),
            round.end_ns - round.start_ns
        );
        assert_eq!(inside[0].name, "candidate 0");
    }

    // failures are marked where they occurred
    let out = |name: &str| slices.iter().find(|slice| slice.name == name).unwrap_or_else(|| panic!("{name}"));
    let compile = out("candidate 3 is dropped");
    assert_eq!(compile.start_ns, calls.iter().find(|(_, candidate, ..)| *candidate == 3).unwrap().3);
    assert_eq!(compile.arguments, json!({"config": config(3).as_str(), "failure": "compile: no such layout"}));
    assert_eq!(in_phase(compile.start_ns - 1), "compile");
    let wrong = out("candidate 4 is dropped");
    assert!(wrong.arguments["failure"].as_str().unwrap().starts_with("wrong-output: "), "{wrong:?}");
    assert_eq!(out("restart the worker").arguments["reason"], "crash: SIGSEGV");
}

/// A space with more configs than a race takes: each try is a slice, with the phases of its own small race.
#[test]
fn a_search_shows_what_it_tried() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, invocation) = registry(&folder.path().join("registry"), 70, &distinct_program);
    let clock = Arc::new(AtomicU64::new(START_NS));
    let ns: Vec<u64> = (0..70).map(|number| (100 - number) * MS / 10).collect();
    // a try is a race of two, whose candidates have separate numbers
    let (mut timer, calls) = simulated(&ns, &clock, |_, _, _| Ok(()));
    let now = Arc::clone(&clock);
    let trace = Arc::new(Mutex::new(RunTrace::default()));
    let events = Events::by(move || now.load(Ordering::Relaxed)).and(trace.clone());
    let mut options = TuneOptions::default();
    options.search.budget.evaluations = Some(7);
    let ledger = Ledger::in_memory(vec![]);
    let result = tune_told(&registry, &invocation, &mut timer, &ledger, &options, None, &events);
    let searched = result.unwrap().operations[0].search.clone().unwrap();
    let path = folder.path().join("run.json.gz");
    trace.lock().unwrap().write(&path, TraceFormat::Chrome).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(fs::File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
    let slices = slices(&serde_json::from_str(&text).unwrap());
    let search = slices.iter().find(|slice| slice.name == "search").unwrap();
    assert_eq!((search.depth, &search.arguments["configs"]), (1, &json!(70)));
    let tries: Vec<&Slice> = slices.iter().filter(|slice| slice.name.starts_with("try ")).collect();
    assert_eq!((tries.len(), searched.evaluations), (7, 7));
    for (number, one) in (1..).zip(&tries) {
        assert_eq!((one.name.as_str(), one.depth), (&*format!("try {number}"), 2));
        assert!(one.arguments["config"].as_str().unwrap().starts_with("{\"block\":"), "{one:?}");
    }
    let took: u64 = tries.iter().map(|one| one.end_ns - one.start_ns).sum();
    assert_eq!(took, search.end_ns - search.start_ns, "nothing else moves the clock");
    assert!(calls.lock().unwrap().len() > 7 * 4);
}

#[test]
fn the_program_writes_the_trace_of_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/profiling_worker.py");
    let timer = format!("command:exec {} {} {}", python3(), worker.display(), folder.path().display());
    let (module, cache) = (module(), folder.path().join("cache"));
    let tune = |out: &Path, more: &[&str]| {
        let out = out.display().to_string();
        let words = ["--timer", &timer, "--rounds", "6", "--no-persist", "--format", "json", "--trace-run", &out];
        run(&cache, &[&[&*module][..], &words, more].concat())
    };
    let path = folder.path().join("run.json");
    let done = tune(&path, &["-vv"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(!done.stderr.contains("contenders="), "the log says nothing of it: {}", done.stderr);
    let slices = slices(&serde_json::from_slice(&fs::read(&path).unwrap()).unwrap());
    let top: Vec<&str> = slices
        .iter()
        .filter(|slice| slice.depth == 0 && slice.row == "tuner")
        .map(|slice| slice.name.as_str())
        .collect();
    // each process that confirms is announced, and first those of all four calls
    let fresh = top.iter().filter(|name| **name == "start a fresh process").count();
    let said: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("fresh process ")).collect();
    assert_eq!(
        (said.len(), said.first()),
        (fresh, Some(&"fresh process 1 measures 4 winners again")),
        "{}",
        done.stderr
    );
    // those of the processes that confirm come again
    let mut seen = std::collections::BTreeSet::new();
    let top: Vec<&str> = top.into_iter().filter(|name| seen.insert(*name)).collect();
    let operations: Vec<String> = done.json()["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|operation| {
            format!("{}:{}", operation["op_id"].as_str().unwrap(), operation["call_key"].as_str().unwrap())
        })
        .collect();
    let expected: Vec<&str> = ["read the module", "open the cache", "start the timer", "plan"]
        .into_iter()
        .chain(operations.iter().map(String::as_str))
        .chain(["start a fresh process", "publish"])
        .collect();
    assert_eq!(top, expected);
    // the phases match the times in the result, which come from separate readings of the clock
    let whole = |call: &str| slices.iter().find(|slice| slice.name == call).unwrap().clone();
    for (operation, call) in done.json()["operations"].as_array().unwrap().iter().zip(&operations) {
        let whole = whole(call);
        for (phase, member) in [
            ("compile", "compile_ns"),
            ("compare outputs", "checking_ns"),
            ("warm-up", "warm_up_ns"),
            ("measure", "measuring_ns"),
        ] {
            let of_phase = slices.iter().filter(|slice| slice.depth == 1 && slice.name == phase);
            let inside = of_phase.filter(|slice| slice.start_ns >= whole.start_ns && slice.end_ns <= whole.end_ns);
            let took: u64 = inside.map(|slice| slice.end_ns - slice.start_ns).sum();
            let told = operation["time_breakdown"][member].as_u64().unwrap();
            assert!(told > 0 && took >= told, "{phase} of {call}: {took} ns, and {told} ns are told");
        }
    }
    // also a trace for Perfetto; errors that would come after the run are reported before it
    let path = folder.path().join("run.pftrace");
    assert_eq!(tune(&path, &["--dry-run"]).code, 0);
    assert!(fs::metadata(&path).unwrap().len() > 0);
    let untold = tune(&folder.path().join("run.txt"), &[]);
    assert_eq!(untold.code, i32::from(exit::USAGE), "{}", untold.stderr);
    assert!(untold.fault().contains("end it in .pftrace, .json or .json.gz"), "{}", untold.stderr);
    let nowhere = tune(&folder.path().join("absent/run.json"), &[]);
    assert_eq!(nowhere.code, i32::from(exit::BAD_INPUT), "{}", nowhere.stderr);
    assert!(nowhere.fault().contains("cannot write the trace"), "{}", nowhere.stderr);
}

/// Parallel compilation has a row for each worker, with operation and config.
#[test]
fn compile_workers_have_rows_of_their_own() {
    let Some(plugin) = plugin() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let (module, plugin, out) = (module(), plugin.display().to_string(), path.display().to_string());
    let call = "blocked_matmul@v1:97c0056ebd3eafab";
    let words = ["--plugin", &plugin, "--rounds", "6", "--only", call, "--compile-jobs", "2", "--trace-run", &out];
    let done = run(&folder.path().join("cache"), &[&[&*module, "--format", "json"][..], &words].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    let slices = slices(&serde_json::from_slice(&fs::read(&path).unwrap()).unwrap());
    let mut rows: Vec<&str> = slices.iter().map(|slice| slice.row.as_str()).collect();
    rows.dedup();
    assert_eq!(rows, ["compile-0", "compile-1", "tuner"]);
    let phase = slices.iter().find(|slice| slice.depth == 1 && slice.name == "compile").unwrap();
    let candidates = done.json()["operations"][0]["candidates"].as_array().unwrap().clone();
    let mut compiled: Vec<&Slice> =
        slices.iter().filter(|slice| slice.name.starts_with("compile candidate ")).collect();
    compiled.sort_by_key(|slice| slice.name.clone());
    assert_eq!(compiled.len(), candidates.len());
    for (number, (slice, candidate)) in compiled.into_iter().zip(&candidates).enumerate() {
        assert_eq!((slice.name.as_str(), slice.depth), (&*format!("compile candidate {number}"), 0));
        assert_eq!(slice.arguments["operation"], call);
        let config: Value = serde_json::from_str(slice.arguments["config"].as_str().unwrap()).unwrap();
        assert_eq!(config, candidate["config"]);
        assert!(slice.start_ns >= phase.start_ns && slice.end_ns <= phase.end_ns, "{slice:?} {phase:?}");
    }
}
