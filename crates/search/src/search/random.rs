//! Every config once, in random order.

use super::history::History;
use super::strategy::{SearchStrategy, StrategyPlan, TrialOutcome};
use crate::chance::Draw;

/// Asks for the points in the order of its seed.
#[derive(Debug, Clone)]
pub(super) struct Random {
    history: History,
    order: Vec<u32>,
    next: usize,
}

impl Random {
    pub(super) fn new(plan: &StrategyPlan<'_>) -> Self {
        let order = Draw::new(plan.seed, 0).shuffled(plan.space.count());
        let mut new = Self { history: History::new(plan), order, next: 0 };
        new.skip();
        new
    }

    /// Advances to the next point without an outcome.
    fn skip(&mut self) {
        while self.at().is_some_and(|point| self.history.is_seen(point)) {
            self.next += 1;
        }
    }

    fn at(&self) -> Option<usize> {
        self.order.get(self.next).map(|&point| point as usize)
    }
}

impl SearchStrategy for Random {
    fn ask(&mut self) -> Option<usize> {
        self.at()
    }

    fn tell(&mut self, point: usize, outcome: TrialOutcome) {
        self.history.tell(point, outcome);
        self.skip();
    }
}
