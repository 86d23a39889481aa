//! Converts captures of nsys-jax to executions, and to planes on which they are drawn.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::analysis::collectives::Role;
use crate::analysis::runtime::ns;
use crate::analysis::{Capture, HloFiles, Programs};
use crate::hlo::HloModule;
use crate::nsys::{NsysCapture, NsysRange};
use crate::profile::interval::{Coverage, Interval, union_ps};
use crate::profile::{
    AUTOTUNER, DeviceTime, Execution as DeviceExecution, Finding, Layout, NameId, Operation, PlaneWriter,
    ProfileErrorKind, SlowFirst, WrittenStat, XSpace,
};
use crate::stats::Moments;

use super::executions::{Devices, Execution, compiled_programs, executions, operation};
use super::profile::{ExecutedOperations, NsysProfile};

/// Times this far from the rest are damage: 13 days.
const MAX_NS: u64 = 1 << 50;

/// Converts captures of nsys-jax, the processes of one program, into the form that analyses take.
///
/// An execution is a module's range, an operation's run a thunk's. Communication's self time is the part that no
/// computation of its execution hides, which nsys-jax calls its duration. First executions are left out for programs
/// whose compilation is in one of the captures, as in nsys-jax. `files` supply programs that a capture lacks.
///
/// # Errors
/// If the planes that were drawn cannot be read back.
pub fn nsys_captures(captures: Vec<NsysCapture>, files: &HloFiles) -> Result<Vec<Capture>, ProfileErrorKind> {
    let compiled = captures.iter().flat_map(compiled_programs).map(|(module, id)| (module.to_owned(), id));
    let compiled: BTreeSet<(String, i64)> = compiled.collect();
    let given = Programs::of_files(files);
    let mut devices_before = 0;
    captures.into_iter().map(|capture| import(capture, &compiled, &given, &mut devices_before)).collect()
}

fn import(
    mut capture: NsysCapture,
    compiled: &BTreeSet<(String, i64)>,
    given: &Programs<'_>,
    devices_before: &mut i64,
) -> Result<Capture, ProfileErrorKind> {
    let mut imported = Imported::default();
    let compiled = compiled.iter().map(|(module, id)| (imported.name(module), Some(*id))).collect();
    let mut notes: Vec<String> = std::mem::take(&mut capture.notes);
    let mut own = HloFiles::default();
    let mut metadata = PlaneWriter::new("/host:metadata");
    for (place, proto) in std::mem::take(&mut capture.modules) {
        let (name, id) = identity(&place, &proto);
        metadata.program(&name, id, &proto);
        own.add(&place, proto);
    }
    let programs = Programs::of_files(&own);
    notes.extend(lacking(&capture));
    let (found, loose) = executions(capture.device_ranges.as_deref().unwrap_or_default());
    if loose > 0 {
        notes.push(format!(
            "thunks outside of any module are not counted: {loose}; the capture began within an execution"
        ));
    }
    let devices = Devices::new(&capture, &found, *devices_before);
    *devices_before += devices.count();
    let mut by_device: BTreeMap<i64, Vec<&Execution<'_>>> = BTreeMap::new();
    for execution in &found {
        by_device.entry(devices.ordinal(execution)).or_default().push(execution);
    }
    let host = capture.host_ranges.as_deref().unwrap_or_default();
    let on_devices = found.iter().flat_map(|execution| execution.thunks.iter().copied().chain([execution.range]));
    let mut clock = Clock::new(on_devices.chain(host));
    let mut space = Vec::new();
    for (plane, (device, executions)) in by_device.into_iter().enumerate() {
        let mut of_device = DevicePlane::new(device, clock.base_ns);
        for execution in executions {
            let program = programs.find(execution.module, execution.program_id);
            let program = program.or_else(|| given.find(execution.module, execution.program_id));
            of_device.add(execution, program, (plane, device), &mut clock, &mut imported);
        }
        space.extend(of_device.writer.to_space());
    }
    write_host(&capture, host, &mut clock, &mut space);
    space.extend(metadata.to_space());
    if clock.unusable > 0 {
        let what = "ranges end before they begin, or are 13 days or more from the rest, and are left out";
        notes.push(format!("{}: {} {what}", capture.name, clock.unusable));
    }
    let Imported { executions, ran, names, .. } = imported;
    let findings = notes.into_iter().map(|message| Finding::Imported { message }).collect();
    Ok(Capture::Nsys(Box::new(NsysProfile {
        path: capture.path,
        host: capture.name,
        timeline: XSpace::from_bytes(space)?,
        host_ranges: capture.host_ranges,
        time: DeviceTime { executions, findings, outside: Vec::new(), slow_first: SlowFirst::Of(compiled), names },
        ran,
    })))
}

