//! A compiler by its place: an environment of Python with JAX, or a PJRT plugin.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::measured_by::{CacheState, Metric};

use super::exit;
use super::fault::Fault;
use super::options::{LimitArgs, PluginArgs, cache_state, metric};
use super::timers::TimerArgs;

/// A compiler as the user named it.
pub(super) struct NamedCompiler {
    pub(super) name: String,
    /// The Python of its environment, unless it is a plugin.
    pub(super) python: Option<PathBuf>,
    /// Times its programs.
    pub(super) timer: TimerArgs,
}

/// How a compiler's programs are timed.
#[derive(Debug, Clone, Args)]
pub(super) struct SideArgs {
    /// What counts as an execution's duration: `elapsed` by the host clock, or `span` or `busy` from a profile
    /// [default: `elapsed` without a profiler and for JAX on a CPU; else `span` on a CPU and `busy` elsewhere]
    #[arg(long, value_parser = metric())]
    pub(super) metric: Option<Metric>,
    /// State of the device's caches before every timed run
    #[arg(long, value_parser = cache_state(), default_value = "warm")]
    pub(super) cache_state: CacheState,
    /// Number of the plugin's device to use
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) device: usize,
    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

impl SideArgs {
    /// The compiler at a place: a folder with `bin/python`, a Python, or a shared library. An error begins
    /// with how the place was `named`.
    pub(super) fn compiler(&self, named: &str, name: String, place: &Path) -> Result<NamedCompiler, Fault> {
        let (timer, plugin, python) = match kind(place) {
            Some(Kind::Python(python)) => (format!("jax:{}", python.display()), None, Some(python)),
            Some(Kind::Plugin) => ("pjrt".to_owned(), Some(place.to_owned()), None),
            None => {
                let message =
                    format!("{named} is neither a folder with `bin/python`, nor a Python, nor a plugin (`….so`)");
                return Err(Fault::new(exit::USAGE, message));
            }
        };
        let timer = TimerArgs {
            timer,
            metric: self.metric.clone(),
            needs_profiles: false,
            cache_state: self.cache_state.clone(),
            launch: None,
            plugin: PluginArgs { plugin, device: self.device, client_options: Vec::new() },
            limits: self.limits.clone(),
        };
        Ok(NamedCompiler { name, python, timer })
    }
}

enum Kind {
    Python(PathBuf),
    Plugin,
}

fn kind(place: &Path) -> Option<Kind> {
    let name = place.file_name()?.to_str()?;
    if place.is_dir() {
        let python = place.join("bin").join("python");
        return python.is_file().then_some(Kind::Python(python));
    }
    match place.is_file() {
        // a link of an environment must keep its name: Python finds its packages by it
        true if name.starts_with("python") => Some(Kind::Python(place.to_owned())),
        true if place.extension().is_some_and(|extension| extension == "so") => Some(Kind::Plugin),
        _ => None,
    }
}
