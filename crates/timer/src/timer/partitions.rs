//! Groups executions into runs: those of a program's partitions, one on each of its devices.

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::{DeviceTime, Execution};

/// The plane and device of an execution.
type DeviceKey = (usize, Option<i64>);

/// A run: indices into [`DeviceTime::executions`], one for each participating device.
pub(super) type Run = Vec<usize>;

/// Why executions do not make up the runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoRuns {
    /// A device with this many of them.
    OtherCount(usize),
    /// One of several devices, or one run, has too few or too many.
    Uneven(String),
}

/// Groups the executions of `launched` runs, by start. Devices that run one launch share its id; without ids the
/// k-th executions of all devices are one run, since a device keeps the order of the launches.
pub(super) fn runs(times: &DeviceTime, places: &[usize], launched: usize) -> Result<Vec<Run>, NoRuns> {
    let mut of_device: BTreeMap<DeviceKey, Vec<usize>> = BTreeMap::new();
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
            "{} on {devices} devices, of which only {} took part in a run",
            places.len(),
            run.len()
        ))),
        None => Ok(runs),
    }
}

/// Groups executions with the same run id on different devices, by start; an execution without an id, or with one that
/// its device used twice, stays alone.
pub(super) fn by_run_id(times: &DeviceTime, places: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut of_id: BTreeMap<i64, (usize, BTreeSet<DeviceKey>)> = BTreeMap::new();
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

#[cfg(test)]
#[path = "../../../../tests/support/xspace.rs"]
mod xspace;

#[cfg(test)]
mod tests {
    use super::super::profiled::{FLUSH_PROGRAM, ProfiledRound};
    use super::xspace::{Is, PlaneBuilder, space};
    use super::*;
    use crate::measured_by::Metric;
    use crate::profile::XSpace;

    const NAME: Option<&str> = Some("jit_autotune_fn_{candidate}");
    /// Candidate, run id and, for each device, start and length in nanoseconds; one that is absent left no event.
    type Launch = (usize, i64, [Option<(i64, i64)>; 2]);

    /// Two launches of candidate 1, then two of candidate 0, of which each device is the slowest once; device 1 saw the
    /// launches of candidate 1 start in another order than device 0 did.
    const LAUNCHES: [Launch; 4] = [
        (1, 70, [Some((0, 100)), Some((500, 130))]),
        (1, 71, [Some((400, 90)), Some((310, 60))]),
        (0, 80, [Some((1000, 40)), Some((1001, 50))]),
        (0, 81, [Some((1100, 45)), Some((1102, 44))]),
    ];

    /// Synthetic: host thunks as XLA's CPU client writes them with two devices, which share a launch's `run_id`.
    fn host(launches: &[Launch]) -> XSpace {
        let mut plane = PlaneBuilder::new("/host:CPU");
        for device in 0..2 {
            let mut events = Vec::new();
            for (candidate, run, times) in launches {
                let Some((start, length)) = times[device] else { continue };
                let module = format!("jit_autotune_fn_{candidate}");
                let stats = [
                    ("hlo_op", Is::Text("dot")),
                    ("hlo_module", Is::Text(&module)),
                    ("program_id", Is::Int(*candidate as i64)),
                    ("run_id", Is::Int(*run)),
                    ("device_ordinal", Is::Int(device as i64)),
                ];
                events.push(plane.event(("dot", ""), start * 1000, length * 1000, &stats));
            }
            plane.line(&format!("tf_XLAEigen/{device}"), 0, &events);
        }
        XSpace::from_bytes(space(&[plane]).0).unwrap()
    }

    /// Synthetic: a GPU's streams in a plane for each device, whose events name no run; one operation comes
    /// `parts` times in a launch.
    fn streams(launches: &[Launch], parts: i64) -> XSpace {
        let planes = [0, 1].map(|device| {
            let mut plane = PlaneBuilder::new(&format!("/device:GPU:{device}"));
            let mut started: Vec<_> =
                launches.iter().filter_map(|launch| Some((launch.2[device]?, launch.0))).collect();
            started.sort_unstable();
            let mut events = Vec::new();
            for ((start, length), candidate) in started {
                let module = format!("jit_autotune_fn_{candidate}");
                let stats = [
                    ("hlo_op", Is::Text("dot")),
                    ("hlo_module", Is::Text(&module)),
                    ("program_id", Is::Int(candidate as i64)),
                ];
                let part = length * 1000 / parts;
                for number in 0..parts {
                    events.push(plane.event(("gemm", ""), start * 1000 + number * part, part, &stats));
                }
            }
            plane.line("Stream #1(Compute)", 0, &events);
            plane
        });
        XSpace::from_bytes(space(&planes).0).unwrap()
    }

    fn found(space: &XSpace, name: Option<&str>) -> Result<Vec<Vec<u64>>, String> {
        let round = ProfiledRound::of(space, name, &[(1, 2), (0, 2)]).map_err(|failure| failure.message)?;
        assert_eq!(round.runs(0).count(), 2);
        Ok(round.durations(&Metric::Span))
    }

    /// With cold caches, each worker runs a program of its own before each launch.
    #[test]
    fn what_flushes_the_caches_is_no_launch() {
        for flush in [FLUSH_PROGRAM.to_owned(), format!("jit_{FLUSH_PROGRAM}")] {
            let mut plane = PlaneBuilder::new("/device:GPU:0");
            let runs = [(0, 9, &*flush), (1, 1, "f"), (2, 9, &flush), (3, 1, "f"), (4, 9, &flush), (5, 0, "g")];
            let events: Vec<_> = runs
                .iter()
                .map(|&(number, program, module)| {
                    let stats = [
                        ("hlo_op", Is::Text("dot")),
                        ("hlo_module", Is::Text(module)),
                        ("program_id", Is::Int(program)),
                    ];
                    plane.event(("gemm", ""), number * 100_000, 10_000 + number * 1000, &stats)
                })
                .collect();
            plane.line("Stream #1(Compute)", 0, &events);
            let space = XSpace::from_bytes(space(&[plane]).0).unwrap();
            let round = ProfiledRound::of(&space, None, &[(1, 2), (0, 1)]).unwrap();
            assert_eq!(round.durations(&Metric::Busy), [vec![11, 13], vec![15]], "{flush}");
        }
    }

    #[test]
    fn synthetic_devices_of_one_run_id_are_one_run_and_the_slowest_counts() {
        let expected = vec![vec![130, 90], vec![50, 45]];
        assert_eq!(found(&host(&LAUNCHES), NAME).unwrap(), expected);
        assert_eq!(found(&host(&LAUNCHES), None).unwrap(), expected, "and without names");
        let round = ProfiledRound::of(&host(&LAUNCHES), NAME, &[(1, 2), (0, 2)]).unwrap();
        let slowest: Vec<_> = round.runs(1).map(|execution| execution.device).collect();
        assert_eq!(slowest, [Some(1), Some(0)]);
    }

    #[test]
    fn synthetic_devices_without_run_ids_keep_to_the_order_of_the_launches() {
        // device 0: 100 then 90; device 1: 60 then 130
        let expected = vec![vec![100, 130], vec![50, 45]];
        assert_eq!(found(&streams(&LAUNCHES, 1), NAME).unwrap(), expected);
        assert_eq!(found(&streams(&LAUNCHES, 1), None).unwrap(), expected, "and without names");
        assert_eq!(
            found(&streams(&LAUNCHES, 5), None).unwrap(),
            expected,
            "cut where the launches end, on each device"
        );
    }

    #[test]
    fn synthetic_launches_that_lack_a_device_are_refused() {
        let mut lacking = LAUNCHES;
        lacking[3].2[1] = None;
        for space in [host(&lacking), streams(&lacking, 1)] {
            let message = found(&space, NAME).unwrap_err();
            let expected =
                "executions of `jit_autotune_fn_0`, 3 on 2 devices, of which device 1 has 1; 2 were launched on each";
            assert!(message.contains(expected), "{message}");
            let message = found(&space, None).unwrap_err();
            assert!(message.contains("7 on 2 devices, of which device 1 has 3; 4 were launched on each"), "{message}");
        }
        // each device has as many executions as were launched, but of different launches
        let mut crossed = LAUNCHES;
        (crossed[2].2[0], crossed[3].2[1]) = (None, None);
        let third: Launch = (0, 82, [Some((1300, 9)), Some((1300, 9))]);
        let message = found(&host(&[&crossed[..], &[third]].concat()), NAME).unwrap_err();
        assert!(message.contains("4 on 2 devices, of which only 1 took part in a run"), "{message}");
        let more = [&LAUNCHES[..], &[third]].concat();
        assert!(found(&host(&more), NAME).unwrap_err().contains("6 on 2 devices, of which device 0 has 3"));
    }

    /// Executions that stay alone if launches are unknown: without an id, or with one that their device used twice.
    #[test]
    fn only_a_shared_run_id_joins_executions() {
        let times = crate::profile::executions(&host(&LAUNCHES));
        let places: Vec<usize> = (0..times.executions.len()).collect();
        let lengths: Vec<usize> = by_run_id(&times, &places).iter().map(Vec::len).collect();
        assert_eq!(lengths, [2; 4]);
        let times = crate::profile::executions(&streams(&LAUNCHES, 1));
        assert!(by_run_id(&times, &places).iter().all(|run| run.len() == 1));
        let mut times = crate::profile::executions(&host(&LAUNCHES));
        times.executions.iter_mut().for_each(|execution| execution.run_id = Some(1));
        let lengths: Vec<usize> = by_run_id(&times, &places).iter().map(Vec::len).collect();
        assert_eq!(lengths.iter().sum::<usize>(), 8);
        assert_eq!(lengths.iter().max(), Some(&2));
    }
}
