//! A tuning run: its inputs are read, its cache and its devices are opened, and its outcome is written.

use std::io::Write;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::MultiProgress;

use crate::analysis::trace::TraceFormat;
use crate::candidates::Spaces;
use crate::decision::DecisionRules;
use crate::failure::FailureKind;
use crate::hlo::Scan;
use crate::lowering::Lowering;
use crate::race::{LEAST_PROCESSES, RaceOptions, Runner};
use crate::report::{HtmlReport, RunTrace, format_ns, result_lines, write_html};
use crate::scratch::Scratch;
use crate::timer::Timer;
use crate::timer::events::{Events, Sink, Slice};
use crate::tune::{
    AutotuningResult, OperationResult, PlanOptions, Session, Status, StepProfile, Stopped, TuneError, TuneOptions,
    TuningPlan, without_calls,
};

use super::ahead::{self, LoweredCandidate};
use super::cache::{CacheUse, RunCache};
use super::compiler_options::{ModulesToTune, say_use};
use super::ending::cancel_flag;
use super::executables::{Executables, folder_of_run};
use super::fault::Fault;
use super::output_file::OutputFile;
use super::pace::Pace;
use super::plan::{PlanSource, subject_of_page};
use super::profile::trace::unknown_format;
use super::programs::ProgramReader;
use super::progress::Progress;
use super::say::say;
use super::scan::NoLabels;
use super::timers::{TimerArgs, scratch, start_first, start_others};
use super::tune_args::{DeviceList, TuneArgs};
use super::{cache, candidates, exit, profile, selftest};

/// The labelled calls and the whole modules to tune, each if there are any.
type Subject = (Option<PlanSource>, Option<ModulesToTune>);

/// What a run tunes, how, and where its report and its trace go.
struct RunInputs<'a> {
    args: &'a TuneArgs,
    /// When the run began.
    begin: Instant,
    events: Events,
    /// The labelled calls, if there are any.
    calls: Option<PlanSource>,
    /// The whole modules, if their compiler options are tuned.
    modules: Option<ModulesToTune>,
    /// The profiled step whose time is saved.
    step: Option<StepProfile>,
    /// As far as they do not depend on the device.
    options: TuneOptions,
    report: Option<OutputFile<'a>>,
    trace: Option<TraceFile<'a>>,
}

impl<'a> RunInputs<'a> {
    /// Reads everything that the arguments name; only the scan if the module holds nothing to tune.
    fn read(args: &'a TuneArgs, begin: Instant) -> Result<Result<Self, Scan>, Fault> {
        let trace = args.trace_run.as_deref().map(|path| (path, Arc::new(Mutex::new(RunTrace::default()))));
        let events = trace.iter().fold(Events::default(), |events, (_, trace)| events.and(trace.clone()));
        let options = options(args)?;
        let reading = events.open(Slice::Step("read the module"));
        let (calls, modules) = match subject(args)? {
            Ok(subject) => subject,
            Err(scan) => return Ok(Err(scan)),
        };
        drop(reading);
        // everything that would fail after the run fails before it
        let report = args.report.as_deref().map(|path| OutputFile::at(path, "report")).transpose()?;
        let trace = trace.map(|(path, trace)| TraceFile::at(path, trace)).transpose()?;
        let labels = calls.as_ref().and_then(|calls| calls.labels.as_ref());
        let step = args.profile.as_deref().map(|profile| profile::read_step(profile, &args.hlo, labels)).transpose()?;
        let modules = modules.map(|modules| modules.by_time(step.as_ref()));
        Ok(Ok(Self { args, begin, events, calls, modules, step, options, report, trace }))
    }

    /// Writes the trace of the run.
    fn write_trace(&self) -> Result<(), Fault> {
        self.trace.as_ref().map_or(Ok(()), TraceFile::write)
    }

    /// Writes the page of the run.
    fn write_report(&self, result: &AutotuningResult) -> Result<(), Fault> {
        let Some(report) = &self.report else { return Ok(()) };
        let page = HtmlReport { subject: &subject_of_page(&self.args.module), results: std::slice::from_ref(result) };
        report.write(|out| write_html(out, &page))
    }
}

/// Says before the run if nothing can be confirmed in the time for it, because so many processes do not even start.
fn warn_if_short(confirming: Duration, start: Duration) {
    let least = start.saturating_mul(LEAST_PROCESSES);
    if confirming < least {
        let [confirming, least] = [confirming, least].map(|time| format_ns(time.as_nanos() as f64));
        tracing::warn!(
            "a third of `--budget`, {confirming}, is too short to confirm a winner: {LEAST_PROCESSES} fresh processes take \
             {least} to start; what is chosen stays undecided, and the next run goes on with it"
        );
    }
}

