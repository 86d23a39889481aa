//! Robust statistics of timings: median, quantiles, spread, and a distribution-free interval of the median.

/// The middle value, or the mean of the two middle ones; `None` for an empty slice or one with a NaN.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The `q`-quantile by linear interpolation between order statistics (Hyndman and Fan's type 7, as in numpy).
///
/// `None` for an empty slice, one with a NaN, or a `q` outside `[0, 1]`.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let sorted = sorted(values)?;
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    let place = q * (sorted.len() - 1) as f64;
    let below = *sorted.get(place.floor() as usize)?;
    let above = *sorted.get(place.ceil() as usize)?;
    // equal neighbours are taken as they are, so that infinities do not become NaN
    Some(if below == above { below } else { below + (above - below) * (place - place.floor()) })
}

/// Median absolute deviation from the median, unscaled.
pub fn median_absolute_deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    median(&deviations)
}

/// An interval and the confidence that it really has.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the interval covers the median, whatever the distribution.
    pub confidence: f64,
}

impl Interval {
    /// Whether a value lies inside, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The narrowest pair of order statistics that covers the median with at least `confidence`, from the binomial
/// distribution with p = 1/2 (the inverted sign test; Conover, Practical Nonparametric Statistics, section 3.2).
///
/// With too few values for that confidence (five at 95%) it is the whole range, with the confidence that the range has.
pub fn median_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let sorted = sorted(values)?;
    let n = sorted.len();
    let mut chosen = 0;
    let mut covered = 1.0 - 2.0 * binomial_half_cdf(n, 0);
    for k in 1..n.div_ceil(2) {
        let inner = 1.0 - 2.0 * binomial_half_cdf(n, k);
        if inner < confidence {
            break;
        }
        chosen = k;
        covered = inner;
    }
    Some(Interval { low: *sorted.get(chosen)?, high: *sorted.get(n - 1 - chosen)?, confidence: covered.max(0.0) })
}

/// Count, mean and variance of numbers that come one by one and are not kept (Welford, Technometrics 4 (1962) 419).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// Sum of squared deviations from the mean.
    squares: f64,
}

impl Moments {
    /// Adds a number.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// Adds the numbers that another one saw (Chan, Golub and LeVeque, 1979).
    pub fn join(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        let (ours, theirs) = (self.count as f64, other.count as f64);
        let apart = other.mean - self.mean;
        self.count += other.count;
        self.mean += apart * theirs / (ours + theirs);
        self.squares += other.squares + apart * apart * ours * theirs / (ours + theirs);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; zero where there were none.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Their sample standard deviation, with n − 1; `None` below two.
    pub fn deviation(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).sqrt())
    }
}

/// `P(X <= k)` for `X ~ Binomial(n, 1/2)`.
fn binomial_half_cdf(n: usize, k: usize) -> f64 {
    // in logarithms, since 2^-n underflows beyond a thousand samples
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = log_term.exp();
    for i in 1..=k.min(n) {
        log_term += ((n - i + 1) as f64 / i as f64).ln();
        sum += log_term.exp();
    }
    sum.min(1.0)
}

fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_equal_numpy() {
        // numpy.quantile([3, 1, 4, 1, 5, 9, 2, 6], [0.1, 0.5, 0.9]) = [1.0, 3.5, 6.9]
        let values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        assert_eq!(quantile(&values, 0.1), Some(1.0));
        assert_eq!(median(&values), Some(3.5));
        assert!((quantile(&values, 0.9).unwrap() - 6.9).abs() < 1e-12);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(median_absolute_deviation(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
    }

    #[test]
    fn moments_equal_numpy() {
        // numpy.mean and numpy.std(ddof=1) of [3, 1, 4, 1, 5, 9, 2, 6]
        let mut moments = Moments::default();
        [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0].into_iter().for_each(|value| moments.add(value));
        assert_eq!((moments.count(), moments.mean()), (8, 3.875));
        assert!((moments.deviation().unwrap() - 2.748_376_143_938_713).abs() < 1e-12);
        let mut rest = Moments::default();
        moments = Moments::default();
        [3.0, 1.0, 4.0].into_iter().for_each(|value| moments.add(value));
        [1.0, 5.0, 9.0, 2.0, 6.0].into_iter().for_each(|value| rest.add(value));
        moments.join(rest);
        moments.join(Moments::default());
        assert!((moments.mean() - 3.875).abs() < 1e-12 && moments.count() == 8);
        assert!((moments.deviation().unwrap() - 2.748_376_143_938_713).abs() < 1e-12);
        let mut one = Moments::default();
        one.add(7.0);
        assert_eq!((one.mean(), one.deviation()), (7.0, None));
    }

    #[test]
    fn interval_equals_the_published_table() {
        // Conover's table A3: n = 10 gives ranks 2 and 9 with 97.85%; n = 15 ranks 4 and 12 with 96.48%;
        // n = 20 ranks 6 and 15 with 95.86%
        for (n, low, high, confidence) in [(10, 2.0, 9.0, 0.9785), (15, 4.0, 12.0, 0.9648), (20, 6.0, 15.0, 0.9586)] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let interval = median_interval(&values, 0.95).unwrap();
            assert_eq!((interval.low, interval.high), (low, high), "n = {n}");
            assert!((interval.confidence - confidence).abs() < 1e-4, "n = {n}: {}", interval.confidence);
        }
        let few = median_interval(&[1.0, 2.0, 3.0], 0.95).unwrap();
        assert_eq!((few.low, few.high, few.confidence), (1.0, 3.0, 0.75));
        let one = median_interval(&[1.0], 0.95).unwrap();
        assert_eq!((one.low, one.high, one.confidence), (1.0, 1.0, 0.0));
    }
}
