//! Device time of module executions.

use rayon::prelude::*;
use regex::bytes::Regex;
use serde::Serialize;

use super::cut::cut;
use super::finding::Finding;
use super::gather::{Gathered, Key, Origin, Record, Run, gather};
use super::interval::{Coverage, Interval, merge, own_time};
use super::names::{NameId, Names};
use super::plane_view::{Layout, PlaneView};
use super::sanity;
use super::space::XSpace;

/// Every module execution of a capture, and what to know of the capture before it is believed.
#[derive(Debug)]
pub struct DeviceTime {
    /// By plane, device and start.
    pub executions: Vec<Execution>,
    /// What could mislead.
    pub findings: Vec<Finding>,
    names: Vec<Box<str>>,
}

/// One execution of a module on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Execution {
    /// Number of the plane in its file.
    pub plane: usize,
    /// The device: the number in the plane's name, or the events' `device_ordinal`.
    pub device: Option<i64>,
    /// How the execution was told.
    pub layout: Layout,
    /// The module's name.
    #[serde(skip)]
    pub module: NameId,
    /// The program's id; unique in its process.
    pub program_id: Option<i64>,
    /// The launch's id; devices that run one launch share it.
    pub run_id: Option<i64>,
    /// Its place among the executions of its device, by start.
    pub order: usize,
    /// Operation events.
    pub events: u64,
    /// Start, in picoseconds after [`XSpace::base_ns`].
    pub start_ps: i64,
    /// End, likewise.
    pub end_ps: i64,
    /// Time from the first operation's start to the last one's end; of a module line, the module event's duration.
    pub span_ps: u64,
    /// Time at which at least one operation was under way: the union of their intervals, never their sum.
    pub busy_ps: u64,
    /// The part of it at which one that is no control flow was: a `while` covers the gaps between what its body does.
    pub kernels_busy_ps: u64,
    /// By name's first appearance in the execution.
    #[serde(skip)]
    pub operations: Vec<Operation>,
}

/// The events of one operation within one execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The instruction's name.
    pub name: NameId,
    /// Start of the first of them.
    pub start_ps: i64,
    /// Events.
    pub count: u64,
    /// Sum of their durations.
    pub total_ps: u64,
    /// The part of it at which no operation that started later was under way on the same line; of control flow (`while`,
    /// `conditional`, `call`) also without what other lines did of the same execution.
    pub own_ps: u64,
}

/// Which of an execution's times is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// From first start to last end.
    Span,
    /// The union of the operations' intervals.
    Busy,
}

impl Layout {
    /// What a decision rests on: the span where thunks of a thread pool wait for each other, busy time on a device.
    pub fn metric(self) -> Metric {
        match self {
            Self::HostThunks => Metric::Span,
            Self::DeviceStreams | Self::ModuleLines => Metric::Busy,
        }
    }
}

impl Execution {
    /// One of its times.
    pub fn time_ps(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Span => self.span_ps,
            Metric::Busy => self.busy_ps,
        }
    }

    /// Time inside the execution at which no operation was under way.
    pub fn idle_ps(&self) -> u64 {
        self.span_ps.saturating_sub(self.busy_ps)
    }
}

impl DeviceTime {
    /// The text of a name.
    pub fn name(&self, id: NameId) -> &str {
        self.names.get(id.0 as usize).map_or("", |name| name)
    }

    /// The executions of modules with this name, in launch order of each device.
    pub fn of_module<'a>(&'a self, module: &'a str) -> impl Iterator<Item = &'a Execution> {
        self.executions.iter().filter(move |execution| self.name(execution.module) == module)
    }
}

/// How often a program ran, of the module with this name and with this id.
pub type RunsOf<'a> = &'a (dyn Fn(&str, Option<i64>) -> Option<u64> + Sync);

/// Finds the module executions of a capture, with the time of each and of its operations.
pub fn executions(space: &XSpace) -> DeviceTime {
    find(space, None, None, &mut |_| {})
}

/// The same, with each execution shown as soon as it is found, in no order and without its [`Execution::order`]: who takes its
/// operations away keeps no more of them than of one batch.
pub fn executions_folded(space: &XSpace, fold: &mut dyn FnMut(&mut Execution)) -> DeviceTime {
    find(space, None, None, fold)
}

/// The same for a capture of known launches: where a device's events name no run, those of a program are cut into as
/// many equal executions as it ran. Where they cannot be, the first operation tells, as it does without.
pub fn executions_of_runs(space: &XSpace, runs: RunsOf<'_>) -> DeviceTime {
    find(space, None, Some(runs), &mut |_| {})
}

/// The same, but [`Execution::busy_ps`] covers only operations whose names match.
pub fn executions_of_operations(space: &XSpace, wanted: &Regex) -> DeviceTime {
    find(space, Some(wanted), None, &mut |_| {})
}

