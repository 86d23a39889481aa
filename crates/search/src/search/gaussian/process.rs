//! A Gaussian process's observations.

use super::cholesky::Cholesky;
use super::kernel::dot;

/// The Cholesky factor of the observations' covariance, and their values solved by it (Rasmussen and Williams, Gaussian
/// Processes for Machine Learning, algorithm 2.1), extended by one observation at a time.
#[derive(Debug, Clone, Default)]
pub(in crate::search) struct GaussianProcess {
    lower: Cholesky,
    solved: Vec<f64>,
}

impl GaussianProcess {
    /// Adds an observation, by its covariance with each of those before, its variance with its noise, and its value.
    pub(in crate::search) fn add(&mut self, covariance: impl Fn(usize) -> f64, variance: f64, value: f64) {
        let at = self.solved.len();
        let pivot = self.lower.push(covariance, variance);
        let known = dot(self.lower.row(at), &self.solved);
        self.solved.push((value - known) / pivot);
    }

    pub(in crate::search) fn count(&self) -> usize {
        self.solved.len()
    }

    /// The last one's row of the factor, its pivot last, and its solved value; `None` without any.
    pub(in crate::search) fn last(&self) -> Option<(&[f64], f64)> {
        Some((self.lower.row(self.count().checked_sub(1)?), *self.solved.last()?))
    }

    /// The weight of each observation in the process's mean.
    pub(in crate::search) fn weights(&self) -> Vec<f64> {
        self.lower.solve_transposed(self.solved.clone())
    }

    /// Covariances of a point with the observations, solved by the factor.
    pub(in crate::search) fn solve(&self, covariances: Vec<f64>) -> Vec<f64> {
        self.lower.solve(covariances)
    }

    /// The process's mean at a point, by its solved covariances.
    pub(in crate::search) fn mean(&self, solved: &[f64]) -> f64 {
        dot(solved, &self.solved)
    }

    /// The observations' squares in units of their covariance.
    pub(in crate::search) fn squares(&self) -> f64 {
        dot(&self.solved, &self.solved)
    }

    /// Half the logarithm of the determinant of the observations' covariance.
    pub(in crate::search) fn half_log_determinant(&self) -> f64 {
        self.lower.half_log_determinant()
    }
}
