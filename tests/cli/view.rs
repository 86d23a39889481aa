//! `profile view`: the page as a file and in a browser, and the events of a page.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::program;
use crate::support::xspace::*;
use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::{HloFiles, SummaryOptions, summarize};
use autotune_lowered::profile::XSpace;
use autotune_lowered::report::{Timeline, ViewPage, write_view};
use serde_json::Value;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane").join(name)
}

#[test]
fn the_page_is_written_and_opened_where_no_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new/page.html");
    let capture = sample("multi8_shardmap.xplane.pb.gz");
    let capture = capture.to_str().unwrap();
    let file_text = file.to_str().unwrap();
    // `xdg-open` as a script that notes what it is to open, and as one that fails
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let note = folder.path().join("opened");
    let view = |browser: &str, more: &[&str]| {
        fs::write(bin.join("xdg-open"), format!("#!/bin/sh\n{browser}\n")).unwrap();
        fs::set_permissions(bin.join("xdg-open"), fs::Permissions::from_mode(0o755)).unwrap();
        let words = [&["profile", "view", capture], more].concat();
        let output =
            program::command(folder.path()).env("PATH", &bin).current_dir(&folder).args(&words).output().unwrap();
        program::Run::of(output, &words)
    };
    let browser = format!("echo \"$@\" > '{}'", note.display());

    let written = view(&browser, &["-o", file_text]);
    assert_eq!((written.code, written.stdout.trim_end()), (0, file_text), "{}", written.stderr);
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "a temporary file is left");
    assert!(!note.exists(), "with `-o` the page is only written");
    let page = fs::read(&file).unwrap();

    let default = "autotune-lowered-view.html";
    let opened = view(&browser, &[]);
    assert_eq!((opened.code, opened.stdout.trim_end(), opened.stderr.as_str()), (0, default, ""));
    assert!(fs::read(folder.path().join(default)).unwrap() == page, "the page differs from that of `-o`");
    let told = fs::read_to_string(&note).unwrap();
    assert_eq!(Path::new(told.trim_end()), folder.path().join(default));

    for failing in ["exit 3", "kill -9 $$"] {
        let unopened = view(failing, &[]);
        assert_eq!((unopened.code, unopened.stdout.trim_end()), (0, default), "{}", unopened.stderr);
        assert!(unopened.stderr.contains(&format!("open `{default}` yourself")), "{}", unopened.stderr);
    }
}

/// The events of a page, by name.
fn data(page: &str) -> Value {
    let json = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(json).unwrap()
}

#[test]
fn the_first_view_is_of_what_ran() {
    let folder = tempfile::tempdir().unwrap();
    // two runs; a thread of Python's goes on for ten times as long
    let runs = [("op", "jit_step", 3, 1, 5000, 1000), ("op", "jit_step", 3, 2, 9000, 1000)];
    let capture = folder.path().join("x.xplane.pb");
    let mut plane = host(&[&runs]);
    let stop = plane.event(("stop_trace", ""), 0, 100_000_000, &[]);
    plane.line("python", 0, &[stop]);
    fs::write(&capture, space(&[plane]).0).unwrap();
    let written = program::run(folder.path(), &["profile", "view", capture.to_str().unwrap(), "-o", "-"]);
    let page = data(&written.stdout);
    let [first, last, span] = ["first", "last", "span"].map(|name| page[name].as_i64().unwrap() / 1000);
    // a fiftieth of the 5000 ns before and after them
    assert_eq!((first, last, span), (4900, 10_100, 100_000), "{}", written.stderr);
}

#[test]
fn hostile_names_stay_text() {
    let folder = tempfile::tempdir().unwrap();
    let name = "</script><script>alert(1)</script><!--\u{202e}\u{0}\"'&";
    let events = [(name, name, 3, 1, 0, 1000), (name, name, 3, 2, 5000, 1000)];
    let capture = folder.path().join("<b>&.xplane.pb");
    fs::write(&capture, space(&[host(&[&events])]).0).unwrap();
    let written = program::run(folder.path(), &["profile", "view", capture.to_str().unwrap(), "-o", "-"]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    let page = written.stdout;
    // only the page's own elements, and none from the capture
    assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (2, 2));
    assert!(!page.contains("<!--") && !page.contains("<b>") && !page.contains('\u{202e}') && !page.contains('\u{0}'));
    assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("&lt;b&gt;&amp;.xplane.pb"));
    let names = data(&page)["names"].clone();
    assert_eq!(names, serde_json::json!(["</script><script>alert(1)</script><!--\\u{202e}\\u{0}\"'&"]));
    assert!(!page.contains("http://") && page.matches("https://").count() == 1, "only the text about Perfetto");
    // nothing is inline that the policy would have to allow
    assert!(!page.contains(" style=") && !page.contains(" onload=") && !page.contains(" onclick="));
}

