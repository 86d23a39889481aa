//! Which timer `--timer` names.

use std::path::{Path, PathBuf};

use crate::timer::pjrt::{FoundPlugin, discover};
use crate::timer::{ActivePython, AutoTimer};

use super::exit;
use super::fault::Fault;
use super::options::PluginArgs;

/// The timer that `--timer` names, with `auto` settled.
pub(super) enum NamedTimer<'a> {
    Plugin(FoundPlugin),
    Jax(PathBuf),
    Command(&'a str),
    Replay(&'a Path),
}

/// Which timer is named; for `auto`, also a line that says which one it is.
pub(super) fn settle<'a>(
    timer: &'a str,
    plugin: &PluginArgs,
    compiled: &[PathBuf],
) -> Result<(NamedTimer<'a>, Option<String>), Fault> {
    let given = plugin.plugin.as_deref();
    let named = match timer.split_once(':') {
        // these apply to plugins only
        None if timer == "auto" => {
            return settle_auto(given, !plugin.client_options.is_empty() || !compiled.is_empty());
        }
        None if timer == "pjrt" => NamedTimer::Plugin(first_plugin(given)?),
        None if timer == "jax" => NamedTimer::Jax(active_python()?),
        Some(("jax", python)) => NamedTimer::Jax(PathBuf::from(python)),
        Some(("command", command)) => NamedTimer::Command(command),
        Some(("replay", path)) => NamedTimer::Replay(Path::new(path)),
        _ => return Err(Fault::new(exit::USAGE, unknown(timer))),
    };
    Ok((named, None))
}

/// The compiler that the user's programs run with, as far as known.
fn settle_auto(given: Option<&Path>, is_for_plugins: bool) -> Result<(NamedTimer<'static>, Option<String>), Fault> {
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

fn unknown(timer: &str) -> String {
    format!(
        "`--timer {timer}` is not one of `auto`, `pjrt`, `jax`, `jax:PYTHON`, `command:CMD`, `replay:FILE`, \
         `replay:DIR`"
    )
}

/// Whether such a timer exists; the error lists those that do.
pub(super) fn known(timer: &str) -> Result<(), String> {
    let is_known = match timer.split_once(':') {
        None => ["auto", "pjrt", "jax"].contains(&timer),
        Some((kind, _)) => ["jax", "command", "replay"].contains(&kind),
    };
    if is_known { Ok(()) } else { Err(unknown(timer)) }
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
