//! The rounds of one job, from the log and from this run, in the form that `decision` takes.

use std::collections::{BTreeMap, BTreeSet};

use crate::array::ComparedBy;
use crate::counted::counted;
use crate::decision::Round;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::ledger::{Ledger, LedgerError};
use crate::samples::{CandidateSamples, JobHistory, JobRecord, LogRecord, ProgramFigures, RoundRecord};
use crate::stats::median;

use super::contention::CONTENDED;
use super::{JobIdentity, OutputDifference, ReferenceError};

/// Minimum number of samples for a statement about first runs.
const MIN_TO_SHORTEN: usize = 8;
/// From a median of distances from the middle to a standard deviation.
const TO_DEVIATION: f64 = 1.482_6;
/// Half the width, in standard deviations of one value, of a 95% interval of a median: 1.96 √(π/2), over √n.
const MEDIAN_WIDTH: f64 = 2.456_5;

/// The rounds that one measuring process took, in order. All share the effect of its memory layout.
#[derive(Debug)]
struct ProcessRounds {
    /// The process.
    epoch: u32,
    rounds: Vec<RoundRecord>,
    /// Whether it confirms what others chose.
    is_confirming: bool,
}

/// What is known of one job, over all runs: rounds by measuring process, and failures.
#[derive(Debug, Default)]
pub(crate) struct JobEvidence {
    processes: Vec<ProcessRounds>,
    /// Whether the log knows the job.
    is_logged: bool,
    /// Dropped candidates.
    pub(crate) failures: BTreeMap<usize, Failure>,
    /// Notes on the baseline's outputs, from the comparison in this run.
    pub(crate) notes: Vec<String>,
    /// Candidates that are not compiled, or not yet.
    left: BTreeSet<usize>,
    /// What each candidate compiled to, if the timer knows.
    pub(crate) executables: BTreeMap<usize, Digest>,
    /// How the outputs of each candidate that was compared differ from the baseline's.
    pub(crate) differences: BTreeMap<usize, Vec<OutputDifference>>,
    /// How far the outputs of a candidate are from those of the program in `f64`, if that decided.
    pub(crate) reference_errors: BTreeMap<usize, Vec<ReferenceError>>,
    /// By which rule the outputs of each candidate that is right were accepted.
    pub(crate) compared_by: BTreeMap<usize, ComparedBy>,
    /// Candidates whose executable is another one's.
    pub(crate) same: BTreeMap<usize, usize>,
    /// What is known about each candidate's program besides its times.
    figures: BTreeMap<usize, ProgramFigures>,
    /// Candidates whose figures are not in the log yet.
    unlogged: BTreeSet<usize>,
}

impl JobEvidence {
    /// What the log holds of a job; nothing if it is measured afresh.
    pub(crate) fn stored(ledger: &Ledger, job: Digest, is_fresh: bool) -> Result<Self, LedgerError> {
        Ok(if is_fresh { Self::default() } else { Self::from_history(ledger.history(job)?) })
    }

    /// The same from its history. Rounds that were cut short by a failure stay: their pairs are as good as any.
    pub(crate) fn from_history(history: JobHistory) -> Self {
        let JobHistory { job, rounds, failures, .. } = history;
        let failures = failures.into_iter().map(|record| (record.candidate, record.failure)).collect();
        let figures = rounds.iter().flat_map(|round| &round.programs).map(|one| (one.candidate, one.clone())).collect();
        let mut known = Self { is_logged: job.is_some(), failures, figures, ..Self::default() };
        rounds.into_iter().for_each(|round| known.push(round));
        known
    }

    /// Writes the job to the log before its first round, unless the log knows it.
    pub(crate) fn log_job(&mut self, ledger: &Ledger, job: impl FnOnce() -> JobRecord) -> Result<(), LedgerError> {
        if !self.is_logged {
            ledger.append(&LogRecord::Job(Box::new(job())))?;
            self.is_logged = true;
        }
        Ok(())
    }

    /// The rounds of the processes that choose.
    fn rounds(&self) -> impl DoubleEndedIterator<Item = &RoundRecord> {
        self.processes.iter().filter(|process| !process.is_confirming).flat_map(|process| &process.rounds)
    }

    /// Records what is known about a prepared program.
    pub(crate) fn tell(&mut self, figures: ProgramFigures) {
        let candidate = figures.candidate;
        let is_known = self.figures.get(&candidate) == Some(&figures);
        if !is_known && (figures.temporary_bytes.is_some() || figures.work.is_some()) {
            self.figures.insert(candidate, figures);
            self.unlogged.insert(candidate);
        }
    }

    /// Records to write to the log with the next round.
    pub(crate) fn take_unlogged(&mut self) -> Vec<ProgramFigures> {
        let unlogged = std::mem::take(&mut self.unlogged);
        unlogged.iter().filter_map(|candidate| self.figures.get(candidate).cloned()).collect()
    }

