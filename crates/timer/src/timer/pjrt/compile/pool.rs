//! Compiles programs side by side: each in its own worker process, driven by its own thread.
//!
//! Programs start in the order of submission, except that one that is waited for comes next, and that one that needs
//! the device for itself waits until no other such one runs. While the pool is held, none starts, because a compilation
//! takes cores, or the device, away from a measurement.
//!
//! Several timers of one device share a pool, so that programs of several jobs keep it busy. Each sees only its own
//! programs.
//!
//! A worker stays for later programs and jobs. If it dies, only its program fails, and only if a second, fresh worker
//! died of it too, because anyone may have sent a signal. A worker may be started by one thread and ended by another:
//! its supervisor watches the process that started it, not the thread, and sets the parent-death signal from its own
//! only thread.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::failure::{Failure, FailureKind};

/// Ends a compiler, from another thread.
pub(crate) type Stop = Box<dyn Fn() + Send>;

/// A compiler, which compiles one program at a time.
pub(crate) trait Compiler: Send + 'static {
    /// What it receives.
    type Task: Clone + Send + 'static;
    /// What it returns.
    type Output: Send + 'static;

    /// Makes it ready, with this task as the first. A failure is not blamed on a program, but see `as_own`.
    fn greet(&mut self, task: &Self::Task) -> Result<(), Failure>;
    /// Whether it is suitable for this task.
    fn suits(&self, _task: &Self::Task) -> bool {
        true
    }
    /// A failure to start as this task's failure, if the task needs a compiler of its own; it does not affect other
    /// tasks.
    fn as_own(_task: &Self::Task, _failure: &Failure) -> Option<Failure> {
        None
    }
    /// Whether no other such task may run at the same time.
    fn is_alone(_task: &Self::Task) -> bool {
        false
    }
    /// Whether it holds memory of the device.
    fn holds_device(&self) -> bool {
        true
    }
    /// Compiles a program.
    fn compile(&mut self, task: &Self::Task) -> Result<Self::Output, Failure>;
    /// Whether it is no longer usable.
    fn is_gone(&self) -> bool;
    /// Whether a signal ended it, whoever sent it.
    fn was_killed(&self) -> bool;
    /// How to end it while it compiles.
    fn stop(&self) -> Option<Stop>;
}

/// Starts a compiler.
type StartCompiler<C> = Box<dyn Fn(&<C as Compiler>::Task) -> Result<C, Failure> + Send + Sync>;
type TaskOutcome<C> = Result<<C as Compiler>::Output, Failure>;

/// A sharer of a pool.
pub(crate) struct Compilers<C: Compiler> {
    pool: Arc<CompilePool<C>>,
    sharer: usize,
}

/// A pool's threads, which end with its last sharer.
struct CompilePool<C: Compiler> {
    shared: Arc<SharedPool<C>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    jobs: usize,
}

/// A sharer, and the number of its program there.
type TaskKey = (usize, usize);

struct SharedPool<C: Compiler> {
    start: StartCompiler<C>,
    state: Mutex<PoolState<C>>,
    changed: Condvar,
}

struct PoolState<C: Compiler> {
    /// Candidates that have not been started, with their programs.
    queue: VecDeque<(TaskKey, C::Task)>,
    running: Vec<RunningTask>,
    done: BTreeMap<TaskKey, TaskOutcome<C>>,
    idle: Vec<C>,
    /// Number of threads that take from the queue.
    hands: usize,
    held: bool,
    closing: bool,
    /// For each sharer, how often it dropped everything: work from before the last drop is useless.
    rounds: Vec<u64>,
}

/// Work started for a sharer, and in which of its rounds.
#[derive(Debug, Clone, Copy)]
struct StartedWork {
    sharer: usize,
    round: u64,
    hand: usize,
}

impl<C: Compiler> PoolState<C> {
    /// Whether nothing was dropped since this work started.
    fn is_of_now(&self, started: StartedWork) -> bool {
        self.rounds.get(started.sharer) == Some(&started.round)
    }

    /// Whether this work is still needed.
    fn wants(&self, started: StartedWork) -> bool {
        self.is_of_now(started) && !self.closing
    }

    /// Takes the first program that may start now.
    fn take_next(&mut self) -> Option<(TaskKey, C::Task)> {
        let one_is_alone = self.running.iter().any(|running| running.is_alone);
        let place = self.queue.iter().position(|(_, task)| !(one_is_alone && C::is_alone(task)))?;
        self.queue.remove(place)
    }

