//! A fixed pool of points, whose solved covariances are kept: an observation costs one pass over them, the number of
//! observations times the size of the pool.

use super::shaped::ShapedProcess;
use crate::search::gaussian::{Coordinates, covariance};

/// The process's mean and variance at each point of a pool.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    /// Parameter by parameter the points' numbers.
    columns: Vec<Vec<f32>>,
    ordered: Vec<bool>,
    /// For each observation a row: the solution for the covariances with the pool.
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

    /// Adds the process's last observation.
    pub(super) fn extend(&mut self, process: &ShapedProcess) {
        let Some((seen, known, solved)) = process.last() else { return };
        let mut row = vec![0.0_f32; self.mean.len()];
        for (((column, &ordered), &own), &weight) in
            self.columns.iter().zip(&self.ordered).zip(seen).zip(&process.shape.weights)
        {
            for (sum, &other) in row.iter_mut().zip(column) {
                let apart = own - other;
                *sum += weight * if ordered { apart * apart } else { f32::from(u8::from(apart != 0.0)) };
            }
        }
        row.iter_mut().for_each(|value| *value = covariance(*value));
        for (&weight, earlier) in known.iter().zip(&self.solved) {
            let weight = weight as f32;
            for (value, &other) in row.iter_mut().zip(earlier) {
                *value -= weight * other;
            }
        }
        let pivot = 1.0 / known.last().copied().unwrap_or(1.0) as f32;
        let solved = solved as f32;
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
