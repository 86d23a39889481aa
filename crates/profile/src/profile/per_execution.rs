//! [`Profiler`] with a sample for each execution: each module execution is a sample, and so is each other event.

use std::cmp::Reverse;

use super::ejkernel::EventNames;
use super::execution::DeviceTime;
use super::interval::Interval;
use super::plane_view::{MODULE_LINES, OPERATION_LINES};
use super::profiler::{Profiler, Timings};
use super::space::{Line, Plane};

/// Start, name, device and time in picoseconds.
type Sample = (i64, String, Option<i64>, u64);

/// The samples of a plane's executions, and on request those of its other events.
pub(super) fn timings(profiler: &Profiler, plane: Plane<'_>, time: &DeviceTime, with_others: bool) -> Timings {
    let mut all: Vec<Sample> = Vec::new();
    let of_plane = time.executions.iter().filter(|execution| execution.plane == plane.number());
    let is_of_modules = |line: &Line<'_>| MODULE_LINES.contains(&&*line.name());
    let is_of_operations = |line: &Line<'_>| OPERATION_LINES.contains(&&*line.name());
    for execution in of_plane {
        let program = execution.program_id.map_or_else(|| "None".to_owned(), |id| id.to_string());
        let name = format!("{}({program}-None)", time.name(execution.module));
        if name.starts_with(&profiler.prefix_filter) {
            let ps = match profiler.event_filter_regex {
                Some(_) => execution.busy_ps,
                None => execution.time_ps(&execution.layout.metric()),
            };
            all.push((execution.start_ps, name, execution.device, ps));
        }
    }
    let wanted = |name: &[u8]| name.starts_with(profiler.prefix_filter.as_bytes()) && !name.starts_with(b"end: ");
    if with_others && plane.all_event_metadata().any(|metadata| wanted(metadata.name())) {
        for line in plane.lines() {
            if !is_of_modules(&line) && !is_of_operations(&line) {
                other_events(profiler, plane, line, &wanted, &mut all);
            }
        }
    }
    all.sort();
    let min_duration = u64::try_from(profiler.min_duration_ps()).unwrap_or(0);
    let mut timings = Timings::default();
    let mut taken = 0;
    for (_, name, device, ps) in all {
        if ps < min_duration {
            timings.dropped.too_short += 1;
        } else if taken >= profiler.max_events_per_profile.unwrap_or(usize::MAX) {
            timings.dropped.beyond_cap += 1;
        } else {
            taken += 1;
            let seconds = ps as f64 / 1e12;
            timings.by_device.entry((name.clone(), device)).or_default().push(seconds);
            timings.samples.entry(name).or_default().push(seconds);
        }
    }
    timings
}

/// An event of a line in progress, and how much of it matching events inside it cover.
struct Open {
    time: Interval,
    name: Option<u32>,
    matches: bool,
    covered_ps: u64,
    covered_until: i64,
}

impl Open {
    fn take(&mut self, inner: &Open) {
        if inner.matches {
            let start_ps = inner.time.start_ps.max(self.covered_until);
            self.covered_ps += Interval { start_ps, ..inner.time }.length_ps();
            self.covered_until = self.covered_until.max(inner.time.end_ps);
        } else {
            self.covered_ps += inner.covered_ps;
            self.covered_until = self.covered_until.max(inner.covered_until);
        }
    }
}

/// The events of a line that belong to no module. With a regex an event's time is that of the matching events nested in
/// it on the same line; two that overlap without nesting are not parent and child.
fn other_events(
    profiler: &Profiler,
    plane: Plane<'_>,
    line: Line<'_>,
    wanted: &dyn Fn(&[u8]) -> bool,
    all: &mut Vec<Sample>,
) {
    let mut names = EventNames::new(plane);
    let module_stats: Vec<i64> =
        plane.all_stat_names().filter(|(_, name)| *name == b"hlo_module").map(|(id, _)| id).collect();
    let regex = profiler.event_filter_regex.as_ref();
    let mut events: Vec<Open> = Vec::new();
    for event in line.events().filter_map(Result::ok) {
        let name = plane.event_metadata(event.metadata_id).map_or(&b""[..], |metadata| metadata.name());
        let in_module = || event.stats().filter_map(Result::ok).any(|stat| module_stats.contains(&stat.metadata_id));
        let is_wanted = wanted(name) && !in_module();
        let matches = regex.is_some_and(|regex| regex.is_match(name));
        if !is_wanted && !matches {
            continue;
        }
        let (Some(start_ps), 0..) = (line.start_ps(&event), event.duration_ps) else { continue };
        let time = Interval { start_ps, end_ps: start_ps.saturating_add(event.duration_ps) };
        let name = is_wanted.then(|| names.number(&event));
        events.push(Open { time, name, matches, covered_ps: 0, covered_until: i64::MIN });
    }
    let mut give = |event: &Open| {
        if let Some(name) = event.name.and_then(|name| names.list.get(name as usize)) {
            let ps = if regex.is_some() { event.covered_ps } else { event.time.length_ps() };
            all.push((event.time.start_ps, name.clone(), None, ps));
        }
    };
    if regex.is_none() {
        events.iter().for_each(give);
        return;
    }
    events.sort_by_key(|event| (event.time.start_ps, Reverse(event.time.end_ps)));
    let mut open: Vec<Open> = Vec::new();
    let mut close = |open: &mut Vec<Open>| {
        if let Some(event) = open.pop() {
            give(&event);
            // an event that was closed by an overlapping one still lies within its parent
            if let Some(parent) = open.last_mut() {
                parent.take(&event);
            }
        }
    };
    for event in events {
        while open.last().is_some_and(|top| top.time.end_ps < event.time.end_ps) {
            close(&mut open);
        }
        open.push(event);
    }
    while !open.is_empty() {
        close(&mut open);
    }
}