fn find(
    space: &XSpace,
    wanted: Option<&Regex>,
    runs: Option<RunsOf<'_>>,
    fold: &mut dyn FnMut(&mut Execution),
) -> DeviceTime {
    let mut names = Names::default();
    let views: Vec<PlaneView<'_>> =
        space.planes().filter(|plane| plane.lines().len() > 0).map(|plane| PlaneView::new(plane, &mut names)).collect();
    let mut gathered = gather(&views, names.list());
    let all_names: Vec<Box<str>> = names
        .list()
        .iter()
        .copied()
        .chain(gathered.written_names.iter().map(Vec::as_slice))
        .map(|name| String::from_utf8_lossy(name).into())
        .collect();
    let control: Vec<bool> = all_names.iter().map(|name| is_control_flow(name)).collect();
    let wanted: Option<Vec<bool>> =
        wanted.map(|wanted| all_names.iter().map(|name| wanted.is_match(name.as_bytes())).collect());
    let runs_of = |key: Key| runs?(all_names.get(key.module as usize)?, key.program);
    let choice = Choice { control: &control, wanted: wanted.as_deref(), runs_of: &runs_of };
    let mut executions = assemble(&views, &mut gathered, choice, fold);
    executions.sort_by_key(|execution| (execution.plane, execution.device, execution.start_ps, execution.end_ps));
    let mut order = 0;
    for at in 1..executions.len() {
        let device = |execution: &Execution| (execution.plane, execution.device);
        order = if device(&executions[at]) == device(&executions[at - 1]) { order + 1 } else { 0 };
        executions[at].order = order;
    }
    let findings = sanity::findings(space, &views, &gathered, &executions, &all_names);
    DeviceTime { executions, findings, names: all_names }
}

pub(super) fn is_control_flow(name: &str) -> bool {
    let base = name.split('.').next().unwrap_or_default();
    matches!(base, "while" | "conditional" | "call")
}

/// Which operations are control flow, which count as busy, and how executions without ids are cut.
#[derive(Clone, Copy)]
struct Choice<'a> {
    control: &'a [bool],
    wanted: Option<&'a [bool]>,
    /// How often the program of a key ran, where that is known.
    runs_of: &'a (dyn Fn(Key) -> Option<u64> + Sync),
}

/// What a thread needs to add up operations, kept from one execution to the next.
#[derive(Default)]
struct Scratch {
    /// Place of each name in the execution's operations, valid where the mark is the execution's.
    places: Vec<(u64, u32)>,
    mark: u64,
    times: Vec<Interval>,
}

/// Executions that are made between two times at which records are given back.
const BATCH: usize = 64;

