//! A host's work besides running programs: transfers and compilations, by the names of its trace events.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use crate::profile::interval::{Interval, merge};
use crate::profile::{EventChunk, Line, XSpace};

use super::runtime::ns;

/// Events of one name; nested parts of the same kind are not counted twice.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HostWork {
    /// The host, by the file's name.
    pub host: String,
    /// The events' name.
    pub name: String,
    /// Events.
    pub count: u64,
    /// Time that they cover, per thread.
    pub time_ns: f64,
    /// How many began while programs ran: between the start of the first counted execution and the end of the last.
    pub during_execution: u64,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Transfer,
    Compilation,
}

/// Parts of the names of kernels and copies by which a GPU's runtime copies memory.
const COPIES: [&str; 6] =
    ["Memcpy", "__amd_rocclr_copy", "CopyDeviceToDevice", "CopyDeviceToHost", "CopyHostToDevice", "MEMORY_COPY_"];
/// The same for filling memory.
const FILLS: [&str; 3] = ["Memset", "memset", "__amd_rocclr_fill"];
/// Parts of the names of XLA's and JAX's events for data that moves between host and device.
const TRANSFERS: [&str; 8] = [
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
    let is_transfer = runtime_work(name).is_some() || TRANSFERS.iter().any(|part| name.contains(part));
    is_transfer.then_some(Kind::Transfer)
}

/// What a GPU's runtime does in an event of this name: `memcpy` or `memset`.
pub(super) fn runtime_work(name: &str) -> Option<&'static str> {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let copies = has(&COPIES).then_some("memcpy");
    copies.or_else(|| has(&FILLS).then_some("memset"))
}

/// Chunks whose events are held at once.
const CHUNKS_AT_ONCE: usize = 64;

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
            let before = totals.clone();
            let mut work = Work { host, window, wanted: &wanted, totals: &mut totals, last: [None; 2] };
            // if a later event began earlier, the whole line is sorted
            if !work.add_line(&line) {
                totals = before;
                let mut work = Work { host, window, wanted: &wanted, totals: &mut totals, last: [None; 2] };
                work.add_sorted(&line);
            }
        }
    }
    totals.map(|totals| {
        let mut list: Vec<HostWork> = totals.into_values().collect();
        list.sort_by(|one, other| other.time_ns.total_cmp(&one.time_ns));
        list
    })
}

/// Totals of a line's events; nested events count once, and of overlapping ones the later counts only its rest.
struct Work<'t> {
    host: &'t str,
    window: Option<Interval>,
    wanted: &'t BTreeMap<i64, (Kind, String)>,
    totals: &'t mut [BTreeMap<String, HostWork>; 2],
    /// For each kind: the last one's position in the order, and how far they cover the line.
    last: [Option<(Order, i64)>; 2],
}

impl Work<'_> {
    /// Adds a line's events as they arrive; returns whether they arrived by start, the longest first.
    fn add_line(&mut self, line: &Line<'_>) -> bool {
        let chunks: Vec<EventChunk<'_>> = line.chunks().collect();
        chunks.chunks(CHUNKS_AT_ONCE).all(|chunks| {
            let found: Vec<Vec<(i64, Interval)>> =
                chunks.par_iter().map(|chunk| times(line, chunk, self.wanted)).collect();
            found.into_iter().flatten().all(|(id, time)| self.add(id, time))
        })
    }

    fn add_sorted(&mut self, line: &Line<'_>) {
        let chunks: Vec<EventChunk<'_>> = line.chunks().collect();
        let mut found: Vec<(i64, Interval)> =
            chunks.par_iter().flat_map_iter(|chunk| times(line, chunk, self.wanted)).collect();
        found.sort_by_key(|(_, time)| order(time));
        found.into_iter().for_each(|(id, time)| _ = self.add(id, time));
    }

    fn add(&mut self, id: i64, time: Interval) -> bool {
        let Some((kind, name)) = self.wanted.get(&id) else { return true };
        let place = *kind as usize;
        let (Some(last), Some(totals)) = (self.last.get_mut(place), self.totals.get_mut(place)) else { return true };
        let (before, covered) = last.unwrap_or((order(&time), i64::MIN));
        *last = Some((order(&time), covered.max(time.end_ps)));
        if order(&time) < before {
            return false;
        }
        if time.end_ps <= covered && time.start_ps < covered {
            return true;
        }
        let time = Interval { start_ps: time.start_ps.max(covered), ..time };
        if !totals.contains_key(name) {
            let (host, name) = (self.host.to_owned(), name.clone());
            let work = HostWork { host, name: name.clone(), count: 0, time_ns: 0.0, during_execution: 0 };
            totals.insert(name, work);
        }
        if let Some(work) = totals.get_mut(name) {
            work.count += 1;
            work.time_ns += ns(time.length_ps());
            let is_within = |window: Interval| (window.start_ps..window.end_ps).contains(&time.start_ps);
            work.during_execution += u64::from(self.window.is_some_and(is_within));
        }
        true
    }
}

/// By start, the longest first.
type Order = (i64, Reverse<i64>);

fn order(time: &Interval) -> Order {
    (time.start_ps, Reverse(time.end_ps))
}

fn times<'a>(line: &Line<'a>, chunk: &EventChunk<'a>, wanted: &BTreeMap<i64, (Kind, String)>) -> Vec<(i64, Interval)> {
    let events = chunk.events_of(|id| wanted.contains_key(&id)).filter_map(Result::ok);
    let times = events.filter_map(|event| {
        let start_ps = line.start_ps(&event)?;
        let end_ps = start_ps.checked_add(event.duration_ps).filter(|end| *end >= start_ps)?;
        Some((event.metadata_id, Interval { start_ps, end_ps }))
    });
    times.collect()
}

/// When programs ran: from the first start to the last end.
pub(super) fn window(mut spans: Vec<Interval>) -> Option<Interval> {
    merge(&mut spans);
    Some(Interval { start_ps: spans.first()?.start_ps, end_ps: spans.last()?.end_ps })
}
