//! Traces of captures, read by decoders that share nothing with their writers: prost for Perfetto's format,
//! serde_json for Chrome's. The expected content comes from JAX's own reader.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::perfetto::{self, DebugAnnotation};
use crate::support::program::run;
use crate::support::xspace::*;
use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::trace::{TraceFormat, TraceOptions, Traced, write_trace};
use autotune_lowered::profile::XSpace;
use serde_json::Value;

/// A slice as a viewer shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Slice {
    process: String,
    thread: String,
    /// None for the thread's own track; otherwise the extra track's name.
    extra: Option<String>,
    name: String,
    start_ns: u64,
    end_ns: u64,
    arguments: BTreeMap<String, String>,
}

/// The state of a packet sequence so far.
#[derive(Default)]
struct Sequence {
    names: HashMap<(&'static str, u64), String>,
    track: u64,
}

/// Reads a trace as Perfetto's documentation describes.
fn read_perfetto(bytes: &[u8]) -> Vec<Slice> {
    let mut sequences: HashMap<u32, Sequence> = HashMap::new();
    // name, thread and process of a track
    let mut tracks: HashMap<u64, (Option<String>, String, String)> = HashMap::new();
    let mut open: HashMap<u64, Vec<Slice>> = HashMap::new();
    let mut latest: HashMap<u64, u64> = HashMap::new();
    let mut slices = Vec::new();
    for packet in perfetto::decode(bytes).packet {
        let id = packet.trusted_packet_sequence_id;
        let flags = packet.sequence_flags.unwrap_or(0);
        if flags & 1 != 0 {
            assert!(sequences.insert(id.unwrap(), Sequence::default()).is_none(), "two lines share a sequence");
        }
        if let Some(defaults) = packet.trace_packet_defaults {
            let of_events = defaults.track_event_defaults.unwrap();
            sequences.get_mut(&id.unwrap()).unwrap().track = of_events.track_uuid.unwrap();
        }
        if let Some(track) = packet.track_descriptor {
            let parent = track.parent_uuid.map(|parent| tracks[&parent].clone());
            let of = match (track.process, track.thread, parent) {
                (Some(process), None, None) => (None, String::new(), process.process_name.unwrap()),
                (None, Some(thread), Some((_, _, process))) => (None, thread.thread_name.unwrap(), process),
                (None, None, Some((None, thread, process))) => (track.name, thread, process),
                other => panic!("{other:?}"),
            };
            assert!(tracks.insert(track.uuid.unwrap(), of).is_none(), "two tracks share an id");
        }
        if let Some(interned) = packet.interned_data {
            let names = &mut sequences.get_mut(&id.unwrap()).unwrap().names;
            for (kind, all) in [
                ("event_names", interned.event_names),
                ("debug_annotation_names", interned.debug_annotation_names),
                ("debug_annotation_string_values", interned.debug_annotation_string_values),
            ] {
                for one in all {
                    assert!(names.insert((kind, one.iid.unwrap()), one.text.unwrap()).is_none());
                }
            }
        }
        let Some(event) = packet.track_event else { continue };
        assert_eq!(flags, 2, "an event needs its sequence's state");
        let sequence = &sequences[&id.unwrap()];
        let time = packet.timestamp.unwrap();
        let track = event.track_uuid.unwrap_or(sequence.track);
        let last = latest.insert(track, time).unwrap_or(0);
        assert!(last <= time, "events of one track with one time are told apart by their order in the file");
        let open = open.entry(track).or_default();
        if event.kind == Some(2) {
            let slice = open.pop().expect("an end without a begin");
            slices.push(Slice { end_ns: time, ..slice });
            continue;
        }
        assert_eq!(event.kind, Some(1));
        let interned = |kind, iid: Option<u64>| sequence.names[&(kind, iid.unwrap())].clone();
        let annotation = |one: DebugAnnotation| {
            let value = one
                .uint_value
                .map(|value| value.to_string())
                .or_else(|| one.int_value.map(|value| value.to_string()))
                .or_else(|| one.double_value.map(|value| format!("{value:?}")))
                .or(one.string_value)
                .unwrap_or_else(|| interned("debug_annotation_string_values", one.string_value_iid));
            (interned("debug_annotation_names", one.name_iid), value)
        };
        let (extra, thread, process) = tracks[&track].clone();
        open.push(Slice {
            process,
            thread,
            extra,
            name: interned("event_names", event.name_iid),
            start_ns: time,
            end_ns: 0,
            arguments: event.debug_annotations.into_iter().map(annotation).collect(),
        });
    }
    assert!(open.values().all(Vec::is_empty), "begins without an end");
    slices.sort();
    slices
}

fn nanoseconds(value: &Value) -> u64 {
    let (whole, rest) = value
        .as_number()
        .unwrap()
        .to_string()
        .split_once('.')
        .map_or_else(|| (value.to_string(), String::new()), |(whole, rest)| (whole.to_owned(), rest.to_owned()));
    assert!(rest.len() <= 3, "{value}");
    // serde_json prints 1.0 for a whole double
    whole.parse::<u64>().unwrap() * 1000 + format!("{rest:0<3}").parse::<u64>().unwrap()
}

fn read_chrome(bytes: &[u8]) -> Vec<Slice> {
    let trace: Value = serde_json::from_slice(bytes).unwrap();
    let (mut names, mut slices) = (HashMap::new(), Vec::new());
    let of = |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    for event in trace["traceEvents"].as_array().unwrap() {
        let name = event["name"].as_str().unwrap();
        if event["ph"] == "M" {
            if name.ends_with("_name") {
                let name = event["args"]["name"].as_str().unwrap().to_owned();
                assert!(names.insert(of(event), name).is_none(), "{event}");
            }
            continue;
        }
        assert_eq!(event["ph"], "X");
        let (process, track) = of(event);
        let start_ns = nanoseconds(&event["ts"]);
        let arguments = event["args"].as_object().into_iter().flatten();
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let thread = names[&(process, track)].clone();
        let extra = thread.ends_with(", overlapping 1").then(|| thread.clone());
        slices.push(Slice {
            process: names[&(process, 0)].clone(),
            thread: thread.trim_end_matches(", overlapping 1").to_owned(),
            extra,
            name: name.to_owned(),
            start_ns,
            end_ns: start_ns + nanoseconds(&event["dur"]),
            arguments: arguments.map(|(name, value)| (name.clone(), shown(value))).collect(),
        });
    }
    slices.sort();
    slices
}

fn capture(host: &str, space: XSpace) -> Capture {
    Capture::xspace(PathBuf::from(host), host, space)
}

fn traced(captures: &[Capture], with_stats: bool) -> (Traced, Vec<Slice>, Vec<Slice>) {
    let made = [TraceFormat::Perfetto, TraceFormat::Chrome].map(|format| {
        let mut bytes = Vec::new();
        let traced = write_trace(captures, TraceOptions::new(format).with_stats(with_stats), &mut bytes).unwrap();
        (traced, bytes)
    });
    assert_eq!(made[0].0, made[1].0);
    (made[0].0, read_perfetto(&made[0].1), read_chrome(&made[1].1))
}

fn captures() -> Vec<(String, Capture)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane");
    let paths = fs::read_dir(folder).unwrap().map(|item| item.unwrap().path());
    let found: Vec<_> = paths
        .filter_map(|path| {
            let stem = path.file_name()?.to_str()?.split_once(".xplane.pb")?.0.to_owned();
            Some((stem.clone(), capture(&stem, XSpace::open(&path).unwrap())))
        })
        .collect();
    assert_eq!(found.len(), 5);
    found
}

