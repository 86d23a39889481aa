//! Cholesky factors of small matrices, and their solutions.

use crate::search::model::dot;

/// A lower triangle, row after row.
#[derive(Debug, Clone)]
pub(super) struct Lower(Vec<f64>);

impl Lower {
    /// The factor of a symmetric matrix, given by its lower triangle. A pivot that rounding makes zero or negative is
    /// kept slightly positive.
    pub(super) fn factor(size: usize, entry: impl Fn(usize, usize) -> f64) -> Self {
        let mut lower: Vec<f64> = Vec::with_capacity(size * (size + 1) / 2);
        for row in 0..size {
            let start = lower.len();
            for column in 0..=row {
                let (before, own) = lower.split_at(start);
                let other = if column == row { own } else { part(before, column) };
                let left = entry(row, column) - dot(own, other.get(..column).unwrap_or_default());
                let value = match other.get(column) {
                    Some(pivot) if column < row => left / pivot,
                    _ => left.max(LEAST_PIVOT).sqrt(),
                };
                lower.push(value);
            }
        }
        Self(lower)
    }

    fn row(&self, at: usize) -> &[f64] {
        part(&self.0, at)
    }

    fn size(&self) -> usize {
        // the inverse of n (n + 1) / 2
        ((((8 * self.0.len() + 1) as f64).sqrt() as usize).max(1) - 1) / 2
    }

    /// The solution x of L x = b.
    pub(super) fn solve(&self, mut values: Vec<f64>) -> Vec<f64> {
        for at in 0..values.len().min(self.size()) {
            let row = self.row(at);
            let (before, rest) = values.split_at_mut(at);
            if let (Some(value), Some(pivot)) = (rest.first_mut(), row.last()) {
                *value = (*value - dot(row, before)) / pivot;
            }
        }
        values
    }

    /// L z.
    pub(super) fn times(&self, values: &[f64]) -> Vec<f64> {
        (0..self.size()).map(|at| dot(self.row(at), values)).collect()
    }

    /// Half the logarithm of the matrix's determinant.
    pub(super) fn half_log_determinant(&self) -> f64 {
        (0..self.size()).filter_map(|at| self.row(at).last()).map(|pivot| pivot.ln()).sum()
    }
}

/// Squares of pivots are at least this.
const LEAST_PIVOT: f64 = 1e-10;

fn part(lower: &[f64], row: usize) -> &[f64] {
    let start = row * (row + 1) / 2;
    lower.get(start..=start + row).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_its_factor_times_itself_and_is_solved_by_it() {
        let matrix = [[4.0, 2.0, 0.6], [2.0, 5.0, 1.0], [0.6, 1.0, 3.0]];
        let lower = Lower::factor(3, |row, column| matrix[row][column]);
        assert_eq!(lower.size(), 3);
        for (row, column) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)] {
            let found: f64 = lower.row(row).iter().zip(lower.row(column)).map(|(a, b)| a * b).sum();
            assert!((found - matrix[row][column]).abs() < 1e-12, "{row} {column}");
        }
        let back = lower.times(&lower.solve(vec![1.0, -2.0, 3.0]));
        assert!(back.iter().zip([1.0, -2.0, 3.0]).all(|(a, b)| (a - b).abs() < 1e-12), "{back:?}");
        // the determinant by the rule of Sarrus
        let determinant: f64 = 60.0 + 1.2 + 1.2 - 1.8 - 4.0 - 12.0;
        assert!((lower.half_log_determinant() - 0.5 * determinant.ln()).abs() < 1e-12);
    }
}
