//! Collectives, read from captures.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use crate::analysis::{Capture, HloFiles, Programs};
use crate::hlo::HloModule;
use crate::profile::{AUTOTUNER, EventFold, ExecutionOf, Layout, OperationEvent, fold_events};

use super::assembly::Assembly;
use super::gatherer::{Gatherer, Launch, OperationLookup, Plan};
use super::hiding::{AsyncPairs, EventKind, Hiding, Timed};
use super::instruction::Role;
use super::model::{Collectives, Communication, Device, Part, Parts, ReadParts};

/// The collectives of captures, one per host or process. The first execution of each program on a device is left out,
/// unless `with_warm_up`, or if there are only first executions; for captures of nsys-jax only if one of them has the
/// program's compilation, as nsys-jax does. The captures are read again for each pass.
pub fn collectives<'c>(captures: &'c [Capture], files: &'c HloFiles, with_warm_up: bool) -> Collectives<'c> {
    let programs: Vec<Programs<'c>> = captures.iter().map(|capture| Programs::new(capture.timeline(), files)).collect();
    let mut gatherer = Gatherer::default();
    let (mut unknown, mut joined) = (BTreeSet::new(), false);
    each_execution(captures, &programs, &mut |launch, ended, operation_lookup| {
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
    Collectives {
        devices: plan.devices.clone(),
        operations: plan.operations.clone(),
        skipped: plan.skipped,
        notes,
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

/// Gives the executions of programs of all captures as they end, except for those that XLA's autotuner ran.
fn each_execution(
    captures: &[Capture],
    programs: &[Programs<'_>],
    give: &mut dyn FnMut(&Launch<'_>, &CompletedExecution<'_>, OperationLookup<'_>),
) {
    let hosts: Vec<String> = captures.iter().map(Capture::host_or_path).collect();
    let folds: Vec<Executions<'_, '_>> =
        programs.iter().map(|programs| Executions { programs, known: Mutex::default() }).collect();
    let mut give = |capture: usize, place: u32, of: &ExecutionOf<'_>, ended: CompletedExecution<'_>| {
        let Some(start_ps) = ended.start_ps.filter(|_| of.program_id != Some(AUTOTUNER)) else { return };
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
    fold_events(&spaces, &mut |space, place, of, ended| {
        if let Some(&capture) = numbers.get(space) {
            give(capture, place, of, ended);
        }
    });
}

/// Takes the events of executions.
struct Executions<'p, 'c> {
    programs: &'p Programs<'c>,
    known: Mutex<HashMap<ProgramName, Arc<Program<'p>>>>,
}

/// A module's name and the program's id.
type ProgramName = (String, Option<i64>);

/// A program and its operations seen so far.
struct Program<'p> {
    module: Option<&'p HloModule>,
    operations: Mutex<HashMap<u32, Arc<Known>>>,
}

/// An operation.
struct Known {
    name: String,
    event_kind: EventKind,
    communication: Option<Communication>,
}

/// An execution in progress.
struct OpenExecution<'p> {
    program: Arc<Program<'p>>,
    event_kind: HashMap<u32, EventKind>,
    start_ps: Option<i64>,
    hiding: Hiding,
    /// On devices whose asynchronous operations are two events.
    async_pairs: Option<AsyncPairs>,
}

/// A completed execution.
struct CompletedExecution<'p> {
    program: Arc<Program<'p>>,
    start_ps: Option<i64>,
    collectives: Vec<Timed>,
    joined: bool,
}

impl Program<'_> {
    fn operations(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<Known>>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event_kind(&self, event: &OperationEvent<'_>) -> EventKind {
        let mut operations = self.operations();
        let known = operations.entry(event.number).or_insert_with(|| {
            let known = self.module.and_then(|module| Some((module, module.instruction(event.name)?)));
            let by_name = || Role::of_name(event.name);
            let role = known.map_or_else(by_name, |(module, instruction)| Role::of(module, instruction));
            let (event_kind, communication) = match role {
                Role::Communication(communication) => (EventKind::Communication(event.number), Some(communication)),
                Role::Compute => (EventKind::Computation, None),
                Role::Wait | Role::Control => (EventKind::Other, None),
            };
            Arc::new(Known { name: event.name.to_owned(), event_kind, communication })
        });
        known.event_kind
    }
}

impl<'p, 'c> EventFold for Executions<'p, 'c> {
    type Open = OpenExecution<'p>;
    type Done = CompletedExecution<'p>;

    fn open(&self, of: &ExecutionOf<'_>) -> OpenExecution<'p> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let program = known.entry((of.module.to_owned(), of.program_id)).or_insert_with(|| {
            Arc::new(Program { module: self.programs.find(of.module, of.program_id), operations: Mutex::default() })
        });
        OpenExecution {
            program: Arc::clone(program),
            event_kind: HashMap::new(),
            start_ps: None,
            hiding: Hiding::default(),
            async_pairs: (of.layout == Layout::ModuleLines).then(AsyncPairs::default),
        }
    }

    fn add(&self, open: &mut OpenExecution<'p>, event: OperationEvent<'_>) {
        let OpenExecution { program, event_kind, start_ps, hiding, async_pairs } = open;
        start_ps.get_or_insert(event.time.start_ps);
        let event_kind = *event_kind.entry(event.number).or_insert_with(|| program.event_kind(&event));
        match async_pairs {
            Some(async_pairs) => async_pairs.add(event.name, event_kind, event.time, hiding),
            None => hiding.add(event_kind, event.time),
        }
    }

    fn close(&self, mut open: OpenExecution<'p>) -> CompletedExecution<'p> {
        if let Some(async_pairs) = &mut open.async_pairs {
            async_pairs.finish(&mut open.hiding);
        }
        let joined = open.async_pairs.is_some_and(|async_pairs| async_pairs.joined);
        CompletedExecution { program: open.program, start_ps: open.start_ps, collectives: open.hiding.finish(), joined }
    }
}
