//! The steps of an upgrade: tune under the new compiler, then measure each call under both.

use std::sync::atomic::AtomicBool;

use crate::cache::{Lookup, StoreError, TieredCache};
use crate::config::Config;
use crate::decision::ProcessQuestion;
use crate::device::MatchMode;
use crate::digest::{Digest, FieldHasher};
use crate::failure::{Failure, FailureKind};
use crate::ledger::Ledger;
use crate::measured_by::TOOL;
use crate::race::{RaceError, Runner};
use crate::registry::{Invocation, Registry};
use crate::timer::events::{Events, Slice};
use crate::timer::{SideBySide, Timer};
use crate::tune::{AutotuningResult, OperationResult, Session, Stopped, TuneError, TuneOptions, TuningPlan};

use super::change::{Change, Shift};
use super::old_and_new::{Changes, Configs, Measured, NotMeasured, OldAndNew, OtherConfig, Recorded};
use super::result::{
    BestConfig, ChangeCause, CompilerSide, InForce, TunedUnderNew, UPGRADE_SCHEMA, UpgradeResult, UpgradeVerdict,
    UpgradedCall,
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

/// Programs, and the calls of them that count.
#[derive(Clone, Copy)]
pub struct RecordedCalls<'a> {
    /// The programs.
    pub registry: &'a Registry,
    /// The calls.
    pub plan: &'a TuningPlan,
}

/// What an upgrade works with.
pub struct Upgrade<'a> {
    /// The recorded programs, and the calls.
    pub old: RecordedCalls<'a>,
    /// The same as they were recorded in the new compiler's environment, if they were.
    pub new: Option<RecordedCalls<'a>>,
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
        missed: upgrade.old.plan.missed.clone(),
        notes: upgrade.old.plan.notes.clone(),
        interrupted: false,
    };
    let (tuned, stopped_by) = Stopped::split(upgrade.tune(both.first()));
    result.interrupted = tuned.interrupted;
    result.notes.extend(tuned.notes.iter().filter(|note| !upgrade.old.plan.notes.contains(note)).cloned());
    if stopped_by.is_some() || tuned.interrupted {
        return Stopped::unless_ended(result, stopped_by);
    }
    let stopped_by = upgrade.measure(both, &tuned, &mut result, on_call).err();
    Stopped::unless_ended(result, stopped_by)
}

