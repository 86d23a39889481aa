//! Makes an entry and a result from a verdict.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::cache::{Entry, Provenance};
use crate::config::Config;
use crate::decision::{Judgement, Outcome, RaceState, Round};
use crate::measured_by::{CacheState, TOOL};
use crate::registry::Invocation;
use crate::search::{Expected, Predictions};
use crate::timer::Timer;

use super::job::JobIdentity;
use super::rounds::JobRounds;
use super::{CandidateOutcome, CandidateResult, CandidateTimes, ConfigTime, OperationResult, PairedSample, Status};

/// The entry of a verdict; `None` while it is undecided.
pub(super) fn entry_of(
    invocation: &Invocation,
    identity: &JobIdentity,
    judgement: &Judgement,
    rounds: &JobRounds,
    (timer, cache_state): (&dyn Timer, &CacheState),
    search: Option<String>,
    predictions: &Predictions,
) -> Option<Entry> {
    if matches!(judgement.outcome, Outcome::NotBelieved | Outcome::Undecided) {
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
            measured_by: timer.info().measured_by(cache_state).compiler(None),
            batch: invocation.batch.clone(),
            environment: timer.info().device.environment.clone(),
            baseline: invocation.baseline.clone(),
            baseline_ns: baseline.median_ns,
            best_ns: winner.median_ns,
            ratio: winner.ratio,
            interval: winner.interval,
            rounds: winner.rounds as u32,
            measured: judgement.candidates.iter().flatten().count() as u32,
            failed: rounds.failures.len() as u32,
            tie_set: judgement
                .tie_set()
                .into_iter()
                .filter_map(|index| Some(candidate(index)?.config.clone()))
                .collect(),
            semantic_digest: semantic(judgement.winner),
            baseline_semantic_digest: semantic(identity.baseline),
            search,
            left: predictions.left.len() as u32,
            chance_left: (!predictions.left.is_empty()).then_some(predictions.chance),
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
pub(super) fn status_of(outcome: Outcome) -> Status {
    match outcome {
        Outcome::Faster => Status::Tuned,
        Outcome::BaselineKept => Status::BaselineKept,
        Outcome::NotBelieved => Status::NotBelieved,
        Outcome::Undecided => Status::Failed,
    }
}

/// One row per candidate of a job; some share another's program.
pub(super) fn candidate_results(
    configs: &[Config],
    same_as: &[Option<usize>],
    baseline: usize,
    judgement: &Judgement,
    rounds: &JobRounds,
    left: &[(usize, Expected)],
) -> Vec<CandidateResult> {
    // predicted relative to the best, converted to the baseline
    let ratios = judgement.candidates.iter().flatten().map(|verdict| verdict.ratio);
    let best = ratios.min_by(f64::total_cmp).unwrap_or(1.0);
    let expected = |candidate: usize| {
        let (_, expected) = left.iter().find(|(other, _)| *other == candidate)?;
        Some(expected.scaled(best))
    };
    let decided = rounds.to_decision(configs.len(), baseline);
    let set_aside = &judgement.race_state.disturbance.set_aside;
    let rows = configs.iter().enumerate().map(|(index, config)| {
        let shared = same_as.get(index).copied().flatten();
        let own = shared.unwrap_or(index);
        let verdict = judgement.candidates.get(own).and_then(Option::as_ref);
        let failure = rounds.failures.get(&own).cloned();
        let samples = match shared {
            None => paired_samples(&decided, index, baseline, set_aside),
            Some(_) => Vec::new(),
        };
        let times = verdict.map(|verdict| CandidateTimes {
            rounds: verdict.rounds,
            median_ns: verdict.median_ns,
            ratio: verdict.ratio,
            interval: verdict.interval,
        });
        let figures = rounds.figures(index).or_else(|| rounds.figures(own));
        CandidateResult {
            config: config.clone(),
            outcome: match (failure, times, shared) {
                (Some(failure), ..) => CandidateOutcome::Failed(failure),
                (None, times, Some(_)) => CandidateOutcome::SameProgram(times),
                (None, Some(times), None) => CandidateOutcome::Measured(times),
                (None, None, None) => {
                    expected(index).map_or(CandidateOutcome::NotMeasured, CandidateOutcome::NotCompiled)
                }
            },
            race: None,
            tied_with_best: verdict.is_some_and(|verdict| verdict.tied_with_best),
            dropped: judgement.race_state.dropped.get(&own).map(|dropped| dropped.reason),
            samples,
            temporary_bytes: figures.and_then(|figures| figures.temporary_bytes),
            work: figures.and_then(|figures| figures.work.clone()),
            differences: Vec::new(),
            special_values: Vec::new(),
            reference_errors: Vec::new(),
        }
    });
    rows.collect()
}

/// A candidate's samples, each with the baseline's of its round.
fn paired_samples(rounds: &[Round], candidate: usize, baseline: usize, set_aside: &[usize]) -> Vec<PairedSample> {
    let paired = rounds.iter().enumerate().filter_map(|(index, round)| {
        Some(PairedSample {
            round: index,
            epoch: round.epoch,
            ns: round.sample_ns(candidate)?,
            baseline_ns: round.sample_ns(baseline)?,
            is_counted: !set_aside.contains(&index),
        })
    });
    paired.collect()
}
