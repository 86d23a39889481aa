//! `--record`: the calls as an environment of Python records them now.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::registry::Registry;

use super::compiler_side::NamedCompiler;
use super::fault::Fault;
use super::say::say;
use super::{exit, registry};

/// Whether the environment has our package, without importing it.
const HAS_PACKAGE: &str = "import importlib.util, sys; sys.exit(importlib.util.find_spec('autotune_lowered') is None)";
/// A shell splits the user's words; the rest are arguments of its own.
const RECORD: &str = "exec \"$0\" -m autotune_lowered record --registry \"$1\" ";

/// The Python of a compiler's environment, if it can record.
fn recording_python(compiler: &NamedCompiler) -> Result<&Path, Fault> {
    let name = &compiler.name;
    let Some(python) = &compiler.python else {
        let message = format!("`--record` needs environments of Python with JAX; `{name}` is a plugin");
        return Err(Fault::new(exit::USAGE, message));
    };
    let failed = |why: &str| Fault::device(format!("`{name}`: `--record`: {why}"));
    let asked = Command::new(python).args(["-c", HAS_PACKAGE]).stdin(Stdio::null()).status();
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

/// Runs the user's program in a compiler's environment, with its operations recorded into a folder.
pub(super) fn record(compiler: &NamedCompiler, words: &str, folder: &Path) -> Result<Registry, Fault> {
    let (name, python) = (&compiler.name, recording_python(compiler)?);
    let failed = |why: &str| Fault::device(format!("`{name}`: `--record {words}`: {why}"));
    let cannot_start = |error: std::io::Error| failed(&format!("`{}` cannot be started: {error}", python.display()));
    say(&format!("recording in `{name}`"));
    // what the program prints is no data of ours
    let out = std::io::stderr().as_fd().try_clone_to_owned().map_err(cannot_start)?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{RECORD}{words}")).arg(python).arg(folder);
    let ended = command.stdin(Stdio::null()).stdout(out).status().map_err(cannot_start)?;
    match (ended.success(), ended.code()) {
        (true, _) => {}
        (false, Some(code)) => return Err(failed(&format!("it ended with exit code {code}; its output is above"))),
        (false, None) => return Err(failed(&format!("it was ended by a {ended}; its output is above"))),
    }
    let recorded = registry::open(folder)?;
    if recorded.invocations().is_empty() {
        return Err(failed("it recorded no call: see `@tunable` and `--adapters` in docs/recording.md"));
    }
    Ok(recorded)
}
