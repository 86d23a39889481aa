//! The main job: tunes a module and prints the best configs.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use indicatif::MultiProgress;

use crate::analysis::trace::TraceFormat;
use crate::candidates::Spaces;
use crate::decision::DecisionRules;
use crate::failure::FailureKind;
use crate::printable::printable;
use crate::registry::Registry;
use crate::report::{HtmlReport, RunTrace, result_lines, write_html};
use crate::timer::events::{Events, Slice};
use crate::tune::{AutotuningResult, OperationResult, Plan, PlanOptions, Session, Status, Stopped, TuneOptions};

use super::compiler_options::say_use;
use super::ending::cancel_flag;
use super::fault::Fault;
use super::output_file::OutputFile;
use super::profile::trace::unknown_format;
use super::programs::ProgramReader;
use super::progress::Progress;
use super::say::say;
use super::scan::{NoLabels, nothing_matched, user_labels};
use super::timers::{Executables, TimerArgs, scratch, start_first, start_others};
use super::tune_args::{DeviceList, TuneArgs};
use super::{cache, candidates, executables, exit, profile, selftest};

/// Tunes a module and prints the result.
pub(super) fn run(args: &TuneArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    let begin = Instant::now();
    let trace = args.trace_run.as_ref().map(|_| Arc::new(Mutex::new(RunTrace::default())));
    let events = trace.iter().fold(Events::default(), |events, trace| events.and(trace.clone()));
    let module = &args.module;
    if !args.targets.is_empty() {
        return super::compile::forecast(args, module, bars, out);
    }
    let (search, peaks) = (args.search.options()?, args.peaks.read()?);
    let reading = events.open(Slice::Step("read the module"));
    let programs = ProgramReader::new(&args.timer.timer, &args.timer.limits).own(args.compiler.own());
    let wanted = args.compiler.read(module, &programs)?;
    let no_labels = if wanted.is_some() { NoLabels::Ignored } else { NoLabels::Advised };
    let source = match args.compiler.only_options {
        true => None,
        false => match args.plan.read(module, no_labels)? {
            Ok(source) => Some(source),
            Err(_) if wanted.is_some() => None,
            Err(scan) => {
                if args.report.is_some() {
                    say("no report is written: the module holds no label");
                }
                say(&no_label_line(args, module));
                return nothing_matched(&scan, &args.format, out);
            }
        },
    };
    drop(reading);
    // everything that would fail after the run fails before it
    let page = args.report.as_deref().map(|path| OutputFile::at(path, "report")).transpose()?;
    let trace =
        trace.as_ref().zip(args.trace_run.as_deref()).map(|(trace, path)| TraceFile::at(trace, path)).transpose()?;
    let labels = source.as_ref().and_then(|source| source.labels.as_ref());
    let step = args.profile.as_deref().map(|profile| profile::read_step(profile, &args.hlo, labels)).transpose()?;
    let wanted = wanted.map(|wanted| wanted.by_time(step.as_ref()));
    let cancel = cancel_flag()?;
    let scratch = scratch()?;
    let opening = events.open(Slice::Step("open the cache"));
    // the cache comes first: a locked or broken one fails before a device is started
    let cache = cache::open_run(&args.cache, &args.signer, !(args.no_persist || args.dry_run))?;
    drop(opening);
    let executables = match args.dry_run && !args.no_persist {
        true => executables::folder_to_look_in(cache.folder.as_deref(), scratch.path()),
        false => executables::folder_for(&cache.ledger, scratch.path())?,
    };
    let starting = events.open(Slice::Step("start the timer"));
    let devices = args.devices.as_ref().map(|DeviceList(devices)| devices.as_slice());
    let (compiled, verify_key) = (args.compiled.as_slice(), args.cache.verify_key.as_deref());
    let from = Executables { kept: &executables, compiled, verify_key };
    let by = TimerArgs { needs_profiles: args.keep.keep_profiles.is_some(), ..args.timer.clone() };
    let mut timer = start_first(&by, devices, from)?;
    let keeper = args.keep.keeper(&*timer, args.dry_run)?;
    drop(starting);
    let (resolution, of_selftest) =
        selftest::known_resolution(cache.folder.as_deref(), &*timer, args.timer.cache_state.clone());
    let planning = events.open(Slice::Step("plan"));
    let has_step = step.is_some();
    let spaces = match timer.info().can.build_programs {
        true => candidates::spaces(args.candidates.as_deref())?,
        false => Spaces::default(),
    };
    let plan = match &source {
        Some(source) => {
            source.plan(&timer.info().device.identity, &PlanOptions { step, spaces, ..args.plan.options() })?
        }
        None => Plan::default(),
    };
    let registry = match source {
        Some(source) => source.registry,
        None => Registry::create_or_open(scratch.path().join("no-registry")).map_err(Fault::input)?,
    };
    let widest = plan.widest(&registry);
    drop(planning);
    if let Some(widest) = &widest {
        widest.check_hosts(&*timer).map_err(Fault::input)?;
    }
    let devices = devices.unwrap_or_default();
    let groups = widest.map_or_else(|| Ok(devices.to_vec()), |widest| widest.groups(devices));
    let groups = groups.map_err(|error| Fault::new(exit::USAGE, format!("`--devices`: {error}")))?;
    let starting = (groups.len() > 1).then(|| events.open(Slice::Step("start the other timers")));
    let mut others = start_others(&by, &*timer, &groups, from)?;
    drop(starting);
    // profiles are kept for one job at a time
    let is_one_device = others.is_empty() && keeper.is_none() && !args.dry_run;
    if is_one_device {
        others.extend((1..plan.side_by_side()).map_while(|_| timer.beside()));
    }
    let options = TuneOptions {
        rounds: args.rounds,
        rules: DecisionRules::default().min_improvement(args.min_improvement).max_speed_up(args.max_speed_up),
        resolution,
        budget: args.budget.filter(|_| !has_step),
        stop_at: args.budget.filter(|_| has_step).and_then(|budget| begin.checked_add(budget)),
        force: args.force,
        thorough: args.thorough,
        cache_state: args.timer.cache_state.clone(),
        one_job_a_call: keeper.is_some() && args.keep.is_to_replay(),
        seed: args.search.seed,
        search,
        peaks,
        ..TuneOptions::default()
    };
    // one for each device, because each draws its own bar
    let events = keeper.iter().fold(events, |events, keeper| events.and(keeper.clone()));
    let with_progress = || events.and(Progress::new(bars.clone()));
    let mut session = Session::new(&registry, &cache.ledger, &mut *timer)
        .options(options.clone())
        .cancel(&cancel)
        .events(with_progress());
    for timer in &mut others {
        session = match is_one_device {
            true => session.beside(&mut **timer, with_progress()),
            false => session.device(&mut **timer, with_progress()),
        };
    }
    let outcome = if args.dry_run { Ok(session.preview(&plan)) } else { session.run(&plan) };
    let (mut result, stopped_by) = match outcome {
        Ok(result) => (result, None),
        Err(Stopped { so_far, error }) => (*so_far, Some(*error)),
    };
    let of_options = wanted.filter(|_| !result.interrupted && stopped_by.is_none()).map(|wanted| {
        wanted.tune((&mut *timer, &cache.ledger), args.dry_run, &options, &cancel, &with_progress(), &mut result)
    });
    // also for a stopped run, and before anything else can fail
    let traced = trace.map_or(Ok(()), |trace| trace.write());
    result.notes.extend(of_selftest);
    // even if stdout or the page fails, because others wait for the decisions
    let printed = args.format.write(out, &result).and_then(|()| out.flush());
    let paged = page.map_or(Ok(()), |page| {
        let subject = if module == Path::new("-") { "standard input".into() } else { module.to_string_lossy() };
        let report = HtmlReport { subject: &subject, results: std::slice::from_ref(&result) };
        page.write(|out| write_html(out, &report))
    });
    // a stopped run's decisions are published too
    let published = cache.publish();
    if let Some(error) = stopped_by {
        return Err(error.into());
    }
    of_options.transpose()?;
    published?;
    traced?;
    paged?;
    if !args.dry_run {
        result_lines(&result, cache.ledger.root()).iter().for_each(|line| say(line));
        // the set for a process was already printed as its flags
        if !args.compiler.shared {
            say_use(&result);
        }
    }
    printed?;
    Ok(exit_code(&result, args.compiler.compiler_options.is_some() || !plan.matched_nothing()))
}

