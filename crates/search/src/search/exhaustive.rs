//! Every config, one after another.

use super::history::History;
use super::strategy::{SearchStrategy, StrategyPlan, TrialOutcome};

/// Asks for the points in their order.
#[derive(Debug, Clone)]
pub(super) struct Exhaustive {
    history: History,
    next: usize,
}

impl Exhaustive {
    pub(super) fn new(plan: &StrategyPlan<'_>) -> Self {
        let mut new = Self { history: History::new(plan), next: 0 };
        new.skip();
        new
    }

    /// Advances to the next point without an outcome.
    fn skip(&mut self) {
        while self.history.left() > 0 && self.history.is_seen(self.next) {
            self.next += 1;
        }
    }
}

impl SearchStrategy for Exhaustive {
    fn ask(&mut self) -> Option<usize> {
        (self.history.left() > 0).then_some(self.next)
    }

    fn tell(&mut self, point: usize, outcome: TrialOutcome) {
        self.history.tell(point, outcome);
        self.skip();
    }
}
