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
use crate::race::RaceError;
use crate::registry::{Invocation, Registry};
use crate::timer::Timer;
use crate::timer::events::Events;
use crate::tune::{
    AutotuningResult, OperationResult, PlannedInvocation, Session, Stopped, TuneError, TuneOptions, TuningPlan,
};

use super::change::{Change, Shift};
use super::compilers::Compilers;
use super::old_and_new::{Changes, Configs, Measured, NotMeasured, OldAndNew, OtherConfig, Recorded};
use super::result::{
    BestConfig, ChangeCause, CompilerSide, InForce, TunedUnderNew, UPGRADE_SCHEMA, UpgradeResult, UpgradeVerdict,
    UpgradedCall,
};
use super::turns::{InTurns, TurnSetting, groups, take_turns};
use super::verdict::{cause, judge, reason};

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
    both: &mut Compilers<'_>,
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
    let alone = match both.new_alone() {
        Ok(new) => new,
        Err(failure) => {
            let (calls, stopped_by) = match upgrade.not_measured(&result.old, &failure) {
                Ok(calls) => (calls, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            result.calls = calls;
            return Stopped::unless_ended(result, stopped_by);
        }
    };
    let (tuned, stopped_by) = Stopped::split(upgrade.tune(alone));
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
        let options = self.options.tune.clone();
        let budget = options.race.budget;
        Session::new(registry, self.ledger, new)
            .options(options.time_for_each(budget))
            .cancel(self.cancel)
            .events((self.events)())
            .run(plan)
    }

    /// The calls if the new compiler's timer does not start again.
    fn not_measured(&self, old: &CompilerSide, failure: &Failure) -> Result<Vec<UpgradedCall>, TuneError> {
        let call = |planned: &PlannedInvocation| {
            let mut call = self.draft(&planned.invocation, old, None)?;
            call.fail(NotMeasured::Unknown(failure.clone()));
            Ok(call)
        };
        self.old.plan.invocations.iter().map(call).collect()
    }

    fn measure(
        &self,
        both: &mut Compilers<'_>,
        tuned: &AutotuningResult,
        result: &mut UpgradeResult,
        on_call: &mut dyn FnMut(&UpgradedCall),
    ) -> Result<(), TuneError> {
        let (events, question) = ((self.events)(), self.question());
        let setting = TurnSetting {
            ledger: self.ledger,
            cancel: self.cancel,
            events: &events,
            options: &self.options.tune.race,
            question: &question,
        };
        // samples of two pairs of compilers are never mixed
        let stage = stage(result);
        for group in groups(&self.old.plan.invocations) {
            let opened = group.iter().map(|planned| self.open(&planned.invocation, &result.old, tuned, &stage));
            let mut calls = opened.collect::<Result<Vec<OpenCall<'_>>, TuneError>>()?;
            let mut turns: Vec<&mut InTurns> = calls.iter_mut().filter_map(|call| call.turns.as_mut()).collect();
            let ended = take_turns(&setting, both, &mut turns);
            for call in calls.into_iter().filter(OpenCall::is_done) {
                let done = self.finish(&setting, both, call, &stage);
                result.interrupted |= matches!(done, Err(RaceError::Interrupted));
                if let Ok(call) = done {
                    on_call(&call);
                    result.calls.push(call);
                }
            }
            match ended {
                Ok(()) => {}
                Err(RaceError::Fatal(error)) => return Err(error),
                Err(_) => result.interrupted = true,
            }
            if result.interrupted {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads a call's programs.
    fn open<'o>(
        &'o self,
        invocation: &'o Invocation,
        old_side: &CompilerSide,
        tuned: &'o AutotuningResult,
        stage: &str,
    ) -> Result<OpenCall<'o>, TuneError> {
        let own = |one: &&OperationResult| one.call == invocation.call && one.direction == invocation.direction;
        let tuned = tuned.operations.iter().find(own);
        let mut call = self.draft(invocation, old_side, tuned)?;
        let old = Recorded { invocation, registry: self.old.registry };
        let Some(new) = self.renewed(old) else {
            let message = "the new environment recorded no such call";
            call.fail(NotMeasured::Unknown(Failure::new(FailureKind::NoProgram, message)));
            return Ok(OpenCall { call, old, new: old, best: None, turns: None });
        };
        let best = tuned.and_then(|tuned| best_beside(tuned, &call.in_force.config));
        let configs = Configs {
            in_force: &call.in_force.config,
            baseline: Some(&invocation.baseline).filter(|baseline| **baseline != call.in_force.config),
            best: best.filter(|best| **best != invocation.baseline),
        };
        let turns = match OldAndNew::new((old, new), &configs, stage, &self.options.tune.race)? {
            Ok(programs) => Some(InTurns::new(call.name(), programs)),
            Err(failure) => {
                call.fail(NotMeasured::Unknown(failure));
                None
            }
        };
        Ok(OpenCall { call, old, new, best, turns })
    }

    /// The verdict on a call whose turns are over.
    fn finish(
        &self,
        setting: &TurnSetting<'_>,
        both: &mut Compilers<'_>,
        OpenCall { mut call, old, new, best, turns }: OpenCall<'_>,
        stage: &str,
    ) -> Result<UpgradedCall, RaceError> {
        match turns.map(InTurns::end) {
            Some(Ok(measured)) => call.take(measured, best),
            Some(Err(why)) => call.fail(why),
            None => {}
        }
        if call.change.as_ref().is_some_and(|change| change.shift == Shift::Slower) {
            let in_force = call.in_force.config.clone();
            let same_program = semantics(old, &in_force) == semantics(new, &in_force);
            call.cause = Some(ChangeCause::Compiler).filter(|_| same_program);
            if !same_program {
                let least = self.options.min_difference;
                call.blame(by_compiler(setting, both, (old, &in_force), &format!("{stage} compiler"))?, least);
            }
        }
        Ok(call)
    }

    /// The same call as the new environment recorded it.
    fn renewed<'r>(&'r self, old: Recorded<'r>) -> Option<Recorded<'r>> {
        let Some(new) = &self.new else { return Some(old) };
        let all = new.plan.invocations.iter().map(|planned| &*planned.invocation);
        let is_same = |one: &&Invocation| one.call == old.invocation.call && one.direction == old.invocation.direction;
        let mut same = all.filter(is_same);
        same.next().map(|invocation| Recorded { invocation, registry: new.registry })
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

/// How the time of the old environment's program changes with the compiler; `None` if that cannot be measured.
fn by_compiler(
    setting: &TurnSetting<'_>,
    both: &mut Compilers<'_>,
    (old, in_force): (Recorded<'_>, &Config),
    stage: &str,
) -> Result<Option<Change>, RaceError> {
    let configs = Configs { in_force, baseline: None, best: None };
    let Ok(programs) = OldAndNew::new((old, old), &configs, stage, setting.options).map_err(RaceError::Fatal)? else {
        return Ok(None);
    };
    let mut turns = InTurns::new(format!("{}, the old program", old.invocation.call), programs);
    take_turns(setting, both, &mut [&mut turns])?;
    Ok(turns.end().ok().and_then(|measured| measured.changes).map(|changes| changes.in_force))
}

/// A call that is being measured.
struct OpenCall<'a> {
    call: UpgradedCall,
    old: Recorded<'a>,
    new: Recorded<'a>,
    /// The best config under the new compiler, if it is another one.
    best: Option<&'a Config>,
    /// `None` if it cannot be measured, as the call then says.
    turns: Option<InTurns>,
}

impl OpenCall<'_> {
    fn is_done(&self) -> bool {
        self.turns.as_ref().is_none_or(InTurns::is_done)
    }
}

impl UpgradedCall {
    fn take(&mut self, measured: Measured, best: Option<&Config>) {
        let Some(changes) = measured.changes else { return self.fail(NotMeasured::no_pair()) };
        let Changes { in_force: change, baseline: baseline_change, other } = changes;
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
    fn blame(&mut self, compiler: Option<Change>, least: f64) {
        self.cause =
            compiler.as_ref().zip(self.change.as_ref()).and_then(|(compiler, all)| cause(all, compiler, least));
        if (self.verdict, self.cause) == (UpgradeVerdict::CompilerRegressed, Some(ChangeCause::Lowering)) {
            self.verdict = UpgradeVerdict::LoweringRegressed;
        }
        self.reason.push_str(match self.cause {
            Some(ChangeCause::Compiler) => "; so does the program as the old environment lowered it",
            Some(ChangeCause::Lowering) => "; the program as the old environment lowered it does not, or far less",
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
