//! The events of each execution, one execution after the other, for what needs more than sums.

use super::cut::cut;
use super::execution::track;
use super::gather::{Gathered, Origin, Record, Run, gather};
use super::interval::Interval;
use super::names::Names;
use super::plane_view::{Layout, PlaneView};
use super::space::XSpace;

/// The events of one execution of a module on one device.
#[derive(Debug)]
pub struct ExecutionEvents<'a> {
    /// Number of the plane in its file.
    pub plane: usize,
    /// The device, as [`super::Execution::device`].
    pub device: Option<i64>,
    /// How the execution was told.
    pub layout: Layout,
    /// The module's name.
    pub module: &'a str,
    /// The program's id.
    pub program_id: Option<i64>,
    /// The launch's id; devices that run one launch share it.
    pub run_id: Option<i64>,
    /// Its operations' events by line and start: the operation's place in the names, and when.
    pub events: &'a [(usize, Interval)],
}

impl ExecutionEvents<'_> {
    /// Start of its first event.
    pub fn start_ps(&self) -> Option<i64> {
        self.events.iter().map(|(_, time)| time.start_ps).min()
    }
}

/// Gives each execution with its events to `visit`, with the names that the events refer to. Executions come by plane, not
/// by start.
pub fn operation_events(space: &XSpace, mut visit: impl FnMut(&ExecutionEvents<'_>, &[Box<str>])) {
    let mut names = Names::default();
    let views: Vec<PlaneView<'_>> =
        space.planes().filter(|plane| plane.lines().len() > 0).map(|plane| PlaneView::new(plane, &mut names)).collect();
    let Gathered { executions, runs, pieces, written_names, .. } = gather(&views, names.list());
    let known = names.list().iter().copied().chain(written_names.iter().map(Vec::as_slice));
    let all_names: Vec<Box<str>> = known.map(|name| String::from_utf8_lossy(name).into()).collect();
    let mut rest: &[Run] = &runs;
    let mut events = Vec::new();
    for (number, &(view, origin)) in executions.iter().enumerate() {
        let (own, after) = rest.split_at(rest.partition_point(|run| run.execution as usize <= number));
        rest = after;
        let Some(view) = views.get(view) else { continue };
        let tracks: Vec<Vec<Record>> =
            own.chunk_by(|one, next| one.line == next.line).map(|runs| track(runs, &pieces)).collect();
        let (module, program_id, run_id, device, has_no_run) = match origin {
            Origin::Stats(key) => (key.module, key.program, key.run, key.ordinal, key.run.is_none()),
            Origin::Window(number) => match view.windows.get(number as usize) {
                Some(window) => (window.module, window.program, window.run, view.ordinal, false),
                None => continue,
            },
        };
        let pieces_of_time = match has_no_run && view.layout == Layout::DeviceStreams {
            true => cut(&tracks, None),
            false => vec![tracks],
        };
        for tracks in pieces_of_time {
            events.clear();
            events.extend(tracks.iter().flatten().map(|record| (record.operation as usize, record.time)));
            let execution = ExecutionEvents {
                plane: view.plane.number(),
                device,
                layout: view.layout,
                module: all_names.get(module as usize).map_or("", |name| name),
                program_id,
                run_id,
                events: &events,
            };
            visit(&execution, &all_names);
        }
    }
}
