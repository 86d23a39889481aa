//! Recorders: processes that lower candidates when they are needed.
//!
//! A recorder is the user's own program, run again. It records the same calls as before, and then it answers: one JSON
//! line for each request, on the file descriptors that a variable names (`docs/recorder-protocol.md`). A recorder
//! that dies of a candidate costs this candidate alone.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::client::{Patience, WorkerClient};
use super::compile_times::CompileTimes;
use super::protocol::one_line;
use super::worker_command::{WorkerCommand, WorkerLimits};
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::failure::{Failure, FailureKind};
use crate::registry::{Program, RecordedTarget};

/// The variable that tells a program to answer, and the file descriptors of requests and answers: `4,3`.
const DESCRIPTORS: &str = "AUTOTUNE_LOWERED_ANSWER";

/// The version of the protocol.
const PROTOCOL: u32 = 1;

/// The number of a program's first recording on demand.
const FIRST: u64 = 1;

/// The user's program runs before the first answer, so it has at least this long.
const LEAST_START: Duration = Duration::from_secs(600);

/// Longest reason that is kept.
const LONGEST_REASON: usize = 1000;

/// A candidate to lower.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ToLower<'a> {
    /// The call.
    #[serde(flatten)]
    pub call: &'a Call,
    /// What the program computes.
    pub direction: Direction,
    /// What it is for.
    pub target: &'a RecordedTarget,
    /// The config.
    pub config: &'a Config,
    /// Which of the program's recordings on demand has the call.
    #[serde(skip_serializing_if = "is_first")]
    pub recording: u64,
}

/// The first one is not named: most programs have one.
// serde passes a reference
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_first(recording: &u64) -> bool {
    *recording <= FIRST
}

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lowered {
    /// Its program, which is in the registry.
    Program(Program),
    /// Why it has none: the kernel's own refusal.
    NotLowered(String),
}

#[derive(Serialize)]
#[serde(tag = "method", content = "params", rename_all = "kebab-case")]
enum RecorderMethod<'a> {
    Hello {
        protocol: u32,
        #[serde(skip_serializing_if = "is_first")]
        recording: u64,
    },
    Lower(&'a ToLower<'a>),
}

#[derive(Deserialize)]
struct RecorderHello {
    protocol: u32,
    recorder: String,
}

/// Whether a failure is of the candidate that was to be lowered: in this run, because a signal or a busy machine may be
/// the reason as well. All others are of the recorder, and say nothing about candidates.
pub fn is_of_candidate(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Crash | FailureKind::Memory | FailureKind::Timeout)
}

/// Whether the user ended the run.
pub type IsCancelled<'a> = &'a (dyn Fn() -> bool + Sync);

/// A recorder that has said hello.
struct Recorder {
    client: WorkerClient,
    /// Which of its recordings it said hello for.
    recording: u64,
    /// Its name at that time, with versions.
    name: String,
}

/// Recorders of one command, started when they are needed.
pub struct Recorders {
    command: WorkerCommand,
    limits: WorkerLimits,
    /// What lowering took, if the time limit follows it.
    times: Option<CompileTimes>,
    most: usize,
    state: Mutex<RecordersState>,
}

#[derive(Default)]
struct RecordersState {
    idle: Vec<Recorder>,
    /// Why none comes to a recording, nor to those after it.
    broken: BTreeMap<u64, Failure>,
}

impl Recorders {
    /// Recorders by a shell command, `most` of them at once. `exe` is this program, which supervises them.
    pub fn new(exe: &Path, command: &str, most: NonZeroUsize, limits: WorkerLimits) -> Self {
        let start = limits.start.max(LEAST_START);
        Self {
            command: WorkerCommand::beside_own_output(exe, command, DESCRIPTORS),
            times: limits.compile_times.as_ref().map(CompileTimes::of_others),
            limits: limits.start(start),
            most: most.get(),
            state: Mutex::default(),
        }
    }

