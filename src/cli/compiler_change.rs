//! A change of the compiler, measured: what `upgrade` and `bisect` share.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use indicatif::MultiProgress;

use crate::decision::DecisionRules;
use crate::device::DeviceIdentity;
use crate::digest::FieldHasher;
use crate::failure::{Failure, FailureKind};
use crate::hlo::Scan;
use crate::ledger::Ledger;
use crate::race::RaceOptions;
use crate::registry::{Invocation, Registry};
use crate::scratch::Scratch;
use crate::selftest::KnownNoise;
use crate::timer::events::Events;
use crate::timer::{OneAtATime, SideBySide, StartTimer, Timer, TimerInfo};
use crate::tune::{Stopped, TuneError, TuneOptions, TuningPlan, whole_registry};
use crate::upgrade::{
    CompilerSide, Compilers, RecordedCalls, Upgrade, UpgradeOptions, UpgradeResult, UpgradedCall, upgrade,
};

use super::compiler_side::{NamedCompiler, SideArgs};
use super::confirm_args::ConfirmArgs;
use super::ending::cancel_flag;
use super::executables::Executables;
use super::fault::Fault;
use super::options::{CacheArgs, part, probability, time};
use super::plan::{PlanArgs, PlanSource, no_such_call, subject_of_page};
use super::progress::Progress;
use super::recorded_anew::{check, record};
use super::say::say;
use super::scan::NoLabels;
use super::timers::{scratch, start_again, start_timer};
use super::tolerance_args::ToleranceArgs;
use super::{cache, exit, registry, selftest};

/// In a cache folder: what was measured of changes of the compiler.
const FOLDER: &str = "upgrades-v1";

/// Which calls, and how they are measured.
#[derive(Debug, Args)]
pub(super) struct ChangeArgs {
    /// The lowered module, as for tuning; or a registry, all of whose calls count
    #[arg(value_name = "MODULE|REGISTRY", required_unless_present = "record")]
    pub subject: Option<PathBuf>,
    /// In place of a registry, record the calls anew in each environment, by running this there: the words after `python
    /// -m autotune_lowered record`, such as `"train.py --steps 3"`. A change of JAX's lowering is then told from one of
    /// the compiler
    #[arg(long, value_name = "SCRIPT")]
    pub record: Option<String>,
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
    /// Start a compiler's process only when the other one's has ended, and alternate blocks instead of rounds [default:
    /// if the second one does not start beside the first]
    #[arg(long)]
    pub one_at_a_time: bool,
    /// Measure again what the cache folder holds of this change
    #[arg(long)]
    pub force: bool,
    /// Keep no samples
    #[arg(long)]
    pub no_persist: bool,
}

impl ChangeArgs {
    /// What a page says that it is about.
    pub(super) fn subject_of_page(&self) -> Cow<'_, str> {
        match &self.subject {
            Some(subject) => subject_of_page(subject),
            None => self.record.as_deref().unwrap_or_default().into(),
        }
    }
}

/// What every measurement of a change needs.
pub(super) struct ChangeRun<'a> {
    args: &'a ChangeArgs,
    bars: &'a MultiProgress,
    subject: Subject,
    in_force: Ledger,
    cancel: Arc<AtomicBool>,
    scratch: Scratch,
    /// How often the calls were recorded in other environments.
    recordings: Cell<usize>,
}

impl<'a> ChangeRun<'a> {
    /// Reads the module, or records in the first of the compilers' environments, and opens the cache, in which nothing
    /// that is in force is written. The inner error is a module without labels.
    pub(super) fn new(
        args: &'a ChangeArgs,
        [first, last]: [&NamedCompiler; 2],
        bars: &'a MultiProgress,
    ) -> Result<Result<Self, Scan>, Fault> {
        let (in_force, scratch) = (cache::open_for_reading(&args.cache)?, scratch()?);
        if args.record.is_some() {
            check([first, last])?;
        }
        let watched = OnceCell::new();
        let record = |words: &str| {
            // until then a signal ends this process at once
            let cancel = cancel_flag()?;
            let recorded = record(first, words, &scratch.path().join("recorded"), &cancel)?;
            let _ = watched.set(cancel);
            Ok(recorded)
        };
        let subject = match Subject::read(args, &record)? {
            Ok(subject) => subject,
            Err(scan) => return Ok(Err(scan)),
        };
        let cancel = watched.into_inner().map_or_else(cancel_flag, Ok)?;
        Ok(Ok(Self { args, bars, subject, in_force, cancel, scratch, recordings: Cell::new(0) }))
    }

