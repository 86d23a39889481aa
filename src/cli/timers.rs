//! How to start a timer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::device::{flags_with_launch, launch_options};
use crate::failure::Failure;
use crate::io_hint::scratch_hint;
use crate::measured_by::{CacheState, LaunchMode, Metric};
use crate::scratch::Scratch;
use crate::timer::exec::three_quarters_of_memory;
use crate::timer::pjrt::{FoundPlugin, PjrtOptions, PjrtTimer, executables_folder};
use crate::timer::{
    CommandTimer, CompileTimes, HOST_CLOCK, JaxScript, ProfileReplay, ReplayTimer, Timer, TimerName, WorkerLimits,
};

use super::executables::Executables;
use super::exit;
use super::fault::Fault;
use super::named_timer::{NamedTimer, settle};
use super::options::{LimitArgs, PluginArgs, cache_state, launch, metric};
use super::say::say;

/// The timer of candidates and cached configs, its device, and its limits.
#[derive(Debug, Clone, Args)]
pub(super) struct TimerArgs {
    /// The timer of programs: `auto` (the compiler your JAX programs use), `pjrt` (a plugin), `jax` or `jax:PYTHON`
    /// (JAX itself), `command:CMD` (your own worker); for tuning and `check` also `replay:FILE` (recorded samples), for
    /// tuning also `replay:DIR` (earlier profiles)
    #[arg(long, value_name = "TIMER", default_value = "auto")]
    pub timer: String,
    /// What counts as an execution's duration: `elapsed` by the host clock, or `span` or `busy` from a profile
    /// [default: `elapsed` without a profiler and for JAX on a CPU; else `span` on a CPU and `busy` elsewhere]
    #[arg(long, value_parser = metric())]
    pub metric: Option<Metric>,
    /// Whether the caller needs profiles, regardless of the metric.
    #[arg(skip)]
    pub needs_profiles: bool,
    /// State of the device's caches before every timed run
    #[arg(long, value_parser = cache_state(), default_value = "warm")]
    pub cache_state: CacheState,
    /// How kernels are launched on a GPU [default: as XLA_FLAGS say]
    #[arg(long, value_parser = launch())]
    pub launch: Option<LaunchMode>,
    #[command(flatten)]
    pub plugin: PluginArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// Starts a timer for the first device, or for the named one.
pub(super) fn start_first(
    args: &TimerArgs,
    devices: Option<&[usize]>,
    executables: &Executables,
) -> Result<Box<dyn Timer>, Fault> {
    let Some(devices) = devices else { return start_timer(args, executables) };
    if !matches!(args.timer.parse()?, TimerName::Auto | TimerName::Pjrt | TimerName::Jax(_)) {
        let message = format!("`--devices` is for the timers `pjrt` and `jax`; `{}` has one device", args.timer);
        return Err(Fault::new(exit::USAGE, message));
    }
    let device = devices.first().ok_or_else(|| Fault::new(exit::USAGE, "`--devices` names no device"))?;
    start_on(*device, args, executables)
}

/// Starts a timer for each other group of devices. All must have the same identity.
pub(super) fn start_others(
    args: &TimerArgs,
    first: &dyn Timer,
    groups: &[usize],
    executables: &Executables,
) -> Result<Vec<Box<dyn Timer>>, Fault> {
    let mut timers = Vec::new();
    for &device in groups.iter().skip(1) {
        let timer = start_on(device, args, executables)?;
        let (one, other) = (&first.info().device.identity, &timer.info().device.identity);
        if one != other {
            return Err(Fault::device(format!(
                "device {device} is {other}, the first one is {one}: tune them separately"
            )));
        }
        timers.push(timer);
    }
    Ok(timers)
}

fn start_on(device: usize, args: &TimerArgs, executables: &Executables) -> Result<Box<dyn Timer>, Fault> {
    let plugin = PluginArgs { device, ..args.plugin.clone() };
    start_timer(&TimerArgs { plugin, ..args.clone() }, executables)
}

/// Starts a timer and prints its notes.
pub(super) fn start_timer(args: &TimerArgs, executables: &Executables) -> Result<Box<dyn Timer>, Fault> {
    let timer = start_for_profiles(args, executables)?;
    timer.info().notes.iter().filter(|note| note.starts_with(HOST_CLOCK)).for_each(|note| say(note));
    Ok(timer)
}

/// The same for who needs profiles, and without them fails instead of taking times by the host clock.
pub(super) fn start_for_profiles(args: &TimerArgs, executables: &Executables) -> Result<Box<dyn Timer>, Fault> {
    let timer = start_again(args, executables)?;
    let (device, by) = (&timer.info().device.identity, timer.info().measured_by(&args.cache_state));
    if args.launch.is_some() && by.launch != args.launch {
        let message =
            format!("`--launch` is for GPUs whose kernels this program's workers launch; {device} is not one");
        return Err(Fault::new(exit::USAGE, message));
    }
    match &by.launch {
        None => {}
        Some(LaunchMode::Replay) if args.launch.is_none() => {
            say("kernels are launched as command buffers where a program has five or more (`replay`, XLA's default)");
        }
        Some(launch) => say(&format!("kernels are launched {} (`{launch}`)", launch.to_words())),
    }
    for note in timer.info().notes.iter().filter(|note| !note.starts_with(HOST_CLOCK)) {
        tracing::warn!("{note}");
    }
    Ok(timer)
}

/// Starts a timer that has said what it is before.
pub(super) fn start_again(args: &TimerArgs, executables: &Executables) -> Result<Box<dyn Timer>, Fault> {
    let timer = &args.timer;
    if executables.compiled.is_some() && !matches!(timer.parse()?, TimerName::Auto | TimerName::Pjrt) {
        let message = format!("`--compiled` is for the timer `pjrt`: `{timer}` loads no executables");
        return Err(Fault::new(exit::USAGE, message));
    }
    let (named, which) = settle(timer, &args.plugin, executables.compiled.is_some())?;
    if let Some(which) = which {
        say(&which);
    }
    start_named(named, args, executables)
}

/// Starts this timer, whatever `--timer` says.
pub(super) fn start_named(
    named: NamedTimer,
    args: &TimerArgs,
    executables: &Executables,
) -> Result<Box<dyn Timer>, Fault> {
    let TimerArgs { plugin, limits, .. } = args;
    let options = PjrtOptions {
        executables: executables.kept.clone(),
        compiled: executables.compiled.clone(),
        xla_flags: args.launch.as_ref().map(xla_flags).transpose()?,
        launch_options: args.launch.as_ref().map(launch_options).unwrap_or_default(),
        compile_jobs: limits.compile_jobs.map(usize::from),
        metric: args.metric.clone(),
        ..options(plugin, WorkerLimits::from(limits))?
    };
    Ok(match named {
        NamedTimer::Plugin(FoundPlugin { path, .. }) => {
            Box::new(PjrtTimer::start(&PjrtOptions { plugin: path, ..options }).map_err(Fault::device)?)
        }
        NamedTimer::Jax(python) => start_jax(&python, options, args.needs_profiles)?,
        NamedTimer::Command(command) => {
            let timer = CommandTimer::start(&options.exe, &command, options.limits, options.metric);
            Box::new(timer.map_err(Fault::device)?)
        }
        NamedTimer::Replay(path) => replay(&path, options.metric)?,
    })
}

/// The `XLA_FLAGS` of workers with this launch mode.
fn xla_flags(launch: &LaunchMode) -> Result<String, Fault> {
    let own = std::env::var("XLA_FLAGS").unwrap_or_default();
    flags_with_launch(&own, launch).ok_or_else(|| {
        let message =
            format!("`--launch` cannot change the flags in the file `{own}` that XLA_FLAGS names; write them out");
        Fault::new(exit::USAGE, message)
    })
}

/// How to start workers for a device whose plugin is not yet known.
pub(super) fn options(args: &PluginArgs, limits: WorkerLimits) -> Result<PjrtOptions, Fault> {
    Ok(PjrtOptions {
        exe: this_program()?,
        plugin: PathBuf::new(),
        device: args.device,
        client_options: args.client_options.clone(),
        executables: std::env::temp_dir(),
        compiled: None,
        compile_jobs: None,
        xla_flags: None,
        launch_options: BTreeMap::new(),
        metric: None,
        limits,
    })
}

fn start_jax(python: &Path, options: PjrtOptions, needs_profiles: bool) -> Result<Box<dyn Timer>, Fault> {
    let PjrtOptions { exe, device, xla_flags, limits, metric, executables, .. } = options;
    let is_fixed = metric.is_some() || needs_profiles;
    // set by the package's `autotune`, for its own Python and environment
    let template = std::env::var_os("AUTOTUNE_LOWERED_TEMPLATE").map(PathBuf::from).filter(|_| xla_flags.is_none());
    let script = JaxScript { python: python.to_owned(), device, xla_flags, template };
    let timer = CommandTimer::start_jax(&exe, script, limits, metric).map_err(Fault::device)?;
    let timer = if is_fixed { timer } else { timer.prefer_clock() };
    // without a folder it has to ask again the next time
    Ok(match executables_folder(&executables) {
        Ok(folder) => Box::new(timer.remember_refusals(&folder)),
        Err(_) => Box::new(timer),
    })
}

/// Replays a folder of profiles or a file of samples.
fn replay(path: &Path, metric: Option<Metric>) -> Result<Box<dyn Timer>, Fault> {
    let input = |failure: Failure| Fault::input(failure.message);
    if path.is_dir() {
        return Ok(Box::new(ProfileReplay::open(path, metric).map_err(input)?));
    }
    if metric.is_some() {
        let message = "`--metric` needs profiles, and a recording holds only samples; name a folder of profiles";
        return Err(Fault::new(exit::USAGE, message));
    }
    Ok(Box::new(ReplayTimer::open(path).map_err(input)?))
}

impl From<&LimitArgs> for WorkerLimits {
    fn from(args: &LimitArgs) -> Self {
        let compile_times = args.timeout.is_none().then(CompileTimes::default);
        let call = args.timeout.map_or(Self::default().compile, Duration::from_secs);
        let memory_bytes = args.memory_limit.map(|mib| mib << 20).or_else(three_quarters_of_memory);
        // a limit for runs says little about how long a cold machine loads gigabytes of libraries
        let start = call.max(Self::default().start);
        let memory_may_grow = args.memory_limit.is_none();
        let calls = Self { compile: call, measure: call, load: call, ..Self::default() };
        Self { start, compile_times, memory_bytes, memory_may_grow, ..calls }
    }
}

/// A folder for temporary files of this run.
pub(super) fn scratch() -> Result<Scratch, Fault> {
    Scratch::new()
        .map_err(|error| Fault::device(format!("cannot make a scratch folder: {error}{}", scratch_hint(&error))))
}

/// This program's executable, from which workers are started.
pub(super) fn this_program() -> Result<PathBuf, Fault> {
    std::env::current_exe().map_err(|error| Fault::device(format!("cannot find this program's own file: {error}")))
}
