//! The interface of a search strategy: it is asked for a config and observes the outcome.

use crate::config::Config;
use crate::setters;

use super::space::Space;

/// The outcome of a config that was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TrialOutcome {
    /// It took this long, in any unit that is the same for all; finite and above zero.
    Time(f64),
    /// It did not run, or gave no valid time.
    Failed,
}

impl TrialOutcome {
    /// The outcome of a measured time: zero, a negative number, an infinity and NaN are not times.
    pub fn of(time: f64) -> Self {
        if time.is_finite() && time > 0.0 { Self::Time(time) } else { Self::Failed }
    }
}

/// Maximum number of priors that a strategy takes; further ones are ignored.
pub const MAX_PRIORS: usize = 256;

/// What a strategy is started with.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StrategyPlan<'a> {
    /// The configs to choose from.
    pub space: &'a Space,
    /// The same seed and the same outcomes give the same questions.
    pub seed: u64,
    /// Maximum number of evaluations; `None` if unknown.
    pub budget: Option<usize>,
    /// The best configs of neighbours, the nearest neighbour's first: of the same operation with other shapes, or on
    /// another device. They may lie outside the space; at most [`MAX_PRIORS`] are taken.
    pub priors: &'a [Config],
    /// Points that are known not to run; no strategy asks for one.
    pub refused: &'a [usize],
    /// What is known about each point besides its parameters, such as a compiler's figures: the same figures in the
    /// same order, in any unit. Points without figures, and those beyond the last, are in the middle. The outcomes
    /// decide whether they count.
    pub figures: &'a [Vec<Option<f64>>],
}

impl<'a> StrategyPlan<'a> {
    /// A search of a space without a bound or prior knowledge.
    pub fn new(space: &'a Space, seed: u64) -> Self {
        Self { space, seed, budget: None, priors: &[], refused: &[], figures: &[] }
    }
}

setters!(StrategyPlan<'a> {
    budget: Option<usize>,
    priors: &'a [Config],
    refused: &'a [usize],
    figures: &'a [Vec<Option<f64>>],
});

/// A way to choose which config to measure next.
///
/// Its questions depend only on its plan and on the outcomes in their order: after an interruption, a new strategy of
/// the same plan continues where the old one was when it observes the same history.
pub trait SearchStrategy {
    /// The point to measure next; the same until the next outcome. `None` when there is nothing left to ask.
    fn ask(&mut self) -> Option<usize>;

    /// The outcome of a point, whether this strategy asked for it or not.
    fn tell(&mut self, point: usize, outcome: TrialOutcome);
}
