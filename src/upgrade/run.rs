//! The steps of an upgrade: tune under the new compiler, then measure each call under both.

use std::sync::atomic::AtomicBool;

use crate::cache::{Lookup, StoreError, TieredCache};
use crate::config::Config;
use crate::decision::ProcessQuestion;
use crate::device::MatchMode;
use crate::digest::FieldHasher;
use crate::ledger::Ledger;
use crate::measured_by::TOOL;
use crate::race::{RaceError, Runner};
use crate::registry::{Invocation, Registry};
use crate::timer::events::{Events, Slice};
use crate::timer::{SideBySide, Timer};
use crate::tune::{AutotuningResult, OperationResult, Session, Stopped, TuneError, TuneOptions, TuningPlan};

use super::change::Shift;
use super::old_and_new::{Changes, Configs, NotMeasured, OldAndNew, OtherConfig};
use super::result::{
    BestConfig, CompilerSide, InForce, TunedUnderNew, UPGRADE_SCHEMA, UpgradeResult, UpgradeVerdict, UpgradedCall,
};
use super::verdict::{judge, reason};

/// Questions about a call that may raise an alarm: its config in force, and the best one beside that.
const QUESTIONS: usize = 2;

/// How an upgrade is measured.
#[derive(Debug, Clone)]
pub struct UpgradeOptions {
    /// How the calls are tuned under the new compiler, and measured under both.
    pub tune: TuneOptions,
    /// The least change that matters, as a part of the time.
    pub min_difference: f64,
    /// Maximum probability of a false alarm, over all calls together.
    pub false_positive_rate: f64,
    /// Which devices' entries may be used.
    pub match_mode: MatchMode,
}

/// What an upgrade works with.
pub struct Upgrade<'a> {
    /// The recorded programs.
    pub registry: &'a Registry,
    /// The calls.
    pub plan: &'a TuningPlan,
    /// Where the configs in force are looked up. Nothing is written there.
    pub cache: &'a TieredCache,
    /// Where samples, and what is decided under the new compiler, are kept.
    pub ledger: &'a Ledger,
    /// Set from outside to end it.
    pub cancel: &'a AtomicBool,
    /// The event sinks: a new one for each step.
    pub events: &'a dyn Fn() -> Events,
    /// How it is measured.
    pub options: &'a UpgradeOptions,
}

/// Tunes the calls under the new compiler, and says of each whether its config in force still holds. `on_call` gets each
/// call's result.
///
/// # Errors
/// If the ledger, the cache, a worker or the scratch folder fails; earlier results are returned with the error.
pub fn upgrade(
    upgrade: &Upgrade<'_>,
    both: &mut SideBySide,
    (old, new): (CompilerSide, CompilerSide),
    on_call: &mut dyn FnMut(&UpgradedCall),
) -> Result<UpgradeResult, Stopped<UpgradeResult>> {
    let mut result = UpgradeResult {
        schema: UPGRADE_SCHEMA,
        tool: TOOL.to_owned(),
        old,
        new,
        min_difference: upgrade.options.min_difference,
        calls: Vec::new(),
        missed: upgrade.plan.missed.clone(),
        notes: upgrade.plan.notes.clone(),
        interrupted: false,
    };
    let (tuned, stopped_by) = Stopped::split(upgrade.tune(both.first()));
    result.interrupted = tuned.interrupted;
    result.notes.extend(tuned.notes.iter().filter(|note| !upgrade.plan.notes.contains(note)).cloned());
    if stopped_by.is_some() || tuned.interrupted {
        return Stopped::unless_ended(result, stopped_by);
    }
    let stopped_by = upgrade.measure(both, &tuned, &mut result, on_call).err();
    Stopped::unless_ended(result, stopped_by)
}