/// Steps of 1000 ns, 10 events of different lengths in each.
fn stepped(steps: i64) -> Vec<Capture> {
    let names: Vec<String> = (0..10).map(|number| format!("op.{number}")).collect();
    let mut events = Vec::new();
    for step in 0..steps {
        for (number, name) in names.iter().enumerate() {
            let number = number as i64;
            events.push((name.as_str(), "jit_step", 3, step + 1, step * 1000 + number * 50, 20 + number));
        }
    }
    let space = XSpace::from_bytes(space(&[host(&[&events])]).0).unwrap();
    vec![Capture::xspace("made", "", space)]
}

#[test]
fn the_newest_steps_that_fit_are_shown_and_of_one_step_the_longest() {
    let captures = stepped(8);
    let all = Timeline::new(&captures, 80);
    assert_eq!((all.drawn, all.earlier, all.shorter, all.steps.clone()), (80, 0, 0, None));
    assert_eq!(all.notes(), ["80 events."]);

    let three = Timeline::new(&captures, 39);
    assert_eq!((three.drawn, three.earlier, three.shorter), (30, 50, 0));
    assert_eq!(three.steps, Some(("jit_step".to_owned(), 3, 8)));
    assert!(three.notes()[0].contains("the newest 3 of 8 steps") && three.notes()[1].contains("50 events"));

    let part = Timeline::new(&captures, 4);
    assert_eq!((part.drawn, part.earlier, part.shorter), (4, 70, 6));
    assert_eq!(part.steps, Some(("jit_step".to_owned(), 1, 8)));
    let notes = part.notes().join(" ");
    assert!(notes.contains("Left out: 6 events shorter") && notes.contains("a page holds 4"), "{notes}");
}

/// The lanes of a page with at most this many events: thread, events, and how many shorter ones it lacks.
fn lanes(captures: &[Capture], most: usize) -> (Timeline, Vec<(String, usize, u64)>) {
    let timeline = Timeline::new(captures, most);
    let files = HloFiles::default();
    let nothing = BTreeMap::new();
    let summary = summarize(captures, &files, SummaryOptions::default());
    let page = ViewPage::new("made", &summary, &timeline, [&nothing, &nothing]);
    let mut bytes = Vec::new();
    write_view(&mut bytes, &page).unwrap();
    let lane = |lane: &Value| {
        let events = lane["events"].as_array().unwrap().len() / 4;
        (lane["thread"].as_str().unwrap().to_owned(), events, lane["shorter"].as_u64().unwrap())
    };
    let lanes = data(std::str::from_utf8(&bytes).unwrap())["lanes"].as_array().unwrap().iter().map(lane).collect();
    (timeline, lanes)
}

fn captured(plane: &PlaneBuilder) -> Vec<Capture> {
    let space = XSpace::from_bytes(space(std::slice::from_ref(plane)).0).unwrap();
    vec![Capture::xspace("made", "", space)]
}

#[test]
fn a_lane_of_short_events_keeps_its_share_beside_long_ones() {
    let mut plane = PlaneBuilder::new("/host:CPU");
    let mut line = |name: &str, count: i64, length: i64| {
        let events: Vec<Message> =
            (0..count).map(|at| plane.event((name, ""), at * 10_000, length + at, &[])).collect();
        plane.line(name, 0, &events);
    };
    // every event of the first is longer than every event of the second
    line("long", 500, 5000);
    line("short", 400, 10);
    line("few", 10, 1);
    let captures = captured(&plane);
    let (timeline, found) = lanes(&captures, 110);
    // the ten of the third leave a hundred for two
    let expected = [("long", 50, 450), ("short", 50, 350), ("few", 10, 0)];
    assert_eq!(found, expected.map(|(name, events, shorter)| (name.to_owned(), events, shorter)));
    assert_eq!((timeline.drawn, timeline.shorter, timeline.earlier), (110, 800, 0));
    assert!(timeline.notes()[1].contains("800 events shorter") && timeline.notes()[1].contains("of each lane"));
    let (all, _) = lanes(&captures, 910);
    assert_eq!((all.drawn, all.shorter), (910, 0));
}

