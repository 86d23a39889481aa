//! Traverses captures: planes, lines, events, in file order.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::Path;

use crate::analysis::Capture;
use crate::profile::{Event, Line};
use crate::setters;

use super::arguments::collect;
use super::chrome::Chrome;
use super::file::{TraceFileError, write_file};
use super::lanes::Lanes;
use super::perfetto::Perfetto;
use super::plane_names::{Argument, PlaneNames, cut};
use super::sink::{Sink, Track};

/// Number of events sorted together if a line's events are not in order of start.
const BATCH: usize = 1 << 18;

/// Bytes passed on at a time.
const PART_BYTES: usize = 1 << 20;

/// Times from here on (2001) are calendar times; earlier ones are of a clock that started later.
const EPOCH_NS: u64 = 1_000_000_000_000_000_000;

/// Times beyond this are damage: 26 days.
const MAX_PS: i64 = 1 << 61;

/// The format of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceFormat {
    /// Perfetto's protobuf, for <https://ui.perfetto.dev> and the trace processor.
    Perfetto,
    /// Chrome's JSON; compressed if the file's name ends in `.gz`.
    Chrome,
}

impl TraceFormat {
    /// The format by file name: Perfetto's for `.pftrace` and `.perfetto-trace`, Chrome's for `.json` and `.json.gz`.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy();
        let ends = |endings: [&str; 2]| endings.iter().any(|ending| name.ends_with(ending));
        let is_perfetto = ends([".pftrace", ".perfetto-trace"]);
        is_perfetto.then_some(Self::Perfetto).or(ends([".json", ".json.gz"]).then_some(Self::Chrome))
    }
}

/// How a trace is written.
#[derive(Debug, Clone, Copy)]
pub struct TraceOptions {
    /// In which format.
    pub format: TraceFormat,
    /// Whether stats become arguments of the slices.
    pub with_stats: bool,
}

setters!(TraceOptions { with_stats: bool });

impl TraceOptions {
    /// Slices without arguments, in a format.
    pub fn new(format: TraceFormat) -> Self {
        Self { format, with_stats: false }
    }
}

/// Counts of what was written and what was left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traced {
    /// Processes: planes with events.
    pub processes: u64,
    /// Threads: lines with events.
    pub threads: u64,
    /// Tracks that lines got beside their thread's, for events that overlap without nesting.
    pub extra_tracks: u64,
    /// Slices: events.
    pub slices: u64,
    /// Events whose metadata is missing: slices without a name.
    pub nameless: u64,
    /// Slices that hold more stats than are written.
    pub cut_stats: u64,
    /// Events left out: they cannot be decoded.
    pub malformed: u64,
    /// Events left out: they have a negative duration.
    pub negative: u64,
    /// Events left out: they begin before the capture's first line, or are 26 days or more from it.
    pub out_of_range: u64,
    /// Events left out: they represent several occurrences and have no time.
    pub aggregated: u64,
    /// Events left out: more than a thousand tracks of their line are taken.
    pub crowded: u64,
}

impl Traced {
    /// Notes for the reader of the trace, one line each.
    pub fn notes(&self) -> Vec<String> {
        let notes = [
            (self.extra_tracks, "extra tracks for events that overlap others of their line without nesting"),
            (self.nameless, "events without metadata, called `(no metadata)`"),
            (self.cut_stats, "slices with more stats than are written"),
            (self.malformed, "events left out that cannot be decoded"),
            (self.negative, "events left out that have a negative duration"),
            (self.out_of_range, "events left out that are before the capture, or 26 days and more away from it"),
            (self.aggregated, "events left out that represent several occurrences and have no time"),
            (self.crowded, "events left out of lines with more than a thousand at once"),
        ];
        notes.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}")).collect()
    }
}

/// Writes captures as one trace. Times count from the earliest line of all.
///
/// # Errors
/// If `out` fails.
pub fn write_trace(captures: &[Capture], options: TraceOptions, out: &mut dyn Write) -> io::Result<Traced> {
    match options.format {
        TraceFormat::Perfetto => write::<Perfetto>(captures, options, out),
        TraceFormat::Chrome => write::<Chrome>(captures, options, out),
    }
}

