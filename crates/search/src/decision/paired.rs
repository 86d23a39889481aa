//! Ratios of samples taken side by side.

use crate::setters;

/// The measurements of one interleaved round.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Round {
    /// The measuring process; samples of two epochs are never compared.
    pub epoch: u32,
    /// One sample per candidate, nanoseconds; `None` if it was not measured in this round.
    pub samples_ns: Vec<Option<f64>>,
    /// The baseline once more, at the start and the end of the round, if it was measured there.
    pub sentinel_ns: Option<[f64; 2]>,
    /// Whether other processes used the cores meanwhile, so that it says something about a busy machine only.
    pub is_contended: bool,
}

setters!(Round { sentinel_ns: Option<[f64; 2]>, is_contended: bool });

impl Round {
    /// A round without sentinels.
    pub fn new(epoch: u32, samples_ns: Vec<Option<f64>>) -> Self {
        Self { epoch, samples_ns, sentinel_ns: None, is_contended: false }
    }

    /// The samples of these candidates alone, in this order.
    pub fn of(&self, candidates: &[usize]) -> Self {
        let samples_ns = candidates.iter().map(|candidate| self.sample_ns(*candidate)).collect();
        Self { samples_ns, ..self.clone() }
    }

    /// The same with each candidate's time multiplied.
    pub(super) fn scaled(mut self, factors: &[f64]) -> Self {
        for (sample, factor) in self.samples_ns.iter_mut().zip(factors) {
            *sample = sample.map(|ns| ns * factor);
        }
        self
    }

    /// The same in a process that came after so many others.
    pub fn epoch_after(self, epochs: u32) -> Self {
        Self { epoch: epochs + self.epoch, ..self }
    }

    /// The sample of one candidate, if it is a usable time: finite and above zero.
    pub fn sample_ns(&self, candidate: usize) -> Option<f64> {
        self.samples_ns.get(candidate).copied().flatten().filter(|ns| is_time(*ns))
    }

    /// The logarithm of the baseline's time at the end over that at the start.
    pub(super) fn swing(&self) -> Option<f64> {
        let [begin, end] = self.sentinel_ns?;
        (is_time(begin) && is_time(end)).then(|| (end / begin).ln())
    }
}

fn is_time(ns: f64) -> bool {
    ns.is_finite() && ns > 0.0
}

/// `numerator / denominator` for each round that holds a usable sample of both.
pub fn paired_ratios<'a>(
    rounds: impl IntoIterator<Item = &'a Round>,
    numerator: usize,
    denominator: usize,
) -> Vec<f64> {
    let ratio = |round: &Round| Some(round.sample_ns(numerator)? / round.sample_ns(denominator)?);
    rounds.into_iter().filter_map(ratio).collect()
}

/// The natural logarithms of [`paired_ratios`]: above zero if the numerator is slower.
pub fn log_ratios<'a>(rounds: impl IntoIterator<Item = &'a Round>, numerator: usize, denominator: usize) -> Vec<f64> {
    let mut ratios = paired_ratios(rounds, numerator, denominator);
    ratios.iter_mut().for_each(|ratio| *ratio = ratio.ln());
    ratios
}
