//! `replay:DIR`: durations from profiles that were captured earlier.
//!
//! If the launches of every profile are known, a round takes the next round's executions, and fails if that one failed:
//! a tuner with the same requests as during the capture makes the same decisions. Otherwise a candidate's executions
//! are one list, by profile and start. When they are used up, they start again, and a message says so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::calls::{RecordedCalls, RecordedMethod, ends_worker};
use super::index::{IndexedInvocation, NUMBER, ProfileIndex, TakenProfile, TakenRound, check_real, inside};
use crate::counted::listed;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::{Metric, Source};
use crate::profile::{DeviceTime, XSpace, capture_files, executions};
use crate::timer::info::{TimerCapabilities, TimerInfo};
use crate::timer::job::{Job, Prepared};
use crate::timer::measured::{
    CandidateRuns, OutputsAs, RoundRequest, RoundSamples, TakenOutputs, means, runs_of_batches,
};
use crate::timer::model::Timer;
use crate::timer::partitions::by_run_id;
use crate::timer::profiled::{ProfiledRound, default_metric, slowest_ns};

/// Replays the durations in a folder's profiles.
#[derive(Debug)]
pub struct ProfileReplay {
    info: TimerInfo,
    root: PathBuf,
    index: ProfileIndex,
    broken: bool,
    job: Option<CurrentJob>,
}

/// The current job.
#[derive(Debug)]
struct CurrentJob {
    job: Job,
    invocation: usize,
    found: FoundExecutions,
    loaded: BTreeSet<usize>,
    calls: RecordedCalls,
    /// Rounds requested.
    rounds: usize,
    /// For each function the position in its samples.
    read: BTreeMap<usize, usize>,
    has_said_again: bool,
}

/// The content of an invocation's profiles.
#[derive(Debug, Default)]
struct FoundExecutions {
    /// For each function its durations, nanoseconds: round by round, or all in one list.
    samples: BTreeMap<usize, Vec<Vec<u64>>>,
    by_round: bool,
    /// For each round its failure.
    failed: Vec<Option<Failure>>,
    /// Functions of those rounds.
    failed_functions: BTreeSet<usize>,
    /// Names of all modules, for messages.
    modules: BTreeSet<String>,
}

impl ProfileReplay {
    /// Opens a folder of profiles; they are read when their invocation is tuned. By default, an execution's duration is
    /// its span on a CPU, and its busy time elsewhere.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read or has no such profiles, or no profile has the metric.
    pub fn open(folder: &Path, metric: Option<Metric>) -> Result<Self, Failure> {
        let index = ProfileIndex::read(folder)?;
        if metric == Some(Metric::Elapsed) {
            let message = format!("{}: profiles hold no time by the host clock", folder.display());
            return Err(Failure::new(FailureKind::Device, message));
        }
        let metric = metric.unwrap_or_else(|| default_metric(&index.device.identity.platform));
        let root = folder.canonicalize().map_err(|error| super::json_file::wrong(folder, error))?;
        let name = format!("replay:{}", folder.display());
        let can = TimerCapabilities {
            build_programs: index.builds_programs,
            only_one_job_a_call: true,
            measure_rounds: true,
            skip_outputs: true,
            ..TimerCapabilities::default()
        };
        let info = TimerInfo::new(name, Source::Replay, index.device.clone()).metric(metric).can(can);
        Ok(Self { info, root, index, broken: false, job: None })
    }

    fn current(&mut self) -> Result<(&mut CurrentJob, &IndexedInvocation), Failure> {
        if self.broken {
            return Err(Failure::new(FailureKind::Device, "the worker is gone and must be restarted"));
        }
        let current = self.job.as_mut();
        let current = current.ok_or_else(|| Failure::new(FailureKind::Protocol, "no job was started"))?;
        let invocation = self.index.invocations.get(current.invocation);
        let invocation = invocation.ok_or_else(|| Failure::new(FailureKind::Protocol, "no such invocation"))?;
        Ok((current, invocation))
    }

    /// Counts a call outside the rounds, and fails if the recorded one did.
    fn call(&mut self, candidate: usize, method: RecordedMethod) -> Result<(), Failure> {
        let (current, invocation) = self.current()?;
        let function = current.function(candidate, invocation)?;
        if method != RecordedMethod::Prepare && !current.loaded.contains(&candidate) {
            return Err(not_prepared(candidate));
        }
        let failures = invocation.failures.get(&function).map(Vec::as_slice).unwrap_or_default();
        let called = current.calls.call(candidate, method, failures);
        if called.is_ok() && method == RecordedMethod::Prepare {
            if failures.is_empty() && !current.found.knows(function) {
                return Err(current.found.missing(function, invocation));
            }
            current.loaded.insert(candidate);
        }
        self.broken |= called.as_ref().is_err_and(ends_worker);
        called
    }