impl Upgrade<'_> {
    fn tune(&self, new: &mut dyn Timer) -> Result<AutotuningResult, Stopped<AutotuningResult>> {
        Session::new(self.registry, self.ledger, new)
            .options(self.options.tune.clone())
            .cancel(self.cancel)
            .events((self.events)())
            .run(self.plan)
    }

    fn measure(
        &self,
        both: &mut dyn Timer,
        tuned: &AutotuningResult,
        result: &mut UpgradeResult,
        on_call: &mut dyn FnMut(&UpgradedCall),
    ) -> Result<(), TuneError> {
        let events = (self.events)();
        // samples of two pairs of compilers are never mixed
        let stage = stage(result);
        let mut runner = Runner::new(both, self.ledger, self.cancel, &events);
        let of = self.plan.invocations.len();
        for (index, planned) in self.plan.invocations.iter().enumerate() {
            let invocation = &*planned.invocation;
            let own = |one: &&OperationResult| one.call == invocation.call && one.direction == invocation.direction;
            let tuned = tuned.operations.iter().find(own);
            let mut call = self.draft(invocation, &result.old, tuned)?;
            let name = format!("{}, old beside new", call.name());
            let _slice = events.open(Slice::Operation { name: &name, index, of });
            match self.measure_call(&mut runner, (invocation, tuned), &stage, &mut call) {
                Ok(()) => {}
                Err(RaceError::Interrupted) => {
                    result.interrupted = true;
                    return Ok(());
                }
                Err(RaceError::Fatal(error)) => return Err(error),
                Err(error) => call.reason = format!("not measured: {error}"),
            }
            on_call(&call);
            result.calls.push(call);
        }
        Ok(())
    }

    /// Measures a call's programs under both compilers, unless one of them fails.
    fn measure_call(
        &self,
        runner: &mut Runner<'_>,
        (invocation, tuned): (&Invocation, Option<&OperationResult>),
        stage: &str,
        call: &mut UpgradedCall,
    ) -> Result<(), RaceError> {
        let in_force = call.in_force.config.clone();
        let best = tuned.and_then(|tuned| best_beside(tuned, &in_force));
        let configs = Configs {
            in_force: &in_force,
            baseline: Some(&invocation.baseline).filter(|baseline| **baseline != in_force),
            best: best.filter(|best| **best != invocation.baseline),
        };
        let options = &self.options.tune.race;
        let programs =
            OldAndNew::new((invocation, self.registry), &configs, stage, options).map_err(RaceError::Fatal)?;
        let measured = match programs {
            Ok(programs) => programs.measure(runner, options, &self.question())?,
            Err(failure) => Err(NotMeasured::Unknown(failure)),
        };
        let measured = match measured {
            Ok(measured) => measured,
            Err(why) => {
                call.fail(why);
                return Ok(());
            }
        };
        let Changes { in_force: change, baseline: baseline_change, other } = measured.changes;
        let best = best.zip(other);
        let changes = best.as_ref().map(|(_, other)| (&other.to_in_force, &other.to_old));
        // that a baseline could be tuned is no news, unless it lost something
        let is_open = call.in_force.is_cached || change.shift == Shift::Slower;
        call.verdict = judge(&change, changes.filter(|_| is_open));
        call.reason = reason(call.verdict, &change, changes);
        if !call.in_force.is_cached {
            call.reason.push_str("; nothing is cached for this call");
        }
        (call.old_ns, call.new_ns) = (measured.old_ns, measured.new_ns);
        call.best = best.map(|(config, OtherConfig { to_in_force, to_old, change })| BestConfig {
            config: config.clone(),
            to_in_force,
            to_old,
            change,
        });
        (call.change, call.baseline_change) = (Some(change), baseline_change);
        Ok(())
    }

    /// What pairs of processes are asked, so that all alarms together are false as rarely as asked.
    fn question(&self) -> ProcessQuestion {
        let UpgradeOptions { false_positive_rate, min_difference, .. } = self.options;
        let questions = QUESTIONS * self.plan.invocations.len().max(1);
        ProcessQuestion::difference(1.0 - false_positive_rate, *min_difference, questions)
    }

    /// A call before it is measured.
    fn draft(
        &self,
        invocation: &Invocation,
        old: &CompilerSide,
        tuned: Option<&OperationResult>,
    ) -> Result<UpgradedCall, TuneError> {
        let cached = self.cached(invocation, old)?;
        let in_force =
            InForce { is_cached: cached.is_some(), config: cached.unwrap_or_else(|| invocation.baseline.clone()) };
        Ok(UpgradedCall {
            call: invocation.call.clone(),
            direction: invocation.direction,
            verdict: UpgradeVerdict::Undecided,
            reason: String::new(),
            in_force,
            old_ns: None,
            new_ns: None,
            change: None,
            baseline_change: None,
            best: None,
            tuned: tuned.map(|tuned| TunedUnderNew { status: tuned.status, reason: tuned.reason.clone() }),
            failure: None,
        })
    }

    fn cached(&self, invocation: &Invocation, old: &CompilerSide) -> Result<Option<Config>, StoreError> {
        let (call, direction) = (&invocation.call, Some(invocation.direction));
        let mode = self.options.match_mode;
        let found = self.cache.lookup(&old.device, &call.op_id, &call.call_key, direction, mode)?;
        Ok(match found {
            Lookup::Hit(hit) => Some(hit.entry.config.clone()),
            Lookup::Miss(_) => None,
        })
    }
}

impl UpgradedCall {
    fn fail(&mut self, why: NotMeasured) {
        let (verdict, failure) = match why {
            NotMeasured::Breaks(failure) => (UpgradeVerdict::Breaks, failure),
            NotMeasured::Unknown(failure) => (UpgradeVerdict::Undecided, failure),
        };
        self.verdict = verdict;
        self.reason = failure.to_string();
        self.failure = Some(failure);
    }
}

/// The best config that tuning found, if it is known and cannot be the one in force.
fn best_beside<'a>(tuned: &'a OperationResult, in_force: &Config) -> Option<&'a Config> {
    let best = &tuned.best.as_ref().filter(|_| tuned.status.is_decided())?.config;
    let is_other = best != in_force && !tuned.tie_set.contains(in_force);
    is_other.then_some(best)
}

/// Names the comparison of these two compilers in the sample log.
fn stage(result: &UpgradeResult) -> String {
    let environment = |side: &CompilerSide| serde_json::to_string(&side.device.environment).unwrap_or_default();
    let mut hasher = FieldHasher::new("upgrade, 1");
    let sides = [&result.old, &result.new];
    sides.iter().for_each(|side| {
        hasher.field(environment(side).as_bytes()).field(side.name.as_bytes());
    });
    format!("upgrade {}", hasher.finish().to_short())
}