/// Reads what to tune; only the scan if there is nothing.
fn subject(args: &TuneArgs) -> Result<Result<Subject, Scan>, Fault> {
    let programs = ProgramReader::new(&args.timer.timer, &args.timer.limits).own(args.compiler.own());
    let modules = args.compiler.read(&args.module, &programs)?;
    if args.compiler.only_options {
        return Ok(Ok((None, modules)));
    }
    let no_labels = if modules.is_some() { NoLabels::Ignored } else { NoLabels::Advised };
    Ok(match args.plan.read(&args.module, no_labels)? {
        Ok(calls) => Ok((Some(calls), modules)),
        Err(_) if modules.is_some() => Ok((None, modules)),
        Err(scan) => Err(scan),
    })
}

/// The options, as far as they do not depend on the device.
fn options(args: &TuneArgs) -> Result<TuneOptions, Fault> {
    let race = RaceOptions::default()
        .rounds(args.rounds)
        .rules(DecisionRules::default().min_improvement(args.min_improvement).max_speed_up(args.max_speed_up))
        .force(args.force)
        .cache_state(args.timer.cache_state.clone())
        .tolerances(args.tolerance.options())
        .seed(args.search.seed);
    let race = args.confirm.apply(race);
    let (search, peaks) = (args.search.options(&args.recorder)?, args.peaks.read()?);
    let time_for_each = args.budget.filter(|_| args.profile.is_none());
    let options = TuneOptions::default().race(race).time_for_each(time_for_each);
    Ok(options.thorough(args.thorough).search(search).peaks(peaks))
}

/// A run whose cache and devices are open.
pub(super) struct OpenRun<'a> {
    others: Others,
    timer: Box<dyn Timer>,
    cache: RunCache,
    inputs: RunInputs<'a>,
    /// What is tuned of the labelled calls, if there are any.
    calls: Option<(PlanSource, TuningPlan)>,
    options: TuneOptions,
    lowering: Option<Lowering>,
    cancel: Arc<AtomicBool>,
    /// Keeps profiles.
    keeper: Option<Arc<Mutex<dyn Sink>>>,
    /// Where the noise floor is from.
    of_selftest: Vec<String>,
    /// Deleted last.
    _scratch: Scratch,
}

/// The timers beside the first one.
struct Others {
    timers: Vec<Box<dyn Timer>>,
    /// Whether they are of the first one's device.
    are_of_one_device: bool,
}

/// The outcome of a run.
pub(super) struct RunOutcome {
    result: AutotuningResult,
    /// What stopped it.
    stopped_by: Option<TuneError>,
    of_modules: Result<(), Fault>,
}

/// A run's cache and its first timer, which need nothing of the module.
struct OpenDevice {
    timer: Box<dyn Timer>,
    by: TimerArgs,
    /// The time that the timer took to start.
    took: Duration,
    cache: RunCache,
    executables: Executables,
    cancel: Arc<AtomicBool>,
    /// Deleted last.
    scratch: Scratch,
}

impl OpenDevice {
    /// Opens the cache and starts the timer.
    fn open(args: &TuneArgs, events: &Events) -> Result<Self, Fault> {
        let (cancel, scratch) = (cancel_flag()?, scratch()?);
        let opening = events.open(Slice::Step("open the cache"));
        // the cache comes first: a locked or broken one fails before a device is started
        let how = match (args.dry_run, args.no_persist) {
            (_, true) => CacheUse::Ignores,
            (true, false) => CacheUse::Looks,
            (false, false) => CacheUse::Keeps,
        };
        let cache = cache::open_run(&args.cache, &args.signer, how)?;
        drop(opening);
        let kept = Executables::kept(folder_of_run(&cache, how, scratch.path())?);
        let executables = kept.and_compiled(&args.compiled, args.cache.verify_key.as_deref())?;
        let _starting = events.open(Slice::Step("start the timer"));
        let by = TimerArgs { needs_profiles: args.keep.keep_profiles.is_some(), ..args.timer.clone() };
        let devices = args.devices.as_ref().map(|DeviceList(devices)| devices.as_slice());
        let begin = Instant::now();
        let timer = start_first(&by, devices, &executables)?;
        Ok(Self { timer, by, took: begin.elapsed(), cache, executables, cancel, scratch })
    }

    /// Lets the timer compile candidates that are named before the module.
    fn compile_ahead(&mut self, args: &TuneArgs, named: Receiver<LoweredCandidate>) {
        if let Some(registry) = args.plan.registry.as_deref().filter(|_| args.candidates_ahead && !args.dry_run) {
            ahead::compile_ahead(&mut *self.timer, named, registry, self.scratch.path());
        }
    }
}

