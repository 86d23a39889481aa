//! Collectives: the sample of eight devices compared with an oracle in Python, and the formulas on cases worked by
//! hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use crate::support::collectives::one_operation;
use crate::support::program::*;
use crate::support::xspace::*;
use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::HloFiles;
use autotune_lowered::analysis::collectives::{
    Clocks, CollectiveKind, Collectives, Communication, Figures, collective_metrics, collectives,
};
use autotune_lowered::profile::{XSpace, captures};
use serde_json::Value;

const SAMPLE: &str = "tests/data/xplane/multi8_shardmap.xplane.pb.gz";

fn oracle() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane/multi8_shardmap.collectives.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn sample() -> Vec<Capture> {
    let read = captures(&Path::new(env!("CARGO_MANIFEST_DIR")).join(SAMPLE)).unwrap();
    read.into_iter().map(Capture::from).collect()
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-9 * expected.abs().max(1e-9)
}

#[test]
fn the_sample_of_eight_devices_equals_the_oracle() {
    let oracle = oracle();
    for (with_warm_up, clocks, expected) in [
        (true, Clocks::Recorded, "with_warm_up"),
        (false, Clocks::Recorded, "later"),
        (false, Clocks::Device, "later_by_device"),
    ] {
        let (captures, files) = (sample(), HloFiles::default());
        let found = collectives(&captures, &files, with_warm_up);
        let metrics = collective_metrics(&found, clocks);
        let expected = oracle[expected].as_object().unwrap();
        assert_eq!(metrics.operations.len(), expected.len());
        for row in &metrics.operations {
            let of = &expected[&row.name];
            assert_eq!(row.kind.name(), of["kind"], "{}", row.name);
            assert_eq!((row.group_size, row.message_bytes), (of["group_size"].as_u64(), of["message_bytes"].as_u64()));
            let Figures { instances, total_ns, fastest_ns, hidden, hidden_by_sum, .. } = row.figures;
            assert_eq!((Some(instances), hidden_by_sum), (of["instances"].as_u64(), None));
            let (bus, wait) = (row.figures.bus_gb_per_s.unwrap(), row.figures.wait.unwrap());
            for (name, value) in [
                ("total_ns", total_ns),
                ("fastest_ns", fastest_ns),
                ("algorithm", row.figures.algorithm_gb_per_s.unwrap().mean),
                ("bus", bus.mean),
                ("bus_error", bus.error.unwrap()),
                ("hidden", hidden),
                ("mean_wait_ns", wait.mean_ns),
                ("longest_wait_ns", wait.longest_ns),
                ("of_fastest", wait.of_fastest),
            ] {
                assert!(close(value, of[name].as_f64().unwrap()), "{} {name}: {value}, not {}", row.name, of[name]);
            }
        }
    }
}

#[test]
fn skews_of_the_sample_equal_the_oracle() {
    let (captures, files) = (sample(), HloFiles::default());
    let found = collectives(&captures, &files, false);
    let alignment = collective_metrics(&found, Clocks::Recorded).alignment;
    // two executions of four collectives, none of which ends on any device before all have begun
    assert_eq!(alignment.collectives, 8);
    let skews = &oracle()["skews_ps"];
    for (device, skew) in found.devices.iter().zip(&alignment.skews_ps) {
        assert_eq!(Some(*skew), skews[device.ordinal.to_string()].as_i64(), "{device:?}");
    }
    assert!(alignment.corrections_ps.iter().all(|&correction| correction == 0));
}

/// One operation on devices of two hosts, `(device, execution, start, end, hidden, overlaps)` in nanoseconds.
fn by_hand(
    kind: CollectiveKind,
    group_size: u64,
    groups: Vec<Vec<i64>>,
    parts: &[(u32, u64, i64, i64, u64, u64)],
) -> Collectives<'static> {
    let communication = Communication { kind, group_size: Some(group_size), message_bytes: Some(1_000_000), groups };
    one_operation("x.1", &["a", "a", "b", "b"], communication, parts)
}

#[test]
fn bandwidth_has_the_factors_of_its_kind() {
    // 10^6 bytes in 10^4 ns are 100 GB/s; a group of four
    for (kind, algorithm, bus) in [
        (CollectiveKind::AllGather, 400.0, 300.0),
        (CollectiveKind::ReduceScatter, 400.0, 300.0),
        (CollectiveKind::AllReduce, 100.0, 150.0),
        (CollectiveKind::AllToAll, 100.0, 75.0),
        (CollectiveKind::CollectivePermute, 100.0, 100.0),
        (CollectiveKind::CollectiveBroadcast, 100.0, 100.0),
        (CollectiveKind::HostToDevice, 100.0, 100.0),
    ] {
        let found = by_hand(kind, 4, Vec::new(), &[(0, 0, 0, 10_000, 0, 0), (1, 0, 0, 20_000, 0, 0)]);
        let row = &collective_metrics(&found, Clocks::Recorded).sizes[0];
        let of = |bandwidth: Option<autotune_lowered::analysis::collectives::Bandwidth>| bandwidth.unwrap();
        let (a, b) = (of(row.figures.algorithm_gb_per_s), of(row.figures.bus_gb_per_s));
        assert_eq!((a.mean, b.mean, a.error), (algorithm, bus, None), "{kind}");
        // of the fastest device: the other took twice as long
        assert_eq!((row.figures.fastest_ns, row.figures.total_ns), (10_000.0, 30_000.0));
    }
}