/// What a capture does not hold.
fn lacking(capture: &NsysCapture) -> Vec<String> {
    let mut notes = Vec::new();
    if capture.device_ranges.is_none() {
        notes.push(format!("{}: holds no trace of the devices", capture.name));
    }
    if capture.host_ranges.is_none() {
        let why = "it does not say which programs were compiled in it, so all first executions count";
        notes.push(format!("{}: holds no trace of the host: {why}", capture.name));
    }
    notes
}

/// The executions as they are found.
#[derive(Default)]
struct Imported {
    executions: Vec<DeviceExecution>,
    ran: Vec<ExecutedOperations>,
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, NameId>,
}

impl Imported {
    /// The number of a name.
    fn name(&mut self, name: &str) -> NameId {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        number
    }
}

/// A program's name and id: `dump/module_0040.jit_f.…` is the program 40, whatever its proto says.
fn identity(place: &str, proto: &[u8]) -> (String, i64) {
    let named = HloModule::identity(proto);
    let file = place.rsplit_once("dump/module_").map_or("", |(_, file)| file);
    let mut parts = file.split('.');
    let id = parts.next().and_then(|id| id.parse().ok()).or(named.as_ref().map(|(_, id)| *id));
    let name = named.map(|(name, _)| name.into_owned()).or_else(|| parts.next().map(str::to_owned));
    (name.unwrap_or_default(), id.unwrap_or_default())
}

/// Nanoseconds of the capture's clock to picoseconds after its first range.
struct Clock {
    base_ns: i64,
    unusable: u64,
}

impl Clock {
    /// Times far from the median are damage, not the beginning.
    fn new<'r>(ranges: impl Iterator<Item = &'r NsysRange>) -> Self {
        let mut starts: Vec<i64> = ranges.map(|range| range.start_ns).collect();
        let middle = starts.len() / 2;
        if starts.is_empty() {
            return Self { base_ns: 0, unusable: 0 };
        }
        let median = *starts.select_nth_unstable(middle).1;
        let near = starts.into_iter().filter(|start| start.abs_diff(median) < MAX_NS);
        Self { base_ns: near.min().unwrap_or(median), unusable: 0 }
    }

    fn time(&mut self, range: &NsysRange) -> Option<Interval> {
        let ps = |ns: i64| {
            let after = ns.checked_sub(self.base_ns).filter(|after| (0..MAX_NS as i64).contains(after))?;
            after.checked_mul(1000)
        };
        let time = ps(range.start_ns).zip(ps(range.end_ns)).filter(|(start, end)| start <= end);
        self.unusable += u64::from(time.is_none());
        time.map(|(start_ps, end_ps)| Interval { start_ps, end_ps })
    }
}

/// The events of a device, and how often each program ran on it.
struct DevicePlane<'r> {
    writer: PlaneWriter,
    /// Executions so far.
    count: usize,
    modules: usize,
    compute: usize,
    communication: usize,
    runs: HashMap<(&'r str, i64), u32>,
}

impl<'r> DevicePlane<'r> {
    fn new(device: i64, base_ns: i64) -> Self {
        let mut writer = PlaneWriter::new(&format!("/device:GPU:{device}"));
        let [modules, compute, communication] =
            ["Modules", "Thunks", "Communication"].map(|name| writer.line(name, base_ns));
        Self { writer, count: 0, modules, compute, communication, runs: HashMap::new() }
    }

    /// Launches of a program have the same order on all devices.
    fn next_run(&mut self, module: &'r str, program_id: i64) -> i64 {
        let run = self.runs.entry((module, program_id)).or_default();
        let id = program_id.wrapping_shl(32) | i64::from(*run);
        *run += 1;
        id
    }

