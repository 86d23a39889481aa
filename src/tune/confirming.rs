//! Provisional winners of a run, confirmed in fresh processes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::counted::counted;
use crate::decision::{
    Final, Finalist, JudgedOutcome, Judgement, ProcessOutcome, ProcessQuestion, ProcessRatio, ProcessSpread,
    ProcessVerdict,
};
use crate::race::{Confirmation, JobIdentity, RaceError, Referee, Runner, Terms, confirm_once, spreads};
use crate::timer::events::{EventKind, Events, Phase, Slice};

use super::job::{InputFolder, Materialized, materialize};
use super::provisional::{ProvisionalCall, not_confirmed, preferred, undecided};
use super::run::TunedStep;
use super::time_breakdown::{Tally, time_breakdown};
use super::tuner::Autotuner;
use super::tuning::{Tuning, TuningVerdict};
use super::work::fill_work;
use super::{OperationResult, RivalResult, Status, ended_by_user};

/// A provisional call of a plan, and its result so far.
struct OpenCall<'s> {
    index: usize,
    call: Box<ProvisionalCall>,
    step: &'s mut TunedStep,
    /// Processes of this run that measured it, and their time for it.
    processes: u32,
    spent: Duration,
}

impl Autotuner<'_> {
    /// Confirms the provisional winners among the steps of a run and commits those that hold. One process measures all
    /// of them, each call beside its own baseline, and the next process measures those that are still open.
    pub(super) fn confirm(&mut self, steps: &mut [TunedStep]) {
        let of = steps.len();
        // a store that failed keeps no further rounds
        let is_broken = steps.iter().any(|step| step.error.is_some());
        let mut open: Vec<OpenCall<'_>> = Vec::new();
        for (index, step) in steps.iter_mut().enumerate() {
            if let Some(call) = step.provisional.take() {
                open.push(OpenCall { index, call, step, processes: 0, spent: Duration::ZERO });
            }
        }
        // an earlier run may have measured enough
        let mut is_over = is_broken || self.is_stopped();
        let mut processes = 0;
        loop {
            self.settle(&mut open, (of, is_over));
            if open.is_empty() {
                return;
            }
            let winners = counted(open.len(), "winner");
            processes += 1;
            self.events.tell(EventKind::Ahead(&format!("fresh process {processes} measures {winners} again")));
            let starting = (self.events.open(Slice::Step("start a fresh process")), Instant::now());
            let started = Runner::new(&mut *self.timer, self.ledger, self.cancel, &self.events).start_fresh_process();
            let took = starting.1.elapsed();
            drop(starting);
            share(took, &mut open);
            if let Err(error) = started {
                let operations = open.iter_mut().filter_map(|one| one.step.operation.as_mut());
                operations.for_each(|operation| fail(operation, error.to_string()));
                return;
            }
            for one in &mut open {
                self.measure_once_more(one, of);
            }
            is_over = self.is_stopped() || open.iter().any(|one| one.step.error.is_some());
        }
    }

    fn is_stopped(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.options.stop_at.is_some_and(|stop_at| Instant::now() >= stop_at)
    }

    /// One more process's rounds of a call.
    fn measure_once_more(&mut self, one: &mut OpenCall<'_>, of: usize) {
        let (events, tally) = Tally::of(&self.events);
        let Some(operation) = &mut one.step.operation else { return };
        let name = operation.call.to_string();
        let slice = events.open(Slice::Operation { name: &name, index: one.index, of });
        one.processes += 1;
        let begin = Instant::now();
        let measured = self.confirm_call(&events, &mut one.call);
        one.spent += begin.elapsed();
        drop(slice);
        operation.time_breakdown += time_breakdown(&tally);
        match measured {
            Ok(()) => {}
            Err(RaceError::Interrupted) => {
                operation.status = Status::Interrupted;
                ended_by_user(operation.rounds_measured).clone_into(&mut operation.reason);
                operation.forget_winner();
            }
            Err(RaceError::Failed(failure)) => {
                fail(operation, failure.to_string());
                operation.failure = Some(failure);
            }
            Err(RaceError::Inputs(error)) => fail(operation, error.to_string()),
            Err(RaceError::Fatal(error)) => {
                fail(operation, error.to_string());
                one.step.error = Some(error);
            }
        }
    }

    fn confirm_call(&mut self, events: &Events, call: &mut ProvisionalCall) -> Result<(), RaceError> {
        let options = &self.options.race;
        let making = events.open(Slice::Phase(Phase::MakeInputs));
        let input_folder = InputFolder::new(&call.race.invocation, self.registry)?.map_err(RaceError::Failed)?;
        drop(making);
        let Materialized { job, .. } =
            materialize(&call.race.invocation, self.registry, options.cache_state.clone(), &input_folder);
        let referee = Referee { options, identity: &call.identity, terms: Terms::default() };
        let runner = Runner::new(&mut *self.timer, self.ledger, self.cancel, events);
        confirm_once(runner, &job, referee, &call.finalists, &mut call.evidence)
    }

    /// Concludes the calls that are decided, that failed, or for which the time is over; the others stay.
    fn settle(&mut self, open: &mut Vec<OpenCall<'_>>, (of, is_over): (usize, bool)) {
        let all: Vec<Vec<ProcessRatio>> = open.iter().map(|one| self.processes(&one.call)).collect();
        let Some(first) = open.first() else { return };
        let spreads = spreads(&self.referee(&first.call.identity), &all);
        let mut known = all.iter().zip(&spreads);
        open.retain_mut(|one| {
            let Some((own, spreads)) = known.next() else { return true };
            // of the call's time, two thirds were for the race
            let is_late = self.options.race.budget.is_some_and(|budget| one.spent >= budget / 2);
            let is_last = is_over || is_late || one.processes >= self.options.race.most_processes(own);
            !self.conclude(one, spreads, (of, is_last))
        });
    }

    fn referee<'r>(&'r self, identity: &'r JobIdentity) -> Referee<'r> {
        Referee { options: &self.options.race, identity, terms: Terms::default() }
    }

    fn processes(&self, call: &ProvisionalCall) -> Vec<ProcessRatio> {
        let of = |&winner: &usize| self.referee(&call.identity).processes(&call.evidence, winner);
        call.finalists.first().map(of).unwrap_or_default()
    }

    /// Concludes a call if it is decided, or will not be. Returns whether it did.
    fn conclude(&mut self, one: &mut OpenCall<'_>, spreads: &[ProcessSpread], (of, is_last): (usize, bool)) -> bool {
        let OpenCall { index, call, step, .. } = one;
        let Some(operation) = &mut step.operation else { return true };
        if operation.status != Status::Provisional {
            return true;
        }
        let events = self.events.clone();
        let ProvisionalCall { race, identity, evidence, cached, is_own, finalists, others, predictions, not_compiled } =
            &mut **call;
        let known = (identity.clone(), std::mem::take(evidence), cached.clone());
        let raced = std::mem::take(others);
        let mut tuning = Tuning::of_provisional((self, &events), race, (known, *is_own), raced, operation);
        let conclusion = tuning.conclusion(finalists, spreads, is_last);
        let name = tuning.result.call.to_string();
        let slice = match conclusion {
            Conclusion::Open => {
                (*evidence, *others) = tuning.into_evidence();
                return false;
            }
            _ => events.open(Slice::Operation { name: &name, index: *index, of }),
        };
        let committed = match conclusion {
            Conclusion::Judged(judgement) => {
                let (predictions, not_compiled) = (std::mem::take(predictions), *not_compiled);
                tuning.commit(TuningVerdict { judgement: *judgement, predictions, not_compiled })
            }
            _ => Ok(None),
        };
        match committed {
            Ok(entry) => step.entry = entry,
            Err(error) => {
                operation.status = Status::Failed;
                operation.reason = error.to_string();
                step.error = Some(error);
            }
        }
        fill_work(operation, self.peaks().as_ref());
        step.published = self.ledger.publish_if_due();
        let OperationResult { status, reason, speed_up, .. } = &*operation;
        events.tell(EventKind::Finished { status: status.name(), reason, speed_up: *speed_up });
        drop(slice);
        true
    }
}

