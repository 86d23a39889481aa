//! Plots: each mark is at the position of its numbers, computed by hand, between the labelled ticks; names stay text.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::collectives::one_operation;
use crate::support::program::run;
use crate::support::xspace::*;
use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::collectives::{
    Clocks, CollectiveKind, Collectives, Communication, collective_metrics, straggler_waits,
};
use autotune_lowered::analysis::{HloFiles, SummaryOptions, summarize};
use autotune_lowered::profile::XSpace;
use autotune_lowered::report::{write_collectives_plot, write_spread_plot};
use regex::Regex;

const HOSTILE: &str = "</title><script>alert(1)</script>\u{202e}\u{fffe}&\"'";

/// Each match's groups; all after the first `texts` are numbers.
fn found(pattern: &str, texts: usize, svg: &str) -> Vec<(Vec<String>, Vec<f64>)> {
    let each = |found: regex::Captures<'_>| {
        let groups: Vec<String> = found.iter().skip(1).map(|group| group.unwrap().as_str().to_owned()).collect();
        let numbers = groups[texts..].iter().map(|text| text.parse().unwrap()).collect();
        (groups[..texts].to_vec(), numbers)
    };
    Regex::new(pattern).unwrap().captures_iter(svg).map(each).collect()
}

/// `20 kB`, `0.5 %`, `1×`, `2 µs`: bytes, parts, multiples, nanoseconds.
fn value(label: &str) -> f64 {
    let end = label.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-' && c != 'e').unwrap_or(label.len());
    let unit = match label[end..].trim() {
        "" | "×" | "B" | "ns" => 1.0,
        "%" => 0.01,
        "kB" | "µs" => 1e3,
        "MB" | "ms" => 1e6,
        "GB" | "s" => 1e9,
        other => panic!("{other}"),
    };
    label[..end].parse::<f64>().unwrap() * unit
}

/// A panel's axes, derived from its ticks.
struct Axes {
    across: Vec<(f64, f64)>,
    up: Vec<(f64, f64)>,
}

impl Axes {
    /// The axes of the panel with this name at its vertical axis.
    fn of(svg: &str, name: &str) -> Self {
        let named = format!(
            r#"d="M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)"/>\n(?:<text [^\n]*\n){{1,2}}<text class="soft" transform[^\n]*>{name}</text>"#
        );
        let frames = found(&named, 0, svg);
        let [left, top, bottom, right] = frames.first().unwrap_or_else(|| panic!("no panel {name}")).1[..] else {
            panic!()
        };
        let tick = |pattern: &str, wanted: &dyn Fn(&[f64]) -> Option<f64>| {
            found(pattern, 0, svg).iter().filter_map(|(_, numbers)| wanted(numbers)).collect::<Vec<f64>>()
        };
        let columns = tick(r#"class="grid" d="M([\d.]+) ([\d.]+)V([\d.]+)""#, &|place| {
            (place[1..] == [top, bottom] && (left..=right).contains(&place[0])).then_some(place[0])
        });
        let lines = tick(r#"class="grid" d="M([\d.]+) ([\d.]+)H([\d.]+)""#, &|place| {
            (place[0] == left && place[2] == right && (top..=bottom).contains(&place[1])).then_some(place[1])
        });
        let texts = Regex::new(r#"<text x="([\d.]+)" y="([\d.]+)" text-anchor="(middle|end)">([^<]*)</text>"#).unwrap();
        let (mut across, mut up) = (Vec::new(), Vec::new());
        for text in texts.captures_iter(svg) {
            let [x, y] = [1, 2].map(|group| text[group].parse::<f64>().unwrap());
            if &text[3] == "middle" && columns.contains(&x) && (y - bottom - 19.0).abs() < 1.0 {
                across.push((value(&text[4]), x));
            }
            let line = lines.iter().find(|line| (y - **line - 4.5).abs() < 0.11);
            if let Some(line) = line.filter(|_| &text[3] == "end" && (x - left + 8.0).abs() < 1.0) {
                up.push((value(&text[4]), *line));
            }
        }
        assert!(!across.is_empty() && !up.is_empty(), "{columns:?} {lines:?} {across:?} {up:?}");
        Self { across, up }
    }

    /// The position of a value between the first tick above zero and the last.
    fn place(ticks: &[(f64, f64)], value: f64) -> f64 {
        let positive: Vec<&(f64, f64)> = ticks.iter().filter(|tick| tick.0 > 0.0).collect();
        let (Some(&&(low, from)), Some(&&(high, to))) = (positive.first(), positive.last()) else {
            panic!("{ticks:?}")
        };
        assert!(low < high, "{ticks:?}");
        from + (to - from) * (value / low).ln() / (high / low).ln()
    }

    fn assert_at(&self, mark: (f64, f64), x: f64, y: f64) {
        let expected = (Self::place(&self.across, x), Self::place(&self.up, y));
        let near = (mark.0 - expected.0).abs() < 0.25 && (mark.1 - expected.1).abs() < 0.25;
        assert!(near, "({x}, {y}) stands at {mark:?}, not at {expected:?}");
    }
}

