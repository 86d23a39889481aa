//! A Gaussian process over a space's points that is extended by one observation at a time.
//!
//! Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 2.1, with the Cholesky factor grown row by
//! row. For a fixed pool of points the solved cross-covariances are kept too, so that an observation costs one pass
//! over them: number of observations times size of the pool.

use super::kernel::{Coordinates, covariance, dot};

/// The hyperparameters of the covariance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    /// For each parameter the inverse squared length.
    pub(super) weights: Vec<f32>,
    /// Variance of the noise, over that of the function.
    pub(super) noise: f32,
}

/// The Cholesky factor of the observations' covariance, and the observations solved by it.
#[derive(Debug, Clone)]
pub(super) struct Factor {
    shape: Shape,
    seen: Coordinates,
    /// Lower triangle, row after row.
    lower: Vec<f64>,
    /// The factor's solution for the observations.
    solved: Vec<f64>,
    logarithm: f64,
}

impl Factor {
    pub(super) fn new(shape: Shape, ordered: &[bool]) -> Self {
        Self { shape, seen: Coordinates::new(ordered), lower: Vec::new(), solved: Vec::new(), logarithm: 0.0 }
    }

    fn row(&self, at: usize) -> &[f64] {
        let start = at * (at + 1) / 2;
        self.lower.get(start..=start + at).unwrap_or_default()
    }

    /// Adds an observation; its row of the factor becomes the last.
    pub(super) fn add(&mut self, point: &[f32], value: f64) {
        let count = self.solved.len();
        let mut row: Vec<f64> = Vec::with_capacity(count + 1);
        for other in 0..count {
            let covered = f64::from(covariance(self.seen.distance(&self.shape.weights, point, self.seen.row(other))));
            let known = self.row(other);
            let pivot = known.last().copied().unwrap_or(1.0);
            row.push((covered - dot(&row, known)) / pivot);
        }
        // the noise keeps it above zero; rounding of single precision must not bring it below
        let pivot = (1.0 + f64::from(self.shape.noise) - dot(&row, &row)).max(1e-6).sqrt();
        let known = dot(&row, &self.solved);
        row.push(pivot);
        self.lower.extend_from_slice(&row);
        self.solved.push((value - known) / pivot);
        self.logarithm += pivot.ln();
        self.seen.push(point);
    }

    /// The weight of each observation in the process's mean: the solution by the factor's transpose.
    pub(super) fn weights(&self) -> Vec<f64> {
        let mut left = self.solved.clone();
        for at in (0..left.len()).rev() {
            let row = self.row(at);
            let (Some(value), Some(pivot)) = (left.get(at).copied(), row.last()) else { continue };
            let weight = value / pivot;
            for (earlier, factor) in left.iter_mut().zip(row.iter().take(at)) {
                *earlier -= factor * weight;
            }
            if let Some(slot) = left.get_mut(at) {
                *slot = weight;
            }
        }
        left
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
        let count = self.solved.len() as f64;
        let sum = dot(&self.solved, &self.solved);
        -0.5 * count * (sum / count.max(1.0)).max(1e-12).ln() - self.logarithm
    }

    /// The maximum-likelihood variance of the function.
    pub(super) fn variance(&self) -> f64 {
        let sum = dot(&self.solved, &self.solved);
        (sum / self.solved.len().max(1) as f64).max(1e-12)
    }
}

/// The process's mean and variance at each point of a pool.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    /// Parameter by parameter the points' numbers.
    columns: Vec<Vec<f32>>,
    ordered: Vec<bool>,
    /// For each observation a row: the factor's solution for the covariances with the pool.
    solved: Vec<Vec<f32>>,
    mean: Vec<f32>,
    variance: Vec<f32>,
}

impl Pool {
    pub(super) fn new(points: Coordinates) -> Self {
        let count = points.count();
        let column = |at: usize| (0..count).filter_map(|row| points.row(row).get(at).copied()).collect();
        let columns = (0..points.width).map(column).collect();
        Self {
            columns,
            ordered: points.ordered,
            solved: Vec::new(),
            mean: vec![0.0; count],
            variance: vec![1.0; count],
        }
    }

    /// Adds the factor's last observation.
    pub(super) fn extend(&mut self, factor: &Factor) {
        let Some(at) = factor.solved.len().checked_sub(1) else { return };
        let seen = factor.seen.row(at);
        let mut row = vec![0.0_f32; self.mean.len()];
        for (((column, &ordered), &own), &weight) in
            self.columns.iter().zip(&self.ordered).zip(seen).zip(&factor.shape.weights)
        {
            for (sum, &other) in row.iter_mut().zip(column) {
                let apart = own - other;
                *sum += weight * if ordered { apart * apart } else { f32::from(u8::from(apart != 0.0)) };
            }
        }
        row.iter_mut().for_each(|value| *value = covariance(*value));
        let known = factor.row(at);
        for (&weight, earlier) in known.iter().zip(&self.solved) {
            let weight = weight as f32;
            for (value, &other) in row.iter_mut().zip(earlier) {
                *value -= weight * other;
            }
        }
        let pivot = 1.0 / known.last().copied().unwrap_or(1.0) as f32;
        let solved = factor.solved.get(at).copied().unwrap_or_default() as f32;
        for ((value, mean), variance) in row.iter_mut().zip(&mut self.mean).zip(&mut self.variance) {
            *value *= pivot;
            *mean += *value * solved;
            *variance -= *value * *value;
        }
        self.solved.push(row);
    }

    /// Mean at each point.
    pub(super) fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// Variance at each point, over the function's; rounding may leave it a little below zero.
    pub(super) fn variance(&self) -> &[f32] {
        &self.variance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two observations by hand: means and variances from the inverse of a 2 by 2 matrix.
    #[test]
    fn two_observations_give_what_the_formula_gives() {
        let noise = 0.01_f64;
        let mut factor = Factor::new(Shape { weights: vec![4.0], noise: noise as f32 }, &[true]);
        let mut pool = Pool::new(Coordinates { width: 1, numbers: vec![0.25, 1.0], ordered: vec![true] });
        for (point, value) in [(0.0, 1.0), (0.5, -1.0)] {
            factor.add(&[point], value);
            pool.extend(&factor);
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
            assert!((factor.means(&factor.weights(), &point)[0] - mean).abs() < 1e-5, "{x}");
            assert!((f64::from(pool.variance()[place]) - variance).abs() < 1e-5, "{x}");
        }
        let quadratic = (own + own + 2.0 * cross) / determinant;
        assert!((factor.variance() - quadratic / 2.0).abs() < 1e-6);
        let likelihood = -(quadratic / 2.0).ln() - 0.5 * determinant.ln();
        assert!((factor.likelihood() - likelihood).abs() < 1e-6);
    }
}