    /// What is known about a candidate's program besides its times.
    pub(crate) fn figures(&self, candidate: usize) -> Option<&ProgramFigures> {
        self.figures.get(&candidate)
    }

    /// Each candidate's temporary bytes of a run (neither arguments nor results), if known.
    pub(crate) fn temporary_bytes(&self, candidates: usize) -> Vec<Option<u64>> {
        (0..candidates).map(|candidate| self.figures.get(&candidate)?.temporary_bytes).collect()
    }

    /// Whether nothing was measured yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Whether processes confirmed anything yet.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.processes.iter().any(|process| process.is_confirming)
    }

    /// Adds a round to its process.
    pub(crate) fn push(&mut self, round: RoundRecord) {
        let is_confirming = round.confirming;
        let is_same = |last: &&mut ProcessRounds| last.epoch == round.epoch && last.is_confirming == is_confirming;
        match self.processes.last_mut().filter(is_same) {
            Some(process) => process.rounds.push(round),
            None => self.processes.push(ProcessRounds { epoch: round.epoch, rounds: vec![round], is_confirming }),
        }
    }

    /// The number for the next round.
    pub(crate) fn next_round(&self) -> u32 {
        let rounds = self.processes.iter().flat_map(|process| &process.rounds);
        rounds.map(|round| round.round.saturating_add(1)).max().unwrap_or(0)
    }

    /// The number for the next measuring process.
    pub(crate) fn next_epoch(&self) -> u32 {
        self.processes.iter().map(|process| process.epoch.saturating_add(1)).max().unwrap_or(0)
    }

    /// Candidates with programs of their own that did not fail and are not skipped.
    pub(crate) fn competing(&self, identity: &JobIdentity) -> Vec<usize> {
        let is_out = |candidate: &usize| {
            [self.failures.contains_key(candidate), self.left.contains(candidate), self.same.contains_key(candidate)]
                .contains(&true)
        };
        identity.distinct().into_iter().filter(|candidate| !is_out(candidate)).collect()
    }

    /// Among candidates that compiled to the same executable, the first one compiled competes.
    pub(crate) fn join(&mut self, candidate: usize, executable: Digest) {
        let is_same = |&(&other, own): &(&usize, &Digest)| {
            other != candidate && *own == executable && !self.same.contains_key(&other)
        };
        if let Some((&first, _)) = self.executables.iter().find(is_same) {
            self.same.insert(candidate, first);
        }
    }

    /// Whether one of these was never measured.
    pub(crate) fn has_unseen(&self, candidates: &[usize]) -> bool {
        let seen = self.seen();
        candidates.iter().any(|candidate| !seen.contains(candidate))
    }

    /// Those that were measured in the processes that chose.
    pub(crate) fn seen(&self) -> BTreeSet<usize> {
        self.rounds().flat_map(|round| &round.samples).map(|sample| sample.candidate).collect()
    }

    /// Skips every candidate without a round, except for the baseline, until it is [admitted](Self::admit).
    pub(crate) fn leave_unseen(&mut self, identity: &JobIdentity) {
        let seen = self.seen();
        let is_left = |candidate: &usize| *candidate != identity.baseline && !seen.contains(candidate);
        self.left = self.competing(identity).into_iter().filter(is_left).collect();
    }

    /// Skips candidates in this run.
    pub(crate) fn leave(&mut self, candidates: impl IntoIterator<Item = usize>) {
        self.left.extend(candidates);
    }

    /// How many candidates are skipped.
    pub(crate) fn count_left(&self) -> usize {
        self.left.len()
    }

    /// Lets candidates compete.
    pub(crate) fn admit(&mut self, candidates: &[usize]) {
        self.left.retain(|candidate| !candidates.contains(candidate));
    }

    /// Whether a candidate is not compiled, or not yet.
    pub(crate) fn is_left(&self, candidate: usize) -> bool {
        self.left.contains(&candidate)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.rounds().count() as u32
    }

    /// The fastest run of a candidate, nanoseconds.
    pub(crate) fn fastest_run(&self, candidate: usize) -> Option<u64> {
        let samples = self.rounds().flat_map(|round| &round.samples);
        samples.filter(|sample| sample.candidate == candidate).flat_map(|sample| &sample.ns).copied().min()
    }

    /// The fastest run of a candidate over that of another one.
    pub(crate) fn fastest_ratio(&self, candidate: usize, to: usize) -> Option<f64> {
        let fastest = |candidate| self.fastest_run(candidate).filter(|ns| *ns > 0).map(|ns| ns as f64);
        Some(fastest(candidate)? / fastest(to)?)
    }

    /// The sum of the last round's samples, nanoseconds.
    pub(crate) fn last_round_ns(&self) -> Option<u64> {
        let samples = self.rounds().next_back()?.samples.iter().flat_map(|sample| &sample.ns);
        Some(samples.fold(0, |sum: u64, ns| sum.saturating_add(*ns)))
    }

    /// Whether the first of this many runs, which finds the caches as another program left them, is at most this part
    /// slower than the others.
    pub(crate) fn is_first_run_as_good(&self, runs: u32, within: f64) -> bool {
        let samples = self.rounds().flat_map(|round| &round.samples);
        let excess = samples.filter(|sample| sample.ns.len() == runs as usize).filter_map(|sample| {
            let (first, others) = sample.ns.split_first()?;
            let others: Vec<f64> = others.iter().map(|&ns| ns as f64).collect();
            Some(*first as f64 / median(&others).filter(|ns| *ns > 0.0)? - 1.0)
        });
        let excess: Vec<f64> = excess.collect();
        excess.len() >= MIN_TO_SHORTEN && median(&excess).is_some_and(|excess| excess <= within)
    }

    /// Whether the first of this many runs ranks candidates as their fastest does, as far as known: it costs each of them the
    /// same part of its time, to this logarithm. A program that uses several cores may lose half of it, and others nothing.
    pub(crate) fn first_run_is_fair(&self, runs: u32, candidates: &[usize], within: f64) -> bool {
        let costs = |&candidate: &usize| {
            let samples = self.rounds().flat_map(|round| &round.samples);
            let own = samples.filter(|sample| sample.candidate == candidate && sample.ns.len() == runs as usize);
            let cost = |sample: &CandidateSamples| Some((*sample.ns.first()? as f64 / fastest(sample)?).ln());
            own.filter_map(cost).filter(|cost: &f64| cost.is_finite()).collect::<Vec<f64>>()
        };
        let costs: Vec<Vec<f64>> = candidates.iter().map(costs).collect();
        let middles: Vec<(f64, &Vec<f64>)> = costs.iter().filter_map(|own| Some((median(own)?, own))).collect();
        let off: Vec<f64> =
            middles.iter().flat_map(|(middle, own)| own.iter().map(move |cost| (cost - middle).abs())).collect();
        let usual = median(&middles.iter().map(|(middle, _)| *middle).collect::<Vec<_>>()).unwrap_or(0.0);
        let deviation = median(&off).unwrap_or(0.0) * TO_DEVIATION;
        let is_usual = |(middle, own): &(f64, &Vec<f64>)| {
            (middle - usual).abs() <= within + MEDIAN_WIDTH * deviation / (own.len() as f64).sqrt()
        };
        middles.iter().all(is_usual)
    }

    /// One sample per candidate and round: the fastest of its runs, since disturbances only ever add time. Dropped
    /// candidates have none. The baseline at both ends of a round is its sentinel.
    pub(crate) fn to_decision(&self, candidates: usize, baseline: usize) -> Vec<Round> {
        self.rounds().map(|round| self.to_round(round, candidates, baseline)).collect()
    }

    /// The same of the rounds of processes that confirm what others chose.
    pub(crate) fn confirming_to_decision(&self, candidates: usize, baseline: usize) -> Vec<Round> {
        let confirming = self.processes.iter().filter(|process| process.is_confirming);
        confirming.flat_map(|one| &one.rounds).map(|round| self.to_round(round, candidates, baseline)).collect()
    }

    /// The same of the last rounds of all processes, whatever they measure for.
    pub(crate) fn recent_to_decision(&self, most: usize, candidates: usize, baseline: usize) -> Vec<Round> {
        let rounds = self.processes.iter().flat_map(|process| &process.rounds);
        let skipped = rounds.clone().count().saturating_sub(most);
        rounds.skip(skipped).map(|round| self.to_round(round, candidates, baseline)).collect()
    }

    fn to_round(&self, round: &RoundRecord, candidates: usize, baseline: usize) -> Round {
        let (inner, sentinel_ns) = match round.samples.as_slice() {
            [begin, inner @ .., end]
                if begin.candidate == baseline
                    && end.candidate == baseline
                    && inner.iter().any(|sample| sample.candidate == baseline) =>
            {
                (inner, fastest(begin).zip(fastest(end)).map(|(begin, end)| [begin, end]))
            }
            samples => (samples, None),
        };
        let mut samples_ns = vec![None; candidates];
        for sample in inner {
            let is_out = self.failures.contains_key(&sample.candidate);
            if let (Some(slot), false) = (samples_ns.get_mut(sample.candidate), is_out) {
                *slot = fastest(sample);
            }
        }
        // the median of the baseline's three samples, because all others are compared with it
        if let (Some([begin, end]), Some(Some(own))) = (sentinel_ns, samples_ns.get_mut(baseline)) {
            *own = own.clamp(begin.min(end), begin.max(end));
        }
        let is_contended = round.contention.is_some_and(|cores| cores >= CONTENDED);
        Round::new(round.epoch, samples_ns).sentinel_ns(sentinel_ns).is_contended(is_contended)
    }

    /// Candidates with programs of their own that cannot run on this device at all, never including the baseline. That
    /// is no failure: there is nothing to fix or to retry.
    fn impossible<'a>(&'a self, identity: &'a JobIdentity) -> impl Iterator<Item = usize> + 'a {
        let others = identity.distinct().into_iter().filter(|&candidate| candidate != identity.baseline);
        let is_proven = |candidate: &usize, failure| identity.not_lowered.is_proven(*candidate, failure);
        others
            .filter(move |candidate| self.failures.get(candidate).is_some_and(|failure| is_proven(candidate, failure)))
    }

    /// How many programs can run here, as far as known; those that failed for other reasons are included.
    pub(crate) fn count_possible(&self, identity: &JobIdentity) -> usize {
        identity.distinct().len() - self.impossible(identity).count()
    }

    /// Why there was nothing to compare the baseline with, if so.
    pub(crate) fn why_alone(&self, identity: &JobIdentity) -> Option<String> {
        if self.count_possible(identity) > 1 {
            return None;
        }
        let mut others = self.impossible(identity).peekable();
        Some(match others.peek().and_then(|first| self.failures.get(first)) {
            Some(Failure { message, .. }) => {
                let count = counted(others.count(), "config");
                format!("no other config can run here ({count} without a program): {message}")
            }
            None if identity.same_as.len() == 1 => "there is only one config".to_owned(),
            None => "every candidate is the same program".to_owned(),
        })
    }
}

