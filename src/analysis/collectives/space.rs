//! Collectives of XSpace captures.

use std::collections::{BTreeSet, HashMap};

use crate::analysis::{HloFiles, Programs};
use crate::profile::interval::Interval;
use crate::profile::{Capture, Layout, operation_events};

use super::gatherer::{Event, Gatherer, Launch};
use super::instruction::Role;
use super::model::{Collectives, Device};

/// What XLA's own autotuner runs has this program id.
const AUTOTUNER: i64 = -1;

/// The collectives of captures, one a host. The first execution of each program on a device is left out, unless
/// `with_warm_up`, or nothing but first executions is there.
pub fn space_collectives(captures: &[Capture], files: &HloFiles, with_warm_up: bool) -> Collectives {
    let mut gatherer = Gatherer::default();
    let (mut notes, mut unknown, mut joined) = (Vec::new(), BTreeSet::new(), false);
    for (number, capture) in captures.iter().enumerate() {
        let programs = Programs::new(&capture.space, files);
        let host = if capture.host.is_empty() { capture.path.display().to_string() } else { capture.host.clone() };
        let mut roles: HashMap<(String, Option<i64>), HashMap<usize, Role>> = HashMap::new();
        operation_events(&capture.space, |execution, names| {
            let Some(start_ps) = execution.start_ps().filter(|_| execution.program_id != Some(AUTOTUNER)) else {
                return;
            };
            let module = programs.find(execution.module, execution.program_id);
            let roles = roles.entry((execution.module.to_owned(), execution.program_id)).or_default();
            let text = |name: usize| names.get(name).map_or("", |name| name);
            for &(name, _) in execution.events {
                roles.entry(name).or_insert_with(|| {
                    let known = module.and_then(|module| Some((module, module.instruction(text(name))?)));
                    let by_name = || Role::of_name(text(name));
                    known.map_or_else(by_name, |(module, instruction)| Role::of(module, instruction))
                });
            }
            let event =
                |&(name, time): &(usize, Interval)| Some(Event { name: text(name), role: roles.get(&name)?, time });
            let mut events: Vec<Event<'_>> = execution.events.iter().filter_map(event).collect();
            if module.is_none() && events.iter().any(|event| matches!(event.role, Role::Communication(_))) {
                unknown.insert(execution.module.to_owned());
            }
            if execution.layout == Layout::ModuleLines {
                joined |= join_halves(&mut events);
            }
            let launch = Launch {
                capture: number,
                device: Device { host: host.clone(), ordinal: execution.device.unwrap_or(0) },
                module: execution.module,
                program_id: execution.program_id,
                run_id: execution.run_id,
                start_ps,
            };
            gatherer.add(&launch, &events);
        });
        notes.extend(programs.problems());
    }
    notes.extend(unknown.into_iter().map(|module| {
        format!("no HLO of `{module}`: its collectives are told by name and have no message size; give it with --hlo")
    }));
    if joined {
        notes.push(
            "asynchronous collectives last from their start to the end of their `done`, so that bandwidth is a lower bound"
                .to_owned(),
        );
    }
    let mut collectives = gatherer.finish(&|_, _| !with_warm_up);
    collectives.notes.extend(notes);
    collectives
}

/// A collective that is two events, as TPUs have it: from the start of `x-start` to the end of its `x-done`.
fn join_halves(events: &mut Vec<Event<'_>>) -> bool {
    events.sort_by_key(|event| event.time);
    let mut open: HashMap<String, Vec<usize>> = HashMap::new();
    let mut joined = false;
    for at in 0..events.len() {
        let Some(event) = events.get(at) else { break };
        let (opcode, number) = event.name.split_once('.').unwrap_or((event.name, ""));
        let end = event.time.end_ps;
        if let Some(kind) = opcode.strip_suffix("-start") {
            open.entry(format!("{kind}.{number}")).or_default().push(at);
        } else if let Some(kind) = opcode.strip_suffix("-done") {
            // the halves are numbered alike, or there is only one of the kind under way
            let own = format!("{kind}.{number}");
            let alone = || {
                let prefix = format!("{kind}.");
                let mut waiting = open.iter().filter(|(key, list)| key.starts_with(&prefix) && !list.is_empty());
                waiting.next().filter(|_| waiting.next().is_none()).map(|(key, _)| key.clone())
            };
            let key = if open.get(&own).is_some_and(|list| !list.is_empty()) { Some(own) } else { alone() };
            let start = key.and_then(|key| open.get_mut(&key)?.pop());
            if let Some(start) = start.and_then(|start| events.get_mut(start)) {
                start.time = Interval { end_ps: start.time.end_ps.max(end), ..start.time };
                joined |= matches!(start.role, Role::Communication(_));
            }
        }
    }
    joined
}
