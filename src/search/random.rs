//! Every config once, in an order of chance.

use super::draw::Draw;
use super::history::History;
use super::strategy::{Outcome, Plan, SearchStrategy};

/// Asks for the points in the order of its seed.
#[derive(Debug, Clone)]
pub(super) struct Random {
    history: History,
    order: Vec<u32>,
    next: usize,
}

impl Random {
    pub(super) fn new(plan: &Plan<'_>) -> Self {
        let count = plan.space.count();
        Self { history: History::new(count), order: Draw::new(plan.seed, 0).shuffled(count), next: 0 }
    }

    fn at(&self) -> Option<usize> {
        self.order.get(self.next).map(|&point| point as usize)
    }
}

impl SearchStrategy for Random {
    fn ask(&mut self) -> Option<usize> {
        self.at()
    }

    fn tell(&mut self, point: usize, outcome: Outcome) {
        self.history.tell(point, outcome);
        while self.at().is_some_and(|point| self.history.is_seen(point)) {
            self.next += 1;
        }
    }
}
