//! What fresh processes make of a race: its winner, a rival that they show to be better, or the baseline.
//!
//! The process that chose may have met a state of the machine in which another config is the fastest than elsewhere. So
//! the next best configs, the winner's rivals, are measured beside it in each fresh process. They and the winner are
//! the finalists.
//!
//! The winner was chosen before those processes, so it needs the evidence of one question. A rival is chosen by them.
//! It needs the same evidence if the winner has it, too: one that gains nothing would have to look better than a gain.
//! If the winner has not, it needs as many times that evidence as there are finalists (Bonferroni).

use super::judge::{Judgement, NO_LOSS};
use super::process_ratio::ProcessRatio;
use super::process_spread::ProcessSpread;
use super::processes::{ProcessOutcome, ProcessQuestion, ProcessVerdict};

/// Rivals of a winner, at most.
const MOST_RIVALS: usize = 3;
/// A rival takes longer than the winner by at most so many standard deviations of a ratio between processes.
const BEHIND: f64 = 8.0;
/// Fewest processes that say which of two finalists is better.
const LEAST_PAIRS: usize = 3;
/// A finalist may be better than the best one as long as that many standard errors of their ratio allow it.
const DOUBT: f64 = 2.0;

/// A finalist, and the fresh processes that measured it.
pub type Finalist = (usize, Vec<ProcessRatio>);

/// The winner of a race and its rivals: the best others of the process that chose, whether they still competed or not.
pub fn finalists(judgement: &Judgement, competing: &[usize], baseline: usize, spread: ProcessSpread) -> Vec<usize> {
    let ratio = |candidate: usize| Some(judgement.candidates.get(candidate)?.as_ref()?.ratio);
    let winner = judgement.winner;
    // one that gains nothing there is no rival
    let most = ratio(winner).map_or(0.0, |ratio| ratio * (BEHIND * spread.deviation).exp()).min(1.0);
    let others = competing.iter().copied().filter(|&candidate| candidate != baseline && candidate != winner);
    let mut rivals: Vec<(f64, usize)> = others
        .filter_map(|candidate| Some((ratio(candidate)?, candidate)))
        .filter(|(ratio, _)| *ratio < most)
        .collect();
    rivals.sort_by(|a, b| a.0.total_cmp(&b.0));
    std::iter::once(winner).chain(rivals.into_iter().take(MOST_RIVALS).map(|(_, candidate)| candidate)).collect()
}

/// What fresh processes are asked about finalists.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Final<'a> {
    /// What a winner must show.
    pub question: ProcessQuestion,
    /// How much a ratio varies between processes, each as likely.
    pub spreads: &'a [ProcessSpread],
    /// What each candidate's runs need, if known.
    pub temporary_bytes: &'a [Option<u64>],
    /// Whether no further process follows.
    pub is_last: bool,
}

/// What fresh processes say about finalists.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FinalVerdict {
    /// The finalist to publish if it is confirmed; otherwise the winner.
    pub candidate: usize,
    /// Its outcome.
    pub outcome: ProcessOutcome,
    /// What its processes say together, if there are any.
    pub verdict: Option<ProcessVerdict>,
}

impl<'a> Final<'a> {
    /// A question that may be answered by more processes.
    pub fn new(question: ProcessQuestion, spreads: &'a [ProcessSpread], temporary_bytes: &'a [Option<u64>]) -> Self {
        Self { question, spreads, temporary_bytes, is_last: false }
    }

    /// The same, for good.
    #[must_use]
    pub fn is_last(self, is_last: bool) -> Self {
        Self { is_last, ..self }
    }

