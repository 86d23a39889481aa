//! The main job: module in, best configs out.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::MultiProgress;

use crate::analysis::trace::TraceFormat;
use crate::analysis::{HloFiles, Summary, SummaryOptions, summarize};
use crate::call::split_op_id;
use crate::counted::counted;
use crate::decision::DecisionRules;
use crate::failure::{Failure, FailureKind};
use crate::hlo::Scan;
use crate::ledger::Ledger;
use crate::measured_by::{Metric, Source};
use crate::printable::printable;
use crate::remedy::remedy;
use crate::report::{time_line, write_json, write_result};
use crate::timer::pjrt::{FoundPlugin, HOST_CLOCK, PjrtTimer};
use crate::timer::{
    ActivePython, AutoTimer, CommandTimer, FollowingTimer, KeepingTimer, Limits, ProfileReplay, ReplayTimer, SPANS,
    Timer,
};
use crate::tune::{
    Autotuner, AutotuningResult, Event, OperationResult, ProfiledStep, Spent, Status, TuneOptions, order_by_share,
    run_on_devices,
};

use super::args::{DeviceList, Format, LimitArgs, MetricArg, PluginArgs, TuneArgs};
use super::ending::cancel_flag;
use super::fault::Fault;
use super::profile::trace::{format_of, untold};
use super::progress::Progress;
use super::remote::SharedRun;
use super::report::{ReportFile, check_writable};
use super::{RunTrace, cache, candidates, device, executables, exit, plan, profile, remote, scan, selftest};

/// Tunes a module and prints the result.
pub(super) fn run(
    args: &TuneArgs,
    bars: &MultiProgress,
    trace: Option<&RunTrace>,
    out: &mut dyn Write,
) -> Result<u8, Fault> {
    let begin = Instant::now();
    let Some(module) = &args.module else {
        return Err(Fault::new(exit::USAGE, "name a module, or see `--help`"));
    };
    let reading = tracing::info_span!(target: SPANS, "read the module").entered();
    let source = match args.plan.read(module)? {
        Ok(source) => source,
        Err(scan) => {
            if args.report.is_some() {
                say("no report is written: the module holds no label");
            }
            return nothing_matched(&scan, args.format.format, out);
        }
    };
    drop(reading);
    // what would fail after the run is known before it
    let page = args.report.as_deref().map(ReportFile::at).transpose()?;
    let trace = trace.zip(args.trace_run.as_deref()).map(|(trace, path)| TraceFile::at(trace, path)).transpose()?;
    let step = args.profile.as_deref().map(|profile| step(args, profile)).transpose()?;
    let cancel = cancel_flag()?;
    let scratch = device::scratch()?;
    let opening = tracing::info_span!(target: SPANS, "open the cache").entered();
    // the cache comes first: a locked or broken one is known before a device is started
    let (shared, ledger) = match remote::address(&args.cache)? {
        Some(_) if args.no_persist || args.dry_run => (None, cache::open_for_reading(&args.cache)?),
        Some(address) => {
            let (shared, ledger) = SharedRun::open(address, &args.cache, &args.signer)?;
            cache::tell(&ledger);
            (Some(shared), ledger)
        }
        None if args.no_persist || args.dry_run => (None, Ledger::in_memory(cache::seeds(&args.cache))),
        None => (None, cache::open(&args.cache)?),
    };
    drop(opening);
    let executables = executables::folder_for(&ledger, scratch.path())?;
    let starting = tracing::info_span!(target: SPANS, "start the timer").entered();
    let mut timers = start_timers(args, &executables)?;
    drop(starting);
    let Some(timer) = timers.first() else { return Err(Fault::new(exit::USAGE, "`--devices` names no device")) };
    let of_timer = timer.notes().to_vec();
    let builds_programs = timer.builds_programs();
    let (resolution, of_selftest) = selftest::known_resolution(&args.cache, &**timer, args.cache_state.into());
    let mut of_step = Vec::new();
    let planning = tracing::info_span!(target: SPANS, "plan").entered();
    let (mut plan, missed) = args.plan.plan_by(&source, &timer.device().identity, |plan| {
        if let Some(step) = &step {
            of_step = order_by_share(plan, &step.labels);
        }
    })?;
    let of = plan.len();
    plan.retain(|planned| args.plan.is_mine(&planned.invocation));
    let of_shard = args.plan.shard_note(plan.len(), of);
    if let Some(note) = &of_shard {
        say(note);
    }
    if builds_programs {
        let spaces = candidates::spaces(args.candidates.as_deref())?;
        for planned in &mut plan {
            if let Some(space) = spaces.get(split_op_id(&planned.invocation.call.op_id).0) {
                planned.extend_from(space);
            }
        }
    }
    drop(planning);
    let options = TuneOptions {
        rounds: args.rounds,
        rules: DecisionRules {
            min_improvement: args.min_improvement,
            max_speed_up: args.max_speed_up,
            ..DecisionRules::default()
        },
        resolution,
        budget: args.budget.filter(|_| step.is_none()),
        stop_at: args.budget.filter(|_| step.is_some()).and_then(|budget| begin.checked_add(budget)),
        force: args.force,
        cache_state: args.cache_state.into(),
        seed: args.search.seed,
        search: args.search.options(),
        ..TuneOptions::default()
    };
    // one for each device: each draws its own bar
    let mut drawn: Vec<Progress> = timers.iter().map(|_| Progress::new(bars.clone())).collect();
    let mut handlers: Vec<_> = drawn.iter_mut().map(|progress| |event: Event<'_>| progress.draw(&event)).collect();
    let mut tuners: Vec<Autotuner<'_, '_>> = timers
        .iter_mut()
        .zip(&mut handlers)
        .map(|(timer, on_event)| Autotuner {
            registry: &source.registry,
            timer: &mut **timer,
            ledger: &ledger,
            options: &options,
            cancel: &cancel,
            on_event,
        })
        .collect();
    let outcome = match tuners.as_mut_slice() {
        [tuner, ..] if args.dry_run => Some((tuner.preview(&plan), None)),
        [tuner] => Some(tuner.run(&plan)),
        tuners => run_on_devices(tuners, &plan),
    };
    // also of a run that was stopped, and before anything else can fail
    let traced = trace.map_or(Ok(()), |trace| trace.write());
    let Some((mut result, stopped_by)) = outcome else { return Ok(exit::FINE) };
    result.missed = missed;
    if let (Some(step), Some(profile)) = (&step, &args.profile) {
        let modules_ns = step.modules.iter().map(|module| module.total_ns).sum();
        let place = profile.display().to_string();
        result.step = Some(ProfiledStep::new(place, modules_ns, &step.labels, &result));
        of_step.extend(step.notes.iter().cloned());
        of_step.extend(step.findings.iter().map(ToString::to_string));
        result.notes.extend(of_step);
    }
    result.notes.splice(0..0, plan::notes(&source, ledger.notes()));
    result.notes.extend(of_timer.into_iter().chain(of_selftest).chain(of_shard));
    // whatever becomes of stdout and the page: others wait for what was decided
    let printed = print(&result, args, out).and_then(|()| Ok(out.flush()?));
    let paged = page.map_or(Ok(()), |page| {
        let subject = if module == Path::new("-") { "standard input".into() } else { module.to_string_lossy() };
        page.write(&subject, std::slice::from_ref(&result))
    });
    // also what a run decided that was stopped
    let published = shared.map_or(Ok(()), |shared| shared.publish(&ledger));
    if let Some(error) = stopped_by {
        return Err(error.into());
    }
    published?;
    traced?;
    paged?;
    if !args.dry_run {
        close(&result, ledger.root());
    }
    printed?;
    Ok(exit_code(&result, of > 0))
}

/// A trace of the run that will be written.
struct TraceFile<'a> {
    trace: &'a RunTrace,
    path: &'a Path,
    format: TraceFormat,
}

