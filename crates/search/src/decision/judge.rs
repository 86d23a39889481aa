//! The verdict on one invocation: winner, interval, tie set.

use serde::{Deserialize, Serialize};

use super::evidence::anytime_interval;
use super::field::RaceField;
use super::noise::RoundNoise;
use super::paired::{Round, paired_ratios};
use super::race::{DropReason, RaceState, counted, race};
use super::rules::DecisionRules;
use crate::stats::{Interval, median};

/// A loss against the best config below this is negligible.
pub(super) const NO_LOSS: f64 = 0.01;

/// What is known about one candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CandidateVerdict {
    /// Paired rounds.
    pub rounds: usize,
    /// Median of its samples, nanoseconds.
    pub median_ns: f64,
    /// Median of its time over the baseline's, round by round; below one is faster.
    pub ratio: f64,
    /// Interval of that median.
    pub interval: Interval,
    /// Whether it is within the resolution of the best candidate.
    pub tied_with_best: bool,
    /// Why it was dropped, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DropReason>,
}

/// How an invocation was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JudgedOutcome {
    /// A candidate beats the baseline by the minimum improvement, by more than the resolution, and significantly.
    Faster,
    /// Nothing does: the baseline stays.
    BaselineKept,
    /// A candidate is implausibly fast: it does other work, or none.
    NotBelieved,
    /// Too few paired rounds of the baseline or of every candidate.
    Undecided,
}

/// The verdict.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Judgement {
    /// How it was decided.
    pub outcome: JudgedOutcome,
    /// Index of the config to use: the winner, or the baseline.
    pub winner: usize,
    /// One line that says why.
    pub reason: String,
    /// One per candidate; `None` if it has too few paired rounds.
    pub candidates: Vec<Option<CandidateVerdict>>,
    /// Where the race ended.
    pub race_state: RaceState,
}

impl Judgement {
    /// Makes another one the winner, which ties with none.
    pub fn publish(&mut self, winner: usize) {
        self.winner = winner;
        for (index, verdict) in self.candidates.iter_mut().enumerate() {
            verdict.iter_mut().for_each(|verdict| verdict.tied_with_best = index == winner);
        }
    }

    /// Indices of all candidates that cannot be distinguished from the best one, the best included.
    pub fn tie_set(&self) -> Vec<usize> {
        let tied = |verdict: &Option<CandidateVerdict>| verdict.as_ref().is_some_and(|verdict| verdict.tied_with_best);
        self.candidates.iter().enumerate().filter(|(_, verdict)| tied(verdict)).map(|(index, _)| index).collect()
    }
}

/// Decides one invocation of `candidates` candidates, of which those in `competing` have times of their own.
///
/// The best candidate has the least median ratio to the baseline. It wins when it saves the minimum improvement, more
/// than the resolution, and significantly so. Among those that cannot be distinguished from it, `incumbent`, the config
/// already cached, stays if it wins by the same rule; else, of those that are shown to lose nothing that matters, the
/// one with the smallest memory, and of several such the first in the order of the space. So caches do not flap.
/// `temporary_bytes` has what each candidate's runs need; it counts only if it is known of all that lose nothing.
pub fn judge(
    rounds: &[Round],
    candidates: usize,
    competing: &[usize],
    baseline: usize,
    incumbent: Option<usize>,
    temporary_bytes: &[Option<u64>],
    rules: &DecisionRules,
) -> Judgement {
    let race_state = race(rounds, competing, baseline, rules);
    let seen = counted(rounds, &race_state.disturbance, baseline);
    let field = RaceField { seen: &seen, baseline, competing: competing.len(), rules };
    let verdicts = (0..candidates).map(|candidate| verdict(&field, candidate, &race_state)).collect();
    let mut judging = Judging { field, race_state, verdicts };
    let (outcome, winner, reason) = judging.decide(incumbent, temporary_bytes);
    let Judging { race_state, verdicts: candidates, .. } = judging;
    Judgement { outcome, winner, reason, candidates, race_state }
}

/// A race that is over, while the winner is looked for.
struct Judging<'a> {
    field: RaceField<'a>,
    race_state: RaceState,
    verdicts: Vec<Option<CandidateVerdict>>,
}

