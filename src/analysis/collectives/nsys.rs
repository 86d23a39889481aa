//! Collectives of captures of nsys-jax.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::analysis::nsys::{Devices, compiled_programs, executions, operation};
use crate::analysis::{HloFiles, Programs};
use crate::nsys::{NsysCapture, NsysRange};
use crate::profile::interval::Interval;

use super::gatherer::{Gatherer, Launch};
use super::hiding::{Doing, Hiding};
use super::instruction::Role;
use super::model::{Collectives, Device};

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
        compiled.extend(compiled_programs(&capture).map(|(module, id)| (module.to_owned(), id)));
        let Some(ranges) = &capture.device_ranges else {
            notes.push(format!("{}: holds no trace of the devices", capture.name));
            continue;
        };
        let (executions, without_module) = executions(ranges);
        loose += without_module;
        let devices = Devices::new(&capture, &executions, devices_before);
        devices_before += devices.count();
        for (place, execution) in (0..).zip(&executions) {
            let (module, id) = (execution.module, execution.program_id);
            if id.is_none() {
                continue;
            }
            let program = programs.find(module, id).or_else(|| given.find(module, id));
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
            let collectives = hiding.finish();
            if program.is_none() && !collectives.is_empty() {
                unknown.insert(module.to_owned());
            }
            let launch = Launch {
                capture: number,
                device: Device { host: capture.name.clone(), ordinal: devices.ordinal(execution) },
                module,
                program_id: id,
                run_id: None,
                start_ps: execution.range.start_ns.saturating_mul(1000),
                place,
            };
            gatherer.add(&launch, &collectives, &|operation| match roles
                .get_key_value(**numbers.get(operation as usize)?)?
            {
                (name, Role::Communication(communication)) => Some((*name, communication)),
                _ => None,
            });
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
