//! How likely a fresh run of the same race publishes the same config.
//!
//! The rounds are drawn again, with replacement, and so are the processes: the one that chose gives every candidate an
//! effect of its own, of the spread between processes, and those that measure the finalists are drawn around what such
//! processes showed, one after the other until they decide. What a search would have visited is not drawn again.

use super::finalists::{Final, Finalist, finalists};
use super::judge::{JudgedOutcome, Judgement, judge};
use super::paired::{Round, paired_ratios};
use super::process_ratio::{ProcessRatio, process_ratios};
use super::process_spread::ProcessSpread;
use super::processes::{ProcessOutcome, ProcessQuestion};
use super::rules::DecisionRules;
use crate::chance::{Draw, Normals};
use crate::stats::median;

/// How often the race is drawn again.
const DRAWS: u64 = 48;
/// Rounds that are drawn at least: a race that was settled after few would go on if it looked different.
const LEAST_ROUNDS: usize = 24;
/// How far apart the logarithms of configs' times are that nothing else is known of.
const APART: f64 = 0.02;
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
    /// How many processes may confirm a winner; none if the first one's choice is final.
    pub most_processes: usize,
    /// The finalists, and the fresh processes that measured them.
    pub finalists: &'a [Finalist],
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
        let spread = ProcessSpread::QUIET;
        Self {
            rounds,
            competing,
            baseline,
            temporary_bytes,
            rules,
            spread,
            most_processes: 0,
            finalists: &[],
            published,
        }
    }

    /// The same where up to so many fresh processes confirm a winner, with this spread between them; some measured
    /// these finalists.
    #[must_use]
    pub fn confirmed(self, most: usize, spread: ProcessSpread, finalists: &'a [Finalist]) -> Self {
        Self { most_processes: most, spread, finalists, ..self }
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
        // a program's effect of the process, of which a ratio has two; the rounds hold those of the processes that took
        // them, so that the truth is as uncertain
        let taken = self.rounds.chunk_by(|one, other| one.epoch == other.epoch).count();
        let effect = self.spread.deviation * ((1.0 + 1.0 / taken.max(1) as f64) / 2.0).sqrt();
        let shifts = self.shifts(drawn, effect);
        let effects: Vec<f64> = shifts.iter().map(|shift| (shift + effect * draws.next()).exp()).collect();
        let rounds: Vec<Round> = (0..self.rounds.len().max(LEAST_ROUNDS))
            .filter_map(|_| self.rounds.get(choices.below(self.rounds.len())))
            .map(|round| round.of(drawn).scaled(&effects))
            .collect();
        let place = |candidate: usize| drawn.iter().position(|one| *one == candidate).unwrap_or(0);
        let bytes: Vec<Option<u64>> =
            drawn.iter().map(|candidate| self.temporary_bytes.get(*candidate).copied().flatten()).collect();
        let all: Vec<usize> = (0..drawn.len()).collect();
        let judged = judge(&rounds, drawn.len(), &all, place(self.baseline), None, &bytes, self.rules);
        let published = match drawn.get(judged.winner) {
            Some(_) if judged.outcome == JudgedOutcome::Faster => {
                self.after_confirming((&judged, place(self.baseline)), drawn, &bytes, &mut draws)
            }
            _ => Some(self.baseline),
        };
        published == Some(self.published)
    }

    /// How far each candidate's level is from what the rounds show: towards the others' mean, since those that differ by
    /// no more than processes make them differ may be equal (empirical Bayes).
    fn shifts(&self, drawn: &[usize], effect: f64) -> Vec<f64> {
        let level = |candidate: &usize| {
            let ratios = paired_ratios(self.rounds, *candidate, self.baseline);
            median(&ratios).filter(|ratio| *ratio > 0.0 && *candidate != self.baseline).map(f64::ln)
        };
        let levels: Vec<Option<f64>> = drawn.iter().map(level).collect();
        let known: Vec<f64> = levels.iter().copied().flatten().collect();
        let (mean, part) = towards_mean(&known, effect * effect / 2.0);
        levels.iter().map(|level| level.map_or(0.0, |level| part * (mean - level))).collect()
    }

    /// What fresh processes publish of a race whose candidates are the drawn ones: a finalist, the baseline, or nothing
    /// if they decide nothing.
    fn after_confirming(
        &self,
        (judged, baseline): (&Judgement, usize),
        drawn: &[usize],
        temporary_bytes: &[Option<u64>],
        draws: &mut Normals,
    ) -> Option<usize> {
        let candidate = |place: usize| drawn.get(place).copied();
        if self.most_processes == 0 {
            return candidate(judged.winner);
        }
        let all: Vec<usize> = (0..drawn.len()).collect();
        let chosen = finalists(judged, &all, baseline, self.spread);
        let known = |&place: &usize| {
            let known = self.known(candidate(place)?);
            let mean = known.iter().map(ProcessRatio::log).sum::<f64>() / known.len() as f64;
            Some((place, *known.first()?, mean, 1.0 / (known.len() as f64).sqrt()))
        };
        let known: Vec<(usize, ProcessRatio, f64, f64)> = chosen.iter().filter_map(known).collect();
        let winner = known.first().filter(|first| first.0 == judged.winner)?;
        // a ratio has the effects of two programs, and ratios to one baseline share its
        let effect = self.spread.deviation / std::f64::consts::SQRT_2;
        // what processes said is off by as much as so many of them may be
        let of_baseline = effect * winner.3 * draws.next();
        let levels: Vec<f64> = known.iter().map(|known| known.2).collect();
        let errors = known.iter().map(|(_, first, _, part)| part * effect.hypot(first.error));
        let (mean, part) =
            towards_mean(&levels, errors.clone().map(|error| error * error).sum::<f64>() / levels.len() as f64);
        let center = |level: f64, error: f64, draws: &mut Normals| {
            level + part * (mean - level) - of_baseline + (1.0 - part).sqrt() * error * draws.next()
        };
        let centers: Vec<(usize, ProcessRatio, f64)> = known
            .iter()
            .zip(errors)
            .map(|((place, first, level, _), error)| (*place, *first, center(*level, error, draws)))
            .collect();
        let spreads = [self.spread];
        let question = Final::new(ProcessQuestion::gain(self.rules), &spreads, temporary_bytes);
        let mut fresh: Vec<Finalist> = centers.iter().map(|(place, ..)| (*place, Vec::new())).collect();
        for process in 1..=self.most_processes {
            let of_baseline = effect * draws.next();
            for ((_, processes), (_, first, center)) in fresh.iter_mut().zip(&centers) {
                let own = effect * draws.next() + first.error * draws.next();
                let epoch = u32::try_from(process).unwrap_or(u32::MAX);
                processes.push(first.with_ratio(epoch, (center + own - of_baseline).exp()));
            }
            let found = question.is_last(process == self.most_processes).judge(&fresh)?;
            match found.outcome {
                ProcessOutcome::Confirmed => return candidate(found.candidate),
                ProcessOutcome::Refuted => return Some(self.baseline),
                ProcessOutcome::Open => {}
            }
        }
        None
    }

    /// The fresh processes that measured a candidate, or else those that chose.
    fn known(&self, candidate: usize) -> Vec<ProcessRatio> {
        let fresh = self.finalists.iter().find(|(one, processes)| *one == candidate && !processes.is_empty());
        match fresh {
            Some((_, processes)) => processes.clone(),
            None => process_ratios(self.rounds, candidate, self.baseline),
        }
    }
}

/// The mean of levels, and which part of the way to it each one is drawn if they were observed with this variance
/// (empirical Bayes). So that two that are close by chance are not taken for equals, one more is assumed
/// [this far](APART) from the mean.
fn towards_mean(levels: &[f64], variance: f64) -> (f64, f64) {
    let count = levels.len() as f64;
    let mean = levels.iter().sum::<f64>() / count.max(1.0);
    let squares = levels.iter().map(|level| (level - mean).powi(2)).sum::<f64>() + APART * APART;
    (mean, (variance * count / squares).min(1.0))
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
        (winner, race.confirmed(0, ProcessSpread::new(spread, 20.0), &[]).stability().unwrap())
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
