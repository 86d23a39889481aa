//! The noise figures of a machine from rounds of equal programs. Pure.

use serde::{Deserialize, Serialize};

use crate::decision::{DecisionRules, JudgedOutcome, ProcessSpread, Round, disturbance, judge, log_ratios};
use crate::stats::{median, median_absolute_deviation};

/// Share of the pairs of copies that differ by no more than the resolution.
const SHARE: f64 = 0.99;
/// The resolution is rounded up to the next multiple of one over this, so that the pair that determines it is below it.
const STEPS: f64 = 1e4;
/// From a median of absolute deviations to a standard deviation.
const TO_DEVIATION: f64 = 1.482_6;
/// Variance of the median of n values over that of their mean, for many normal ones: π/2.
const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;

/// How often a copy would be called better than another copy of the same program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FalseWins {
    /// Decisions that were made: each ordered pair of copies, from all rounds and from either half of them.
    pub decisions: u32,
    /// Calls of better at a minimum improvement of zero.
    pub at_zero: u32,
    /// At the default minimum improvement.
    pub at_default: u32,
    /// At a minimum improvement of zero, with the resolution found here.
    pub at_resolution: u32,
}

/// A machine's noise floor for programs like this one. Differences are relative: 0.01 is one per cent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Copies of the program.
    pub copies: u32,
    /// Rounds that count.
    pub rounds: u32,
    /// Disturbed rounds.
    pub rounds_set_aside: u32,
    /// Median of all samples, nanoseconds.
    pub median_ns: f64,
    /// The smallest difference that can be detected: 99% of the pairs of copies differ by no more.
    pub resolution: f64,
    /// The resolution that a pair's rounds claim by their scatter: the median over the pairs.
    pub claimed: f64,
    /// Standard deviation of a copy's time between rounds.
    pub between_rounds: f64,
    /// Standard deviation of the differences between copies that remain after any number of rounds.
    pub between_copies: f64,
    /// How much the ratio of two copies varies between processes, beyond what their rounds explain; absent if fewer
    /// than two processes measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_processes: Option<ProcessSpread>,
    /// How often one is called better.
    pub false_wins: FalseWins,
}

impl Figures {
    /// From rounds of `copies` equal candidates; `None` if fewer than six count, or a copy has no times.
    pub fn of(rounds: &[Round], copies: usize) -> Option<Self> {
        let set_aside = disturbance(rounds).set_aside;
        let has_all = |round: &Round| (0..copies).all(|copy| round.sample_ns(copy).is_some());
        let counted = rounds.iter().enumerate().filter(|(index, round)| !set_aside.contains(index) && has_all(round));
        let counted: Vec<&Round> = counted.map(|(_, round)| round).collect();
        if copies < 2 || counted.len() < DecisionRules::default().min_rounds {
            return None;
        }
        let samples: Vec<f64> =
            counted.iter().flat_map(|round| (0..copies).filter_map(|copy| round.sample_ns(copy))).collect();
        let resolution = resolution(&counted, copies)?;
        let (between_rounds, between_copies) = spreads(&counted, copies)?;
        Some(Self {
            copies: u32::try_from(copies).ok()?,
            rounds: u32::try_from(counted.len()).ok()?,
            rounds_set_aside: u32::try_from(set_aside.len()).ok()?,
            median_ns: median(&samples)?,
            resolution,
            claimed: claimed(rounds, copies)?,
            between_rounds,
            between_copies,
            between_processes: None,
            false_wins: false_wins(rounds, copies, resolution),
        })
    }
}

/// How much one copy's time exceeds another's, for all but at most one per cent of the pairs.
fn resolution(rounds: &[&Round], copies: usize) -> Option<f64> {
    let pairs = (0..copies).flat_map(|one| (0..one).map(move |other| (one, other)));
    let differences: Option<Vec<f64>> =
        pairs.map(|(one, other)| median(&log_ratios(rounds.iter().copied(), one, other)).map(f64::abs)).collect();
    let mut differences = differences?;
    differences.sort_unstable_by(f64::total_cmp);
    // an order statistic, the upper one: between two of them one pair in a hundred would win after all
    let rank = (SHARE * differences.len() as f64).ceil() as usize;
    let found = differences.get(rank.checked_sub(1)?)?.exp_m1();
    if found <= 0.0 {
        return Some(0.0);
    }
    Some(((found * STEPS + 1e-6).floor() + 1.0) / STEPS)
}

