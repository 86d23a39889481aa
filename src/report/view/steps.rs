//! The starts of a capture's steps, so that a timeline can begin at a step.

use std::collections::BTreeMap;

use crate::analysis::Capture;
use crate::profile::AUTOTUNER;

/// The launches of the module with the most total time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ModuleSteps {
    /// The module.
    pub(super) module: String,
    /// Start of each launch on the first device that began it, in picoseconds; sorted.
    pub(super) starts_ps: Vec<i64>,
    /// When the first launch of any module began and the last one ended, in picoseconds.
    pub(super) ran_ps: Option<(i64, i64)>,
}

/// One launch, identified by a run's id, or by one device if no id is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StepLaunch {
    Run(i64),
    Single(usize, usize, Option<i64>, usize),
}

/// Finds the steps. `late_ps` is how much later than the first each capture begins.
pub(super) fn steps(captures: &[Capture], late_ps: &[Option<i64>]) -> ModuleSteps {
    let mut modules: BTreeMap<String, (u64, BTreeMap<StepLaunch, i64>)> = BTreeMap::new();
    let mut ran_ps: Option<(i64, i64)> = None;
    for (number, (capture, late_ps)) in captures.iter().zip(late_ps).enumerate() {
        let Some(late_ps) = *late_ps else { continue };
        let time = capture.executions_folded(&mut |execution, _| execution.operations = Vec::new());
        for execution in time.executions.iter().filter(|one| one.program_id != Some(AUTOTUNER)) {
            let launch = match execution.run_id {
                Some(run) => StepLaunch::Run(run),
                None => StepLaunch::Single(number, execution.plane, execution.device, execution.order),
            };
            let (total_ps, starts) = modules.entry(time.name(execution.module).to_owned()).or_default();
            *total_ps = total_ps.saturating_add(execution.span_ps);
            let start_ps = execution.start_ps.saturating_add(late_ps);
            let end_ps = execution.end_ps.saturating_add(late_ps);
            ran_ps = Some(ran_ps.map_or((start_ps, end_ps), |(first, last)| (first.min(start_ps), last.max(end_ps))));
            let first = starts.entry(launch).or_insert(start_ps);
            *first = start_ps.min(*first);
        }
    }
    // of two with equal time, the first in the alphabet
    let longest = modules.into_iter().rev().max_by_key(|(_, (total_ps, _))| *total_ps);
    longest.map_or_else(ModuleSteps::default, |(module, (_, starts))| {
        let mut starts_ps: Vec<i64> = starts.into_values().collect();
        starts_ps.sort_unstable();
        starts_ps.dedup();
        ModuleSteps { module, starts_ps, ran_ps }
    })
}
