//! Pure: chooses the set to use from the rounds of the finalists.
//!
//! A set wins if the interval of its time over the base's ends below one minus the larger of the minimum improvement
//! and the base's difference from its copy in the same rounds. The interval holds at every look and for all finalists
//! together.

use crate::decision::{DecisionRules, Round, anytime_interval, paired_ratios};
use crate::stats::{Interval, median};

/// A loss below this does not count: an option that gains less is not worth setting.
const NO_LOSS: f64 = 0.01;

/// One finalist: its place among the candidates, and its number of choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Finalist {
    pub(super) candidate: usize,
    pub(super) choices: usize,
}

/// The result of the final rounds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FinalVerdict {
    /// The candidate to use; `None` if the base stays.
    pub(super) winner: Option<usize>,
    /// The candidates that win and lose little to the fastest, the winner among them.
    pub(super) tied: Vec<usize>,
    /// Whether more rounds would not change it.
    pub(super) is_settled: bool,
    /// How far the interval of the base against its copy reaches from one: 0.02 is two per cent.
    pub(super) copy_bound: f64,
    /// Each finalist's median ratio and its interval.
    pub(super) ratios: Vec<(Finalist, f64, Interval)>,
}

/// Decides from the rounds that count. `base` and `copy` are the candidates of the base and of its copy.
pub(super) fn decide(
    rounds: &[&Round],
    (base, copy): (usize, usize),
    finalists: &[Finalist],
    rules: &DecisionRules,
) -> FinalVerdict {
    let ratios_of = |candidate: usize, other: usize| paired_ratios(rounds.iter().copied(), candidate, other);
    let against_copy = anytime_interval(&ratios_of(copy, base), rules.confidence);
    let is_enough = |interval: &Interval, confidence: f64| interval.confidence >= confidence;
    let copy_bound = match against_copy.filter(|interval| is_enough(interval, rules.confidence)) {
        Some(interval) => (1.0 - interval.low).max(interval.high - 1.0).max(0.0),
        // without the copy the noise is unknown
        None => f64::INFINITY,
    };
    // the error probability is divided among all finalists
    let confidence = 1.0 - (1.0 - rules.confidence) / finalists.len().max(1) as f64;
    let ratios = finalists.iter().filter_map(|&finalist| {
        let ratios = ratios_of(finalist.candidate, base);
        Some((finalist, median(&ratios)?, anytime_interval(&ratios, confidence)?))
    });
    let ratios: Vec<(Finalist, f64, Interval)> = ratios.collect();
    let least = 1.0 - rules.min_improvement;
    let wins = |interval: &Interval| {
        is_enough(interval, confidence) && interval.high < least.min(1.0 - copy_bound.max(rules.resolution))
    };
    let may_win = |interval: &Interval| !is_enough(interval, confidence) || interval.low < least;
    let mut winners: Vec<(Finalist, f64)> =
        ratios.iter().filter(|(.., interval)| wins(interval)).map(|&(finalist, ratio, _)| (finalist, ratio)).collect();
    winners.sort_by(|a, b| a.1.total_cmp(&b.1));
    let best = winners.first().map(|(best, _)| *best);
    let loses_little = |finalist: Finalist, best: Finalist| {
        finalist == best || {
            let ratios = ratios_of(finalist.candidate, best.candidate);
            let loss = median(&ratios).map_or(f64::INFINITY, |ratio| ratio - 1.0);
            let is_apart = anytime_interval(&ratios, confidence)
                .is_some_and(|interval| is_enough(&interval, confidence) && interval.low > 1.0);
            loss <= NO_LOSS || (!is_apart && loss <= rules.min_improvement)
        }
    };
    let tied = winners.iter().filter(|(finalist, _)| best.is_some_and(|best| loses_little(*finalist, best)));
    let tied: Vec<&(Finalist, f64)> = tied.collect();
    let smaller =
        |(a, of_a): &(Finalist, f64), (b, of_b): &(Finalist, f64)| a.choices.cmp(&b.choices).then(of_a.total_cmp(of_b));
    let winner = tied.iter().copied().min_by(|a, b| smaller(a, b));
    // one with a better median than all winners may still win
    let ahead = winners.first().map_or(f64::INFINITY, |(_, ratio)| *ratio) * (1.0 - NO_LOSS);
    let is_open = |(_, ratio, interval): &(Finalist, f64, Interval)| {
        !wins(interval) && may_win(interval) && *ratio < ahead.min(least)
    };
    let is_settled = copy_bound.is_finite() && !ratios.iter().any(is_open);
    let winner = winner.map(|(finalist, _)| finalist.candidate);
    let tied = tied.iter().map(|(finalist, _)| finalist.candidate).collect();
    FinalVerdict { winner, tied, is_settled, copy_bound, ratios }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in which candidate `i` takes `times[i]`, each with its own wobble of this size.
    fn rounds(times: &[f64], wobble: f64, count: usize) -> Vec<Round> {
        let round = |round: usize| {
            let sample = |(index, time): (usize, &f64)| {
                let phase = ((round * 7 + index * 11) % 13) as f64 / 12.0 - 0.5;
                Some(1e6 * time * (1.0 + wobble * phase))
            };
            Round::new(1, times.iter().enumerate().map(sample).collect())
        };
        (0..count).map(round).collect()
    }

    fn verdict(times: &[f64], wobble: f64, count: usize, finalists: &[(usize, usize)]) -> FinalVerdict {
        let rounds = rounds(times, wobble, count);
        let rounds: Vec<&Round> = rounds.iter().collect();
        let finalists: Vec<Finalist> =
            finalists.iter().map(|&(candidate, choices)| Finalist { candidate, choices }).collect();
        decide(&rounds, (0, 1), &finalists, &DecisionRules::default())
    }

    #[test]
    fn what_is_faster_beyond_the_copys_noise_wins_and_nothing_else() {
        assert_eq!(verdict(&[1.0, 1.0, 0.5], 0.02, 21, &[(2, 1)]).winner, Some(2));
        let same = verdict(&[1.0, 1.0, 1.0], 0.02, 21, &[(2, 1)]);
        assert_eq!((same.winner, same.is_settled), (None, true));
        // a gain of four per cent in noise of twenty is not separated, as the copy shows
        let noisy = verdict(&[1.0, 1.0, 0.96], 0.2, 21, &[(2, 1)]);
        assert_eq!((noisy.winner, noisy.is_settled), (None, false));
        assert!(noisy.copy_bound > 0.04, "{noisy:?}");
        // a copy that is slower by as much as the gain cancels it
        assert_eq!(verdict(&[1.0, 1.1, 0.92], 0.0, 41, &[(2, 1)]).winner, None);
    }

    #[test]
    fn an_option_that_gains_nothing_more_leaves() {
        // the pair is half a per cent better than the first alone
        let choice = verdict(&[1.0, 1.0, 0.5, 0.4975, 0.99], 0.01, 41, &[(2, 1), (3, 2), (4, 1)]);
        assert_eq!((choice.winner, choice.tied), (Some(2), vec![3, 2]));
        // here by a fifth
        let choice = verdict(&[1.0, 1.0, 0.5, 0.4, 0.99], 0.01, 41, &[(2, 1), (3, 2), (4, 1)]);
        assert_eq!((choice.winner, choice.tied), (Some(3), vec![3]));
    }

    #[test]
    fn too_few_rounds_decide_nothing() {
        let few = verdict(&[1.0, 1.0, 0.5], 0.02, 4, &[(2, 1)]);
        assert_eq!((few.winner, few.is_settled), (None, false));
        let none = verdict(&[1.0, 1.0, 0.5], 0.02, 0, &[(2, 1)]);
        assert_eq!((none.winner, none.is_settled), (None, false));
    }
}