impl<'a> TraceFile<'a> {
    fn at(trace: &'a RunTrace, path: &'a Path) -> Result<Self, Fault> {
        let format = format_of(path).ok_or_else(|| untold(path, ""))?;
        check_writable(path, "trace")?;
        Ok(Self { trace, path, format })
    }

    fn write(&self) -> Result<(), Fault> {
        let traced = self.trace.write(self.path, self.format).map_err(Fault::input)?;
        for note in traced.notes() {
            tracing::warn!("`{}`: {note}", self.path.display());
        }
        match self.trace.left_out() {
            0 => {}
            left_out => tracing::warn!("`{}`: {left_out} slices were left out, the last ones", self.path.display()),
        }
        Ok(())
    }
}

/// Where the time of the step goes that is to become faster.
fn step(args: &TuneArgs, profile: &Path) -> Result<Summary, Fault> {
    let user = scan::user_labels(&args.plan.labels)?;
    let files = HloFiles::open(&args.hlo).map_err(Fault::input)?;
    let captures = profile::read_any(&[profile.to_owned()], &files)?;
    let summary = summarize(&captures, &files, SummaryOptions { labels: user.as_ref(), ..SummaryOptions::default() });
    if summary.modules.is_empty() {
        return Err(Fault::input(format!(
            "`{}`: holds no module execution; profile a step that runs",
            profile.display()
        )));
    }
    Ok(summary)
}

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