impl<'a> OpenRun<'a> {
    /// Reads the inputs and opens the device; only the scan if the module holds nothing to tune.
    pub(super) fn open(args: &'a TuneArgs) -> Result<Result<Self, Scan>, Fault> {
        let begin = Instant::now();
        // compiler options are not tuned of what can be read once
        let is_piped = args.module == Path::new("-") && args.compiler.compiler_options.is_none();
        if args.candidates_ahead && !is_piped {
            let message = "`--candidates-ahead` is for a module from standard input, `-`, whose calls alone are tuned";
            return Err(Fault::new(exit::USAGE, message));
        }
        let (inputs, device) = match is_piped {
            // who writes it may take a while
            true => thread::scope(|scope| {
                let (named, candidates) = mpsc::channel();
                let reading = scope.spawn(move || {
                    if args.candidates_ahead {
                        ahead::read_candidates(&named)?;
                    }
                    drop(named);
                    RunInputs::read(args, begin)
                });
                let mut device = OpenDevice::open(args, &Events::default());
                if let Ok(device) = &mut device {
                    device.compile_ahead(args, candidates);
                }
                (reading.join().unwrap_or_else(|panic| resume_unwind(panic)), Some(device))
            }),
            false => (RunInputs::read(args, begin), None),
        };
        let inputs = match inputs? {
            Ok(inputs) => inputs,
            Err(scan) => return Ok(Err(scan)),
        };
        let device = device.unwrap_or_else(|| OpenDevice::open(args, &inputs.events))?;
        Self::of(inputs, device).map(Ok)
    }

    /// Plans for the device, and starts the timers beside the first one.
    fn of(mut inputs: RunInputs<'a>, device: OpenDevice) -> Result<Self, Fault> {
        let OpenDevice { timer, by, took, cache, executables, cancel, scratch } = device;
        let args = inputs.args;
        let keeper = args.keep.keeper(&*timer, args.dry_run)?;
        let (noise, of_selftest) =
            selftest::known_resolution(cache.folder.as_deref(), &*timer, args.timer.cache_state.clone());
        let mut options = inputs.options.clone().resolution(noise.resolution).spread(noise.spread);
        // profiles of some rounds alone cannot be replayed
        options.one_job_a_call = keeper.is_some() && args.keep.profile_every.is_none();
        if let Some(budget) = args.budget.filter(|_| inputs.step.is_some()) {
            let confirming = budget / 3;
            options.choose_until = inputs.begin.checked_add(budget - confirming);
            options.stop_at = inputs.begin.checked_add(budget);
            if !timer.info().can.skip_outputs {
                warn_if_short(confirming, took);
            }
        }
        let calls = planned(&mut inputs, &*timer)?;
        let others = others(&inputs, calls.as_ref(), (&by, &executables), (&*timer, keeper.is_some()))?;
        let lowering = args.recorder.lowering(&args.timer.limits)?;
        Ok(Self {
            inputs,
            cancel,
            cache,
            calls,
            options,
            lowering,
            timer,
            others,
            keeper,
            of_selftest,
            _scratch: scratch,
        })
    }

    /// Tunes the labelled calls, and then the compiler options of the whole modules.
    pub(super) fn tune(&mut self, bars: &MultiProgress) -> RunOutcome {
        let events = self.keeper.iter().fold(self.inputs.events.clone(), |events, keeper| events.and(keeper.clone()));
        // one for each device, because each draws its own bar
        let pace = Pace::shared(self.options.choose_until);
        let with_progress = || events.and(Progress::with_pace(bars.clone(), Some(pace.clone())));
        let (mut result, stopped_by) = Stopped::split(self.tune_calls(&with_progress));
        let modules = self.inputs.modules.take().filter(|_| !result.interrupted && stopped_by.is_none());
        let events = events.and(Progress::new(bars.clone()));
        let mut runner = Runner::new(&mut *self.timer, &self.cache.ledger, &self.cancel, &events);
        let is_dry = self.inputs.args.dry_run;
        let of_modules =
            modules.map_or(Ok(()), |modules| modules.tune(&mut runner, is_dry, &self.options, &mut result));
        result.notes.append(&mut self.of_selftest);
        RunOutcome { result, stopped_by, of_modules }
    }

    fn tune_calls(&mut self, events: &dyn Fn() -> Events) -> Result<AutotuningResult, Stopped<AutotuningResult>> {
        let is_dry = self.inputs.args.dry_run;
        let Some((calls, plan)) = &self.calls else {
            let events = events();
            let runner = Runner::new(&mut *self.timer, &self.cache.ledger, &self.cancel, &events);
            return Ok(without_calls(&runner, &self.options, is_dry));
        };
        let mut session = Session::new(&calls.registry, &self.cache.ledger, &mut *self.timer)
            .options(self.options.clone())
            .cancel(&self.cancel)
            .lowering(self.lowering.as_ref())
            .events(events());
        for timer in &mut self.others.timers {
            session = match self.others.are_of_one_device {
                true => session.beside(&mut **timer, events()),
                false => session.device(&mut **timer, events()),
            };
        }
        if is_dry { Ok(session.preview(plan)) } else { session.run(plan) }
    }