    fn add(
        &mut self,
        execution: &Execution<'r>,
        program: Option<&HloModule>,
        (plane, device): (usize, i64),
        clock: &mut Clock,
        imported: &mut Imported,
    ) {
        let Some(time) = clock.time(execution.range) else { return };
        let thunks: Vec<(&str, Interval)> =
            execution.thunks.iter().filter_map(|thunk| Some((operation(thunk), clock.time(thunk)?))).collect();
        if thunks.is_empty() {
            return;
        }
        let program_id = execution.program_id.unwrap_or(AUTOTUNER);
        let run_id = self.next_run(execution.module, program_id);
        let name = if program_id == AUTOTUNER { "autotuner".to_owned() } else { program_id.to_string() };
        self.writer.event(self.modules, &format!("{}({name})", execution.module), times_ns(time), &[]);
        let roles = roles(&thunks, program);
        let is_communication = |name: &str| matches!(roles.get(name), Some(Role::Communication(_)));
        let (operations, runs) = operations(&thunks, &roles, imported);
        for &(name, time) in &thunks {
            let line = if is_communication(name) { self.communication } else { self.compute };
            let stats = [
                ("hlo_op", WrittenStat::Text(name)),
                ("hlo_module", WrittenStat::Text(execution.module)),
                ("program_id", WrittenStat::Int(program_id)),
                ("run_id", WrittenStat::Int(run_id)),
            ];
            self.writer.event(line, name, times_ns(time), &stats);
        }
        let busy_ps = union_ps(thunks.iter().map(|(_, time)| *time).collect());
        // a module's range begins and ends with its thunks' work
        let span = thunks.iter().fold(time, |span, (_, time)| Interval {
            start_ps: span.start_ps.min(time.start_ps),
            end_ps: span.end_ps.max(time.end_ps),
        });
        let made = DeviceExecution {
            plane,
            device: Some(device),
            layout: Layout::DeviceStreams,
            module: imported.name(execution.module),
            program_id: Some(program_id),
            run_id: Some(run_id),
            order: self.count,
            events: thunks.len() as u64,
            start_ps: span.start_ps,
            end_ps: span.end_ps,
            span_ps: span.length_ps(),
            busy_ps,
            kernels_busy_ps: busy_ps,
            operations,
        };
        self.count += 1;
        let mut ran: Vec<(NameId, Interval)> = thunks.iter().map(|(name, time)| (imported.name(name), *time)).collect();
        ran.sort_by_key(|(_, time)| *time);
        imported.executions.push(made);
        imported.ran.push(ExecutedOperations { thunks: ran, runs });
    }
}

/// What each thunk's operation is, by the program or else by its name.
fn roles<'t>(thunks: &[(&'t str, Interval)], program: Option<&HloModule>) -> HashMap<&'t str, Role> {
    let mut roles = HashMap::new();
    for (name, _) in thunks {
        roles.entry(*name).or_insert_with(|| {
            let known = program.and_then(|program| Some((program, program.instruction(name)?)));
            known.map_or_else(|| Role::of_name(name), |(program, instruction)| Role::of(program, instruction))
        });
    }
    roles
}

/// The operations of an execution in the order of their first thunks, and the times of each. Communication beside
/// computation is not counted as the operation's own time.
fn operations(
    thunks: &[(&str, Interval)],
    roles: &HashMap<&str, Role>,
    imported: &mut Imported,
) -> (Vec<Operation>, Vec<Moments>) {
    let is_compute = |name: &str| roles.get(name) == Some(&Role::Compute);
    let compute = thunks.iter().filter(|(name, _)| is_compute(name)).map(|(_, time)| *time);
    let covered = Coverage::new(compute.collect());
    let mut places: HashMap<&str, usize> = HashMap::new();
    let (mut operations, mut runs): (Vec<Operation>, Vec<Moments>) = (Vec::new(), Vec::new());
    for &(name, time) in thunks {
        let is_communication = matches!(roles.get(name), Some(Role::Communication(_)));
        let hidden_ps = if is_communication { covered.of(time) } else { 0 };
        let self_ps = time.length_ps().saturating_sub(hidden_ps);
        let place = *places.entry(name).or_insert_with(|| {
            let name = imported.name(name);
            let operation =
                Operation { name, inside: None, start_ps: time.start_ps, count: 0, total_ps: 0, self_ps: 0 };
            operations.push(operation);
            runs.push(Moments::default());
            operations.len() - 1
        });
        if let Some((of, runs)) = operations.get_mut(place).zip(runs.get_mut(place)) {
            of.start_ps = of.start_ps.min(time.start_ps);
            of.count += 1;
            of.total_ps = of.total_ps.saturating_add(time.length_ps());
            of.self_ps = of.self_ps.saturating_add(self_ps);
            runs.add(ns(self_ps));
        }
    }
    (operations, runs)
}

/// Whole nanoseconds, which is what they were.
fn times_ns(time: Interval) -> (i64, i64) {
    (time.start_ps / 1000, time.end_ps / 1000)
}

/// The threads of the host.
fn write_host(capture: &NsysCapture, ranges: &[NsysRange], clock: &mut Clock, space: &mut Vec<u8>) {
    let mut writer = PlaneWriter::new("/host:CPU");
    let threads: BTreeSet<(i64, i64)> = ranges.iter().map(|range| (range.pid, range.tid)).collect();
    let of_thread = |thread: (i64, i64)| {
        let device = capture.launchers.get(&thread).map(|device| format!(", launches to device {device}"));
        let name = format!("thread {}{}", thread.1, device.unwrap_or_default());
        (thread, writer.line(&name, clock.base_ns))
    };
    let lines: HashMap<(i64, i64), usize> = threads.into_iter().map(of_thread).collect();
    for range in ranges {
        let Some(time) = clock.time(range) else { continue };
        if let Some(line) = lines.get(&(range.pid, range.tid)) {
            writer.event(*line, &range.name, times_ns(time), &[]);
        }
    }
    space.extend(writer.to_space());
}
