//! Finds the module executions of an XSpace.

use regex::bytes::Regex;

use super::execution::{DeviceTime, Execution, OutsideKernel, SlowFirst};
use super::folding::{Choice, Folding, Scratch};
use super::gather::Key;
use super::index::{ExecutionSource, Index};
use super::interval::Interval;
use super::names::{NameId, Names};
use super::outside::OutsideEvents;
use super::plane_view::PlaneView;
use super::record::Record;
use super::sanity;
use super::space::XSpace;
use super::sweep::{Fold, sweep};

/// How often a program ran, of the module with this name and with this id.
pub type RunsOf<'a> = &'a (dyn Fn(&str, Option<i64>) -> Option<u64> + Sync);

/// Finds the module executions of a capture, with the time of each and of its operations.
pub fn executions(space: &XSpace) -> DeviceTime {
    executions_folded(space, &mut |_| {})
}

/// The same, with a callback for each execution as soon as its last event was read, in no particular order and without
/// its [`Execution::order`]: a callback that takes the operations away limits memory to those of the executions in
/// progress.
pub fn executions_folded(space: &XSpace, fold: &mut dyn FnMut(&mut Execution)) -> DeviceTime {
    find(space, None, None, fold)
}

/// The same for a capture of known launches: if a device's events name no run, those of a program are split into as
/// many equal executions as it ran. If that is impossible, the first operation marks them, as without known launches.
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
        // among simultaneous ones the first in the file
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
    DeviceTime { executions, findings, outside: outside(&index), slow_first: SlowFirst::Any, names: all_names }
}

/// What ran outside every execution.
pub(super) fn outside(index: &Index<'_, '_>) -> Vec<OutsideKernel> {
    let of_view = |(view, events): (&PlaneView<'_>, &OutsideEvents)| {
        let (plane, device) = (view.plane.number(), view.ordinal);
        let kernel = move |(name, time)| OutsideKernel { plane, device, name: NameId(name), time };
        events.sorted().into_iter().map(kernel)
    };
    index.views.iter().zip(&index.outside).flat_map(of_view).collect()
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

    fn open(&self, _: &ExecutionSource<'_, '_>) -> Folding {
        Folding::default()
    }

    fn add(&self, open: &mut Folding, records: &[Record], scratch: &mut Scratch) {
        open.add(records, self.choice, scratch);
    }

    fn close(&self, open: Folding, source: &ExecutionSource<'_, '_>) -> Execution {
        let time = source.window.or(open.time).unwrap_or(Interval { start_ps: 0, end_ps: 0 });
        let events = open.events;
        let (mut busy_ps, mut kernels_busy_ps) = (open.busy_ps(), open.kernels_busy_ps());
        if events == 0 && self.choice.wanted.is_none() {
            (busy_ps, kernels_busy_ps) = (time.length_ps(), time.length_ps());
        }
        Execution {
            plane: source.view.plane.number(),
            device: source.device,
            layout: source.view.layout,
            module: NameId(source.module),
            program_id: source.program,
            run_id: source.run,
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
