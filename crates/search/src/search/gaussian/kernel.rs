//! The covariance of two configs: rational quadratic, with a weight for each parameter.

/// Covariance for a weighted squared distance: 1 at 0. Arithmetic alone, so that every machine gives the same.
///
/// Rational quadratic with exponent 2 (Rasmussen and Williams, Gaussian Processes for Machine Learning, equation 4.19):
/// a mixture of squared exponentials of many lengths, which suits times that have both a trend and steps.
#[inline]
pub(in crate::search) fn covariance(distance: f32) -> f32 {
    let root = 1.0 / (1.0 + 0.25 * distance);
    root * root
}

/// The sum of products. Slice patterns call nothing, which matters where nothing is inlined, as in tests.
#[inline]
pub(in crate::search) fn dot(mut a: &[f64], mut b: &[f64]) -> f64 {
    let mut sum = 0.0;
    while let ([first, others @ ..], [second, rest @ ..]) = (a, b) {
        sum += first * second;
        (a, b) = (others, rest);
    }
    sum
}

/// Points as numbers in `[0, 1]`, parameter by parameter, then the next point's.
#[derive(Debug, Clone)]
pub(in crate::search) struct Coordinates {
    pub(in crate::search) width: usize,
    pub(in crate::search) numbers: Vec<f32>,
    /// For each parameter whether there is a distance between its values; else they are the same or not.
    pub(in crate::search) ordered: Vec<bool>,
}

impl Coordinates {
    pub(in crate::search) fn new(ordered: &[bool]) -> Self {
        Self { width: ordered.len(), numbers: Vec::new(), ordered: ordered.to_vec() }
    }

    pub(in crate::search) fn row(&self, at: usize) -> &[f32] {
        self.numbers.get(at * self.width..(at + 1) * self.width).unwrap_or_default()
    }

    pub(in crate::search) fn push(&mut self, row: &[f32]) {
        self.numbers.extend_from_slice(row);
    }

    /// Gives each point further numbers, column by column, between which there is a distance.
    pub(in crate::search) fn widen(&mut self, columns: &[Vec<f32>]) {
        let further = |at: usize| columns.iter().map(move |column| column.get(at).copied().unwrap_or_default());
        let rows = (0..self.count()).flat_map(|at| self.row(at).iter().copied().chain(further(at)));
        self.numbers = rows.collect();
        self.width += columns.len();
        self.ordered.extend(columns.iter().map(|_| true));
    }

    pub(in crate::search) fn count(&self) -> usize {
        self.numbers.len().checked_div(self.width).unwrap_or(0)
    }

    /// The weighted squared distance of two rows.
    #[inline]
    pub(in crate::search) fn distance(&self, weights: &[f32], a: &[f32], b: &[f32]) -> f32 {
        let mut sum = 0.0;
        let mut rest = (weights, a, b, self.ordered.as_slice());
        while let ([weight, weights @ ..], [a, more_a @ ..], [b, more_b @ ..], [ordered, others @ ..]) = rest {
            let apart = a - b;
            sum += weight * if *ordered { apart * apart } else { f32::from(u8::from(apart != 0.0)) };
            rest = (weights, more_a, more_b, others);
        }
        sum
    }
}
