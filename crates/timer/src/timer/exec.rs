//! `worker exec`: starts a command with limits, watches it, and cleans up after it.
//!
//! Two stages of one program. The outer stage, the supervisor, stays between the tuner and the worker: it watches
//! its stdin for the tuner's end of the pipe to close (without reading from it, the worker does that), its own
//! parent, the worker's memory and the worker's end. The inner stage makes the settings that a process must make for
//! itself and becomes the worker: the parent-death signal (the supervisor spawns from its only thread, so that the
//! signal really depends on the process), resource limits, and an OOM score that makes the kernel kill it first when
//! memory is short.
//!
//! Address space is not limited, because XLA reserves far more than it touches. Resident memory is, by checks every 20
//! ms.
//!
//! ```
//! use autotune_lowered_timer::timer::exec::ExecOptions;
//!
//! let command = vec!["python3".into(), "worker.py".into()];
//! let options = ExecOptions::default().memory_bytes(Some(1 << 30)).command(command);
//! let arguments = options.to_arguments();
//! assert_eq!(arguments[..4], ["worker", "exec", "--memory-bytes", "1073741824"]);
//! assert_eq!(arguments[arguments.len() - 3..], ["--", "python3", "worker.py"]);
//! ```

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group,
    pidfd_open, set_child_subreaper, set_parent_process_death_signal, setrlimit, wait,
};

use super::forked::ForkedWorker;
use crate::printable::printable;
use crate::setters;

/// Exit code of `worker exec` if the worker exceeded its memory limit.
pub const EXIT_MEMORY: u8 = 120;
/// Exit code when the command could not be started.
pub const EXIT_CANNOT_START: u8 = 127;
/// If a signal ended the worker, the exit code is this plus the signal's number, as in shells.
pub const EXIT_SIGNAL_BASE: u8 = 128;

/// Interval at which the supervisor checks the memory of the worker and of its known children.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Interval at which it looks for the worker's children, and for its own parent.
const LOOK_AROUND_EVERY: Duration = Duration::from_millis(500);

/// The options of `worker exec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOptions {
    /// Maximum resident memory of the worker and its children, bytes.
    pub memory_bytes: Option<u64>,
    /// The limit is three quarters of the machine's memory if that is more: a virtual machine may get more as it needs
    /// it.
    pub memory_may_grow: bool,
    /// Maximum CPU time of the worker, seconds.
    pub cpu_seconds: Option<u64>,
    /// How long the worker may continue after its stdin was closed.
    pub grace: Duration,
    /// The inner stage: the supervisor's process id.
    pub inner_of: Option<u32>,
    /// The socket of a process that forks the worker. If there is none, the command is started.
    pub template: Option<PathBuf>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

impl Default for ExecOptions {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            memory_may_grow: false,
            cpu_seconds: None,
            grace: Duration::from_millis(500),
            inner_of: None,
            template: None,
            command: Vec::new(),
        }
    }
}

setters!(ExecOptions {
    memory_bytes: Option<u64>,
    memory_may_grow: bool,
    cpu_seconds: Option<u64>,
    grace: Duration,
    inner_of: Option<u32>,
    template: Option<PathBuf>,
    command: Vec<OsString>,
});

impl ExecOptions {
    /// The same as arguments of `worker exec`.
    pub fn to_arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["worker".into(), "exec".into()];
        let mut option = |name: &str, value: Option<u64>| {
            if let Some(value) = value {
                arguments.extend([name.into(), value.to_string().into()]);
            }
        };
        option("--memory-bytes", self.memory_bytes);
        option("--cpu-seconds", self.cpu_seconds);
        option("--grace-ms", u64::try_from(self.grace.as_millis()).ok());
        option("--inner-of", self.inner_of.map(u64::from));
        if self.memory_may_grow {
            arguments.push("--memory-may-grow".into());
        }
        if let Some(template) = &self.template {
            arguments.extend(["--template".into(), template.into()]);
        }
        arguments.push("--".into());
        arguments.extend(self.command.iter().cloned());
        arguments
    }
}

/// Runs the command to its end; `exe` is this program, from which the inner stage is started. Call it from the main
/// thread. Returns the exit code for the process.
pub fn run(options: &ExecOptions, exe: &Path) -> u8 {
    let result = match options.inner_of {
        Some(supervisor) => Err(become_worker(options, supervisor)),
        None => supervise(options, exe),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            say(&error.to_string());
            EXIT_CANNOT_START
        }
    }
}

