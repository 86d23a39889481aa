//! Synthetic prior knowledge about configs.

use clap::ValueEnum;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// How useful it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prior {
    /// Nothing that helps
    Misleading,
    /// The time within a third, among what does not help
    Helpful,
}

impl Prior {
    /// Six figures of each config: random numbers, the first of which may be related to its time.
    pub(crate) fn figures(self, times: impl Iterator<Item = Option<f64>>, seed: u64) -> Vec<Vec<Option<f64>>> {
        let mut random = ChaCha8Rng::seed_from_u64(!seed);
        let mut uniform = || random.next_u64() as f64 / u64::MAX as f64;
        let mut of = |time: Option<f64>| {
            let mut figures: Vec<Option<f64>> = (0..6).map(|_| Some(uniform())).collect();
            if let (Self::Helpful, Some(first)) = (self, figures.first_mut()) {
                *first = time.map(|time| time.ln() + 0.3 * (uniform() - 0.5));
            }
            figures
        };
        times.map(&mut of).collect()
    }
}