fn fastest(sample: &CandidateSamples) -> Option<f64> {
    sample.ns.iter().min().map(|&ns| ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    #[test]
    fn a_failed_candidate_loses_its_samples_and_the_ends_are_the_sentinel() {
        let sample = |candidate, ns: &[u64]| CandidateSamples { candidate, ns: ns.to_vec() };
        let round = |round, samples| RoundRecord::new(Digest::of(b""), round, round, "replay".into(), samples);
        let mut rounds = JobEvidence::default();
        rounds.push(round(0, vec![sample(1, &[30, 10, 20]), sample(0, &[5])]));
        rounds.push(round(1, vec![sample(0, &[7])]));
        assert_eq!((rounds.next_round(), rounds.next_epoch()), (2, 2));
        // however few of its rounds count
        assert!(!rounds.has_unseen(&[0, 1]) && rounds.has_unseen(&[0, 2]));
        assert_eq!(rounds.to_decision(2, 0)[0].samples_ns, [Some(5.0), Some(10.0)]);
        assert_eq!(rounds.to_decision(2, 0)[0].sentinel_ns, None);
        let whole = vec![sample(0, &[6]), sample(0, &[5]), sample(1, &[9]), sample(0, &[8])];
        rounds.push(round(2, whole));
        let decided = rounds.to_decision(2, 0);
        assert_eq!(
            (decided[2].samples_ns.as_slice(), decided[2].sentinel_ns),
            (&[Some(6.0), Some(9.0)][..], Some([6.0, 8.0]))
        );
        // an interrupted round has no end
        rounds.push(round(3, vec![sample(0, &[6]), sample(0, &[7]), sample(1, &[9])]));
        let decided = rounds.to_decision(2, 0);
        assert_eq!((decided[3].samples_ns.as_slice(), decided[3].sentinel_ns), (&[Some(7.0), Some(9.0)][..], None));
        rounds.push(round(u32::MAX, vec![]));
        assert_eq!((rounds.next_round(), rounds.next_epoch()), (u32::MAX, u32::MAX), "a log may say anything");
        rounds.failures.insert(1, Failure::new(FailureKind::Crash, "gone"));
        assert_eq!(rounds.to_decision(2, 0)[0].samples_ns, [Some(5.0), None]);
    }

    #[test]
    fn the_fastest_runs_may_be_of_different_rounds() {
        let sample = |candidate, ns: &[u64]| CandidateSamples { candidate, ns: ns.to_vec() };
        let round = |round, samples| RoundRecord::new(Digest::of(b""), 0, round, "replay".into(), samples);
        let mut rounds = JobEvidence::default();
        rounds.push(round(0, vec![sample(0, &[50]), sample(1, &[90, 80]), sample(2, &[0])]));
        assert_eq!((rounds.fastest_run(1), rounds.fastest_ratio(1, 0)), (Some(80), Some(1.6)));
        rounds.push(round(1, vec![sample(0, &[60]), sample(1, &[25])]));
        assert_eq!((rounds.fastest_run(0), rounds.fastest_ratio(1, 0)), (Some(50), Some(0.5)));
        assert_eq!((rounds.fastest_ratio(2, 0), rounds.fastest_ratio(3, 0)), (None, None), "a time of zero is none");
    }
}
