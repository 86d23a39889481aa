//! `--profile-every`: the work on an operation appears beside its profile, on the profile's own clock.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::prerequisite::{python_with, python3};
use crate::support::program::{Run, SMALL_CALL, run, small_module};
use autotune_lowered::profile::{XSpaceCapture, captures};
use autotune_lowered::wire::{WireCursor, WireValue};
use serde_json::Value;

const PLANE: &str = "/host:autotune-lowered";
/// The one call that every run here tunes.
const CALL: &str = SMALL_CALL;

/// A slice of a line: name, start and end in nanoseconds after the profile's zero, and its stats.
#[derive(Debug, Clone)]
struct Slice {
    name: String,
    start_ns: i64,
    end_ns: i64,
    stats: BTreeMap<String, String>,
}

fn followed(folder: &Path, timer: &str, more: &[&str]) -> (Run, Vec<XSpaceCapture>) {
    let logs = folder.join("logs");
    let kept = logs.display().to_string();
    let module = small_module();
    let words = [&*module, "--timer", timer, "--rounds", "6", "--no-persist", "--format", "json", "--only", CALL];
    let follow = ["--keep-profiles", &kept, "--profile-every", "1", "--profiles-kept", "10000"];
    let run = run(folder, &[&words[..], &follow, more].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let mut runs: Vec<PathBuf> =
        fs::read_dir(logs.join("plugins/profile")).unwrap().map(|item| item.unwrap().path()).collect();
    runs.sort();
    let captures = runs.iter().flat_map(|folder| captures(folder).unwrap()).collect();
    (run, captures)
}

fn simulated(folder: &Path, mode: &str) -> String {
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/profiling_worker.py");
    format!("command:exec {} {} {} {mode}", python3(), worker.display(), folder.display())
}

/// The lines of the plane, by name; none if the capture has no such plane.
fn lines(capture: &XSpaceCapture) -> BTreeMap<String, Vec<Slice>> {
    let Some(plane) = capture.space.planes().find(|plane| plane.name() == PLANE) else { return BTreeMap::new() };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let slices = |line: autotune_lowered::profile::Line<'_>| -> Vec<Slice> {
        let of_event = |event: autotune_lowered::profile::Event<'_>| {
            let start_ns = capture.space.base_ns() + line.start_ps(&event).unwrap() / 1000;
            let stats = event.stats().map(Result::unwrap).map(|stat| {
                let value = plane.stat_text(stat.value).map(|text| text.into_owned());
                let value = value.unwrap_or_else(|| stat.value.as_integer().unwrap().to_string());
                (text(plane.stat_name(stat.metadata_id).unwrap()), value)
            });
            Slice {
                name: text(plane.event_metadata(event.metadata_id).unwrap().name()),
                start_ns,
                end_ns: start_ns + event.duration_ps / 1000,
                stats: stats.collect(),
            }
        };
        line.events().map(Result::unwrap).map(of_event).collect()
    };
    plane.lines().map(|line| (line.name().into_owned(), slices(line))).collect()
}

/// Each slice with its depth; fails if one overlaps another without being inside it.
fn nested(slices: &[Slice]) -> Vec<(usize, &Slice)> {
    let mut open: Vec<i64> = Vec::new();
    let mut found = Vec::new();
    for slice in slices {
        // the first one contains all others, including those without length at its end
        while open.len() > 1 && open.last().is_some_and(|&end| end <= slice.start_ns) {
            open.pop();
        }
        assert!(open.last().is_none_or(|&end| slice.end_ns <= end), "{slice:?} leaves the slice that it is in");
        found.push((open.len(), slice));
        open.push(slice.end_ns);
    }
    found
}

/// The same file without the plane of phases, which follows the profiler's own.
fn without_plane(bytes: &[u8]) -> &[u8] {
    let mut cursor = WireCursor::new(bytes);
    let (mut before, mut end) = (0, 0);
    while let Some(field) = cursor.next() {
        assert!(matches!(field.unwrap(), (1, WireValue::Bytes(_))));
        (before, end) = (end, cursor.position());
    }
    assert_eq!(end, bytes.len());
    &bytes[..before]
}