fn document(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()).unwrap()
}

/// Every event of every line, with JAX's times.
#[test]
fn slices_and_their_times_are_those_that_jax_reads() {
    let oracle = document("tests/data/trace/oracle.json");
    for (stem, capture) in captures() {
        let base_ns = capture.timeline().base_ns() as u64;
        let (traced, perfetto, chrome) = traced(std::slice::from_ref(&capture), false);
        assert_eq!(perfetto, chrome, "{stem}");
        let mut lines: BTreeMap<String, [u64; 4]> = BTreeMap::new();
        for slice in &perfetto {
            let line = lines.entry(format!("{} {}", slice.process, slice.thread)).or_insert([0, 0, u64::MAX, 0]);
            line[0] += 1;
            line[1] += slice.end_ns - slice.start_ns;
            line[2] = line[2].min(slice.start_ns + base_ns);
            line[3] = line[3].max(slice.end_ns + base_ns);
        }
        let expected: BTreeMap<String, [u64; 4]> = oracle[&stem]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, line)| {
                let of = |member: &str| line[member].as_u64().unwrap();
                (name.clone(), [of("slices"), of("total_ns"), of("first_ns"), of("last_ns")])
            })
            .collect();
        assert_eq!(lines, expected, "{stem}");
        assert_eq!((traced.slices, traced.threads), (perfetto.len() as u64, lines.len() as u64));
        assert_eq!(traced.slices, capture.timeline().event_count());
        // the sample in which several events of a thread neither nest nor follow each other
        assert_eq!(traced.extra_tracks, u64::from(stem == "tf8_steps3"), "{stem}");
    }
}

