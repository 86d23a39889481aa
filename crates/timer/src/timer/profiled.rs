//! Extracts the durations of launches from a round's profile.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};

use super::answers::AnswerFolder;
use super::partitions::{NoRuns, Run, runs};
use super::protocol::RoundAnswer;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::Metric;
use crate::outside_file;
use crate::profile::{DeviceTime, Execution, Finding, Layout, XSpace, executions, executions_of_runs};

/// What profiles call the program that flushes a device's caches.
pub(crate) const FLUSH_PROGRAM: &str = "autotune_lowered_flush";
/// Maximum size of a round's profile.
const MAX_PROFILE_BYTES: u64 = 2 << 30;

/// The default metric of a platform: on a CPU, whose operations overlap on pool threads, the span; on an accelerator
/// the busy time.
pub(crate) fn default_metric(platform: &str) -> Metric {
    if platform == "cpu" { Metric::Span } else { Metric::Busy }
}

/// The calendar time of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProfileClock {
    /// The origin of its lines, nanoseconds since 1970.
    pub(crate) epoch_ns: i64,
    /// The origin of executions, nanoseconds after that.
    pub(crate) base_ns: i64,
    /// When it ended, nanoseconds since 1970: as stated, or with its last execution.
    pub(crate) end_ns: i64,
}

/// The profile of one round: the device time of every run of every launch.
#[derive(Debug)]
pub struct ProfiledRound {
    times: DeviceTime,
    clock: Option<ProfileClock>,
    module_name: Option<String>,
    /// The XSpace as the worker wrote it; its name may no longer exist.
    file: Option<File>,
    /// For each launch its runs.
    launches: Vec<Vec<Run>>,
}

