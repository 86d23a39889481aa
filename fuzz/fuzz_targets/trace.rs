//! An XSpace in all views: the output parses, and no event is lost or made up. The first byte decides whether stats are
//! written, whether the capture is given twice, as two hosts, whether all executions count, and whether events are read
//! twice.

#![no_main]

use std::collections::{BTreeMap, HashMap};

use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::collectives::{Clocks, collective_metrics, collectives, straggler_waits};
use autotune_lowered::analysis::trace::{TraceFormat, TraceOptions, Traced, write_trace};
use autotune_lowered::analysis::{HloFiles, StacksBy, SummaryOptions, stacks, summarize};
use autotune_lowered::profile::XSpace;
use autotune_lowered::report::{Timeline, ViewPage, write_collectives_plot, write_spread_plot, write_view};
use autotune_lowered::wire::{WireCursor, WireValue};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The fields of a message; all of them parse.
fn fields(bytes: &[u8]) -> Vec<(u32, WireValue<'_>)> {
    WireCursor::new(bytes).map(Result::unwrap).collect()
}

fn of<'a>(message: &[(u32, WireValue<'a>)], number: u32) -> Option<WireValue<'a>> {
    message.iter().find(|(field, _)| *field == number).map(|(_, value)| *value)
}

fn inner<'a>(message: &[(u32, WireValue<'a>)], number: u32) -> Option<Vec<(u32, WireValue<'a>)>> {
    of(message, number).map(|value| fields(value.as_bytes().unwrap()))
}

fn number(message: &[(u32, WireValue<'_>)], number: u32) -> Option<u64> {
    of(message, number).map(|value| value.as_varint().unwrap())
}

/// Checks that begins and ends of each track are balanced and in order; returns the number of begins.
fn perfetto(bytes: &[u8]) -> u64 {
    let (mut tracks, mut begun) = (HashMap::new(), 0);
    // for each track, how many are open, and the last time
    let mut open: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (field, packet) in fields(bytes) {
        assert_eq!(field, 1);
        let packet = fields(packet.as_bytes().unwrap());
        let sequence = number(&packet, 10);
        if let Some(defaults) = inner(&packet, 59) {
            let track = number(&inner(&defaults, 11).unwrap(), 11).unwrap();
            assert!(tracks.insert(sequence.unwrap(), track).is_none());
        }
        let Some(event) = inner(&packet, 11) else { continue };
        let track = number(&event, 11).unwrap_or_else(|| tracks[&sequence.unwrap()]);
        let time = number(&packet, 8).unwrap();
        let (depth, last) = open.entry(track).or_default();
        assert!(*last <= time);
        *last = time;
        match number(&event, 9) {
            Some(1) => (*depth, begun) = (*depth + 1, begun + 1),
            Some(2) => *depth = depth.checked_sub(1).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    assert!(open.values().all(|(depth, _)| *depth == 0));
    begun
}

fn chrome(bytes: &[u8]) -> u64 {
    let trace: Value = serde_json::from_slice(bytes).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices = events.iter().filter(|event| event["ph"] == "X");
    slices.inspect(|event| assert!(event["dur"].as_f64().unwrap() >= 0.0 && event["name"].is_string())).count() as u64
}

fuzz_target!(|bytes: &[u8]| {
    let Some((options, bytes)) = bytes.split_first() else { return };
    let Ok(space) = XSpace::from_bytes(bytes.to_vec()) else { return };
    let capture = |space| Capture::xspace("a.xplane.pb", "<a>", space);
    let mut captures = vec![capture(space)];
    if options & 2 != 0 {
        captures.extend(XSpace::from_bytes(bytes.to_vec()).ok().map(capture));
    }
    let trace = |format| -> (Traced, Vec<u8>) {
        let mut written = Vec::new();
        let traced = write_trace(&captures, TraceOptions::new(format).with_stats(options & 1 != 0), &mut written);
        (traced.unwrap(), written)
    };
    let (traced, written) = trace(TraceFormat::Perfetto);
    let (same, json) = trace(TraceFormat::Chrome);
    assert_eq!(traced, same);
    assert_eq!((perfetto(&written), chrome(&json)), (traced.slices, traced.slices));

    let files = HloFiles::default();
    if options & 8 != 0 {
        for capture in &mut captures {
            if let Capture::XSpace(capture) = capture {
                capture.space.hold_events(0);
            }
        }
    }
    let with_warm_up = options & 4 != 0;
    let options = SummaryOptions::default().counting(with_warm_up.into());
    let summary = summarize(&captures, &files, options);
    assert!(serde_json::to_vec(&summary).is_ok());
    let by = |by| stacks(&captures, &files, by, with_warm_up).time_ns;
    let (by_source, by_op_name) = (by(StacksBy::Source), by(StacksBy::OpName));
    // fewer than there are, so that something is left out
    let timeline = Timeline::new(&captures, 7);
    let (summary, timeline) = (&summary, &timeline);
    let page = ViewPage::new("<a>", summary, timeline, [&by_source, &by_op_name]);
    let mut html = Vec::new();
    write_view(&mut html, &page).unwrap();
    let html = String::from_utf8(html).unwrap();
    assert_eq!(html.matches("<script").count(), 2);
    let data = html.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    let drawn: usize =
        data["lanes"].as_array().unwrap().iter().map(|lane| lane["events"].as_array().unwrap().len()).sum();
    assert!(drawn <= 7 * 4 && drawn as u64 == timeline.drawn * 4);

    let found = collectives(&captures, &files, with_warm_up);
    for clocks in [Clocks::Recorded, Clocks::Device] {
        let metrics = collective_metrics(&found, clocks);
        let waits = straggler_waits(&found, &metrics.alignment);
        let mut svg = Vec::new();
        if write_collectives_plot(&mut svg, &found, &metrics, &waits).unwrap() {
            assert!(!String::from_utf8(svg).unwrap().contains("NaN"));
        }
    }
    let mut svg = Vec::new();
    if write_spread_plot(&mut svg, summary).unwrap() {
        let svg = String::from_utf8(svg).unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("\"inf"));
    }
});
