//! Summaries of several values.

use autotune_lowered::stats::quantile;
use serde::Serialize;

/// Median and spread of some values; all NaN without values.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) median: f64,
    pub(crate) low_quartile: f64,
    pub(crate) high_quartile: f64,
    pub(crate) p95: f64,
    pub(crate) most: f64,
    pub(crate) values: Vec<f64>,
}

impl Summary {
    pub(crate) fn of(values: Vec<f64>) -> Self {
        let at = |q| quantile(&values, q).unwrap_or(f64::NAN);
        let (low_quartile, median, high_quartile) = (at(0.25), at(0.5), at(0.75));
        Self { n: values.len(), median, low_quartile, high_quartile, p95: at(0.95), most: at(1.0), values }
    }
}

/// The Jaccard index of two sets; two empty sets are alike.
pub(crate) fn jaccard(one: &[usize], other: &[usize]) -> f64 {
    let shared = one.iter().filter(|item| other.contains(item)).count();
    let all = one.len() + other.len() - shared;
    if all == 0 { 1.0 } else { shared as f64 / all as f64 }
}

/// Mean over all pairs of sets; NaN for fewer than two sets.
pub(crate) fn mean_jaccard(sets: &[Vec<usize>]) -> f64 {
    let pairs = sets.iter().enumerate().flat_map(|(i, one)| sets[i + 1..].iter().map(move |other| jaccard(one, other)));
    let indices: Vec<f64> = pairs.collect();
    mean(&indices)
}

/// Share of the pairs whose members differ, which is the probability that two runs do; NaN for fewer than two values.
pub(crate) fn pairs_that_differ(values: &[usize]) -> f64 {
    let pairs = values.iter().enumerate().flat_map(|(i, one)| values[i + 1..].iter().map(move |other| one != other));
    let differ: Vec<bool> = pairs.collect();
    differ.iter().filter(|&&differ| differ).count() as f64 / differ.len() as f64
}

/// Mean of some values; NaN without values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The largest rate at which `hits` or fewer of `n` still have a probability of 5% (Clopper and Pearson, one-sided).
pub(crate) fn rate_at_most(hits: usize, n: usize) -> f64 {
    let up_to_hits = |rate: f64| {
        let mut term = (1.0 - rate).powi(n as i32);
        let mut sum = term;
        for k in 1..=hits {
            term *= rate / (1.0 - rate) * (n - k + 1) as f64 / k as f64;
            sum += term;
        }
        sum
    };
    let (mut low, mut high) = (hits as f64 / n as f64, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if hits < n && up_to_hits(middle) > 0.05 { low = middle } else { high = middle }
    }
    if hits < n { low } else { 1.0 }
}