    fn round(&mut self, launches: &[(usize, u32)]) -> Result<Vec<Vec<u64>>, Failure> {
        let (current, invocation) = self.current()?;
        let round = current.rounds;
        current.rounds += 1;
        if let Some(Some(failure)) = current.found.failed.get(round) {
            return Err(failure.clone());
        }
        launches.iter().map(|&(candidate, runs)| current.take(candidate, runs, invocation)).collect()
    }
}

fn not_prepared(candidate: usize) -> Failure {
    Failure::new(FailureKind::NoProgram, format!("candidate {candidate} was not prepared"))
}

impl CurrentJob {
    /// The number of a candidate's function.
    fn function(&self, candidate: usize, invocation: &IndexedInvocation) -> Result<usize, Failure> {
        let known = self.job.candidates.get(candidate);
        let absent = || Failure::new(FailureKind::Protocol, format!("the job has no candidate {candidate}"));
        let config = &known.ok_or_else(absent)?.config;
        let function = invocation.functions.0.iter().find(|(_, of)| *of == config);
        function.map(|(&function, _)| function).ok_or_else(|| {
            let message = format!("no function of the profiles has the config {config}");
            Failure::new(FailureKind::NoProgram, message)
        })
    }

    /// The next durations of a candidate.
    fn take(&mut self, candidate: usize, runs: u32, invocation: &IndexedInvocation) -> Result<Vec<u64>, Failure> {
        let function = self.function(candidate, invocation)?;
        if !self.loaded.contains(&candidate) {
            return Err(not_prepared(candidate));
        }
        let lists = self.found.samples.get(&function).map(Vec::as_slice).unwrap_or_default();
        let place = self.read.entry(function).or_default();
        let (list, first) = if self.found.by_round { (*place % lists.len().max(1), 0) } else { (0, *place) };
        let list = lists.get(list).filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| self.found.missing(function, invocation))?;
        let taken = list.iter().cycle().skip(first % list.len()).take(runs as usize).copied().collect();
        let (step, all) = if self.found.by_round { (1, lists.len()) } else { (runs as usize, list.len()) };
        *place = place.saturating_add(step);
        if *place > all && !std::mem::replace(&mut self.has_said_again, true) {
            let what = if self.found.by_round { "rounds" } else { "executions" };
            tracing::warn!(
                "{}: the profiles hold {all} {what} of function {function}, which are used again: more of them give \
                 no new information",
                invocation.call
            );
        }
        Ok(taken)
    }
}

impl FoundExecutions {
    /// Reads an invocation's profiles.
    fn read(root: &Path, invocation: &IndexedInvocation, metric: &Metric) -> Result<Self, Failure> {
        // an index that mixes both is rejected
        let by_round = invocation.profiles.iter().all(|profile| matches!(profile, TakenProfile::Round(_)));
        let mut found = Self { by_round, ..Self::default() };
        for profile in &invocation.profiles {
            match profile {
                TakenProfile::Found(name) => found.add_capture(root, name, invocation, metric)?,
                TakenProfile::Round(round) => found.add_round(root, round, invocation, metric)?,
            }
        }
        Ok(found)
    }

    fn add_round(
        &mut self,
        root: &Path,
        round: &TakenRound,
        invocation: &IndexedInvocation,
        metric: &Metric,
    ) -> Result<(), Failure> {
        self.failed.push(round.failure.clone());
        let Some(name) = &round.profile else {
            self.failed_functions.extend(round.launches.iter().map(|&(function, _)| function));
            return Ok(());
        };
        let files = files(root, name)?;
        let [file] = files.as_slice() else {
            return Err(failure(name, "holds the captures of several hosts; `launches` can be those of one only"));
        };
        let (space, _) = self.open(name, file)?;
        let found = ProfiledRound::of(&space, invocation.module_name.as_deref(), &round.launches);
        let durations = found.map_err(|of_round| failure(name, of_round.message))?.durations(metric);
        for (&(function, _), durations) in round.launches.iter().zip(durations) {
            self.samples.entry(function).or_default().push(durations);
        }
        Ok(())
    }

