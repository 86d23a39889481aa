//! Makes an entry and a result from a verdict.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::cache::{Entry, Provenance};
use crate::decision::{JudgedOutcome, Judgement, RaceState};
use crate::measured_by::{CacheState, MachineLoad, TOOL};
use crate::race::{JobEvidence, JobIdentity};
use crate::registry::Invocation;
use crate::search::Predictions;
use crate::timer::Timer;

use super::{ConfigTime, OperationResult, Status};

/// The entry of a verdict; `None` while it is undecided.
pub(super) fn entry_of(
    invocation: &Invocation,
    identity: &JobIdentity,
    judgement: &Judgement,
    evidence: &JobEvidence,
    (timer, cache_state): (&dyn Timer, &CacheState),
    search: Option<String>,
    predictions: &Predictions,
) -> Option<Entry> {
    if matches!(judgement.outcome, JudgedOutcome::NotBelieved | JudgedOutcome::Undecided) {
        return None;
    }
    let verdict = |index: usize| judgement.candidates.get(index)?.as_ref();
    let candidate = |index: usize| invocation.candidates.get(index);
    let (winner, baseline) = (verdict(judgement.winner)?, verdict(identity.baseline)?);
    let semantic = |index: usize| Some(candidate(index)?.program.as_ref()?.semantic_digest);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Some(Entry {
        config: candidate(judgement.winner)?.config.clone(),
        provenance: Some(Provenance {
            job: identity.digest,
            measured_by: timer
                .info()
                .measured_by(cache_state)
                .compiler(None)
                .load(MachineLoad::of(judgement.race_state.disturbance.is_contended)),
            batch: invocation.batch.clone(),
            environment: timer.info().device.environment.clone(),
            baseline: invocation.baseline.clone(),
            baseline_ns: baseline.median_ns,
            best_ns: winner.median_ns,
            ratio: winner.ratio,
            interval: winner.interval,
            rounds: winner.rounds as u32,
            processes: 0,
            measured: judgement.candidates.iter().flatten().count() as u32,
            failed: evidence.failures.len() as u32,
            tie_set: judgement
                .tie_set()
                .into_iter()
                .filter_map(|index| Some(candidate(index)?.config.clone()))
                .collect(),
            semantic_digest: semantic(judgement.winner),
            baseline_semantic_digest: semantic(identity.baseline),
            search,
            stability: None,
            untried: predictions.left.len() as u32,
            untried_chance: (!predictions.left.is_empty()).then_some(predictions.chance),
            tool: TOOL.to_owned(),
            decided_at: now,
        }),
        peer: None,
        superseded: Vec::new(),
    })
}

/// Writes what a verdict says about the measurement into a result.
pub(super) fn fill_from_judgement(result: &mut OperationResult, judgement: &Judgement) {
    let RaceState { disturbance, rounds, resolution, .. } = &judgement.race_state;
    result.rounds_set_aside = u32::try_from(disturbance.set_aside.len()).unwrap_or(u32::MAX);
    result.drift = disturbance.drift;
    result.load = MachineLoad::of(disturbance.is_contended);
    result.resolution = (*rounds > 0).then_some(*resolution);
    result.reason.clone_from(&judgement.reason);
}

/// Writes an entry's figures into a result.
pub(crate) fn fill_from_entry(result: &mut OperationResult, entry: &Entry) {
    let provenance = entry.provenance.as_ref();
    result.best = Some(ConfigTime::new(entry.config.clone(), provenance.map(|provenance| provenance.best_ns)));
    result.baseline.median_ns = provenance.map(|provenance| provenance.baseline_ns);
    if let Some((speed_up, interval)) = entry.speed_up() {
        result.speed_up = Some(speed_up);
        result.speed_up_interval = Some(interval);
    }
    if let Some(provenance) = provenance {
        result.batch.clone_from(&provenance.batch);
        result.tie_set.clone_from(&provenance.tie_set);
    }
}

/// The status that a decided verdict gives.
pub(super) fn status_of(outcome: JudgedOutcome) -> Status {
    match outcome {
        JudgedOutcome::Faster => Status::Tuned,
        JudgedOutcome::BaselineKept => Status::BaselineKept,
        JudgedOutcome::NotBelieved => Status::NotBelieved,
        JudgedOutcome::Undecided => Status::Failed,
    }
}
