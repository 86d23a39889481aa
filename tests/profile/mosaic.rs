//! On-device profiles: equal to the drawings of JAX's own code if those are right, and cases worked by hand if they are
//! not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::program;
use crate::support::program::{Run, run};
use autotune_lowered::analysis::mosaic::{Dump, Extent, Record, Scope, Timeline, read_npy};
use serde_json::{Value, json};

const FIXTURES: &str = "tests/data/mosaic";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(FIXTURES).join(name)
}

fn mosaic(dump: &Path, more: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let names = fixture("names.json");
    let arguments = ["profile", "mosaic", dump.to_str().unwrap(), "--names", names.to_str().unwrap()];
    run(folder.path(), &[&arguments[..], more].concat())
}

const LAUNCH: [&str; 4] = ["--grid", "3,2,1", "--block", "128,2"];

/// The events of ranges, in JAX's form.
fn events(trace: &Value) -> Vec<Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] != "M").cloned().collect()
}

#[test]
fn what_jax_draws_is_drawn() {
    for (name, scope, stepped) in
        [("warpgroup", "warpgroup", false), ("warp", "warp", false), ("back", "warpgroup", true)]
    {
        let jax: Value =
            serde_json::from_str(&fs::read_to_string(fixture(&format!("{name}.jax.json"))).unwrap()).unwrap();
        let run = mosaic(&fixture(&format!("{name}.npy")), &[&LAUNCH[..], &["--scope", scope]].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(events(&run.json()), events(&jax), "{name}");
        assert_eq!(jax["clock_warnings"].as_u64().unwrap() > 0, stepped);
        let said = format!("the clock went back by more than 10 cycles: {}, first the", jax["clock_warnings"]);
        assert_eq!(run.stderr.contains(&said), stepped, "{}", run.stderr);
        assert!(run.stderr.contains("each cycle is drawn as a nanosecond"), "{}", run.stderr);
    }
}

/// An array as `numpy.save` writes it.
fn npy(words: &[u32]) -> Vec<u8> {
    let header = format!("{{'descr': '<u4', 'fortran_order': False, 'shape': ({},), }}\n", words.len());
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

fn words(path: &Path) -> Vec<u32> {
    let words = read_npy(path).unwrap();
    (0..words.len()).map(|place| words.get(place)).collect()
}

/// A counter that wraps around changes nothing: moved by any amount, times and starts give the same picture.
#[test]
fn counters_that_wrap_around_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let moved = folder.path().join("moved.npy");
    let drawn = |path: &Path| events(&mosaic(path, &LAUNCH).json());
    let (original, expected) = (words(&fixture("warpgroup.npy")), drawn(&fixture("warpgroup.npy")));
    for shift in [1_u32, 1 << 31, u32::MAX - 500, u32::MAX - 500_000, 0_u32.wrapping_sub(900)] {
        let mut words = original.clone();
        for trace in words.chunks_mut(35) {
            let used = trace[2] as usize;
            trace[3..3 + used].iter_mut().skip(1).step_by(2).for_each(|time| *time = time.wrapping_add(shift));
        }
        fs::write(&moved, npy(&words)).unwrap();
        assert_eq!(drawn(&moved), expected, "{shift}");
    }
    // the earliest trace began before the global timer passed zero, the others after it
    let mut words = original;
    let starts: Vec<u32> = words.chunks(35).map(|trace| trace[0]).collect();
    let (first, last) = (*starts.iter().min().unwrap(), *starts.iter().max().unwrap());
    let shift = 0_u32.wrapping_sub((first + last) / 2);
    words.chunks_mut(35).for_each(|trace| trace[0] = trace[0].wrapping_add(shift));
    fs::write(&moved, npy(&words)).unwrap();
    let (late, count) = (f64::from(shift) / 1e3, expected.len());
    let (moved, expected): (Vec<_>, Vec<_>) = drawn(&moved)
        .iter()
        .zip(&expected)
        .map(|(moved, event)| {
            (
                (moved["name"].clone(), moved["ts"].as_f64().unwrap() - late),
                (event["name"].clone(), event["ts"].as_f64().unwrap()),
            )
        })
        .unzip();
    assert!(moved.len() > 50 && moved.len() == count, "{}", moved.len());
    for (moved, expected) in moved.iter().zip(&expected) {
        assert!(moved.0 == expected.0 && (moved.1 - expected.1).abs() < 1e-6, "{moved:?} {expected:?}");
    }
}

const EXIT: u32 = 1 << 31;
const ONE: Extent = Extent([1, 1, 1]);
const WARPGROUP: Extent = Extent([128, 1, 1]);

fn timeline(trace: &[u32]) -> (Timeline, i64) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("dump.npy"), npy(trace)).unwrap();
    let words = read_npy(&folder.path().join("dump.npy")).unwrap();
    let dump = Dump::new(&words, ONE, WARPGROUP, Scope::Warpgroup).unwrap();
    (dump.timeline(0), dump.overhead_cycles())
}