    /// Counts a program as running; also the idle compiler for it.
    fn start(&mut self, key: TaskKey, hand: usize, task: &C::Task) -> (StartedWork, IdleCompiler<C>) {
        self.running.push(RunningTask { key, hand, is_alone: C::is_alone(task), stop: None });
        let round = self.rounds.get(key.0).copied().unwrap_or_default();
        (StartedWork { sharer: key.0, round, hand }, self.take_idle(task))
    }

    /// Keeps a program's outcome, unless its sharer dropped it.
    fn finish(&mut self, started: StartedWork, key: TaskKey, outcome: TaskOutcome<C>) {
        if self.is_of_now(started) {
            self.done.insert(key, outcome);
        }
    }

    /// Leaves a program to the other threads. The last one reports why none is left.
    fn put_back(&mut self, started: StartedWork, (key, task): (TaskKey, C::Task), failure: &Failure) {
        if self.is_of_now(started) {
            self.queue.push_front((key, task));
        }
        if self.hands == 1 {
            let queue = std::mem::take(&mut self.queue);
            self.done.extend(queue.into_iter().map(|(key, _)| (key, Err(failure.clone()))));
        }
    }

    /// An idle compiler for a task. If none suits, one that makes room for a new one, so that compilers never outnumber
    /// threads.
    fn take_idle(&mut self, task: &C::Task) -> IdleCompiler<C> {
        match self.idle.iter().rposition(|compiler| compiler.suits(task)) {
            Some(place) => IdleCompiler::Suits(self.idle.swap_remove(place)),
            None => self.idle.pop().map_or(IdleCompiler::None, IdleCompiler::MakesRoom),
        }
    }
}

struct RunningTask {
    key: TaskKey,
    hand: usize,
    is_alone: bool,
    stop: Option<Stop>,
}

/// An idle compiler.
enum IdleCompiler<C> {
    Suits(C),
    MakesRoom(C),
    None,
}

impl<C> IdleCompiler<C> {
    /// The compiler, if it suits; one that only makes room is ended.
    fn into_suitable(self) -> Option<C> {
        match self {
            Self::Suits(compiler) => Some(compiler),
            Self::MakesRoom(_) | Self::None => None,
        }
    }
}

/// The outcome of one attempt.
enum CompileAttempt<C: Compiler> {
    Ended(C, TaskOutcome<C>),
    /// The compiler that this task requires does not start.
    Refused(Failure),
    /// No compiler could be started.
    NotStarted(Failure),
    /// Dropped before it started.
    Dropped,
}

impl<C: Compiler> SharedPool<C> {
    fn lock(&self) -> MutexGuard<'_, PoolState<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, PoolState<C>>) -> MutexGuard<'a, PoolState<C>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a thread.
    fn work(&self, hand: usize) {
        let mut state = self.lock();
        while !state.closing {
            let next = if state.held { None } else { state.take_next() };
            let Some((key, task)) = next else {
                state = self.wait(state);
                continue;
            };
            let (started, idle) = state.start(key, hand, &task);
            drop(state);
            let attempt = self.caught_attempt(started, idle.into_suitable(), &task);
            let goes_on;
            (state, goes_on) = self.settle(started, (key, task), attempt);
            if !goes_on {
                break;
            }
        }
        state.hands -= 1;
    }

    /// A thread that panics silently would be waited for forever.
    fn caught_attempt(&self, started: StartedWork, idle: Option<C>, task: &C::Task) -> CompileAttempt<C> {
        let attempt = catch_unwind(AssertUnwindSafe(|| self.attempt(started, idle, task)));
        attempt.unwrap_or_else(|_| {
            CompileAttempt::NotStarted(Failure::new(FailureKind::Device, "a compile thread panicked"))
        })
    }