/// Writes captures as one trace into a file, replacing an existing one.
///
/// # Errors
/// If the file cannot be written; then the old one is intact.
pub fn write_trace_file(captures: &[Capture], options: TraceOptions, path: &Path) -> Result<Traced, TraceFileError> {
    let is_gzip = options.format == TraceFormat::Chrome && path.extension().is_some_and(|extension| extension == "gz");
    write_file(path, is_gzip, |out| write_trace(captures, options, out))
}

fn write<S: Sink>(captures: &[Capture], options: TraceOptions, out: &mut dyn Write) -> io::Result<Traced> {
    let (base_ns, late) = alignment(captures);
    let mut export = Export { sink: S::default(), out, options, traced: Traced::default(), last_id: 0 };
    export.sink.start(u64::try_from(base_ns).ok().filter(|ns| *ns >= EPOCH_NS));
    for (capture, late_ps) in captures.iter().zip(late) {
        for plane in capture.timeline().planes() {
            if plane.lines().all(|line| line.event_count() == 0) {
                continue;
            }
            let name = cut(plane.name());
            let name = match captures {
                [_] => name,
                _ => Cow::Owned(format!("{}: {name}", capture.host())),
            };
            let (process, names) = (export.next_id(), PlaneNames::new(plane));
            export.traced.processes += 1;
            export.sink.plane(process, &name, &names);
            for line in plane.lines().filter(|line| line.event_count() > 0) {
                export.line(process, &names, &line, late_ps)?;
            }
        }
    }
    export.sink.finish();
    export.hand_on(0)?;
    Ok(export.traced)
}

/// When the first capture with events begins, in nanoseconds of their clock, and how much later each one's
/// [`XSpace::base_ns`](crate::profile::XSpace::base_ns) is, in picoseconds; `None` for one 26 days or more from it.
pub fn alignment(captures: &[Capture]) -> (i128, Vec<Option<i64>>) {
    let zeros = zeros(captures);
    let begins = |(capture, zero): (&Capture, &i128)| zero + i128::from(capture.timeline().base_ns());
    let with_events = captures.iter().zip(&zeros).filter(|(capture, _)| capture.timeline().event_count() > 0);
    let base_ns = with_events.map(begins).min().unwrap_or(0);
    let late = |pair| i64::try_from((begins(pair) - base_ns) * 1000).ok().filter(|ps| *ps <= MAX_PS);
    (base_ns, captures.iter().zip(&zeros).map(late).collect())
}

/// The origin of each capture's times, in nanoseconds. If one of several captures does not state it, all are aligned as
/// they are.
fn zeros(captures: &[Capture]) -> Vec<i128> {
    let all: Option<Vec<i128>> = captures.iter().map(|capture| capture.timeline().epoch_ns().map(i128::from)).collect();
    all.unwrap_or_else(|| vec![0; captures.len()])
}

struct Export<'o, S> {
    sink: S,
    out: &'o mut dyn Write,
    options: TraceOptions,
    traced: Traced,
    last_id: u32,
}

/// An event with its time after the trace's beginning.
struct Timed<'a> {
    start_ps: i64,
    end_ps: i64,
    event: Event<'a>,
}

