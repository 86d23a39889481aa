//! One config beside the baseline: its outcome for a search, measured only if the sample log lacks it.

use crate::decision::{DecisionRules, RaceState, Round, paired_ratios, race};
use crate::failure::{Failure, FailureKind};
use crate::registry::Invocation;
use crate::samples::Record;
use crate::search::Outcome;
use crate::stats::median;
use crate::timer::events::Events;

use super::TuneOptions;
use super::job::{InputFolder, JobIdentity};
use super::measure::Aborted;
use super::rounds::JobRounds;
use super::tuner::{Autotuner, Extent};

/// The outcome of a config in a job of two.
pub(super) struct PairOutcome {
    pub(super) outcome: Outcome,
    /// Whether it was measured for that.
    pub(super) is_new: bool,
    /// Why it failed, if it did.
    pub(super) failure: Option<Failure>,
}

impl Autotuner<'_> {
    /// Tries the second candidate of an invocation with two candidates, the first being the baseline.
    pub(super) fn try_pair(
        &mut self,
        events: &Events,
        invocation: &Invocation,
        input_folder: &InputFolder,
    ) -> Result<PairOutcome, Aborted> {
        let identity =
            self.identity(invocation).map_err(|reason| Aborted::Failed(Failure::new(FailureKind::Protocol, reason)))?;
        if identity.distinct().len() < 2 {
            // the baseline under another name
            return Ok(PairOutcome { outcome: Outcome::Time(1.0), is_new: false, failure: None });
        }
        let wanted = self.options.search.rounds.max(1);
        // unlike in a race, each config gets the same number of rounds, except for those that take a multiple of the
        // baseline's time
        let rules = self.options.rules.confidence(1.0);
        let options = TuneOptions { rounds: Some(wanted), budget: None, rules, ..self.options.clone() };
        let history = if self.options.force { Default::default() } else { self.ledger.history(identity.digest)? };
        let is_known = history.job.is_some();
        let mut rounds = JobRounds::from_history(history);
        let (_, race_state) = race_state_of(&rounds, &identity, &rules);
        let is_new = race_state.contenders.len() > 1 && race_state.rounds < wanted as usize;
        if is_new {
            if !is_known {
                self.ledger.append(&Record::Job(Box::new(self.job_record(invocation, &identity))))?;
            }
            self.measure_at(events, input_folder, (&options, Extent::Exact), (invocation, &identity), &mut rounds)?;
        }
        let tried = outcome_of(&rounds, &identity, &rules, wanted as usize).map_err(Aborted::Failed)?;
        Ok(PairOutcome { is_new, ..tried })
    }
}

/// What the first rounds say about the candidate beside the baseline; an error if the baseline is at fault.
fn outcome_of(
    rounds: &JobRounds,
    identity: &JobIdentity,
    rules: &DecisionRules,
    first: usize,
) -> Result<PairOutcome, Failure> {
    let (baseline, config) = (identity.baseline, 1 - identity.baseline.min(1));
    if let Some(failure) = rounds.failures.get(&baseline) {
        let message = format!("the baseline failed: {}; `--force` tries again", failure.message);
        return Err(Failure::new(failure.kind.clone(), message));
    }
    let failed = |failure: Failure| Ok(PairOutcome { outcome: Outcome::Failed, is_new: false, failure: Some(failure) });
    if let Some(failure) = rounds.failures.get(&config) {
        return failed(failure.clone());
    }
    let (decided, race_state) = race_state_of(rounds, identity, rules);
    let is_counted = |index: &usize| !race_state.disturbance.set_aside.contains(index);
    let counted: Vec<&Round> =
        decided.iter().enumerate().filter(|(index, _)| is_counted(index)).map(|(_, round)| round).collect();
    if counted.iter().all(|round| round.sample_ns(baseline).is_none()) {
        let message = "the baseline gave no usable time: zero, negative or none at all";
        return Err(Failure::new(FailureKind::Execute, message));
    }
    let mut ratios = paired_ratios(counted, config, baseline);
    ratios.truncate(first);
    match median(&ratios).map_or(Outcome::Failed, Outcome::of) {
        Outcome::Failed => {
            failed(Failure::new(FailureKind::NoTime, "its samples are not times: zero, negative or none"))
        }
        outcome => Ok(PairOutcome { outcome, is_new: false, failure: None }),
    }
}

fn race_state_of(rounds: &JobRounds, identity: &JobIdentity, rules: &DecisionRules) -> (Vec<Round>, RaceState) {
    let decided = rounds.to_decision(identity.same_as.len(), identity.baseline);
    let race_state = race(&decided, &rounds.competing(identity), identity.baseline, rules);
    (decided, race_state)
}
