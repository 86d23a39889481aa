//! The profile reader compared with `jax.profiler.ProfileData` and xprof on one large capture.
//!
//! `cargo bench --bench profile -- [COPIES]` makes the capture from `tests/data/xplane/tf8_steps3.xplane.pb.gz`: every
//! line's events COPIES times (326), each copy shifted by the capture's length and with other run ids. Each program
//! runs three times in a separate process; the table has the best wall time, including opening the file, the processor
//! time of the last process, and the peak memory. `PYTHON` names an interpreter with JAX, `XPROF_PYTHON` one with
//! xprof; without them, their rows are left out. `-- --make FILE [COPIES]` only writes the capture to a file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::panic)]

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::collectives::{Clocks, collective_metrics, collectives};
use autotune_lowered::analysis::trace::{TraceFormat, TraceOptions, write_trace};
use autotune_lowered::analysis::{HloFiles, StacksBy, SummaryOptions, stacks_by, summarize};
use autotune_lowered::profile::{Profiler, Semantics, StatValue, XSpace, executions};
use autotune_lowered::report::{MAX_EVENTS, Timeline, ViewPage, write_view};
use autotune_lowered::wire::{WireCursor, WireValue};
use rayon::prelude::*;

const PROFILE_DATA: &str = r"
import sys, time, resource
from jax.profiler import ProfileData
t = time.time()
n = s = 0
for plane in ProfileData.from_file(sys.argv[1]).planes:
    for line in plane.lines:
        for event in line.events:
            n += 1
            if sys.argv[2] == 'stats':
                for stat in event.stats:
                    s += 1
            else:
                s += event.duration_ns
r = resource.getrusage(resource.RUSAGE_SELF)
print(time.time() - t, r.ru_maxrss, n, round(r.ru_utime + r.ru_stime, 2))
";
const XPROF: &str = r"
import sys, time, resource
from xprof.convert import raw_to_tool_data
t = time.time()
data, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], sys.argv[2], {})
assert data
r = resource.getrusage(resource.RUSAGE_SELF)
print(time.time() - t, r.ru_maxrss, len(data), round(r.ru_utime + r.ru_stime, 2))
";

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn field(out: &mut Vec<u8>, number: u32, value: WireValue<'_>) {
    let tag = u64::from(number) << 3;
    match value {
        WireValue::Varint(value) => {
            varint(out, tag);
            varint(out, value);
        }
        WireValue::Fixed64(bits) => {
            varint(out, tag | 1);
            out.extend(bits.to_le_bytes());
        }
        WireValue::Bytes(bytes) => {
            varint(out, tag | 2);
            varint(out, bytes.len() as u64);
            out.extend(bytes);
        }
        WireValue::Fixed32(bits) => {
            varint(out, tag | 5);
            out.extend(bits.to_le_bytes());
        }
    }
}

fn fields(bytes: &[u8]) -> impl Iterator<Item = (u32, WireValue<'_>)> {
    WireCursor::new(bytes).map(Result::unwrap)
}

/// An event, shifted in time and to another run.
fn shifted(event: &[u8], by_ps: u64, run_stat: i64, by_run: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(event.len() + 4);
    for (number, value) in fields(event) {
        match (number, value) {
            (2, WireValue::Varint(offset)) => field(&mut out, 2, WireValue::Varint(offset + by_ps)),
            (4, WireValue::Bytes(stat)) => {
                let is_run = fields(stat).any(|part| part == (1, WireValue::Varint(run_stat as u64)));
                let mut made = Vec::new();
                for (number, value) in fields(stat) {
                    match value {
                        WireValue::Varint(run) if is_run && number == 4 => {
                            field(&mut made, 4, WireValue::Varint(run.wrapping_add(by_run)));
                        }
                        _ => field(&mut made, number, value),
                    }
                }
                field(&mut out, 4, WireValue::Bytes(&made));
            }
            _ => field(&mut out, number, value),
        }
    }
    out
}

/// One of `tests/data/xplane`, with many modules and operations.
const STEPS: &str = "tf8_steps3";
/// One of eight devices that do little but communicate.
const COMMUNICATING: &str = "multi8_shardmap";
/// A step in the layout of a GPU's profiler: xprof counts work on devices alone. It has a fortieth of the events of
/// [`STEPS`].
const ON_A_GPU: (&str, u64) = ("../xprof/step", 40);

