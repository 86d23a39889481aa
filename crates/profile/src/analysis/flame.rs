//! Stacks with their time, for flame graphs: by source line or by scope.

use std::collections::{BTreeMap, BTreeSet};

use crate::hlo::{Frame, HloInstruction, HloModule};
use crate::profile::Finding;

use super::attribution::inner;
use super::capture::Capture;
use super::event_facts::EventFacts;
use super::minor::{Counting, Minor};
use super::modules::{Modules, add};
use super::programs::{HloFiles, Programs};
use super::runtime::{Counted, device_runtimes};
use super::totals::Totals;

/// What the frames of a stack are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StacksBy {
    /// The calls of the program that was traced, and the `op_name` below them.
    Source,
    /// The scopes of the `op_name`.
    OpName,
}

/// The time of captures by stack.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Stacks {
    /// Nanoseconds by stack, outermost frame first.
    pub time_ns: BTreeMap<Vec<String>, f64>,
    /// Notes, one line each.
    pub notes: Vec<String>,
    /// Warnings.
    pub findings: Vec<Finding>,
}

/// The outermost frame of operations.
pub const ACTIVE: &str = "[active]";
/// The frame of time inside executions at which nothing ran.
pub const IDLE_INSIDE_FRAME: &str = "[idle during module execution]";
/// The frame of time between executions.
pub const IDLE_BETWEEN_FRAME: &str = "[idle between module executions]";
const UNKNOWN_FRAME: &str = "[unknown]";
/// What the path of a file of the Python package holds.
const OWN_PACKAGE: &str = "/autotune_lowered/";

/// Adds up the time of captures by stack, over all devices.
///
/// An operation may come from several lines. Its time is split equally over the distinct stacks of its instruction and
/// of those that this one fuses (nsys-jax: `analysis`); if none of them has a stack, over their distinct `op_name`s.
pub fn stacks(captures: &[Capture], files: &HloFiles, by: StacksBy, counting: impl Into<Counting>) -> Stacks {
    let [stacks] = stacks_by(captures, files, [by], counting);
    stacks
}

/// The same for several kinds of frames, reading the captures once.
pub fn stacks_by<const N: usize>(
    captures: &[Capture],
    files: &HloFiles,
    by: [StacksBy; N],
    counting: impl Into<Counting>,
) -> [Stacks; N] {
    let counting = counting.into();
    let minor = Minor::of(captures, counting);
    let mut all = by.map(|by| (by, Stacks { notes: files.notes().to_vec(), ..Stacks::default() }));
    for capture in captures {
        let mut totals = Totals::read(capture, counting.with_warm_up);
        totals.leave_out(&minor);
        let mut counted = Counted::new(&totals.time, counting.with_warm_up);
        counted.leave_out(&totals.time, &minor);
        let programs = Programs::new(capture.timeline(), files);
        let mut modules = Modules::new();
        add(&mut modules, 0, &totals, &counted);
        let devices = device_runtimes(capture, &totals.time, &counted);
        for (by, stacks) in &mut all {
            stacks.add_modules(&modules, &programs, *by);
            for device in &devices {
                stacks.add(vec![IDLE_INSIDE_FRAME.to_owned()], device.idle_inside_ns);
                stacks.add(vec![IDLE_BETWEEN_FRAME.to_owned()], device.idle_between_ns);
            }
            stacks.notes.extend(programs.problems());
            stacks.findings.extend(totals.time.findings.iter().cloned());
        }
    }
    all.map(|(_, stacks)| stacks)
}

