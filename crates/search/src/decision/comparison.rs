//! Each candidate against the baseline: how much slower or faster, and whether that is more than noise.
//!
//! A race asks which candidate is the best; a comparison wants the ratio of each, also of one that is slower. So no
//! candidate is dropped, and measuring ends when each one is distinguished from the baseline or is known to differ from
//! it by very little.

use serde::{Deserialize, Serialize};

use super::evidence::anytime_interval;
use super::paired::{Round, paired_ratios};
use super::race::counted;
use super::sentinel::{Disturbance, disturbance};
use crate::setters;
use crate::stats::{Interval, median};

/// What a comparison must show.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ComparisonRules {
    /// Confidence that all intervals together hold, at every look.
    pub confidence: f64,
    /// A relative difference too small to matter: 0.01 is one per cent. A candidate known to differ by no more is
    /// measured no further.
    pub min_difference: f64,
}

impl Default for ComparisonRules {
    fn default() -> Self {
        Self { confidence: 0.95, min_difference: 0.01 }
    }
}

setters!(ComparisonRules { confidence: f64, min_difference: f64 });

/// How a candidate's time compares with the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Its whole interval is below one, and further from one than the baseline's own copy may be.
    Faster,
    /// Its whole interval is above one, by more than the baseline's own copy may be.
    Slower,
    /// Its interval holds one, or there are too few rounds for one of that confidence.
    NotSeparated,
    /// Its interval does not hold one, but the baseline's own copy may be as far from one.
    WithinNoise,
    /// It differs in the first process, and fresh ones do not agree on it.
    VariesByProcess,
}

impl Relation {
    /// In words, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NotSeparated => "not separated",
            Self::WithinNoise => "within noise of A/A",
            Self::VariesByProcess => "varies by process",
        }
    }
}

/// What the rounds say about one candidate beside the baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Compared {
    /// Rounds that count and hold both.
    pub rounds: usize,
    /// Median of its samples, nanoseconds.
    pub median_ns: f64,
    /// Median of its time over the baseline's, round by round; below one is faster.
    pub ratio: f64,
    /// Interval of that median. With few rounds its confidence is lower than requested.
    pub interval: Interval,
    /// How it compares with the baseline.
    pub relation: Relation,
}

/// Every candidate against the baseline.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CandidateComparison {
    /// One per candidate; `None` if no counted round holds it beside the baseline.
    pub candidates: Vec<Option<Compared>>,
    /// How far from one the ratio of the baseline's copy may be, as a relative difference; `None` if there is no copy,
    /// or it has too few rounds.
    pub noise: Option<f64>,
    /// What the baseline's repetitions show.
    pub disturbance: Disturbance,
    /// Whether more rounds would add nothing that matters.
    pub is_settled: bool,
}

/// Compares `competing` candidates with the baseline, which is one of them. `copy` is the same program as the baseline,
/// compiled and loaded once more: its difference is noise.
pub fn compare(
    rounds: &[Round],
    candidates: usize,
    competing: &[usize],
    (baseline, copy): (usize, Option<usize>),
    rules: &ComparisonRules,
) -> CandidateComparison {
    let disturbance = disturbance(rounds);
    let counted = counted(rounds, &disturbance, baseline);
    let others = competing.iter().filter(|&&candidate| candidate != baseline).count().max(1);
    // all intervals hold together: each gets its part of the error
    let confidence = 1.0 - (1.0 - rules.confidence) / others as f64;
    let is_sure = |interval: &Interval| interval.confidence >= confidence;
    let measured = |candidate: usize| {
        let ratios = paired_ratios(counted.iter().copied(), candidate, baseline);
        let samples: Vec<f64> = counted.iter().filter_map(|round| round.sample_ns(candidate)).collect();
        Some(Compared {
            rounds: ratios.len(),
            median_ns: median(&samples)?,
            ratio: median(&ratios)?,
            interval: anytime_interval(&ratios, confidence)?,
            relation: Relation::NotSeparated,
        })
    };
    let mut found: Vec<Option<Compared>> = (0..candidates)
        .map(|candidate| if competing.contains(&candidate) { measured(candidate) } else { None })
        .collect();
    let copy = copy.filter(|copy| competing.contains(copy));
    let of_copy = copy.and_then(|copy| found.get(copy).copied().flatten());
    let noise = of_copy.filter(|copy| is_sure(&copy.interval)).map(|copy| farthest(&copy.interval).exp_m1());
    for compared in found.iter_mut().flatten() {
        if is_sure(&compared.interval) {
            compared.relation = relation(&compared.interval, noise.unwrap_or(0.0));
        }
    }
    // nothing is called faster or slower before the effect of noise alone is known
    if copy.is_some() && noise.is_none() {
        found.iter_mut().flatten().for_each(|compared| compared.relation = Relation::NotSeparated);
    }
    let is_distinguished = |candidate: usize| {
        let Some(compared) = found.get(candidate).copied().flatten() else { return false };
        let is_small = is_sure(&compared.interval) && farthest(&compared.interval) <= rules.min_difference.ln_1p();
        is_small || matches!(compared.relation, Relation::Faster | Relation::Slower)
    };
    let mut asked = competing.iter().filter(|&&candidate| candidate != baseline && Some(candidate) != copy);
    let is_settled =
        asked.all(|&candidate| is_distinguished(candidate)) && (copy.is_none() || noise.is_some() || others <= 1);
    CandidateComparison { candidates: found, noise, disturbance, is_settled }
}

