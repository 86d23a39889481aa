//! The first pass over the executions: which programs, devices and operations there are, and which executions belong to
//! one launch.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::hiding::Timed;
use super::model::{Communication, Device, Operation};

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
    /// Its index among the executions of its profile, in the profile's order; consecutive ones may share one.
    pub(super) place: u32,
}

/// Name of an operation, and what is known about it, by its number.
pub(super) type OperationLookup<'a> = &'a dyn Fn(u32) -> Option<(&'a str, &'a Communication)>;

/// A program as one profile names it.
type Program = (usize, String, Option<i64>);

struct SeenExecution {
    program: u32,
    device: u32,
    run_id: Option<i64>,
    start_ps: i64,
    place: (u32, u32),
}

/// An operation, with the place of its program.
struct Found {
    program: usize,
    operation: Operation,
    /// The first execution that it occurred in, and its index there.
    first: ((u32, u32), usize),
}

/// Takes executions and returns a [`Plan`].
#[derive(Default)]
pub(super) struct Gatherer {
    programs: Vec<Program>,
    program_places: HashMap<Program, usize>,
    devices: Vec<Device>,
    operations: Vec<Found>,
    places: HashMap<(usize, String), usize>,
    seen: Vec<SeenExecution>,
}

/// Where an execution belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    /// Its program; the same program in several profiles has one number.
    pub(super) program: u32,
    /// Its launch among those of the program, at most as many as executions.
    pub(super) launch: u32,
    pub(super) device: u32,
    /// Whether it is left out.
    pub(super) is_skipped: bool,
}

/// Where all of them belong.
#[derive(Debug, Default)]
pub(super) struct Placements {
    /// By profile and index there, the first that arrives; `None` if there is none.
    first: Vec<Vec<Option<Placed>>>,
    /// Those after it, if several share an index, in the order in which they arrive.
    later: HashMap<(usize, u32), Vec<Placed>>,
}

impl Placements {
    fn add(&mut self, (capture, place): (usize, u32), placed: Option<Placed>) {
        self.first.resize_with(self.first.len().max(capture + 1), Vec::new);
        let Some(of_capture) = self.first.get_mut(capture) else { return };
        of_capture.resize(of_capture.len().max(place as usize + 1), None);
        match of_capture.get_mut(place as usize) {
            Some(slot) if slot.is_none() => *slot = placed,
            _ => self.later.entry((capture, place)).or_default().extend(placed),
        }
    }

    /// The placement of the next one to arrive for an index; `come` counts the arrivals for shared indices.
    pub(super) fn next(&self, at: (usize, u32), come: &mut HashMap<(usize, u32), usize>) -> Option<Placed> {
        let first = *self.first.get(at.0)?.get(at.1 as usize)?;
        let Some(later) = self.later.get(&at) else { return first };
        let come = come.entry(at).or_default();
        *come += 1;
        if *come == 1 { first } else { later.get(*come - 2).copied() }
    }
}

/// The programs, devices and operations of the executions.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) devices: Vec<Device>,
    pub(super) operations: Vec<Operation>,
    /// Places in `operations`, by program and name.
    pub(super) places: HashMap<u32, HashMap<String, u32>>,
    pub(super) executions: Placements,
    /// By program and launch, how many devices are expected.
    pub(super) awaited: Vec<Vec<u32>>,
    pub(super) skipped: u64,
    pub(super) notes: Vec<String>,
}

impl Gatherer {
    /// Adds an execution with its collectives by start.
    pub(super) fn add(&mut self, launch: &Launch<'_>, collectives: &[Timed], operation_lookup: OperationLookup<'_>) {
        let program = (launch.capture, launch.module.to_owned(), launch.program_id);
        let next = self.programs.len();
        let program = *self.program_places.entry(program).or_insert_with_key(|program| {
            self.programs.push(program.clone());
            next
        });
        let device = place_of(&mut self.devices, &launch.device) as u32;
        let place = (launch.capture as u32, launch.place);
        for (number, timed) in collectives.iter().enumerate() {
            let Some((name, communication)) = operation_lookup(timed.operation) else { continue };
            let operations = &mut self.operations;
            let operation = *self.places.entry((program, name.to_owned())).or_insert_with(|| {
                let operation = Operation {
                    module: launch.module.to_owned(),
                    program_id: launch.program_id,
                    name: name.to_owned(),
                    communication: communication.clone(),
                };
                operations.push(Found { program, operation, first: (place, number) });
                operations.len() - 1
            });
            if let Some(found) = operations.get_mut(operation) {
                found.first = found.first.min((place, number));
            }
        }
        self.seen.push(SeenExecution {
            program: program as u32,
            device,
            run_id: launch.run_id,
            start_ps: launch.start_ps,
            place,
        });
    }