/// No part of a name is markup, and the file is XML with only its own elements.
fn assert_safe(svg: &str) {
    assert!(!svg.contains("<script") && !svg.contains('\u{202e}') && !svg.contains('\u{fffe}'));
    assert!(svg.contains("&lt;/title&gt;&lt;script&gt;alert(1)"), "{svg}");
    assert!(!svg.contains("http") || svg.matches("http").count() == 1, "only the namespace");
    let opened = Regex::new("<([a-z]+)").unwrap();
    for element in opened.captures_iter(svg) {
        let known = ["svg", "title", "style", "rect", "text", "path", "g", "circle"];
        assert!(known.contains(&&element[1]), "{}", &element[1]);
    }
}

/// Runs of a module of 10 µs each; for each operation, its duration in each run.
fn ran(operations: &[(&str, &[i64])]) -> Vec<Capture> {
    let mut events: Vec<Ran<'_>> = Vec::new();
    for (place, (name, durations)) in operations.iter().enumerate() {
        for (run, duration) in durations.iter().enumerate() {
            let (run, place) = (run as i64, place as i64);
            events.push((name, "jit_f", 1, run + 1, run * 1_000_000 + place * 10_000, *duration));
        }
    }
    events.sort_by_key(|event| event.4);
    let space = XSpace::from_bytes(space(&[host(&[&events])]).0).unwrap();
    vec![Capture::xspace("made", "", space)]
}

fn spread(captures: &[Capture]) -> Option<String> {
    let options = SummaryOptions::default().counting(true.into());
    let mut summary = summarize(captures, &HloFiles::default(), options);
    // what the HLO would give
    for operation in &mut summary.operations {
        operation.communication = operation.operation.starts_with("all-reduce");
    }
    let mut svg = Vec::new();
    let drawn = write_spread_plot(&mut svg, &summary).unwrap();
    assert_eq!(drawn, !svg.is_empty());
    drawn.then(|| String::from_utf8(svg).unwrap())
}

