//! Which timer to start, and how.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::Failure;
use crate::measured_by::Metric;
use crate::timer::pjrt::{FoundPlugin, HOST_CLOCK, PjrtTimer};
use crate::timer::{ActivePython, AutoTimer, CommandTimer, Limits, ProfileReplay, ReplayTimer, Timer};

use super::fault::Fault;
use super::options::{LimitArgs, MetricArg, PluginArgs};
use super::say::say;
use super::{device, exit};

fn limits(args: &LimitArgs) -> Limits {
    let call = Duration::from_secs(args.timeout);
    let memory = args.memory_limit.map(|mib| mib << 20).or_else(three_quarters_of_memory);
    Limits { compile: call, measure: call, load: call, memory_bytes: memory, ..Limits::default() }
}

fn three_quarters_of_memory() -> Option<u64> {
    let info = rustix::system::sysinfo();
    // the field's width differs between platforms
    #[allow(clippy::useless_conversion)]
    let bytes = u64::from(info.totalram).checked_mul(u64::from(info.mem_unit))?;
    Some(bytes / 4 * 3)
}

fn metric(metric: Option<MetricArg>) -> Option<Metric> {
    metric.map(|metric| match metric {
        MetricArg::Elapsed => Metric::Elapsed,
        MetricArg::Span => Metric::Span,
        MetricArg::Busy => Metric::Busy,
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

/// Which timer to start, and how.
pub(super) struct TimerChoice<'a> {
    /// As `--timer` has it.
    pub(super) timer: &'a str,
    /// The plugin and its device.
    pub(super) plugin: &'a PluginArgs,
    /// Limits of its workers.
    pub(super) limits: &'a LimitArgs,
    /// As `--metric` has it.
    pub(super) metric: Option<MetricArg>,
}

/// Starts a timer and says what it wants the user to know; kept executables lie in the folder.
pub(super) fn start_timer(args: &TimerChoice<'_>, executables: &Path) -> Result<Box<dyn Timer>, Fault> {
    let timer = start(args, executables)?;
    for note in timer.notes() {
        if note.starts_with(HOST_CLOCK) { say(note) } else { tracing::warn!("{note}") }
    }
    Ok(timer)
}

fn start(args: &TimerChoice<'_>, executables: &Path) -> Result<Box<dyn Timer>, Fault> {
    match args.timer.split_once(':') {
        None if args.timer == "auto" => start_auto(args, executables),
        None if args.timer == "pjrt" => start_plugin(args, &device::first_plugin(args.plugin)?, executables),
        None if args.timer == "jax" => start_jax(args, &active_python()?),
        Some(("jax", python)) => start_jax(args, Path::new(python)),
        Some(("command", command)) => {
            let timer =
                CommandTimer::start(&device::this_program()?, command, limits(args.limits), metric(args.metric));
            Ok(Box::new(timer.map_err(Fault::device)?))
        }
        Some(("replay", path)) => replay(args.metric, Path::new(path)),
        _ => {
            let message = format!(
                "`--timer {}` is none of `auto`, `pjrt`, `jax`, `jax:PYTHON`, `command:CMD`, `replay:FILE`, `replay:DIR`",
                args.timer
            );
            Err(Fault::new(exit::USAGE, message))
        }
    }
}

/// The compiler that the user's programs run with, as far as that can be known; says which one it is.
fn start_auto(args: &TimerChoice<'_>, executables: &Path) -> Result<Box<dyn Timer>, Fault> {
    // these are for plugins alone
    let is_for_plugins = !args.plugin.client_options.is_empty() || args.metric == Some(MetricArg::Elapsed);
    match AutoTimer::choose(args.plugin.plugin.is_some() || is_for_plugins) {
        AutoTimer::NamedPlugin => start_plugin(args, &device::first_plugin(args.plugin)?, executables),
        AutoTimer::Plugin(plugin) => {
            say(&format!("the timer is `pjrt` with `{}`, as JAX in the active environment", plugin.path.display()));
            start_plugin(args, &plugin, executables)
        }
        AutoTimer::Jax(python) => {
            say(&format!("the timer is `jax`: programs are compiled by the JAX of `{}`", python.display()));
            start_jax(args, &python)
        }
        AutoTimer::PluginWithoutJax => {
            let plugin = device::first_plugin(args.plugin)?;
            say(&format!(
                "the timer is `pjrt` with `{}`: the active Python has no JAX, whose compiler may be another one",
                plugin.path.display()
            ));
            start_plugin(args, &plugin, executables)
        }
    }
}

fn start_plugin(args: &TimerChoice<'_>, plugin: &FoundPlugin, executables: &Path) -> Result<Box<dyn Timer>, Fault> {
    let mut options = device::options(args.plugin, plugin, limits(args.limits))?;
    executables.clone_into(&mut options.executables);
    options.compile_jobs = args.limits.compile_jobs.map(usize::from);
    options.metric = metric(args.metric);
    Ok(Box::new(PjrtTimer::start(&options).map_err(Fault::device)?))
}

fn start_jax(args: &TimerChoice<'_>, python: &Path) -> Result<Box<dyn Timer>, Fault> {
    if args.metric == Some(MetricArg::Elapsed) {
        let message = "`--metric elapsed` is the host clock, and `--timer jax` times by profiles: use `--timer pjrt`";
        return Err(Fault::new(exit::USAGE, message));
    }
    let exe = device::this_program()?;
    let timer = CommandTimer::start_jax(&exe, python, args.plugin.device, limits(args.limits), metric(args.metric));
    Ok(Box::new(timer.map_err(Fault::device)?))
}

/// A folder holds profiles, a file samples.
fn replay(chosen: Option<MetricArg>, path: &Path) -> Result<Box<dyn Timer>, Fault> {
    let input = |failure: Failure| Fault::input(failure.message);
    if path.is_dir() {
        return Ok(Box::new(ProfileReplay::open(path, metric(chosen)).map_err(input)?));
    }
    if chosen.is_some() {
        let message = "`--metric` needs profiles, and a recording holds samples alone; name a folder of profiles";
        return Err(Fault::new(exit::USAGE, message));
    }
    Ok(Box::new(ReplayTimer::open(path).map_err(input)?))
}
