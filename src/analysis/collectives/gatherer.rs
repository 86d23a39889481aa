//! From executions, as they come, to the parts of collectives: hidden time is worked out, launches are numbered.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::profile::interval::{Coverage, Interval};

use super::instruction::Role;
use super::model::{Collectives, Device, Operation, Part};

/// One event of an execution.
#[derive(Debug, Clone)]
pub(super) struct Event<'a> {
    pub(super) name: &'a str,
    pub(super) role: &'a Role,
    pub(super) time: Interval,
}

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
}

/// A program as one profile names it.
type Program = (usize, String, Option<i64>);

struct Seen {
    program: usize,
    device: u32,
    run_id: Option<i64>,
    start_ps: i64,
    parts: std::ops::Range<usize>,
}

/// Takes executions and gives [`Collectives`].
#[derive(Default)]
pub(super) struct Gatherer {
    programs: Vec<Program>,
    devices: Vec<Device>,
    /// Each with the place of its program.
    operations: Vec<(usize, Operation)>,
    places: HashMap<(usize, String), u32>,
    parts: Vec<Part>,
    seen: Vec<Seen>,
}

impl Gatherer {
    /// Adds an execution with the events of all its operations.
    pub(super) fn add(&mut self, launch: &Launch<'_>, events: &[Event<'_>]) {
        let program = (launch.capture, launch.module.to_owned(), launch.program_id);
        let program = place_of(&mut self.programs, program);
        let device = place_of(&mut self.devices, launch.device.clone()) as u32;
        let first = self.parts.len();
        let compute = events.iter().filter(|event| *event.role == Role::Compute).map(|event| event.time);
        let compute: Vec<Interval> = compute.collect();
        let overlaps = Overlaps::new(&compute);
        let covered = Coverage::new(compute);
        let mut occurrences: HashMap<u32, u32> = HashMap::new();
        let mut ordered: Vec<&Event<'_>> =
            events.iter().filter(|event| matches!(event.role, Role::Communication(_))).collect();
        ordered.sort_by_key(|event| event.time);
        for event in ordered {
            let Role::Communication(communication) = event.role else { continue };
            let operations = &mut self.operations;
            let operation = *self.places.entry((program, event.name.to_owned())).or_insert_with(|| {
                operations.push((
                    program,
                    Operation {
                        module: launch.module.to_owned(),
                        program_id: launch.program_id,
                        name: event.name.to_owned(),
                        communication: communication.clone(),
                    },
                ));
                (operations.len() - 1) as u32
            });
            let occurrence = occurrences.entry(operation).or_default();
            self.parts.push(Part {
                operation,
                device,
                execution: 0,
                occurrence: *occurrence,
                start_ps: event.time.start_ps,
                end_ps: event.time.end_ps,
                hidden_ps: covered.of(event.time),
                overlaps_ps: overlaps.of(event.time),
            });
            *occurrence += 1;
        }
        let parts = first..self.parts.len();
        self.seen.push(Seen { program, device, run_id: launch.run_id, start_ps: launch.start_ps, parts });
    }

    /// Numbers the launches. The first execution on a device of a program for which `has_warm_up` says so is left out,
    /// unless there is no other execution at all.
    pub(super) fn finish(mut self, has_warm_up: &dyn Fn(&str, Option<i64>) -> bool) -> Collectives {
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
            launches.sort_by_key(|&number| self.seen.get(number).map(|seen| (seen.device, seen.start_ps)));
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
        for (number, execution) in later {
            let parts = self.seen.get(number).and_then(|seen| self.parts.get(seen.parts.clone())).unwrap_or_default();
            collectives.parts.extend(parts.iter().map(|part| Part { execution, ..*part }));
        }
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
        collectives.operations = self.operations.into_iter().map(|(_, operation)| operation).collect();
        collectives
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
        for (number, (program, operation)) in self.operations.iter().enumerate() {
            let program = merged.get(*program).copied().unwrap_or(*program);
            same.push(*places.entry((program, &operation.name)).or_insert(number as u32));
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

/// Sums of overlaps with many intervals, in logarithmic time: what of them lies before a moment is the time since their
/// starts less the time since their ends.
struct Overlaps {
    starts: Vec<(i64, i128)>,
    ends: Vec<(i64, i128)>,
}

impl Overlaps {
    fn new(intervals: &[Interval]) -> Self {
        let sums = |mut times: Vec<i64>| {
            times.sort_unstable();
            let mut sum = 0;
            let with_sum = |time| {
                sum += i128::from(time);
                (time, sum)
            };
            times.into_iter().map(with_sum).collect()
        };
        let real = || intervals.iter().filter(|interval| interval.start_ps < interval.end_ps);
        Self {
            starts: sums(real().map(|interval| interval.start_ps).collect()),
            ends: sums(real().map(|interval| interval.end_ps).collect()),
        }
    }

    fn before(&self, moment: i64) -> i128 {
        let since = |times: &[(i64, i128)]| {
            let count = times.partition_point(|(time, _)| *time < moment);
            let sum = count.checked_sub(1).and_then(|last| times.get(last)).map_or(0, |(_, sum)| *sum);
            i128::from(moment) * count as i128 - sum
        };
        since(&self.starts) - since(&self.ends)
    }

    fn of(&self, window: Interval) -> u64 {
        u64::try_from(self.before(window.end_ps) - self.before(window.start_ps)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_added_up_and_the_union_is_not() {
        let time = |start_ps, end_ps| Interval { start_ps, end_ps };
        let compute = vec![time(0, 10), time(5, 20), time(30, 40), time(12, 12)];
        let overlaps = Overlaps::new(&compute);
        // by hand: 10 - 4, 20 - 5, and 35 - 30
        assert_eq!(overlaps.of(time(4, 35)), 6 + 15 + 5);
        assert_eq!(Coverage::new(compute).of(time(4, 35)), 16 + 5);
        assert_eq!(overlaps.of(time(20, 30)), 0);
    }
}
