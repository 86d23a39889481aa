//! What a sample consists of, and the results of the first runs.

/// How a candidate is sampled in a round: a number of durations, each of a batch of runs timed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sampling {
    pub(super) runs: u32,
    pub(super) batch: u32,
    /// Time of one run; 0 for one that cannot win.
    pub(super) run_ns: u64,
}

pub(super) const ONE_RUN: Sampling = Sampling { runs: 1, batch: 1, run_ns: 0 };

/// The results of the candidates' first runs.
#[derive(Debug, Default)]
pub(super) struct WarmUp {
    /// Each candidate's fastest run, nanoseconds.
    pub(super) fastest: Vec<Option<u64>>,
    /// The fastest of all.
    pub(super) best: Option<u64>,
}

impl WarmUp {
    /// An empty warm-up for this number of candidates.
    pub(super) fn of(candidates: usize) -> Self {
        Self { fastest: vec![None; candidates], best: None }
    }

    /// Durations of a candidate's first runs; zero durations are ignored.
    pub(super) fn note(&mut self, candidate: usize, ns: &[u64]) {
        let own = ns.iter().copied().filter(|&ns| ns > 0).min();
        self.best = [self.best, own].into_iter().flatten().min();
        if let Some(place) = self.fastest.get_mut(candidate) {
            *place = own;
        }
    }
}