/// A timer for each device that the user chose; all devices must be of one identity.
fn start_timers(args: &TuneArgs, executables: &Path) -> Result<Vec<Box<dyn Timer>>, Fault> {
    fn choice<'a>(args: &'a TuneArgs, plugin: &'a PluginArgs) -> TimerChoice<'a> {
        TimerChoice { timer: &args.timer, plugin, limits: &args.limits, metric: args.metric }
    }
    let Some(DeviceList(devices)) = &args.devices else {
        return Ok(vec![keeping(args, start_timer(&choice(args, &args.plugin), executables)?)?]);
    };
    if !["auto", "pjrt", "jax"].contains(&&*args.timer) && !args.timer.starts_with("jax:") {
        let message = format!("`--devices` is for the timers `pjrt` and `jax`; `{}` has one device", args.timer);
        return Err(Fault::new(exit::USAGE, message));
    }
    let mut timers: Vec<Box<dyn Timer>> = Vec::new();
    for &device in devices {
        let plugin = PluginArgs { device, ..args.plugin.clone() };
        let timer = start_timer(&choice(args, &plugin), executables)?;
        if let Some(first) = timers.first()
            && first.device().identity != timer.device().identity
        {
            let (one, other) = (&first.device().identity, &timer.device().identity);
            return Err(Fault::device(format!("device {device} is {other}, the first one is {one}: tune them apart")));
        }
        timers.push(timer);
    }
    Ok(timers)
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

/// The same timer, with its profiles kept where that was asked for.
fn keeping(args: &TuneArgs, timer: Box<dyn Timer>) -> Result<Box<dyn Timer>, Fault> {
    let Some(folder) = &args.keep_profiles else { return Ok(timer) };
    if timer.source() != Source::DeviceProfile {
        let message = format!(
            "`--keep-profiles` needs a timer that takes profiles, such as `--timer jax`; `{}` takes none",
            timer.name()
        );
        return Err(Fault::new(exit::USAGE, message));
    }
    if args.dry_run {
        return Ok(timer);
    }
    if let Some(every) = args.profile_every {
        let timer = FollowingTimer::new(timer, folder, every, args.profiles_kept as usize).map_err(|error| {
            Fault::input(format!("cannot keep profiles in `{}`: {error}{}", folder.display(), remedy(&error)))
        })?;
        return Ok(Box::new(timer));
    }
    let timer = KeepingTimer::new(timer, folder).map_err(|failure| Fault::input(failure.message))?;
    Ok(Box::new(timer))
}

fn print(result: &AutotuningResult, args: &TuneArgs, out: &mut dyn Write) -> Result<(), Fault> {
    match args.format.format {
        Format::Table => write_result(out, result)?,
        Format::Json => write_json(out, result)?,
    }
    Ok(())
}

/// The last line on stderr: what was measured and where the configs are.
fn close(result: &AutotuningResult, folder: Option<&Path>) {
    let rounds: u32 = result.operations.iter().map(|operation| operation.rounds_measured).sum();
    let decided = result.operations.iter().filter(|operation| operation.status.is_decided()).count();
    let searches = result.operations.iter().filter_map(|operation| operation.search.as_ref());
    let tried: usize = searches.map(|search| search.evaluations - search.reused).sum();
    let what = match (rounds, decided) {
        _ if tried > 0 => format!("{} tried, {} measured", counted(tried, "config"), counted(rounds, "round")),
        (0, 0) => "nothing was measured".to_owned(),
        (0, _) => "nothing new, nothing measured; `--force` measures again".to_owned(),
        _ => format!("{} measured", counted(rounds, "round")),
    };
    let place = folder.map_or_else(|| "not kept".to_owned(), |folder| format!("in `{}`", folder.display()));
    let mut spent = Spent::default();
    for operation in &result.operations {
        spent += operation.spent;
    }
    if let Some(line) = time_line(&spent) {
        say(&line);
    }
    say(&format!("{decided} of {} {place}; {what}", counted(result.operations.len(), "best config")));
}

/// One line on stderr, which is no warning.
pub(super) fn say(line: &str) {
    // stderr may be gone; there is nobody left to tell
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}

pub(super) fn nothing_matched(scan: &Scan, format: Format, out: &mut dyn Write) -> Result<u8, Fault> {
    match format {
        Format::Table => writeln!(out, "nothing to tune: the module holds no label")?,
        Format::Json => write_json(out, scan)?,
    }
    Ok(exit::NOTHING_MATCHED)
}

/// `is_matched` says whether the module matched anything: a shard of it may be empty.
fn exit_code(result: &AutotuningResult, is_matched: bool) -> u8 {
    let undecided = |status: Status| !status.is_decided() && status != Status::Planned;
    let has_no_device = |operation: &OperationResult| {
        operation.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Device)
    };
    if result.interrupted {
        exit::INTERRUPTED
    } else if !is_matched {
        exit::NOTHING_MATCHED
    } else if !result.operations.is_empty() && result.operations.iter().all(has_no_device) {
        exit::DEVICE_TROUBLE
    } else if !result.missed.is_empty() || result.operations.iter().any(|operation| undecided(operation.status)) {
        exit::SOME_FAILED
    } else {
        exit::ALL_TUNED
    }
}