/// Stderr is shared with the worker, so that it appears in the tuner's tail of it.
fn say(message: &str) {
    let _ = writeln!(io::stderr().lock(), "worker exec: {}", printable(message));
}

/// Returns only if it fails.
fn become_worker(options: &ExecOptions, supervisor: u32) -> io::Error {
    let Some((program, arguments)) = options.command.split_first() else {
        return io::Error::other("no command given");
    };
    let prepared = (|| -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(supervisor) {
            return Err(io::Error::other("the supervisor is gone"));
        }
        // a crash is one candidate's failure, not a core file of the plugin's size
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        if let Some(seconds) = options.cpu_seconds {
            setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds) })?;
        }
        // without /proc only the OOM score is lost
        let _ = fs::write("/proc/self/oom_score_adj", "500");
        Ok(())
    })();
    match prepared {
        Ok(()) => {
            let error = Command::new(program).args(arguments).exec();
            io::Error::other(format!("cannot start `{}`: {error}", program.to_string_lossy()))
        }
        Err(error) => error,
    }
}

/// Why the worker must end.
enum CommandEnd {
    /// It ended by itself.
    Exited,
    /// The tuner closed the pipe or is gone.
    Alone,
    /// Resident bytes beyond the limit, and the limit.
    Memory(u64, u64),
}

fn supervise(options: &ExecOptions, exe: &Path) -> io::Result<u8> {
    if options.command.is_empty() {
        return Err(io::Error::other("no command given"));
    }
    let parent = getppid();
    // orphaned grandchildren become our children instead of escaping
    set_child_subreaper(Some(getpid()))?;
    let forked = options.template.as_deref().map(|template| ForkedWorker::of(template, &options.command));
    let worker = match forked.transpose() {
        Ok(Some(Some(forked))) => SupervisedWorker::Forked(forked),
        Ok(Some(None) | None) => SupervisedWorker::start(options, exe)?,
        Err(error) => {
            // like a worker that was killed, which is started again
            say(&format!("no worker was forked: {error}"));
            return Ok(shown_signal(Signal::KILL.as_raw()));
        }
    };
    // only the worker holds stdout, so that its closing is noticed
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    let ending = watch(options, &worker, parent);
    let code = worker.end()?;
    end_descendants();
    Ok(match ending? {
        CommandEnd::Memory(bytes, limit) => {
            say(&format!("ended the worker: {bytes} bytes resident, {limit} allowed"));
            EXIT_MEMORY
        }
        CommandEnd::Exited | CommandEnd::Alone => code,
    })
}

/// The worker, which leads a process group.
enum SupervisedWorker {
    /// Our own child, and a handle that is readable when it has ended.
    Started(Child, Pid, OwnedFd),
    Forked(ForkedWorker),
}

impl SupervisedWorker {
    fn start(options: &ExecOptions, exe: &Path) -> io::Result<Self> {
        let inner = ExecOptions { inner_of: Some(std::process::id()), template: None, ..options.clone() };
        let child = Command::new(exe)
            .args(inner.to_arguments())
            .process_group(0)
            .spawn()
            .map_err(|error| io::Error::other(format!("cannot start `{}`: {error}", exe.display())))?;
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("a process id out of range"))?;
        let handle = pidfd_open(id, PidfdFlags::empty())?;
        Ok(Self::Started(child, id, handle))
    }

    fn id(&self) -> Pid {
        match self {
            Self::Started(_, id, _) => *id,
            Self::Forked(forked) => forked.id(),
        }
    }

    fn handle(&self) -> BorrowedFd<'_> {
        match self {
            Self::Started(.., handle) => handle.as_fd(),
            Self::Forked(forked) => forked.handle(),
        }
    }

    /// Ends what is left of its group; its exit code, as a shell shows it.
    fn end(self) -> io::Result<u8> {
        match self {
            Self::Started(mut child, id, _) => {
                // the group's id cannot be reused before its leader is reaped
                let _ = kill_process_group(id, Signal::KILL);
                let status = child.wait()?;
                Ok(match (status.code(), status.signal()) {
                    (Some(code), _) => shown_code(code),
                    (None, Some(signal)) => shown_signal(signal),
                    (None, None) => 1,
                })
            }
            Self::Forked(forked) => Ok(forked.end().map_or_else(shown_signal, shown_code)),
        }
    }
}