impl<S: Sink> Export<'_, S> {
    fn next_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Writes the pending bytes, if they exceed a number.
    fn hand_on(&mut self, least: usize) -> io::Result<()> {
        let written = self.sink.written();
        if written.len() > least {
            self.out.write_all(written)?;
            written.clear();
        }
        Ok(())
    }

    fn line<'a>(
        &mut self,
        process: u32,
        names: &PlaneNames<'a>,
        line: &Line<'a>,
        late_ps: Option<i64>,
    ) -> io::Result<()> {
        let name = match (line.display_name(), line.name()) {
            (shown, _) if !shown.is_empty() => cut(shown),
            (_, name) if !name.is_empty() => cut(name),
            _ => Cow::Owned(format!("line {}", line.id())),
        };
        let mut row = Row { process, name, tracks: Vec::new(), lanes: Lanes::default(), arguments: Vec::new() };
        row.tracks.push(Track { id: self.next_id(), is_extra: false });
        if let Some(track) = row.tracks.first() {
            self.sink.line(process, *track, &row.name);
        }
        self.traced.threads += 1;
        let mut batch: Vec<Timed<'a>> = Vec::new();
        for event in line.events() {
            let Ok(event) = event else {
                self.traced.malformed += 1;
                continue;
            };
            batch.extend(self.timed(line, event, late_ps));
            if batch.len() == BATCH {
                self.batch(names, &mut row, &mut batch)?;
            }
        }
        self.batch(names, &mut row, &mut batch)?;
        let Row { lanes, tracks, .. } = row;
        lanes.finish(|lane, end_ps| {
            if let Some(track) = tracks.get(lane) {
                self.sink.slice_end(*track, nanoseconds(end_ps));
            }
        });
        self.hand_on(PART_BYTES)
    }

    #[inline]
    fn timed<'a>(&mut self, line: &Line<'a>, event: Event<'a>, late_ps: Option<i64>) -> Option<Timed<'a>> {
        if event.num_occurrences.is_some() {
            self.traced.aggregated += 1;
            return None;
        }
        if event.duration_ps < 0 {
            self.traced.negative += 1;
            return None;
        }
        let start = line.start_ps(&event).and_then(|start| start.checked_add(late_ps?));
        let times = start.and_then(|start| Some((start, start.checked_add(event.duration_ps)?)));
        match times {
            Some((start_ps, end_ps)) if start_ps >= 0 && end_ps <= MAX_PS => Some(Timed { start_ps, end_ps, event }),
            _ => {
                self.traced.out_of_range += 1;
                None
            }
        }
    }

    /// Writes events by their starts, and of those that start together the longest first.
    fn batch<'a>(&mut self, names: &PlaneNames<'a>, row: &mut Row<'a>, batch: &mut Vec<Timed<'a>>) -> io::Result<()> {
        let order = |timed: &Timed<'_>| (timed.start_ps, Reverse(timed.end_ps));
        if !batch.is_sorted_by_key(order) {
            batch.sort_by_key(order);
        }
        for timed in batch.drain(..) {
            self.slice(names, row, &timed);
            self.hand_on(PART_BYTES)?;
        }
        Ok(())
    }

    #[inline]
    fn slice<'a>(&mut self, names: &PlaneNames<'a>, row: &mut Row<'a>, timed: &Timed<'a>) {
        let Row { process, name, tracks, lanes, arguments } = row;
        let lane = lanes.place(timed.start_ps, timed.end_ps, |lane, end_ps| {
            if let Some(track) = tracks.get(lane) {
                self.sink.slice_end(*track, nanoseconds(end_ps));
            }
        });
        let Some(lane) = lane else {
            self.traced.crowded += 1;
            return;
        };
        if lane == tracks.len()
            && let Some(&first) = tracks.first()
        {
            let track = Track { id: self.next_id(), is_extra: true };
            tracks.push(track);
            self.traced.extra_tracks += 1;
            self.sink.extra_track(*process, first, track, &format!("{name}, overlapping {lane}"));
        }
        let Some(&track) = tracks.get(lane) else { return };
        let (place, is_known) = names.place(timed.event.metadata_id);
        self.traced.nameless += u64::from(!is_known);
        if self.options.with_stats {
            self.traced.cut_stats += u64::from(collect(names, place, &timed.event, arguments));
        }
        self.traced.slices += 1;
        let times = (nanoseconds(timed.start_ps), nanoseconds(timed.end_ps));
        self.sink.slice(names, track, place, times, arguments);
    }
}

#[inline]
fn nanoseconds(ps: i64) -> u64 {
    ps.max(0) as u64 / 1000
}

/// One line while it is written.
struct Row<'a> {
    process: u32,
    name: Cow<'a, str>,
    tracks: Vec<Track>,
    lanes: Lanes,
    arguments: Vec<Argument<'a>>,
}
