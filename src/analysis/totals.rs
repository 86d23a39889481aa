//! Operations added up as executions are found, so that none is kept longer than it takes to add it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use crate::profile::{DeviceTime, Execution, NameId, XSpace, executions_folded};
use crate::stats::Moments;

use super::minor::Minor;
use super::runtime::{AUTOTUNER, Counted, ns};

/// One operation's events of one program, on all devices.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OperationTime {
    /// Events.
    pub(super) count: u64,
    /// Own time in each execution in which it ran, nanoseconds.
    pub(super) own: Moments,
    /// Time of each of its runs, nanoseconds; none where nothing told them.
    pub(super) runs: Moments,
    /// Its part of the time at which operations were under way, nanoseconds.
    pub(super) time_ns: f64,
}

impl OperationTime {
    pub(super) fn join(&mut self, other: Self) {
        self.count += other.count;
        self.own.join(other.own);
        self.runs.join(other.runs);
        self.time_ns += other.time_ns;
    }
}

/// A module's name and program id.
pub(super) type Program = (NameId, Option<i64>);
type OfProgram = HashMap<NameId, OperationTime>;

/// The executions of a capture, without their operations, and the operations' totals over those that count.
#[derive(Debug)]
pub(super) struct Totals {
    pub(super) time: DeviceTime,
    pub(super) operations: BTreeMap<Program, OfProgram>,
}

impl Totals {
    /// Reads a capture. Besides totals only the first execution of each program on each device is held, since it counts only
    /// where there is no other.
    pub(super) fn read(space: &XSpace, with_warm_up: bool) -> Self {
        let mut operations: BTreeMap<Program, OfProgram> = BTreeMap::new();
        let mut first: BTreeMap<(usize, Option<i64>, Program), Execution> = BTreeMap::new();
        let runs = |execution: &Execution| space.told().map_or(&[][..], |told| told.runs(execution));
        let time = executions_folded(space, &mut |execution| {
            let program = (execution.module, execution.program_id);
            let whole = Execution { operations: std::mem::take(&mut execution.operations), ..execution.clone() };
            if execution.program_id == Some(AUTOTUNER) {
                return;
            }
            // executions come in no order
            let later = match first.entry((execution.plane, execution.device, program)) {
                Entry::Vacant(vacant) => {
                    vacant.insert(whole);
                    return;
                }
                Entry::Occupied(mut held) if when(&whole) < when(held.get()) => held.insert(whole),
                Entry::Occupied(_) => whole,
            };
            add(operations.entry(program).or_default(), &later, runs(&later));
        });
        let all_count = with_warm_up || Counted::new(&time, with_warm_up).only_first;
        for ((_, _, program), execution) in &first {
            if all_count || !time.slow_first.is_of(program.0, program.1) {
                add(operations.entry(*program).or_default(), execution, runs(execution));
            }
        }
        Self { time, operations }
    }

    /// Leaves the operations of these programs out.
    pub(super) fn leave_out(&mut self, programs: &Minor) {
        let time = &self.time;
        self.operations.retain(|(module, program_id), _| !programs.has(time.name(*module), *program_id));
    }
}

fn when(execution: &Execution) -> (i64, i64) {
    (execution.start_ps, execution.end_ps)
}

fn add(operations: &mut OfProgram, execution: &Execution, runs: &[Moments]) {
    let own: f64 = execution.operations.iter().map(|operation| ns(operation.own_ps)).sum();
    // operations that run beside each other share the time that they cover
    let scale = if own > 0.0 { ns(execution.busy_ps) / own } else { 0.0 };
    let runs = runs.iter().copied().chain(std::iter::repeat(Moments::default()));
    for (operation, runs) in execution.operations.iter().zip(runs) {
        let total = operations.entry(operation.name).or_default();
        total.runs.join(runs);
        total.count += operation.count;
        total.own.add(ns(operation.own_ps));
        total.time_ns += ns(operation.own_ps) * scale;
    }
}
