//! Device time of module executions.

use regex::bytes::Regex;
use serde::Serialize;

use super::finding::Finding;
use super::folding::{Choice, Folding, Operation, Scratch};
use super::gather::{Key, Record};
use super::index::{Index, Whose};
use super::interval::Interval;
use super::names::{NameId, Names};
use super::plane_view::{Layout, PlaneView};
use super::sanity;
use super::space::XSpace;
use super::sweep::{Fold, sweep};
use super::told::SlowFirst;
use crate::measured_by::Metric;

/// Every module execution of a capture, and what to know of the capture before it is believed.
#[derive(Debug)]
pub struct DeviceTime {
    /// By plane, device and start.
    pub executions: Vec<Execution>,
    /// What could mislead.
    pub findings: Vec<Finding>,
    /// Programs whose first execution is no measurement.
    pub slow_first: SlowFirst,
    pub(super) names: Vec<Box<str>>,
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
    /// Its duration by a metric, picoseconds: a profile knows its span and its busy time, and whatever else is asked for
    /// is the span.
    pub fn time_ps(&self, metric: &Metric) -> u64 {
        if *metric == Metric::Busy { self.busy_ps } else { self.span_ps }
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
    executions_folded(space, &mut |_| {})
}

/// The same, with each execution shown as soon as its last event was read, in no order and without its [`Execution::order`]:
/// who takes its operations away keeps no more of them than those of the executions under way.
pub fn executions_folded(space: &XSpace, fold: &mut dyn FnMut(&mut Execution)) -> DeviceTime {
    match space.told() {
        Some(told) => told.time(fold),
        None => find(space, None, None, fold),
    }
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

/// The views of a capture's planes, and all its names so far.
pub(super) fn views<'a>(space: &'a XSpace, names: &mut Names<'a>) -> Vec<PlaneView<'a>> {
    space.planes().filter(|plane| plane.lines().len() > 0).map(|plane| PlaneView::new(plane, names)).collect()
}

/// The texts of all names, by their numbers.
pub(super) fn texts(names: &Names<'_>, index: &Index<'_, '_>) -> Vec<Box<str>> {
    let written = index.written_names.iter().map(Vec::as_slice);
    names.list().iter().copied().chain(written).map(|name| String::from_utf8_lossy(name).into()).collect()
}

fn find(
    space: &XSpace,
    wanted: Option<&Regex>,
    runs: Option<RunsOf<'_>>,
    fold: &mut dyn FnMut(&mut Execution),
) -> DeviceTime {
    let mut names = Names::default();
    let views = views(space, &mut names);
    let index = Index::new(&views, names.list(), space.held_events);
    let all_names = texts(&names, &index);
    let control: Vec<bool> = all_names.iter().map(|name| is_control_flow(name)).collect();
    let wanted: Option<Vec<bool>> =
        wanted.map(|wanted| all_names.iter().map(|name| wanted.is_match(name.as_bytes())).collect());
    let runs_of = |key: Key| runs?(all_names.get(key.module as usize)?, key.program);
    let times = Times { choice: Choice { control: &control, wanted: wanted.as_deref() } };
    let mut executions = Vec::with_capacity(index.executions.len());
    sweep(&index, &runs_of, &times, &mut |number, mut execution| {
        fold(&mut execution);
        // of several at once the first in the file
        execution.order = number as usize;
        executions.push(execution);
    });
    executions.sort_by_key(|one| (one.plane, one.device, one.start_ps, one.end_ps, one.order));
    let (mut order, mut last) = (0, None);
    for execution in &mut executions {
        let device = Some((execution.plane, execution.device));
        order = if device == last { order + 1 } else { 0 };
        (execution.order, last) = (order, device);
    }
    let findings = sanity::findings(space, &index, &executions, &all_names);
    DeviceTime { executions, findings, slow_first: SlowFirst::Any, names: all_names }
}

pub(super) fn is_control_flow(name: &str) -> bool {
    let base = name.split('.').next().unwrap_or_default();
    matches!(base, "while" | "conditional" | "call")
}

/// Adds up the times of executions.
struct Times<'c> {
    choice: Choice<'c>,
}

impl Fold for Times<'_> {
    type Open = Folding;
    type Done = Execution;
    type Scratch = Scratch;

    fn open(&self, _: &Whose<'_, '_>) -> Folding {
        Folding::default()
    }

    fn add(&self, open: &mut Folding, records: &[Record], scratch: &mut Scratch) {
        open.add(records, self.choice, scratch);
    }

    fn close(&self, open: Folding, whose: &Whose<'_, '_>) -> Execution {
        let time = whose.window.or(open.time).unwrap_or(Interval { start_ps: 0, end_ps: 0 });
        let events = open.events;
        let (mut busy_ps, mut kernels_busy_ps) = (open.busy_ps(), open.kernels_busy_ps());
        if events == 0 && self.choice.wanted.is_none() {
            (busy_ps, kernels_busy_ps) = (time.length_ps(), time.length_ps());
        }
        Execution {
            plane: whose.view.plane.number(),
            device: whose.device,
            layout: whose.view.layout,
            module: NameId(whose.module),
            program_id: whose.program,
            run_id: whose.run,
            order: 0,
            events,
            start_ps: time.start_ps,
            end_ps: time.end_ps,
            span_ps: time.length_ps(),
            busy_ps,
            kernels_busy_ps,
            operations: open.operations(),
        }
    }
}
