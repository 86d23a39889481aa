//! From executions, as they come, to the parts of collectives: operations and launches are numbered.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::hiding::Timed;
use super::model::{Collectives, Communication, Device, Operation, Part};

/// An execution of a program on a device.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    /// Which profile it is from.
    pub(super) capture: usize,
    pub(super) device: Device,
    pub(super) module: &'a str,
    pub(super) program_id: Option<i64>,
    /// Shared by the devices of a launch.
    pub(super) run_id: Option<i64>,
    pub(super) start_ps: i64,
    /// Its place among the executions of its profile, in the profile's order.
    pub(super) place: u32,
}

/// A program as one profile names it.
type Program = (usize, String, Option<i64>);

struct Seen {
    program: usize,
    device: u32,
    run_id: Option<i64>,
    start_ps: i64,
    place: (usize, u32),
    /// Where its parts end; they begin where those of the one before it do.
    parts_end: usize,
}

/// An operation, with the place of its program.
struct Found {
    program: usize,
    operation: Operation,
    /// The first execution that it came in, and its place there.
    first: ((usize, u32), usize),
}

/// Takes executions and gives [`Collectives`].
#[derive(Default)]
pub(super) struct Gatherer {
    programs: Vec<Program>,
    devices: Vec<Device>,
    operations: Vec<Found>,
    places: HashMap<(usize, String), u32>,
    parts: Vec<Part>,
    seen: Vec<Seen>,
}