fn generate(path: &Path, copies: u64, sample: &str) -> (u64, u64) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/xplane/{sample}.xplane.pb.gz"));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(source).unwrap()).read_to_end(&mut bytes).unwrap();
    let space = XSpace::from_bytes(bytes.clone()).unwrap();
    let mut planes = space.planes();
    let mut out = Vec::new();
    for (number, value) in fields(&bytes) {
        let (1, WireValue::Bytes(plane)) = (number, value) else {
            field(&mut out, number, value);
            continue;
        };
        let seen = planes.next().unwrap();
        let run_stat = seen.all_stat_names().find(|(_, name)| *name == b"run_id").map_or(-1, |(id, _)| id);
        let ends = seen.lines().flat_map(|line| line.events().map(Result::unwrap)).map(|e| e.offset_ps + e.duration_ps);
        let length = ends.max().unwrap_or(0) as u64;
        let mut made = Vec::new();
        for (number, value) in fields(plane) {
            let (3, WireValue::Bytes(line)) = (number, value) else {
                field(&mut made, number, value);
                continue;
            };
            let mut long = Vec::new();
            for copy in 0..copies {
                for (number, value) in fields(line) {
                    match value {
                        WireValue::Bytes(event) if number == 4 => {
                            let event = shifted(event, copy * length, run_stat, copy * 1000);
                            field(&mut long, 4, WireValue::Bytes(&event));
                        }
                        _ if copy == 0 => field(&mut long, number, value),
                        _ => {}
                    }
                }
            }
            field(&mut made, 3, WireValue::Bytes(&long));
        }
        field(&mut out, 1, WireValue::Bytes(&made));
    }
    std::fs::File::create(path).unwrap().write_all(&out).unwrap();
    (out.len() as u64, XSpace::from_bytes(out).unwrap().event_count())
}

/// Stats of all events: reads every value and resolves every name.
fn all_stats(space: &XSpace) -> u64 {
    let of_plane = space.planes().map(|plane| {
        let chunks: Vec<_> = plane.lines().flat_map(|line| line.chunks()).collect();
        let of_chunk = chunks.par_iter().map(|chunk| {
            let mut found = 0;
            for event in chunk.events().map(Result::unwrap) {
                for stat in event.stats().map(Result::unwrap) {
                    found += match stat.value {
                        StatValue::Ref(id) => u64::from(plane.stat_name(id as i64).is_some()),
                        _ => 1,
                    };
                }
            }
            found
        });
        of_chunk.sum::<u64>()
    });
    of_plane.sum()
}

/// The whole page of `profile view`; returns its length.
fn view(captures: Vec<Capture>) -> u64 {
    let files = HloFiles::default();
    let [by_source, by_op_name] = stacks_by(&captures, &files, [StacksBy::Source, StacksBy::OpName], false);
    let summary = summarize(&captures, &files, SummaryOptions::default());
    let timeline = Timeline::new(&captures, MAX_EVENTS);
    let page = ViewPage::new("made", &summary, &timeline, [&by_source.time_ns, &by_op_name.time_ns]);
    let mut bytes = Vec::new();
    write_view(&mut bytes, &page).unwrap();
    bytes.len() as u64
}

/// A child process; prints seconds, peak memory in KiB, and a number to check.
fn child(mode: &str, file: &Path) {
    let start = Instant::now();
    let space = XSpace::open(file).unwrap();
    let check = match mode {
        "index" => space.event_count(),
        "totals" | "everything" => {
            let time = executions(&space);
            let all = time.executions.iter().flat_map(|execution| &execution.operations);
            let operations: u64 = all.map(|operation| operation.count).sum();
            assert_eq!(operations, time.executions.iter().map(|execution| execution.events).sum::<u64>());
            if mode == "everything" { all_stats(&space) } else { operations }
        }
        "seed" | "seed-regex" => {
            let mut profiler = Profiler::new(Semantics::Ejkernel);
            profiler.max_events_per_profile = None;
            profiler.prefix_filter.clear();
            if mode == "seed-regex" {
                profiler.event_filter_regex = Some(regex::bytes::Regex::new(".*").unwrap());
            }
            let plane = Profiler::find_device_planes(&space, "cpu")[0];
            profiler.timings(plane, &executions(&space)).samples.len() as u64
        }
        "summary" => {
            let captures = [Capture::xspace(file, "", space)];
            let options = SummaryOptions::default();
            let summary = summarize(&captures, &HloFiles::default(), options);
            summary.operations.iter().map(|operation| operation.count).sum()
        }
        // the number to check is that of the collectives
        "collectives" => {
            let captures = [Capture::xspace(file, "", space)];
            let files = HloFiles::default();
            let found = collectives(&captures, &files, false);
            collective_metrics(&found, Clocks::Device).sizes.iter().map(|row| row.figures.instances).sum()
        }
        // the number to check is that of the page's bytes
        "view" => view(vec![Capture::xspace(file, "", space)]),
        "trace-perfetto" | "trace-chrome" => {
            let captures = [Capture::xspace(file, "", space)];
            let format = if mode == "trace-chrome" { TraceFormat::Chrome } else { TraceFormat::Perfetto };
            let options = TraceOptions::new(format);
            let traced = write_trace(&captures, options, &mut std::io::sink()).unwrap();
            traced.slices
        }
        other => panic!("{other}"),
    };
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // user and system time are 12th and 13th after the name, in hundredths of a second
    let ticks: u32 =
        stat.rsplit(')').next().unwrap().split(' ').skip(12).take(2).map(|ticks| ticks.parse::<u32>().unwrap()).sum();
    println!("{seconds} {} {check} {:.2}", peak.trim().trim_end_matches(" kB"), f64::from(ticks) / 100.0);
}