    /// Notes the result of a program; also whether its thread goes on.
    fn settle(
        &self,
        started: StartedWork,
        (key, task): (TaskKey, C::Task),
        attempt: CompileAttempt<C>,
    ) -> (MutexGuard<'_, PoolState<C>>, bool) {
        let mut state = self.lock();
        let goes_on = !matches!(attempt, CompileAttempt::NotStarted(_));
        match attempt {
            CompileAttempt::Ended(compiler, outcome) => {
                // a compiler that was told to stop may have answered just before
                if !state.is_of_now(started) || compiler.is_gone() {
                    // it counts as running until its process has ended
                    drop(state);
                    drop(compiler);
                    state = self.lock();
                } else {
                    state.idle.push(compiler);
                }
                state.finish(started, key, outcome);
            }
            CompileAttempt::Refused(failure) => state.finish(started, key, Err(failure)),
            CompileAttempt::NotStarted(failure) => state.put_back(started, (key, task), &failure),
            CompileAttempt::Dropped => {}
        }
        state.running.retain(|running| running.hand != started.hand);
        self.changed.notify_all();
        (state, goes_on)
    }

    fn attempt(&self, started: StartedWork, idle: Option<C>, task: &C::Task) -> CompileAttempt<C> {
        let mut ready = idle;
        // fresh compilers that died of this program
        let mut deaths = 0;
        loop {
            let used = ready.is_some();
            let mut compiler = match ready.take().map_or_else(|| self.begin(started, task), |one| Ok(Some(one))) {
                Ok(Some(compiler)) => compiler,
                Ok(None) => return CompileAttempt::Dropped,
                Err(failure) => {
                    return C::as_own(task, &failure)
                        .map_or(CompileAttempt::NotStarted(failure), CompileAttempt::Refused);
                }
            };
            if !self.may_stop(started, &compiler) {
                return CompileAttempt::Dropped;
            }
            let mut outcome = compiler.compile(task);
            let once_more = match &mut outcome {
                Err(failure) if compiler.is_gone() && used => {
                    // an earlier program may have caused the death of a used one
                    is_death(failure)
                }
                // a compiler may survive the killing of a process that it runs
                Err(failure) if failure.kind == FailureKind::Crash => {
                    deaths += 1;
                    if deaths == 2 {
                        failure.message.insert_str(0, TWICE);
                    }
                    deaths < 2
                }
                _ => false,
            };
            if !once_more || !self.lock().wants(started) {
                return CompileAttempt::Ended(compiler, outcome);
            }
        }
    }