    /// Prints the outcome, writes the files and publishes the decisions. Each is tried whatever becomes of the others.
    pub(super) fn write(self, outcome: RunOutcome, out: &mut dyn Write) -> Result<u8, Fault> {
        let RunOutcome { result, stopped_by, of_modules } = outcome;
        let args = self.inputs.args;
        // also for a stopped run, and before anything else can fail
        let traced = self.inputs.write_trace();
        // even if stdout or the page fails, because others wait for the decisions
        let printed = args.format.write(out, &result).and_then(|()| out.flush());
        let paged = self.inputs.write_report(&result);
        // a stopped run's decisions are published too
        let published = self.cache.publish();
        if let Some(error) = stopped_by {
            return Err(error.into());
        }
        of_modules.and(published).and(traced).and(paged)?;
        if !args.dry_run {
            result_lines(&result, self.cache.ledger.root()).iter().for_each(|line| say(line));
            // the set for a process was already printed as its flags
            if !args.compiler.shared {
                say_use(&result);
            }
        }
        printed?;
        let has_calls = self.calls.is_some_and(|(_, plan)| !plan.matched_nothing());
        Ok(exit_code(&result, has_calls || args.compiler.compiler_options.is_some()))
    }
}

/// The plan of the labelled calls, for the timer's device.
fn planned(inputs: &mut RunInputs<'_>, timer: &dyn Timer) -> Result<Option<(PlanSource, TuningPlan)>, Fault> {
    let _planning = inputs.events.open(Slice::Step("plan"));
    let spaces = match timer.info().can.build_programs {
        true => candidates::spaces(inputs.args.candidates.as_deref())?,
        false => Spaces::default(),
    };
    let Some(calls) = inputs.calls.take() else { return Ok(None) };
    let options = PlanOptions { step: inputs.step.clone(), spaces, ..inputs.args.plan.options() };
    let mut plan = calls.plan(&timer.info().device.identity, &options)?;
    if inputs.args.recorder.recorder.is_none() {
        plan.leave_open();
    }
    Ok(Some((calls, plan)))
}

/// Starts the timers of the other devices, or further ones of a single device.
fn others(
    inputs: &RunInputs<'_>,
    calls: Option<&(PlanSource, TuningPlan)>,
    (by, from): (&TimerArgs, &Executables),
    (timer, keeps_profiles): (&dyn Timer, bool),
) -> Result<Others, Fault> {
    let widest = calls.and_then(|(calls, plan)| plan.widest(&calls.registry));
    if let Some(widest) = &widest {
        widest.check_hosts(timer).map_err(Fault::input)?;
    }
    let devices = inputs.args.devices.as_ref().map_or(&[][..], |DeviceList(devices)| devices);
    let groups = widest.map_or_else(|| Ok(devices.to_vec()), |widest| widest.groups(devices));
    let groups = groups.map_err(|error| Fault::new(exit::USAGE, format!("`--devices`: {error}")))?;
    let starting = (groups.len() > 1).then(|| inputs.events.open(Slice::Step("start the other timers")));
    let mut timers = start_others(by, timer, &groups, from)?;
    drop(starting);
    // profiles are kept for one job at a time
    let are_of_one_device = timers.is_empty() && !keeps_profiles && !inputs.args.dry_run;
    if let Some((_, plan)) = calls.filter(|_| are_of_one_device) {
        timers.extend(plan.timers_beside(timer));
    }
    Ok(Others { timers, are_of_one_device })
}

/// `is_matched` says whether the module matched anything: a shard of it may be empty.
fn exit_code(result: &AutotuningResult, is_matched: bool) -> u8 {
    // what varies by process keeps its baseline: noise is no reason for a pipeline to fail
    let failed = |status: Status| !status.is_decided() && !matches!(status, Status::Planned | Status::Undecided);
    let has_no_device = |operation: &OperationResult| {
        operation.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Device)
    };
    if result.interrupted {
        exit::INTERRUPTED
    } else if !is_matched {
        exit::NOTHING_MATCHED
    } else if !result.operations.is_empty() && result.operations.iter().all(has_no_device) {
        exit::DEVICE_TROUBLE
    } else if !result.missed.is_empty() || result.operations.iter().any(|operation| failed(operation.status)) {
        exit::SOME_FAILED
    } else {
        exit::ALL_TUNED
    }
}

/// A trace of the run, written at its end.
struct TraceFile<'a> {
    trace: Arc<Mutex<RunTrace>>,
    path: &'a Path,
    format: TraceFormat,
}

impl<'a> TraceFile<'a> {
    fn at(path: &'a Path, trace: Arc<Mutex<RunTrace>>) -> Result<Self, Fault> {
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