    /// Starts both compilers and measures the wanted calls under them, the new one's with its own programs if there are
    /// any. An error that stopped the run comes with what was measured before.
    pub(super) fn measure(
        &self,
        [old, new]: [&NamedCompiler; 2],
        renewed: Option<&Registry>,
        is_wanted: &dyn Fn(&Invocation) -> bool,
    ) -> Result<(UpgradeResult, Option<TuneError>), Fault> {
        let recorded = self.args.record.as_deref().map(|words| self.record_in(new, words)).transpose()?;
        let renewed = renewed.or(recorded.as_ref());
        let Started { compilers: mut both, sides, device, noise } = self.start([old, new])?;
        let ledger = ledger(self.args, &self.scratch, &sides)?;
        let mut plan = self.subject.plan(&device, self.args)?;
        plan.invocations.retain(|planned| is_wanted(&planned.invocation));
        let mut new_plan = renewed.map(|registry| whole_plan(registry, &device, self.args)).transpose()?;
        if let Some(plan) = &mut new_plan {
            plan.invocations.retain(|planned| is_wanted(&planned.invocation));
        }
        let options = options(self.args, noise);
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
        Ok(Stopped::split(upgrade(&job, &mut both, sides, &mut on_call)))
    }

    fn record_in(&self, compiler: &NamedCompiler, words: &str) -> Result<Registry, Fault> {
        let number = self.recordings.replace(self.recordings.get() + 1);
        record(compiler, words, &self.scratch.path().join(format!("recorded-{number}")), &self.cancel)
    }

    /// Starts both compilers' timers: beside each other, or one after the other where the device has one process at a
    /// time.
    fn start<'t>(&'t self, [old, new]: [&'t NamedCompiler; 2]) -> Result<Started<'t>, Fault> {
        let of_old = self.start_first(old)?;
        let (old_info, old_noise) = (of_old.info().clone(), self.noise(&*of_old));
        let started = |new_info: &TimerInfo, noise: KnownNoise, compilers: Compilers<'t>| {
            let side =
                |named: &NamedCompiler, info: &TimerInfo| CompilerSide::new(named.name.clone(), info.device.clone());
            let (sides, device) = ((side(old, &old_info), side(new, new_info)), new_info.device.identity.clone());
            Started { compilers, sides, device, noise: wider(noise, &old_noise) }
        };
        if !self.args.one_at_a_time {
            match self.start_first(new) {
                Ok(of_new) if of_new.info().device.identity == old_info.device.identity => {
                    let (new_info, noise) = (of_new.info().clone(), self.noise(&*of_new));
                    let both = SideBySide::new(of_new, vec![of_old]).map_err(Fault::device)?;
                    return Ok(started(&new_info, noise, Compilers::Together(Box::new(both))));
                }
                Err(fault) if fault.code != exit::DEVICE_TROUBLE => return Err(fault),
                // without the device, JAX takes another one
                Ok(_) | Err(_) => {}
            }
        }
        // the device is free only then
        drop(of_old);
        let of_new = self.start_first(new)?;
        let (new_info, noise) = (of_new.info().clone(), self.noise(&*of_new));
        drop(of_new);
        let timers = vec![(new_info.clone(), self.starter(new)), (old_info.clone(), self.starter(old))];
        let both = OneAtATime::new(timers).map_err(Fault::device)?;
        if !self.args.one_at_a_time {
            let said = "the new compiler starts only while the old one's process does not run: they take turns";
            self.bars.suspend(|| say(said));
        }
        Ok(started(&new_info, noise, Compilers::Apart(Box::new(both))))
    }

    /// Starts a timer for the first time: it says what it is.
    fn start_first(&self, side: &NamedCompiler) -> Result<Box<dyn Timer>, Fault> {
        start_timer(&side.timer, &Executables::kept(self.scratch.path()))
            .map_err(|fault| Fault::new(fault.code, format!("`{}`: {}", side.name, fault.message)))
    }

    /// Starts it again and again.
    fn starter<'t>(&'t self, side: &'t NamedCompiler) -> StartTimer<'t> {
        let kept = self.scratch.path();
        Box::new(move || {
            start_again(&side.timer, &Executables::kept(kept))
                .map_err(|fault| Failure::new(FailureKind::Device, format!("`{}`: {}", side.name, fault.message)))
        })
    }

