//! Totals of operations, added up as executions are found, so that none is kept longer than necessary.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use crate::profile::{AUTOTUNER, DeviceTime, Execution, NameId};
use crate::stats::Moments;

use super::capture::Capture;
use super::minor::Minor;
use super::runtime::{Counted, ns};

/// One operation's events of one program, on all devices.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OperationTime {
    /// Events.
    pub(super) count: u64,
    /// Self time in each execution in which it ran, nanoseconds.
    pub(super) own: Moments,
    /// Time of each of its runs, nanoseconds; `None` if unknown.
    pub(super) runs: Moments,
    /// Its share of the time during which operations ran, nanoseconds.
    pub(super) time_ns: f64,
    /// The operation that encloses it.
    pub(super) inside: Option<NameId>,
}

impl OperationTime {
    pub(super) fn join(&mut self, other: Self) {
        self.count += other.count;
        self.own.join(other.own);
        self.runs.join(other.runs);
        self.time_ns += other.time_ns;
        self.inside = self.inside.or(other.inside);
    }
}

/// A module's name and program id.
pub(super) type Program = (NameId, Option<i64>);
type OfProgram = HashMap<NameId, OperationTime>;
/// An execution, and the times of its operations' runs where they are known.
type TimedExecution<'c> = (Execution, &'c [Moments]);

/// The executions of a capture, without their operations, and the operations' totals over those that count.
#[derive(Debug)]
pub(super) struct Totals {
    pub(super) time: DeviceTime,
    pub(super) operations: BTreeMap<Program, OfProgram>,
}

impl Totals {
    /// Reads a capture. Besides totals only the first execution of each program on each device is held, since it counts
    /// only if there is no other.
    pub(super) fn read(capture: &Capture, with_warm_up: bool) -> Self {
        let mut operations: BTreeMap<Program, OfProgram> = BTreeMap::new();
        let mut first: BTreeMap<(usize, Option<i64>, Program), TimedExecution<'_>> = BTreeMap::new();
        let time = capture.executions_folded(&mut |execution, runs| {
            let program = (execution.module, execution.program_id);
            let whole = Execution { operations: std::mem::take(&mut execution.operations), ..execution.clone() };
            if execution.program_id == Some(AUTOTUNER) {
                return;
            }
            // executions arrive in no particular order
            let (later, runs) = match first.entry((execution.plane, execution.device, program)) {
                Entry::Vacant(vacant) => {
                    vacant.insert((whole, runs));
                    return;
                }
                Entry::Occupied(mut held) if when(&whole) < when(&held.get().0) => held.insert((whole, runs)),
                Entry::Occupied(_) => (whole, runs),
            };
            add(operations.entry(program).or_default(), &later, runs);
        });
        let all_count = with_warm_up || Counted::new(&time, with_warm_up).only_first;
        for ((_, _, program), (execution, runs)) in &first {
            if all_count || !time.slow_first.is_of(program.0, program.1) {
                add(operations.entry(*program).or_default(), execution, runs);
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
    let self_ns: f64 = execution.operations.iter().map(|operation| ns(operation.self_ps)).sum();
    // concurrent operations share the time that they cover
    let scale = if self_ns > 0.0 { ns(execution.busy_ps) / self_ns } else { 0.0 };
    let runs = runs.iter().copied().chain(std::iter::repeat(Moments::default()));
    for (operation, runs) in execution.operations.iter().zip(runs) {
        let total = operations.entry(operation.name).or_default();
        total.runs.join(runs);
        total.inside = total.inside.or(operation.inside);
        total.count += operation.count;
        total.own.add(ns(operation.self_ps));
        total.time_ns += ns(operation.self_ps) * scale;
    }
}