impl ProfiledRound {
    /// Reads the profile that a worker wrote into a folder, and finds every launch in it.
    pub(crate) fn read(
        folder: &AnswerFolder,
        profiled: &RoundAnswer,
        launches: &[(usize, u32)],
    ) -> Result<Self, Failure> {
        let failed = |reason: &dyn Display| {
            let message = format!("the worker's profile `{}`: {reason}", profiled.profile.display());
            Failure::new(FailureKind::Protocol, message)
        };
        let file = folder.open(&profiled.profile, MAX_PROFILE_BYTES).map_err(|error| failed(&error))?;
        let bytes = file.try_clone().and_then(|file| outside_file::read(file, MAX_PROFILE_BYTES));
        let space = XSpace::from_bytes(bytes.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
        let round = Self::of(&space, profiled.module_name.as_deref(), launches)?;
        round.check_devices(profiled.devices.as_deref())?;
        Ok(Self { file: Some(file), ..round })
    }

    /// A launch can only be checked for completeness if its number of devices is known: one by default.
    fn check_devices(&self, devices: Option<&[u32]>) -> Result<(), Failure> {
        for (launch, runs) in self.launches.iter().enumerate() {
            let expected = devices.map_or(Some(1), |devices| devices.get(launch).copied());
            let expected = expected.ok_or_else(|| {
                let message = "the worker does not report the `devices` of every launch".to_owned();
                Failure::new(FailureKind::Protocol, message)
            })?;
            if let Some(run) = runs.iter().find(|run| run.len() != expected as usize) {
                let message = format!(
                    "the profile holds executions on {} devices of a program that ran on {expected}{}",
                    run.len(),
                    findings(&self.times)
                );
                return Err(Failure::new(FailureKind::Protocol, message));
            }
        }
        Ok(())
    }

    /// Finds every launch in a profile.
    pub(crate) fn of(space: &XSpace, module_name: Option<&str>, launches: &[(usize, u32)]) -> Result<Self, Failure> {
        let times = of_candidates(executions(space));
        let runs = if module_name.is_none() { runs_of_programs(&times, launches) } else { None };
        let times = match runs {
            Some(runs) => of_candidates(executions_of_runs(space, &|module, program| {
                runs.get(&(module.to_owned(), program)).copied()
            })),
            None => times,
        };
        let (base_ns, last_ps) = (space.base_ns(), times.executions.iter().map(|execution| execution.end_ps).max());
        let clock = space.epoch_ns().map(|epoch_ns| {
            let last_ns = last_ps.unwrap_or(0).saturating_add(999).div_euclid(1000);
            let end_ns = space.stop_ns().unwrap_or(epoch_ns.saturating_add(base_ns).saturating_add(last_ns));
            ProfileClock { epoch_ns, base_ns, end_ns }
        });
        let round = Self { clock, ..Self::find(times, module_name, launches)? };
        round.check_complete(launches, &mut BTreeMap::new())?;
        Ok(round)
    }

    /// Refuses a profile that lost events if a run of a candidate has fewer operations than another run of it: without
    /// one of its operations, an execution would look faster than it is. `most` keeps the largest number of each
    /// candidate from round to round. What was lost need not be of an execution: XLA leaves CUPTI's tracing of kernels
    /// on between two recordings of one process, without a buffer for what runs there.
    pub(crate) fn check_complete(
        &self,
        launches: &[(usize, u32)],
        most: &mut BTreeMap<usize, u64>,
    ) -> Result<(), Failure> {
        let events = |run: &Run| self.executions(run).map(|execution| execution.events).sum::<u64>();
        for (&(candidate, _), runs) in launches.iter().zip(&self.launches) {
            let most = most.entry(candidate).or_default();
            *most = runs.iter().map(events).fold(*most, u64::max);
        }
        if !self.times.findings.iter().any(|finding| matches!(finding, Finding::DroppedEvents { .. })) {
            return Ok(());
        }
        for (&(candidate, _), runs) in launches.iter().zip(&self.launches) {
            let most = most.get(&candidate).copied().unwrap_or_default();
            if let Some(found) = runs.iter().map(events).find(|&found| found < most) {
                let message = format!(
                    "the profile is incomplete: a run of candidate {candidate} has {found} of {most} operations{}",
                    findings(&self.times)
                );
                return Err(Failure::new(FailureKind::Protocol, message));
            }
        }
        Ok(())
    }

    /// Its time, if the profile reports it.
    pub(crate) fn clock(&self) -> Option<ProfileClock> {
        self.clock
    }

    /// The bytes of the XSpace that the worker left; `None` for a round that was not read from a worker's file.
    pub(crate) fn bytes(&self) -> Option<io::Result<io::Take<&File>>> {
        let mut file = self.file.as_ref()?;
        // a process that still writes to it must not fill a disk
        Some(file.rewind().map(|()| file.take(MAX_PROFILE_BYTES)))
    }

    /// Names of the candidates' modules, with `{candidate}` for their numbers; `None` if they are distinguished by
    /// order.
    pub(crate) fn module_name(&self) -> Option<&str> {
        self.module_name.as_deref()
    }

    /// Executions are distinguished by their module's name and, among equals, by the order in which they started;
    /// without a name by that order alone. A profile with more or fewer executions than launches is rejected, because
    /// it is unknown which launch is missing.
    pub(crate) fn find(
        times: DeviceTime,
        module_name: Option<&str>,
        launches: &[(usize, u32)],
    ) -> Result<Self, Failure> {
        let launched: u64 = launches.iter().map(|&(_, runs)| u64::from(runs)).sum();
        if times.executions.is_empty() && launched > 0 {
            let message = format!("the profile holds 0 executions, {launched} were launched{}", findings(&times));
            return Err(Failure::new(FailureKind::NoExecutions, message));
        }
        let launches = match module_name {
            Some(module_name) => by_name(&times, module_name, launches),
            None => by_order(&times, launches),
        }?;
        Ok(Self { times, clock: None, module_name: module_name.map(str::to_owned), file: None, launches })
    }

    /// All data in the profile.
    pub fn times(&self) -> &DeviceTime {
        &self.times
    }

    /// The runs of a launch, in the order in which they started: for a program on several devices the longest
    /// execution, from its first operation to its last.
    pub fn runs(&self, launch: usize) -> impl Iterator<Item = &Execution> {
        let runs = self.launches.get(launch).map(Vec::as_slice).unwrap_or_default();
        runs.iter().filter_map(|run| self.executions(run).max_by_key(|execution| execution.span_ps))
    }

    /// One duration, nanoseconds, for each run of each launch: that of the slowest device.
    pub fn durations(&self, metric: &Metric) -> Vec<Vec<u64>> {
        let slowest = |run: &Run| slowest_ns(self.executions(run), metric);
        self.launches.iter().map(|runs| runs.iter().filter_map(slowest).collect()).collect()
    }

    fn executions(&self, run: &Run) -> impl Iterator<Item = &Execution> {
        run.iter().filter_map(|&place| self.times.executions.get(place))
    }
}

/// Without the executions of the program that flushes the caches.
fn of_candidates(mut times: DeviceTime) -> DeviceTime {
    // JAX begins the names of its modules so
    let is_flush = |module: &str| module.strip_prefix("jit_").unwrap_or(module) == FLUSH_PROGRAM;
    let executions = std::mem::take(&mut times.executions);
    times.executions = executions.into_iter().filter(|one| !is_flush(times.name(one.module))).collect();
    times.findings.retain(|finding| match finding {
        Finding::SplitByFirstOperation { module, .. } => !is_flush(module),
        _ => true,
    });
    times
}

/// The longest duration, nanoseconds.
pub(crate) fn slowest_ns<'a>(executions: impl IntoIterator<Item = &'a Execution>, metric: &Metric) -> Option<u64> {
    executions.into_iter().map(|execution| duration_ns(execution, metric)).max()
}

