//! The main job: module in, best configs out.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use indicatif::MultiProgress;

use crate::analysis::trace::TraceFormat;
use crate::analysis::{HloFiles, SummaryOptions, summarize};
use crate::candidates::Spaces;
use crate::decision::DecisionRules;
use crate::failure::FailureKind;
use crate::ledger::Ledger;
use crate::measured_by::Source;
use crate::remedy::remedy;
use crate::report::{RunTrace, result_lines};
use crate::timer::events::{Events, Sink, Slice};
use crate::timer::{LogKeeper, ReplayKeeper, Timer};
use crate::tune::{AutotuningResult, OperationResult, PlanOptions, Session, Status, StepProfile, Stopped, TuneOptions};

use super::ending::cancel_flag;
use super::fault::Fault;
use super::options::PluginArgs;
use super::profile::trace::{format_of, untold};
use super::progress::Progress;
use super::report::{ReportFile, check_writable};
use super::say::say;
use super::scan::nothing_matched;
use super::timers::{TimerChoice, start_timer};
use super::tune_args::{DeviceList, TuneArgs};
use super::{cache, candidates, device, executables, exit, profile, remote, scan, selftest};

/// Tunes a module and prints the result.
pub(super) fn run(args: &TuneArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    let begin = Instant::now();
    let trace = args.trace_run.as_ref().map(|_| Arc::new(Mutex::new(RunTrace::default())));
    let events = trace.iter().fold(Events::default(), |events, trace| events.and(trace.clone()));
    let Some(module) = &args.module else {
        return Err(Fault::new(exit::USAGE, "name a module, or see `--help`"));
    };
    let reading = events.open(Slice::Step("read the module"));
    let source = match args.plan.read(module)? {
        Ok(source) => source,
        Err(scan) => {
            if args.report.is_some() {
                say("no report is written: the module holds no label");
            }
            return nothing_matched(&scan, &args.format, out);
        }
    };
    drop(reading);
    // what would fail after the run is known before it
    let page = args.report.as_deref().map(ReportFile::at).transpose()?;
    let trace =
        trace.as_ref().zip(args.trace_run.as_deref()).map(|(trace, path)| TraceFile::at(trace, path)).transpose()?;
    let step = args.profile.as_deref().map(|profile| step(args, profile)).transpose()?;
    let cancel = cancel_flag()?;
    let scratch = device::scratch()?;
    let opening = events.open(Slice::Step("open the cache"));
    // the cache comes first: a locked or broken one is known before a device is started
    let (shared, ledger) = match cache::address(&args.cache)? {
        Some(_) if args.no_persist || args.dry_run => (None, cache::open_for_reading(&args.cache)?),
        Some(address) => {
            let (shared, ledger) = remote::open_run(address, &args.cache, &args.signer)?;
            (Some(shared), ledger)
        }
        None if args.no_persist || args.dry_run => (None, Ledger::in_memory(cache::seeds(&args.cache))),
        None => (None, cache::open(&args.cache)?),
    };
    drop(opening);
    let executables = executables::folder_for(&ledger, scratch.path())?;
    let starting = events.open(Slice::Step("start the timer"));
    let mut timers = start_timers(args, &executables)?;
    let keeper = timers.first().map_or(Ok(None), |timer| keeper(args, &**timer))?;
    drop(starting);
    let Some(timer) = timers.first() else { return Err(Fault::new(exit::USAGE, "`--devices` names no device")) };
    let (resolution, of_selftest) = selftest::known_resolution(&args.cache, &**timer, args.cache_state.into());
    let planning = events.open(Slice::Step("plan"));
    let has_step = step.is_some();
    let spaces = match timer.builds_programs() {
        true => candidates::spaces(args.candidates.as_deref())?,
        false => Spaces::default(),
    };
    let plan = source.plan(&timer.device().identity, &PlanOptions { step, spaces, ..args.plan.options() })?;
    drop(planning);
    let options = TuneOptions {
        rounds: args.rounds,
        rules: DecisionRules {
            min_improvement: args.min_improvement,
            max_speed_up: args.max_speed_up,
            ..DecisionRules::default()
        },
        resolution,
        budget: args.budget.filter(|_| !has_step),
        stop_at: args.budget.filter(|_| has_step).and_then(|budget| begin.checked_add(budget)),
        force: args.force,
        cache_state: args.cache_state.into(),
        one_job_a_call: args.keep_profiles.is_some() && args.profile_every.is_none() && !args.dry_run,
        seed: args.search.seed,
        search: args.search.options(),
        ..TuneOptions::default()
    };
    // one for each device: each draws its own bar
    let events = keeper.iter().fold(events, |events, keeper| events.and(keeper.clone()));
    let mut devices = timers.iter_mut().map(|timer| (timer, events.and(Progress::new(bars.clone()))));
    let Some((timer, told)) = devices.next() else { return Ok(exit::FINE) };
    let mut session = Session::new(&source.registry, &ledger, &mut **timer)
        .with_options(options)
        .with_cancel(&cancel)
        .with_events(told);
    for (timer, told) in devices {
        session = session.with_device(&mut **timer, told);
    }
    let outcome = if args.dry_run { Ok(session.preview(&plan)) } else { session.run(&plan) };
    // also of a run that was stopped, and before anything else can fail
    let traced = trace.map_or(Ok(()), |trace| trace.write());
    let (mut result, stopped_by) = match outcome {
        Ok(result) => (result, None),
        Err(Stopped { so_far, error }) => (*so_far, Some(*error)),
    };
    result.notes.extend(of_selftest);
    // whatever becomes of stdout and the page: others wait for what was decided
    let printed = args.format.write(out, &result).and_then(|()| out.flush());
    let paged = page.map_or(Ok(()), |page| {
        let subject = if module == Path::new("-") { "standard input".into() } else { module.to_string_lossy() };
        page.write(&subject, std::slice::from_ref(&result))
    });
    // also what a run decided that was stopped
    let published = shared.map_or(Ok(()), |shared| remote::publish(&shared, &ledger));
    if let Some(error) = stopped_by {
        return Err(error.into());
    }
    published?;
    traced?;
    paged?;
    if !args.dry_run {
        result_lines(&result, ledger.root()).iter().for_each(|line| say(line));
    }
    printed?;
    Ok(exit_code(&result, !plan.matched_nothing()))
}

