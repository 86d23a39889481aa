//! Robust statistics of timings: median, quantiles and spread; moments; tests of differences.
//!
//! ```
//! use autotune_lowered_lookup::stats::{median, median_absolute_deviation, quantile};
//!
//! let times = [10.0, 11.0, 10.5, 90.0, 10.2];
//! assert_eq!(median(&times), Some(10.5), "one outlier does not matter");
//! assert_eq!(quantile(&times, 1.0), Some(90.0));
//! assert!(median_absolute_deviation(&times).is_some_and(|spread| (spread - 0.5).abs() < 1e-9));
//! assert_eq!(median(&[]), None);
//! ```

mod moments;
mod welch;

pub use moments::Moments;
pub use welch::{MeanDifference, holm, welch};

/// The middle value, or the mean of the two middle ones; `None` for an empty slice or one with a NaN.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The `q`-quantile by linear interpolation between order statistics (Hyndman and Fan's type 7, as in numpy).
///
/// `None` for an empty slice, one with a NaN, or a `q` outside `[0, 1]`.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    between(&sorted(values)?, q)
}

/// Several [`quantile`]s of the same values.
pub fn quantiles<const N: usize>(values: &[f64], shares: [f64; N]) -> [Option<f64>; N] {
    let sorted = sorted(values);
    shares.map(|q| between(sorted.as_deref()?, q))
}

fn between(sorted: &[f64], q: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    let place = q * (sorted.len() - 1) as f64;
    let below = *sorted.get(place.floor() as usize)?;
    let above = *sorted.get(place.ceil() as usize)?;
    // equal neighbours are returned unchanged, so that infinities do not become NaN
    Some(if below == above { below } else { below + (above - below) * (place - place.floor()) })
}

/// Median absolute deviation from the median, unscaled.
pub fn median_absolute_deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    median(&deviations)
}

/// An interval and its actual confidence.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the interval covers the median, for any distribution.
    pub confidence: f64,
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
}