fn cycles(timeline: &Timeline) -> Vec<(i64, Option<i64>)> {
    let Timeline::Records(records) = timeline else { panic!("{timeline:?}") };
    records.iter().map(|record: &Record| (record.cycles, record.went_back_to)).collect()
}

/// Two events are at least one cycle further apart than the cost of recording one; that cost is subtracted once for
/// each earlier event.
#[test]
fn overhead_comes_off_once_an_event() {
    // steps of 8, 100 and 9 cycles: the overhead is 8 − 1
    let (found, overhead) = timeline(&[5, 0, 8, 0, 50, 1, 58, EXIT | 1, 158, EXIT, 167]);
    assert_eq!((cycles(&found), overhead), (vec![(0, None), (1, None), (94, None), (96, None)], 7));
    // never more than 11
    let (found, overhead) = timeline(&[5, 0, 4, 0, 50, EXIT, 1050]);
    assert_eq!((cycles(&found), overhead), (vec![(0, None), (989, None)], 11));
    // two at once: none, where the original wraps minus one to uint32
    let (found, overhead) = timeline(&[5, 0, 6, 0, 50, EXIT, 50, 0, 80]);
    assert_eq!((cycles(&found), overhead), (vec![(0, None), (1, Some(0)), (30, None)], 0));
    // words after the count are ignored
    let (_, overhead) = timeline(&[5, 0, 4, 0, 50, EXIT, 1050, 0, 1051, 0, 1052]);
    assert_eq!(overhead, 11);
}

#[test]
fn a_clock_that_goes_back_is_set_one_cycle_on_or_ends_the_trace() {
    let (found, overhead) = timeline(&[5, 0, 10, 0, 1000, 1, 1100, EXIT | 1, 1080, EXIT, 1300, 0, 1400]);
    assert_eq!(overhead, 11);
    // 100 − 11; 80 − 22 = 58 is earlier than 89; 300 − 33; 400 − 44
    assert_eq!(cycles(&found), [(0, None), (89, None), (90, Some(58)), (267, None), (356, None)]);
    // back to before the first event
    let (found, _) = timeline(&[5, 0, 6, 0, 1000, EXIT, 1100, 0, 990]);
    assert_eq!(found, Timeline::BeforeItsStart);
    // passing zero is not going back
    let (found, _) = timeline(&[5, 0, 4, 0, u32::MAX - 9, EXIT, 90]);
    assert_eq!(cycles(&found), [(0, None), (89, None)]);
}

