//! One config beside the baseline: its outcome for a search, measured only if the sample log lacks it.

use crate::decision::{DecisionRules, RaceState, Round, paired_ratios, race};
use crate::failure::{Failure, FailureKind};
use crate::race::{JobEvidence, JobIdentity, RaceError};
use crate::registry::Invocation;
use crate::search::TrialOutcome;
use crate::stats::median;
use crate::timer::events::Events;

use super::job::InputFolder;
use super::tuner::{Autotuner, Extent};

/// The outcome of a config in a job of two.
pub(super) struct PairOutcome {
    pub(super) outcome: TrialOutcome,
    /// Whether it was measured for that.
    pub(super) is_new: bool,
    /// Why it failed, if it did.
    pub(super) failure: Option<Failure>,
}

impl PairOutcome {
    /// Of a config that could not be lowered.
    pub(super) fn refused(reason: String) -> Self {
        let failure = Failure::new(FailureKind::NoProgram, reason);
        Self { outcome: TrialOutcome::Failed, is_new: true, failure: Some(failure) }
    }
}

impl Autotuner<'_> {
    /// Tries the second candidate of an invocation with two candidates, the first being the baseline.
    pub(super) fn try_pair(
        &mut self,
        events: &Events,
        invocation: &Invocation,
        input_folder: &InputFolder,
    ) -> Result<PairOutcome, RaceError> {
        let identity = self
            .identity(invocation)
            .map_err(|reason| RaceError::Failed(Failure::new(FailureKind::Protocol, reason)))?;
        if identity.distinct().len() < 2 {
            // the baseline under another name
            return Ok(PairOutcome { outcome: TrialOutcome::Time(1.0), is_new: false, failure: None });
        }
        let wanted = self.options.search.rounds.max(1);
        // unlike in a race, each config gets the same number of rounds, except for those that take a multiple of the
        // baseline's time
        let rules = self.options.race.rules.confidence(1.0);
        let options = self.options.race.clone().rounds(Some(wanted)).budget(None).rules(rules);
        let mut evidence = JobEvidence::stored(self.ledger, identity.digest, self.options.race.force)?;
        let (_, race_state) = race_state_of(&evidence, &identity, &rules);
        let is_new = race_state.contenders.len() > 1 && race_state.rounds < wanted as usize;
        if is_new {
            evidence.log_job(self.ledger, || self.job_record(invocation, &identity))?;
            self.measure_at(events, input_folder, (&options, Extent::Exact), (invocation, &identity), &mut evidence)?;
        }
        let tried = outcome_of(&evidence, &identity, &rules, wanted as usize).map_err(RaceError::Failed)?;
        Ok(PairOutcome { is_new, ..tried })
    }
}

/// What the first rounds say about the candidate beside the baseline; an error if the baseline is at fault.
fn outcome_of(
    evidence: &JobEvidence,
    identity: &JobIdentity,
    rules: &DecisionRules,
    first: usize,
) -> Result<PairOutcome, Failure> {
    let (baseline, config) = (identity.baseline, 1 - identity.baseline.min(1));
    if let Some(failure) = evidence.failures.get(&baseline) {
        let message = format!("the baseline failed: {}; `--force` tries again", failure.message);
        return Err(Failure::new(failure.kind.clone(), message));
    }
    let failed =
        |failure: Failure| Ok(PairOutcome { outcome: TrialOutcome::Failed, is_new: false, failure: Some(failure) });
    if let Some(failure) = evidence.failures.get(&config) {
        return failed(failure.clone());
    }
    let (decided, race_state) = race_state_of(evidence, identity, rules);
    let is_counted = |index: &usize| !race_state.disturbance.set_aside.contains(index);
    let counted: Vec<&Round> =
        decided.iter().enumerate().filter(|(index, _)| is_counted(index)).map(|(_, round)| round).collect();
    if counted.iter().all(|round| round.sample_ns(baseline).is_none()) {
        let message = "the baseline gave no usable time: zero, negative or none at all";
        return Err(Failure::new(FailureKind::Execute, message));
    }
    let mut ratios = paired_ratios(counted, config, baseline);
    ratios.truncate(first);
    match median(&ratios).map_or(TrialOutcome::Failed, TrialOutcome::of) {
        TrialOutcome::Failed => {
            failed(Failure::new(FailureKind::NoTime, "its samples are not times: zero, negative or none"))
        }
        outcome => Ok(PairOutcome { outcome, is_new: false, failure: None }),
    }
}

fn race_state_of(evidence: &JobEvidence, identity: &JobIdentity, rules: &DecisionRules) -> (Vec<Round>, RaceState) {
    let decided = evidence.to_decision(identity.same_as.len(), identity.baseline);
    let race_state = race(&decided, &evidence.competing(identity), identity.baseline, rules);
    (decided, race_state)
}
