//! Ratios of samples that were taken side by side.

/// What one interleaved round measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// The measuring process; samples of two epochs are never compared.
    pub epoch: u32,
    /// One sample a candidate, nanoseconds; `None` where it was not measured in this round.
    pub samples_ns: Vec<Option<f64>>,
}

impl Round {
    /// The sample of one candidate, if it is a usable time: finite and above zero.
    pub fn sample_ns(&self, candidate: usize) -> Option<f64> {
        self.samples_ns.get(candidate).copied().flatten().filter(|ns| ns.is_finite() && *ns > 0.0)
    }
}

/// `numerator / denominator` for each round that holds a usable sample of both.
pub fn paired_ratios(rounds: &[Round], numerator: usize, denominator: usize) -> Vec<f64> {
    rounds.iter().filter_map(|round| Some(round.sample_ns(numerator)? / round.sample_ns(denominator)?)).collect()
}