/// An execution's duration, nanoseconds.
fn duration_ns(execution: &Execution, metric: &Metric) -> u64 {
    execution.time_ps(metric).saturating_add(500) / 1000
}

/// The profile's own findings that may explain a missing launch.
fn findings(times: &DeviceTime) -> String {
    let findings: Vec<String> = times.findings.iter().map(ToString::to_string).collect();
    if findings.is_empty() { String::new() } else { format!(" ({})", findings.join("; ")) }
}

/// The runs of these executions, if there are as many as were launched.
fn launched(times: &DeviceTime, of: &str, places: &[usize], launched: usize) -> Result<Vec<Run>, Failure> {
    runs(times, places, launched).map_err(|why| {
        let holds = match why {
            NoRuns::OtherCount(found) => format!("{found} executions{of}, {launched} were launched"),
            NoRuns::Uneven(found) => format!("executions{of}, {found}; {launched} were launched on each"),
        };
        Failure::new(FailureKind::Protocol, format!("the profile holds {holds}{}", findings(times)))
    })
}

fn by_name(times: &DeviceTime, module_name: &str, launches: &[(usize, u32)]) -> Result<Vec<Vec<Run>>, Failure> {
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, execution) in times.executions.iter().enumerate() {
        by_name.entry(times.name(execution.module)).or_default().push(place);
    }
    let mut wanted: BTreeMap<usize, usize> = BTreeMap::new();
    for &(candidate, runs) in launches {
        *wanted.entry(candidate).or_default() += runs as usize;
    }
    // a candidate may be launched several times in a round: its runs come in the order of its launches
    let mut found = wanted
        .into_iter()
        .map(|(candidate, runs)| {
            let name = module_name.replace("{candidate}", &candidate.to_string());
            let places = by_name.remove(name.as_str()).unwrap_or_default();
            Ok((candidate, launched(times, &format!(" of `{name}`"), &places, runs)?.into_iter()))
        })
        .collect::<Result<BTreeMap<_, _>, Failure>>()?;
    let of_launch = |&(candidate, runs): &(usize, u32)| {
        found.get_mut(&candidate).into_iter().flatten().take(runs as usize).collect()
    };
    Ok(launches.iter().map(of_launch).collect())
}