/// The stats are included: with them, the operations of each execution add up to the oracle's sums.
#[test]
fn arguments_tell_the_operations_of_each_run() {
    for (stem, capture) in captures() {
        let (_, perfetto, chrome) = traced(&[capture], true);
        assert_eq!(perfetto, chrome, "{stem}");
        let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
        for slice in perfetto.iter().filter(|slice| !slice.name.starts_with("end: ")) {
            if let (Some(run), Some(device), Some(operation)) =
                (slice.arguments.get("run_id"), slice.arguments.get("device_ordinal"), slice.arguments.get("hlo_op"))
            {
                *sums.entry((format!("{run} on {device}"), operation.clone())).or_default() +=
                    (slice.end_ns - slice.start_ns) * 1000;
            }
        }
        let mut expected: BTreeMap<(String, String), u64> = BTreeMap::new();
        let oracle = document(&format!("tests/data/xplane/{stem}.oracle.json"));
        for module in oracle["modules"].as_array().unwrap() {
            let run = format!("{} on {}", module["run_id"], module["device_ordinal"]);
            for (operation, sum) in module["ops_sum_ps"].as_object().unwrap() {
                *expected.entry((run.clone(), operation.clone())).or_default() += sum.as_u64().unwrap();
            }
        }
        assert_eq!(sums, expected, "{stem}");
    }
}

fn slice(name: &str, start_ns: u64, end_ns: u64, extra: bool) -> Slice {
    Slice {
        process: "/device:TPU:0".to_owned(),
        thread: "XLA Ops".to_owned(),
        extra: extra.then(|| "XLA Ops, overlapping 1".to_owned()),
        name: name.to_owned(),
        start_ns,
        end_ns,
        arguments: BTreeMap::new(),
    }
}

/// Written out of order, overlapping, and finer than nanoseconds.
#[test]
fn synthetic_overlaps_go_to_an_extra_track_and_ends_are_rounded_down() {
    let mut plane = PlaneBuilder::new("/device:TPU:0");
    let events: Vec<Message> = [
        ("inner", 1_200, 900),
        ("outer", 0, 10_999),
        ("inside", 1_000, 4_000),
        ("across", 9_000, 5_500),
        ("after", 10_999, 1_001),
        ("moment", 12_000, 0),
    ]
    .iter()
    .map(|&(name, start, length)| plane.event(("%long = text", name), start, length, &[]))
    .collect();
    plane.line("XLA Ops", 7, &events);
    let space = XSpace::from_bytes(space(&[plane]).0).unwrap();
    let (traced, perfetto, chrome) = traced(&[capture("host", space)], false);
    let mut expected = vec![
        slice("outer", 0, 10, false),
        slice("inside", 1, 5, false),
        slice("inner", 1, 2, false),
        slice("across", 9, 14, true),
        slice("after", 10, 12, false),
        slice("moment", 12, 12, false),
    ];
    expected.sort();
    assert_eq!(perfetto, expected);
    assert_eq!(chrome, expected);
    assert_eq!((traced.slices, traced.extra_tracks), (6, 1));
    assert_eq!(traced.notes().len(), 1);
}

