//! `check`: measures cached configs again, as a gate for CI.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::MultiProgress;

use crate::cache::COMPILER_OPTIONS;
use crate::decision::DecisionRules;
use crate::failure::FailureKind;
use crate::gate::{
    CheckOptions, CheckResult, CheckVerdict, CheckedModule, OperationCheck, check, check_compiler_options,
    has_compiler_options, without_calls, write_annotations, write_junit,
};
use crate::ledger::Ledger;
use crate::measured_by;
use crate::race::{RaceOptions, Runner};
use crate::report::check_lines;
use crate::scratch::Scratch;
use crate::timer::Timer;
use crate::timer::events::Events;
use crate::tune::{Session, Stopped, TuneError, TuneOptions, TuningPlan};

use super::confirm_args::ConfirmArgs;
use super::ending::cancel_flag;
use super::executables::Executables;
use super::fault::Fault;
use super::input_args::InputArgs;
use super::options::{CacheArgs, Format, FormatArg, part, probability, seconds};
use super::output_file::OutputFile;
use super::pace::Pace;
use super::plan::{PlanArgs, PlanSource};
use super::programs::ProgramReader;
use super::progress::Progress;
use super::say::say;
use super::scan::{NoLabels, nothing_matched};
use super::timers::{TimerArgs, scratch, start_timer};
use super::tolerance_args::ToleranceArgs;
use super::{cache, executables, exit, option_modules, selftest};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The lowered module, as for tuning
    #[arg(value_name = "MODULE")]
    pub module: PathBuf,
    #[command(flatten)]
    pub plan: PlanArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub timer: TimerArgs,
    /// Store that `compile` made for this device: refused configs are rejected, and executables are loaded that this
    /// user compiled or that a key of --verify-key signed (docs/targets.md)
    #[arg(long, value_name = "STORE")]
    pub compiled: Vec<PathBuf>,
    /// Interleaved rounds of each cached config and its baseline; more of them, each series in a process of its own, if
    /// it seems changed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=100_000))]
    pub rounds: u32,
    /// Time for each such series of rounds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub budget: Option<Duration>,
    /// Smallest change that matters, as a fraction of the time; the noise floor that `selftest` found replaces it if it
    /// is larger
    #[arg(long, value_name = "PART", default_value_t = 0.02, value_parser = part)]
    pub min_improvement: f64,
    /// Maximum probability of a false alarm, over all of the module's operations together
    #[arg(long, value_name = "PART", default_value_t = 0.01, value_parser = probability)]
    pub false_positive_rate: f64,
    #[command(flatten)]
    pub tolerance: ToleranceArgs,
    /// Accept calls that are not cached or not recorded, as long as some are
    #[arg(long)]
    pub allow_missing: bool,
    #[command(flatten)]
    pub inputs: InputArgs,
    #[command(flatten)]
    pub confirm: ConfirmArgs,
    /// Also write the result as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Also report the result on stderr in a CI service's format
    #[arg(long, value_enum)]
    pub annotations: Option<AnnotationsArg>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// A CI service that reads a step's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AnnotationsArg {
    /// Workflow commands of GitHub Actions
    Github,
}

/// Checks a module's cached configs and prints the result of each.
pub(super) fn run(args: &CheckArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    // an unwritable file fails before anything is measured
    let junit = args.junit.as_deref().map(|path| OutputFile::at(path, "report of `--junit`")).transpose()?;
    let read = args.plan.read(&args.module, NoLabels::Explained)?;
    let ledger = cache::open_for_reading(&args.cache)?;
    let module = module_with_options(args, &ledger)?;
    let calls = match read {
        Ok(calls) => Some(calls),
        Err(_) if module.is_some() => None,
        Err(scan) => return nothing_matched(&scan, &args.format, out),
    };
    let mut open = OpenCheck::open(args, ledger, calls, module)?;
    let (result, stopped_by) = open.check(bars);
    let printed = args.format.write(out, &result).and_then(|()| out.flush());
    // even if stdout fails, because others wait for these
    if let Some(junit) = junit {
        junit.write(|out| write_junit(out, &result, args.allow_missing))?;
    }
    if args.annotations == Some(AnnotationsArg::Github) {
        let module = args.module.to_str().filter(|module| *module != "-");
        // stderr may be gone, and then the error cannot be reported
        let _ = write_annotations(&mut std::io::stderr().lock(), &result, module, args.allow_missing);
    }
    if let Some(error) = stopped_by {
        return Err(error.into());
    }
    check_lines(&result).iter().for_each(|line| say(line));
    printed?;
    let has_options = result.operations.iter().any(|operation| operation.call.op_id == COMPILER_OPTIONS);
    Ok(exit_code(&result, has_options || open.has_calls(), args))
}

/// A check whose cache and device are open.
struct OpenCheck<'a> {
    args: &'a CheckArgs,
    timer: Box<dyn Timer>,
    ledger: Ledger,
    /// The labelled calls, if there are any.
    calls: Option<(PlanSource, TuningPlan)>,
    /// The module, if compiler options are cached for it.
    module: Option<CheckedModule>,
    options: TuneOptions,
    cancel: Arc<AtomicBool>,
    /// Where the noise floor is from.
    of_selftest: Vec<String>,
    /// Deleted last.
    _scratch: Scratch,
}