/// Waits until the worker ends or must be ended.
fn watch(options: &ExecOptions, worker: &SupervisedWorker, parent: Option<Pid>) -> io::Result<CommandEnd> {
    let handle = worker.handle();
    let stdin = rustix::stdio::stdin();
    let mut alone_since: Option<Instant> = None;
    let mut looked_around = Instant::now();
    let mut members = vec![worker.id().as_raw_nonzero().get().unsigned_abs()];
    loop {
        let pause = match alone_since {
            Some(since) => options.grace.saturating_sub(since.elapsed()).min(LOOK_AROUND_EVERY),
            None if options.memory_bytes.is_some() => LOOK_EVERY,
            None => LOOK_AROUND_EVERY,
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
        let mut ready = [PollFd::new(&handle, PollFlags::IN), PollFd::new(&stdin, PollFlags::empty())];
        // a closed pipe would always be ready
        let watched = if alone_since.is_some() { ready.get_mut(..1) } else { ready.get_mut(..) };
        match poll(watched.unwrap_or_default(), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [process, pipe] = &ready;
        if process.revents().contains(PollFlags::IN) {
            return Ok(CommandEnd::Exited);
        }
        if pipe.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            alone_since = alone_since.or(Some(Instant::now()));
        }
        let look_around = looked_around.elapsed() >= LOOK_AROUND_EVERY;
        if look_around {
            looked_around = Instant::now();
            if getppid() != parent {
                return Ok(CommandEnd::Alone);
            }
        }
        if alone_since.is_some_and(|since| since.elapsed() >= options.grace) {
            return Ok(CommandEnd::Alone);
        }
        if let Some(limit) = options.memory_bytes {
            if look_around {
                members = family(worker.id());
            }
            let bytes = members.iter().map(|&pid| resident_bytes(pid)).fold(0, u64::saturating_add);
            // asked only when it matters
            let now = || three_quarters_of_memory().filter(|_| options.memory_may_grow).unwrap_or_default();
            if bytes > limit && bytes > now() {
                return Ok(CommandEnd::Memory(bytes, limit.max(now())));
            }
        }
    }
}

fn shown_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(1)
}

/// The exit code that shows by which signal a worker ended.
fn shown_signal(number: i32) -> u8 {
    u8::try_from(number).unwrap_or(0).saturating_add(EXIT_SIGNAL_BASE)
}

/// Linux's signal names, for those that end a worker.
pub fn signal_name(number: i32) -> String {
    let name = match number {
        2 => "SIGINT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// Three quarters of the machine's memory at this moment; `None` if it cannot be counted.
pub fn three_quarters_of_memory() -> Option<u64> {
    let info = rustix::system::sysinfo();
    // the field's width differs between platforms
    #[allow(clippy::useless_conversion)]
    let bytes = u64::from(info.totalram).checked_mul(u64::from(info.mem_unit))?;
    Some(bytes / 4 * 3)
}

/// Resident memory of one process; zero if it no longer exists.
fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()).and_then(|text| text.parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

/// The worker's process group, and the orphans that we reap.
fn family(group: Pid) -> Vec<u32> {
    let group = group.as_raw_nonzero().get();
    let ours = getpid().as_raw_nonzero().get();
    processes()
        .filter(|process| process.group == group || process.parent == ours)
        .map(|process| process.id.unsigned_abs())
        .collect()
}

struct ProcessIds {
    id: i32,
    parent: i32,
    group: i32,
}

/// Every process in `/proc`.
fn processes() -> impl Iterator<Item = ProcessIds> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // the name in parentheses may contain anything, so fields are counted from its end
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        Some(ProcessIds { id, parent, group })
    })
}

/// Kills and reaps the worker's remaining processes: as subreaper we eventually become the parent of each.
fn end_descendants() {
    let ours = getpid().as_raw_nonzero().get();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::INTR) | Ok(Some(_)) => continue,
            Err(_) => return,
            Ok(None) => {}
        }
        for process in processes().filter(|process| process.parent == ours) {
            if let Some(pid) = Pid::from_raw(process.id) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_is_seen() {
        // a test process has a few megabytes, far below a terabyte
        let bytes = resident_bytes(std::process::id());
        assert!(bytes > 1 << 20 && bytes < 1 << 40, "{bytes}");
        assert_eq!(resident_bytes(u32::MAX), 0);
        let ours = i32::try_from(std::process::id()).unwrap();
        let found = processes().find(|process| process.id == ours).unwrap();
        assert_eq!(found.parent, getppid().unwrap().as_raw_nonzero().get());
    }
}
