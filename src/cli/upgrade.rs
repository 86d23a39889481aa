//! `upgrade`: whether cached configs still hold with another compiler.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::MultiProgress;

use crate::decision::DecisionRules;
use crate::digest::FieldHasher;
use crate::hlo::Scan;
use crate::ledger::Ledger;
use crate::race::RaceOptions;
use crate::registry::Registry;
use crate::report::{UpgradeReport, upgrade_lines, write_upgrade_html};
use crate::timer::events::Events;
use crate::timer::{SideBySide, Timer};
use crate::tune::{Stopped, TuneOptions, TuningPlan, whole_registry};
use crate::upgrade::{
    CompilerSide, RecordedCalls, Upgrade, UpgradeOptions, UpgradeResult, UpgradedCall, upgrade, write_junit,
};

use super::compiler_side::SideArgs;
use super::confirm_args::ConfirmArgs;
use super::ending::cancel_flag;
use super::fault::Fault;
use super::options::{CacheArgs, FormatArg, part, probability, time};
use super::output_file::OutputFile;
use super::plan::{PlanArgs, subject_of_page};
use super::progress::Progress;
use super::say::say;
use super::scan::{NoLabels, nothing_matched};
use super::timers::{Executables, scratch, start_timer};
use super::tolerance_args::ToleranceArgs;
use super::{cache, exit, registry};

/// In a cache folder: what was measured of changes of the compiler.
const FOLDER: &str = "upgrades-v1";

#[derive(Debug, Args)]
pub(super) struct UpgradeArgs {
    /// The lowered module, as for tuning; or a registry, all of whose calls count
    #[arg(value_name = "MODULE|REGISTRY")]
    pub subject: PathBuf,
    /// The compiler in use: an environment of Python with JAX (its folder, or its Python), or a PJRT plugin (`….so`)
    #[arg(long, value_name = "ENV|PLUGIN")]
    pub old: PathBuf,
    /// The compiler to change to, named likewise
    #[arg(long, value_name = "ENV|PLUGIN")]
    pub new: PathBuf,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// The same calls as the new environment records them [default: the old programs]: a change of JAX's lowering is
    /// then told from one of the compiler
    #[arg(long, value_name = "DIR")]
    pub new_registry: Option<PathBuf>,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub side: SideArgs,
    /// Smallest change that matters, as a part of the time
    #[arg(long, value_name = "PART", default_value_t = 0.05, value_parser = part)]
    pub min_difference: f64,
    /// Maximum probability of a false alarm, over all calls together
    #[arg(long, value_name = "PART", default_value_t = 0.01, value_parser = probability)]
    pub false_positive_rate: f64,
    /// Time for each call under the new compiler alone, and again for it under both: seconds, or such as `30m` and `2h`
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub budget: Option<std::time::Duration>,
    #[command(flatten)]
    pub confirm: ConfirmArgs,
    #[command(flatten)]
    pub tolerance: ToleranceArgs,
    /// Measure again what the cache folder holds of this change
    #[arg(long)]
    pub force: bool,
    /// Keep no samples
    #[arg(long)]
    pub no_persist: bool,
    /// Also write the result as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Also write the result as one self-contained HTML page (docs/report.md)
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// The calls: those of a module, or all of a registry.
enum Subject {
    Module(super::plan::PlanSource),
    Registry(Registry),
}

impl Subject {
    fn read(args: &UpgradeArgs) -> Result<Result<Self, Scan>, Fault> {
        if args.subject.join("registry.json").is_file() {
            return Ok(Ok(Self::Registry(registry::open(&args.subject)?)));
        }
        Ok(args.plan.read(&args.subject, NoLabels::Explained)?.map(Self::Module))
    }

    fn registry(&self) -> &Registry {
        match self {
            Self::Module(source) => &source.registry,
            Self::Registry(registry) => registry,
        }
    }