/// A trace of the run that will be written.
struct TraceFile<'a> {
    trace: &'a Mutex<RunTrace>,
    path: &'a Path,
    format: TraceFormat,
}

impl<'a> TraceFile<'a> {
    fn at(trace: &'a Arc<Mutex<RunTrace>>, path: &'a Path) -> Result<Self, Fault> {
        let format = format_of(path).ok_or_else(|| untold(path, ""))?;
        check_writable(path, "trace")?;
        Ok(Self { trace, path, format })
    }

    fn write(&self) -> Result<(), Fault> {
        let trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let traced = trace.write(self.path, self.format).map_err(Fault::input)?;
        for note in traced.notes() {
            tracing::warn!("`{}`: {note}", self.path.display());
        }
        match trace.left_out() {
            0 => {}
            left_out => tracing::warn!("`{}`: {left_out} slices were left out, the last ones", self.path.display()),
        }
        Ok(())
    }
}

/// Where the time of the step goes that is to become faster.
fn step(args: &TuneArgs, profile: &Path) -> Result<StepProfile, Fault> {
    let user = scan::user_labels(&args.plan.labels)?;
    let files = HloFiles::open(&args.hlo).map_err(Fault::input)?;
    let captures = profile::read_any(&[profile.to_owned()], &files)?;
    let summary = summarize(&captures, &files, SummaryOptions { labels: user.as_ref(), ..SummaryOptions::default() });
    let place = profile.display().to_string();
    StepProfile::of(place, &summary).ok_or_else(|| {
        Fault::input(format!("`{}`: holds no module execution; profile a step that runs", profile.display()))
    })
}

/// A timer for each device that the user chose; all devices must be of one identity.
fn start_timers(args: &TuneArgs, executables: &Path) -> Result<Vec<Box<dyn Timer>>, Fault> {
    fn choice<'a>(args: &'a TuneArgs, plugin: &'a PluginArgs) -> TimerChoice<'a> {
        TimerChoice { timer: &args.timer, plugin, limits: &args.limits, metric: args.metric }
    }
    let Some(DeviceList(devices)) = &args.devices else {
        return Ok(vec![start_timer(&choice(args, &args.plugin), executables)?]);
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

/// What keeps a timer's profiles, where that was asked for.
fn keeper(args: &TuneArgs, timer: &dyn Timer) -> Result<Option<Arc<Mutex<dyn Sink>>>, Fault> {
    let Some(folder) = &args.keep_profiles else { return Ok(None) };
    if timer.source() != Source::DeviceProfile {
        let message = format!(
            "`--keep-profiles` needs a timer that takes profiles, such as `--timer jax`; `{}` takes none",
            timer.name()
        );
        return Err(Fault::new(exit::USAGE, message));
    }
    if args.dry_run {
        return Ok(None);
    }
    if let Some(every) = args.profile_every {
        let keeper = LogKeeper::new(folder, every, args.profiles_kept as usize).map_err(|error| {
            Fault::input(format!("cannot keep profiles in `{}`: {error}{}", folder.display(), remedy(&error)))
        })?;
        return Ok(Some(Arc::new(Mutex::new(keeper))));
    }
    let keeper = ReplayKeeper::new(timer, folder).map_err(|failure| Fault::input(failure.message))?;
    Ok(Some(Arc::new(Mutex::new(keeper))))
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