    fn add_capture(
        &mut self,
        root: &Path,
        name: &str,
        invocation: &IndexedInvocation,
        metric: &Metric,
    ) -> Result<(), Failure> {
        let functions: HashMap<String, usize> = invocation
            .functions
            .0
            .keys()
            .filter_map(|&function| Some((module_name(invocation, function)?, function)))
            .collect();
        for file in files(root, name)? {
            let (_, times) = self.open(name, &file)?;
            for finding in &times.findings {
                tracing::warn!("profile `{name}`: {finding}");
            }
            let mut of_function: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for (place, execution) in times.executions.iter().enumerate() {
                if let Some(&function) = functions.get(times.name(execution.module)) {
                    of_function.entry(function).or_default().push(place);
                }
            }
            for (function, places) in of_function {
                let lists = self.samples.entry(function).or_default();
                if lists.is_empty() {
                    lists.push(Vec::new());
                }
                for run in by_run_id(&times, &places) {
                    let executions = run.iter().filter_map(|&place| times.executions.get(place));
                    let slowest = slowest_ns(executions, metric);
                    lists.iter_mut().for_each(|list| list.extend(slowest));
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, name: &str, file: &Path) -> Result<(XSpace, DeviceTime), Failure> {
        let space = XSpace::open(file).map_err(|error| failure(name, error.kind))?;
        let times = executions(&space);
        let modules: BTreeSet<_> = times.executions.iter().map(|execution| execution.module).collect();
        self.modules.extend(modules.into_iter().map(|module| times.name(module).to_owned()));
        Ok((space, times))
    }

    /// Whether a function ran, or should have run.
    fn knows(&self, function: usize) -> bool {
        self.samples.contains_key(&function) || self.failed_functions.contains(&function)
    }

    /// Why there are no samples of a function.
    fn missing(&self, function: usize, invocation: &IndexedInvocation) -> Failure {
        let what = module_name(invocation, function).map_or_else(
            || format!("function {function} is among no launches"),
            |name| format!("the profiles hold no execution of `{name}`"),
        );
        let modules = match self.modules.is_empty() {
            true => "none of any module".to_owned(),
            false => listed(self.modules.iter().map(|name| format!("`{name}`"))),
        };
        Failure::new(FailureKind::NoProgram, format!("{what}; there are executions of {modules}"))
    }
}

fn module_name(invocation: &IndexedInvocation, function: usize) -> Option<String> {
    Some(invocation.module_name.as_ref()?.replace(NUMBER, &function.to_string()))
}

/// The files of a profile.
fn files(root: &Path, name: &str) -> Result<Vec<PathBuf>, Failure> {
    let path = inside(root, name).map_err(|what| Failure::new(FailureKind::Protocol, what))?;
    let files = capture_files(&path).map_err(|error| failure(name, error.kind))?;
    for file in &files {
        let real = file.canonicalize().map_err(|error| failure(name, error))?;
        check_real(root, &real).map_err(|what| failure(name, format!("`{}` {what}", file.display())))?;
    }
    Ok(files)
}

fn failure(name: &str, what: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Protocol, format!("profile `{name}`: {what}"))
}

impl Timer for ProfileReplay {
    fn info(&self) -> &TimerInfo {
        &self.info
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.end();
        let found = self.index.invocations.iter().enumerate().find(|(_, invocation)| invocation.is_of(job));
        let (number, invocation) = found.ok_or_else(|| {
            let message = format!(
                "{} names no profiles of {} {}{}",
                self.root.join(super::index::FILE_NAME).display(),
                job.call,
                job.direction,
                if job.cache_state.is_warm() { "" } else { " with cold caches" }
            );
            Failure::new(FailureKind::NoProgram, message)
        })?;
        self.job = Some(CurrentJob {
            job: job.clone(),
            invocation: number,
            found: FoundExecutions::read(&self.root, invocation, &self.info.metric)?,
            loaded: BTreeSet::new(),
            calls: RecordedCalls::default(),
            rounds: 0,
            read: BTreeMap::new(),
            has_said_again: false,
        });
        Ok(())
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        self.call(candidate, RecordedMethod::Prepare).map(|()| Prepared::default())
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        if round.with_profile {
            return Err(Failure::new(FailureKind::Device, "the profiles were taken before: there is no new one"));
        }
        let runs = |of: &CandidateRuns| Ok((of.candidate, runs_of_batches(of.samples, of.batch)?));
        let launches: Vec<(usize, u32)> = round.launches.iter().map(runs).collect::<Result<_, Failure>>()?;
        let durations = self.round(&launches);
        self.broken |= durations.as_ref().is_err_and(ends_worker);
        let batched =
            durations?.iter().zip(&round.launches).map(|(durations, of)| means(durations, of.batch)).collect();
        Ok(RoundSamples::new(batched))
    }

    /// No outputs, because profiles have none.
    fn outputs(&mut self, candidate: usize, _taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        self.call(candidate, RecordedMethod::Outputs).map(|()| TakenOutputs::Files(Vec::new()))
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.info.epoch += 1;
        self.broken = false;
        if let Some(current) = &mut self.job {
            current.loaded.retain(|candidate| !without.contains(candidate));
        }
        Ok(())
    }

    fn end(&mut self) {
        self.job = None;
    }
}