    /// Numbers the launches. The first execution on a device of a program for which `has_warm_up` says so is left out,
    /// unless there is no other execution at all.
    pub(super) fn finish(mut self, has_warm_up: &dyn Fn(&str, Option<i64>) -> bool) -> Plan {
        let merged = self.merged_programs();
        let devices = self.order_devices();
        let mut of_program: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (number, seen) in self.seen.iter().enumerate() {
            let program = seen.program as usize;
            of_program.entry(merged.get(program).copied().unwrap_or(program)).or_default().push(number as u32);
        }
        let mut placed: Vec<Option<Placed>> = vec![None; self.seen.len()];
        let (mut skipped, mut by_order) = (0, false);
        for (program, mut launches) in of_program {
            launches.sort_by_key(|&number| self.of(number).map(|seen| (seen.device, seen.start_ps, seen.place)));
            let warms = self.programs.get(program).is_some_and(|(_, module, id)| has_warm_up(module, *id));
            let runs = self.runs(&launches);
            let on: BTreeSet<u32> = launches.iter().filter_map(|&number| Some(self.of(number)?.device)).collect();
            by_order |= runs.is_none() && on.len() > 1;
            let (mut last, mut order) = (None, 0);
            for number in launches {
                let (Some(seen), Some(slot)) = (self.of(number), placed.get_mut(number as usize)) else { continue };
                order = if last == Some(seen.device) { order + 1 } else { 0 };
                last = Some(seen.device);
                let launch = runs.as_ref().zip(seen.run_id).and_then(|(runs, run)| runs.get(&run).copied());
                let device = devices.get(seen.device as usize).copied().unwrap_or(seen.device);
                let is_skipped = warms && order == 0;
                skipped += u64::from(is_skipped);
                let (program, launch) = (program as u32, launch.unwrap_or(order));
                *slot = Some(Placed { program, launch, device, is_skipped });
            }
        }
        let mut notes = Vec::new();
        if skipped == self.seen.len() as u64 && skipped > 0 {
            notes.push("there are only first executions, so they count".to_owned());
            placed.iter_mut().flatten().for_each(|placed| placed.is_skipped = false);
            skipped = 0;
        }
        if by_order {
            let note = "executions of different devices are matched by their order, because there is no run id";
            notes.push(note.to_owned());
        }
        let (operations, places) = self.operations_of(&merged);
        let awaited = awaited(self.programs.len(), &placed);
        let mut executions = Placements::default();
        for (seen, placed) in self.seen.iter().zip(placed) {
            executions.add((seen.place.0 as usize, seen.place.1), placed);
        }
        Plan { devices: self.devices, operations, places, executions, awaited, skipped, notes }
    }

    fn of(&self, number: u32) -> Option<&SeenExecution> {
        self.seen.get(number as usize)
    }

    /// Sorts hosts and devices, independent of the profile's order; returns the new indices.
    fn order_devices(&mut self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.devices.len()).collect();
        order.sort_by_key(|&place| self.devices.get(place));
        let mut places = vec![0; order.len()];
        for (place, &number) in (0..).zip(&order) {
            if let Some(slot) = places.get_mut(number) {
                *slot = place;
            }
        }
        self.devices.sort();
        places
    }

    /// The operations in the profiles' order, independent of the order in which executions ended, and their indices.
    /// One that several profiles have belongs to the first.
    fn operations_of(&mut self, merged: &[usize]) -> (Vec<Operation>, HashMap<u32, HashMap<String, u32>>) {
        let mut found = std::mem::take(&mut self.operations);
        found.sort_by_key(|found| found.first);
        let mut operations = Vec::new();
        let mut places: HashMap<u32, HashMap<String, u32>> = HashMap::new();
        for Found { program, operation, .. } in found {
            let program = merged.get(program).copied().unwrap_or(program) as u32;
            places.entry(program).or_default().entry(operation.name.clone()).or_insert_with(|| {
                operations.push(operation);
                (operations.len() - 1) as u32
            });
        }
        (operations, places)
    }

    /// Identifies the same programs in several profiles: those with the same name, and the same position by id among
    /// those of that name. Returns the first equal program for each.
    fn merged_programs(&self) -> Vec<usize> {
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
        merged
    }

    /// Numbers by run id, in order of first start, if every launch has one and profiles of several processes share
    /// them.
    fn runs(&self, launches: &[u32]) -> Option<HashMap<i64, u32>> {
        // first start, a profile, and whether there is another
        let mut firsts: BTreeMap<i64, (i64, usize, bool)> = BTreeMap::new();
        let mut captures = BTreeSet::new();
        for &number in launches {
            let seen = self.of(number)?;
            let capture = self.programs.get(seen.program as usize)?.0;
            captures.insert(capture);
            let entry = firsts.entry(seen.run_id?).or_insert((seen.start_ps, capture, false));
            entry.0 = entry.0.min(seen.start_ps);
            entry.2 |= entry.1 != capture;
        }
        if captures.len() > 1 && !firsts.values().any(|(_, _, is_shared)| *is_shared) {
            return None;
        }
        let mut order: Vec<(i64, i64)> = firsts.iter().map(|(run, (start, ..))| (*start, *run)).collect();
        order.sort_unstable();
        Some(order.into_iter().map(|(_, run)| run).zip(0..).collect())
    }
}

/// By program and launch, how many executions of it count.
fn awaited(programs: usize, placed: &[Option<Placed>]) -> Vec<Vec<u32>> {
    let mut awaited: Vec<Vec<u32>> = vec![Vec::new(); programs];
    for placed in placed.iter().flatten().filter(|placed| !placed.is_skipped) {
        let Some(launches) = awaited.get_mut(placed.program as usize) else { continue };
        let launch = placed.launch as usize;
        launches.resize(launches.len().max(launch + 1), 0);
        if let Some(count) = launches.get_mut(launch) {
            *count += 1;
        }
    }
    awaited
}

fn place_of<T: PartialEq + Clone>(list: &mut Vec<T>, wanted: &T) -> usize {
    list.iter().position(|one| one == wanted).unwrap_or_else(|| {
        list.push(wanted.clone());
        list.len() - 1
    })
}
