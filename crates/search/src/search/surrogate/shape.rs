//! How smooth the times are over the configs, drawn from the prior.

use crate::chance::{Draw, Normals};

/// How many shapes are averaged over.
pub(super) const SHAPES: usize = 64;
/// Deviation of the logarithms of each weight and of the independent part from their usual values.
const DEVIATION: f64 = 1.5;
/// The usual variance of a config's independent part, over that of the process.
const OWN: f64 = 0.06;

/// One way in which times may depend on configs.
#[derive(Debug, Clone)]
pub(super) struct TimeShape {
    /// For each feature the inverse squared length.
    pub(super) weights: Vec<f32>,
    /// Variance of each config's independent part, over that of the process.
    pub(super) own: f64,
    /// Correlation of the same config in two calls.
    pub(super) common: f64,
}

/// The shapes for features of these usual weights; the same for the same seed. The last features are figures, which may
/// have nothing to do with the times: in every other shape they do not count, so that the outcomes decide between the
/// two.
pub(super) fn shapes(seed: u64, stream: u64, usual: &[f32], figures: usize) -> Vec<TimeShape> {
    let mut normals = Normals::new(Draw::new(seed, stream));
    let parameters = usual.len().saturating_sub(figures);
    let shape = |number: usize| TimeShape {
        weights: (0..)
            .zip(usual)
            .map(|(at, &usual)| {
                let counts = if at < parameters || number.is_multiple_of(2) { usual } else { 0.0 };
                counts * (DEVIATION * normals.next()).exp() as f32
            })
            .collect(),
        own: OWN * (DEVIATION * normals.next()).exp(),
        // the distribution Beta(2, 1): two calls of an operation have more in common than not
        common: normals.uniform().sqrt(),
    };
    (0..SHAPES).map(shape).collect()
}
