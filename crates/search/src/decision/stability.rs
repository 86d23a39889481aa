//! How likely a fresh run of the same race publishes the same config.
//!
//! The rounds are drawn again, with replacement, and so are the processes: the one that chose gives every candidate an
//! effect of its own, of the spread between processes, and those that confirm are drawn around what they showed. What a
//! search would have visited is not drawn again.

use super::judge::{JudgedOutcome, judge};
use super::paired::{Round, paired_ratios};
use super::process_ratio::ProcessRatio;
use super::process_spread::ProcessSpread;
use super::processes::{ProcessOutcome, ProcessQuestion};
use super::rules::DecisionRules;
use crate::chance::{Draw, Normals};
use crate::stats::median;

/// How often the race is drawn again.
const DRAWS: u64 = 48;
/// Candidates besides the baseline that are drawn: the fastest. Others do not win in any draw.
const MOST_DRAWN: usize = 6;

/// A race that is over, as it is drawn again.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DecidedRace<'a> {
    /// The rounds of the processes that chose.
    pub rounds: &'a [Round],
    /// The candidates that competed, the baseline among them.
    pub competing: &'a [usize],
    /// The baseline.
    pub baseline: usize,
    /// What each candidate's runs need, if known.
    pub temporary_bytes: &'a [Option<u64>],
    /// What a winner must show.
    pub rules: &'a DecisionRules,
    /// How much a ratio varies between processes.
    pub spread: ProcessSpread,
    /// The processes that confirmed the winner, or refuted it; none of a baseline that nothing seemed to beat.
    pub processes: &'a [ProcessRatio],
    /// The config that was published.
    pub published: usize,
}

