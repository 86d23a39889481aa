//! The candidates of one invocation over the rounds that count: estimates, and what is significant.

use super::evidence::slower;
use super::noise::RoundNoise;
use super::paired::{Round, log_ratios};
use super::rules::DecisionRules;
use crate::stats::median;

/// Probability that a candidate which is not faster than the baseline is ever called so.
const WIN_ERROR: f64 = 0.01;

/// Rounds after which a candidate is cut off: fewer may have been disturbed, one and all.
pub(super) const CUT_OFF_ROUNDS: usize = 3;

/// What another process's time slice on a core may add to a sample, in nanoseconds. Samples shorter than this may be
/// disturbed in two consecutive rounds.
const TURN_NS: f64 = 20e6;

/// The rounds considered, and the number of candidates that compete in them.
pub(super) struct RaceField<'a> {
    pub(super) seen: &'a [&'a Round],
    pub(super) baseline: usize,
    /// How many candidates there were at the start, the baseline included.
    pub(super) competing: usize,
    pub(super) rules: &'a DecisionRules,
}

impl RaceField<'_> {
    /// Logarithms of a candidate's time over another one's.
    pub(super) fn differences(&self, candidate: usize, to: usize) -> Vec<f64> {
        log_ratios(self.seen.iter().copied(), candidate, to)
    }

    /// The median of those.
    pub(super) fn difference(&self, candidate: usize, to: usize) -> Option<f64> {
        median(&self.differences(candidate, to))
    }

    /// The least of those.
    pub(super) fn least_difference(&self, candidate: usize, to: usize) -> Option<f64> {
        self.differences(candidate, to).into_iter().min_by(f64::total_cmp)
    }

    /// Whether every sample of a candidate is so short that a time slice of another process may have multiplied it.
    pub(super) fn is_short(&self, candidate: usize) -> bool {
        self.seen.iter().filter_map(|round| round.sample_ns(candidate)).all(|ns| ns < TURN_NS)
    }

    /// Whether so many rounds are enough for a decision.
    pub(super) fn is_enough(&self, rounds: usize) -> bool {
        rounds >= self.rules.min_rounds.max(1)
    }

    /// The contender with the least median ratio to the baseline, which comes first among equals.
    pub(super) fn leader(&self, contenders: &[usize]) -> Option<usize> {
        let known = contenders.iter().filter_map(|&index| Some((index, self.difference(index, self.baseline)?)));
        known
            .min_by(|a, b| a.1.total_cmp(&b.1).then((a.0 != self.baseline).cmp(&(b.0 != self.baseline))))
            .map(|(index, _)| index)
    }

    pub(super) fn noise(&self, contenders: &[usize], leader: usize) -> RoundNoise {
        RoundNoise::of(self.seen, contenders, leader)
    }

    /// The noise that hides the difference between contenders; that of all where only one and the baseline are left.
    pub(super) fn noise_of_contest(&self, contenders: &[usize], leader: usize) -> RoundNoise {
        let besides = |candidate: &usize| *candidate != self.baseline && *candidate != leader;
        let others: Vec<usize> = contenders.iter().copied().filter(besides).collect();
        if others.is_empty() || leader == self.baseline {
            return self.noise(contenders, leader);
        }
        RoundNoise::between(self.seen, &others, leader)
    }

    /// How much further from the truth the luckiest of all medians is than a single one: the normal quantile of 1 - p/m
    /// is about the root of z² + 2 ln m, z that of 1 - p.
    fn best_of_many(&self) -> f64 {
        (1.0 + 2.0 * (self.competing.saturating_sub(1).max(1) as f64).ln() / (2.576 * 2.576)).sqrt()
    }

    /// The least logarithm of a ratio that this machine tells from none, if the luckiest of all has it.
    pub(super) fn least_told(&self) -> f64 {
        self.rules.resolution.ln_1p() * self.best_of_many()
    }

    /// Whether a candidate is called better than the baseline: by the minimum improvement, by more than the
    /// resolution, and significantly.
    pub(super) fn beats(&self, candidate: usize, noise: &RoundNoise, resolution: f64) -> bool {
        self.seems_better(candidate, resolution)
            && slower(&self.differences(self.baseline, candidate), noise) * WIN_ERROR >= self.competing as f64
    }

    /// The same without the significance.
    pub(super) fn seems_better(&self, candidate: usize, resolution: f64) -> bool {
        let gains = self.differences(self.baseline, candidate);
        // other candidates may be noisier than these two: their noise does not affect this difference
        let own = RoundNoise::of_one(&gains).half_width(gains.len()).max(self.rules.resolution.ln_1p());
        // the one is a part of the baseline's time, the other a ratio that may be any number above one
        let least = (-(1.0 - self.rules.min_improvement).ln()).max(resolution.ln_1p().min(own) * self.best_of_many());
        candidate != self.baseline && self.is_enough(gains.len()) && median(&gains).is_some_and(|gain| gain >= least)
    }
}