    /// Judges finalists, the winner first; `None` if there are none.
    pub fn judge(&self, finalists: &[Finalist]) -> Option<FinalVerdict> {
        let (winner, own) = finalists.first()?;
        let verdict = self.question.judge(own, self.spreads);
        let outcome = verdict.map_or(ProcessOutcome::Open, |verdict| verdict.outcome);
        let alone = match outcome {
            ProcessOutcome::Confirmed => self.question,
            _ => ProcessQuestion { needed: self.question.needed * finalists.len() as f64, ..self.question },
        };
        let judged: Vec<(&Finalist, ProcessVerdict)> =
            finalists.iter().filter_map(|one| Some((one, alone.judge(&one.1, self.spreads)?))).collect();
        let of = |outcome| judged.iter().filter(move |(_, verdict)| verdict.outcome == outcome);
        let confirmed: Vec<&(&Finalist, ProcessVerdict)> = of(ProcessOutcome::Confirmed).collect();
        if let Some(best) = confirmed.iter().min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio)) {
            let is_open = !self.is_last && finalists.iter().any(|other| self.may_be_better(other, best.0));
            let (candidate, verdict) = self.canonical(&confirmed, best);
            let outcome = if is_open { ProcessOutcome::Open } else { ProcessOutcome::Confirmed };
            return Some(FinalVerdict { candidate, outcome, verdict: Some(verdict) });
        }
        let is_hopeful = |(_, verdict): &(&Finalist, ProcessVerdict)| verdict.ratio <= 1.0 - self.question.least;
        let outcome = match (outcome, &verdict) {
            (_, Some(verdict)) if self.is_last => self.question.at_last(verdict),
            (ProcessOutcome::Refuted, _) if of(ProcessOutcome::Open).any(is_hopeful) => ProcessOutcome::Open,
            (outcome, _) => outcome,
        };
        Some(FinalVerdict { candidate: *winner, outcome, verdict })
    }

    /// Whether a finalist may be better than the best one by more than matters.
    fn may_be_better(&self, other: &Finalist, best: &Finalist) -> bool {
        other.0 != best.0
            && self.loss(other, best).is_some_and(|(loss, error)| loss < DOUBT * error - self.question.least)
    }

    /// Of those that lose nothing that matters against the best, the one with the smallest memory if that is known of
    /// all, and of several such the first in the order of the space.
    fn canonical(
        &self,
        confirmed: &[&(&Finalist, ProcessVerdict)],
        best: &(&Finalist, ProcessVerdict),
    ) -> (usize, ProcessVerdict) {
        let is_equal = |(one, _): &(&Finalist, ProcessVerdict)| {
            let loss = self.loss(one, best.0);
            one.0 == best.0.0 || loss.is_some_and(|(loss, error)| loss <= NO_LOSS.max(error.min(self.question.least)))
        };
        let equals = confirmed.iter().filter(|one| is_equal(one));
        let needs = |candidate: usize| self.temporary_bytes.get(candidate).copied().flatten();
        let is_known = equals.clone().all(|one| needs(one.0.0).is_some());
        let first = equals.min_by_key(|one| (needs(one.0.0).filter(|_| is_known), one.0.0));
        let (finalist, verdict) = first.map_or(best, |one| *one);
        (finalist.0, *verdict)
    }

    /// The logarithm of a finalist's time over another one's, as the processes that measured both say, and its standard
    /// error.
    fn loss(&self, one: &Finalist, other: &Finalist) -> Option<(f64, f64)> {
        let in_both = |own: &ProcessRatio| {
            let other = other.1.iter().find(|other| other.epoch == own.epoch)?;
            Some(own.over(other.ratio))
        };
        let pairs: Vec<ProcessRatio> = one.1.iter().filter_map(in_both).collect();
        let count = pairs.len() as f64;
        let spread = self.spreads.first()?.and(&pairs);
        let mean = pairs.iter().map(ProcessRatio::log).sum::<f64>() / count;
        (pairs.len() >= LEAST_PAIRS && mean.is_finite()).then(|| (mean, spread.deviation / count.sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::judge;
    use super::super::paired::Round;
    use super::super::rules::DecisionRules;
    use super::*;

    const SPREADS: [ProcessSpread; 1] = [ProcessSpread::QUIET];

    fn finalist(candidate: usize, ratios: &[f64]) -> Finalist {
        let process = |(epoch, ratio): (u32, &f64)| ProcessRatio::new(epoch, *ratio, 0.002);
        (candidate, (0..).zip(ratios).map(process).collect())
    }

    fn judged(finalists: &[Finalist], is_last: bool) -> (usize, ProcessOutcome) {
        let question = ProcessQuestion::gain(&DecisionRules::default());
        let found = Final::new(question, &SPREADS, &[]).is_last(is_last).judge(finalists).unwrap();
        (found.candidate, found.outcome)
    }

    #[test]
    fn the_rivals_are_the_next_best_of_the_process_that_chose() {
        let times = [1.0, 0.5, 0.52, 0.56, 0.99, 0.54, 0.53];
        let rounds: Vec<Round> = (0..20)
            .map(|round| Round::new(0, times.map(|time| Some(time * (1.0 + 1e-3 * f64::from(round % 3)))).into()))
            .collect();
        let all: Vec<usize> = (0..times.len()).collect();
        let judgement = judge(&rounds, times.len(), &all, 0, None, &[], &DecisionRules::default());
        assert_eq!(finalists(&judgement, &all, 0, ProcessSpread::QUIET), [1, 2, 6, 5]);
        // where processes hardly differ, what is behind stays there
        assert_eq!(finalists(&judgement, &all, 0, ProcessSpread::DEVICE_CLOCK), [1, 2]);
        // one that failed is none
        assert_eq!(finalists(&judgement, &[0, 1, 6], 0, ProcessSpread::QUIET), [1, 6]);
    }

    #[test]
    fn what_processes_show_to_be_better_is_published() {
        let (winner, same) = (finalist(3, &[0.80, 0.81, 0.80, 0.80]), finalist(1, &[0.80, 0.80, 0.81, 0.80]));
        assert_eq!(judged(std::slice::from_ref(&winner), false), (3, ProcessOutcome::Confirmed));
        assert_eq!(
            judged(&[winner.clone(), finalist(2, &[0.7, 0.71, 0.7, 0.7])], false),
            (2, ProcessOutcome::Confirmed)
        );
        // of equals the first in the order of the space, and a gain below what matters is none
        assert_eq!(judged(&[winner.clone(), same], false), (1, ProcessOutcome::Confirmed));
        assert_eq!(
            judged(&[winner.clone(), finalist(4, &[0.797, 0.807, 0.797, 0.797])], false),
            (3, ProcessOutcome::Confirmed)
        );
        // the one that needs less memory comes before
        let question = ProcessQuestion::gain(&DecisionRules::default());
        let bytes = [None, Some(9), None, Some(4)];
        let equals = [winner, finalist(1, &[0.80, 0.80, 0.81, 0.80])];
        assert_eq!(Final::new(question, &SPREADS, &bytes).judge(&equals).unwrap().candidate, 3);
        assert_eq!(Final::new(question, &SPREADS, &bytes).judge(&[]), None);
    }

    #[test]
    fn a_rival_of_a_winner_that_is_refuted_needs_more_evidence() {
        let lucky = [1.03, 1.02, 1.03, 1.02];
        let rival = [0.8; 4];
        // three processes confirm a winner, and a rival of two finalists needs twice as much
        assert_eq!(judged(&[finalist(3, &lucky[..3]), finalist(2, &rival[..3])], false), (3, ProcessOutcome::Open));
        assert_eq!(judged(&[finalist(3, &lucky), finalist(2, &rival)], false), (2, ProcessOutcome::Confirmed));
        assert_eq!(judged(&[finalist(3, &lucky), finalist(2, &[1.0; 4])], false), (3, ProcessOutcome::Refuted));
        assert_eq!(judged(&[finalist(3, &[]), finalist(2, &[])], true), (3, ProcessOutcome::Open));
    }

    #[test]
    fn finalists_that_vary_are_measured_again() {
        let (winner, other) = (finalist(3, &[0.7, 0.9, 0.8, 0.7]), finalist(1, &[0.8, 0.75, 0.7, 0.8]));
        let both = [winner, other];
        assert_eq!(judged(&both, false).1, ProcessOutcome::Open);
        assert_eq!(judged(&both, true), (1, ProcessOutcome::Confirmed));
    }
}