impl Stacks {
    fn add_modules(&mut self, modules: &Modules, programs: &Programs<'_>, by: StacksBy) {
        for ((name, program_id), of_module) in modules {
            let module = programs.find(name, *program_id);
            let mut by_events = 0;
            for (operation, total) in &of_module.operations {
                let found = module.and_then(|module| Some((module, module.instruction(operation)?)));
                let facts = || programs.event_facts(*program_id, operation);
                let of_operation = match found {
                    Some((module, instruction)) => stacks_of(module, instruction, by),
                    None => BTreeSet::from([facts().and_then(|facts| stack_by_events(facts, by)).map_or_else(
                        || vec![UNKNOWN_FRAME.to_owned(), operation.clone()],
                        |stack| {
                            by_events += 1;
                            stack
                        },
                    )]),
                };
                let part = total.time.time_ns / of_operation.len().max(1) as f64;
                for stack in of_operation {
                    self.add([vec![ACTIVE.to_owned()], stack].concat(), part);
                }
            }
            if module.is_none() {
                let known = match (by_events, of_module.operations.len()) {
                    (0, _) => "its operations are unknown; give it with".to_owned(),
                    (some, all) => {
                        format!("the stacks of {some} of {all} operations are those of their events; give the HLO with")
                    }
                };
                self.notes.push(format!("no HLO of `{name}`: {known} `--hlo FILE`"));
            }
        }
    }

    fn add(&mut self, stack: Vec<String>, time_ns: f64) {
        *self.time_ns.entry(stack).or_default() += time_ns;
    }
}

/// The distinct stacks of an operation, never none.
fn stacks_of(module: &HloModule, instruction: &HloInstruction, by: StacksBy) -> BTreeSet<Vec<String>> {
    let parts = || std::iter::once(instruction).chain(inner(module, instruction));
    let named = || parts().filter(|part| !part.op_name().is_empty()).map(|part| part.op_name().to_owned());
    let unknown = || vec![UNKNOWN_FRAME.to_owned()];
    let mut stacks: BTreeSet<Vec<String>> = match by {
        StacksBy::Source => parts()
            .map(|part| (module.stack(part), part.op_name()))
            .filter(|(frames, _)| !frames.is_empty())
            .map(|(frames, op_name)| {
                let op_name = (!op_name.is_empty()).then(|| op_name.to_owned());
                shown(&frames).into_iter().map(frame).chain(op_name).collect()
            })
            .collect(),
        StacksBy::OpName => named().map(|name| name.split('/').map(str::to_owned).collect()).collect(),
    };
    if stacks.is_empty() && by == StacksBy::Source {
        stacks = named().map(|name| [unknown(), vec![name]].concat()).collect();
    }
    if stacks.is_empty() {
        stacks.insert(unknown());
    }
    stacks
}

/// The stack that an operation's events state: a line, and the scopes.
fn stack_by_events(facts: &EventFacts, by: StacksBy) -> Option<Vec<String>> {
    let op_name = (!facts.op_name.is_empty()).then(|| facts.op_name.clone());
    let stack: Vec<String> = match by {
        StacksBy::Source => {
            let line = facts.source.as_ref().map(|(file, line)| format!("{file}:{line}"));
            line.into_iter().chain(op_name).collect()
        }
        StacksBy::OpName => op_name?.split('/').map(str::to_owned).collect(),
    };
    (!stack.is_empty()).then_some(stack)
}

/// The frames of a stack without those of the Python package, which stand around each call of a tunable function.
fn shown<'f, 'm>(frames: &'f [Frame<'m>]) -> Vec<&'f Frame<'m>> {
    let theirs: Vec<&Frame<'m>> = frames.iter().filter(|frame| !frame.file.contains(OWN_PACKAGE)).collect();
    if theirs.is_empty() { frames.iter().collect() } else { theirs }
}

fn frame(frame: &Frame<'_>) -> String {
    let Frame { file, function, line, .. } = frame;
    if function.is_empty() { format!("{file}:{line}") } else { format!("{function} ({file}:{line})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_python_package_are_left_out_unless_there_are_no_others() {
        let at = |file: &'static str| {
            let mut frame = Frame::default();
            frame.file = file.into();
            frame
        };
        let files =
            |frames: &[Frame<'_>]| shown(frames).into_iter().map(|one| one.file.to_string()).collect::<Vec<_>>();
        let own = at("/env/lib/site-packages/autotune_lowered/tunables/tunable.py");
        let frames = [at("/src/step.py"), own.clone(), at("/src/autotune_lowered_kernels/attention.py")];
        assert_eq!(files(&frames), ["/src/step.py", "/src/autotune_lowered_kernels/attention.py"]);
        assert_eq!(files(std::slice::from_ref(&own)), [own.file.to_string()]);
    }
}
