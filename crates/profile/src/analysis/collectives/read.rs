//! Collectives, read from captures.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use crate::analysis::outside::NAMES_HINT;
use crate::analysis::{Capture, HloFiles, Programs};
use crate::counted::counted;
use crate::hlo::HloModule;
use crate::profile::{AUTOTUNER, EventFold, ExecutionOf, Layout, OperationEvent, OutsideTime, fold_events};

use super::assembly::Assembly;
use super::gatherer::{Gatherer, Launch, OperationLookup, Plan};
use super::halves::{AsyncPairs, Half};
use super::hiding::{EventKind, Hiding, Timed};
use super::instruction::Role;
use super::kind::CollectiveKind;
use super::model::{Collectives, Communication, CommunicationKernel, Device, Part, Parts, ReadParts};

/// The collectives of captures, one per host or process. The first execution of each program on a device is left out,
/// unless `with_warm_up`, or if there are only first executions; for captures of nsys-jax only if one of them has the
/// program's compilation, as nsys-jax does. The captures are read again for each pass.
pub fn collectives<'c>(captures: &'c [Capture], files: &'c HloFiles, with_warm_up: bool) -> Collectives<'c> {
    let programs: Vec<Programs<'c>> = captures.iter().map(|capture| Programs::new(capture.timeline(), files)).collect();
    let mut gatherer = Gatherer::default();
    let (mut unknown, mut joined) = (BTreeSet::new(), false);
    let outside = each_execution(captures, &programs, &mut |launch, ended, operation_lookup| {
        if ended.program.module.is_none() && !ended.collectives.is_empty() {
            unknown.insert(launch.module.to_owned());
        }
        joined |= ended.joined;
        gatherer.add(launch, &ended.collectives, operation_lookup);
    });
    let has_warm_up = |module: &str, id: Option<i64>| captures.iter().any(|capture| capture.has_warm_up(module, id));
    let mut plan = gatherer.finish(&|module, id| !with_warm_up && has_warm_up(module, id));
    let mut notes = std::mem::take(&mut plan.notes);
    notes.extend(captures.iter().flat_map(Capture::import_findings).map(ToString::to_string));
    notes.extend(programs.iter().flat_map(Programs::problems));
    notes.extend(unknown.into_iter().map(|module| {
        format!(
            "no HLO of `{module}`: its collectives are recognized by name and have no message size; give it with \
                 --hlo"
        )
    }));
    if joined {
        notes.push(
            "asynchronous collectives last from their start to the end of their `done`, so bandwidth is a lower bound"
                .to_owned(),
        );
    }
    if plan.operations.is_empty() && outside.on_streams {
        notes.push(format!(
            "kernels are recognized by their HLO names, or by those of NCCL, RCCL and NVSHMEM{}: {NAMES_HINT}",
            outside.others()
        ));
    }
    if !outside.kernels.is_empty() {
        let events: u64 = outside.kernels.iter().map(|kernel| kernel.time.count).sum();
        notes.push(format!(
            "{} in no program: each event is an instance of its own, with first executions, because nothing says \
             which belong together; {NAMES_HINT}",
            counted(events, "communication kernel")
        ));
    }
    Collectives {
        devices: plan.devices.clone(),
        operations: plan.operations.clone(),
        skipped: plan.skipped,
        notes,
        outside: outside.kernels,
        parts: Parts::read(Reader { captures, programs, plan }),
    }
}

/// Captures and their plan.
struct Reader<'c> {
    captures: &'c [Capture],
    programs: Vec<Programs<'c>>,
    plan: Plan,
}

impl ReadParts for Reader<'_> {
    fn each_launch(&self, give: &mut dyn FnMut(Vec<Part>)) {
        let mut assembly = Assembly::new(&self.plan);
        each_execution(self.captures, &self.programs, &mut |launch, ended, operation_lookup| {
            assembly.add(launch, &ended.collectives, operation_lookup, give);
        });
    }
}

/// What ran outside every execution.
#[derive(Default)]
struct Outside {
    kernels: Vec<CommunicationKernel>,
    /// All other work.
    others: OutsideTime,
    /// Whether anything ran on a GPU's streams, in an execution or not.
    on_streams: bool,
}

impl Outside {
    /// How much of it may be communication, in words.
    fn others(&self) -> String {
        let OutsideTime { count, total_ps, .. } = self.others;
        let events = || format!(" ({} of {:.3} ms name no module)", counted(count, "event"), total_ps as f64 / 1e9);
        if count > 0 { events() } else { String::new() }
    }
}

