//! Collectives of captures of nsys-jax.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::analysis::{HloFiles, Programs};
use crate::nsys::{NsysCapture, NsysRange};
use crate::profile::interval::Interval;

use super::gatherer::{Event, Gatherer, Launch};
use super::instruction::Role;
use super::model::{Collectives, Device};

/// Ranges around a range that are looked at: what is deeper is a circle.
const MAX_DEPTH: usize = 64;

/// The collectives of captures, one a process. The first execution of each program whose compilation was captured is left
/// out, unless `with_warm_up`, as nsys-jax does; so is what has no program id, which XLA's autotuner ran.
pub fn nsys_collectives(captures: Vec<NsysCapture>, files: &HloFiles, with_warm_up: bool) -> Collectives {
    let mut gatherer = Gatherer::default();
    let (mut notes, mut compiled, mut unknown) = (Vec::new(), HashSet::new(), BTreeSet::new());
    let given = Programs::of_files(files);
    let (mut devices_before, mut loose) = (0, 0);
    for (number, mut capture) in captures.into_iter().enumerate() {
        notes.append(&mut capture.notes);
        let mut own = HloFiles::default();
        for (place, bytes) in std::mem::take(&mut capture.modules) {
            own.add(&place, bytes);
        }
        let programs = Programs::of_files(&own);
        compiled.extend(capture.host_ranges.iter().flatten().filter_map(|range| compiled_program(&range.name)));
        let Some(ranges) = &capture.device_ranges else {
            notes.push(format!("{}: holds no trace of the devices", capture.name));
            continue;
        };
        let (executions, without_module) = executions(ranges);
        loose += without_module;
        let devices = Devices::new(&capture, &executions, devices_before);
        devices_before += devices.count();
        for execution in &executions {
            let (module, id) = (execution.module, execution.program_id);
            if id.is_none() {
                continue;
            }
            let program = programs.find(module, id).or_else(|| given.find(module, id));
            // as many roles as operations, not as thunks
            let mut roles: HashMap<&str, Role> = HashMap::new();
            for thunk in &execution.thunks {
                let name = attribute(&thunk.name, "hlo_op=").unwrap_or_default();
                roles.entry(name).or_insert_with(|| {
                    let known = program.and_then(|program| Some((program, program.instruction(name)?)));
                    known.map_or_else(|| Role::of_name(name), |(program, instruction)| Role::of(program, instruction))
                });
            }
            let event = |thunk: &&NsysRange| {
                let (name, role) = roles.get_key_value(attribute(&thunk.name, "hlo_op=").unwrap_or_default())?;
                let ps = |ns: i64| ns.saturating_mul(1000);
                Some(Event { name, role, time: Interval { start_ps: ps(thunk.start_ns), end_ps: ps(thunk.end_ns) } })
            };
            let events: Vec<Event<'_>> = execution.thunks.iter().filter_map(event).collect();
            if program.is_none() && events.iter().any(|event| matches!(event.role, Role::Communication(_))) {
                unknown.insert(module.to_owned());
            }
            let launch = Launch {
                capture: number,
                device: Device { host: capture.name.clone(), ordinal: devices.ordinal(execution) },
                module,
                program_id: id,
                run_id: None,
                start_ps: execution.start_ns.saturating_mul(1000),
            };
            gatherer.add(&launch, &events);
        }
        notes.extend(programs.problems());
    }
    if loose > 0 {
        notes.push(format!(
            "thunks outside of any module are not counted: {loose}; the capture began within an execution"
        ));
    }
    notes.extend(unknown.into_iter().map(|module| {
        format!("no HLO of `{module}` in `dump/`: its collectives are told by name and have no message size; give it with --hlo")
    }));
    let warms = |module: &str, id: Option<i64>| {
        !with_warm_up && id.is_some_and(|id| compiled.contains(&(module.to_owned(), id)))
    };
    let mut collectives = gatherer.finish(&warms);
    collectives.notes.extend(notes);
    collectives
}

/// An execution of a module, with the innermost thunks in it.
struct Execution<'r> {
    module: &'r str,
    program_id: Option<i64>,
    start_ns: i64,
    thread: (i64, i64),
    thunks: Vec<&'r NsysRange>,
}

