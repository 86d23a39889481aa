//! What neighbours' priors predict for a point before it has an outcome.

use std::collections::HashMap;

use super::shaped::{CovarianceShape, ShapedProcess};
use crate::search::gaussian::Features;
use crate::search::space::Space;

/// Variance of the noise: a neighbour's result need not hold here to the last per cent.
const NOISE: f32 = 0.05;
/// The initial trust, in deviations of the outcomes, and how many outcomes it counts as.
const TRUST: f64 = 1.0;
const TRUST_COUNTS: f64 = 2.0;
/// Maximum number of points whose prediction is kept.
const KEPT: usize = 1 << 16;

/// A surface over the space: −1 at the neighbours' best configs, 0 where nothing is known.
#[derive(Debug, Clone)]
pub(super) struct Neighbour {
    process: ShapedProcess,
    weights: Vec<f64>,
    kept: HashMap<usize, f64>,
}

impl Neighbour {
    /// The surface of these points; `None` without any.
    pub(super) fn of(points: &[usize], space: &Space, features: &Features) -> Option<Self> {
        let mut process =
            ShapedProcess::new(CovarianceShape { weights: features.of_parameters(), noise: NOISE }, features.ordered());
        for &point in points {
            process.add(&features.row(space, point), -1.0);
        }
        let weights = process.weights();
        (!points.is_empty()).then(|| Self { process, weights, kept: HashMap::new() })
    }

    /// The prediction for each point.
    pub(super) fn at(&mut self, space: &Space, features: &Features, points: &[usize]) -> Vec<f64> {
        let new: Vec<usize> = points.iter().copied().filter(|point| !self.kept.contains_key(point)).collect();
        if self.kept.len() + new.len() > KEPT {
            self.kept.clear();
            return self.process.means(&self.weights, &features.rows(space, points));
        }
        let means = self.process.means(&self.weights, &features.rows(space, &new));
        self.kept.extend(new.into_iter().zip(means));
        points.iter().map(|point| self.kept.get(point).copied().unwrap_or_default()).collect()
    }
}

/// How far the surface is trusted: the slope of the outcomes over it, at least zero, shrunk towards [`TRUST`] while
/// outcomes are few. Priors that mislead lose their slope with the first outcomes.
pub(super) fn trust(expected: &[f64], values: &[f64]) -> f64 {
    let count = expected.len().max(1) as f64;
    let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / count;
    let (centre, middle) = (mean(expected), mean(values));
    let own: f64 = expected.iter().map(|e| (e - centre).powi(2)).sum();
    let both: f64 = expected.iter().zip(values).map(|(e, v)| (e - centre) * (v - middle)).sum();
    // the surface's own variance is a tenth or so: priors cover a part of the space
    let counted = TRUST_COUNTS * 0.1;
    ((both + counted * TRUST) / (own + counted)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priors_that_mislead_are_not_believed() {
        assert!((trust(&[], &[]) - TRUST).abs() < 1e-12);
        let expected: Vec<f64> = (0..40).map(|n| -f64::from(n % 5) / 4.0).collect();
        let alike: Vec<f64> = expected.iter().map(|e| 2.0 * e).collect();
        let against: Vec<f64> = expected.iter().map(|e| -e).collect();
        assert!((trust(&expected, &alike) - 2.0).abs() < 0.1);
        assert_eq!(trust(&expected, &against), 0.0);
    }
}