impl Gatherer {
    /// Adds an execution with its collectives by start; `about` tells what is known of an operation.
    pub(super) fn add<'n>(
        &mut self,
        launch: &Launch<'_>,
        collectives: &[Timed],
        about: &dyn Fn(u32) -> Option<(&'n str, &'n Communication)>,
    ) {
        let program = (launch.capture, launch.module.to_owned(), launch.program_id);
        let program = place_of(&mut self.programs, program);
        let device = place_of(&mut self.devices, launch.device.clone()) as u32;
        let place = (launch.capture, launch.place);
        let mut occurrences: HashMap<u32, u32> = HashMap::new();
        for (number, timed) in collectives.iter().enumerate() {
            let Some((name, communication)) = about(timed.operation) else { continue };
            let operations = &mut self.operations;
            let operation = *self.places.entry((program, name.to_owned())).or_insert_with(|| {
                let operation = Operation {
                    module: launch.module.to_owned(),
                    program_id: launch.program_id,
                    name: name.to_owned(),
                    communication: communication.clone(),
                };
                operations.push(Found { program, operation, first: (place, number) });
                (operations.len() - 1) as u32
            });
            if let Some(found) = operations.get_mut(operation as usize) {
                found.first = found.first.min((place, number));
            }
            let occurrence = occurrences.entry(operation).or_default();
            self.parts.push(Part {
                operation,
                device,
                execution: 0,
                occurrence: *occurrence,
                start_ps: timed.time.start_ps,
                end_ps: timed.time.end_ps,
                hidden_ps: timed.hidden_ps,
                overlaps_ps: timed.overlaps_ps,
            });
            *occurrence += 1;
        }
        let parts_end = self.parts.len();
        self.seen.push(Seen { program, device, run_id: launch.run_id, start_ps: launch.start_ps, place, parts_end });
    }

    /// Numbers the launches. The first execution on a device of a program for which `has_warm_up` says so is left out,
    /// unless there is no other execution at all.
    pub(super) fn finish(mut self, has_warm_up: &dyn Fn(&str, Option<i64>) -> bool) -> Collectives {
        self.order_operations();
        let merged = self.merge_programs();
        let mut of_program: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, seen) in self.seen.iter().enumerate() {
            of_program.entry(merged.get(seen.program).copied().unwrap_or(seen.program)).or_default().push(number);
        }
        // each with the number of its launch
        let mut later: Vec<(usize, u64)> = Vec::new();
        let mut first: Vec<(usize, u64)> = Vec::new();
        let mut by_order = false;
        for (program, mut launches) in of_program {
            launches.sort_by_key(|&number| self.seen.get(number).map(|seen| (seen.device, seen.start_ps, seen.place)));
            let warms = self.programs.get(program).is_some_and(|(_, module, id)| has_warm_up(module, *id));
            let runs = self.runs(&launches);
            let devices: BTreeSet<u32> = launches.iter().filter_map(|&n| Some(self.seen.get(n)?.device)).collect();
            by_order |= runs.is_none() && devices.len() > 1;
            let (mut last, mut order) = (None, 0);
            for number in launches {
                let Some(seen) = self.seen.get(number) else { continue };
                order = if last == Some(seen.device) { order + 1 } else { 0 };
                last = Some(seen.device);
                let launch = runs.as_ref().zip(seen.run_id).and_then(|(runs, run)| runs.get(&run).copied());
                let list = if warms && order == 0 { &mut first } else { &mut later };
                list.push((number, launch.unwrap_or(order)));
            }
        }
        let mut collectives = Collectives::default();
        if later.is_empty() && !first.is_empty() {
            collectives.notes.push("only first executions are there, and they count".to_owned());
            std::mem::swap(&mut later, &mut first);
        }
        collectives.left_out = first.len() as u64;
        if by_order {
            let note = "executions of different devices are matched by their order, since no run id tells which belong together";
            collectives.notes.push(note.to_owned());
        }
        collectives.parts = self.parts_of(&later);
        // hosts and devices in order, whatever the profile's was
        let mut order: Vec<usize> = (0..self.devices.len()).collect();
        order.sort_by_key(|&place| self.devices.get(place));
        let mut places = vec![0; order.len()];
        for (place, &number) in order.iter().enumerate() {
            if let Some(slot) = places.get_mut(number) {
                *slot = place as u32;
            }
        }
        for part in &mut collectives.parts {
            part.device = places.get(part.device as usize).copied().unwrap_or(part.device);
        }
        self.devices.sort();
        collectives.devices = self.devices;
        collectives.operations = self.operations.into_iter().map(|found| found.operation).collect();
        collectives
    }

    /// The parts of these executions, each with the number of its launch.
    fn parts_of(&mut self, executions: &[(usize, u64)]) -> Vec<Part> {
        let mut launches: Vec<Option<u64>> = vec![None; self.seen.len()];
        for &(number, launch) in executions {
            if let Some(slot) = launches.get_mut(number) {
                *slot = Some(launch);
            }
        }
        let mut parts = std::mem::take(&mut self.parts);
        let (mut place, mut of) = (0, 0);
        parts.retain_mut(|part| {
            while self.seen.get(of).is_some_and(|seen| seen.parts_end <= place) {
                of += 1;
            }
            place += 1;
            let launch = launches.get(of).copied().flatten();
            part.execution = launch.unwrap_or(0);
            launch.is_some()
        });
        parts
    }

    /// Puts operations in the profiles' order, whatever the order in which executions came to their end.
    fn order_operations(&mut self) {
        let mut order: Vec<u32> = (0..self.operations.len() as u32).collect();
        order.sort_by_key(|&number| self.operations.get(number as usize).map(|found| found.first));
        let mut places = vec![0; order.len()];
        for (place, &number) in (0..).zip(&order) {
            if let Some(slot) = places.get_mut(number as usize) {
                *slot = place;
            }
        }
        for part in &mut self.parts {
            part.operation = places.get(part.operation as usize).copied().unwrap_or(part.operation);
        }
        self.operations.sort_by_key(|found| found.first);
    }

    /// Programs of several profiles that are one: of the same name, and by their ids the same among those of that name.
    /// Gives each program the first that is the same, and their operations one place.
    fn merge_programs(&mut self) -> Vec<usize> {
        let mut ranks: BTreeMap<(usize, &str), BTreeMap<Option<i64>, usize>> = BTreeMap::new();
        for (number, (capture, module, id)) in self.programs.iter().enumerate() {
            ranks.entry((*capture, module)).or_default().insert(*id, number);
        }
        let mut first: HashMap<(&str, usize), usize> = HashMap::new();
        let mut merged: Vec<usize> = (0..self.programs.len()).collect();
        for ((_, module), programs) in &ranks {
            for (rank, &number) in programs.values().enumerate() {
                if let Some(slot) = merged.get_mut(number) {
                    *slot = *first.entry((module, rank)).or_insert(number);
                }
            }
        }
        let mut places: HashMap<(usize, &str), u32> = HashMap::new();
        let mut same: Vec<u32> = Vec::with_capacity(self.operations.len());
        for (number, found) in self.operations.iter().enumerate() {
            let program = merged.get(found.program).copied().unwrap_or(found.program);
            same.push(*places.entry((program, &found.operation.name)).or_insert(number as u32));
        }
        for part in &mut self.parts {
            part.operation = same.get(part.operation as usize).copied().unwrap_or(part.operation);
        }
        merged
    }

    /// Numbers by run id, by first start: where every launch has one, and profiles of several processes share them.
    fn runs(&self, launches: &[usize]) -> Option<HashMap<i64, u64>> {
        let mut firsts: BTreeMap<i64, (i64, BTreeSet<usize>)> = BTreeMap::new();
        let mut captures = BTreeSet::new();
        for &number in launches {
            let seen = self.seen.get(number)?;
            let capture = self.programs.get(seen.program)?.0;
            captures.insert(capture);
            let entry = firsts.entry(seen.run_id?).or_insert_with(|| (seen.start_ps, BTreeSet::new()));
            entry.0 = entry.0.min(seen.start_ps);
            entry.1.insert(capture);
        }
        if captures.len() > 1 && !firsts.values().any(|(_, captures)| captures.len() > 1) {
            return None;
        }
        let mut order: Vec<(i64, i64)> = firsts.iter().map(|(run, (start, _))| (*start, *run)).collect();
        order.sort_unstable();
        Some(order.into_iter().map(|(_, run)| run).zip(0..).collect())
    }
}

fn place_of<T: PartialEq>(list: &mut Vec<T>, wanted: T) -> usize {
    list.iter().position(|one| *one == wanted).unwrap_or_else(|| {
        list.push(wanted);
        list.len() - 1
    })
}