impl<'a> OpenCheck<'a> {
    /// Starts the timer and plans the calls.
    fn open(
        args: &'a CheckArgs,
        mut ledger: Ledger,
        calls: Option<PlanSource>,
        module: Option<CheckedModule>,
    ) -> Result<Self, Fault> {
        let (cancel, scratch) = (cancel_flag()?, scratch()?);
        let kept = Executables::kept(executables::folder_for(&ledger, scratch.path())?);
        let from = kept.and_compiled(&args.compiled, args.cache.verify_key.as_deref())?;
        let timer = start_timer(&args.timer, &from)?;
        ledger.cache_mut().set_finds_replayed(timer.info().source == measured_by::Source::Replay);
        if timer.info().can.only_one_job_a_call {
            let message =
                "profiles of an earlier run cannot be measured again; name a timer that does, such as `--timer pjrt`";
            return Err(Fault::new(exit::USAGE, message));
        }
        let (folder, cache_state) = (cache::folder(&args.cache).ok(), args.timer.cache_state.clone());
        let (noise, of_selftest) = selftest::known_resolution(folder.as_deref(), &*timer, cache_state.clone());
        let plan = |calls: PlanSource| {
            let plan = calls.plan(&timer.info().device.identity, &args.plan.options())?;
            if let Some(widest) = plan.widest(&calls.registry) {
                widest.check_hosts(&*timer).map_err(Fault::input)?;
            }
            Ok::<_, Fault>((calls, plan))
        };
        let calls = calls.map(plan).transpose()?;
        let options = TuneOptions::default()
            .race(args.confirm.apply(RaceOptions::default()))
            .rounds(Some(args.rounds))
            .rules(DecisionRules::default().min_improvement(args.min_improvement))
            .resolution(noise.resolution)
            .spread(noise.spread)
            .budget(args.budget)
            .cache_state(cache_state)
            .tolerances(args.tolerance.options());
        Ok(Self { args, timer, ledger, calls, module, options, cancel, of_selftest, _scratch: scratch })
    }

    /// Whether any call of the module was recorded.
    fn has_calls(&self) -> bool {
        self.calls.as_ref().is_some_and(|(_, plan)| !plan.matched_nothing())
    }

    /// Checks the calls, and then the module's compiler options. Returns the result, and what stopped it.
    fn check(&mut self, bars: &MultiProgress) -> (CheckResult, Option<TuneError>) {
        let mut on_checked = |operation: &OperationCheck| {
            let OperationCheck { call, verdict, reason, .. } = operation;
            if *verdict == CheckVerdict::Missing && self.args.format.format == Format::Table {
                return; // it took no time, and the table says the same
            }
            bars.suspend(|| say(&format!("{call}: {}: {reason}", verdict.name())));
        };
        let asked = CheckOptions::default()
            .match_mode(self.args.plan.match_mode)
            .false_positive_rate(self.args.false_positive_rate);
        let asked = asked.others(usize::from(self.module.is_some()));
        let own = Events::default().and(Progress::new(bars.clone()));
        let mut runner = Runner::new(&mut *self.timer, &self.ledger, &self.cancel, &own);
        let (mut result, mut stopped_by) = match &self.calls {
            None => (without_calls(&runner, &self.options.race, asked), None),
            Some((calls, plan)) => {
                let paced = Progress::with_pace(bars.clone(), Some(Pace::shared(None)));
                let mut session = Session::new(&calls.registry, &self.ledger, &mut *runner.timer)
                    .options(self.options.clone())
                    .cancel(&self.cancel)
                    .events(Events::default().and(paced));
                Stopped::split(check(&mut session, plan, asked, &mut on_checked))
            }
        };
        if let Some(module) = self.module.as_ref().filter(|_| stopped_by.is_none() && !result.interrupted) {
            match check_compiler_options(&mut runner, module, (&self.options.race, asked), result.compared) {
                Ok(checked) => {
                    checked.iter().for_each(&mut on_checked);
                    result.operations.extend(checked);
                }
                Err(error) => stopped_by = Some(error),
            }
            result.interrupted |= self.cancel.load(Ordering::Relaxed);
        }
        result.notes.append(&mut self.of_selftest);
        (result, stopped_by)
    }
}

/// The module, if compiler options are cached for it and the whole module is requested.
fn module_with_options(args: &CheckArgs, ledger: &Ledger) -> Result<Option<CheckedModule>, Fault> {
    if !args.plan.only.is_empty() || args.plan.shard.is_some() {
        return Ok(None);
    }
    let Some(digest) = option_modules::key_of(&args.module) else { return Ok(None) };
    if !has_compiler_options(ledger.cache(), &digest)? {
        return Ok(None);
    }
    let programs = ProgramReader::new(&args.timer.timer, &args.timer.limits);
    let mut module = CheckedModule::new(programs.open(&args.module).map_err(Fault::input)?, digest);
    module.inputs = args.inputs.options();
    Ok(Some(module))
}

/// `is_matched` says whether the module matched anything: a shard of it may be empty.
fn exit_code(result: &CheckResult, is_matched: bool, args: &CheckArgs) -> u8 {
    let all =
        |wanted: fn(&OperationCheck) -> bool| !result.operations.is_empty() && result.operations.iter().all(wanted);
    let has_no_device = |operation: &OperationCheck| {
        operation.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Device)
    };
    let is_unchecked = |operation: &OperationCheck| match operation.verdict {
        CheckVerdict::Missing => !args.allow_missing,
        verdict => verdict.is_unchecked(),
    };
    let is_nothing_cached = all(|operation| operation.verdict == CheckVerdict::Missing);
    if result.operations.iter().any(|operation| operation.verdict.is_alarm()) {
        exit::REGRESSED
    } else if result.interrupted {
        exit::INTERRUPTED
    } else if !is_matched || (is_nothing_cached && args.plan.shard.is_none()) {
        // another module's cache, or a mistyped folder, must not pass the check
        exit::NOTHING_MATCHED
    } else if all(has_no_device) {
        exit::DEVICE_TROUBLE
    } else if result.operations.iter().any(is_unchecked) || (!result.missed.is_empty() && !args.allow_missing) {
        exit::SOME_FAILED
    } else {
        exit::FINE
    }
}
