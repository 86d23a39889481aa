//! Spaces with recorded times of every config, to test a search without a device.
//!
//! Two formats are read, gzip or not: T4 (`results`, each with `configuration`, `times.runtimes`, `measurements`,
//! `invalidity`) and Kernel Tuner's cache (`tune_params_keys`, `cache`, each with its parameters, `times` and `time`).
//! A config's time is the median of its raw repetitions if there are any, else the recorded one; a config without a
//! valid time counts as failed.

mod analytic;
mod kernel_tuner;
mod read;
mod t4;

pub(crate) use analytic::analytic;
pub(crate) use read::read;

use autotune_lowered::search::{Space, TrialOutcome};
use autotune_lowered::stats;

/// A space and the outcome of each of its configs.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    /// The configs.
    pub(crate) space: Space,
    /// The outcome of each config.
    pub(crate) outcomes: Vec<TrialOutcome>,
    /// `t4`, `kernel-tuner` or `simulated`.
    pub(crate) format: &'static str,
}

impl Recorded {
    /// The outcome of a point.
    pub(crate) fn outcome(&self, point: usize) -> TrialOutcome {
        self.outcomes.get(point).copied().unwrap_or(TrialOutcome::Failed)
    }

    /// The times of the configs that ran, in the order of the points.
    pub(crate) fn times(&self) -> impl Iterator<Item = f64> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            TrialOutcome::Time(time) => Some(*time),
            TrialOutcome::Failed => None,
        })
    }
}

/// The outcome of raw repetitions, or of one number if there are none.
fn outcome(repetitions: &[f64], single: Option<f64>) -> TrialOutcome {
    stats::median(repetitions).or(single).map_or(TrialOutcome::Failed, TrialOutcome::of)
}