impl Judging<'_> {
    /// The outcome, the winner and the reason.
    fn decide(&mut self, incumbent: Option<usize>, temporary_bytes: &[Option<u64>]) -> (JudgedOutcome, usize, String) {
        let (baseline, rules) = (self.field.baseline, self.field.rules);
        if !self.is_known(baseline) {
            return (JudgedOutcome::Undecided, baseline, "too few rounds of the baseline".to_owned());
        }
        let known: Vec<usize> = self.race_state.contenders.iter().copied().filter(|&one| self.is_known(one)).collect();
        let Some(best) = self.field.leader(&known) else {
            return (JudgedOutcome::Undecided, baseline, "too few rounds of every candidate".to_owned());
        };
        self.mark_ties(best);
        let speed_up = self.verdict(best).map_or(1.0, |verdict| 1.0 / verdict.ratio);
        let beats = self.beats(best);
        if beats && speed_up > rules.max_speed_up {
            let most = rules.max_speed_up;
            let reason = format!("{speed_up:.0}× the baseline's speed, and more than {most}× is not believed");
            return (JudgedOutcome::NotBelieved, baseline, reason);
        }
        let stays = |incumbent: &usize| *incumbent != best && self.is_tied(*incumbent) && self.beats(*incumbent);
        if let Some(incumbent) = incumbent.filter(stays) {
            return (JudgedOutcome::Faster, incumbent, "the cached config is as fast as the best".to_owned());
        }
        if !beats {
            return (JudgedOutcome::BaselineKept, baseline, self.why_kept(best, speed_up));
        }
        match self.canonical(best, temporary_bytes) {
            Some((equal, how)) if equal != best && incumbent != Some(best) => {
                (JudgedOutcome::Faster, equal, format!("the {how} of those that are as fast as the best"))
            }
            _ => (JudgedOutcome::Faster, best, "significantly faster than the baseline".to_owned()),
        }
    }

    fn verdict(&self, index: usize) -> Option<&CandidateVerdict> {
        self.verdicts.get(index)?.as_ref()
    }

    /// One that rested while others were measured is shown, and cannot win.
    fn is_known(&self, index: usize) -> bool {
        let has_rounds = |verdict: &CandidateVerdict| verdict.rounds >= self.field.rules.min_rounds;
        self.verdict(index).is_some_and(|verdict| has_rounds(verdict) || is_shown(&self.race_state, index))
    }

    fn mark_ties(&mut self, best: usize) {
        let tied = |loss: f64| loss.exp() <= 1.0 + self.race_state.resolution;
        let equal: Vec<bool> = (0..self.verdicts.len()).map(|index| self.is_shown_equal(index, best)).collect();
        for (index, verdict) in self.verdicts.iter_mut().enumerate() {
            let Some(verdict) = verdict else { continue };
            // a dropped candidate was significantly slower, but its ratio is known less precisely; one that is shown to
            // lose nothing that matters is equal, however sure its small loss is
            let is_left = verdict.dropped.is_none();
            let is_tied = is_left && self.field.difference(index, best).is_some_and(tied);
            verdict.tied_with_best = index == best || is_tied || equal.get(index) == Some(&true);
        }
    }

    fn is_tied(&self, index: usize) -> bool {
        self.verdict(index).is_some_and(|verdict| verdict.tied_with_best)
    }

    fn beats(&self, index: usize) -> bool {
        self.field.beats(index, &self.race_state.noise, self.race_state.resolution)
    }

    /// Of those that are shown to lose less than matters against the best, the one with the smallest memory where that
    /// is known of all, and of several such the first in the order of the space; and which of the two it is.
    fn canonical(&self, best: usize, temporary_bytes: &[Option<u64>]) -> Option<(usize, &'static str)> {
        let is_equal = |index: &usize| *index == best || (self.beats(*index) && self.is_shown_equal(*index, best));
        let mut equals: Vec<usize> = (0..self.verdicts.len()).filter(is_equal).collect();
        let needs = |index: usize| temporary_bytes.get(index).copied().flatten();
        let least: Option<Vec<u64>> = equals.iter().map(|&index| needs(index)).collect();
        let least = least.and_then(|needs| needs.into_iter().min());
        equals.retain(|&index| least.is_none() || needs(index) == least);
        let first = equals.into_iter().min()?;
        Some((first, if needs(first) == needs(best) { "first" } else { "smallest in memory" }))
    }

    /// Whether the rounds show that a config loses less than matters against the best, not merely that they cannot tell
    /// the two apart: the upper end of a 99% interval of its loss is below the minimum improvement, and its loss is
    /// negligible.
    fn is_shown_equal(&self, index: usize, best: usize) -> bool {
        let losses = self.field.differences(index, best);
        let Some(loss) = median(&losses) else { return false };
        let contest = self.field.noise_of_contest(&self.race_state.contenders, best);
        let width = [&contest, &RoundNoise::of_one(&losses)].map(|noise| noise.half_width(losses.len()));
        let most = -(1.0 - self.field.rules.min_improvement).ln();
        losses.len() >= self.field.rules.min_rounds
            && loss.exp() <= 1.0 + NO_LOSS
            && loss + width.into_iter().fold(0.0, f64::max) <= most
    }

    fn why_kept(&self, best: usize, speed_up: f64) -> String {
        let resolution = self.race_state.resolution;
        if best == self.field.baseline {
            "nothing is significantly faster than the baseline".to_owned()
        } else if self.field.seems_better(best, resolution) {
            format!("the best seems {speed_up:.2}× as fast, but not significantly; more `--rounds` may tell")
        } else {
            kept(self.field.rules, resolution)
        }
    }
}

/// Why the baseline stays although it is not the fastest.
fn kept(rules: &DecisionRules, resolution: f64) -> String {
    if resolution > rules.min_improvement {
        let percent = percent(resolution);
        return format!("nothing is faster by more than the noise floor of {percent} %");
    }
    format!("nothing is significantly faster by {} %", percent(rules.min_improvement))
}

fn verdict(field: &RaceField<'_>, candidate: usize, race_state: &RaceState) -> Option<CandidateVerdict> {
    let ratios = paired_ratios(field.seen.iter().copied(), candidate, field.baseline);
    if ratios.is_empty() {
        return None;
    }
    let samples: Vec<f64> = field.seen.iter().filter_map(|round| round.sample_ns(candidate)).collect();
    Some(CandidateVerdict {
        rounds: ratios.len(),
        median_ns: median(&samples)?,
        ratio: median(&ratios)?,
        interval: anytime_interval(&ratios, field.rules.confidence)?,
        tied_with_best: false,
        dropped: race_state.dropped.get(&candidate).map(|dropped| dropped.reason),
    })
}

/// A candidate dropped early has shown enough, and so has the only one left.
fn is_shown(race_state: &RaceState, candidate: usize) -> bool {
    race_state.dropped.contains_key(&candidate) || race_state.contenders == [candidate]
}

/// `0.02` as `2`, `0.005` as `0.5`.
fn percent(part: f64) -> String {
    format!("{}", (part * 1e4).round() / 1e2)
}
