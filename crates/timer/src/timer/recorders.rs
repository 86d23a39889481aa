//! Recorders: processes that lower candidates when they are needed.
//!
//! A recorder is the user's own program, run again. It records the same calls as before, and then it answers: one JSON
//! line for each request, on the file descriptors that a variable names (`docs/recorder-protocol.md`). A recorder
//! that dies of a candidate costs this candidate alone.

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
    Hello { protocol: u32 },
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
    /// Its name, with versions.
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
    /// Why none can be started.
    broken: Option<Failure>,
}

impl Recorders {
    /// Recorders by a shell command, `most` of them at once. `exe` is this program, which supervises them.
    pub fn new(exe: &Path, command: &str, most: NonZeroUsize, limits: WorkerLimits) -> Self {
        let start = limits.start.max(LEAST_START);
        Self {
            command: WorkerCommand::beside_own_output(exe, command, DESCRIPTORS),
            times: limits.compile_times.as_ref().map(|_| CompileTimes::default()),
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
            let mut recorder = self.take(name, is_cancelled)?;
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
                Err(failure) => return Err(failure),
            }
        }
    }

    /// An idle recorder, or a new one.
    fn take(&self, name: &str, is_cancelled: IsCancelled<'_>) -> Result<Recorder, Failure> {
        let mut state = self.lock();
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        let recorder = match state.idle.pop() {
            Some(recorder) => recorder,
            None => {
                drop(state);
                let started = self.start(is_cancelled);
                if let Err(failure) = &started
                    && !is_cancelled()
                {
                    self.lock().broken = Some(failure.clone());
                }
                started?
            }
        };
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

    fn start(&self, is_cancelled: IsCancelled<'_>) -> Result<Recorder, Failure> {
        let as_own = |failure: Failure| {
            let advice = "`--recorder` takes the command that recorded, with `on_demand=True` or `--on-demand`";
            Failure::new(FailureKind::NoProgram, format!("no recorder: {}", failure.because(advice).message))
        };
        let start = || {
            let mut client = WorkerClient::spawn(&self.command, &self.limits)?;
            let patience = Patience::unless(is_cancelled, self.limits.start);
            let hello = client.ask("hello", &RecorderMethod::Hello { protocol: PROTOCOL }, patience);
            Ok((client, hello))
        };
        let (mut client, mut hello) = start().map_err(as_own)?;
        if hello.is_err() && client.was_killed() {
            // anybody may have sent the signal
            (client, hello) = start().map_err(as_own)?;
        }
        let RecorderHello { protocol, recorder: name } = hello.map_err(as_own)?;
        if protocol != PROTOCOL {
            let message = format!("it speaks protocol {protocol}, {PROTOCOL} is needed");
            return Err(as_own(Failure::new(FailureKind::Protocol, message)));
        }
        Ok(Recorder { client, name })
    }

    fn lock(&self) -> MutexGuard<'_, RecordersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RecordersState {
    /// They end beside each other, because a program may take a while.
    fn drop(&mut self) {
        self.idle.iter_mut().for_each(|recorder| recorder.client.close());
    }
}
