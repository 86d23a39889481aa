//! What `--timer` names: its plugin or its Python is looked for.

use std::path::{Path, PathBuf};

use crate::timer::pjrt::{FoundPlugin, discover};
use crate::timer::{ActivePython, AutoTimer, TimerName, UnknownTimer};

use super::exit;
use super::fault::Fault;
use super::options::PluginArgs;

/// The timer that `--timer` names, with `auto` settled.
pub(super) enum NamedTimer {
    Plugin(FoundPlugin),
    Jax(PathBuf),
    Command(String),
    Replay(PathBuf),
}

impl From<UnknownTimer> for Fault {
    fn from(unknown: UnknownTimer) -> Self {
        Self::new(exit::USAGE, unknown)
    }
}

/// Which timer is named; for `auto`, also a line that says which one it is.
pub(super) fn settle(
    timer: &str,
    plugin: &PluginArgs,
    is_for_stores: bool,
) -> Result<(NamedTimer, Option<String>), Fault> {
    let given = plugin.plugin.as_deref();
    let named = match timer.parse()? {
        // these apply to plugins only
        TimerName::Auto => return settle_auto(given, is_for_stores || !plugin.client_options.is_empty()),
        TimerName::Pjrt => NamedTimer::Plugin(first_plugin(given)?),
        TimerName::Jax(None) => NamedTimer::Jax(active_python()?),
        TimerName::Jax(Some(python)) => NamedTimer::Jax(python),
        TimerName::Command(command) => NamedTimer::Command(command),
        TimerName::Replay(path) => NamedTimer::Replay(path),
    };
    Ok((named, None))
}

/// Refuses a timer that runs no program, for a command that needs one; `why` ends the sentence.
pub(super) fn refuse_replay(timer: &str, why: &str) -> Result<(), Fault> {
    match timer.parse::<TimerName>()?.is_replay() {
        true => Err(Fault::new(exit::USAGE, format!("`--timer {timer}` runs no program{why}"))),
        false => Ok(()),
    }
}

/// The compiler that the user's programs run with, as far as known.
fn settle_auto(given: Option<&Path>, is_for_plugins: bool) -> Result<(NamedTimer, Option<String>), Fault> {
    let (plugin, why) = match AutoTimer::choose(given.is_some() || is_for_plugins) {
        AutoTimer::NamedPlugin => return Ok((NamedTimer::Plugin(first_plugin(given)?), None)),
        AutoTimer::Plugin(plugin) => (plugin, ", as JAX in the active environment"),
        AutoTimer::Jax(python) => {
            let which = format!("the timer is `jax`: the JAX of `{}` compiles the programs", python.display());
            return Ok((NamedTimer::Jax(python), Some(which)));
        }
        AutoTimer::PluginWithoutJax => {
            (first_plugin(given)?, ": the active Python has no JAX; JAX's compiler may differ")
        }
    };
    let which = format!("the timer is `pjrt` with `{}`{why}", plugin.path.display());
    Ok((NamedTimer::Plugin(plugin), Some(which)))
}

/// The preferred plugin: the given one, or else one that is found.
fn first_plugin(given: Option<&Path>) -> Result<FoundPlugin, Fault> {
    let found = discover(given, None).map_err(Fault::device)?;
    if let [first, second, ..] = found.as_slice() {
        tracing::info!("using the plugin `{}`; `--plugin {}` would use another", first.name, second.path.display());
    }
    found.into_iter().next().ok_or_else(|| {
        Fault::device("no PJRT plugin was found; name one with `--plugin PATH`; `--timer jax` needs none")
    })
}

/// The Python of the active environment.
fn active_python() -> Result<PathBuf, Fault> {
    ActivePython::find().map(|active| active.python).ok_or_else(|| {
        Fault::device(
            "there is no active Python: activate an environment with JAX, or name its Python with `--timer jax:PYTHON`",
        )
    })
}