#[test]
fn each_operation_stands_at_its_mean_and_spread() {
    let svg = spread(&ran(&[
        // deviations by hand, with n − 1: of 100 and 300 it is 200 ÷ √2; of 2, 4 and 6 thousand 2 thousand
        ("fusion.1", &[100, 300]),
        ("fusion.2", &[2000, 4000, 6000]),
        ("steady", &[500, 500, 500]),
        ("once", &[700]),
        ("all-reduce.1", &[100, 900, 100]),
        (HOSTILE, &[1000, 1100, 1200]),
    ]))
    .unwrap();
    let axes = Axes::of(&svg, "deviation over mean");
    let pattern = Regex::new(r#"<path [^>]*translate\(([\d.]+) ([\d.]+)\) [^>]*><title>([^<]*)</title>"#).unwrap();
    let marks: Vec<(f64, f64, String)> = pattern
        .captures_iter(&svg)
        .map(|mark| (mark[1].parse().unwrap(), mark[2].parse().unwrap(), mark[3].to_owned()))
        .collect();
    let mark = |name: &str| {
        let mark = marks.iter().find(|mark| mark.2.starts_with(name)).unwrap_or_else(|| panic!("{name}: {marks:?}"));
        (mark.0, mark.1)
    };
    assert_eq!(marks.len(), 4, "not the one that ran once, nor the one that communicates: {marks:?}");
    axes.assert_at(mark("fusion.1 of jit_f(1)"), 200.0, 1.0 / 2.0_f64.sqrt());
    axes.assert_at(mark("fusion.2"), 4000.0, 0.5);
    axes.assert_at(mark("&lt;/title"), 1100.0, 100.0 / 1100.0);
    // zero spread has a separate strip below the smallest value
    let (zero, smallest) = (axes.up.iter().find(|tick| tick.0 == 0.0).unwrap().1, Axes::place(&axes.up, 0.05));
    let steady = mark("steady");
    assert!((steady.0 - Axes::place(&axes.across, 500.0)).abs() < 0.25);
    assert!((steady.1 - zero).abs() < 0.25 && zero > smallest);
    assert!(svg.contains("fusion.2 of jit_f(1): 4.00 µs ± 2.00 µs (50.0 %), 3 executions, 3 events"), "{svg}");
    assert!(svg.contains("4 operations drawn.") && svg.contains("1 that ran in one execution"), "{svg}");
    assert_safe(&svg);
    // named by deviation × executions: 6000, 300 and 283; steady operations are not named
    let names = Regex::new(r#"h8"/><text [^>]*>([^<]*)</text>"#).unwrap();
    let names: Vec<String> = names.captures_iter(&svg).map(|name| name[1].to_owned()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(!names.iter().any(|name| name == "steady") && names.iter().any(|name| name == "fusion.2"), "{names:?}");
}

#[test]
fn nothing_is_drawn_of_nothing() {
    assert_eq!(spread(&ran(&[("once", &[700]), ("all-reduce.1", &[1, 2])])), None);
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("none.svg");
    let once = folder.path().join("once.xplane.pb");
    let events = [("fusion.1", "jit_f", 1, 1, 0, 100)];
    std::fs::write(&once, space(&[host(&[&events])]).0).unwrap();
    for command in ["summary", "collectives"] {
        let done = run(folder.path(), &["profile", command, once.to_str().unwrap(), "--plot", plot.to_str().unwrap()]);
        assert_eq!(done.code, 3, "{}", done.stderr);
        assert!(done.fault().contains("nothing to plot into") && done.fault().contains("none.svg"), "{}", done.stderr);
        assert!(!plot.exists());
    }
}

/// One operation: parts by device, execution, start and end in nanoseconds. The devices belong to host `a`, the last
/// one to `b`.
fn collectives(
    kind: CollectiveKind,
    bytes: Option<u64>,
    devices: usize,
    parts: &[(u32, u64, i64, i64)],
) -> Collectives<'static> {
    let hosts: Vec<&str> = (1..=devices).map(|number| if number == devices { HOSTILE } else { "a" }).collect();
    let communication =
        Communication { kind, group_size: Some(devices as u64), message_bytes: bytes, groups: Vec::new() };
    let parts: Vec<_> =
        parts.iter().map(|&(device, execution, start, end)| (device, execution, start, end, 0, 0)).collect();
    one_operation(HOSTILE, &hosts, communication, &parts)
}

fn drawn(found: &Collectives<'_>, clocks: Clocks) -> Option<String> {
    let metrics = collective_metrics(found, clocks);
    let waits = straggler_waits(found, &metrics.alignment);
    let mut svg = Vec::new();
    let drawn = write_collectives_plot(&mut svg, found, &metrics, &waits).unwrap();
    assert_eq!(drawn, !svg.is_empty());
    drawn.then(|| String::from_utf8(svg).unwrap())
}

/// Title, lowest and highest end of the line, and position of each mark of collectives.
fn marked(svg: &str) -> Vec<(String, f64, f64, (f64, f64))> {
    let pattern =
        r#"<title>([^<]*)</title><path d="M[\d.]+ ([\d.]+)V([\d.]+)"/><path transform="translate\(([\d.]+) ([\d.]+)\)"#;
    let each = |(title, at): (Vec<String>, Vec<f64>)| (title[0].clone(), at[0], at[1], (at[2], at[3]));
    found(pattern, 1, svg).into_iter().map(each).collect()
}

#[test]
fn collectives_stand_at_their_bandwidth_wait_and_skew() {
    // three on two devices, of 3000 bytes: fastest 100, 200 and 300 ns; waits 50, 0 and 600 ns
    let found = collectives(
        CollectiveKind::AllReduce,
        Some(3000),
        2,
        &[
            (0, 0, 0, 150),
            (1, 0, 50, 150),
            (0, 1, 1000, 1200),
            (1, 1, 1000, 1200),
            (0, 2, 2000, 2300),
            (1, 2, 2500, 2900),
        ],
    );
    let svg = drawn(&found, Clocks::Host).unwrap();
    // the ends differ by 0, 0 and 600: their medians are 0, and host clocks are left unchanged
    let marks = marked(&svg);
    assert_eq!(marks.len(), 2, "{svg}");
    let (bandwidth, waits) = (Axes::of(&svg, "GB/s"), Axes::of(&svg, "of the fastest device’s time"));
    // bytes per nanosecond are GB/s, and the bus factor of two devices is one: 30, 15 and 10
    let (_, low, high, place) = marks[0].clone();
    bandwidth.assert_at(place, 3000.0, 55.0 / 3.0);
    assert!((low - Axes::place(&bandwidth.up, 10.0)).abs() < 0.25, "{low}");
    assert!((high - Axes::place(&bandwidth.up, 30.0)).abs() < 0.25, "{high}");
    // 650 of 600 ns in all; from none at all to twice
    let (said, low, high, place) = marks[1].clone();
    waits.assert_at(place, 3000.0, 650.0 / 600.0);
    assert!((high - Axes::place(&waits.up, 2.0)).abs() < 0.25, "{high}");
    assert!((low - waits.up.iter().find(|tick| tick.0 == 0.0).unwrap().1).abs() < 0.25, "{low}");
    assert!(said.contains("1.083 times the fastest, from 0.000 to 2.000; 217 ns in the mean of 3"), "{said}");
    // one instance each: no wait, and the fifths of a power of ten that contain 50 and 600
    for bar in ["1 of 3 wait not at all", "1 of 3 wait 39.8 ns to 63.1 ns", "1 of 3 wait 398 ns to 631 ns"] {
        assert!(svg.contains(&format!("<title>all-reduce: {bar}</title>")), "{bar}\n{svg}");
    }
    assert!(svg.contains("<title>device 0 on a: 0.00 ns, median of 3</title>"), "{svg}");
    assert_safe(&svg);
}

#[test]
fn late_devices_stand_above_the_middle() {
    // ends 30 ns before and after the mean, always
    let found = collectives(
        CollectiveKind::AllGather,
        None,
        3,
        &[(0, 0, 0, 100), (1, 0, 0, 130), (2, 0, 0, 160), (0, 1, 500, 600), (1, 1, 500, 630), (2, 1, 500, 660)],
    );
    let svg = drawn(&found, Clocks::Device).unwrap();
    assert!(svg.contains("No bandwidth: no collective has a message size."), "{svg}");
    assert!(svg.contains("taken off before waits"));
    let circles = found_circles(&svg);
    let ticks =
        Regex::new(r#"d="M[\d.]+ ([\d.]+)H[\d.]+"/><text [^>]*text-anchor="end">(−?)([\d.]+)(?: ns)?</text>"#).unwrap();
    let tick = |wanted: &str| {
        let tick = ticks.captures_iter(&svg).find(|tick| format!("{}{}", &tick[2], &tick[3]) == wanted);
        tick.unwrap_or_else(|| panic!("no tick {wanted}: {svg}"))[1].parse::<f64>().unwrap()
    };
    // ticks of ten from −30 to 30
    for (circle, at) in circles.iter().zip([tick("−30"), tick("0"), tick("30")]) {
        assert!((circle - at).abs() < 0.11, "{circles:?} {at}");
    }
    assert_eq!(circles.len(), 3);
    assert!(circles[2] < circles[0], "late is up");
}

fn found_circles(svg: &str) -> Vec<f64> {
    found(r#"<circle cx="[\d.]+" cy="([\d.]+)" r"#, 0, svg).into_iter().map(|(_, at)| at[0]).collect()
}

#[test]
fn panels_without_anything_are_left_out_and_named() {
    // one device per host: nothing waits for a device with the same clock
    let alone = collectives(CollectiveKind::AllGather, Some(1 << 20), 1, &[(0, 0, 0, 100), (0, 1, 500, 900)]);
    let svg = drawn(&alone, Clocks::Recorded).unwrap();
    assert_eq!(marked(&svg).len(), 1);
    assert!(svg.contains("No waits: no collective has two devices") && svg.contains("No skews: "), "{svg}");
    let nothing = collectives(CollectiveKind::AllGather, None, 1, &[(0, 0, 0, 100)]);
    assert_eq!(drawn(&nothing, Clocks::Recorded), None);
    assert_eq!(drawn(&Collectives::default(), Clocks::Recorded), None);
}