#[test]
fn a_kept_profile_holds_what_led_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let (run, captures) = followed(folder.path(), &simulated(folder.path(), "clock"), &[]);
    let result = run.json();
    let operation = &result["operations"][0];
    let configs: BTreeMap<String, String> = (0..)
        .zip(operation["candidates"].as_array().unwrap())
        .map(|(number, candidate): (usize, _)| (format!("candidate {number}"), candidate["config"].to_string()))
        .collect();
    let rounds = operation["rounds_measured"].as_u64().unwrap();
    assert!(rounds >= 6 && configs.len() > 3, "{operation}");

    let last = captures.last().unwrap();
    let lines = lines(last);
    assert_eq!(lines.keys().collect::<Vec<_>>(), ["this profile's executions", "tuner"]);
    let tuner = nested(&lines["tuner"]);
    let (_, whole) = tuner[0];
    assert_eq!(whole.name, CALL);
    assert!(lines["tuner"].iter().all(|slice| slice.stats["operation"] == CALL));
    let mut phases: Vec<&str> =
        tuner.iter().filter(|(depth, _)| *depth == 1).map(|(_, slice)| slice.name.as_str()).collect();
    let of_rounds = phases.split_off(5);
    assert_eq!(phases, ["load inputs", "compile", "warm-up", "compare outputs", "warm-up"]);
    assert_eq!(of_rounds, (1..=rounds).map(|round| format!("round {round}")).collect::<Vec<_>>());
    // every candidate in every phase, with its config
    for phase in ["compile", "compare outputs"] {
        let at = tuner.iter().position(|(_, slice)| slice.name == phase).unwrap();
        let inside = tuner[at + 1..].iter().take_while(|(depth, _)| *depth == 2).map(|(_, slice)| slice);
        let told: BTreeMap<String, String> =
            inside.map(|slice| (slice.name.clone(), slice.stats["config"].clone())).collect();
        assert_eq!(told, configs, "{phase}");
    }
    // the profile was taken in the last round, after everything else
    let round = tuner.last().unwrap().1;
    assert!(round.start_ns <= 0 && round.end_ns >= 0 && whole.end_ns == round.end_ns, "{round:?}");
    assert!(
        tuner
            .iter()
            .filter(|(depth, _)| *depth == 1)
            .all(|(_, slice)| slice.end_ns <= round.start_ns || slice.name == round.name)
    );

    // the executions under the profile, according to its own events: the worker waits a microsecond between any two
    // runs
    let own = &lines["this profile's executions"];
    assert_eq!(own.first().map(|slice| slice.name.clone()), own.last().map(|slice| slice.name.clone()), "the baseline");
    assert_eq!(own[0].start_ns, 1, "where its first event begins");
    for pair in own.windows(2) {
        assert!((1000..=1002).contains(&(pair[1].start_ns - pair[0].end_ns)), "{pair:?}");
    }
    for slice in own {
        assert_eq!((&slice.stats["config"], slice.stats["runs"].as_str()), (&configs[&slice.name], "3"), "{slice:?}");
    }
}

#[test]
fn no_reader_is_disturbed() {
    let folder = tempfile::tempdir().unwrap();
    let (_, captures) = followed(folder.path(), &simulated(folder.path(), "clock"), &[]);
    let bytes = fs::read(&captures.last().unwrap().path).unwrap();
    let bare = without_plane(&bytes);
    assert!(bare.len() < bytes.len() && bytes.starts_with(bare));
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name).join("host.xplane.pb");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let (with, without) = (file("with", &bytes), file("without", bare));
    for command in ["summary", "timings", "compile", "collectives"] {
        let told = |path: &str| {
            let read = run(folder.path(), &["profile", command, path, "--format", "json"]);
            (read.code, read.stdout.replace(path, "FILE"), read.stderr.replace(path, "FILE"))
        };
        assert_eq!(told(&with), told(&without), "{command}");
    }
    let out = folder.path().join("page.html").display().to_string();
    let viewed = run(folder.path(), &["profile", "view", &with, "--output", &out]);
    assert!(viewed.code == 0, "{}", viewed.stderr);
    assert!(fs::read_to_string(&out).unwrap().contains(PLANE));
    // the page begins a little before the profile's own first event
    let page = fs::read_to_string(&out).unwrap();
    let member = |name: &str| {
        let (_, rest) = page.split_once(&format!("\"{name}\":")).unwrap();
        rest.split([',', '}']).next().unwrap().parse::<i64>().unwrap()
    };
    let before = &lines(captures.last().unwrap())["tuner"][0];
    // picoseconds
    let (own, [first, last, span]) = ((1 - before.start_ns) * 1000, ["first", "last", "span"].map(member));
    assert!(0 < first && first < own && own < last && last <= span, "{first} {own} {last} {span}");
    assert!((own - first) * 20 < last - first, "{first} {own} {last}");
    let out = folder.path().join("trace.json").display().to_string();
    assert_eq!(run(folder.path(), &["profile", "trace", &with, "-o", &out, "--stats"]).code, 0);
    let trace: Value = serde_json::from_slice(&fs::read(out).unwrap()).unwrap();
    let compile = trace["traceEvents"].as_array().unwrap().iter().find(|event| event["name"] == "compile");
    assert_eq!(compile.unwrap()["args"]["operation"], CALL);
}