#[test]
fn of_too_many_lanes_those_with_the_most_time_are_shown() {
    let mut plane = PlaneBuilder::new("/host:CPU");
    for number in 0..320_i64 {
        // the first twenty are the shortest, the others are in no order
        let length = if number < 20 { 1 + number } else { 1000 + (number * 7919) % 320 };
        let event = plane.event(("op", ""), 0, length, &[]);
        plane.line(&format!("thread {number}"), 0, &[event]);
    }
    let (timeline, found) = lanes(&captured(&plane), 50_000);
    let expected: Vec<String> = (20..320).map(|number| format!("thread {number}")).collect();
    assert_eq!(found.iter().map(|lane| lane.0.clone()).collect::<Vec<_>>(), expected);
    assert_eq!((timeline.drawn, timeline.crowded), (300, 20));
    assert!(timeline.notes()[1].contains("20 events beyond the limit of rows and lanes"), "{:?}", timeline.notes());
}

#[test]
fn a_page_holds_fifty_thousand_events_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    // one step: short events, then a few long ones
    let mut events: Vec<Ran<'_>> = (0..50_500).map(|number| ("short", "jit_step", 3, 1, number * 10, 5)).collect();
    events.extend((0..7).map(|number| ("long", "jit_step", 3, 1, 600_000 + number * 100, 90)));
    let capture = folder.path().join("many.xplane.pb");
    fs::write(&capture, space(&[host(&[&events])]).0).unwrap();
    let written = program::run(folder.path(), &["profile", "view", capture.to_str().unwrap(), "-o", "-"]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    assert!(written.stdout.contains("50000 events: the newest 1 of 1 steps"));
    assert!(written.stdout.contains("Left out: 507 events shorter than those drawn"));
    let data = data(&written.stdout);
    let long = data["names"].as_array().unwrap().iter().position(|name| name == "long").unwrap() as u64;
    let lanes = data["lanes"].as_array().unwrap();
    let events: Vec<u64> = lanes[0]["events"].as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).collect();
    assert_eq!((lanes.len(), events.len()), (1, 200_000));
    assert_eq!(events.chunks(4).filter(|event| event[0] == long && event[2] == 90_000).count(), 7);
}

