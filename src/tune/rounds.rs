//! The rounds of one job: what the log held, what this run adds, as `decision` wants them.

use std::collections::BTreeMap;

use crate::decision::Round;
use crate::samples::{CandidateSamples, JobHistory, RoundRecord};
use crate::stats::median;
use crate::timer::{Failure, FailureKind};

/// Rounds and failures of one job, over all runs.
#[derive(Debug, Default)]
pub(super) struct JobRounds {
    rounds: Vec<RoundRecord>,
    /// Candidates that are out.
    pub(super) failures: BTreeMap<usize, Failure>,
}

impl JobRounds {
    /// What the log holds. Rounds that were cut short by a failure stay: their pairs are as good as any.
    pub(super) fn from_history(history: JobHistory) -> Self {
        let failures = history.failures.into_iter().map(|failure| {
            let kind = serde_json::from_value(serde_json::Value::String(failure.kind)).unwrap_or(FailureKind::Execute);
            (failure.candidate, Failure::new(kind, failure.message))
        });
        Self { rounds: history.rounds, failures: failures.collect() }
    }

    /// Whether nothing was measured yet.
    pub(super) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Adds a round.
    pub(super) fn push(&mut self, round: RoundRecord) {
        self.rounds.push(round);
    }

    /// The number for the next round.
    pub(super) fn next_round(&self) -> u32 {
        self.rounds.iter().map(|round| round.round.saturating_add(1)).max().unwrap_or(0)
    }

    /// The number for the next measuring process.
    pub(super) fn next_epoch(&self) -> u32 {
        self.rounds.iter().map(|round| round.epoch.saturating_add(1)).max().unwrap_or(0)
    }

    /// Rounds in which every one of these candidates was measured.
    pub(super) fn complete(&self, candidates: &[usize]) -> u32 {
        let has = |round: &RoundRecord, wanted: usize| round.samples.iter().any(|sample| sample.candidate == wanted);
        let complete = |round: &&RoundRecord| candidates.iter().all(|&candidate| has(round, candidate));
        self.rounds.iter().filter(complete).count() as u32
    }

    /// One sample a candidate and round: the median of its runs. Candidates that are out have none.
    pub(super) fn to_decision(&self, candidates: usize) -> Vec<Round> {
        self.rounds
            .iter()
            .map(|round| {
                let mut samples_ns = vec![None; candidates];
                for CandidateSamples { candidate, ns } in &round.samples {
                    if let (Some(slot), false) = (samples_ns.get_mut(*candidate), self.failures.contains_key(candidate))
                    {
                        *slot = median(&ns.iter().map(|&ns| ns as f64).collect::<Vec<_>>());
                    }
                }
                Round { epoch: round.epoch, samples_ns }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    #[test]
    fn a_failed_candidate_loses_its_samples_and_a_cut_round_is_not_complete() {
        let sample = |candidate, ns: &[u64]| CandidateSamples { candidate, ns: ns.to_vec() };
        let round = |round, samples| RoundRecord {
            job: Digest::of(b""),
            epoch: round,
            round,
            source: "replay".into(),
            samples,
        };
        let mut rounds = JobRounds::default();
        rounds.push(round(0, vec![sample(1, &[30, 10, 20]), sample(0, &[5])]));
        rounds.push(round(1, vec![sample(0, &[7])]));
        assert_eq!((rounds.complete(&[0, 1]), rounds.complete(&[0])), (1, 2));
        assert_eq!((rounds.next_round(), rounds.next_epoch()), (2, 2));
        assert_eq!(rounds.to_decision(2)[0].samples_ns, [Some(5.0), Some(20.0)]);
        rounds.push(round(u32::MAX, vec![]));
        assert_eq!((rounds.next_round(), rounds.next_epoch()), (u32::MAX, u32::MAX), "a log may say anything");
        rounds.failures.insert(1, Failure::new(FailureKind::Crash, "gone"));
        assert_eq!(rounds.to_decision(2)[0].samples_ns, [Some(5.0), None]);
    }
}
