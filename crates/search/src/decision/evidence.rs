//! Evidence that is valid at every look: e-values from signs and from large differences.
//!
//! Under the hypothesis "no slower" a difference exceeds a threshold with at most a known probability q. The likelihood
//! ratio of the exceedances so far, mixed uniformly over all probabilities above q, is a test martingale: the
//! probability that it ever reaches 1/α is at most α (Ville's inequality; Shafer, Testing by betting, 2021; the mixture
//! for signs is that of Robbins, Statistical methods related to the law of the iterated logarithm, 1970). The mean over
//! several thresholds is one again. The threshold 0 with q = 1/2 assumes nothing but that rounds are independent; the
//! higher ones take their q from the noise that all candidates show together, and drop a candidate that is far slower
//! after three rounds instead of twelve.

use super::noise::RoundNoise;
use crate::stats::Interval;

/// The e-value of the differences against "no slower": 1 is no evidence.
///
/// `differences` are logarithms of time over the other's time, one per round, in any order.
pub fn slower(differences: &[f64], noise: &RoundNoise) -> f64 {
    let thresholds = noise.thresholds(differences);
    let exceeding = |above: f64| differences.iter().filter(|difference| **difference > above).count();
    let sum: f64 = thresholds.iter().map(|&(above, share)| bet(exceeding(above), differences.len(), share)).sum();
    sum / thresholds.len().max(1) as f64
}

/// The likelihood ratio of `hits` among `n` against a probability of at most `share`, mixed uniformly over those above.
fn bet(hits: usize, n: usize, share: f64) -> f64 {
    if !(share > 0.0 && share < 1.0) {
        return 1.0;
    }
    // the integral of p^k (1-p)^(n-k) from `share` to 1 is B(k+1, n-k+1) P(Binomial(n+1, share) <= k)
    let log_mixture = -((n + 1) as f64).ln() - log_choose(n, hits) + binomial_cdf(hits, n + 1, share).ln();
    let log_null = hits as f64 * share.ln() + (n - hits) as f64 * (1.0 - share).ln();
    (log_mixture - log_null - (1.0 - share).ln()).exp()
}

/// An interval of the median that holds at every look, from the signs alone: the values that [`slower`]'s bet at q =
/// 1/2 does not refuse on either side.
///
/// With too few values for that confidence it is the whole range, with the confidence that the range has.
pub fn anytime_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len();
    // a half of the error on either side
    let covered = |cut: usize| 1.0 - 2.0 / bet(n - cut, n, 0.5);
    let cut = (0..n.div_ceil(2)).take_while(|&cut| covered(cut) >= confidence).last().unwrap_or(0);
    Some(Interval { low: *sorted.get(cut)?, high: *sorted.get(n - 1 - cut)?, confidence: covered(cut).max(0.0) })
}

/// The logarithm of n over k.
fn log_choose(n: usize, k: usize) -> f64 {
    (1..=k.min(n - k)).map(|i| ((n + 1 - i) as f64 / i as f64).ln()).sum()
}

/// `P(X <= k)` for `X ~ Binomial(n, p)`, p inside (0, 1).
fn binomial_cdf(k: usize, n: usize, p: f64) -> f64 {
    // in logarithms, since p^n underflows
    let mut log_term = n as f64 * (1.0 - p).ln();
    let mut sum = log_term.exp();
    for i in 1..=k.min(n) {
        log_term += ((n + 1 - i) as f64 / i as f64).ln() + p.ln() - (1.0 - p).ln();
        sum += log_term.exp();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bets_equal_the_integral() {
        // all of 6 above the median: the integral of p^6 over (1/2, 1) is (1 - 2^-7) / 7, over 2^-6 and 1/2
        assert!((bet(6, 6, 0.5) - (1.0 - 0.5_f64.powi(7)) / 7.0 * 64.0 * 2.0).abs() < 1e-9);
        // 2 of 3 at 0.1: the integral of p^2 (1 - p) is p^3/3 - p^4/4
        let whole = |p: f64| p.powi(3) / 3.0 - p.powi(4) / 4.0;
        let expected = (whole(1.0) - whole(0.1)) / 0.9 / (0.01 * 0.9);
        assert!((bet(2, 3, 0.1) - expected).abs() < 1e-9, "{} {expected}", bet(2, 3, 0.1));
        assert!(bet(0, 20, 0.5) < 0.1, "what is faster each time is no evidence of slower");
        assert!((bet(0, 0, 0.5) - 1.0).abs() < 1e-12);
        assert!(bet(100_000, 100_000, 0.5).is_infinite() && bet(50_000, 100_000, 0.5) < 1.0);
    }

    #[test]
    fn a_fair_bet_gains_nothing_on_average() {
        // the mean over Binomial(n, q) of a likelihood ratio is one
        for (n, q) in [(5, 0.5), (12, 0.2), (30, 0.05)] {
            let mean: f64 = (0..=n)
                .map(|k| {
                    let log = log_choose(n, k) + k as f64 * f64::ln(q) + (n - k) as f64 * f64::ln(1.0 - q);
                    log.exp() * bet(k, n, q)
                })
                .sum();
            assert!((mean - 1.0).abs() < 1e-9, "{n} {q}: {mean}");
        }
    }

    #[test]
    fn the_interval_narrows_and_tells_what_it_covers() {
        let values = |n: u32| (0..n).map(f64::from).collect::<Vec<_>>();
        // 2 / bet(6, 6) = 0.11
        let six = anytime_interval(&values(6), 0.95).unwrap();
        assert_eq!((six.low, six.high), (0.0, 5.0));
        assert!((six.confidence - 0.889).abs() < 1e-3, "{}", six.confidence);
        let hundred = anytime_interval(&values(100), 0.95).unwrap();
        assert!(hundred.confidence >= 0.95 && hundred.low >= 30.0 && hundred.high <= 69.0, "{hundred:?}");
        assert!((hundred.low + hundred.high - 99.0).abs() < 1e-12);
        assert!(anytime_interval(&[], 0.95).is_none() && anytime_interval(&[1.0, f64::NAN], 0.95).is_none());
    }
}