/// One line of advice for a module without labels; for a profiled step, also where its time goes.
fn no_label_line(args: &TuneArgs, module: &Path) -> String {
    const MOST_LINES: usize = 3;
    let labels = user_labels(&args.plan.labels).ok().flatten();
    // an unreadable profile is no reason to withhold advice on the module
    let step = args.profile.as_deref().and_then(|profile| profile::read_step(profile, &args.hlo, labels.as_ref()).ok());
    let lines = step.iter().flat_map(|step| step.own_sources()).take(MOST_LINES);
    let lines: Vec<String> =
        lines.map(|(line, share)| format!("`{}` ({:.0} % of the step)", printable(line), 100.0 * share)).collect();
    let of_lines = match lines.is_empty() {
        true => "on your function".to_owned(),
        false => format!("on the functions at {}", lines.join(", ")),
    };
    let module = if module == Path::new("-") { "MODULE".to_owned() } else { printable(&module.display().to_string()) };
    format!(
        "`autotune-lowered {module} --compiler-options safe` finds the compiler options that make it run fastest and \
         needs no label; `@autotune_lowered.tunable` {of_lines} gives labels, and `--label-regex` finds your own \
         names"
    )
}

/// A trace of the run, written at its end.
struct TraceFile<'a> {
    trace: &'a Mutex<RunTrace>,
    path: &'a Path,
    format: TraceFormat,
}

impl<'a> TraceFile<'a> {
    fn at(trace: &'a Arc<Mutex<RunTrace>>, path: &'a Path) -> Result<Self, Fault> {
        let format = TraceFormat::of(path).ok_or_else(|| unknown_format(path, ""))?;
        OutputFile::at(path, "trace")?;
        Ok(Self { trace, path, format })
    }

    fn write(&self) -> Result<(), Fault> {
        let trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let traced = trace.write(self.path, self.format)?;
        for note in traced.notes() {
            tracing::warn!("`{}`: {note}", self.path.display());
        }
        match trace.skipped() {
            0 => {}
            skipped => tracing::warn!("`{}`: {skipped} slices were left out, the last ones", self.path.display()),
        }
        Ok(())
    }
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
