//! What neighbours know is asked first.

use super::history::History;
use super::strategy::{Outcome, Plan, SearchStrategy};

/// Most priors asked: more would spend the budget on what may not hold here.
const MOST: usize = 8;

/// Another strategy after the best configs of neighbours.
///
/// A prior that is no config of this space stands for the nearest one. The strategy behind is told what became of
/// them as of its own questions.
pub(super) struct Primed<'a> {
    first: Vec<usize>,
    history: History,
    then: Box<dyn SearchStrategy + 'a>,
}

impl<'a> Primed<'a> {
    pub(super) fn new(plan: &Plan<'a>, then: Box<dyn SearchStrategy + 'a>) -> Self {
        let mut priors: Vec<_> = plan.priors.iter().filter(|prior| prior.relative.is_finite()).collect();
        // a stable sort: equal ones keep the order in which they were handed in
        priors.sort_by(|a, b| a.relative.total_cmp(&b.relative));
        let mut first: Vec<usize> = Vec::new();
        for prior in priors {
            if first.len() == MOST {
                break;
            }
            first.extend(plan.space.nearest(&prior.config).filter(|point| !first.contains(point)));
        }
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
