//! Compares two means with any variances (Welch, Biometrika 34 (1947) 28), and corrects for many such comparisons.

use super::moments::Moments;

/// The difference of two means, with its interval and p-value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanDifference {
    /// Mean of the second minus mean of the first.
    pub difference: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The probability of a difference at least as large, were the means the same.
    pub p: f64,
}

/// Compares two samples by Welch's t; the interval has the given confidence. `None` with fewer than two values in
/// either.
pub fn welch(first: &Moments, second: &Moments, confidence: f64) -> Option<MeanDifference> {
    let difference = second.mean() - first.mean();
    // squared standard errors of the means
    let error = |moments: &Moments| Some(moments.deviation()?.powi(2) / moments.count() as f64);
    let (one, other) = (error(first)?, error(second)?);
    let variance = one + other;
    if variance <= 0.0 {
        // without any variance the means differ certainly, or not at all
        let p = if difference == 0.0 { 1.0 } else { 0.0 };
        return Some(MeanDifference { difference, low: difference, high: difference, p });
    }
    let part = |error: f64, moments: &Moments| error * error / (moments.count() - 1) as f64;
    let degrees = variance * variance / (part(one, first) + part(other, second));
    let half = t_quantile(confidence, degrees) * variance.sqrt();
    let p = t_tails(difference / variance.sqrt(), degrees);
    Some(MeanDifference { difference, low: difference - half, high: difference + half, p })
}

/// Adjusted p-values, so that each may be compared with one threshold, which then bounds the probability of any false
/// one among all (Holm, Scandinavian Journal of Statistics 6 (1979) 65).
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    let of = |place: usize| probabilities.get(place).copied().unwrap_or(1.0);
    order.sort_by(|&one, &other| of(one).total_cmp(&of(other)));
    let (mut adjusted, mut least) = (vec![1.0; probabilities.len()], 0.0_f64);
    for (rank, &place) in order.iter().enumerate() {
        least = least.max(of(place) * (probabilities.len() - rank) as f64).min(1.0);
        if let Some(slot) = adjusted.get_mut(place) {
            *slot = least;
        }
    }
    adjusted
}

/// The probability that Student's t is farther from zero than this.
fn t_tails(t: f64, degrees: f64) -> f64 {
    incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))
}

/// The t that is exceeded on either side with the rest of the confidence.
fn t_quantile(confidence: f64, degrees: f64) -> f64 {
    let rest = 1.0 - confidence;
    let (mut low, mut high) = (0.0, 1.0);
    while t_tails(high, degrees) > rest && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if t_tails(middle, degrees) > rest { low = middle } else { high = middle }
    }
    high
}

/// The regularized incomplete beta function, by its continued fraction (DLMF 8.17.22), from the side on which it
/// converges fast.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - front * fraction(b, a, 1.0 - x) / b;
    }
    front * fraction(a, b, x) / a
}

/// The continued fraction, evaluated forwards (Lentz, Applied Optics 15 (1976) 668).
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    let away = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for step in 1..10_000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            change = c * d;
            value *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// The logarithm of the gamma function for a positive argument: Stirling's series (DLMF 5.11.1) from 12 on, and below
/// by recurrence.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 12.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360_360.0];
    let tail = series.iter().rev().fold(0.0, |sum, term| sum * inverse + term) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: &[f64]) -> Moments {
        let mut moments = Moments::default();
        values.iter().for_each(|&value| moments.add(value));
        moments
    }

    #[test]
    fn tails_equal_the_published_table() {
        // Student's t, two-sided 5% and 1%: 12.706, 2.776, 2.228, 1.984 and 63.657, 4.604 at 1, 4, 10, 100 and 1, 4
        // degrees
        for (confidence, degrees, t) in [
            (0.95, 1.0, 12.706),
            (0.95, 4.0, 2.776),
            (0.95, 10.0, 2.228),
            (0.95, 100.0, 1.984),
            (0.99, 1.0, 63.657),
            (0.99, 4.0, 4.604),
        ] {
            assert!(
                (t_quantile(confidence, degrees) - t).abs() < 6e-4,
                "{degrees}: {}",
                t_quantile(confidence, degrees)
            );
        }
        // closed forms: Cauchy at one degree, t / sqrt(2 + t^2) at two
        assert!((t_tails(1.0, 1.0) - 0.5).abs() < 1e-13);
        assert!((t_tails(3.0, 2.0) - (1.0 - 3.0 / 11_f64.sqrt())).abs() < 1e-13);
    }

    #[test]
    fn welch_equals_scipy() {
        // scipy.stats.ttest_ind(b, a, equal_var=False) and its confidence_interval(0.95), SciPy 1.17.1
        let a = moments(&[27.5, 21.0, 19.0, 23.6, 17.0, 17.9]);
        let b = moments(&[27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0]);
        let found = welch(&a, &b, 0.95).unwrap();
        for (value, expected) in [
            (found.difference, 2.500000000000),
            (found.low, -1.696094052160),
            (found.high, 6.696094052160),
            (found.p, 0.201988677353),
        ] {
            assert!((value - expected).abs() < 1e-10, "{value} {expected}");
        }
        assert_eq!(welch(&a, &moments(&[1.0]), 0.95), None);
        let same = moments(&[2.0, 2.0]);
        assert_eq!(welch(&same, &same, 0.95).unwrap().p, 1.0);
        assert_eq!(welch(&same, &moments(&[3.0, 3.0]), 0.95).unwrap().p, 0.0);
    }

    #[test]
    fn holm_by_hand() {
        // 4 · 0.01, 3 · 0.015, then 2 · 0.02 below the one before it, and 0.9
        assert_eq!(holm(&[0.02, 0.01, 0.9, 0.015]), [0.045, 0.04, 0.9, 0.045]);
        assert_eq!(holm(&[0.6, 0.7]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }
}