#[test]
fn cycles_become_time_by_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.npy");
    // 2011 cycles, 11 of them overhead
    fs::write(&path, npy(&[7000, 3, 4, 1, 50, EXIT | 1, 2061])).unwrap();
    let launch = ["--grid", "1", "--block", "128"];
    for (clock, micros) in [(&["--clock", "2000"][..], 8.0), (&["--clock", "1600"], 8.25), (&[], 9.0)] {
        let run = mosaic(&path, &[&launch[..], clock].concat());
        let trace = run.json();
        let of = |ph, ts| json!({"name": "mma", "ph": ph, "ts": ts, "pid": 4, "tid": 1});
        assert_eq!(events(&trace), [of("B", 7.0), of("E", micros)]);
        let names: Vec<_> =
            trace["traceEvents"].as_array().unwrap()[..2].iter().map(|event| event["args"]["name"].clone()).collect();
        assert_eq!(names, ["SM 3", "block 0 warpgroup 0"]);
        assert_eq!(
            (trace["otherData"]["overhead_cycles"].as_i64(), run.stderr.is_empty()),
            (Some(11), !clock.is_empty())
        );
    }
    let out = folder.path().join("trace.json.gz");
    let run = mosaic(&path, &[&launch[..], &["-o", out.to_str().unwrap()]].concat());
    assert_eq!((run.code, run.stdout.trim_end()), (0, out.to_str().unwrap()));
    let gzip = fs::read(&out).unwrap();
    let trace: Value = serde_json::from_reader(flate2::bufread::GzDecoder::new(&gzip[..])).unwrap();
    assert_eq!(events(&trace).len(), 2);
}

/// Older versions of JAX include the header's words in the count, and require two spare words.
#[test]
fn both_ways_of_counting_are_known_by_their_parity() {
    let (old, overhead) = timeline(&[5, 0, 7, 0, 50, EXIT, 80, 9, 9]);
    assert_eq!((cycles(&old), overhead), (vec![(0, None), (19, None)], 11));
    let (new, _) = timeline(&[5, 0, 4, 0, 50, EXIT, 80, 9, 9]);
    assert_eq!(new, old);
}

