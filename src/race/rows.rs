//! What a race says about each candidate.

use super::evidence::JobEvidence;
use super::{CandidateOutcome, CandidateResult, CandidateTimes, PairedSample};
use crate::array::ComparedBy;
use crate::config::Config;
use crate::decision::{Judgement, Round};
use crate::search::ExpectedRatio;

/// One row per candidate of a job; some share another's program.
pub(crate) fn candidate_results(
    configs: &[Config],
    same_as: &[Option<usize>],
    baseline: usize,
    judgement: &Judgement,
    evidence: &JobEvidence,
    left: &[(usize, ExpectedRatio)],
) -> Vec<CandidateResult> {
    // predicted relative to the best, converted to the baseline
    let ratios = judgement.candidates.iter().flatten().map(|verdict| verdict.ratio);
    let best = ratios.min_by(f64::total_cmp).unwrap_or(1.0);
    let expected = |candidate: usize| {
        let (_, expected) = left.iter().find(|(other, _)| *other == candidate)?;
        Some(expected.scaled(best))
    };
    // of a candidate within the tolerance they are of no interest
    let needs_reason = |by: &ComparedBy| *by > ComparedBy::Tolerance;
    let differences_of = |own: usize| {
        let found = evidence.differences.get(&own).filter(|_| evidence.compared_by.get(&own).is_some_and(needs_reason));
        found.cloned().unwrap_or_default()
    };
    let decided = evidence.to_decision(configs.len(), baseline);
    let set_aside = &judgement.race_state.disturbance.set_aside;
    let rows = configs.iter().enumerate().map(|(index, config)| {
        let shared = same_as.get(index).copied().flatten();
        let own = shared.unwrap_or(index);
        let verdict = judgement.candidates.get(own).and_then(Option::as_ref);
        let failure = evidence.failures.get(&own).cloned();
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
        let figures = evidence.figures(index).or_else(|| evidence.figures(own));
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
            differences: differences_of(own),
            special_values: Vec::new(),
            reference_errors: evidence.reference_errors.get(&own).cloned().unwrap_or_default(),
            compared_by: evidence.compared_by.get(&own).copied(),
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