    /// What `selftest` found with a compiler.
    fn noise(&self, timer: &dyn Timer) -> KnownNoise {
        let folder = cache::folder(&self.args.cache).ok();
        let (noise, notes) = selftest::known_resolution(folder.as_deref(), timer, self.args.side.cache_state.clone());
        notes.iter().for_each(|note| tracing::info!("{note}"));
        noise
    }
}

/// Both compilers' timers.
struct Started<'t> {
    compilers: Compilers<'t>,
    sides: (CompilerSide, CompilerSide),
    device: DeviceIdentity,
    /// The noise that is assumed.
    noise: KnownNoise,
}

/// The noise of one compiler's programs, with the spread between processes of either if it is wider.
fn wider(noise: KnownNoise, other: &KnownNoise) -> KnownNoise {
    let spreads = noise.spread.into_iter().chain(other.spread);
    let spread = spreads.max_by(|one, other| one.deviation.total_cmp(&other.deviation));
    KnownNoise { spread, ..noise }
}

/// The calls: those of a module, or all of a registry.
enum Subject {
    Module(PlanSource),
    Registry(Registry),
}

impl Subject {
    /// What is named, with the calls that are recorded anew, if they are. A mistake shows before that.
    fn read(args: &ChangeArgs, record: &dyn Fn(&str) -> Result<Registry, Fault>) -> Result<Result<Self, Scan>, Fault> {
        let is_registry = |subject: &&PathBuf| subject.join("registry.json").is_file();
        match (&args.subject, &args.record) {
            (Some(subject), Some(_)) if is_registry(&subject) => {
                let message =
                    format!("`--record` records the calls: leave out `{}`, or name a module", subject.display());
                Err(Fault::new(exit::USAGE, message))
            }
            (Some(module), Some(words)) => {
                let read = args.plan.read_with(module, NoLabels::Explained, || record(words))?;
                Ok(read.map(Self::Module))
            }
            (None, Some(words)) => Ok(Ok(Self::Registry(record(words)?))),
            (Some(subject), None) if is_registry(&subject) => Ok(Ok(Self::Registry(registry::open(subject)?))),
            (Some(module), None) => Ok(args.plan.read(module, NoLabels::Explained)?.map(Self::Module)),
            (None, None) => Err(Fault::new(exit::USAGE, "name a module or a registry, or `--record`")),
        }
    }

    fn registry(&self) -> &Registry {
        match self {
            Self::Module(source) => &source.registry,
            Self::Registry(registry) => registry,
        }
    }

    fn plan(&self, device: &DeviceIdentity, args: &ChangeArgs) -> Result<TuningPlan, Fault> {
        let source = match self {
            Self::Module(source) => source,
            Self::Registry(registry) => return whole_plan(registry, device, args),
        };
        let mut plan = source.plan(device, &args.plan.options())?;
        plan.leave_open();
        Ok(plan)
    }
}

/// All calls of a registry.
fn whole_plan(registry: &Registry, device: &DeviceIdentity, args: &ChangeArgs) -> Result<TuningPlan, Fault> {
    let mut plan = whole_registry(registry, device, &args.plan.options()).map_err(|error| no_such_call(&error))?;
    if plan.matched_nothing() {
        let message = format!("the registry has no call of {device}: record there, or see what `--match kind` finds");
        return Err(Fault::new(exit::NOTHING_MATCHED, message));
    }
    plan.leave_open();
    Ok(plan)
}

/// Where samples are kept: a folder for each pair of compilers, because what is decided under one is no answer for
/// another. The turns of a call go through it even if nothing is to stay.
fn ledger(args: &ChangeArgs, scratch: &Scratch, (old, new): &(CompilerSide, CompilerSide)) -> Result<Ledger, Fault> {
    if args.no_persist {
        return Ok(Ledger::open(&scratch.path().join(FOLDER), Vec::new())?);
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

fn options(args: &ChangeArgs, noise: KnownNoise) -> UpgradeOptions {
    let race = args.confirm.apply(RaceOptions::default());
    let tune = TuneOptions::default()
        .race(race)
        .budget(args.budget)
        // what gains less is no reason to tune again
        .rules(DecisionRules::default().min_improvement(args.min_difference))
        .resolution(noise.resolution)
        .spread(noise.spread)
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