#[test]
fn values_of_every_kind_and_names_of_any_bytes() {
    let mut plane = PlaneBuilder::new("</script>\"\u{1}");
    let stats = [
        ("int", Is::Int(-5)),
        ("uint", Is::Uint(u64::MAX)),
        ("text", Is::Text("a\n\"b\"")),
        ("reference", Is::Ref("text")),
        ("compressed", Is::Compressed(b"\x78\x9c\xcb\xca\x2c\x89\x4f\x03\x00\x06\x3b\x02\x0d")),
    ];
    let long = "ü".repeat(2000);
    let event = plane.event((&long, ""), 0, 1000, &stats);
    plane.line("\\", 1, &[event]);
    let (traced, perfetto, chrome) = traced(&[capture("host", XSpace::from_bytes(space(&[plane]).0).unwrap())], true);
    assert_eq!(perfetto, chrome);
    let [only] = &perfetto[..] else { panic!("{perfetto:?}") };
    assert_eq!((only.process.as_str(), only.thread.as_str()), ("</script>\"\u{1}", "\\"));
    assert!(only.name.len() <= 1024 && only.name.ends_with("ü…"), "{}", only.name);
    let arguments: Vec<_> = only.arguments.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [
        // zlib.compress(b"jit_f")
        ("compressed", "jit_f"),
        ("int", "-5"),
        ("reference", "text"),
        ("text", "a\n\"b\""),
        ("uint", "18446744073709551615"),
    ];
    assert_eq!(arguments, expected);
    assert_eq!(traced.notes(), [""; 0]);
}

#[test]
fn what_is_left_out_is_counted() {
    let mut plane = PlaneBuilder::new("/host:CPU");
    let good = plane.event(("good", ""), 1000, 1000, &[]);
    let negative = plane.event(("negative", ""), 0, -1, &[]);
    let early = plane.event(("early", ""), -1000, 5, &[]);
    let late = plane.event(("late", ""), i64::MAX, 5, &[]);
    let aggregated = Message::default().number(1, 1).number(5, 3).number(3, 4);
    let nameless = Message::default().number(1, 99).number(2, 4000).number(3, 1);
    plane.line("thread", 5, &[good, negative, early, late, aggregated, nameless, Message(vec![0x22, 0x7f])]);
    let (traced, perfetto, chrome) = traced(&[capture("host", XSpace::from_bytes(space(&[plane]).0).unwrap())], false);
    assert_eq!(perfetto, chrome);
    let names: Vec<_> = perfetto.iter().map(|slice| slice.name.as_str()).collect();
    assert_eq!(names, ["(no metadata)", "good"]);
    let dropped = (traced.nameless, traced.malformed, traced.negative, traced.out_of_range, traced.aggregated);
    assert_eq!((traced.processes, traced.threads, traced.slices, dropped), (1, 1, 2, (1, 1, 1, 2, 1)));
    assert_eq!(traced.notes().len(), 5);
}

#[test]
fn hosts_stand_side_by_side_on_one_clock() {
    let made: Vec<Capture> = [("a", 2_000), ("b", 1_000)]
        .iter()
        .map(|&(host, timestamp)| {
            let mut plane = PlaneBuilder::new("/host:CPU");
            let event = plane.event(("step", ""), 500_000, 1000, &[]);
            plane.line("thread", timestamp, &[event]);
            capture(host, XSpace::from_bytes(space(&[plane]).0).unwrap())
        })
        .collect();
    let (_, perfetto, chrome) = traced(&made, false);
    assert_eq!(perfetto, chrome);
    let starts: Vec<_> = perfetto.iter().map(|slice| (slice.process.as_str(), slice.start_ns)).collect();
    assert_eq!(starts, [("a: /host:CPU", 1500), ("b: /host:CPU", 500)]);
}

