//! Fits the covariance's hyperparameters to the outcomes.

use super::shaped::{CovarianceShape, ShapedProcess};

/// Variance of the noise, over that of the function, before anything is known: recorded medians scatter little.
const NOISE: f32 = 1e-4;
const LEAST_NOISE: f32 = 1e-5;
/// Prior deviation of the logarithms of a weight and of the noise from their initial values.
const WEIGHT_DEVIATION: f64 = 3.0;
const NOISE_DEVIATION: f64 = 1.5;
/// Maximum number of outcomes in a fit.
const LOOKED_AT: usize = 128;
/// Passes over all parameters while outcomes are few, and once a shape has been found.
const PASSES: (usize, usize) = (3, 1);
const FEW: usize = 48;
/// Below this many outcomes any shape will do.
const LEAST: usize = 4;

/// Outcomes from which on all features have a weight.
pub(super) const ALL_FEATURES: usize = 64;

/// The shape before any fit: only the first features have weight.
pub(super) fn first(weights: &[f32], early: impl Iterator<Item = bool>) -> CovarianceShape {
    let weights = weights.iter().zip(early).map(|(&weight, early)| if early { weight } else { 0.0 });
    CovarianceShape { weights: weights.collect(), noise: NOISE }
}

/// The same shape where every feature has a weight.
pub(super) fn widened(shape: &CovarianceShape, base: &[f32]) -> CovarianceShape {
    let weights = shape.weights.iter().zip(base).map(|(&weight, &base)| if weight > 0.0 { weight } else { base });
    CovarianceShape { weights: weights.collect(), noise: shape.noise }
}

/// The shape with the greatest posterior found from `from` by doubling and halving one number after another, and the
/// logarithm of that posterior; with too few outcomes `from` itself.
pub(super) fn fitted(
    from: &CovarianceShape,
    base: &[f32],
    ordered: &[bool],
    rows: &[Vec<f32>],
    values: &[f64],
) -> (CovarianceShape, Option<f64>) {
    let mut shape = from.clone();
    if rows.len() < LEAST {
        return (shape, None);
    }
    let posterior = |shape: &CovarianceShape| {
        let mut process = ShapedProcess::new(shape.clone(), ordered);
        for (row, &value) in rows.iter().zip(values).take(LOOKED_AT) {
            process.add(row, value);
        }
        process.likelihood() - 0.5 * surprise(shape, base)
    };
    let mut reached = posterior(&shape);
    for _ in 0..if rows.len() < FEW { PASSES.0 } else { PASSES.1 } {
        for number in (0..=base.len()).filter(|&number| from.weights.get(number) != Some(&0.0)) {
            for factor in [2.0, 0.5] {
                let mut other = shape.clone();
                match other.weights.get_mut(number) {
                    Some(weight) => *weight *= factor,
                    None => other.noise = (other.noise * factor).max(LEAST_NOISE),
                }
                let found = posterior(&other);
                if found > reached {
                    (reached, shape) = (found, other);
                    break;
                }
            }
        }
    }
    (shape, Some(reached))
}

/// Squared distance of the numbers' logarithms from their initial values, in deviations.
fn surprise(shape: &CovarianceShape, base: &[f32]) -> f64 {
    let squared = |number: f32, start: f32, deviation: f64| ((f64::from(number / start)).ln() / deviation).powi(2);
    let weights = shape.weights.iter().zip(base).filter(|(weight, _)| **weight > 0.0);
    let weights = weights.map(|(&weight, &start)| squared(weight, start, WEIGHT_DEVIATION));
    weights.sum::<f64>() + squared(shape.noise, NOISE, NOISE_DEVIATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of one of two parameters: the other one's weight must fall, its own rise.
    #[test]
    fn what_does_not_matter_loses_its_weight() {
        let rows: Vec<Vec<f32>> =
            (0..40_u16).map(|n| vec![f32::from(n * 7 % 10) / 9.0, f32::from(n * 13 % 8) / 7.0]).collect();
        let values: Vec<f64> = rows.iter().map(|row| (f64::from(row[0]) * 9.0).sin()).collect();
        let base = [4.0, 4.0];
        let mut shape = first(&base, [true, true].into_iter());
        for _ in 0..3 {
            (shape, _) = fitted(&shape, &base, &[true, true], &rows, &values);
        }
        assert!(shape.weights[0] > 8.0 * shape.weights[1], "{shape:?}");
    }
}
