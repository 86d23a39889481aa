//! A genetic search: children of the better configs, mixed and changed a little.
//!
//! Steady state: the population is the best configs told so far, parents win tournaments of two, a child takes each parameter
//! from one of them and changes one with a probability. A child that is no config of the space is replaced by
//! another; after some attempts by a neighbour of the better parent, and then by a config of chance.

use super::draw::Draw;
use super::history::History;
use super::space::Space;
use super::strategy::{Outcome, Plan, SearchStrategy};

const POPULATION: usize = 20;
const MUTATION: f64 = 0.3;
const ATTEMPTS: usize = 32;

/// Asks for children of what did well.
#[derive(Debug, Clone)]
pub(super) struct Genetic<'a> {
    space: &'a Space,
    seed: u64,
    history: History,
    /// Best first.
    population: Vec<(f64, usize)>,
    next: Option<usize>,
}

impl<'a> Genetic<'a> {
    pub(super) fn new(plan: &Plan<'a>) -> Self {
        let history = History::new(plan.space.count());
        let mut new = Self { space: plan.space, seed: plan.seed, history, population: Vec::new(), next: None };
        new.choose();
        new
    }

    fn choose(&mut self) {
        self.next = None;
        if self.history.left() == 0 {
            return;
        }
        let told = self.history.told().len();
        // a stream for each choice: what was told decides, not how often was asked
        let mut draw = Draw::new(self.seed, told as u64 + 1);
        if told >= POPULATION && self.population.len() > 1 {
            self.next = self.child(&mut draw);
        }
        if self.next.is_none() {
            self.next = self.by_chance(&mut draw);
        }
    }

    fn parent(&self, draw: &mut Draw) -> Option<usize> {
        let (one, other) = (draw.below(self.population.len()), draw.below(self.population.len()));
        self.population.get(one.min(other)).map(|&(_, point)| point)
    }

    fn child(&self, draw: &mut Draw) -> Option<usize> {
        for _ in 0..ATTEMPTS {
            let (one, other) = (self.parent(draw)?, self.parent(draw)?);
            let mut levels = self.space.levels(one).to_vec();
            for (level, &from_other) in levels.iter_mut().zip(self.space.levels(other)) {
                if draw.below(2) == 1 {
                    *level = from_other;
                }
            }
            if draw.unit() < MUTATION {
                let at = self.space.varying().get(draw.below(self.space.varying().len())).copied()?;
                let count = self.space.parameters().get(at)?.values().len();
                if let Some(level) = levels.get_mut(at) {
                    *level = draw.below(count) as u16;
                }
            }
            if let Some(point) = self.space.at(&levels).filter(|&point| !self.history.is_seen(point)) {
                return Some(point);
            }
        }
        let mut near = self.space.neighbours(self.parent(draw)?, false);
        near.retain(|&point| !self.history.is_seen(point));
        near.get(draw.below(near.len())).copied()
    }

    fn by_chance(&self, draw: &mut Draw) -> Option<usize> {
        let count = self.space.count();
        let from = draw.below(count);
        (0..count).map(|step| (from + step) % count).find(|&point| !self.history.is_seen(point))
    }
}

impl SearchStrategy for Genetic<'_> {
    fn ask(&mut self) -> Option<usize> {
        self.next
    }

    fn tell(&mut self, point: usize, outcome: Outcome) {
        let is_new = self.history.tell(point, outcome);
        if let (true, Outcome::Time(time)) = (is_new, outcome) {
            let place = self.population.partition_point(|&(other, _)| other <= time);
            self.population.insert(place, (time, point));
            self.population.truncate(POPULATION);
        }
        self.choose();
    }
}