impl Upgrade<'_> {
    fn tune(&self, new: &mut dyn Timer) -> Result<AutotuningResult, Stopped<AutotuningResult>> {
        let RecordedCalls { registry, plan } = self.new.unwrap_or(self.old);
        Session::new(registry, self.ledger, new)
            .options(self.options.tune.clone())
            .cancel(self.cancel)
            .events((self.events)())
            .run(plan)
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
        let of = self.old.plan.invocations.len();
        for (index, planned) in self.old.plan.invocations.iter().enumerate() {
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
        let old = Recorded { invocation, registry: self.old.registry };
        let Some(new) = self.renewed(old) else {
            let message = "the new environment recorded no such call";
            call.fail(NotMeasured::Unknown(Failure::new(FailureKind::NoProgram, message)));
            return Ok(());
        };
        let in_force = call.in_force.config.clone();
        let best = tuned.and_then(|tuned| best_beside(tuned, &in_force));
        let configs = Configs {
            in_force: &in_force,
            baseline: Some(&invocation.baseline).filter(|baseline| **baseline != in_force),
            best: best.filter(|best| **best != invocation.baseline),
        };
        match self.compare(runner, (old, new), &configs, stage)? {
            Ok(measured) => call.take(measured, best),
            Err(why) => call.fail(why),
        }
        if call.change.as_ref().is_some_and(|change| change.shift == Shift::Slower) {
            let same_program = semantics(old, &in_force) == semantics(new, &in_force);
            call.cause = Some(ChangeCause::Compiler).filter(|_| same_program);
            if !same_program {
                let configs = Configs { in_force: &in_force, baseline: None, best: None };
                let alone = self.compare(runner, (old, old), &configs, &format!("{stage} compiler"))?;
                call.blame(alone.ok().map(|measured| measured.changes.in_force));
            }
        }
        Ok(())
    }

    /// The same call as the new environment recorded it.
    fn renewed<'r>(&'r self, old: Recorded<'r>) -> Option<Recorded<'r>> {
        let Some(new) = &self.new else { return Some(old) };
        let all = new.plan.invocations.iter().map(|planned| &*planned.invocation);
        let is_same = |one: &&Invocation| one.call == old.invocation.call && one.direction == old.invocation.direction;
        let mut same = all.filter(is_same);
        same.next().map(|invocation| Recorded { invocation, registry: new.registry })
    }

    fn compare(
        &self,
        runner: &mut Runner<'_>,
        recorded: (Recorded<'_>, Recorded<'_>),
        configs: &Configs<'_>,
        stage: &str,
    ) -> Result<Result<Measured, NotMeasured>, RaceError> {
        let options = &self.options.tune.race;
        match OldAndNew::new(recorded, configs, stage, options).map_err(RaceError::Fatal)? {
            Ok(programs) => programs.measure(runner, options, &self.question()),
            Err(failure) => Ok(Err(NotMeasured::Unknown(failure))),
        }
    }

    /// What pairs of processes are asked, so that all alarms together are false as rarely as asked.
    fn question(&self) -> ProcessQuestion {
        let UpgradeOptions { false_positive_rate, min_difference, .. } = self.options;
        let questions = QUESTIONS * self.old.plan.invocations.len().max(1);
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
            compiler_change: None,
            cause: None,
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
    fn take(&mut self, measured: Measured, best: Option<&Config>) {
        let Changes { in_force: change, baseline: baseline_change, other } = measured.changes;
        let best = best.zip(other);
        let changes = best.as_ref().map(|(_, other)| (&other.to_in_force, &other.to_old));
        // that a baseline could be tuned is no news, unless it lost something
        let is_open = self.in_force.is_cached || change.shift == Shift::Slower;
        self.verdict = judge(&change, changes.filter(|_| is_open));
        self.reason = reason(self.verdict, &change, changes);
        if !self.in_force.is_cached {
            self.reason.push_str("; nothing is cached for this call");
        }
        self.best = best.map(|(config, OtherConfig { to_in_force, to_old, change })| BestConfig {
            config: config.clone(),
            to_in_force,
            to_old,
            change,
        });
        (self.old_ns, self.new_ns) = (measured.old_ns, measured.new_ns);
        (self.change, self.baseline_change) = (Some(change), baseline_change);
    }

    /// Takes how the time of the old environment's program changed: what is left is the lowering's.
    fn blame(&mut self, compiler: Option<Change>) {
        self.cause = match compiler.as_ref().map(|change| change.shift) {
            Some(Shift::Slower) => Some(ChangeCause::Compiler),
            Some(Shift::Same | Shift::Faster) => Some(ChangeCause::Lowering),
            Some(Shift::Open) | None => None,
        };
        if (self.verdict, self.cause) == (UpgradeVerdict::CompilerRegressed, Some(ChangeCause::Lowering)) {
            self.verdict = UpgradeVerdict::LoweringRegressed;
        }
        self.reason.push_str(match self.cause {
            Some(ChangeCause::Compiler) => "; so does the program as the old environment lowered it",
            Some(ChangeCause::Lowering) => "; the program as the old environment lowered it does not",
            None => "; whether the compiler or the lowering did it is open",
        });
        self.compiler_change = compiler;
    }

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

/// What a config's program computes, regardless of its bytes.
fn semantics(of: Recorded<'_>, config: &Config) -> Option<Digest> {
    of.program(config).map(|program| program.semantic_digest)
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
