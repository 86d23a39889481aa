//! What neighbours know, as points of this space.

use super::history::History;
use super::strategy::{MAX_PRIORS, Outcome, Plan, SearchStrategy};

/// Most priors asked by a strategy that has no other use for them: more would spend the budget on what may not hold here.
const MOST: usize = 8;
/// Distances that are computed for priors that are no config of this space, at most.
const MAX_DISTANCES: usize = 1 << 24;

/// The points that the priors stand for with their relative times, best first, each once.
///
/// A prior that is no config of this space stands for the nearest one. Those of a time that is none are left out, and
/// of the others all but the [`MAX_PRIORS`] best.
pub(super) fn points(plan: &Plan<'_>) -> Vec<(usize, f64)> {
    let good = |relative: f64| relative.is_finite() && relative > 0.0;
    let mut priors: Vec<_> = plan.priors.iter().filter(|prior| good(prior.relative)).collect();
    // a stable sort: equal ones keep the order in which they were handed in
    priors.sort_by(|a, b| a.relative.total_cmp(&b.relative));
    let mut searched = (MAX_DISTANCES / plan.space.count()).max(MOST);
    let mut points: Vec<(usize, f64)> = Vec::new();
    for prior in priors.into_iter().take(MAX_PRIORS) {
        let point = plan.space.find(&prior.config).or_else(|| {
            searched = searched.checked_sub(1)?;
            plan.space.nearest(&prior.config)
        });
        if let Some(point) = point.filter(|point| !points.iter().any(|(known, _)| known == point)) {
            points.push((point, prior.relative));
        }
    }
    points
}

/// Another strategy after the best configs of neighbours.
///
/// The strategy behind is told what became of them as of its own questions.
pub(super) struct Primed<'a> {
    first: Vec<usize>,
    history: History,
    then: Box<dyn SearchStrategy + 'a>,
}

impl<'a> Primed<'a> {
    pub(super) fn new(plan: &Plan<'a>, then: Box<dyn SearchStrategy + 'a>) -> Self {
        let first = points(plan).into_iter().take(MOST).map(|(point, _)| point).collect();
        Self { first, history: History::new(plan.space.count()), then }
    }
}

impl SearchStrategy for Primed<'_> {
    fn ask(&mut self) -> Option<usize> {
        let first = self.first.iter().copied().find(|&point| !self.history.is_seen(point));
        first.or_else(|| self.then.ask())
    }

    fn tell(&mut self, point: usize, outcome: Outcome) {
        self.history.tell(point, outcome);
        self.then.tell(point, outcome);
    }
}