    /// A fresh compiler; `None` if its program is no longer needed. A compiler that a signal ends before it is ready is
    /// started once more.
    fn begin(&self, started: StartedWork, task: &C::Task) -> Result<Option<C>, Failure> {
        let mut forgiven = false;
        loop {
            let mut compiler = (self.start)(task)?;
            if !self.may_stop(started, &compiler) {
                return Ok(None);
            }
            match compiler.greet(task) {
                Ok(()) => return Ok(Some(compiler)),
                // it was ended on purpose
                Err(_) if !self.lock().wants(started) => return Ok(None),
                Err(failure) if compiler.was_killed() && !forgiven && failure.kind != FailureKind::Compile => {
                    forgiven = true;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Allows the compiler to be stopped; `false` if it should have been stopped already.
    fn may_stop(&self, started: StartedWork, compiler: &C) -> bool {
        let stop = compiler.stop();
        let mut state = self.lock();
        if let Some(running) = state.running.iter_mut().find(|running| running.hand == started.hand) {
            running.stop = stop;
        }
        state.wants(started)
    }
}

/// How the message begins when a program is blamed; a single death is not blamed on it.
const TWICE: &str = "twice, in fresh workers: ";

/// A time-out is not a death, because a second one would take as long again.
fn is_death(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Crash | FailureKind::Memory | FailureKind::Protocol | FailureKind::Device)
}

impl<C: Compiler> Compilers<C> {
    /// A pool of up to `jobs` compilers. None is started before there is work.
    pub(crate) fn new(jobs: usize, start: impl Fn(&C::Task) -> Result<C, Failure> + Send + Sync + 'static) -> Self {
        let state = PoolState {
            queue: VecDeque::new(),
            running: Vec::new(),
            done: BTreeMap::new(),
            idle: Vec::new(),
            hands: 0,
            held: false,
            closing: false,
            rounds: vec![0],
        };
        let shared = SharedPool { start: Box::new(start), state: Mutex::new(state), changed: Condvar::new() };
        let pool = CompilePool { shared: Arc::new(shared), threads: Mutex::default(), jobs: jobs.max(1) };
        Self { pool: Arc::new(pool), sharer: 0 }
    }

    /// Another sharer of the same pool.
    pub(crate) fn share(&self) -> Self {
        let mut state = self.pool.shared.lock();
        state.rounds.push(0);
        Self { pool: Arc::clone(&self.pool), sharer: state.rounds.len() - 1 }
    }

    /// Maximum number of concurrent compilations.
    pub(crate) fn jobs(&self) -> usize {
        self.pool.jobs
    }

    /// Submits programs to compile, the first one first.
    pub(crate) fn submit(&self, tasks: impl IntoIterator<Item = (usize, C::Task)>) -> Result<(), Failure> {
        let CompilePool { shared: own, threads, jobs } = &*self.pool;
        let mut state = own.lock();
        let PoolState { queue, running, done, .. } = &mut *state;
        for (candidate, task) in tasks {
            let key = (self.sharer, candidate);
            let known = queue.iter().any(|(queued, _)| *queued == key)
                || running.iter().any(|running| running.key == key)
                || done.contains_key(&key);
            if !known {
                queue.push_back((key, task));
            }
        }
        state.held = false;
        own.changed.notify_all();
        let wanted = (*jobs).min(state.queue.len() + state.running.len());
        let mut threads = threads.lock().unwrap_or_else(PoisonError::into_inner);
        while state.hands < wanted {
            let shared = Arc::clone(own);
            let hand = threads.len();
            match std::thread::Builder::new().name(format!("compile-{hand}")).spawn(move || shared.work(hand)) {
                Ok(thread) => threads.push(thread),
                Err(error) if state.hands == 0 => {
                    state.queue.clear();
                    return Err(Failure::new(FailureKind::Device, format!("no thread to compile with: {error}")));
                }
                // fewer run at once
                Err(_) => break,
            }
            state.hands += 1;
        }
        Ok(())
    }

    /// The outcome of a candidate's program. Waits for it and moves it to the front. `None` if it was not submitted.
    pub(crate) fn take(&self, candidate: usize) -> Option<TaskOutcome<C>> {
        let (shared, key) = (&self.pool.shared, (self.sharer, candidate));
        let mut state = shared.lock();
        loop {
            if let Some(outcome) = state.done.remove(&key) {
                return Some(outcome);
            }
            if let Some(at) = state.queue.iter().position(|(queued, _)| *queued == key) {
                if let Some(wanted) = state.queue.remove(at) {
                    state.queue.push_front(wanted);
                }
                if std::mem::replace(&mut state.held, false) {
                    shared.changed.notify_all();
                }
            } else if !state.running.iter().any(|running| running.key == key) {
                return None;
            }
            state = shared.wait(state);
        }
    }

    /// Blocks until running compilations finish, those of other sharers too, and starts no new ones. The queue stays
    /// until a result is requested or more is submitted.
    pub(crate) fn hold(&self) {
        let shared = &self.pool.shared;
        let mut state = shared.lock();
        state.held = true;
        while !state.running.is_empty() {
            state = shared.wait(state);
        }
    }

    /// Ends the idle compilers.
    pub(crate) fn retire(&self) {
        let idle = std::mem::take(&mut self.pool.shared.lock().idle);
        drop(idle);
    }

    /// Ends the idle compilers that hold memory of the device.
    pub(crate) fn free_device(&self) {
        let holders: Vec<C> = self.pool.shared.lock().idle.extract_if(.., |compiler| compiler.holds_device()).collect();
        drop(holders);
    }

    /// Drops everything of this sharer: clears its queue and ends its running compilations with their compilers.
    pub(crate) fn clear(&self) {
        let shared = &self.pool.shared;
        let is_own = |key: &TaskKey| key.0 == self.sharer;
        let mut state = shared.lock();
        if let Some(round) = state.rounds.get_mut(self.sharer) {
            *round += 1;
        }
        state.queue.retain(|(key, _)| !is_own(key));
        state.done.retain(|key, _| !is_own(key));
        let own = state.running.iter().filter(|running| is_own(&running.key));
        for stop in own.filter_map(|running| running.stop.as_ref()) {
            stop();
        }
        while state.running.iter().any(|running| is_own(&running.key)) {
            state = shared.wait(state);
        }
    }
}

impl<C: Compiler> Drop for Compilers<C> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<C: Compiler> Drop for CompilePool<C> {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
        let idle = std::mem::take(&mut self.shared.lock().idle);
        drop(idle);
    }
}

#[cfg(test)]
mod tests;
