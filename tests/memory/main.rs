//! Memory: besides the capture itself, an analysis's memory does not grow with the events of executions, on any layout.
//! A counting allocator checks it, so this is a separate program with one test.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "../support/xspace.rs"]
mod xspace;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::collectives::{Clocks, collective_metrics, collectives, straggler_waits};
use autotune_lowered::analysis::{HloFiles, StacksBy, SummaryOptions, stacks, summarize};
use autotune_lowered::profile::XSpace;
use xspace::*;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(by: usize) {
    PEAK.fetch_max(NOW.fetch_add(by, Relaxed) + by, Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system's allocator
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match size.checked_sub(layout.size()) {
            Some(more) => grown(more),
            None => _ = NOW.fetch_sub(layout.size() - size, Relaxed),
        }
        // SAFETY: the caller keeps the contract of `realloc`
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The peak of held memory during a call, beyond what was held before it.
fn peak_of<T>(call: impl FnOnce() -> T) -> (usize, T) {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let made = call();
    (PEAK.load(Relaxed) - before, made)
}

/// Where the operations of an execution run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Platform {
    /// Thunks on four threads.
    Cpu,
    /// Kernels on four streams.
    Gpu,
    /// The same, without run ids.
    GpuWithoutRuns,
    /// A line of modules and a line of operations.
    Tpu,
}

const OPERATIONS: usize = 24;
const TIMES: i64 = 1000;

/// An event with these stats, which are the end of an event from the builder with offset and duration zero.
fn at(template: &[u8], id_bytes: usize, offset_ps: i64, duration_ps: i64) -> Message {
    let head = Message(template[..id_bytes].to_vec()).number(2, offset_ps).number(3, duration_ps);
    Message([&head.0[..], &template[id_bytes + 4..]].concat())
}

/// Executions of one program, each a `while` with this many rounds of the operations, and two all-reduces after it.
fn capture(platform: Platform, executions: usize, rounds: usize) -> Vec<Capture> {
    let mut plane = PlaneBuilder::new(match platform {
        Platform::Cpu => "/host:CPU",
        Platform::Gpu | Platform::GpuWithoutRuns => "/device:GPU:0",
        Platform::Tpu => "/device:TPU:0",
    });
    let lines = if platform == Platform::Tpu { 1 } else { 4 };
    let mut events: Vec<Vec<Message>> = vec![Vec::new(); lines];
    let mut modules = Vec::new();
    let names: Vec<String> = (0..OPERATIONS).map(|place| format!("fusion.{place}")).collect();
    let mut now = 0;
    for execution in 0..executions {
        let begin = now;
        let mut template = |name: &str| {
            let run = [("run_id", Is::Int(execution as i64 + 100))];
            let stats = [
                ("hlo_op", Is::Ref(name)),
                ("hlo_module", Is::Ref("jit_step")),
                ("program_id", Is::Int(7)),
                ("device_ordinal", Is::Int(0)),
            ];
            let stats = match platform {
                Platform::Cpu | Platform::Gpu => [&stats[..], &run].concat(),
                Platform::GpuWithoutRuns => stats.to_vec(),
                Platform::Tpu => Vec::new(),
            };
            let event = plane.event((name, name), 0, 0, &stats).0;
            let id_bytes = event.iter().skip(1).position(|byte| *byte < 0x80).unwrap() + 2;
            (event, id_bytes)
        };
        let while_loop = template("while.1");
        let operations: Vec<(Vec<u8>, usize)> = names.iter().map(|name| template(name)).collect();
        let reduces = ["all-reduce.1", "all-reduce.2"].map(&mut template);
        let length = (rounds * OPERATIONS) as i64 * TIMES + TIMES;
        events[0].push(at(&while_loop.0, while_loop.1, now, length));
        now += TIMES / 2;
        for round in 0..rounds {
            for (place, (event, id_bytes)) in operations.iter().enumerate() {
                // on several lines each operation overlaps the next one, and all of them have gaps
                let lasts = TIMES / 2 + if lines > 1 && place % 3 > 0 { TIMES } else { 0 };
                let line = (place + round) % lines;
                events[line].push(at(event, *id_bytes, now, lasts));
                now += TIMES;
            }
        }
        now += 3 * TIMES;
        for (line, (event, id_bytes)) in reduces.iter().enumerate() {
            events[line % lines].push(at(event, *id_bytes, now, TIMES));
            now += 2 * TIMES;
        }
        if platform == Platform::Tpu {
            let run = [("run_id", Is::Int(execution as i64 + 100)), ("program_id", Is::Int(7))];
            modules.push(plane.event(("jit_step(7)", ""), begin, now - begin, &run));
        }
        now += 5 * TIMES;
    }
    if platform == Platform::Tpu {
        plane.line("XLA Modules", 0, &modules);
    }
    for events in events {
        plane.line(if platform == Platform::Tpu { "XLA Ops" } else { "Stream" }, 0, &events);
    }
    let mut space = XSpace::from_bytes(space(&[plane]).0).unwrap();
    // so that a small capture behaves like a large one
    space.hold_events(0);
    vec![Capture::xspace("synthetic", "host", space)]
}

/// Peaks of the summary, of stacks and of collectives.
fn peaks(platform: Platform, executions: usize, rounds: usize) -> [usize; 3] {
    let captures = capture(platform, executions, rounds);
    let files = HloFiles::default();
    let (summary, made) = peak_of(|| summarize(&captures, &files, SummaryOptions::default()));
    // everything counts except the first execution
    let counted = executions as u64 - 1;
    assert_eq!(made.modules[0].executions, counted);
    let events: u64 = made.operations.iter().map(|operation| operation.count).sum();
    assert_eq!(events, counted * (rounds * OPERATIONS + 3) as u64);
    // by hand, the time of the loop that no operation covers: on one line half of each operation's time and all of one
    // more; on several lines half of every third one's, and half of one before the first
    let self_time_ns = if platform == Platform::Tpu { (12 * rounds) as f64 + 1.0 } else { (4 * rounds) as f64 + 0.5 };
    let of_loop = made.operations.iter().find(|operation| operation.operation == "while.1").unwrap();
    assert_eq!((of_loop.self_time_ns.mean, of_loop.executions), (self_time_ns, counted));
    let (stacked, _) = peak_of(|| stacks(&captures, &files, StacksBy::OpName, false));
    let (collectives, metrics) = peak_of(|| {
        let found = collectives(&captures, &files, false);
        collective_metrics(&found, Clocks::Recorded)
    });
    assert_eq!(metrics.sizes[0].figures.instances, 2 * counted);
    [summary, stacked, collectives]
}

/// The additional memory that chunks in progress, and the index of chunks, may take if there are more of them.
const SLACK: usize = 6 << 19;
/// Memory that is kept for an execution (docs/profiles.md).
const OF_EXECUTION: usize = 600;

/// Executions of a program that consists of all-reduces on two devices, in one capture or in one capture per host.
fn reduces(hosts: usize, executions: usize, reduces: usize) -> Vec<Capture> {
    let plane = |device: i64| {
        let mut plane = PlaneBuilder::new(&format!("/device:GPU:{device}"));
        let (mut events, mut now) = (Vec::new(), 0);
        let names: Vec<String> = (0..reduces).map(|place| format!("all-reduce.{place}")).collect();
        for execution in 0..executions {
            for name in &names {
                let stats = [
                    ("hlo_op", Is::Ref(name)),
                    ("hlo_module", Is::Ref("jit_step")),
                    ("program_id", Is::Int(7)),
                    ("device_ordinal", Is::Int(device)),
                    ("run_id", Is::Int(execution as i64 + 100)),
                ];
                // device 1 starts 100 ps late, so device 0 waits that long
                let late = 100 * device;
                events.push(plane.event((name, name), now + late, TIMES - late, &stats));
                now += 2 * TIMES;
            }
        }
        plane.line("Stream", 0, &events);
        plane
    };
    let capture = |host: usize, planes: &[PlaneBuilder]| {
        let mut space = XSpace::from_bytes(space(planes).0).unwrap();
        space.hold_events(0);
        Capture::xspace("synthetic", format!("host {host}"), space)
    };
    match hosts {
        1 => vec![capture(0, &[plane(0), plane(1)])],
        _ => vec![capture(0, &[plane(0)]), capture(1, &[plane(1)])],
    }
}

fn peak_of_reduces(hosts: usize, executions: usize, count: usize) -> usize {
    let captures = reduces(hosts, executions, count);
    let files = HloFiles::default();
    let (peak, (metrics, waits)) = peak_of(|| {
        let found = collectives(&captures, &files, false);
        let metrics = collective_metrics(&found, Clocks::Recorded);
        let waits = straggler_waits(&found, &metrics.alignment);
        (metrics, waits)
    });
    let instances = ((executions - 1) * count) as u64;
    let figures = &metrics.sizes[0].figures;
    assert_eq!((metrics.operations.len(), figures.instances), (count, instances));
    assert_eq!((figures.total_ns, figures.fastest_ns), (1.9 * instances as f64, 0.9));
    // two hosts' clocks are not compared
    let wait = (hosts == 1).then_some((0.1, 0.1));
    assert_eq!(figures.wait.map(|wait| (wait.mean_ns, wait.longest_ns)), wait);
    assert_eq!(waits.ends_ps, wait.map(|_| (100, 100)));
    peak
}

#[test]
fn neither_events_nor_collectives_of_executions_are_held() {
    rayon::ThreadPoolBuilder::new().num_threads(2).build_global().unwrap();
    let (executions, rounds) = (20, 20);
    for platform in [Platform::Cpu, Platform::Gpu, Platform::GpuWithoutRuns, Platform::Tpu] {
        let base = peaks(platform, executions, rounds);
        // 180 000 more events, which would take 32 bytes each if they were stored
        for (more_executions, more_rounds) in [(20, 1), (1, 20)] {
            let more = peaks(platform, executions * more_executions, rounds * more_rounds);
            println!("{platform:?} x{more_executions} x{more_rounds}: {base:?} {more:?}");
            let new_executions = executions * (more_executions - 1);
            let allowed = SLACK + new_executions * OF_EXECUTION;
            for (before, after) in base.iter().zip(more) {
                assert!(after.saturating_sub(*before) < allowed, "{platform:?}: {before} became {after}");
            }
        }
    }
    for hosts in [1, 2] {
        let (few, many) = (peak_of_reduces(hosts, 10, 250), peak_of_reduces(hosts, 200, 250));
        println!("collectives of {hosts} hosts: {few} {many}");
        // 95 000 more collectives, of 56 bytes each
        assert!(many.saturating_sub(few) < SLACK + 2 * 190 * OF_EXECUTION, "{hosts}: {few} became {many}");
    }
}