/// The same launches; after a change, one operation takes half as long and the other twice as long.
#[test]
fn what_a_change_did_is_drawn_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, [sine, dot]: [i64; 2]| {
        let mut ran: Vec<Ran<'_>> = Vec::new();
        for launch in 0..7 {
            let at = launch * 100_000;
            ran.push(("sine.1", "jit_f", 3, launch, at, sine + launch % 3));
            ran.push(("dot.1", "jit_f", 3, launch, at + sine + 10, dot + launch % 3));
        }
        let path = folder.path().join(name);
        fs::write(&path, space(&[host(&[&ran])]).0).unwrap();
        path.display().to_string()
    };
    let (before, after) = (file("before.xplane.pb", [8000, 1000]), file("after.xplane.pb", [4000, 2000]));
    let hlo = folder.path().join("f.hlo.pb");
    fs::write(&hlo, proto("jit_f", 3, &[("sine.1", "sine", "jit(f)/sine"), ("dot.1", "dot", "jit(f)/dot")]).0).unwrap();
    let hlo = hlo.display().to_string();
    let page = program::run(folder.path(), &["profile", "view", &before, "--after", &after, "--hlo", &hlo, "-o", "-"]);
    assert_eq!(page.code, 0, "{}", page.stderr);
    let page = page.stdout;
    let section = page.split("id=\"after\"").nth(1).unwrap().split("</section>").next().unwrap();
    // the difference of each frame over six launches, in everything drawn
    let change = |name: &str| -> f64 {
        let title = section.split(&format!("<title>{name} (")).nth(1).unwrap().split("</title>").next().unwrap();
        title.split("; ").nth(1).unwrap_or_else(|| panic!("{title}")).trim_end_matches("%)").parse().unwrap()
    };
    let total = section.split("<title>all (").nth(1).unwrap().split(" ns").next().unwrap().replace(',', "");
    let total: f64 = total.parse().unwrap();
    for (name, difference) in [("jit(f)/sine", -4000.0), ("jit(f)/dot", 1000.0)] {
        let expected = 100.0 * 6.0 * difference / total;
        assert!((change(name) - expected).abs() < 0.1, "{name}: {} {expected}", change(name));
    }
    let row =
        |name: &str| section.split(&format!("<tr><td>{name}</td>")).nth(1).unwrap().split("</tr>").next().unwrap();
    assert!(row("sine.1").contains("−4.00 µs") && row("sine.1").ends_with("<td>faster</td>"), "{}", row("sine.1"));
    assert!(row("dot.1").contains("+1.00 µs") && row("dot.1").ends_with("<td>slower</td>"), "{}", row("dot.1"));
    // in the graph's own colours: blue for less, red for more
    let fill = |name: &str| {
        let frame = section.split(&format!("<title>{name} (")).nth(1).unwrap();
        let fill = frame.split("fill=\"rgb(").nth(1).unwrap().split(')').next().unwrap();
        fill.split(',').map(|part| part.trim().parse().unwrap()).collect::<Vec<u8>>()
    };
    let ([sine, dot], blue) = ([fill("jit(f)/sine"), fill("jit(f)/dot")], 2);
    assert!(sine[blue] > sine[0] && dot[0] > dot[blue], "{sine:?} {dot:?}");
}

/// The rows of a table of a page, each cell's text.
fn rows(page: &str, id: &str) -> Vec<Vec<String>> {
    let table = page.split(&format!("<h3 id=\"{id}\" ")).nth(1).unwrap_or_else(|| panic!("no table {id}"));
    let body = table.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let text = |cell: &str| cell.split_once('>').unwrap().1.split("</td>").next().unwrap().to_owned();
    body.split("<tr>").skip(1).map(|row| row.split("<td").skip(1).map(text).collect()).collect()
}

/// Three digits in decimal units.
fn bytes_text(bytes: f64) -> String {
    let [unit, power] = if bytes < 1e3 {
        ["B", "0"]
    } else if bytes < 1e6 {
        ["kB", "3"]
    } else {
        ["MB", "6"]
    };
    let value = bytes / 10_f64.powi(power.parse().unwrap());
    let digits = if unit == "B" { 0 } else { 2 - value.log10().floor() as usize };
    format!("{value:.digits$} {unit}")
}

/// Compared with `memory_analysis()` of JAX, and another program's reading of the heap's trace:
/// `tests/data/hlo/memory/make.py`.
#[test]
fn memory_and_what_is_alive_at_its_peak_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hlo/memory");
    let oracle: Value = serde_json::from_slice(&fs::read(tests.join("oracle.json")).unwrap()).unwrap();
    let page = |capture: &Path, more: &[&str]| {
        let words = [&["profile", "view", capture.to_str().unwrap(), "-o", "-"], more].concat();
        let page = program::run(folder.path(), &words);
        assert_eq!(page.code, 0, "{}", page.stderr);
        page.stdout
    };
    // an execution of the program that JAX analysed
    let made = folder.path().join("made.xplane.pb");
    fs::write(&made, space(&[host(&[&[("tanh.2", "jit_step", 3, 1, 0, 1000)]])]).0).unwrap();
    let hlo = tests.join("donating.hlo.pb.gz").display().to_string();
    let table = rows(&page(&made, &["--hlo", &hlo]), "table-memory-of-each-device");
    let expected =
        ["argument", "output", "alias", "temp"].map(|kind| bytes_text(oracle["donating"][kind].as_f64().unwrap()));
    assert_eq!(table.len(), 1);
    assert_eq!([2, 3, 4, 6].map(|column| table[0][column].clone()), expected);

    let step = page(&sample("tf2_step.xplane.pb.gz"), &[]);
    for row in rows(&step, "table-memory-of-each-device") {
        let peak = oracle["heaps"][&row[0]]["peak"].as_f64().unwrap_or_default();
        assert_eq!(row[7], bytes_text(peak), "{row:?}");
    }
    assert!(step.contains(">Alive at the heap peak of jit_step(30)</h3>"));
    let alive: Vec<String> = rows(&step, "table-alive").into_iter().map(|mut row| row.remove(1)).collect();
    let expected = oracle["heaps"]["jit_step(30)"]["alive"].as_array().unwrap();
    let expected: Vec<String> = expected.iter().take(25).map(|bytes| bytes_text(bytes.as_f64().unwrap())).collect();
    assert_eq!(alive, expected);
    assert!(
        step.contains(&format!("and {} more", oracle["heaps"]["jit_step(30)"]["alive"].as_array().unwrap().len() - 25))
    );
}