#[test]
fn hidden_time_is_the_union_and_the_sum_is_said() {
    let found = by_hand(CollectiveKind::AllReduce, 2, Vec::new(), &[(0, 0, 0, 100, 40, 60), (0, 1, 200, 300, 10, 10)]);
    let row = &collective_metrics(&found, Clocks::Recorded).sizes[0];
    assert_eq!((row.figures.hidden, row.figures.hidden_by_sum), (0.25, Some(0.35)));
    // one device waits for no other
    assert_eq!((row.figures.instances, row.figures.wait), (2, None));
}

#[test]
fn groups_of_one_collective_wait_apart() {
    let parts = [(0, 0, 0, 100, 0, 0), (1, 0, 60, 100, 0, 0), (2, 0, 500, 600, 0, 0), (3, 0, 590, 600, 0, 0)];
    let whole = by_hand(CollectiveKind::AllReduce, 2, Vec::new(), &parts[..2]);
    // (100 - 0) - 40
    let wait = collective_metrics(&whole, Clocks::Recorded).sizes[0].figures.wait.unwrap();
    assert_eq!((wait.mean_ns, wait.of_fastest), (60.0, 1.5));
    let apart = by_hand(CollectiveKind::AllReduce, 2, vec![vec![0, 1], vec![2, 3]], &parts);
    let figures = collective_metrics(&apart, Clocks::Recorded).sizes[0].figures.clone();
    let wait = figures.wait.unwrap();
    assert_eq!((figures.instances, wait.mean_ns, wait.longest_ns), (2, 75.0, 90.0));
}

#[test]
fn hosts_whose_clocks_differ_are_compared_once_they_are_aligned() {
    // host b's clock is 1000 ns ahead, and its device 3 is always 20 ns late
    let parts: Vec<_> = (0..3)
        .flat_map(|run| {
            let at = i64::try_from(run).unwrap() * 10_000;
            [
                (0, run, at, at + 100, 0, 0),
                (1, run, at, at + 100, 0, 0),
                (2, run, at + 1000, at + 1100, 0, 0),
                (3, run, at + 1000, at + 1120, 0, 0),
            ]
        })
        .collect();
    let found = by_hand(CollectiveKind::AllGather, 4, Vec::new(), &parts);
    let recorded = collective_metrics(&found, Clocks::Recorded);
    assert_eq!(recorded.sizes[0].figures.wait, None, "clocks of two hosts were compared");
    // the mean end is at 605: −505, −505, 495 and 515
    assert_eq!(recorded.alignment.skews_ps, [-505_000, -505_000, 495_000, 515_000]);
    let by_host = collective_metrics(&found, Clocks::Host);
    assert_eq!(by_host.alignment.corrections_ps, [-505_000, -505_000, 505_000, 505_000]);
    // with that, host b starts 10 ns earlier and its device 3 ends 10 ns later than host a's: 605 + 10 - 495 - 100
    assert_eq!(by_host.sizes[0].figures.wait.unwrap().mean_ns, 20.0);
    let by_device = collective_metrics(&found, Clocks::Device);
    assert_eq!(by_device.alignment.corrections_ps, by_device.alignment.skews_ps);
    // all end at 605; the first started at 485
    assert_eq!(by_device.sizes[0].figures.wait.unwrap().mean_ns, 20.0);
    // a collective of two devices says nothing about four clocks
    let pairs = by_hand(CollectiveKind::AllGather, 2, Vec::new(), &parts);
    let pairs = collective_metrics(&pairs, Clocks::Host);
    assert_eq!((pairs.alignment.collectives, pairs.alignment.skews_ps.len()), (0, 0));
    assert_eq!(pairs.sizes[0].figures.wait, None);
}

#[test]
fn of_very_many_collectives_a_sample_tells_the_skew() {
    // device 1 ends 10 ns after device 0 in three of five, otherwise 30 ns after it
    let parts = |count: u64| -> Vec<_> {
        let of = |run: u64| {
            let (at, late) = (i64::try_from(run).unwrap() * 1000, if run % 5 < 3 { 10 } else { 30 });
            [(0, run, at, at + 100, 0, 0), (1, run, at, at + 100 + late, 0, 0)]
        };
        (0..count).flat_map(of).collect()
    };
    for (count, sampled) in [(131_072, 131_072..=131_072), (200_000, 60_000..=131_072)] {
        let mut found = by_hand(CollectiveKind::AllReduce, 2, Vec::new(), &parts(count));
        found.devices.truncate(2);
        let metrics = collective_metrics(&found, Clocks::Device);
        let alignment = &metrics.alignment;
        assert!(sampled.contains(&alignment.sampled), "{alignment:?}");
        assert_eq!((alignment.collectives, &alignment.skews_ps[..]), (count, &[-5000, 5000][..]));
        // with this alignment, device 1 starts 10 ns early, and ends with device 0 or 20 ns later
        let early = (0..count).filter(|run| run % 5 < 3).count() as f64;
        let mean = (early * 10.0 + (count as f64 - early) * 30.0) / count as f64;
        let wait = metrics.sizes[0].figures.wait.unwrap();
        assert!(close(wait.mean_ns, mean) && wait.longest_ns == 30.0, "{wait:?}, not {mean}");
    }
}

