//! A call with other values of its arguments: what runs with one config for all of them is measured with each.

use std::time::{Duration, Instant};

use crate::decision::{CandidateVerdict, JudgedOutcome};
use crate::failure::Failure;
use crate::race::{JobEvidence, JobIdentity, RaceError, RaceOptions, Referee, Terms};
use crate::registry::{Distribution, Invocation};
use crate::samples::{FailureRecord, LogRecord};
use crate::timer::events::{Phase, Slice};

use super::job::InputFolder;
use super::provisional::OtherRace;
use super::tuner::Extent;
use super::tuning::Tuning;
use super::{ConfigTime, DistributionResult, TuneError};

impl Tuning<'_, '_> {
    /// Races what was measured with each other distribution of the call's values. What fails with them is dropped,
    /// because the call gets them too. Returns whether something was. Of a call that is decided nothing is measured.
    /// They share the call's budget, which began at `begin`.
    pub(super) fn race_other_distributions(&mut self, is_decided: bool, begin: Instant) -> Result<bool, TuneError> {
        let failed = self.evidence.failures.len();
        self.others.clear();
        for other in &self.race.invocation.other_distributions {
            if self.is_cancelled() {
                break;
            }
            let left = self.tuner.options.race.budget.map(|budget| budget.saturating_sub(begin.elapsed()));
            if self.tuner.options.chooses_no_more() || left.is_some_and(|left| left.is_zero()) {
                let why = "the budget was used up: allow more time";
                self.result.flags.push(format!("not measured with the values of `{}`: {why}", other.name));
                continue;
            }
            let call = self.race.invocation.with_values_of(other);
            let Ok(identity) = self.tuner.identity(&call) else { continue };
            let evidence = self.measure_with((other, &call), &identity, is_decided, left)?;
            let judgement = referee(&self.tuner.options.race, &identity).judge(&evidence, None, &[]);
            self.others.push(OtherRace { name: other.name.clone(), judgement });
        }
        Ok(self.evidence.failures.len() > failed)
    }

    /// What is known of a call with other values, after a race unless one was decided.
    fn measure_with(
        &mut self,
        (other, call): (&Distribution, &Invocation),
        identity: &JobIdentity,
        is_decided: bool,
        left: Option<Duration>,
    ) -> Result<JobEvidence, TuneError> {
        let ledger = self.tuner.ledger;
        let mut evidence = JobEvidence::stored(ledger, identity.digest, self.tuner.options.race.force)?;
        let measured = self.evidence.seen();
        evidence.leave(self.identity.distinct().into_iter().filter(|candidate| !measured.contains(candidate)));
        let known = &self.evidence.failures;
        evidence.failures.extend(known.iter().map(|(candidate, failure)| (*candidate, failure.clone())));
        let before: Vec<usize> = evidence.failures.keys().copied().collect();
        // one that was ended goes on
        let is_open = referee(&self.tuner.options.race, identity).race_state(&evidence).settled.is_none();
        if is_open && !is_decided {
            evidence.log_job(ledger, || self.tuner.job_record(call, identity))?;
            let raced = self.race_with((other, call), identity, left, &mut evidence);
            let failure = match raced {
                Ok(_) | Err(RaceError::Interrupted) => None,
                Err(RaceError::Fatal(error)) => return Err(error),
                Err(RaceError::Inputs(error)) => Some(error.to_string()),
                Err(RaceError::Failed(failure)) => Some(failure.to_string()),
            };
            let told = failure.map(|failure| format!("with the values of `{}`: {failure}", other.name));
            self.result.flags.extend(told);
        }
        let baseline = self.identity.baseline;
        let fresh = evidence.failures.iter().filter(|(candidate, _)| !before.contains(candidate));
        for (&candidate, failure) in fresh.filter(|(candidate, _)| **candidate != baseline) {
            let message = format!("with the values of `{}`: {}", other.name, failure.message);
            let failure = Failure::new(failure.kind.clone(), message);
            let job = self.identity.digest;
            ledger.append(&LogRecord::Failed(FailureRecord { job, candidate, failure: failure.clone() }))?;
            self.evidence.failures.insert(candidate, failure);
        }
        Ok(evidence)
    }

    fn race_with(
        &mut self,
        (other, call): (&Distribution, &Invocation),
        identity: &JobIdentity,
        left: Option<Duration>,
        evidence: &mut JobEvidence,
    ) -> Result<u32, RaceError> {
        let name = format!("{} with `{}`", call.call, other.name);
        let _step = self.events.open(Slice::Step(&name));
        let making = self.events.open(Slice::Phase(Phase::MakeInputs));
        let input_folder = InputFolder::new(call, self.tuner.registry)?.map_err(RaceError::Failed)?;
        drop(making);
        let options = RaceOptions { budget: left, ..self.tuner.options.race.clone() };
        let how = (&options, Extent::Race(None));
        self.tuner.measure_at(self.events, &input_folder, how, (call, identity), evidence)
    }

    /// Writes into the result what other values say about the config to use.
    pub(super) fn note_distributions(&mut self, published: usize) {
        let least = self.tuner.options.race.rules.min_improvement;
        let found: Vec<DistributionResult> =
            self.others.iter().filter_map(|other| self.distribution(other, published, least)).collect();
        for one in found.iter().filter(|one| one.differs) {
            let own = self.race.invocation.distribution.as_deref().unwrap_or("recorded");
            self.result.flags.push(format!(
                "the best config depends on the values: with those of `{}`, {} takes {:.3} of the time of the one that \
                 is the best with the {own} ones (one process)",
                one.name,
                one.best.config.to_brief(),
                one.ratio
            ));
        }
        self.result.distributions = found;
    }

    fn distribution(&self, other: &OtherRace, published: usize, least: f64) -> Option<DistributionResult> {
        let OtherRace { name, judgement } = other;
        if !matches!(judgement.outcome, JudgedOutcome::Faster | JudgedOutcome::BaselineKept) {
            return None;
        }
        let verdict = |candidate: usize| -> Option<&CandidateVerdict> { judgement.candidates.get(candidate)?.as_ref() };
        let (best, own) = (verdict(judgement.winner)?, verdict(published)?);
        let config = self.race.invocation.candidates.get(judgement.winner)?.config.clone();
        let ratio = best.ratio / own.ratio;
        let differs = judgement.winner != published && !own.tied_with_best && ratio <= 1.0 - least;
        Some(DistributionResult {
            name: name.clone(),
            best: ConfigTime::new(config, Some(best.median_ns)),
            ratio,
            differs,
        })
    }
}

fn referee<'a>(options: &'a RaceOptions, identity: &'a JobIdentity) -> Referee<'a> {
    Referee { options, identity, terms: Terms::default() }
}
