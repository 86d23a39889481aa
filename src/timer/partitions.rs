//! Which executions are one run: those of a program's partitions, one on each of its devices.

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::{DeviceTime, Execution};

/// Where an execution was: plane and device.
type Device = (usize, Option<i64>);

/// A run: places in [`DeviceTime::executions`], one for each device that took part.
pub(super) type Run = Vec<usize>;

/// Why executions do not make up the runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoRuns {
    /// One device has as many of them.
    OtherCount(usize),
    /// Of several devices one, or one run, has too few or too many.
    Uneven(String),
}

/// Puts the executions of `launched` runs together, by start. Devices that run one launch share its id; without ids the
/// k-th executions of all devices are one run, since a device keeps to the order of the launches.
pub(super) fn runs(times: &DeviceTime, places: &[usize], launched: usize) -> Result<Vec<Run>, NoRuns> {
    let mut of_device: BTreeMap<Device, Vec<usize>> = BTreeMap::new();
    for (place, execution) in by_start(times, places) {
        of_device.entry((execution.plane, execution.device)).or_default().push(place);
    }
    let devices = of_device.len();
    if devices <= 1 {
        let only = of_device.into_values().next().unwrap_or_default();
        let runs: Vec<Run> = only.into_iter().map(|place| vec![place]).collect();
        return if runs.len() == launched { Ok(runs) } else { Err(NoRuns::OtherCount(runs.len())) };
    }
    if let Some(((_, device), found)) = of_device.iter().find(|(_, found)| found.len() != launched) {
        let device = device.map_or_else(|| "one".to_owned(), |number| format!("device {number}"));
        let all = places.len();
        return Err(NoRuns::Uneven(format!("{all} on {devices} devices, of which {device} has {}", found.len())));
    }
    let has_id = |place: &usize| times.executions.get(*place).is_some_and(|execution| execution.run_id.is_some());
    if !places.iter().all(has_id) {
        let mut queues: Vec<_> = of_device.into_values().map(Vec::into_iter).collect();
        return Ok((0..launched).map(|_| queues.iter_mut().filter_map(Iterator::next).collect()).collect());
    }
    let runs = by_run_id(times, places);
    match runs.iter().find(|run| run.len() != devices) {
        Some(run) => Err(NoRuns::Uneven(format!(
            "{} on {devices} devices, of which {} took part in a run",
            places.len(),
            run.len()
        ))),
        None => Ok(runs),
    }
}

/// Puts together what has one run id on different devices, by start; what has none, or one that its device used for
/// another execution too, stays alone.
pub(super) fn by_run_id(times: &DeviceTime, places: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut of_id: BTreeMap<i64, (usize, BTreeSet<Device>)> = BTreeMap::new();
    for (place, execution) in by_start(times, places) {
        let device = (execution.plane, execution.device);
        if let Some(id) = execution.run_id {
            let (run, devices) = of_id.entry(id).or_insert_with(|| (runs.len(), BTreeSet::new()));
            if devices.insert(device)
                && let Some(run) = runs.get_mut(*run)
            {
                run.push(place);
                continue;
            }
        }
        runs.push(vec![place]);
    }
    runs
}

fn by_start<'a>(times: &'a DeviceTime, places: &[usize]) -> Vec<(usize, &'a Execution)> {
    let found = places.iter().filter_map(|&place| Some((place, times.executions.get(place)?)));
    let mut found: Vec<_> = found.collect();
    found.sort_unstable_by_key(|(place, execution)| (execution.start_ps, *place));
    found
}
