//! Successive halving: many configs once, the better half of them again, and so on.
//!
//! Jamieson and Talwalkar, Non-stochastic best arm identification and hyperparameter optimization (AISTATS 2016). It
//! is for times that scatter: a config that is asked again is judged by the median of what was told. Where a repetition tells
//! nothing new, as in a simulation on recorded times, it spends half of its evaluations on what it knows.

use std::collections::HashMap;

use super::draw::Draw;
use super::strategy::{Outcome, Plan, SearchStrategy};
use crate::stats;

/// Configs of a bracket's first round where no budget is known.
const FIRST_ROUND: usize = 32;

/// Asks for brackets of configs, each a round of new ones and rounds of the better half.
#[derive(Debug, Clone)]
pub(super) struct Halving {
    /// Points that no bracket has taken yet, the next at the end.
    fresh: Vec<u32>,
    first_round: usize,
    /// The points of this round that are still to be measured, the next at the end.
    waiting: Vec<usize>,
    /// The points of this round.
    round: Vec<usize>,
    times: HashMap<usize, Vec<f64>>,
}

impl Halving {
    pub(super) fn new(plan: &Plan<'_>) -> Self {
        let count = plan.space.count();
        let mut fresh = Draw::new(plan.seed, 0).shuffled(count);
        fresh.reverse();
        // a bracket of n configs takes about 2 n evaluations
        let first_round = plan.budget.map_or(FIRST_ROUND, |budget| budget / 2).clamp(1, count);
        let mut new = Self { fresh, first_round, waiting: Vec::new(), round: Vec::new(), times: HashMap::new() };
        new.advance();
        new
    }

    /// Begins the next round, or the next bracket when one config is left.
    fn advance(&mut self) {
        if self.round.len() > 1 {
            let judged =
                |point: &usize| self.times.get(point).and_then(|times| stats::median(times)).unwrap_or(f64::INFINITY);
            let mut ranked: Vec<(f64, usize)> = self.round.iter().map(|point| (judged(point), *point)).collect();
            ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
            ranked.truncate(self.round.len() / 2);
            // what failed is not asked again
            self.round = ranked.into_iter().filter(|(time, _)| time.is_finite()).map(|(_, point)| point).collect();
        } else {
            self.round.clear();
        }
        if self.round.is_empty() {
            let from = self.fresh.len().saturating_sub(self.first_round);
            self.round = self.fresh.split_off(from).into_iter().rev().map(|point| point as usize).collect();
        }
        self.waiting = self.round.iter().rev().copied().collect();
    }
}

impl SearchStrategy for Halving {
    fn ask(&mut self) -> Option<usize> {
        self.waiting.last().copied()
    }

    fn tell(&mut self, point: usize, outcome: Outcome) {
        let times = self.times.entry(point).or_default();
        match outcome {
            Outcome::Time(time) => times.push(time),
            Outcome::Failed => *times = vec![f64::INFINITY],
        }
        if let Some(place) = self.waiting.iter().rposition(|&waiting| waiting == point) {
            self.waiting.remove(place);
        }
        if self.waiting.is_empty() {
            self.advance();
        }
    }
}
