//! A process captured by nsys-jax: its executions, also drawn as planes.

use std::path::PathBuf;

use regex::bytes::Regex;

use crate::nsys::NsysRange;
use crate::profile::interval::{Interval, union_ps};
use crate::profile::{
    DeviceTime, EventFold, Execution, ExecutionOf, Finding, NameId, OperationEvent, Plane, Profiler, Semantics,
    SlowFirst, Timings, XSpace,
};
use crate::stats::Moments;

/// A capture of one process by nsys-jax.
#[derive(Debug)]
pub struct NsysProfile {
    pub(in crate::analysis) path: PathBuf,
    /// The process, by the name of the zip or folder.
    pub(in crate::analysis) host: String,
    /// The ranges drawn as planes, with the programs.
    pub(in crate::analysis) timeline: XSpace,
    /// Ranges with their time on the host; `None` if there is no such trace.
    pub(in crate::analysis) host_ranges: Option<Vec<NsysRange>>,
    /// The executions, by plane and start.
    pub(super) time: DeviceTime,
    /// Further data on each of them.
    pub(super) ran: Vec<ExecutedOperations>,
}

/// The operations of an execution.
#[derive(Debug, Default)]
pub(super) struct ExecutedOperations {
    /// Operation and time of each thunk, by start, and of those that start together the shortest first.
    pub(super) thunks: Vec<(NameId, Interval)>,
    /// For each operation, in order, the times of its runs in nanoseconds.
    pub(super) runs: Vec<Moments>,
}

impl NsysProfile {
    pub(in crate::analysis) fn findings(&self) -> &[Finding] {
        &self.time.findings
    }

    /// Whether a program was compiled while the capture was taken.
    pub(in crate::analysis) fn has_compiled(&self, module: &str, program_id: Option<i64>) -> bool {
        let SlowFirst::Of(compiled) = &self.time.slow_first else { return true };
        compiled.iter().any(|(name, id)| *id == program_id && self.time.name(*name) == module)
    }

    pub(in crate::analysis) fn executions_folded<'c>(
        &'c self,
        fold: &mut dyn FnMut(&mut Execution, &'c [Moments]),
    ) -> DeviceTime {
        self.executions_with(&mut |execution, ran| fold(execution, &ran.runs))
    }

    pub(in crate::analysis) fn executions_of_operations(&self, wanted: &Regex) -> DeviceTime {
        let wanted: Vec<bool> = self.time.names.iter().map(|name| wanted.is_match(name.as_bytes())).collect();
        let is_wanted = |name: NameId| wanted.get(name.0 as usize).copied().unwrap_or(false);
        self.executions_with(&mut |execution, ran| {
            let matching = ran.thunks.iter().filter(|(name, _)| is_wanted(*name));
            execution.busy_ps = union_ps(matching.map(|(_, time)| *time).collect());
        })
    }

    pub(in crate::analysis) fn timings(
        &self,
        profiler: &Profiler,
        plane: Plane<'_>,
        time: &DeviceTime,
    ) -> Option<Timings> {
        match profiler.semantics {
            Semantics::Ejkernel => None,
            // each event of a device is drawn of an execution
            _ if plane.name().starts_with("/device:") => Some(profiler.timings_of_executions(plane, time)),
            Semantics::PerExecution => Some(profiler.timings(plane, time)),
        }
    }

    /// Copies the executions one by one, so that the data that `fold` takes from each is not held for all of them.
    fn executions_with<'c>(&'c self, fold: &mut dyn FnMut(&mut Execution, &'c ExecutedOperations)) -> DeviceTime {
        let DeviceTime { executions, findings, slow_first, names, .. } = &self.time;
        let folded = executions.iter().zip(&self.ran).map(|(execution, ran)| {
            let mut execution = execution.clone();
            fold(&mut execution, ran);
            execution
        });
        DeviceTime {
            executions: folded.collect(),
            findings: findings.clone(),
            outside: Vec::new(),
            slow_first: slow_first.clone(),
            names: names.clone(),
        }
    }

    /// Folds the thunks of each execution, in order of start, and passes on the result with its number in this order.
    /// Times are in the capture's own clock.
    pub(in crate::analysis) fn fold_events<F: EventFold>(
        &self,
        fold: &F,
        give: &mut dyn FnMut(u32, &ExecutionOf<'_>, F::Done),
    ) {
        let base_ps = self.timeline.base_ns().saturating_mul(1000);
        let mut executions: Vec<(&Execution, &ExecutedOperations)> =
            self.time.executions.iter().zip(&self.ran).collect();
        executions.sort_by_key(|(execution, _)| execution.start_ps);
        for (number, (execution, ran)) in (0..).zip(executions) {
            let of = ExecutionOf {
                device: execution.device,
                layout: execution.layout,
                module: self.time.name(execution.module),
                program_id: execution.program_id,
                // launches were counted on each device, because no id tells which belong together
                run_id: None,
            };
            let mut open = fold.open(&of);
            for &(name, time) in &ran.thunks {
                let time = Interval {
                    start_ps: time.start_ps.saturating_add(base_ps),
                    end_ps: time.end_ps.saturating_add(base_ps),
                };
                fold.add(&mut open, OperationEvent { number: name.0, name: self.time.name(name), time });
            }
            give(number, &of, fold.close(open));
        }
    }
}