    /// Lowers candidates that `recorder` recorded, several at once. The outcomes are in the order of the candidates;
    /// what was not tried, or not waited for, because `is_cancelled`, is `None`. A failure
    /// [is of its candidate](is_of_candidate) or of the recorder.
    pub fn lower(
        &self,
        recorder: &str,
        wanted: &[ToLower<'_>],
        is_cancelled: IsCancelled<'_>,
    ) -> Vec<Option<Result<Lowered, Failure>>> {
        let next = AtomicUsize::new(0);
        let outcomes = Mutex::new(vec![None; wanted.len()]);
        let work = || {
            while !is_cancelled() {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(one) = wanted.get(place) else { return };
                let outcome = self.lower_one(recorder, one, is_cancelled);
                // a recorder that was ended says nothing
                if outcome.is_err() && is_cancelled() {
                    return;
                }
                let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                outcomes.iter_mut().skip(place).take(1).for_each(|slot| *slot = Some(outcome.clone()));
            }
        };
        std::thread::scope(|scope| {
            (1..self.most.min(wanted.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// A used recorder may die of an earlier candidate, so the second, fresh one tells.
    fn lower_one(&self, name: &str, wanted: &ToLower<'_>, is_cancelled: IsCancelled<'_>) -> Result<Lowered, Failure> {
        let mut deaths = 0;
        loop {
            let mut recorder = self.take((name, wanted.recording), is_cancelled)?;
            let begin = Instant::now();
            let limit = self.times.as_ref().and_then(CompileTimes::limit).unwrap_or(self.limits.compile);
            let patience = Patience::unless(is_cancelled, limit);
            let answer = recorder.client.ask("lower", &RecorderMethod::Lower(wanted), patience);
            if !recorder.client.is_gone() {
                self.lock().idle.push(recorder);
            }
            match answer {
                Ok(Lowered::Program(program)) => {
                    self.times.iter().for_each(|times| times.add(begin.elapsed()));
                    return Ok(Lowered::Program(program));
                }
                Ok(Lowered::NotLowered(reason)) => {
                    return Ok(Lowered::NotLowered(one_line(&reason, LONGEST_REASON)));
                }
                Err(failure) if matches!(failure.kind, FailureKind::Crash | FailureKind::Memory) => {
                    deaths += 1;
                    if deaths == 2 {
                        let message = format!("it ended two recorders: {}", failure.message);
                        return Err(Failure::new(failure.kind, message));
                    }
                }
                Err(failure) if failure.kind == FailureKind::Timeout => {
                    return Err(failure.because("the time limit of a candidate; `--timeout` gives it more"));
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// An idle recorder, or a new one, that has come to the recording.
    fn take(&self, (name, recording): (&str, u64), is_cancelled: IsCancelled<'_>) -> Result<Recorder, Failure> {
        let mut state = self.lock();
        if let Some((_, broken)) = state.broken.range(..=recording).next() {
            return Err(broken.clone());
        }
        let at_it = state.idle.iter().position(|idle| idle.recording == recording);
        let idle = at_it.map(|at| state.idle.swap_remove(at)).or_else(|| state.idle.pop());
        drop(state);
        let come = match idle {
            Some(recorder) if recorder.recording == recording => Ok(recorder),
            Some(recorder) => self.go_on(recorder, recording, is_cancelled),
            None => self.start(recording, is_cancelled),
        };
        let recorder = come.map_err(|failure| no_recorder(recording, failure)).inspect_err(|failure| {
            if !is_cancelled() {
                self.lock().broken.insert(recording, failure.clone());
            }
        })?;
        if recorder.name == name {
            return Ok(recorder);
        }
        let message = format!(
            "recorded by {}, and the recorder is {}: record again",
            one_line(name, LONGEST_REASON),
            one_line(&recorder.name, LONGEST_REASON)
        );
        self.lock().idle.push(recorder);
        Err(Failure::new(FailureKind::NoProgram, message))
    }

    /// Has a recorder run on to another recording. It may die of an earlier candidate.
    fn go_on(
        &self,
        mut recorder: Recorder,
        recording: u64,
        is_cancelled: IsCancelled<'_>,
    ) -> Result<Recorder, Failure> {
        match self.hello(&mut recorder.client, recording, is_cancelled) {
            Ok(name) => Ok(Recorder { recording, name, ..recorder }),
            Err(_) if recorder.client.was_killed() => self.start(recording, is_cancelled),
            Err(failure) => Err(failure),
        }
    }

    fn start(&self, recording: u64, is_cancelled: IsCancelled<'_>) -> Result<Recorder, Failure> {
        let start = || {
            let mut client = WorkerClient::spawn(&self.command, &self.limits)?;
            let name = self.hello(&mut client, recording, is_cancelled);
            Ok::<_, Failure>((client, name))
        };
        let (mut client, mut name) = start()?;
        if name.is_err() && client.was_killed() {
            // anybody may have sent the signal
            (client, name) = start()?;
        }
        name.map(|name| Recorder { client, recording, name })
    }

    /// Waits until a recorder has come to the end of a recording; gives its name.
    fn hello(
        &self,
        client: &mut WorkerClient,
        recording: u64,
        is_cancelled: IsCancelled<'_>,
    ) -> Result<String, Failure> {
        let hello = RecorderMethod::Hello { protocol: PROTOCOL, recording };
        let RecorderHello { protocol, recorder } =
            client.ask("hello", &hello, Patience::unless(is_cancelled, self.limits.start))?;
        if protocol == PROTOCOL {
            return Ok(recorder);
        }
        let message = format!("it speaks protocol {protocol}, {PROTOCOL} is needed");
        Err(Failure::new(FailureKind::Protocol, message))
    }

    fn lock(&self) -> MutexGuard<'_, RecordersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_recorder(recording: u64, failure: Failure) -> Failure {
    let advice = "`--recorder` takes the command that recorded, with `on_demand=True` or `--on-demand`";
    let failure = match recording {
        ..=FIRST => failure,
        later => failure.because(&format!("before the end of its recording {later} on demand, which has the call")),
    };
    Failure::new(FailureKind::NoProgram, format!("no recorder: {}", failure.because(advice).message))
}

impl Drop for RecordersState {
    /// They end beside each other, because a program may take a while.
    fn drop(&mut self) {
        self.idle.iter_mut().for_each(|recorder| recorder.client.close());
    }
}
