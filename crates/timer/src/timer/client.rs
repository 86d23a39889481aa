//! The tuner's side of the protocol: one worker process, requests with time limits, and the reason if it fails.
//!
//! A single thread polls the worker's three pipes, so that a worker that stops reading, or floods stdout or stderr,
//! cannot block the tuner.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::exec::{EXIT_CANNOT_START, EXIT_MEMORY, EXIT_SIGNAL_BASE, ExecOptions, signal_name};
use super::protocol::{Hello, MAX_LINE_BYTES, Method, PROTOCOL_VERSION, Response, one_line};
use super::stderr_tail::{StderrTail, reason_line, telling_line};
use super::worker_command::{WorkerCommand, WorkerLimits};
use crate::failure::{Failure, FailureKind};

/// Time limit for a supervisor to end the remains of a worker.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(5);
/// Maximum wait for the exit code of a worker that closed its stdout.
const EXIT_WAIT: Duration = Duration::from_secs(5);
/// Interval at which a long wait asks whether the user ended it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// JSON can only hold UTF-8 paths, which is not a candidate's fault.
fn cannot_write(method: &str, error: &serde_json::Error) -> Failure {
    let message =
        format!("`{method}` cannot be written: {error}; the folders of registry, cache and TMPDIR need UTF-8 names");
    Failure::new(FailureKind::Device, message)
}

/// A [`Request`](super::protocol::Request), or one of another process.
#[derive(Serialize)]
struct Line<'a, C> {
    id: u64,
    #[serde(flatten)]
    call: &'a C,
}

/// How long an answer is waited for.
#[derive(Clone, Copy)]
pub(super) struct Patience<'a> {
    limit: Duration,
    /// Whether the user ended the wait. A measurement is not disturbed by asking.
    is_cancelled: Option<&'a dyn Fn() -> bool>,
}

impl<'a> Patience<'a> {
    /// Until the limit, or until the user ends it.
    pub(super) fn unless(is_cancelled: &'a dyn Fn() -> bool, limit: Duration) -> Self {
        Self { limit, is_cancelled: Some(is_cancelled) }
    }

    fn is_over(&self) -> bool {
        self.is_cancelled.is_some_and(|is_cancelled| is_cancelled())
    }

    /// How long to wait at once, of what is left.
    fn step(&self, left: Duration) -> Duration {
        self.is_cancelled.map_or(left, |_| left.min(LOOK_EVERY))
    }
}

impl From<Duration> for Patience<'_> {
    fn from(limit: Duration) -> Self {
        Self { limit, is_cancelled: None }
    }
}

/// A running worker.
#[derive(Debug)]
pub struct WorkerClient {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    received: Vec<u8>,
    tail: StderrTail,
    next_id: u64,
    gone: bool,
    killed: bool,
    grace: Duration,
}

impl WorkerClient {
    /// Starts a worker and sends `hello`. If a signal ended it meanwhile, it is started once more, since anybody may
    /// have sent it.
    pub(crate) fn start(command: &WorkerCommand, limits: &WorkerLimits) -> Result<(Self, Hello), Failure> {
        Self::spawn(command, limits)?.greeted(command, limits)
    }

    /// The same with a process of this command that was started before.
    pub(super) fn greeted(mut self, command: &WorkerCommand, limits: &WorkerLimits) -> Result<(Self, Hello), Failure> {
        let mut hello = self.hello(limits);
        if hello.is_err() && self.was_killed() {
            self = Self::spawn(command, limits)?;
            hello = self.hello(limits);
        }
        hello.map(|hello| (self, hello))
    }

