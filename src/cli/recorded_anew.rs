//! `--record`: the calls as an environment of Python records them now.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::registry::Registry;
use crate::timer::exec::{EXIT_SIGNAL_BASE, ExecOptions, signal_name};

use super::compiler_side::NamedCompiler;
use super::fault::Fault;
use super::say::say;
use super::timers::this_program;
use super::{exit, registry};

/// Whether the environment has our package, without importing it.
const HAS_PACKAGE: &str = "import importlib.util, sys; sys.exit(importlib.util.find_spec('autotune_lowered') is None)";
/// A shell splits the user's words; the rest are arguments of its own. Our pipe is for the supervisor alone.
const RECORD: &str = "exec </dev/null; exec \"$0\" -m autotune_lowered record --registry \"$1\" ";
/// How soon a signal of the user's is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The Python of a compiler's environment, if it can record.
fn recording_python(compiler: &NamedCompiler) -> Result<&Path, Fault> {
    let name = &compiler.name;
    let Some(python) = &compiler.python else {
        let message = format!("`--record` needs environments of Python with JAX; `{name}` is a plugin");
        return Err(Fault::new(exit::USAGE, message));
    };
    let failed = |why: &str| Fault::device(format!("`{name}`: `--record`: {why}"));
    let asked = Command::new(python).args(["-c", HAS_PACKAGE]).stdin(Stdio::null()).stdout(Stdio::null()).status();
    let asked = asked.map_err(|error| failed(&format!("`{}` cannot be started: {error}", python.display())))?;
    if !asked.success() {
        return Err(failed("it has no `autotune_lowered`: install it there, with `pip install autotune-lowered`"));
    }
    Ok(python)
}

/// Whether environments can record, before any of them does: the user's program may take hours.
pub(super) fn check<'c>(compilers: impl IntoIterator<Item = &'c NamedCompiler>) -> Result<(), Fault> {
    compilers.into_iter().try_for_each(|compiler| recording_python(compiler).map(drop))
}

/// Runs the user's program in a compiler's environment, with its operations recorded into a folder. The user may end
/// it.
pub(super) fn record(
    compiler: &NamedCompiler,
    words: &str,
    folder: &Path,
    cancel: &AtomicBool,
) -> Result<Registry, Fault> {
    let (name, python) = (&compiler.name, recording_python(compiler)?);
    let failed = |why: &str| Fault::device(format!("`{name}`: `--record {words}`: {why}"));
    say(&format!("recording in `{name}`"));
    let ended = supervised(&this_program()?, python, words, folder, cancel)
        .map_err(|error| failed(&format!("`{}` cannot be started: {error}", python.display())))?;
    match ended {
        _ if cancel.load(Ordering::Relaxed) => return Err(Fault::new(exit::INTERRUPTED, "ended by the user")),
        Some(0) => {}
        Some(code) if code > i32::from(EXIT_SIGNAL_BASE) => {
            let signal = signal_name(code - i32::from(EXIT_SIGNAL_BASE));
            return Err(failed(&format!("it died of {signal}; its output is above")));
        }
        Some(code) => return Err(failed(&format!("it ended with exit code {code}; its output is above"))),
        None => return Err(failed("its supervisor was killed")),
    }
    // what another version of the package wrote is that environment's
    let recorded = registry::open(folder).map_err(|fault| failed(&fault.message))?;
    if recorded.invocations().is_empty() {
        return Err(failed("it recorded no call: see `@tunable` and `--adapters` in docs/recording.md"));
    }
    Ok(recorded)
}

/// Runs the user's program to its end, or until the user ends it; its exit code, or `None` if its supervisor was
/// killed. The program, which may hold the device, ends with this process even if that is killed.
fn supervised(exe: &Path, python: &Path, words: &str, folder: &Path, cancel: &AtomicBool) -> io::Result<Option<i32>> {
    let command = ["sh".into(), "-c".into(), format!("{RECORD}{words}").into(), python.into(), folder.into()];
    // what the program prints is no data of ours
    let out = io::stderr().as_fd().try_clone_to_owned()?;
    let mut supervisor = Command::new(exe)
        .args(ExecOptions::default().command(command.to_vec()).to_arguments())
        // Ctrl-C on the terminal is for us, who end it
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(out)
        .spawn()?;
    loop {
        if let Some(ended) = supervisor.try_wait()? {
            return Ok(ended.code());
        }
        if cancel.load(Ordering::Relaxed) {
            drop(supervisor.stdin.take());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