/// Standard deviations between rounds and between copies. Each sample is taken relative to its round's median; the
/// variance of the copies' levels beyond what their rounds explain is the variance between copies.
fn spreads(rounds: &[&Round], copies: usize) -> Option<(f64, f64)> {
    let mut relative: Vec<Vec<f64>> = vec![Vec::with_capacity(rounds.len()); copies];
    for round in rounds {
        let logs: Option<Vec<f64>> = (0..copies).map(|copy| round.sample_ns(copy).map(f64::ln)).collect();
        let logs = logs?;
        let middle = median(&logs)?;
        for (own, log) in relative.iter_mut().zip(logs) {
            own.push(log - middle);
        }
    }
    let levels: Vec<f64> = relative.iter().map(|own| median(own)).collect::<Option<_>>()?;
    let residuals: Vec<f64> =
        relative.iter().zip(&levels).flat_map(|(own, level)| own.iter().map(move |value| value - level)).collect();
    let count = copies as f64;
    // the median follows each sample by its share
    let between_rounds = median_absolute_deviation(&residuals)? * TO_DEVIATION * (count / (count - 1.0)).sqrt();
    let mean = levels.iter().sum::<f64>() / count;
    let of_levels = levels.iter().map(|level| (level - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let of_rounds = between_rounds.powi(2) * MEDIAN_VARIANCE / rounds.len() as f64;
    Some((between_rounds, (of_levels - of_rounds).max(0.0).sqrt()))
}

/// The rounds of two copies alone; the first one is the baseline.
fn pair(rounds: &[Round], baseline: usize, other: usize) -> Vec<Round> {
    let of_two = |round: &Round| round.of(&[baseline, other]);
    rounds.iter().map(of_two).collect()
}

fn ordered_pairs(copies: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..copies).flat_map(move |one| (0..copies).filter(move |other| *other != one).map(move |other| (one, other)))
}

fn claimed(rounds: &[Round], copies: usize) -> Option<f64> {
    let rules = DecisionRules::default().min_improvement(0.0);
    let of_pair =
        |(one, other)| judge(&pair(rounds, one, other), 2, &[0, 1], 0, None, &[], &rules).race_state.resolution;
    median(&ordered_pairs(copies).map(of_pair).collect::<Vec<_>>())
}

fn false_wins(rounds: &[Round], copies: usize, resolution: f64) -> FalseWins {
    let default = DecisionRules::default();
    let at_zero = default.min_improvement(0.0);
    let at_resolution = at_zero.resolution(resolution);
    let (first, second) = rounds.split_at(rounds.len() / 2);
    let windows = [rounds, first, second].into_iter().filter(|window| window.len() >= default.min_rounds);
    let mut wins = FalseWins { decisions: 0, at_zero: 0, at_default: 0, at_resolution: 0 };
    for window in windows {
        for (one, other) in ordered_pairs(copies) {
            let rounds = pair(window, one, other);
            let wins_by =
                |rules| u32::from(judge(&rounds, 2, &[0, 1], 0, None, &[], rules).outcome == JudgedOutcome::Faster);
            wins.decisions += 1;
            wins.at_zero += wins_by(&at_zero);
            wins.at_default += wins_by(&default);
            wins.at_resolution += wins_by(&at_resolution);
        }
    }
    wins
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies that take these times in every round, times a factor of the round's own.
    fn rounds(n: usize, times: &[f64]) -> Vec<Round> {
        let round = |n: usize| {
            let machine = 1.0 + 0.5 * (n % 3) as f64;
            Round::new(1, times.iter().map(|time| Some(time * machine)).collect())
                .sentinel_ns(Some([times[0] * machine; 2]))
        };
        (0..n).map(round).collect()
    }

    #[test]
    fn two_copies_ten_per_cent_apart() {
        let figures = Figures::of(&rounds(20, &[110.0, 100.0]), 2).unwrap();
        // a factor of 1.1, and one step
        assert!((figures.resolution - 0.1001).abs() < 1e-12, "{}", figures.resolution);
        assert!((figures.between_copies - 1.1_f64.ln() / 2.0_f64.sqrt()).abs() < 1e-12, "{}", figures.between_copies);
        assert!(figures.between_rounds < 1e-12 && figures.claimed < 1e-12, "{figures:?}");
        // one of the two orders, over three windows
        let expected = FalseWins { decisions: 6, at_zero: 3, at_default: 3, at_resolution: 0 };
        assert_eq!((figures.false_wins, figures.copies, figures.rounds), (expected, 2, 20));
    }

    #[test]
    fn one_odd_copy_of_eight_sets_the_resolution() {
        let mut times = [1000.0; 8];
        times[5] = 1010.0;
        let figures = Figures::of(&rounds(12, &times), 8).unwrap();
        // the upper one of 28 pairs
        assert!((figures.resolution - 0.0101).abs() < 1e-12, "{}", figures.resolution);
        // seven orders call it slower, each over three windows of at least six rounds
        let expected = FalseWins { decisions: 168, at_zero: 21, at_default: 0, at_resolution: 0 };
        assert_eq!(figures.false_wins, expected);
        // variance of seven zeros and one logarithm d: d²/8
        assert!((figures.between_copies - 1.01_f64.ln() / 8.0_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn constant_times_tell_everything() {
        let figures = Figures::of(&rounds(6, &[250.0; 4]), 4).unwrap();
        assert_eq!((figures.resolution, figures.between_copies, figures.between_rounds), (0.0, 0.0, 0.0));
        assert_eq!(figures.false_wins, FalseWins { decisions: 12, at_zero: 0, at_default: 0, at_resolution: 0 });
        assert_eq!(figures.median_ns, 375.0, "250, 375 and 500 by the machine");
    }

    #[test]
    fn what_holds_no_times_has_no_figures() {
        assert_eq!(Figures::of(&rounds(5, &[1.0, 1.0]), 2), None);
        assert_eq!(Figures::of(&rounds(20, &[1.0]), 1), None);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Figures::of(&rounds(20, &[1.0, bad]), 2), None, "{bad}");
        }
        assert_eq!(Figures::of(&[], 8), None);
    }
}