    /// Starts the process without sending a request.
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub fn spawn(command: &WorkerCommand, limits: &WorkerLimits) -> Result<Self, Failure> {
        let options = ExecOptions {
            memory_bytes: limits.memory_bytes,
            memory_may_grow: limits.memory_may_grow,
            grace: limits.grace,
            template: command.template.clone(),
            command: command.command.clone(),
            ..ExecOptions::default()
        };
        let mut process = Command::new(&command.exe);
        // its own group: Ctrl-C on the terminal is for the tuner, which ends its workers cleanly
        process.args(options.to_arguments()).process_group(0);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, value) in &command.environment {
            match value {
                Some(value) => process.env(name, value),
                None => process.env_remove(name),
            };
        }
        let cannot = |what: String| Failure::new(FailureKind::Device, what);
        let mut child =
            process.spawn().map_err(|error| cannot(format!("cannot start `{}`: {error}", command.exe.display())))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(cannot("a worker without pipes".to_owned()));
        };
        let nonblocking = rustix::io::ioctl_fionbio(&stdin, true)
            .and_then(|()| rustix::io::ioctl_fionbio(&stdout, true))
            .and_then(|()| rustix::io::ioctl_fionbio(&stderr, true));
        let client = Self {
            child,
            stdin: Some(stdin),
            stdout,
            stderr: Some(stderr),
            received: Vec::new(),
            tail: StderrTail::default(),
            next_id: 1,
            gone: false,
            killed: false,
            grace: limits.grace,
        };
        nonblocking.map_err(|error| cannot(format!("a worker's pipes: {error}")))?;
        Ok(client)
    }

    /// Sends `hello`. Every failure is of kind `device`, because no candidate can be to blame.
    ///
    /// # Errors
    ///
    /// If the worker does not answer, or speaks another protocol: of kind `device`.
    pub fn hello(&mut self, limits: &WorkerLimits) -> Result<Hello, Failure> {
        let as_device = |failure: Failure| {
            let failure = match failure.kind {
                FailureKind::Timeout => {
                    failure.because("the time limit for starting a worker; `--timeout` gives it more")
                }
                _ => failure,
            };
            Failure::new(FailureKind::Device, failure.message)
        };
        let hello: Hello =
            self.request(Method::Hello { protocol: PROTOCOL_VERSION }, limits.start).map_err(as_device)?;
        if hello.protocol != PROTOCOL_VERSION {
            let message = format!(
                "worker `{}` speaks protocol {}, {PROTOCOL_VERSION} is needed",
                one_line(&hello.worker, 100),
                hello.protocol
            );
            return Err(self.ended(FailureKind::Device, message));
        }
        if hello.devices.get(hello.device).is_none() {
            let message =
                format!("worker `{}` runs on device {}, which it does not describe", hello.worker, hello.device);
            return Err(self.ended(FailureKind::Device, one_line(&message, 300)));
        }
        Ok(hello)
    }

    /// Sends a request and waits for its answer. After a crash, a time-out or an invalid answer the worker is ended.
    ///
    /// # Errors
    ///
    /// The failure that the worker answered, its death, a time-out, or an invalid answer.
    pub fn request<T: DeserializeOwned>(&mut self, call: Method, limit: Duration) -> Result<T, Failure> {
        self.ask(call.method(), &call, limit.into())
    }

    /// The same of a process with other methods: `call` gives the line its `method` and `params`.
    pub(super) fn ask<T: DeserializeOwned>(
        &mut self,
        method: &str,
        call: &impl Serialize,
        patience: Patience<'_>,
    ) -> Result<T, Failure> {
        let id = self.next_id;
        self.next_id += 1;
        let mut line = serde_json::to_vec(&Line { id, call }).map_err(|error| cannot_write(method, &error))?;
        line.push(b'\n');
        if line.len() > MAX_LINE_BYTES {
            let message = format!("a `{method}` of {} bytes is longer than the protocol allows", line.len());
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        let answer = self.exchange(&line, method, patience)?;
        let response: Response = match serde_json::from_slice(&answer) {
            Ok(response) => response,
            Err(error) => {
                let seen = one_line(&String::from_utf8_lossy(answer.get(..200).unwrap_or(&answer)), 80);
                let message = format!("the answer to `{method}` is not one of the protocol ({error}): `{seen}`");
                return Err(self.ended(FailureKind::Protocol, message));
            }
        };
        if response.id != Some(id) {
            let message = format!("the answer to `{method}` has the id {:?} instead of {id}", response.id);
            return Err(self.ended(FailureKind::Protocol, message));
        }
        match (response.result, response.error) {
            (Some(result), None) => serde_json::from_value(result).map_err(|error| {
                self.ended(FailureKind::Protocol, format!("the result of `{method}` is malformed: {error}"))
            }),
            (None, Some(failure)) => Err(failure.into()),
            _ => Err(self
                .ended(FailureKind::Protocol, format!("the answer to `{method}` needs either a result or an error"))),
        }
    }

    /// Sends raw bytes and waits for one line: for requests, and for testing a worker with malformed ones.
    pub(super) fn exchange(&mut self, bytes: &[u8], what: &str, patience: Patience<'_>) -> Result<Vec<u8>, Failure> {
        if self.gone {
            return Err(Failure::new(FailureKind::Device, "the worker is gone and must be restarted"));
        }
        self.drain_stderr();
        self.tail.start_request();
        let deadline = Instant::now() + patience.limit;
        let mut unsent = bytes;
        let mut scanned = 0;
        loop {
            if let Some(end) = memchr::memchr(b'\n', self.received.get(scanned..).unwrap_or_default()) {
                let mut line: Vec<u8> = self.received.drain(..=scanned + end).collect();
                line.pop();
                if unsent.is_empty() {
                    return Ok(line);
                }
                let seen = one_line(&String::from_utf8_lossy(line.get(..200).unwrap_or(&line)), 80);
                return Err(self.ended(FailureKind::Protocol, format!("a line before `{what}` was sent: `{seen}`")));
            }
            scanned = self.received.len();
            if scanned >= MAX_LINE_BYTES {
                let message = format!("the answer to `{what}` is longer than {MAX_LINE_BYTES} bytes");
                return Err(self.ended(FailureKind::Protocol, message));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let message = format!("no answer to `{what}` within {:?}", patience.limit);
                return Err(self.ended(FailureKind::Timeout, message));
            }
            if patience.is_over() {
                return Err(self.ended(FailureKind::Timeout, format!("the user ended the wait for `{what}`")));
            }
            match self.turn(&mut unsent, patience.step(left)) {
                Ok(true) => {}
                Ok(false) => return Err(self.died(what)),
                Err(error) => return Err(self.ended(FailureKind::Crash, format!("the worker's pipes: {error}"))),
            }
        }
    }

    /// Transfers what is possible within `left`; `false` if the worker's stdout has ended.
    fn turn(&mut self, unsent: &mut &[u8], left: Duration) -> io::Result<bool> {
        let none = PollFlags::empty();
        let (mut readable, mut writable, mut noisy) = (none, none, none);
        {
            let mut waiting = vec![PollFd::new(&self.stdout, PollFlags::IN)];
            let stderr_at = self.stderr.as_ref().map(|stderr| {
                waiting.push(PollFd::new(stderr, PollFlags::IN));
                waiting.len() - 1
            });
            let stdin_at = self.stdin.as_ref().filter(|_| !unsent.is_empty()).map(|stdin| {
                waiting.push(PollFd::new(stdin, PollFlags::OUT));
                waiting.len() - 1
            });
            let left = left.min(Duration::from_secs(3600));
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(3600),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut waiting, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = |at: Option<usize>| at.and_then(|at| waiting.get(at)).map_or(none, |fd| fd.revents());
            readable |= flags(Some(0));
            noisy |= flags(stderr_at);
            writable |= flags(stdin_at);
        }
        if !noisy.is_empty() {
            self.drain_stderr();
        }
        if !writable.is_empty()
            && let Some(stdin) = &mut self.stdin
        {
            match stdin.write(unsent) {
                Ok(written) => *unsent = unsent.get(written..).unwrap_or_default(),
                Err(error) if is_passing(&error) => {}
                // a worker that died is recognized by its stdout
                Err(_) => *unsent = &[],
            }
        }
        if !readable.is_empty() {
            let mut block = [0_u8; 1 << 16];
            match self.stdout.read(&mut block) {
                Ok(0) => return Ok(false),
                Ok(read) => self.received.extend_from_slice(block.get(..read).unwrap_or_default()),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn drain_stderr(&mut self) {
        let mut block = [0_u8; 1 << 14];
        // bounded, so that a flood on stderr cannot starve stdout and the clock
        for _ in 0..16 {
            let Some(stderr) = &mut self.stderr else { return };
            match stderr.read(&mut block) {
                Ok(0) => self.stderr = None,
                Ok(read) => self.tail.push(block.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.stderr = None,
            }
        }
    }

    /// The worker closed its stdout: determines why, from its exit code and its last output.
    fn died(&mut self, what: &str) -> Failure {
        let since = Instant::now();
        let code = loop {
            self.drain_stderr();
            match self.child.try_wait() {
                Ok(Some(status)) => break status.code(),
                Ok(None) if since.elapsed() < EXIT_WAIT => std::thread::sleep(Duration::from_millis(2)),
                _ => return self.ended(FailureKind::Crash, format!("the worker closed its stdout during `{what}`")),
            }
        };
        self.drain_stderr();
        self.killed = code.is_none_or(|code| code > i32::from(EXIT_SIGNAL_BASE));
        let (kind, message) = match code {
            Some(code) if code == i32::from(EXIT_MEMORY) => {
                (FailureKind::Memory, format!("the worker exceeded its memory limit during `{what}`"))
            }
            Some(code) if code == i32::from(EXIT_CANNOT_START) => {
                (FailureKind::Device, "the worker could not be started".to_owned())
            }
            Some(code) if code > i32::from(EXIT_SIGNAL_BASE) => {
                let signal = signal_name(code - i32::from(EXIT_SIGNAL_BASE));
                (FailureKind::Crash, format!("the worker died of {signal} during `{what}`"))
            }
            Some(code) => (FailureKind::Crash, format!("the worker ended with exit code {code} during `{what}`")),
            None => (FailureKind::Crash, format!("the worker's supervisor was killed during `{what}`")),
        };
        self.ended(kind, message)
    }

    /// Makes sure that the worker has ended; the failure includes its output since this request, because earlier
    /// warnings explain nothing.
    fn ended(&mut self, kind: FailureKind, message: String) -> Failure {
        self.drain_stderr();
        self.kill();
        let recent = telling_line(&self.tail.to_recent_text());
        match recent.or_else(|| reason_line(&self.tail.to_text())) {
            Some(line) => Failure::new(kind, format!("{message}; its stderr: {line}")),
            None => Failure::new(kind, message),
        }
    }

    /// Whether the process has ended, or was ended.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether a signal ended the worker or its supervisor during a request, and not because of a limit of ours: it
    /// crashed, or somebody killed it (as the system does if memory is short). The two cannot be distinguished.
    pub(crate) fn was_killed(&self) -> bool {
        self.killed
    }

    /// A handle of the supervisor's process, which cannot be reused, to end it from another thread.
    pub(crate) fn process_handle(&self) -> io::Result<std::os::fd::OwnedFd> {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process id out of range"))?;
        Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
    }

    /// The worker's stderr: the first 8 KiB and the last 64.
    pub fn stderr(&self) -> String {
        self.tail.to_text()
    }

    /// Requests the worker's end and waits for it; otherwise its supervisor ends it.
    pub fn shutdown(mut self, limits: &WorkerLimits) {
        if !self.gone {
            let _ = self.request::<serde_json::Value>(Method::Shutdown {}, limits.grace);
        }
    }

    /// Closes the worker's stdin, at which it is to end.
    pub(super) fn close(&mut self) {
        self.stdin = None;
    }

    /// Closes the worker's stdin and waits for its end; the exit code, or `None` if it had to be killed.
    pub(crate) fn close_and_wait(&mut self, limit: Duration) -> Option<i32> {
        self.close();
        self.wait(limit)
    }

    /// Waits for the worker's end; the exit code, or `None` if it had to be killed.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<i32> {
        let since = Instant::now();
        while since.elapsed() < limit {
            self.drain_stderr();
            if let Ok(Some(status)) = self.child.try_wait() {
                self.gone = true;
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
        None
    }

    /// Ends the worker through its supervisor, which ends the whole process group.
    fn kill(&mut self) {
        if self.gone {
            return;
        }
        self.gone = true;
        self.stdin = None;
        let since = Instant::now();
        while since.elapsed() < self.grace + SUPERVISOR_LIMIT {
            // a worker blocked on writing stderr would use up all its grace
            self.drain_stderr();
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                _ => return,
            }
        }
        // the worker's parent-death signal ends it too
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for WorkerClient {
    fn drop(&mut self) {
        self.kill();
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