/// How far an interval goes from one, as a logarithm.
fn farthest(interval: &Interval) -> f64 {
    interval.low.ln().abs().max(interval.high.ln().abs())
}

fn relation(interval: &Interval, noise: f64) -> Relation {
    let noise = noise.ln_1p();
    let (low, high) = (interval.low.ln(), interval.high.ln());
    match () {
        () if high < -noise => Relation::Faster,
        () if low > noise => Relation::Slower,
        () if high < 0.0 || low > 0.0 => Relation::WithinNoise,
        () => Relation::NotSeparated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The baseline at 100, the others at these factors of it, with a scatter of their own that is even around them.
    fn rounds(n: usize, factors: &[f64], scatter: f64) -> Vec<Round> {
        let round = |n: usize| {
            let wobble = |candidate: usize| 1.0 + scatter * ((n * (3 + 2 * candidate)) % 7) as f64 / 3.0 - scatter;
            let others = factors.iter().enumerate().map(|(index, factor)| Some(100.0 * factor * wobble(index)));
            Round::new(0, std::iter::once(Some(100.0)).chain(others).collect())
        };
        (0..n).map(round).collect()
    }

    fn of(rounds: &[Round], candidates: usize, copy: Option<usize>) -> CandidateComparison {
        let competing: Vec<usize> = (0..candidates).collect();
        compare(rounds, candidates, &competing, (0, copy), &ComparisonRules::default())
    }

    fn relations(found: &CandidateComparison) -> Vec<Relation> {
        found.candidates.iter().flatten().map(|compared| compared.relation).collect()
    }

    #[test]
    fn a_difference_is_separated_and_the_copy_is_not() {
        // the copy first: it scatters around the baseline by one per cent
        let found = of(&rounds(40, &[1.0, 0.9, 1.2, 1.0], 0.01), 5, Some(1));
        let expected = [Relation::NotSeparated, Relation::NotSeparated, Relation::Faster, Relation::Slower];
        assert_eq!(relations(&found)[..4], expected);
        assert_eq!(relations(&found)[4], Relation::NotSeparated);
        assert!((found.candidates[2].unwrap().ratio - 0.9).abs() < 0.01);
        assert!(found.noise.unwrap() < 0.0101 && found.is_settled, "{found:?}");
    }

    #[test]
    fn what_the_copy_differs_by_is_noise() {
        // two loads of one program that permanently differ by three per cent: two per cent mean nothing
        let found = of(&rounds(40, &[1.03, 0.98, 0.9], 0.001), 4, Some(1));
        let expected = [Relation::NotSeparated, Relation::WithinNoise, Relation::WithinNoise, Relation::Faster];
        assert_eq!(relations(&found), expected);
        assert!((found.noise.unwrap() - 0.031).abs() < 0.001 && !found.is_settled, "{found:?}");
        // without the copy the noise is unknown
        assert_eq!(
            relations(&of(&rounds(40, &[1.03, 0.98], 0.001), 3, None))[1..],
            [Relation::Slower, Relation::Faster]
        );
    }

    #[test]
    fn few_rounds_tell_nothing() {
        // two others share five per cent: 2 / bet(8, 8, 1/2) = 0.035, of nine 0.0195
        let few = of(&rounds(8, &[1.0, 0.5], 0.0), 3, Some(1));
        assert_eq!((relations(&few)[2], few.noise, few.is_settled), (Relation::NotSeparated, None, false));
        let enough = of(&rounds(9, &[1.0, 0.5], 0.0), 3, Some(1));
        assert_eq!((relations(&enough)[2], enough.noise, enough.is_settled), (Relation::Faster, Some(0.0), true));
        let none = of(&[], 3, Some(1));
        assert!(none.candidates.iter().all(Option::is_none) && !none.is_settled);
        assert!(
            compare(&[], 3, &[0, 1], (0, Some(1)), &ComparisonRules::default()).is_settled,
            "nobody is left to compare"
        );
    }

    #[test]
    fn times_that_are_none_settle_nothing() {
        let bad = [0.0, -1.0, f64::NAN, f64::INFINITY].map(|ns| Round::new(0, vec![Some(1.0), Some(ns)]));
        let found = of(&bad, 2, None);
        assert!(found.candidates[1].is_none() && !found.is_settled, "{found:?}");
    }
}
