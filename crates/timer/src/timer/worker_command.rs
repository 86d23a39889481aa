//! How a worker is started, and its limits.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::compile_times::CompileTimes;
use crate::setters;

/// Limits of time and memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLimits {
    /// From the start of the process to its `hello`, in which a plugin is loaded and its devices are opened.
    pub start: Duration,
    /// One compilation; the first ones, if the limit follows what they took.
    pub compile: Duration,
    /// What compilations of separate workers took, if their limit follows it.
    pub compile_times: Option<CompileTimes>,
    /// Loading an executable, or the inputs.
    pub load: Duration,
    /// One `measure` or `outputs`.
    pub measure: Duration,
    /// Resident memory of a worker, bytes.
    pub memory_bytes: Option<u64>,
    /// Three quarters of the machine's memory are allowed if that is more, however it grows.
    pub memory_may_grow: bool,
    /// From the closing of its stdin until it is killed.
    pub grace: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(60),
            compile: Duration::from_secs(120),
            compile_times: None,
            load: Duration::from_secs(60),
            measure: Duration::from_secs(60),
            memory_bytes: None,
            memory_may_grow: false,
            grace: Duration::from_millis(500),
        }
    }
}

setters!(WorkerLimits {
    start: Duration,
    compile: Duration,
    compile_times: Option<CompileTimes>,
    load: Duration,
    measure: Duration,
    memory_bytes: Option<u64>,
    memory_may_grow: bool,
    grace: Duration,
});

/// How to start a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerCommand {
    /// This program, for `worker exec`.
    pub exe: PathBuf,
    /// The worker and its arguments.
    pub command: Vec<OsString>,
    /// Environment variables to set or to remove.
    pub environment: Vec<(OsString, Option<OsString>)>,
    /// The socket of a process that forks such workers. If it has ended, they are started.
    pub template: Option<PathBuf>,
}

impl WorkerCommand {
    /// A worker as a shell command: `python3 worker.py --fast`.
    pub fn shell(exe: impl Into<PathBuf>, command: &str) -> Self {
        Self::of_shell(exe, replacing(command))
    }

    /// A program as a shell command that may print and read as it likes: the protocol has file descriptors of its own,
    /// which a variable names.
    pub(super) fn beside_own_output(exe: impl Into<PathBuf>, command: &str, variable: &str) -> Self {
        let command = format!("exec 3>&1 1>&2 4<&0 0</dev/null; {}", replacing(command));
        Self { environment: vec![(variable.into(), Some("4,3".into()))], ..Self::of_shell(exe, command) }
    }

    fn of_shell(exe: impl Into<PathBuf>, command: String) -> Self {
        let command = vec!["sh".into(), "-c".into(), command.into()];
        Self { exe: exe.into(), command, ..Self::default() }
    }
}

/// A dead supervisor's signal reaches only the shell, so the command replaces it if possible.
fn replacing(command: &str) -> String {
    if is_plain(command) { format!("exec {command}") } else { command.to_owned() }
}

/// Whether a shell command is certainly a single program with its arguments.
fn is_plain(command: &str) -> bool {
    let first = command.split_whitespace().next().unwrap_or_default();
    // a path is not a shell builtin or keyword, nor are these
    let is_program = first.contains('/') || ["python", "python3"].contains(&first);
    is_program
        && !first.contains('=')
        && !command.contains([';', '|', '&', '<', '>', '(', ')', '$', '`', '\\', '\n', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_one_program_for_certain_replaces_its_shell() {
        for plain in ["python3 worker.py --fast", "/opt/a/python 'a b.py' --x=1 \"q\"", "./worker"] {
            assert!(is_plain(plain), "{plain}");
        }
        let others =
            ["cd /x && ./w", "A=1 python3 w.py", "exec ./w", "./w | tee log", "./w; true", "(./w)", "./w > log"];
        for other in others.into_iter().chain(["$HOME/w", "w 2>&1", "a/b() { w; }", "./w\n./v", "", "A=/x w"]) {
            assert!(!is_plain(other), "{other}");
        }
    }
}