impl<'a> DecidedRace<'a> {
    /// A race whose winner nobody confirmed.
    pub fn new(
        rounds: &'a [Round],
        (competing, baseline): (&'a [usize], usize),
        temporary_bytes: &'a [Option<u64>],
        rules: &'a DecisionRules,
        published: usize,
    ) -> Self {
        let (spread, processes) = (ProcessSpread::QUIET, &[][..]);
        Self { rounds, competing, baseline, temporary_bytes, rules, spread, processes, published }
    }

    /// The same with what fresh processes showed, and their spread.
    #[must_use]
    pub fn confirmed(self, processes: &'a [ProcessRatio], spread: ProcessSpread) -> Self {
        Self { processes, spread, ..self }
    }

    /// The probability that a fresh run publishes the same config; `None` without rounds.
    pub fn stability(&self) -> Option<f64> {
        if self.rounds.is_empty() {
            return None;
        }
        let drawn = self.drawn();
        let same = (0..DRAWS).filter(|draw| self.publishes_again(&drawn, *draw)).count();
        // one more of each kind than was seen: so many draws cannot tell certainty
        Some((same as f64 + 1.0) / (DRAWS as f64 + 2.0))
    }

    /// The candidates that may win, in the order of the space.
    fn drawn(&self) -> Vec<usize> {
        let difference = |candidate: usize| {
            let ratios = paired_ratios(self.rounds, candidate, self.baseline);
            median(&ratios).unwrap_or(f64::INFINITY)
        };
        let others = self.competing.iter().copied().filter(|candidate| *candidate != self.baseline);
        let mut ranked: Vec<(f64, usize)> = others.map(|candidate| (difference(candidate), candidate)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked.truncate(MOST_DRAWN);
        let mut drawn: Vec<usize> = ranked.into_iter().map(|(_, candidate)| candidate).collect();
        drawn.extend([self.baseline, self.published]);
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    }

    fn publishes_again(&self, drawn: &[usize], draw: u64) -> bool {
        let (mut choices, mut draws) = (Draw::new(draw, 0), Normals::new(Draw::new(draw, 1)));
        // a program's effect of the process; a ratio has two of them
        let effect = self.spread.deviation / std::f64::consts::SQRT_2;
        let effects: Vec<f64> = drawn.iter().map(|_| (effect * draws.next()).exp()).collect();
        let rounds: Vec<Round> = (0..self.rounds.len())
            .filter_map(|_| self.rounds.get(choices.below(self.rounds.len())))
            .map(|round| round.of(drawn).scaled(&effects))
            .collect();
        let place = |candidate: usize| drawn.iter().position(|one| *one == candidate).unwrap_or(0);
        let bytes: Vec<Option<u64>> =
            drawn.iter().map(|candidate| self.temporary_bytes.get(*candidate).copied().flatten()).collect();
        let all: Vec<usize> = (0..drawn.len()).collect();
        let judged = judge(&rounds, drawn.len(), &all, place(self.baseline), None, &bytes, self.rules);
        let wins = judged.outcome == JudgedOutcome::Faster;
        let is_same = judged.winner == place(self.published) && wins;
        if self.published == self.baseline {
            // a winner that fresh processes refute leaves the baseline, too
            return !wins || (!self.processes.is_empty() && !self.is_confirmed_again(&mut draws));
        }
        is_same && (self.processes.is_empty() || self.is_confirmed_again(&mut draws))
    }

    /// Whether as many processes, drawn around what these showed, confirm.
    fn is_confirmed_again(&self, draws: &mut Normals) -> bool {
        let count = self.processes.len() as f64;
        let mean = self.processes.iter().map(|process| process.ratio.ln()).sum::<f64>() / count;
        let drawn: Vec<ProcessRatio> = self
            .processes
            .iter()
            .map(|process| {
                let deviation = self.spread.deviation.hypot(process.error);
                process.with_ratio((mean + deviation * draws.next()).exp())
            })
            .collect();
        let verdict = ProcessQuestion::gain(self.rules).judge(&drawn, &self.spread);
        // more processes would follow where these leave it open
        verdict.is_some_and(|verdict| verdict.outcome != ProcessOutcome::Refuted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty rounds in which candidates take these times, each with an even scatter of its own.
    fn rounds(times: &[f64], scatter: f64) -> Vec<Round> {
        let mut draws = Normals::new(Draw::new(7, 0));
        let mut round = || times.iter().map(|time| Some(time * (scatter * draws.next()).exp())).collect();
        (0..20).map(|_| Round::new(0, round())).collect()
    }

    fn stability(times: &[f64], scatter: f64, spread: f64) -> (usize, f64) {
        let (rules, all) = (DecisionRules::default(), (0..times.len()).collect::<Vec<_>>());
        let rounds = rounds(times, scatter);
        let winner = judge(&rounds, times.len(), &all, 0, None, &[], &rules).winner;
        let race = DecidedRace::new(&rounds, (&all, 0), &[], &rules, winner);
        (winner, race.confirmed(&[], ProcessSpread::new(spread, 20.0)).stability().unwrap())
    }

    #[test]
    fn what_is_far_ahead_is_stable_and_what_is_beside_another_is_not() {
        assert_eq!(stability(&[1.0, 0.5, 0.8], 0.005, 0.005), (1, 49.0 / 50.0));
        // shown to be equal: the first of both, whoever was faster
        let (winner, of_equals) = stability(&[1.0, 0.5, 0.5], 0.001, 0.001);
        assert!(winner == 1 && of_equals > 0.85, "{winner} {of_equals}");
        // two per cent apart, in processes that differ by as much
        let (_, of_close) = stability(&[1.0, 0.5, 0.49], 0.005, 0.02);
        assert!((0.3..0.95).contains(&of_close), "{of_close}");
        // a gain at the least improvement
        let (_, at_the_edge) = stability(&[1.0, 0.978], 0.003, 0.01);
        assert!((0.2..0.9).contains(&at_the_edge), "{at_the_edge}");
        assert_eq!(stability(&[1.0, 1.2], 0.005, 0.005), (0, 49.0 / 50.0), "the baseline");
    }

    #[test]
    fn nothing_measured_is_nothing_known() {
        let rules = DecisionRules::default();
        assert_eq!(DecidedRace::new(&[], (&[0], 0), &[], &rules, 0).stability(), None);
        let bad = [Round::new(0, vec![Some(f64::NAN), None])];
        assert!(DecidedRace::new(&bad, (&[0, 1], 0), &[], &rules, 0).stability().is_some());
    }
}