/// Seconds, peak memory in KiB, the number to check, seconds of processor time of the last run.
type Row = (f64, f64, String, String);

fn best_of_three(mut command: impl FnMut() -> Command) -> Option<Row> {
    let mut best: Option<Row> = None;
    for _ in 0..3 {
        let output = command().output().unwrap();
        if !output.status.success() {
            println!("failed: {}", String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default());
            return None;
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let words: Vec<&str> = text.lines().last().unwrap().split(' ').collect();
        let (seconds, peak) = (words[0].parse::<f64>().unwrap(), words[1].parse::<f64>().unwrap());
        let (least, most) = best.as_ref().map_or((f64::MAX, 0.0), |(least, most, ..)| (*least, *most));
        best = Some((least.min(seconds), most.max(peak), words[2].to_owned(), words[3].to_owned()));
    }
    best
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [flag, mode, file] = arguments.as_slice()
        && flag == "--child"
    {
        return child(mode, Path::new(file));
    }
    if let [flag, file, copies @ ..] = arguments.as_slice()
        && flag == "--make"
    {
        let sample = copies.get(1).map_or(STEPS, String::as_str);
        let copies = copies.first().map_or(326, |word| word.parse().unwrap());
        let (bytes, events) = generate(Path::new(file), copies, sample);
        return println!("{bytes} bytes, {events} events");
    }
    let copies = arguments.first().map_or(326, |word| word.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.xplane.pb");
    let (bytes, events) = generate(&file, copies, STEPS);
    let head = |bytes: u64, events: u64| {
        println!("{} MB, {events} events\n", bytes / 1_000_000);
        println!("| program | best of 3, s | processor time, s | peak memory / file | check |");
        println!("| --- | --- | --- | --- | --- |");
    };
    head(bytes, events);
    let row_of = |name: &str, bytes: u64, result: Option<Row>| {
        if let Some((seconds, peak, check, processor)) = result {
            println!("| {name} | {seconds:.3} | {processor} | {:.2} | {check} |", peak * 1024.0 / bytes as f64);
        }
    };
    let row = |name: &str, result: Option<Row>| row_of(name, bytes, result);
    let modes =
        ["index", "totals", "everything", "summary", "view", "trace-perfetto", "trace-chrome", "seed", "seed-regex"];
    let ours = |mode: &str, file: &Path| {
        best_of_three(|| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.arg("--child").arg(mode).arg(file);
            command
        })
    };
    for mode in modes {
        row(&format!("autotune-lowered, {mode}"), ours(mode, &file));
    }
    let peer = |interpreter: &str, program: &'static str, mode: &'static str| {
        let interpreter = std::env::var(interpreter).ok()?;
        best_of_three(|| {
            // xprof caches its results beside the file, and would only read them the next time
            for item in std::fs::read_dir(folder.path()).unwrap().map(|item| item.unwrap().path()) {
                if item != file {
                    std::fs::remove_file(item).unwrap();
                }
            }
            let mut command = Command::new(&interpreter);
            command.args(["-c", program]).arg(&file).arg(mode).env("JAX_PLATFORMS", "cpu");
            command
        })
    };
    row("jax.profiler.ProfileData, durations", peer("PYTHON", PROFILE_DATA, "durations"));
    row("jax.profiler.ProfileData, all stats", peer("PYTHON", PROFILE_DATA, "stats"));
    row("xprof, op_profile", peer("XPROF_PYTHON", XPROF, "op_profile"));
    row("xprof, framework_op_stats", peer("XPROF_PYTHON", XPROF, "framework_op_stats"));

    let (bytes, events) = generate(&file, copies * ON_A_GPU.1, ON_A_GPU.0);
    println!("\nThe roofline of a GPU's step:");
    head(bytes, events);
    row_of("autotune-lowered, summary", bytes, ours("summary", &file));
    row_of("xprof, roofline_model", bytes, peer("XPROF_PYTHON", XPROF, "roofline_model"));
    row_of("xprof, hlo_stats", bytes, peer("XPROF_PYTHON", XPROF, "hlo_stats"));

    println!(
        "\n| collectives on eight devices | MB | best of 3, s | peak memory beyond the file, MB |\n| --- | --- | --- | --- |"
    );
    for copies in [copies, 10 * copies] {
        let (bytes, _) = generate(&file, copies, COMMUNICATING);
        if let Some((seconds, peak, instances, _)) = ours("collectives", &file) {
            let megabytes = [bytes as f64, peak * 1024.0 - bytes as f64].map(|bytes| bytes / 1e6);
            println!("| {instances} | {:.0} | {seconds:.3} | {:.1} |", megabytes[0], megabytes[1]);
        }
    }
}
