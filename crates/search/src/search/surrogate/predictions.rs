//! What the surrogate says about the configs that were not measured, and when they may be skipped.

use serde::{Deserialize, Serialize};

use crate::setters;

/// When configs may be skipped.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct WaveRules {
    /// Part of the best config's time that a better one must save to matter.
    pub least_gain: f64,
    /// The noise floor: a config that is better by less does not matter either.
    pub noise_floor: f64,
    /// The skipped configs together may be better with this probability.
    pub chance: f64,
    /// Configs of the first wave, the baseline included.
    pub first: usize,
    /// Configs of each later one.
    pub wave: usize,
}

setters!(WaveRules { least_gain: f64, noise_floor: f64, chance: f64, first: usize, wave: usize });

impl WaveRules {
    /// Waves of this many configs, the first half as large again; what is skipped may gain 2% with a probability of 5%.
    pub fn new(wave: usize) -> Self {
        let wave = wave.max(1);
        Self { least_gain: 0.02, noise_floor: 0.0, chance: 0.05, first: wave + wave / 2, wave }
    }
}

/// The expected ratio of a config's time to another one's; [`Surrogate::predict`](super::Surrogate::predict) takes the
/// best measured one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExpectedRatio {
    /// The median.
    pub ratio: f64,
    /// The ratio is below this with a probability of 5%.
    pub low: f64,
    /// The ratio is above this with a probability of 5%. Times above four times the best's are not distinguished.
    pub high: f64,
}

/// Predictions for the configs of a call that were not measured.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Predictions {
    /// Probability that any of them is better than the best by the least gain and by more than the noise floor.
    pub chance: f64,
    /// Each with its expected ratio.
    pub left: Vec<(usize, ExpectedRatio)>,
    /// Which to compile and look at next, the likeliest first; none if all can be skipped.
    pub next: Vec<usize>,
}

impl ExpectedRatio {
    /// Relative to another program, which takes the best's time divided by `factor`.
    pub fn scaled(self, factor: f64) -> Self {
        Self { ratio: self.ratio * factor, low: self.low * factor, high: self.high * factor }
    }
}

impl Predictions {
    /// With the caller's numbers instead of points; without those that it does not have.
    pub fn renumbered(self, number: impl Fn(usize) -> Option<usize>) -> Self {
        let left = self.left.into_iter().filter_map(|(point, expected)| Some((number(point)?, expected))).collect();
        Self { left, next: self.next.into_iter().filter_map(&number).collect(), ..self }
    }
}