    fn plan(&self, timer: &dyn Timer, args: &UpgradeArgs) -> Result<TuningPlan, Fault> {
        let (device, options) = (&timer.info().device.identity, args.plan.options());
        let mut plan = match self {
            Self::Module(source) => source.plan(device, &options)?,
            Self::Registry(registry) => {
                whole_registry(registry, device, &options).map_err(|error| Fault::new(exit::NOTHING_MATCHED, error))?
            }
        };
        plan.leave_open();
        Ok(plan)
    }
}

/// All calls of a registry.
fn whole_plan(registry: &Registry, timer: &dyn Timer, args: &UpgradeArgs) -> Result<TuningPlan, Fault> {
    let mut plan = whole_registry(registry, &timer.info().device.identity, &args.plan.options())
        .map_err(|error| Fault::new(exit::NOTHING_MATCHED, error))?;
    plan.leave_open();
    Ok(plan)
}

/// Measures the calls under both compilers and prints whether each config holds.
pub(super) fn run(args: &UpgradeArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    let junit = args.junit.as_deref().map(|path| OutputFile::at(path, "report of `--junit`")).transpose()?;
    let report = args.report.as_deref().map(|path| OutputFile::at(path, "report")).transpose()?;
    let sides = [args.side.timer("--old", &args.old)?, args.side.timer("--new", &args.new)?];
    let subject = match Subject::read(args)? {
        Ok(subject) => subject,
        Err(scan) => return nothing_matched(&scan, &args.format, out),
    };
    // what is in force; nothing is written there
    let in_force = cache::open_for_reading(&args.cache)?;
    let (cancel, scratch) = (cancel_flag()?, scratch()?);
    let [old, new] = sides.map(|side| start_timer(&side, Executables::kept(scratch.path())));
    let (old, new) = (old?, new?);
    let side =
        |timer: &dyn Timer, place: &Path| CompilerSide::new(place.display().to_string(), timer.info().device.clone());
    let compilers = (side(&*old, &args.old), side(&*new, &args.new));
    let ledger = ledger(args, &compilers)?;
    let plan = subject.plan(&*new, args)?;
    let renewed = args.new_registry.as_deref().map(registry::open).transpose()?;
    let new_plan = renewed.as_ref().map(|registry| whole_plan(registry, &*new, args)).transpose()?;
    let mut both = SideBySide::new(new, vec![old]).map_err(Fault::device)?;
    let options = options(args);
    let job = Upgrade {
        old: RecordedCalls { registry: subject.registry(), plan: &plan },
        new: renewed.as_ref().zip(new_plan.as_ref()).map(|(registry, plan)| RecordedCalls { registry, plan }),
        cache: in_force.cache(),
        ledger: &ledger,
        cancel: &cancel,
        events: &|| Events::default().and(Progress::new(bars.clone())),
        options: &options,
    };
    let mut on_call = |call: &UpgradedCall| {
        bars.suspend(|| say(&format!("{}: {}: {}", call.name(), call.verdict.name(), call.reason)));
    };
    let (result, stopped_by) = Stopped::split(upgrade(&job, &mut both, compilers, &mut on_call));
    let printed = args.format.write(out, &result).and_then(|()| out.flush());
    // even if stdout fails, because others wait for it
    if let Some(junit) = junit {
        junit.write(|out| write_junit(out, &result))?;
    }
    if let Some(report) = report {
        let page = UpgradeReport { subject: &subject_of_page(&args.subject), result: &result };
        report.write(|out| write_upgrade_html(out, &page))?;
    }
    if let Some(error) = stopped_by {
        return Err(error.into());
    }
    upgrade_lines(&result).iter().for_each(|line| say(line));
    printed?;
    Ok(exit_code(&result))
}

/// Where samples are kept: a folder for each pair of compilers, because what is decided under one is no answer for
/// another.
fn ledger(args: &UpgradeArgs, (old, new): &(CompilerSide, CompilerSide)) -> Result<Ledger, Fault> {
    if args.no_persist {
        return Ok(Ledger::in_memory(Vec::new()));
    }
    let mut hasher = FieldHasher::new("a change of the compiler, 1");
    for side in [old, new] {
        hasher.field(serde_json::to_string(side).unwrap_or_default().as_bytes());
    }
    let folder = cache::folder_to_write(&args.cache)?.join(FOLDER).join(hasher.finish().to_short());
    let ledger = Ledger::open(&folder, Vec::new())?;
    cache::tell(&ledger);
    Ok(ledger)
}

fn options(args: &UpgradeArgs) -> UpgradeOptions {
    let race = args.confirm.apply(RaceOptions::default());
    let tune = TuneOptions::default()
        .race(race)
        .budget(args.budget)
        // what gains less is no reason to tune again
        .rules(DecisionRules::default().min_improvement(args.min_difference))
        .force(args.force)
        .cache_state(args.side.cache_state.clone())
        .tolerances(args.tolerance.options());
    UpgradeOptions {
        tune,
        min_difference: args.min_difference,
        false_positive_rate: args.false_positive_rate,
        match_mode: args.plan.match_mode,
    }
}

fn exit_code(result: &UpgradeResult) -> u8 {
    let is_unmeasured = |call: &UpgradedCall| call.change.is_none();
    if result.interrupted {
        exit::INTERRUPTED
    } else if result.calls.is_empty() {
        exit::NOTHING_MATCHED
    } else if result.calls.iter().any(|call| call.verdict.is_alarm()) {
        exit::REGRESSED
    } else if !result.missed.is_empty() || result.calls.iter().any(is_unmeasured) {
        exit::SOME_FAILED
    } else {
        exit::FINE
    }
}
