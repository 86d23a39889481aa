//! How much one round's difference scatters, from all candidates together.

use super::paired::{Round, log_ratios};
use crate::stats::median;

/// The shares of differences above each threshold.
const SHARES: [f64; 6] = [0.4, 0.3, 0.2, 0.1, 0.05, 0.02];
/// Multiples of the largest change that are thresholds too. How rarely they are exceeded has not been observed: the
/// share is assumed to fall with the square of the multiple, slower than for any noise that has a variance.
const BEYOND: [f64; 4] = [2.0, 4.0, 8.0, 16.0];
/// Minimum number of changes before anything is assumed beyond the largest of them.
const MIN_FOR_TAIL: usize = 16;
/// A lower bound for the largest change: a quiet moment is not a quiet machine.
const LEAST_LARGEST: f64 = 0.02;
/// Half the width, in standard deviations of one value, of a 99% interval of a median: 2.576 √(π/2), over √n.
const MEDIAN_WIDTH: f64 = 3.228_5;
/// From a median of absolute differences of two rounds to the standard deviation of one: 1.4826 / sqrt(2).
const TO_DEVIATION: f64 = 1.048_4;

/// Changes of paired differences from one round to the next.
///
/// A change has twice the variance of one difference around its true value, and needs no estimate of that value; thus
/// what exceeds a threshold in changes exceeds it less often in differences.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RoundNoise {
    /// Absolute changes, the largest first.
    changes: Vec<f64>,
}

impl RoundNoise {
    /// The noise of some candidates' differences from another one, and of the baseline from itself inside rounds.
    pub fn of(rounds: &[&Round], candidates: &[usize], leader: usize) -> Self {
        let swings = rounds.iter().filter_map(|round| round.swing()).map(f64::abs);
        Self::sorted(swings.chain(changes_between(rounds, candidates, leader)).collect())
    }

    /// The noise of some candidates' differences from another one alone: programs that use several cores may scatter
    /// ten times as much as the baseline beside them.
    pub(super) fn between(rounds: &[&Round], candidates: &[usize], leader: usize) -> Self {
        Self::sorted(changes_between(rounds, candidates, leader).collect())
    }

    /// The noise of one candidate's differences alone.
    pub(super) fn of_one(differences: &[f64]) -> Self {
        Self::sorted(changes_of(differences))
    }

    fn sorted(mut changes: Vec<f64>) -> Self {
        changes.sort_unstable_by(|a, b| b.total_cmp(a));
        Self { changes }
    }

    /// Robust standard deviation of one round's difference; 0 while nothing is known.
    pub fn deviation(&self) -> f64 {
        median(&self.changes).unwrap_or(0.0) * TO_DEVIATION
    }

    /// How far the median of `n` rounds' differences may be from the truth, as a logarithm: half of a 99% interval.
    pub(super) fn half_width(&self, n: usize) -> f64 {
        self.deviation() * MEDIAN_WIDTH / (n.max(1) as f64).sqrt()
    }

    /// The largest change, if enough are known that a far larger one is very unlikely.
    pub(super) fn largest(&self) -> Option<f64> {
        let largest = self.changes.first().filter(|_| self.changes.len() >= MIN_FOR_TAIL)?;
        Some(largest.max(LEAST_LARGEST))
    }

    /// Thresholds, each with the maximum share of differences around zero that exceed it. A candidate that
    /// scatters more than the others is judged by its own scatter.
    pub(super) fn thresholds(&self, differences: &[f64]) -> Vec<(f64, f64)> {
        let own = changes_of(differences);
        let own_above =
            |above: f64| own.iter().filter(|change| **change > above).count() as f64 / own.len().max(1) as f64;
        // one more than was observed, so that the smallest share is that of a value beyond all of them
        let known = (self.changes.len() + 1) as f64;
        let mut thresholds = vec![(0.0, 0.5)];
        for share in SHARES {
            let rank = (share * known).floor();
            if rank < 1.0 {
                break;
            }
            let Some(&above) = self.changes.get(rank as usize - 1) else { break };
            thresholds.push((above, (rank / known).max(own_above(above))));
        }
        thresholds.extend(
            self.largest()
                .into_iter()
                .flat_map(|largest| BEYOND.map(|times| (largest * times, times)))
                .map(|(above, times)| (above, (1.0 / (known * times * times)).max(own_above(above)))),
        );
        thresholds
    }
}

fn changes_between(rounds: &[&Round], candidates: &[usize], leader: usize) -> impl Iterator<Item = f64> {
    let others = candidates.iter().copied().filter(move |&candidate| candidate != leader);
    others.flat_map(move |candidate| changes_of(&log_ratios(rounds.iter().copied(), candidate, leader)))
}

fn changes_of(differences: &[f64]) -> Vec<f64> {
    differences.windows(2).filter_map(|pair| Some((pair.last()? - pair.first()?).abs())).collect()
}
