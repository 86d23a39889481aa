//! Neighbours' best configs, as points of this space.

use super::history::History;
use super::strategy::{MAX_PRIORS, SearchStrategy, StrategyPlan, TrialOutcome};

/// Maximum number of priors asked by a strategy that has no other use for them: more would spend the budget on what may
/// not hold here.
const MOST: usize = 8;
/// Maximum number of distances computed for priors that are not in this space.
const MAX_DISTANCES: usize = 1 << 24;

/// The points that the priors map to, in their order, each once.
///
/// A prior that is not a config of this space maps to the nearest one. Of more than [`MAX_PRIORS`] the first are taken.
pub(super) fn points(plan: &StrategyPlan<'_>) -> Vec<usize> {
    let mut searched = (MAX_DISTANCES / plan.space.count()).max(MOST);
    let mut points: Vec<usize> = Vec::new();
    for prior in plan.priors.iter().take(MAX_PRIORS) {
        let point = plan.space.find(prior).or_else(|| {
            searched = searched.checked_sub(1)?;
            plan.space.nearest(prior)
        });
        if let Some(point) = point.filter(|point| !points.contains(point)) {
            points.push(point);
        }
    }
    points
}

/// Another strategy after the best configs of neighbours.
///
/// The inner strategy observes their outcomes like those of its own questions.
pub(super) struct Primed<'a> {
    first: Vec<usize>,
    history: History,
    then: Box<dyn SearchStrategy + 'a>,
}

impl<'a> Primed<'a> {
    pub(super) fn new(plan: &StrategyPlan<'a>, then: Box<dyn SearchStrategy + 'a>) -> Self {
        let first = points(plan).into_iter().take(MOST).collect();
        Self { first, history: History::new(plan), then }
    }
}

impl SearchStrategy for Primed<'_> {
    fn ask(&mut self) -> Option<usize> {
        let first = self.first.iter().copied().find(|&point| !self.history.is_seen(point));
        first.or_else(|| self.then.ask())
    }

    fn tell(&mut self, point: usize, outcome: TrialOutcome) {
        self.history.tell(point, outcome);
        self.then.tell(point, outcome);
    }
}