/// Lines count from the profiler's start, which is in the task's plane: of these two, the second began 700 ns later.
#[test]
fn hosts_that_count_from_their_profilers_start_are_aligned_by_it() {
    const START: i64 = 1_795_251_147_829_640_465;
    let made: Vec<Capture> = [("a", START, 2_000), ("b", START + 700, 1_500)]
        .iter()
        .map(|&(host, start, timestamp)| {
            let mut plane = PlaneBuilder::new("/host:CPU");
            let event = plane.event(("step", ""), 0, 1000, &[]);
            plane.line("thread", timestamp, &[event]);
            let name = Message::default().number(1, 3).bytes(2, "profile_start_time");
            let task = Message::default()
                .bytes(2, "Task Environment")
                .message(5, &Message::default().number(1, 3).message(2, &name))
                .message(6, &Message::default().number(1, 3).number(3, start));
            let bytes = space(&[plane]).message(1, &task).0;
            capture(host, XSpace::from_bytes(bytes).unwrap())
        })
        .collect();
    let (_, perfetto, chrome) = traced(&made, false);
    assert_eq!(perfetto, chrome);
    let starts: Vec<_> = perfetto.iter().map(|slice| (slice.process.as_str(), slice.start_ns)).collect();
    assert_eq!(starts, [("a: /host:CPU", 0), ("b: /host:CPU", 200)]);

    let options = TraceOptions::new(TraceFormat::Chrome);
    let mut bytes = Vec::new();
    write_trace(&made[1..], options, &mut bytes).unwrap();
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(trace["otherData"]["start_ns"], (START + 700 + 1_500).to_string());
}

#[test]
fn the_files_name_tells_the_format_and_a_file_is_whole_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let trace = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let arguments = ["profile", "trace", "tests/data/xplane/trivial.xplane.pb", "-o", out.to_str().unwrap()];
        (run(folder.path(), &[&arguments[..], more].concat()), out)
    };
    let slices = document("tests/data/trace/oracle.json")["trivial"]
        .as_object()
        .unwrap()
        .values()
        .map(|line| line["slices"].as_u64().unwrap())
        .sum::<u64>();
    let mut chrome = Vec::new();
    for (name, more) in [
        ("new/one.pftrace", &[][..]),
        ("one.perfetto-trace", &[]),
        ("one.json", &[]),
        ("one.json.gz", &[]),
        ("one", &["--format", "perfetto"]),
        ("two.gz", &["--format", "chrome"]),
    ] {
        let (run, out) = trace(name, more);
        assert_eq!((run.code, run.stdout.trim_end()), (0, out.to_str().unwrap()), "{}", run.stderr);
        let mut bytes = fs::read(&out).unwrap();
        if name.ends_with(".gz") {
            let mut plain = Vec::new();
            flate2::bufread::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
            bytes = plain;
        }
        let read = if bytes.starts_with(b"{") { read_chrome(&bytes) } else { read_perfetto(&bytes) };
        assert_eq!(read.len() as u64, slices, "{name}");
        if bytes.starts_with(b"{") {
            chrome.push(bytes);
        }
    }
    assert!(chrome.len() == 3 && chrome.iter().all(|one| *one == chrome[0]));

    let (unknown, out) = trace("one.trace", &[]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.fault().contains("end it in .pftrace, .json or .json.gz"), "{}", unknown.stderr);
    assert!(!out.exists());
    fs::create_dir(folder.path().join("taken.json")).unwrap();
    let (taken, _) = trace("taken.json", &[]);
    assert_eq!(taken.code, 4);
    assert!(taken.fault().contains("taken.json` cannot be written"), "{}", taken.stderr);
    assert!(
        fs::read_dir(folder.path()).unwrap().all(|item| !item
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with(".tmp"))
    );

    fs::write(folder.path().join("empty.xplane.pb"), space(&[PlaneBuilder::new("/host:metadata")]).0).unwrap();
    let input = folder.path().join("empty.xplane.pb");
    let output = folder.path().join("empty.json");
    let empty = run(folder.path(), &["profile", "trace", input.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    assert_eq!(empty.code, 3, "{}", empty.stderr);
    assert!(read_chrome(&fs::read(output).unwrap()).is_empty());
}