/// How often each program ran, if no execution has an id and a device has fewer or more than were launched: an
/// operation may then occur several times in an execution. Programs appear in the order in which candidates were
/// launched.
fn runs_of_programs(times: &DeviceTime, launches: &[(usize, u32)]) -> Option<BTreeMap<(String, Option<i64>), u64>> {
    let has_run = |execution: &Execution| execution.run_id.is_some() || execution.layout != Layout::DeviceStreams;
    let launched: usize = launches.iter().map(|&(_, runs)| runs as usize).sum();
    let mut of_device: BTreeMap<_, usize> = BTreeMap::new();
    for execution in &times.executions {
        *of_device.entry((execution.plane, execution.device)).or_default() += 1;
    }
    if of_device.values().all(|&found| found == launched) || times.executions.iter().any(has_run) {
        return None;
    }
    let mut runs: Vec<(usize, u64)> = Vec::new();
    for &(candidate, more) in launches.iter().filter(|&&(_, runs)| runs > 0) {
        match runs.iter_mut().find(|(one, _)| *one == candidate) {
            Some((_, runs)) => *runs += u64::from(more),
            None => runs.push((candidate, u64::from(more))),
        }
    }
    let mut started: Vec<&Execution> = times.executions.iter().collect();
    started.sort_by_key(|execution| execution.start_ps);
    let mut programs: Vec<(String, Option<i64>)> = Vec::new();
    for execution in started {
        let program = (times.name(execution.module).to_owned(), execution.program_id);
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    (programs.len() == runs.len()).then(|| programs.into_iter().zip(runs.into_iter().map(|(_, runs)| runs)).collect())
}

fn by_order(times: &DeviceTime, launches: &[(usize, u32)]) -> Result<Vec<Vec<Run>>, Failure> {
    let all: usize = launches.iter().map(|&(_, runs)| runs as usize).sum();
    let places: Vec<usize> = (0..times.executions.len()).collect();
    let found = launched(times, "", &places, all)?;
    let mut found = found.into_iter();
    let of_launches: Vec<Vec<Run>> =
        launches.iter().map(|&(_, runs)| found.by_ref().take(runs as usize).collect()).collect();
    check_programs(times, launches, &of_launches)?;
    Ok(of_launches)
}

/// Each candidate is one program, and no two candidates are the same; otherwise the order is not that of the launches.
fn check_programs(times: &DeviceTime, launches: &[(usize, u32)], found: &[Vec<Run>]) -> Result<(), Failure> {
    let mut program_of: BTreeMap<usize, i64> = BTreeMap::new();
    let mut candidate_of: BTreeMap<i64, usize> = BTreeMap::new();
    for (&(candidate, _), runs) in launches.iter().zip(found) {
        let programs = runs.iter().flatten().filter_map(|&place| times.executions.get(place)?.program_id);
        for program in programs {
            let (of_candidate, of_program) =
                (*program_of.entry(candidate).or_insert(program), *candidate_of.entry(program).or_insert(candidate));
            if of_candidate != program || of_program != candidate {
                let message = format!(
                    "the profile's executions are not in the order of the launches: program {program} was found for \
                     candidate {candidate} and for candidate {of_program}, whose program is {of_candidate}"
                );
                return Err(Failure::new(FailureKind::Protocol, message));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::Path;

    /// A real trace of six functions with five runs each, and the results of an independent program for it.
    #[test]
    fn durations_are_the_oracles_in_launch_order() {
        let oracle = std::fs::read_to_string(folder().join("autotune6x5.oracle.json")).unwrap();
        let oracle: Value = serde_json::from_str(&oracle).unwrap();
        let mut expected: BTreeMap<&str, Vec<(i64, [u64; 2])>> = BTreeMap::new();
        for module in oracle["modules"].as_array().unwrap() {
            let ns = |name: &str| (module[name].as_u64().unwrap() + 500) / 1000;
            let times = (module["start_ps"].as_i64().unwrap(), [ns("span_ps"), ns("busy_union_ps")]);
            expected.entry(module["hlo_module"].as_str().unwrap()).or_default().push(times);
        }
        let launches: Vec<(usize, u32)> = [3, 0, 5, 1, 4, 2].map(|candidate| (candidate, 5)).to_vec();
        let round = ProfiledRound::find(times(), Some(NAME), &launches).unwrap();
        for (metric, at) in [(Metric::Span, 0), (Metric::Busy, 1)] {
            let found = round.durations(&metric);
            for ((candidate, _), found) in launches.iter().zip(found) {
                let expected = expected.get_mut(format!("jit_autotune_fn_{candidate}").as_str()).unwrap();
                expected.sort_unstable();
                assert_eq!(found, expected.iter().map(|(_, ns)| ns[at]).collect::<Vec<_>>(), "{candidate} {metric}");
            }
        }
        let whole = round.durations(&Metric::Span);
        let apart =
            ProfiledRound::find(times(), Some(NAME), &[(3, 2), (0, 5), (3, 3)]).unwrap().durations(&Metric::Span);
        assert_eq!(
            ([&apart[0][..], &apart[2][..]].concat(), &apart[1]),
            (whole[0].clone(), &whole[1]),
            "launched twice"
        );
        let failed = |launches| ProfiledRound::find(times(), Some(NAME), launches).unwrap_err();
        let more = failed(&[(0, 6)]);
        assert!(more.message.contains("5 executions") && more.message.contains("6 were launched"), "{more}");
        let absent = failed(&[(9, 1)]);
        assert!(absent.needs_restart() && absent.message.contains("holds 0 executions"), "{absent}");
    }

    /// The worker's device counts, one by default, match the profile's.
    #[test]
    fn a_device_that_left_nothing_is_missed() {
        let launches = [0, 1].map(|candidate| (candidate, 5));
        let round = ProfiledRound::find(times(), Some(NAME), &launches).unwrap();
        round.check_devices(None).unwrap();
        round.check_devices(Some(&[1, 1])).unwrap();
        let missed = round.check_devices(Some(&[1, 2])).unwrap_err();
        assert!(
            missed.needs_restart() && missed.message.contains("on 1 devices of a program that ran on 2"),
            "{missed}"
        );
        assert!(round.check_devices(Some(&[1])).unwrap_err().message.contains("`devices` of every launch"));
    }

    /// The order given by the functions' names, found without them.
    #[test]
    fn launches_without_names_are_identified_by_their_order() {
        let times = times();
        let mut started: Vec<&Execution> = times.executions.iter().collect();
        started.sort_by_key(|execution| execution.start_ps);
        let candidate = |execution: &Execution| -> usize {
            times.name(execution.module).strip_prefix("jit_autotune_fn_").unwrap().parse().unwrap()
        };
        let launches: Vec<(usize, u32)> = started
            .chunk_by(|one, next| one.module == next.module)
            .map(|launch| (candidate(launch[0]), launch.len() as u32))
            .collect();
        let named = ProfiledRound::find(self::times(), Some(NAME), &[0, 1, 2, 3, 4, 5].map(|id| (id, 5))).unwrap();
        let ordered = ProfiledRound::find(self::times(), None, &launches).unwrap();
        let mut of_candidate = vec![Vec::new(); 6];
        for ((candidate, _), durations) in launches.iter().zip(ordered.durations(&Metric::Span)) {
            of_candidate[*candidate].extend(durations);
        }
        assert_eq!(of_candidate, named.durations(&Metric::Span));
        let failed = |launches: &[(usize, u32)]| ProfiledRound::find(self::times(), None, launches).unwrap_err();
        assert!(failed(&[(0, 29)]).message.contains("30 executions, 29 were launched"));
        let one_program = failed(&[(0, 30)]);
        assert!(one_program.needs_restart() && one_program.message.contains("not in the order"), "{one_program}");
        let mut twice = launches;
        let (first, runs) = twice[0];
        twice[0] = (first, runs - 1);
        twice.insert(0, (9, 1));
        assert!(failed(&twice).message.contains("candidate 9"), "one program under two candidates");
    }

    /// A round on an H200: 60 runs of three programs with six kernels each. There, every profile but a process's first
    /// names a lost event that no run lacks.
    #[test]
    fn a_lost_event_is_an_error_only_if_a_run_lacks_it() {
        let packed = std::fs::read(folder().join("gpu/h200_step_replay.xplane.pb.gz")).unwrap();
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        let lost = "1 events dropped because Activity Event dropped by Cupti Lib:.";
        // `errors` of an XSpace
        let errors = [&[2 << 3 | 2, lost.len() as u8], lost.as_bytes()].concat();
        let space = XSpace::from_bytes([bytes.clone(), errors].concat()).unwrap();
        let mut launches: Vec<(usize, u32)> = Vec::new();
        let found = executions(&space).executions;
        assert_eq!(found.len(), 60);
        for program in found.iter().map(|one| one.program_id.unwrap() as usize) {
            match launches.last_mut() {
                Some((last, runs)) if *last == program => *runs += 1,
                _ => launches.push((program, 1)),
            }
        }
        let round = ProfiledRound::of(&space, None, &launches).unwrap();
        let mut most = BTreeMap::new();
        round.check_complete(&launches, &mut most).unwrap();
        assert_eq!(most.into_values().collect::<Vec<_>>(), [6; 3]);
        // an earlier round saw seven
        let mut most = BTreeMap::from([(launches[0].0, 7)]);
        let incomplete = round.check_complete(&launches, &mut most).unwrap_err();
        let expected = format!("a run of candidate {} has 6 of 7 operations", launches[0].0);
        assert!(incomplete.message.contains(&expected) && incomplete.needs_restart(), "{incomplete}");
        // without a lost event, runs may differ
        let space = XSpace::from_bytes(bytes).unwrap();
        ProfiledRound::of(&space, None, &launches).unwrap().check_complete(&launches, &mut most).unwrap();
    }

    const NAME: &str = "jit_autotune_fn_{candidate}";

    fn folder() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/xplane")
    }

    fn times() -> DeviceTime {
        executions(&XSpace::open(&folder().join("autotune6x5.xplane.pb.gz")).unwrap())
    }
}