#[test]
fn failures_are_named_where_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs").display().to_string();
    let (module, timer) = (small_module(), simulated(folder.path(), "failing clock"));
    let follow = ["--keep-profiles", &logs, "--profile-every", "1", "--profiles-kept", "10000"];
    run(
        folder.path(),
        &[&[&*module, "--timer", &timer, "--rounds", "6", "--no-persist", "--only", CALL], &follow[..]].concat(),
    );
    let mut runs: Vec<PathBuf> =
        fs::read_dir(Path::new(&logs).join("plugins/profile")).unwrap().map(|item| item.unwrap().path()).collect();
    runs.sort();
    let last = captures(runs.last().unwrap()).unwrap().pop().unwrap();
    let tuner = &lines(&last)["tuner"];
    nested(tuner);
    let failed: Vec<&Slice> = tuner.iter().filter(|slice| slice.name.ends_with(" failed")).collect();
    let told = |slice: &&&Slice| slice.name == "candidate 1 failed";
    assert!(failed.iter().find(told).unwrap().stats["failure"].contains("no such layout"), "{failed:?}");
    assert!(tuner.iter().any(|slice| slice.name == "restart"), "{tuner:?}");
}

/// If the profile has no clock, nothing is guessed, and one message says so.
#[test]
fn a_profile_that_does_not_say_when_it_was_has_no_phases() {
    let folder = tempfile::tempdir().unwrap();
    let (run, captures) = followed(folder.path(), &simulated(folder.path(), ""), &[]);
    assert!(captures.len() > 3 && captures.iter().all(|capture| lines(capture).is_empty()));
    assert_eq!(run.stderr.matches("hold no phases of the run").count(), 1, "{}", run.stderr);
}

/// JAX's own reader finds the plane, and the annotations name operation and config.
#[test]
fn jax_reads_the_phases_of_its_profiles() {
    let Some(python) = python_with("jax") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (run, captures) = followed(folder.path(), &format!("jax:{}", python.display()), &[]);
    let last = captures.last().unwrap();
    let read = r#"
import json, sys
from jax.profiler import ProfileData
planes = {plane.name: plane for plane in ProfileData.from_file(sys.argv[1]).planes}
own = {line.name: [[e.name, e.start_ns, e.end_ns, dict(e.stats)] for e in line.events] for line in planes["/host:autotune-lowered"].lines}
marks = [[e.name, e.start_ns, e.end_ns, dict(e.stats)] for line in planes["/host:CPU"].lines for e in line.events if e.name.startswith("autotune-lowered ")]
print(json.dumps([own, marks]))
"#;
    let output = Command::new(&python).args(["-c", read]).arg(&last.path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    // the same slices as in our reader
    for (line, slices) in lines(last) {
        let theirs = told[0][&line].as_array().unwrap();
        assert_eq!(theirs.len(), slices.len(), "{line}");
        for (slice, theirs) in slices.iter().zip(theirs) {
            assert_eq!(slice.name, text(&theirs[0]));
            assert!((theirs[1].as_f64().unwrap() - slice.start_ns as f64).abs() < 1.0, "{slice:?} {theirs}");
            assert!((theirs[2].as_f64().unwrap() - slice.end_ns as f64).abs() < 1.0, "{slice:?} {theirs}");
            assert_eq!(slice.stats["operation"], text(&theirs[3]["operation"]));
        }
    }
    // JAX's annotations are inside the round's slice, and the executions inside the annotations
    let round = told[0]["tuner"].as_array().unwrap().last().unwrap();
    let own = told[0]["this profile's executions"].as_array().unwrap();
    let marks = told[1].as_array().unwrap();
    assert_eq!(marks.len(), own.len());
    let inside = |inner: &Value, outer: &Value| {
        inner[1].as_f64().unwrap() >= outer[1].as_f64().unwrap()
            && inner[2].as_f64().unwrap() <= outer[2].as_f64().unwrap()
    };
    let candidates = run.json()["operations"][0]["candidates"].clone();
    for (mark, own) in marks.iter().zip(own) {
        assert!(inside(mark, round) && inside(own, mark), "{round} {mark} {own}");
        let number: usize = text(&mark[0]).rsplit(' ').next().unwrap().parse().unwrap();
        let config: Value = serde_json::from_str(mark[3]["config"].as_str().unwrap()).unwrap();
        assert_eq!((&config, text(&mark[3]["operation"]).as_str()), (&candidates[number]["config"], CALL));
    }
}
