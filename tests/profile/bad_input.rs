//! Damaged profiles give an error or counted findings, and never a panic.

#![allow(clippy::regex_creation_in_loops, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use crate::support::xspace::*;
use autotune_lowered::profile::{Finding, Profiler, Semantics, StatValue, XSpace, executions};
use proptest::prelude::*;

fn trivial() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane/trivial.xplane.pb");
    std::fs::read(path).unwrap()
}

/// Every reader of profiles; returns their findings about damage.
fn read(bytes: Vec<u8>) -> Option<Vec<Finding>> {
    let space = XSpace::from_bytes(bytes).ok()?;
    let time = executions(&space);
    let regex = regex::bytes::Regex::new("e").unwrap();
    for plane in space.planes() {
        for event in plane.lines().flat_map(|line| line.events()).flatten() {
            for stat in event.stats().flatten() {
                let text = plane.stat_text(stat.value);
                assert!(text.is_some() || !matches!(stat.value, StatValue::Str(_)));
            }
        }
        for semantics in [Semantics::Ejkernel, Semantics::PerExecution] {
            for regex in [None, Some(regex.clone())] {
                let mut profiler = Profiler::new(semantics);
                profiler.prefix_filter.clear();
                profiler.event_filter_regex = regex;
                let timings = profiler.timings(plane, &time);
                assert!(timings.samples.values().flatten().all(|seconds| *seconds >= 0.0));
            }
        }
    }
    for execution in &time.executions {
        assert!(
            execution.start_ps <= execution.end_ps && execution.busy_ps <= execution.span_ps.max(execution.busy_ps)
        );
    }
    Some(time.findings)
}

#[test]
fn every_cut_is_an_error_or_shorter() {
    let whole = trivial();
    let mut errors = 0;
    for end in 0..whole.len() {
        errors += usize::from(XSpace::from_bytes(whole[..end].to_vec()).is_err());
    }
    (0..whole.len()).step_by(97).for_each(|end| drop(read(whole[..end].to_vec())));
    // a cut between two top-level fields leaves a complete message
    assert!(errors + 10 > whole.len(), "{errors} of {}", whole.len());
}

#[test]
fn single_bits_flipped() {
    let whole = trivial();
    for byte in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[byte] ^= 1 << (byte / 7 % 8);
        read(bytes);
    }
}

#[test]
fn ids_in_loops_and_values_at_their_ends() {
    let mut plane = PlaneBuilder::new("/host:CPU");
    // a reference to the stat's own name, and one whose name looks like another reference
    let event = plane.event(
        ("a", ""),
        i64::MAX,
        i64::MAX,
        &[("hlo_op", Is::Ref("hlo_op")), ("hlo_module", Is::Ref("hlo_module"))],
    );
    let early = plane.event(("a", ""), i64::MIN, 5, &[("hlo_op", Is::Text("x")), ("hlo_module", Is::Text("m"))]);
    let negative = plane.event(("a", ""), 5, -1, &[("hlo_op", Is::Text("x")), ("hlo_module", Is::Text("m"))]);
    plane.line("l", 0, &[event, early, negative]);
    plane.line("far", i64::MIN, &[]);
    let findings = read(space(&[plane]).0).unwrap();
    let counted = |wanted: &dyn Fn(&Finding) -> bool| findings.iter().any(wanted);
    assert!(counted(&|one| matches!(one, Finding::TimeOutOfRange { events: 2, .. })), "{findings:?}");
    assert!(counted(&|one| matches!(one, Finding::NegativeDurations { events: 1, .. })), "{findings:?}");
    assert!(counted(&|one| matches!(one, Finding::ClockBackwards { events: 1, .. })), "{findings:?}");
}

#[test]
fn lengths_and_ids_beyond_everything() {
    // a plane of 4 GiB, a line of 2^63 bytes, an event of 2^64 - 1
    for bytes in [&b"\x0a\xff\xff\xff\xff\x0f"[..], b"\x0a\x0b\x1a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"] {
        assert!(XSpace::from_bytes(bytes.to_vec()).is_err());
    }
    let line = Message(b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".to_vec());
    assert!(XSpace::from_bytes(Message::default().message(1, &Message::default().message(3, &line)).0).is_err());
    // metadata ids at both ends take no memory
    let mut plane = Message::default().bytes(2, "/host:CPU");
    for id in [i64::MAX, i64::MIN, -1, 1 << 40] {
        plane = plane.message(5, &Message::default().number(1, id).message(2, &Message::default().bytes(2, "run_id")));
    }
    plane = plane.message(3, &Message::default().message(4, &Message::default().number(1, 1)));
    assert!(read(Message::default().message(1, &plane).0).is_some());
    // names that are not text
    let named = Message::default().bytes(2, b"\xff\xfe");
    let space = XSpace::from_bytes(Message::default().message(1, &named).0).unwrap();
    assert_eq!(space.planes().next().unwrap().name(), "\u{fffd}\u{fffd}");
}

#[test]
fn a_million_empty_events_take_little() {
    let line = Message(b"\x22\x00".repeat(1_000_000));
    let plane = Message::default().bytes(2, "/host:CPU").message(3, &line);
    let space = XSpace::from_bytes(Message::default().message(1, &plane).0).unwrap();
    assert_eq!(space.event_count(), 1_000_000);
    assert!(executions(&space).executions.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(bytes);
    }

    #[test]
    fn mutated_captures(changes in prop::collection::vec((0_usize..9192, any::<u8>()), 1..20)) {
        let mut bytes = trivial();
        for (place, value) in changes {
            bytes[place] = value;
        }
        read(bytes);
    }
}