/// Adds up each execution, and gives the records back piece by piece, as their last execution is done.
fn assemble(
    views: &[PlaneView<'_>],
    gathered: &mut Gathered,
    choice: Choice<'_>,
    fold: &mut dyn FnMut(&mut Execution),
) -> Vec<Execution> {
    let Gathered { executions, runs, pieces, .. } = gathered;
    let mut last_use = vec![0; pieces.len()];
    let mut work: Vec<(usize, Origin, &[Run])> = Vec::with_capacity(executions.len());
    let mut rest: &[Run] = runs;
    for (number, &(view, origin)) in executions.iter().enumerate() {
        let (own, after) = rest.split_at(rest.partition_point(|run| run.execution as usize <= number));
        for run in own {
            if let Some(last) = last_use.get_mut(run.piece as usize) {
                *last = number / BATCH;
            }
        }
        work.push((view, origin, own));
        rest = after;
    }
    let mut made = Vec::with_capacity(work.len());
    for (number, batch) in work.chunks(BATCH).enumerate() {
        let shared: &[Vec<Record>] = pieces;
        let of_batch = batch.par_iter().map_init(Scratch::default, |scratch, &(view, origin, runs)| {
            let Some(view) = views.get(view) else { return Vec::new() };
            let tracks: Vec<Vec<Record>> =
                runs.chunk_by(|one, next| one.line == next.line).map(|runs| track(runs, shared)).collect();
            match origin {
                Origin::Stats(key) if key.run.is_none() && view.layout == Layout::DeviceStreams => {
                    cut(&tracks, (choice.runs_of)(key))
                        .iter()
                        .map(|tracks| one(view, origin, tracks, choice, scratch))
                        .collect()
                }
                _ => vec![one(view, origin, &tracks, choice, scratch)],
            }
        });
        let of_batch: Vec<Vec<Execution>> = of_batch.collect();
        made.extend(of_batch.into_iter().flatten().map(|mut execution| {
            fold(&mut execution);
            execution
        }));
        for (piece, _) in pieces.iter_mut().zip(&last_use).filter(|(_, last)| **last == number) {
            *piece = Vec::new();
        }
    }
    made
}

/// An execution's records of one line: by start, the longest first.
fn track(runs: &[Run], pieces: &[Vec<Record>]) -> Vec<Record> {
    let mut track: Vec<Record> = runs.iter().flat_map(|run| run.of(pieces)).copied().collect();
    let key = |record: &Record| (record.time.start_ps, std::cmp::Reverse(record.time.end_ps));
    if !track.is_sorted_by_key(key) {
        track.sort_by_key(key);
    }
    track
}

fn one(
    view: &PlaneView<'_>,
    origin: Origin,
    tracks: &[Vec<Record>],
    choice: Choice<'_>,
    scratch: &mut Scratch,
) -> Execution {
    let operations = operations(tracks, choice.control, scratch);
    let (mut busy, mut control): (Vec<Interval>, Vec<Interval>) = (Vec::new(), Vec::new());
    let (mut first, mut last, mut events) = (i64::MAX, i64::MIN, 0);
    for track in tracks {
        first = first.min(track.first().map_or(i64::MAX, |record| record.time.start_ps));
        last = track.iter().map(|record| record.time.end_ps).fold(last, i64::max);
        events += track.len() as u64;
        let is = |list: &[bool], record: &Record| list.get(record.operation as usize).copied().unwrap_or(false);
        let counts = |record: &Record| choice.wanted.is_none_or(|wanted| is(wanted, record));
        let mut times: Vec<Interval> = Vec::with_capacity(track.len());
        for record in track.iter().filter(|record| counts(record)) {
            let list = if is(choice.control, record) { &mut control } else { &mut times };
            list.push(record.time);
        }
        merge(&mut times);
        busy.append(&mut times);
    }
    let covered = |intervals: &[Interval]| intervals.iter().map(Interval::length_ps).sum();
    merge(&mut busy);
    let mut kernels_busy_ps = covered(&busy);
    if !control.is_empty() {
        busy.append(&mut control);
        merge(&mut busy);
    }
    let mut busy_ps = covered(&busy);
    let mut time = Interval { start_ps: first, end_ps: last };
    let (module, program_id, run_id, device) = match origin {
        Origin::Stats(key) => (key.module, key.program, key.run, key.ordinal),
        Origin::Window(number) => match view.windows.get(number as usize) {
            Some(window) => {
                time = window.time;
                (window.module, window.program, window.run, view.ordinal)
            }
            None => (u32::MAX, None, None, view.ordinal),
        },
    };
    if events == 0 && choice.wanted.is_none() {
        busy_ps = time.length_ps();
        kernels_busy_ps = busy_ps;
    }
    Execution {
        plane: view.plane.number(),
        device,
        layout: view.layout,
        module: NameId(module),
        program_id,
        run_id,
        order: 0,
        events,
        start_ps: time.start_ps,
        end_ps: time.end_ps,
        span_ps: time.length_ps(),
        busy_ps,
        kernels_busy_ps,
        operations,
    }
}

fn operations(tracks: &[Vec<Record>], control: &[bool], scratch: &mut Scratch) -> Vec<Operation> {
    scratch.mark += 1;
    scratch.places.resize(control.len(), (0, 0));
    let mut operations: Vec<Operation> = Vec::new();
    let is_control = |record: &Record| control.get(record.operation as usize).copied().unwrap_or(false);
    let across = tracks.len() > 1 && tracks.iter().flatten().any(is_control);
    let mut own_of_control: Vec<(usize, Interval)> = Vec::new();
    let mut leaves: Vec<Interval> = Vec::new();
    for track in tracks {
        // the place of each record's operation
        for record in track {
            let Some(place) = scratch.places.get_mut(record.operation as usize) else { continue };
            if place.0 != scratch.mark {
                *place = (scratch.mark, operations.len() as u32);
                let (name, start_ps) = (NameId(record.operation), record.time.start_ps);
                operations.push(Operation { name, start_ps, count: 0, total_ps: 0, own_ps: 0 });
            }
            if let Some(operation) = operations.get_mut(place.1 as usize) {
                operation.start_ps = operation.start_ps.min(record.time.start_ps);
                operation.count += 1;
                operation.total_ps += record.time.length_ps();
            }
        }
        scratch.times.clear();
        scratch.times.extend(track.iter().map(|record| record.time));
        let places = &scratch.places;
        own_time(&scratch.times, |index, piece| {
            let Some(record) = track.get(index) else { return };
            let Some(&(_, place)) = places.get(record.operation as usize) else { return };
            if across && is_control(record) {
                own_of_control.push((place as usize, piece));
            } else if let Some(operation) = operations.get_mut(place as usize) {
                operation.own_ps += piece.length_ps();
                if across {
                    leaves.push(piece);
                }
            }
        });
    }
    if !own_of_control.is_empty() {
        let leaves = Coverage::new(leaves);
        for (place, piece) in own_of_control {
            if let Some(operation) = operations.get_mut(place) {
                operation.own_ps += piece.length_ps() - leaves.of(piece);
            }
        }
    }
    operations
}