/// Gives the executions of programs of all captures as they end, except for those that XLA's autotuner ran. Returns the
/// communication outside them.
fn each_execution(
    captures: &[Capture],
    programs: &[Programs<'_>],
    give: &mut dyn FnMut(&Launch<'_>, &CompletedExecution<'_, '_>, OperationLookup<'_>),
) -> Outside {
    let mut found = Outside::default();
    let hosts: Vec<String> = captures.iter().map(Capture::host_or_path).collect();
    let folds: Vec<Executions<'_, '_>> =
        programs.iter().map(|programs| Executions { programs, known: Mutex::default() }).collect();
    let mut give = |capture: usize, place: u32, of: &ExecutionOf<'_>, ended: CompletedExecution<'_, '_>| {
        let Some(start_ps) = ended.start_ps.filter(|_| of.program_id != Some(AUTOTUNER)) else { return };
        found.on_streams |= of.layout == Layout::DeviceStreams;
        let launch = Launch {
            capture,
            device: Device { host: hosts.get(capture).cloned().unwrap_or_default(), ordinal: of.device.unwrap_or(0) },
            module: of.module,
            program_id: of.program_id,
            run_id: of.run_id,
            start_ps,
            place,
        };
        let operations = ended.program.operations();
        give(&launch, &ended, &|operation| {
            let known = operations.get(&operation)?;
            Some((known.name.as_str(), known.communication.as_ref()?))
        });
    };
    let mut spaces = Vec::new();
    for ((number, capture), fold) in captures.iter().enumerate().zip(&folds) {
        match capture {
            Capture::XSpace(capture) => spaces.push((number, (&capture.space, fold))),
            Capture::Nsys(profile) => {
                profile.fold_events(fold, &mut |place, of, ended| give(number, place, of, ended));
            }
        }
    }
    let (numbers, spaces): (Vec<usize>, Vec<_>) = spaces.into_iter().unzip();
    let outside = fold_events(&spaces, &mut |space, place, of, ended| {
        if let Some(&capture) = numbers.get(space) {
            give(capture, place, of, ended);
        }
    });
    found.on_streams |= outside.iter().any(|kernels| !kernels.is_empty());
    for (name, kernel) in outside.into_iter().flatten() {
        match CollectiveKind::of_kernel(&name) {
            Some(kind) => found.kernels.push(CommunicationKernel { name: name.into(), kind, time: kernel.time }),
            None => found.others.add(kernel.time),
        }
    }
    found
}

/// Takes the events of executions.
struct Executions<'p, 'c> {
    programs: &'p Programs<'c>,
    known: Mutex<HashMap<ProgramName, Arc<Program<'p, 'c>>>>,
}

/// A module's name and the program's id.
type ProgramName = (String, Option<i64>);

/// A program and its operations seen so far.
struct Program<'p, 'c> {
    programs: &'p Programs<'c>,
    module: Option<&'p HloModule>,
    program_id: Option<i64>,
    operations: Mutex<HashMap<u32, Arc<Known>>>,
}

/// An operation.
struct Known {
    name: String,
    event_kind: EventKind,
    half: Half,
    communication: Option<Communication>,
}

/// An execution in progress.
struct OpenExecution<'p, 'c> {
    program: Arc<Program<'p, 'c>>,
    known: HashMap<u32, Arc<Known>>,
    start_ps: Option<i64>,
    hiding: Hiding,
    /// On devices whose asynchronous operations are two events.
    async_pairs: Option<AsyncPairs>,
}

/// A completed execution.
struct CompletedExecution<'p, 'c> {
    program: Arc<Program<'p, 'c>>,
    start_ps: Option<i64>,
    collectives: Vec<Timed>,
    joined: bool,
}

impl Program<'_, '_> {
    fn operations(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<Known>>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, event: &OperationEvent<'_>) -> Arc<Known> {
        let mut operations = self.operations();
        let known = operations.entry(event.number).or_insert_with(|| {
            let instruction = self.module.and_then(|module| Some((module, module.instruction(event.name)?)));
            let (role, half) = match instruction {
                Some((module, instruction)) => (Role::of(module, instruction), Half::of(module, instruction)),
                None => self.by_event(event.name),
            };
            let (event_kind, communication) = match role {
                Role::Communication(communication) => (EventKind::Communication(event.number), Some(communication)),
                Role::Compute => (EventKind::Computation, None),
                Role::Wait | Role::Control => (EventKind::Other, None),
            };
            Arc::new(Known { name: event.name.to_owned(), event_kind, half, communication })
        });
        Arc::clone(known)
    }

    /// By what the events say, and else by the name.
    fn by_event(&self, name: &str) -> (Role, Half) {
        let facts = self.programs.event_facts(self.program_id, name);
        let half = match Half::of_opcode(facts.map_or("", |facts| &facts.opcode)) {
            Half::Whole => Half::of_opcode(name.split('.').next().unwrap_or_default()),
            half => half,
        };
        (Role::of_event(name, facts), half)
    }
}

impl<'p, 'c> EventFold for Executions<'p, 'c> {
    type Open = OpenExecution<'p, 'c>;
    type Done = CompletedExecution<'p, 'c>;

    fn open(&self, of: &ExecutionOf<'_>) -> OpenExecution<'p, 'c> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let program = known.entry((of.module.to_owned(), of.program_id)).or_insert_with(|| {
            let (programs, program_id) = (self.programs, of.program_id);
            let module = programs.find(of.module, program_id);
            Arc::new(Program { programs, module, program_id, operations: Mutex::default() })
        });
        OpenExecution {
            program: Arc::clone(program),
            known: HashMap::new(),
            start_ps: None,
            hiding: Hiding::default(),
            async_pairs: (of.layout == Layout::ModuleLines).then(AsyncPairs::default),
        }
    }

    fn add(&self, open: &mut OpenExecution<'p, 'c>, event: OperationEvent<'_>) {
        let OpenExecution { program, known, start_ps, hiding, async_pairs } = open;
        start_ps.get_or_insert(event.time.start_ps);
        let Known { event_kind, half, .. } = &**known.entry(event.number).or_insert_with(|| program.known(&event));
        match async_pairs {
            Some(async_pairs) => async_pairs.add((event.name, half), *event_kind, event.time, hiding),
            None => hiding.add(*event_kind, event.time),
        }
    }

    fn close(&self, mut open: OpenExecution<'p, 'c>) -> CompletedExecution<'p, 'c> {
        if let Some(async_pairs) = &mut open.async_pairs {
            async_pairs.finish(&mut open.hiding);
        }
        let joined = open.async_pairs.is_some_and(|async_pairs| async_pairs.joined);
        CompletedExecution { program: open.program, start_ps: open.start_ps, collectives: open.hiding.finish(), joined }
    }
}
