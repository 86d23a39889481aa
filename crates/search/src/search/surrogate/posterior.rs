//! What the outcomes say about the remaining configs: joint draws over all shapes.

use rayon::prelude::*;

use super::shape::TimeShape;
use crate::chance::{Draw, Normals};
use crate::search::gaussian::{Cholesky, Coordinates, GaussianProcess, covariance, dot};

/// Joint draws of the remaining configs.
pub(super) const DRAWS: usize = 2000;
/// Variance of each call's mean, over that of the process: an uninformative prior.
const OF_MEAN: f64 = 4.0;
/// Prior standard deviation of the process, as a logarithm of time, and how many outcomes it counts as.
const SCALE: f64 = 0.5;
const SCALE_COUNTS: usize = 3;

/// A config of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConfigPlace {
    pub(super) call: usize,
    /// Its row in the call's coordinates.
    pub(super) row: usize,
}

/// An outcome: the logarithm of a time, and its standard deviation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    pub(super) place: ConfigPlace,
    pub(super) value: f64,
    pub(super) deviation: f64,
}

/// The fit of one shape to the outcomes.
struct OfShape {
    log_weight: f64,
    mean: Vec<f64>,
    factor: Cholesky,
    /// Sum of squares from which the scale is drawn.
    squares: f64,
}

/// Draws of the values at `left`, each draw one row.
pub(super) fn joint(
    rows: &[Coordinates],
    shapes: &[TimeShape],
    observations: &[Observation],
    left: &[ConfigPlace],
    (seed, stream): (u64, u64),
) -> Vec<Vec<f64>> {
    let of_shapes: Vec<OfShape> = shapes.par_iter().map(|shape| of_shape(rows, shape, observations, left)).collect();
    let most = of_shapes.iter().map(|one| one.log_weight).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = of_shapes.iter().map(|one| (one.log_weight - most).exp()).collect();
    let all: f64 = weights.iter().sum();
    let mut normals = Normals::new(Draw::new(seed, stream));
    let degrees = SCALE_COUNTS + observations.len();
    // systematic resampling: the draws of each shape are proportional to its weight, rounded to an integer
    let (mut reached, mut taken) = (normals.uniform(), 0);
    let mut draws = Vec::with_capacity(DRAWS);
    for (one, weight) in of_shapes.iter().zip(weights) {
        reached += weight / all * DRAWS as f64;
        while taken < DRAWS && (taken as f64) < reached - 0.5 {
            let scale = (one.squares / normals.chi_squared(degrees)).sqrt();
            let apart = one.factor.times(&normals.take(left.len()));
            draws.push(one.mean.iter().zip(apart).map(|(mean, apart)| mean + scale * apart).collect());
            taken += 1;
        }
    }
    draws
}

fn of_shape(rows: &[Coordinates], shape: &TimeShape, observations: &[Observation], left: &[ConfigPlace]) -> OfShape {
    let between = |a: ConfigPlace, b: ConfigPlace| {
        let (Some(first), Some(second)) = (rows.get(a.call), rows.get(b.call)) else { return 0.0 };
        let alike = f64::from(covariance(first.distance(&shape.weights, first.row(a.row), second.row(b.row))));
        let own = if a == b { shape.own } else { 0.0 };
        if a.call == b.call { alike + own + OF_MEAN } else { alike * shape.common }
    };
    let mut process = GaussianProcess::default();
    for one in observations {
        let known = |other: usize| observations.get(other).map_or(0.0, |other| between(one.place, other.place));
        process.add(known, between(one.place, one.place) + (one.deviation / SCALE).powi(2), one.value);
    }
    let crossed: Vec<Vec<f64>> = left
        .iter()
        .map(|&place| process.solve(observations.iter().map(|one| between(one.place, place)).collect()))
        .collect();
    let mean = crossed.iter().map(|row| process.mean(row)).collect();
    let factor = Cholesky::factor(left.len(), |row, column| {
        match (left.get(row), left.get(column), crossed.get(row), crossed.get(column)) {
            (Some(&a), Some(&b), Some(of_a), Some(of_b)) => between(a, b) - dot(of_a, of_b),
            _ => 0.0,
        }
    });
    let squares = SCALE_COUNTS as f64 * SCALE * SCALE + process.squares();
    let degrees = (SCALE_COUNTS + observations.len()) as f64;
    let log_weight = -process.half_log_determinant() - 0.5 * degrees * squares.ln();
    OfShape { log_weight, mean, factor, squares }
}