/// Accounts the start of a process to the calls that it measures, in equal parts.
fn share(took: Duration, open: &mut [OpenCall<'_>]) {
    let part = took.as_nanos() as u64 / open.len().max(1) as u64;
    for operation in open.iter_mut().filter_map(|one| one.step.operation.as_mut()) {
        let sum = &mut operation.time_breakdown.confirming_ns;
        *sum = sum.saturating_add(part);
    }
}

/// What fresh processes make of a provisional winner.
enum Conclusion {
    /// More of them would tell.
    Open,
    /// This, to be committed.
    Judged(Box<Judgement>),
    /// Nothing, as the result says.
    Ended,
}

impl Tuning<'_, '_> {
    /// The conclusion on a provisional winner and its rivals, which are others if one failed in a fresh process.
    fn conclusion(&mut self, finalists: &mut Vec<usize>, spreads: &[ProcessSpread], is_last: bool) -> Conclusion {
        let mut judgement = self.judgement(self.incumbent());
        if judgement.outcome != JudgedOutcome::Faster {
            return Conclusion::Judged(Box::new(judgement));
        }
        *finalists = self.finalists(&judgement);
        let (processes, bytes) = (self.with_processes(finalists), self.temporary_bytes());
        let question = ProcessQuestion::gain(&self.referee().options.rules);
        let Some(found) = Final::new(question, spreads, &bytes).is_last(is_last).judge(&processes) else {
            return Conclusion::Open;
        };
        self.result.rivals = self.rivals(&processes, found.candidate, (question, spreads));
        let of_candidate = processes.into_iter().find(|(candidate, _)| *candidate == found.candidate);
        let confirmation = found.verdict.zip(of_candidate);
        self.result.confirmation = confirmation.map(|(verdict, (_, processes))| Confirmation { verdict, processes });
        match found.outcome {
            ProcessOutcome::Confirmed if found.candidate == judgement.winner => {}
            ProcessOutcome::Confirmed => {
                let known = self.result.confirmation.as_ref();
                judgement.reason = known.map(|known| preferred(finalists.len(), known)).unwrap_or_default();
                judgement.publish(found.candidate);
            }
            ProcessOutcome::Refuted => {
                judgement.reason = self.result.confirmation.as_ref().map(not_confirmed).unwrap_or_default();
                (judgement.outcome, judgement.winner) = (JudgedOutcome::BaselineKept, self.identity.baseline);
            }
            _ if !is_last => return Conclusion::Open,
            _ => {
                (self.result.status, self.result.reason) = match self.is_cancelled() {
                    true => (Status::Interrupted, ended_by_user(self.result.rounds_measured).to_owned()),
                    false => (Status::Undecided, undecided(self.result.confirmation.as_ref())),
                };
                self.result.forget_winner();
                return Conclusion::Ended;
            }
        }
        self.result.reason.clone_from(&judgement.reason);
        Conclusion::Judged(Box::new(judgement))
    }

    /// What fresh processes say about the finalists but the one that counts.
    fn rivals(
        &self,
        finalists: &[Finalist],
        but: usize,
        (question, spreads): (ProcessQuestion, &[ProcessSpread]),
    ) -> Vec<RivalResult> {
        let rival = |(candidate, own): &Finalist| {
            let ProcessVerdict { ratio, interval, .. } = question.judge(own, spreads)?;
            let config = self.race.invocation.candidates.get(*candidate)?.config.clone();
            Some(RivalResult { config, ratio, interval, processes: own.len() })
        };
        finalists.iter().filter(|(candidate, _)| *candidate != but).filter_map(rival).collect()
    }
}

/// Writes why a call could not be confirmed; its winner is none.
fn fail(operation: &mut OperationResult, reason: String) {
    (operation.status, operation.reason) = (Status::Failed, reason);
    operation.forget_winner();
}