#[test]
fn what_cannot_be_right_is_an_error_and_what_is_odd_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.npy");
    let launch = ["--grid", "2", "--block", "128"];
    let with = |words: &[u32], more: &[&str]| {
        fs::write(&path, npy(words)).unwrap();
        mosaic(&path, more)
    };
    for (words, more, message) in [
        (&[1, 0, 6, 0, 1, EXIT, 2, 1, 0, 0, 0, 0, 0, 0][..], &launch[..], "trace 0 used 9 of 7 words"),
        (
            &[1, 0, 4, 0, 1, EXIT, 2, 1, 0, 6, 0, 0, 0, 0],
            &launch,
            "insufficient space to capture a full trace: trace 1",
        ),
        (&[1, 0, 7, 0, 1, EXIT, 2, 1, 0, 3, 0, 0, 0, 0], &launch, "trace 0 used 7 of 7 words"),
        (&[1, 0, 4, 0, 1, EXIT, 2, 1, 0, 3, 0, 0, 0, 0], &launch, "trace 1 holds half an event"),
        (&[1, 0, 1, 0, 1, EXIT, 2, 1, 0, 1, 0, 0, 0, 0], &launch, "trace 0 holds half an event"),
        (&[1, 0, 0, 0, 1], &launch, "5 words cannot be divided into 2 traces of equal length"),
        (&[1, 0, 0, 0], &launch, "2 words per trace are too few"),
        (&[], &launch, "0 words per trace are too few"),
        (&[1, 0, 0], &["--grid", "1", "--block", "100"], "100 threads is not made of whole warpgroups of 128"),
        (&[1, 0, 0], &["--grid", "1", "--block", "48", "--scope", "warp"], "whole warps of 32"),
        (&[1, 0, 0], &["--grid", "4294967295,4294967295,4294967295", "--block", "128"], "more than 4294967296 traces"),
    ] {
        let run = with(words, more);
        assert_eq!(run.code, 4, "{message}: {}", run.stderr);
        assert!(run.fault().contains(message) && run.fault().contains("dump.npy"), "{message}: {}", run.fault());
    }
    // a range without an end, the end of another one, and a name id without a name
    let run = with(&[1, 0, 6, 0, 1, 7, 100, EXIT, 200, 1, 0, 0, 0, 0, 0, 0, 0, 0], &launch);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("ends of ranges that were not begun, or not last: 1"), "{}", run.stderr);
    assert!(run.stderr.contains("ranges without an end, drawn up to their trace's last event"), "{}", run.stderr);
    assert!(run.stderr.contains("not among the names, named by its number: 1"), "{}", run.stderr);
    let drawn = events(&run.json());
    assert_eq!((drawn[1]["name"].as_str(), drawn.len()), (Some("#7"), 4));
    // JAX 0.12 ends an open range at the last event's time
    assert_eq!(
        (&drawn[3]["name"], &drawn[3]["ph"], &drawn[3]["ts"]),
        (&drawn[0]["name"], &json!("E"), &drawn[2]["ts"])
    );
    let run = with(&[1, 0, 6, 0, 1000, EXIT, 1100, 0, 990, 1, 0, 0, 0, 0, 0, 0, 0, 0], &launch);
    assert_eq!((run.code, events(&run.json()).len()), (3, 0));
    assert!(
        run.stderr.contains("traces left out, whose clock went back to before their first event: 1"),
        "{}",
        run.stderr
    );

    let names = folder.path().join("names.json");
    for (text, message) in [
        ("{\"a\": 0, \"b\": 0}", "have the number 0"),
        ("{\"a\": \"b\"}", "`a` has the number"),
        ("7", "neither"),
        ("{", "EOF"),
        ("[1]", "1 is not text"),
    ] {
        fs::write(&names, text).unwrap();
        fs::write(&path, npy(&[1, 0, 0])).unwrap();
        let arguments = [
            "profile",
            "mosaic",
            path.to_str().unwrap(),
            "--names",
            names.to_str().unwrap(),
            "--grid",
            "1",
            "--block",
            "128",
        ];
        let run = program::run(folder.path(), &arguments);
        assert_eq!(run.code, 4);
        assert!(run.fault().contains(message), "{message}: {}", run.fault());
    }
    for wrong in [["--grid", "0"], ["--grid", "1,1,1,1"], ["--grid", "x"], ["--clock", "0"], ["--clock", "nan"]] {
        let run = with(&[1, 0, 0], &[&["--block", "128"][..], &wrong].concat());
        assert_eq!(run.code, 2, "{wrong:?}");
    }
}

/// As JAX's `jax_buffer_type` and `smem_bytes` give for the same spec.
#[test]
fn sizes_are_those_of_the_spec() {
    let folder = tempfile::tempdir().unwrap();
    let size = |more: &[&str]| run(folder.path(), &[&["profile", "mosaic-size", "--format", "json"], more].concat());
    let run = size(&["--grid", "132", "--block", "384", "--ranges", "16"]);
    let expected = json!({"schema": 1, "scope": "warpgroup", "traces": 396, "entries": 67, "ranges": 16,
                          "buffer_words": 26532, "buffer_bytes": 106_128, "shared_bytes": 804});
    assert_eq!(run.json(), expected);
    let warps = size(&["--grid", "3,2,2", "--block", "128,3,1", "--entries", "66", "--scope", "warp"]).json();
    let found = ["traces", "ranges", "buffer_words", "shared_bytes"].map(|name| warps[name].as_u64().unwrap());
    assert_eq!(found, [144, 15, 9504, 3168]);
    assert_eq!(size(&["--grid", "1", "--block", "100", "--entries", "9"]).code, 2);
    assert_eq!(size(&["--grid", "1", "--block", "128"]).code, 2);
    assert_eq!(size(&["--grid", "1", "--block", "128", "--entries", "18446744073709551615"]).code, 2);
}
