//! Collectives of captures of nsys-jax.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::analysis::nsys::{Devices, Execution, compiled_programs, executions, operation};
use crate::analysis::{HloFiles, Programs};
use crate::nsys::{NsysCapture, NsysRange};
use crate::profile::interval::Interval;

use super::assembly::Assembly;
use super::gatherer::{About, Gatherer, Launch, Plan};
use super::hiding::{Doing, Hiding, Timed};
use super::instruction::Role;
use super::model::{Collectives, Device};

/// The collectives of captures, one a process. The first execution of each program whose compilation was captured is left
/// out, unless `with_warm_up`, as nsys-jax does; so is what has no program id, which XLA's autotuner ran.
pub fn nsys_collectives(captures: Vec<NsysCapture>, files: &HloFiles, with_warm_up: bool) -> Collectives<'static> {
    let (mut notes, mut compiled) = (Vec::new(), HashSet::new());
    let given = Programs::of_files(files);
    let mut captures = captures;
    let modules: Vec<HloFiles> = captures
        .iter_mut()
        .map(|capture| {
            let mut own = HloFiles::default();
            for (place, bytes) in std::mem::take(&mut capture.modules) {
                own.add(&place, bytes);
            }
            own
        })
        .collect();
    let programs: Vec<Programs<'_>> = modules.iter().map(Programs::of_files).collect();
    let (mut devices_before, mut loose, mut processes) = (0, 0, Vec::new());
    for ((number, capture), programs) in captures.iter().enumerate().zip(&programs) {
        notes.extend(capture.notes.iter().cloned());
        compiled.extend(compiled_programs(capture).map(|(module, id)| (module.to_owned(), id)));
        let Some(ranges) = &capture.device_ranges else {
            notes.push(format!("{}: holds no trace of the devices", capture.name));
            continue;
        };
        let (executions, without_module) = executions(ranges);
        loose += without_module;
        let devices = Devices::new(capture, &executions, devices_before);
        devices_before += devices.count();
        processes.push(Process { number, capture, executions, devices, programs, given: &given });
        notes.extend(programs.problems());
    }
    if loose > 0 {
        notes.push(format!(
            "thunks outside of any module are not counted: {loose}; the capture began within an execution"
        ));
    }
    let (mut gatherer, mut unknown) = (Gatherer::default(), BTreeSet::new());
    each_execution(&processes, &mut |launch, collectives, about, is_known| {
        if !is_known && !collectives.is_empty() {
            unknown.insert(launch.module.to_owned());
        }
        gatherer.add(launch, collectives, about);
    });
    notes.extend(unknown.into_iter().map(|module| {
        format!("no HLO of `{module}` in `dump/`: its collectives are told by name and have no message size; give it with --hlo")
    }));
    let warms = |module: &str, id: Option<i64>| {
        !with_warm_up && id.is_some_and(|id| compiled.contains(&(module.to_owned(), id)))
    };
    let plan = gatherer.finish(&warms);
    // the tables of a capture are in memory, and take more than what is kept of them here
    let (mut assembly, mut parts) = (Assembly::new(&plan), Vec::new());
    each_execution(&processes, &mut |launch, collectives, about, _| {
        assembly.add(launch, collectives, about, &mut |launch| parts.extend(launch));
    });
    let Plan { devices, operations, left_out, notes: mut first, .. } = plan;
    first.append(&mut notes);
    Collectives { devices, operations, parts: parts.into(), left_out, notes: first }
}

/// The executions of a process.
struct Process<'c> {
    number: usize,
    capture: &'c NsysCapture,
    executions: Vec<Execution<'c>>,
    devices: Devices<'c>,
    programs: &'c Programs<'c>,
    given: &'c Programs<'c>,
}

/// Takes an execution with its collectives by start, and whether the HLO of its program is known.
type Give<'g> = dyn FnMut(&Launch<'_>, &[Timed], About<'_>, bool) + 'g;

/// Gives each execution. What has no program id XLA's autotuner ran.
fn each_execution(processes: &[Process<'_>], give: &mut Give<'_>) {
    for process in processes {
        for (place, execution) in (0..).zip(&process.executions).filter(|(_, execution)| execution.program_id.is_some())
        {
            process.give(place, execution, give);
        }
    }
}

impl Process<'_> {
    fn give(&self, place: u32, execution: &Execution<'_>, give: &mut Give<'_>) {
        let (module, program_id) = (execution.module, execution.program_id);
        let program = self.programs.find(module, program_id).or_else(|| self.given.find(module, program_id));
        // as many roles as operations, not as thunks
        let mut roles: HashMap<&str, Role> = HashMap::new();
        for thunk in &execution.thunks {
            let name = operation(thunk);
            roles.entry(name).or_insert_with(|| {
                let known = program.and_then(|program| Some((program, program.instruction(name)?)));
                known.map_or_else(|| Role::of_name(name), |(program, instruction)| Role::of(program, instruction))
            });
        }
        let numbers: Vec<&&str> = roles.keys().collect();
        let number_of: HashMap<&str, u32> = numbers.iter().map(|name| **name).zip(0..).collect();
        let event = |thunk: &&NsysRange| {
            let (name, role) = roles.get_key_value(operation(thunk))?;
            let ps = |ns: i64| ns.saturating_mul(1000);
            let doing = match role {
                Role::Communication(_) => Doing::Communication(*number_of.get(name)?),
                Role::Compute => Doing::Computation,
                Role::Wait | Role::Control => Doing::Other,
            };
            Some((Interval { start_ps: ps(thunk.start_ns), end_ps: ps(thunk.end_ns) }, doing))
        };
        let mut events: Vec<(Interval, Doing)> = execution.thunks.iter().filter_map(event).collect();
        events.sort_by_key(|(time, _)| *time);
        let mut hiding = Hiding::default();
        events.into_iter().for_each(|(time, doing)| hiding.add(doing, time));
        let launch = Launch {
            capture: self.number,
            device: Device { host: self.capture.name.clone(), ordinal: self.devices.ordinal(execution) },
            module,
            program_id,
            run_id: None,
            start_ps: execution.range.start_ns.saturating_mul(1000),
            place,
        };
        let about = |operation: u32| match roles.get_key_value(**numbers.get(operation as usize)?)? {
            (name, Role::Communication(communication)) => Some((*name, communication)),
            _ => None,
        };
        give(&launch, &hiding.finish(), &about, program.is_some());
    }
}
