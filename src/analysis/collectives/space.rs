//! Collectives of XSpace captures.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use crate::analysis::{HloFiles, Programs};
use crate::hlo::HloModule;
use crate::profile::{Capture, EventFold, ExecutionOf, Layout, OperationEvent, fold_events};

use super::gatherer::{Gatherer, Launch};
use super::hiding::{Doing, Halves, Hiding, Timed};
use super::instruction::Role;
use super::model::{Collectives, Communication, Device};

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
        let fold = Executions { programs: &programs, known: Mutex::default() };
        fold_events(&capture.space, &fold, &mut |place, of, ended| {
            let Some(start_ps) = ended.start_ps.filter(|_| of.program_id != Some(AUTOTUNER)) else { return };
            if ended.program.module.is_none() && !ended.collectives.is_empty() {
                unknown.insert(of.module.to_owned());
            }
            joined |= ended.joined;
            let launch = Launch {
                capture: number,
                device: Device { host: host.clone(), ordinal: of.device.unwrap_or(0) },
                module: of.module,
                program_id: of.program_id,
                run_id: of.run_id,
                start_ps,
                place,
            };
            let operations = ended.program.operations();
            gatherer.add(&launch, &ended.collectives, &|operation| {
                let known = operations.get(&operation)?;
                Some((known.name.as_str(), known.communication.as_ref()?))
            });
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

/// Takes the events of executions.
struct Executions<'p> {
    programs: &'p Programs<'p>,
    known: Mutex<HashMap<ProgramName, Arc<Program<'p>>>>,
}

/// A module's name and the program's id.
type ProgramName = (String, Option<i64>);

/// A program, and what its operations are, as far as they came.
struct Program<'p> {
    module: Option<&'p HloModule<'p>>,
    operations: Mutex<HashMap<u32, Arc<Known>>>,
}

/// An operation.
struct Known {
    name: String,
    doing: Doing,
    communication: Option<Communication>,
}

/// An execution under way.
struct Open<'p> {
    program: Arc<Program<'p>>,
    doing: HashMap<u32, Doing>,
    start_ps: Option<i64>,
    hiding: Hiding,
    /// On devices whose asynchronous operations are two events.
    halves: Option<Halves>,
}

/// An execution that is over.
struct Ended<'p> {
    program: Arc<Program<'p>>,
    start_ps: Option<i64>,
    collectives: Vec<Timed>,
    joined: bool,
}

impl Program<'_> {
    fn operations(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<Known>>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doing(&self, event: &OperationEvent<'_>) -> Doing {
        let mut operations = self.operations();
        let known = operations.entry(event.number).or_insert_with(|| {
            let known = self.module.and_then(|module| Some((module, module.instruction(event.name)?)));
            let by_name = || Role::of_name(event.name);
            let role = known.map_or_else(by_name, |(module, instruction)| Role::of(module, instruction));
            let (doing, communication) = match role {
                Role::Communication(communication) => (Doing::Communication(event.number), Some(communication)),
                Role::Compute => (Doing::Computation, None),
                Role::Wait | Role::Control => (Doing::Other, None),
            };
            Arc::new(Known { name: event.name.to_owned(), doing, communication })
        });
        known.doing
    }
}

impl<'p> EventFold for Executions<'p> {
    type Open = Open<'p>;
    type Done = Ended<'p>;

    fn open(&self, of: &ExecutionOf<'_>) -> Open<'p> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let program = known.entry((of.module.to_owned(), of.program_id)).or_insert_with(|| {
            Arc::new(Program { module: self.programs.find(of.module, of.program_id), operations: Mutex::default() })
        });
        Open {
            program: Arc::clone(program),
            doing: HashMap::new(),
            start_ps: None,
            hiding: Hiding::default(),
            halves: (of.layout == Layout::ModuleLines).then(Halves::default),
        }
    }

    fn add(&self, open: &mut Open<'p>, event: OperationEvent<'_>) {
        let Open { program, doing, start_ps, hiding, halves } = open;
        start_ps.get_or_insert(event.time.start_ps);
        let doing = *doing.entry(event.number).or_insert_with(|| program.doing(&event));
        match halves {
            Some(halves) => halves.add(event.name, doing, event.time, hiding),
            None => hiding.add(doing, event.time),
        }
    }

    fn close(&self, mut open: Open<'p>) -> Ended<'p> {
        if let Some(halves) = &mut open.halves {
            halves.finish(&mut open.hiding);
        }
        let joined = open.halves.is_some_and(|halves| halves.joined);
        Ended { program: open.program, start_ps: open.start_ps, collectives: open.hiding.finish(), joined }
    }
}
