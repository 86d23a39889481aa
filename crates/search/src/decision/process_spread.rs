//! How much a ratio varies between processes.

use serde::{Deserialize, Serialize};

use super::process_ratio::ProcessRatio;

/// A spread below this is luck, not a quality of the machine.
const LEAST_SPREAD: f64 = 0.002;
/// Processes that raise the spread by more than this factor are of a call that varies by itself.
const VARIES: f64 = 2.0;
/// How far apart two spreads may be, as a factor, with nothing between them.
const STEP: f64 = 4.0;
/// Points of the distribution of σ, from an eighth of its scale to sixteen times.
const SCALES: i32 = 29;

/// What is known about the spread of ratios between processes: a standard deviation, and the degrees of freedom that it
/// rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessSpread {
    /// Standard deviation of the logarithm of a ratio between processes.
    pub deviation: f64,
    /// Degrees of freedom.
    pub degrees: f64,
}

impl ProcessSpread {
    /// What is assumed of a quiet machine of which nothing is known, and of a busy one (docs/decisions.md has the
    /// measurements).
    pub const QUIET: Self = Self { deviation: 0.02, degrees: 6.0 };
    /// The same of a machine whose cores other processes use.
    pub const CONTENDED: Self = Self { deviation: 0.1, degrees: 4.0 };

    /// What is assumed if a device's own clock times programs there: what the host does is not in it.
    pub const DEVICE_CLOCK: Self = Self { deviation: 0.005, degrees: 6.0 };

    /// The same for two processes that run one after the other: each meets the machine at another time.
    #[must_use]
    pub fn one_after_the_other(self) -> Self {
        Self { deviation: 1.5 * self.deviation, ..self }
    }

    /// A spread that this many degrees of freedom tell.
    pub fn new(deviation: f64, degrees: f64) -> Self {
        Self { deviation, degrees }
    }

    /// The same with what the processes of another call add.
    #[must_use]
    pub fn and(self, processes: &[ProcessRatio]) -> Self {
        let more = processes.len().saturating_sub(1) as f64;
        let mean = processes.iter().map(ProcessRatio::log).sum::<f64>() / processes.len().max(1) as f64;
        let squares: f64 = processes.iter().map(|process| (process.log() - mean).powi(2) - process.error.powi(2)).sum();
        if more <= 0.0 || !squares.is_finite() {
            return self;
        }
        let degrees = self.degrees + more;
        let variance = (self.degrees * self.deviation.powi(2) + squares.max(0.0)) / degrees;
        Self { deviation: variance.sqrt(), degrees }
    }

    /// The spreads that a call may have, each as likely, from what is known of the machine and from the processes of
    /// other calls. Those that vary no more than the machine make it better known. Another one says little about this
    /// call, but that it may vary too: from the machine's spread to that call's, in steps of at most a factor of four.
    pub fn among<'p>(of_machine: Self, others: impl Iterator<Item = &'p [ProcessRatio]>) -> Vec<Self> {
        let varies = |other: &&[ProcessRatio]| of_machine.and(other).deviation > VARIES * of_machine.deviation;
        let (wild, calm): (Vec<_>, Vec<_>) = others.partition(varies);
        let known = calm.into_iter().fold(of_machine, Self::and);
        let to = |other: &[ProcessRatio]| {
            let both = known.and(other);
            let ratio = both.deviation / known.deviation;
            let steps = (ratio.ln() / STEP.ln()).ceil().clamp(1.0, 16.0);
            let between = move |step: i32| {
                let part = f64::from(step) / steps;
                Self { deviation: known.deviation * ratio.powf(part), ..known }
            };
            (1..steps as i32).map(between).chain(std::iter::once(both))
        };
        std::iter::once(known).chain(wild.into_iter().flat_map(to)).collect()
    }

    /// The spread that processes show which measured several pairs of equal programs; `None` of fewer than two
    /// processes. The pairs share a baseline, so they tell the deviation better, and no degree of freedom more.
    pub fn between(pairs: &[&[ProcessRatio]]) -> Option<Self> {
        let of_pair = |pair: &&[ProcessRatio]| {
            let own = Self { deviation: 0.0, degrees: 0.0 }.and(pair);
            (own.degrees > 0.0).then_some(own)
        };
        let known: Vec<Self> = pairs.iter().filter_map(of_pair).collect();
        let degrees = known.iter().map(|one| one.degrees).fold(f64::INFINITY, f64::min);
        let variance = known.iter().map(|one| one.deviation.powi(2)).sum::<f64>() / known.len().max(1) as f64;
        degrees.is_finite().then(|| Self { deviation: variance.sqrt().max(LEAST_SPREAD), degrees })
    }

    /// Several spreads as one.
    pub fn pooled(spreads: impl Iterator<Item = Self>) -> Option<Self> {
        let usable = spreads.filter(|one| one.degrees > 0.0 && one.degrees.is_finite() && one.deviation.is_finite());
        let (squares, degrees) = usable
            .map(|one| (one.degrees * one.deviation.powi(2), one.degrees))
            .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (degrees > 0.0).then(|| Self { deviation: (squares / degrees).sqrt().max(LEAST_SPREAD), degrees })
    }

    /// Standard deviations and their weights, which add up to one.
    pub(super) fn scales(&self) -> Vec<(f64, f64)> {
        let at = |step: i32| self.deviation * 2.0_f64.powf(f64::from(step) / 4.0);
        // the density of ln σ if ν s² / σ² follows χ² with ν degrees of freedom
        let weight = |sigma: f64| {
            let relative = self.deviation / sigma;
            self.degrees * relative.ln() - 0.5 * self.degrees * relative * relative
        };
        let scales: Vec<(f64, f64)> =
            (0..SCALES).map(|step| at(step - 12)).map(|sigma| (sigma, weight(sigma).exp())).collect();
        let all: f64 = scales.iter().map(|(_, weight)| weight).sum();
        scales.into_iter().map(|(sigma, weight)| (sigma, weight / all)).collect()
    }
}
