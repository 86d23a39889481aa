//! A Gaussian process over a space's points, whose hyperparameters are given.

use crate::search::gaussian::{Coordinates, GaussianProcess, covariance};

/// The hyperparameters of the covariance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CovarianceShape {
    /// For each parameter the inverse squared length.
    pub(super) weights: Vec<f32>,
    /// Variance of the noise, over that of the function.
    pub(super) noise: f32,
}

/// The process of the points observed so far.
#[derive(Debug, Clone)]
pub(super) struct ShapedProcess {
    pub(super) shape: CovarianceShape,
    seen: Coordinates,
    process: GaussianProcess,
}

impl ShapedProcess {
    pub(super) fn new(shape: CovarianceShape, ordered: &[bool]) -> Self {
        Self { shape, seen: Coordinates::new(ordered), process: GaussianProcess::default() }
    }

    pub(super) fn add(&mut self, point: &[f32], value: f64) {
        let Self { shape, seen, process } = self;
        let known = |other: usize| f64::from(covariance(seen.distance(&shape.weights, point, seen.row(other))));
        process.add(known, 1.0 + f64::from(shape.noise), value);
        seen.push(point);
    }

    /// The last observation: its point, its row of the factor, and its solved value.
    pub(super) fn last(&self) -> Option<(&[f32], &[f64], f64)> {
        let (row, solved) = self.process.last()?;
        Some((self.seen.row(self.process.count() - 1), row, solved))
    }

    /// The weight of each observation in the process's mean.
    pub(super) fn weights(&self) -> Vec<f64> {
        self.process.weights()
    }

    /// The process's mean at points, by the observations' weights.
    pub(super) fn means(&self, weights: &[f64], points: &Coordinates) -> Vec<f64> {
        let mean = |at: usize| -> f64 {
            let parts = weights.iter().enumerate().map(|(other, weight)| {
                let distance = self.seen.distance(&self.shape.weights, points.row(at), self.seen.row(other));
                weight * f64::from(covariance(distance))
            });
            parts.sum()
        };
        (0..points.count()).map(mean).collect()
    }

    /// Logarithm of the observations' likelihood, the function's variance at its best, without constant terms.
    pub(super) fn likelihood(&self) -> f64 {
        -0.5 * self.process.count() as f64 * self.variance().ln() - self.process.half_log_determinant()
    }

    /// The maximum-likelihood variance of the function.
    pub(super) fn variance(&self) -> f64 {
        (self.process.squares() / self.process.count().max(1) as f64).max(1e-12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::model::pool::Pool;

    /// Two observations by hand: means and variances from the inverse of a 2 by 2 matrix.
    #[test]
    fn two_observations_give_what_the_formula_gives() {
        let noise = 0.01_f64;
        let mut process = ShapedProcess::new(CovarianceShape { weights: vec![4.0], noise: noise as f32 }, &[true]);
        let mut pool = Pool::new(Coordinates { width: 1, numbers: vec![0.25, 1.0], ordered: vec![true] });
        for (point, value) in [(0.0, 1.0), (0.5, -1.0)] {
            process.add(&[point], value);
            pool.extend(&process);
        }
        let k = |a: f64, b: f64| (1.0 + (a - b) * (a - b)).powi(-2);
        let (own, cross) = (1.0 + noise, k(0.0, 0.5));
        let determinant = own * own - cross * cross;
        for (place, x) in [0.25, 1.0].into_iter().enumerate() {
            let (a, b) = (k(x, 0.0), k(x, 0.5));
            let mean = ((own * a - cross * b) - (own * b - cross * a)) / determinant;
            let variance = 1.0 - (a * (own * a - cross * b) + b * (own * b - cross * a)) / determinant;
            assert!((f64::from(pool.mean()[place]) - mean).abs() < 1e-5, "{x}");
            let point = Coordinates { width: 1, numbers: vec![x as f32], ordered: vec![true] };
            assert!((process.means(&process.weights(), &point)[0] - mean).abs() < 1e-5, "{x}");
            assert!((f64::from(pool.variance()[place]) - variance).abs() < 1e-5, "{x}");
        }
        let quadratic = (own + own + 2.0 * cross) / determinant;
        assert!((process.variance() - quadratic / 2.0).abs() < 1e-6);
        let likelihood = -(quadratic / 2.0).ln() - 0.5 * determinant.ln();
        assert!((process.likelihood() - likelihood).abs() < 1e-6);
    }
}