#[test]
fn a_label_leads_to_its_candidates() {
    let folder = tempfile::tempdir().unwrap();
    let capture = sample("tf2_step.xplane.pb.gz");
    let capture = capture.to_str().unwrap();
    let summary = program::run(folder.path(), &["profile", "summary", capture, "--format", "json"]).json();
    let labels = summary["labels"].as_array().unwrap();
    // only the name of its label is left
    let place = labels.iter().position(|label| label["op_id"] == "rms_norm").unwrap();
    assert!(labels[place]["call_key"].is_null());
    let times = |block: u64, ns: f64| {
        serde_json::json!({"config": {"block": block}, "status": "measured", "rounds": 6, "median_ns": ns, "ratio": ns / 4e6,
            "interval": {"low": 0.4, "high": 1.1, "confidence": 0.95}, "tied_with_best": block == 7, "temporary_bytes": 2048})
    };
    let results = serde_json::json!({
        "schema": 1, "tool": "made", "timer": "made", "source": "replay", "metric": "elapsed", "interrupted": false,
        "device": {"identity": {"platform": "cpu", "device_kind": "cpu"}},
        "operations": [{"op_id": "rms_norm@v1", "call_key": "0123456789abcdef", "direction": "forward",
            "evidence": "exact", "occurrences": 1, "how": "", "status": "tuned", "reason": "", "rounds_measured": 6, "rounds_kept": 0,
            "baseline": {"config": {"block": 3}, "median_ns": 4e6}, "best": {"config": {"block": 7}, "median_ns": 2e6},
            "speed_up": 2.0, "candidates": [times(3, 4e6), times(7, 2e6)]}]
    });
    let file = folder.path().join("run.json");
    fs::write(&file, results.to_string()).unwrap();
    let file = file.display().to_string();
    let page = program::run(folder.path(), &["profile", "view", capture, "--results", &file, "-o", "-"]);
    assert_eq!(page.code, 0, "{}", page.stderr);
    let (link, id) = (
        format!("<a href=\"#call-{}\">", place + 1),
        format!("<h3 id=\"call-{}\" tabindex=\"-1\">Candidates of ", place + 1),
    );
    assert_eq!((page.stdout.matches("href=\"#call-").count(), page.stdout.matches(&link).count()), (1, 1));
    let section = page.stdout.split(&id).nth(1).unwrap().split("</table>").next().unwrap();
    let rows: Vec<&str> = section.split("<tr>").skip(2).collect();
    // the fastest first
    assert!(rows[0].contains("2.00 ms") && rows[0].contains("0.500") && rows[0].contains("use this"), "{}", rows[0]);
    assert!(rows[1].contains("4.00 ms") && rows[1].contains("2.05 kB") && rows[1].contains("baseline"), "{}", rows[1]);

    // it is unknown which of two calls it is
    let mut two = results;
    let mut other = two["operations"][0].clone();
    other["call_key"] = "fedcba9876543210".into();
    two["operations"].as_array_mut().unwrap().push(other);
    fs::write(&file, two.to_string()).unwrap();
    let page = program::run(folder.path(), &["profile", "view", capture, "--results", &file, "-o", "-"]);
    assert!(page.code == 0 && !page.stdout.contains("href=\"#call-"), "{}", page.stderr);
}