#[test]
fn the_command_prints_tables_json_and_a_plot() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let table = run(folder.path(), &["profile", "collectives", SAMPLE, "--plot", plot.to_str().unwrap()]);
    assert_eq!(table.code, 0, "{}", table.stderr);
    for text in [
        "all-gather              8  16.4 kB          2",
        "8 devices on 1 host, clocks as recorded",
        "left out: 8 first executions",
    ] {
        assert!(table.stdout.contains(text), "{text}\n{}", table.stdout);
    }
    let plot = std::fs::read_to_string(plot).unwrap();
    // a mark and its line for each of the five kinds, for bandwidth and for waits; a line for each device
    assert_eq!(plot.matches("</title><path d=\"M").count(), 5 + 5);
    assert_eq!(plot.matches("<circle").count(), 8);
    assert!(plot.contains("<title>all-gather, 16384 bytes: "), "{plot}");
    let json = run(folder.path(), &["profile", "collectives", SAMPLE, "--format", "json", "--top", "2"]).json();
    assert_eq!((json["operations"].as_array().unwrap().len(), json["devices"][0]["device"].as_i64()), (2, Some(0)));
    let none = run(folder.path(), &["profile", "collectives", "tests/data/xplane/trivial.xplane.pb"]);
    assert_eq!((none.code, none.stdout.lines().next()), (3, Some("no collective was found")));
}

fn synthetic(planes: &[PlaneBuilder]) -> Vec<Capture> {
    let space = XSpace::from_bytes(space(planes).0).unwrap();
    vec![Capture::xspace("synthetic", "host", space)]
}

#[test]
fn computations_on_several_threads_hide_a_moment_once() {
    // a all-reduce from 10 to 110; computations from 0 to 60 and from 40 to 80, and a loop around all of it
    let threads: [&[Ran<'_>]; 3] = [
        &[("while.1", "jit_f", 1, 1, 0, 200), ("all-reduce.1", "jit_f", 1, 1, 10, 100)],
        &[("fusion.1", "jit_f", 1, 1, 0, 60)],
        &[("fusion.2", "jit_f", 1, 1, 40, 40)],
    ];
    let (captures, files) = (synthetic(&[host(&threads)]), HloFiles::default());
    let found = collectives(&captures, &files, false);
    let metrics = collective_metrics(&found, Clocks::Recorded);
    let figures = &metrics.sizes[0].figures;
    // 70 of 100; 50 and 40 as a sum
    assert_eq!((figures.hidden, figures.hidden_by_sum, figures.total_ns), (0.7, Some(0.9), 100.0));
    // without HLO, the name gives the kind, but no size
    assert_eq!(
        (metrics.sizes[0].kind, metrics.sizes[0].message_bytes, figures.bus_gb_per_s),
        (CollectiveKind::AllReduce, None, None)
    );
    assert!(found.notes.iter().any(|note| note.starts_with("no HLO of `jit_f`")), "{:?}", found.notes);
}

#[test]
fn halves_of_an_asynchronous_collective_are_one() {
    let mut plane = PlaneBuilder::new("/device:TPU:0");
    let module = plane.event(("jit_f(1)", ""), 0, 100_000, &[("run_id", Is::Int(5))]);
    plane.line("XLA Modules", 0, &[module]);
    let operations = [
        ("all-gather-start.1", 0, 10),
        ("fusion.1", 10, 50),
        // its number differs from that of its start, but only one start is in progress
        ("all-gather-done.7", 60, 20),
        ("fusion.2", 80, 20),
    ];
    let events: Vec<Message> = operations
        .iter()
        .map(|(name, start, length)| {
            plane.event((&format!("%{name} = f32[8]{{0}} x()"), name), start * 1000, length * 1000, &[])
        })
        .collect();
    plane.line("XLA Ops", 0, &events);
    let (captures, files) = (synthetic(&[plane]), HloFiles::default());
    let found = collectives(&captures, &files, false);
    let [part] = found.parts.to_vec()[..] else { panic!("{:?}", found.parts.to_vec()) };
    assert_eq!((part.start_ps, part.end_ps, part.hidden_ps), (0, 80_000, 50_000));
    assert!(found.notes.iter().any(|note| note.contains("bandwidth is a lower bound")), "{:?}", found.notes);
}
