//! What a host did beside running programs: transfers and compilations, by the names of its trace events.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use crate::profile::interval::{Interval, merge};
use crate::profile::{EventChunk, Line, XSpace};

use super::runtime::ns;

/// Events of one name, a part of it inside another event of the same kind not counted again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostWork {
    /// The host, by the file's name.
    pub host: String,
    /// The events' name.
    pub name: String,
    /// Events.
    pub count: u64,
    /// Time that they cover, each thread for itself.
    pub time_ns: f64,
    /// How many began while programs were being run: after the first execution that counts began, before the last one ended.
    pub during_execution: u64,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Transfer,
    Compilation,
}

/// Parts of the names of XLA's and JAX's events for data that moves between host and device.
const TRANSFERS: [&str; 9] = [
    "Memcpy",
    "TransferTo",
    "TransferFrom",
    "TransferLiteral",
    "BufferFromHost",
    "CopyToDevice",
    "CopyToMemorySpace",
    "CopyToHost",
    "ToLiteral",
];

fn kind(name: &str) -> Option<Kind> {
    // `$file:line function` is a frame of Python, `end: ` a mark
    if name.starts_with('$') || name.starts_with("end: ") {
        return None;
    }
    let is_compilation = name.starts_with("backend_compile")
        || name.starts_with("XlaCompile")
        || name.split_once("Client::").is_some_and(|(_, method)| method.starts_with("Compile"));
    if is_compilation {
        return Some(Kind::Compilation);
    }
    TRANSFERS.iter().any(|part| name.contains(part)).then_some(Kind::Transfer)
}

/// The transfers and the compilations of a capture, the longest first; `window` is when its programs ran.
pub(super) fn host_work(space: &XSpace, host: &str, window: Option<Interval>) -> [Vec<HostWork>; 2] {
    let mut totals: [BTreeMap<String, HostWork>; 2] = Default::default();
    for plane in space.planes() {
        let wanted: BTreeMap<i64, (Kind, String)> = plane
            .all_event_metadata()
            .filter_map(|metadata| {
                let name = String::from_utf8_lossy(metadata.name());
                Some((metadata.id(), (kind(&name)?, name.into_owned())))
            })
            .collect();
        if wanted.is_empty() {
            continue;
        }
        for line in plane.lines() {
            let chunks: Vec<EventChunk<'_>> = line.chunks().collect();
            let found: Vec<(i64, Interval)> =
                chunks.par_iter().flat_map_iter(|chunk| times(&line, chunk, &wanted)).collect();
            for (place, kind) in [Kind::Transfer, Kind::Compilation].into_iter().enumerate() {
                let of_kind = found.iter().filter(|(id, _)| wanted.get(id).is_some_and(|(one, _)| *one == kind));
                let of_kind: Vec<(i64, Interval)> = of_kind.copied().collect();
                for (id, time) in outermost(of_kind) {
                    let Some((_, name)) = wanted.get(&id) else { continue };
                    let Some(totals) = totals.get_mut(place) else { continue };
                    let work = totals.entry(name.clone()).or_insert_with(|| HostWork {
                        host: host.to_owned(),
                        name: name.clone(),
                        count: 0,
                        time_ns: 0.0,
                        during_execution: 0,
                    });
                    work.count += 1;
                    work.time_ns += ns(time.length_ps());
                    let is_within = |window: Interval| (window.start_ps..window.end_ps).contains(&time.start_ps);
                    work.during_execution += u64::from(window.is_some_and(is_within));
                }
            }
        }
    }
    totals.map(|totals| {
        let mut list: Vec<HostWork> = totals.into_values().collect();
        list.sort_by(|one, other| other.time_ns.total_cmp(&one.time_ns));
        list
    })
}

fn times<'a>(line: &Line<'a>, chunk: &EventChunk<'a>, wanted: &BTreeMap<i64, (Kind, String)>) -> Vec<(i64, Interval)> {
    let events = chunk.events().filter_map(Result::ok).filter(|event| wanted.contains_key(&event.metadata_id));
    let times = events.filter_map(|event| {
        let start_ps = line.start_ps(&event)?;
        let end_ps = start_ps.checked_add(event.duration_ps).filter(|end| *end >= start_ps)?;
        Some((event.metadata_id, Interval { start_ps, end_ps }))
    });
    times.collect()
}

/// Those that no other one of the list has in it; of two that overlap the later one's rest.
fn outermost(mut events: Vec<(i64, Interval)>) -> Vec<(i64, Interval)> {
    events.sort_by_key(|(_, time)| (time.start_ps, std::cmp::Reverse(time.end_ps)));
    let mut covered = i64::MIN;
    events.retain_mut(|(_, time)| {
        let is_inside = time.end_ps <= covered && time.start_ps < covered;
        time.start_ps = time.start_ps.max(covered);
        covered = covered.max(time.end_ps);
        !is_inside
    });
    events
}

/// When programs ran: from the first start to the last end.
pub(super) fn window(mut spans: Vec<Interval>) -> Option<Interval> {
    merge(&mut spans);
    Some(Interval { start_ps: spans.first()?.start_ps, end_ps: spans.last()?.end_ps })
}
