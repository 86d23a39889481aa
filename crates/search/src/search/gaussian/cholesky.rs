//! Cholesky factors of small matrices, and their solutions.

use super::kernel::dot;

/// Squares of pivots are at least this: rounding of single precision must not bring one to zero.
const LEAST_PIVOT: f64 = 1e-6;

/// A lower triangle, row after row.
#[derive(Debug, Clone, Default)]
pub(in crate::search) struct Cholesky {
    numbers: Vec<f64>,
    size: usize,
}

impl Cholesky {
    /// The factor of a symmetric matrix, given by its lower triangle.
    pub(in crate::search) fn factor(size: usize, entry: impl Fn(usize, usize) -> f64) -> Self {
        let mut lower = Self::default();
        for row in 0..size {
            lower.push(|column| entry(row, column), entry(row, row));
        }
        lower
    }

    /// Adds the matrix's next row: its entries before the diagonal, and the one on it. Returns the pivot.
    pub(in crate::search) fn push(&mut self, entry: impl Fn(usize) -> f64, diagonal: f64) -> f64 {
        let start = self.numbers.len();
        for column in 0..self.size {
            let (before, own) = self.numbers.split_at(start);
            let other = part(before, column);
            let pivot = other.last().copied().unwrap_or(1.0);
            self.numbers.push((entry(column) - dot(own, other)) / pivot);
        }
        let own = self.numbers.get(start..).unwrap_or_default();
        let pivot = (diagonal - dot(own, own)).max(LEAST_PIVOT).sqrt();
        self.numbers.push(pivot);
        self.size += 1;
        pivot
    }

    /// A row, its pivot last.
    pub(in crate::search) fn row(&self, at: usize) -> &[f64] {
        part(&self.numbers, at)
    }

    fn rows(&self) -> impl DoubleEndedIterator<Item = &[f64]> + ExactSizeIterator {
        (0..self.size).map(|at| self.row(at))
    }

    /// The solution x of L x = b.
    pub(super) fn solve(&self, mut values: Vec<f64>) -> Vec<f64> {
        for (at, row) in self.rows().enumerate() {
            let Some((before, rest)) = values.split_at_mut_checked(at) else { break };
            if let (Some(value), Some(pivot)) = (rest.first_mut(), row.last()) {
                *value = (*value - dot(row, before)) / pivot;
            }
        }
        values
    }

    /// The solution x of Lᵀ x = b.
    pub(super) fn solve_transposed(&self, mut values: Vec<f64>) -> Vec<f64> {
        for (at, row) in self.rows().enumerate().rev() {
            let Some((before, rest)) = values.split_at_mut_checked(at) else { break };
            let (Some(value), Some(pivot)) = (rest.first_mut(), row.last()) else { continue };
            *value /= pivot;
            for (earlier, factor) in before.iter_mut().zip(row) {
                *earlier -= factor * *value;
            }
        }
        values
    }

    /// L z.
    pub(in crate::search) fn times(&self, values: &[f64]) -> Vec<f64> {
        self.rows().map(|row| dot(row, values)).collect()
    }

    /// Half the logarithm of the matrix's determinant.
    pub(super) fn half_log_determinant(&self) -> f64 {
        self.rows().filter_map(|row| row.last()).map(|pivot| pivot.ln()).sum()
    }
}

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
        let lower = Cholesky::factor(3, |row, column| matrix[row][column]);
        assert_eq!(lower.size, 3);
        for (row, column) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)] {
            let found: f64 = lower.row(row).iter().zip(lower.row(column)).map(|(a, b)| a * b).sum();
            assert!((found - matrix[row][column]).abs() < 1e-12, "{row} {column}");
        }
        let values = [1.0, -2.0, 3.0];
        let back = lower.times(&lower.solve(values.to_vec()));
        assert!(back.iter().zip(values).all(|(a, b)| (a - b).abs() < 1e-12), "{back:?}");
        // both solutions together are that of the whole matrix
        let whole = lower.solve_transposed(lower.solve(values.to_vec()));
        let back = matrix.map(|row| dot(&row, &whole));
        assert!(back.iter().zip(values).all(|(a, b)| (a - b).abs() < 1e-12), "{back:?}");
        // the determinant by the rule of Sarrus
        let determinant: f64 = 60.0 + 1.2 + 1.2 - 1.8 - 4.0 - 12.0;
        assert!((lower.half_log_determinant() - 0.5 * determinant.ln()).abs() < 1e-12);
    }
}
