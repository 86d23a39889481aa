//! Compilation in captures of XLA's own profiler: the host's events.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::profile::interval::{Coverage, Interval};
use crate::profile::{Event, Line, Plane, StatValue, XSpace};

use super::forest::CompileRange;
use super::phase::is_compilation;

/// The events of the host within compilations. Events of Python code and threads that run thunks are left out.
pub(super) fn space_compile_ranges(space: &XSpace) -> Vec<CompileRange> {
    let mut ranges = Vec::new();
    let mut thread = 0;
    for plane in space.planes().filter(|plane| plane.name().starts_with("/host:CPU")) {
        let mut compilations = Vec::new();
        let wanted =
            plane.all_event_metadata().filter(|metadata| is_compilation(&String::from_utf8_lossy(metadata.name())));
        let wanted: Vec<i64> = wanted.map(|metadata| metadata.id()).collect();
        if wanted.is_empty() {
            continue;
        }
        for line in plane.lines() {
            let events = line.events().filter_map(Result::ok).filter(|event| wanted.contains(&event.metadata_id));
            compilations.extend(events.filter_map(|event| time(&line, &event)));
        }
        let within = Coverage::new(compilations);
        for line in plane.lines() {
            add_line(plane, line, &within, thread, &mut ranges);
            thread += 1;
        }
    }
    ranges
}

fn time(line: &Line<'_>, event: &Event<'_>) -> Option<Interval> {
    let start_ps = line.start_ps(event)?;
    let end_ps = start_ps.checked_add(event.duration_ps)?;
    (end_ps > start_ps).then_some(Interval { start_ps, end_ps })
}

fn add_line(plane: Plane<'_>, line: Line<'_>, within: &Coverage, thread: u64, ranges: &mut Vec<CompileRange>) {
    let stat_named = |wanted: &[u8]| plane.all_stat_names().find(|(_, name)| *name == wanted).map(|(id, _)| id);
    let (operation, module) = (stat_named(b"hlo_op"), stat_named(b"module"));
    let mut own: Vec<CompileRange> = Vec::new();
    for event in line.events().filter_map(Result::ok) {
        let Some(time) = time(&line, &event) else { continue };
        if within.of(time) < time.length_ps() {
            continue;
        }
        let mut of_module = None;
        for stat in event.stats().filter_map(Result::ok) {
            if Some(stat.metadata_id) == operation {
                // this thread runs programs
                return;
            }
            if Some(stat.metadata_id) == module && !matches!(stat.value, StatValue::Bytes(_)) {
                of_module = plane.stat_text(stat.value).map(Arc::from);
            }
        }
        let Some(name) = plane.event_metadata(event.metadata_id).map(|metadata| metadata.name()) else { continue };
        // Python's own functions are written `$file:line name`
        if name.starts_with(b"$") || name.starts_with(b"end: ") {
            continue;
        }
        let name = String::from_utf8_lossy(name).into();
        let Interval { start_ps, end_ps } = time;
        own.push(CompileRange { name, module: of_module, thread, start_ps, end_ps, parent: None });
    }
    own.sort_by_key(|range| (range.start_ps, Reverse(range.end_ps)));
    let first = ranges.len();
    let mut open: Vec<(usize, i64)> = Vec::new();
    for (place, mut range) in own.into_iter().enumerate() {
        while open.last().is_some_and(|(_, end_ps)| *end_ps < range.end_ps) {
            open.pop();
        }
        range.parent = open.last().map(|(place, _)| first + place);
        open.push((place, range.end_ps));
        ranges.push(range);
    }
}
