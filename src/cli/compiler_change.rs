//! A change of the compiler, measured: what `upgrade` and `bisect` share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use indicatif::MultiProgress;

use crate::decision::DecisionRules;
use crate::digest::FieldHasher;
use crate::hlo::Scan;
use crate::ledger::Ledger;
use crate::race::RaceOptions;
use crate::registry::{Invocation, Registry};
use crate::scratch::Scratch;
use crate::timer::events::Events;
use crate::timer::{SideBySide, Timer};
use crate::tune::{Stopped, TuneError, TuneOptions, TuningPlan, whole_registry};
use crate::upgrade::{CompilerSide, RecordedCalls, Upgrade, UpgradeOptions, UpgradeResult, UpgradedCall, upgrade};

use super::compiler_side::SideArgs;
use super::confirm_args::ConfirmArgs;
use super::ending::cancel_flag;
use super::fault::Fault;
use super::options::{CacheArgs, part, probability, time};
use super::plan::{PlanArgs, PlanSource, no_such_call};
use super::progress::Progress;
use super::say::say;
use super::scan::NoLabels;
use super::timers::{Executables, TimerArgs, scratch, start_timer};
use super::tolerance_args::ToleranceArgs;
use super::{cache, exit, registry};

/// In a cache folder: what was measured of changes of the compiler.
const FOLDER: &str = "upgrades-v1";

/// Which calls, and how they are measured.
#[derive(Debug, Args)]
pub(super) struct ChangeArgs {
    /// The lowered module, as for tuning; or a registry, all of whose calls count
    #[arg(value_name = "MODULE|REGISTRY")]
    pub subject: PathBuf,
    #[command(flatten)]
    pub plan: PlanArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub side: SideArgs,
    /// Smallest change that matters, as a part of the time
    #[arg(long, value_name = "PART", default_value_t = 0.05, value_parser = part)]
    pub min_difference: f64,
    /// Maximum probability of a false alarm, over all calls together, whenever two compilers are compared
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
}

/// A compiler as the user named it, and its timer.
pub(super) struct NamedCompiler {
    pub(super) name: String,
    pub(super) timer: TimerArgs,
}

/// What every measurement of a change needs.
pub(super) struct ChangeRun<'a> {
    args: &'a ChangeArgs,
    bars: &'a MultiProgress,
    subject: Subject,
    in_force: Ledger,
    cancel: Arc<AtomicBool>,
    scratch: Scratch,
}

impl<'a> ChangeRun<'a> {
    /// Reads the module and opens the cache, in which nothing that is in force is written. The inner error is a module
    /// without labels.
    pub(super) fn new(args: &'a ChangeArgs, bars: &'a MultiProgress) -> Result<Result<Self, Scan>, Fault> {
        let subject = match Subject::read(args)? {
            Ok(subject) => subject,
            Err(scan) => return Ok(Err(scan)),
        };
        let in_force = cache::open_for_reading(&args.cache)?;
        Ok(Ok(Self { args, bars, subject, in_force, cancel: cancel_flag()?, scratch: scratch()? }))
    }

    /// Starts both compilers and measures the wanted calls under them, the new one's with its own programs if there are
    /// any. An error that stopped the run comes with what was measured before.
    pub(super) fn measure(
        &self,
        [old, new]: [&NamedCompiler; 2],
        renewed: Option<&Registry>,
        is_wanted: &dyn Fn(&Invocation) -> bool,
    ) -> Result<(UpgradeResult, Option<TuneError>), Fault> {
        let start = |side: &NamedCompiler| {
            start_timer(&side.timer, Executables::kept(self.scratch.path()))
                .map_err(|fault| Fault::new(fault.code, format!("`{}`: {}", side.name, fault.message)))
        };
        let side = |named: &NamedCompiler, timer: &dyn Timer| {
            CompilerSide::new(named.name.clone(), timer.info().device.clone())
        };
        let timers = (start(old)?, start(new)?);
        let compilers = (side(old, &*timers.0), side(new, &*timers.1));
        let ledger = ledger(self.args, &compilers)?;
        let mut plan = self.subject.plan(&*timers.1, self.args)?;
        plan.invocations.retain(|planned| is_wanted(&planned.invocation));
        let mut new_plan = renewed.map(|registry| whole_plan(registry, &*timers.1, self.args)).transpose()?;
        if let Some(plan) = &mut new_plan {
            plan.invocations.retain(|planned| is_wanted(&planned.invocation));
        }
        let mut both = SideBySide::new(timers.1, vec![timers.0]).map_err(Fault::device)?;
        let options = options(self.args);
        let job = Upgrade {
            old: RecordedCalls { registry: self.subject.registry(), plan: &plan },
            new: renewed.zip(new_plan.as_ref()).map(|(registry, plan)| RecordedCalls { registry, plan }),
            cache: self.in_force.cache(),
            ledger: &ledger,
            cancel: &self.cancel,
            events: &|| Events::default().and(Progress::new(self.bars.clone())),
            options: &options,
        };
        let mut on_call = |call: &UpgradedCall| {
            self.bars.suspend(|| say(&format!("{}: {}: {}", call.name(), call.verdict.name(), call.reason)));
        };
        Ok(Stopped::split(upgrade(&job, &mut both, compilers, &mut on_call)))
    }
}

/// The calls: those of a module, or all of a registry.
enum Subject {
    Module(PlanSource),
    Registry(Registry),
}

impl Subject {
    fn read(args: &ChangeArgs) -> Result<Result<Self, Scan>, Fault> {
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

    fn plan(&self, timer: &dyn Timer, args: &ChangeArgs) -> Result<TuningPlan, Fault> {
        let source = match self {
            Self::Module(source) => source,
            Self::Registry(registry) => return whole_plan(registry, timer, args),
        };
        let mut plan = source.plan(&timer.info().device.identity, &args.plan.options())?;
        plan.leave_open();
        Ok(plan)
    }
}

/// All calls of a registry.
fn whole_plan(registry: &Registry, timer: &dyn Timer, args: &ChangeArgs) -> Result<TuningPlan, Fault> {
    let device = &timer.info().device.identity;
    let mut plan = whole_registry(registry, device, &args.plan.options()).map_err(|error| no_such_call(&error))?;
    if plan.matched_nothing() {
        let message = format!("the registry has no call of {device}: record there, or see what `--match kind` finds");
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    plan.leave_open();
    Ok(plan)
}

/// Where samples are kept: a folder for each pair of compilers, because what is decided under one is no answer for
/// another.
fn ledger(args: &ChangeArgs, (old, new): &(CompilerSide, CompilerSide)) -> Result<Ledger, Fault> {
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

fn options(args: &ChangeArgs) -> UpgradeOptions {
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