/// Thunks by the innermost module around them. Thunks hold thunks, of which the innermost are the work. Gives also how many
/// have no module around.
fn executions(ranges: &[NsysRange]) -> (Vec<Execution<'_>>, u64) {
    let by_id: HashMap<i64, &NsysRange> = ranges.iter().map(|range| (range.id, range)).collect();
    let is = |range: &NsysRange, what: &str| range.is_xla && range.name.starts_with(what);
    let (mut outer, mut modules): (HashSet<i64>, HashMap<i64, i64>) = (HashSet::new(), HashMap::new());
    let mut loose = 0;
    for thunk in ranges.iter().filter(|range| is(range, "Thunk:#")) {
        let mut parent = thunk.parent;
        let mut module = None;
        for _ in 0..MAX_DEPTH {
            let Some(range) = parent.and_then(|parent| by_id.get(&parent)) else { break };
            if is(range, "XlaModule:#") {
                module = Some(range.id);
                break;
            }
            if is(range, "Thunk:#") {
                outer.insert(range.id);
            }
            parent = range.parent;
        }
        match module {
            Some(module) => drop(modules.insert(thunk.id, module)),
            None => loose += 1,
        }
    }
    let mut found: BTreeMap<(i64, i64), Execution<'_>> = BTreeMap::new();
    for thunk in ranges.iter().filter(|range| !outer.contains(&range.id)) {
        let Some(range) = modules.get(&thunk.id).and_then(|module| by_id.get(module)) else { continue };
        let execution = found.entry((range.start_ns, range.id)).or_insert_with(|| Execution {
            module: attribute(&range.name, "hlo_module=").unwrap_or_default(),
            program_id: attribute(&range.name, "program_id=").and_then(|id| id.parse().ok()),
            start_ns: range.start_ns,
            thread: (range.pid, range.tid),
            thunks: Vec::new(),
        });
        execution.thunks.push(thunk);
    }
    (found.into_values().collect(), loose)
}

/// What stands behind a key in `XlaModule:#hlo_module=f,program_id=3#`. The last one counts, since a name before it may hold
/// anything.
fn attribute<'n>(name: &'n str, key: &str) -> Option<&'n str> {
    let (_, rest) = name.rsplit_once(key)?;
    rest.split([',', '#']).next()
}

/// The program that a range compiled: `XlaCompileBackend:#module=f,program_id=3#`.
fn compiled_program(name: &str) -> Option<(String, i64)> {
    let rest = name.strip_prefix("XlaCompileBackend:#module=").or_else(|| name.strip_prefix("XlaCompile:#module="))?;
    let module = rest.split([',', '#']).next()?.to_owned();
    Some((module, attribute(rest, "program_id=")?.parse().ok()?))
}

/// Processes and threads.
type Threads = BTreeSet<(i64, i64)>;

/// Devices by the threads that drive them.
struct Devices<'c> {
    capture: &'c NsysCapture,
    /// Of each program the threads that launched it, where no launcher has a name: they stand for devices in this order.
    threads: BTreeMap<(&'c str, Option<i64>), Threads>,
    before: i64,
}

impl<'c> Devices<'c> {
    fn new(capture: &'c NsysCapture, executions: &[Execution<'c>], before: i64) -> Self {
        let mut threads: BTreeMap<_, Threads> = BTreeMap::new();
        for execution in executions {
            threads.entry((execution.module, execution.program_id)).or_default().insert(execution.thread);
        }
        Self { capture, threads, before }
    }

    fn count(&self) -> i64 {
        match self.capture.launchers.len() {
            0 => self.threads.values().map(|threads| threads.len() as i64).max().unwrap_or(0),
            launchers => launchers as i64,
        }
    }

    fn ordinal(&self, execution: &Execution<'_>) -> i64 {
        let launchers = &self.capture.launchers;
        // a module of one device runs on the main thread, which has no launcher's name: it is the first device's
        let of_process =
            || launchers.iter().filter(|((pid, _), _)| *pid == execution.thread.0).map(|(_, device)| *device);
        let named = launchers.get(&execution.thread).copied().or_else(|| of_process().min());
        named.unwrap_or_else(|| {
            let threads = self.threads.get(&(execution.module, execution.program_id));
            let rank = threads.and_then(|threads| threads.iter().position(|thread| *thread == execution.thread));
            self.before + rank.unwrap_or(0) as i64
        })
    }
}
