//! A search on recorded times instead of a device.

use std::time::{Duration, Instant};

use super::recorded::Recorded;
use autotune_lowered::search::{SearchStrategy, TrialOutcome};

/// The course of a simulated search.
#[derive(Debug, Clone, Default)]
pub(crate) struct Simulated {
    /// The points asked for, in order.
    pub(crate) asked: Vec<usize>,
    /// The best time so far after each evaluation; `None` as long as nothing ran.
    pub(crate) best: Vec<Option<f64>>,
    /// Time within the strategy itself.
    pub(crate) own: Duration,
}

/// Runs a strategy until it asks for nothing more or `evaluations` are spent.
pub(crate) fn simulate(strategy: &mut dyn SearchStrategy, recorded: &Recorded, evaluations: usize) -> Simulated {
    let mut done = Simulated::default();
    let mut best: Option<f64> = None;
    for _ in 0..evaluations {
        let began = Instant::now();
        let asked = strategy.ask();
        done.own += began.elapsed();
        let Some(point) = asked else { break };
        let outcome = recorded.outcome(point);
        if let TrialOutcome::Time(time) = outcome {
            best = Some(best.map_or(time, |best| best.min(time)));
        }
        done.asked.push(point);
        done.best.push(best);
        let began = Instant::now();
        strategy.tell(point, outcome);
        done.own += began.elapsed();
    }
    done
}
