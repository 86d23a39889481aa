//! Random configs of a space with too many to enumerate.

use serde_json::Value;

use super::error::SpaceError;
use super::space::CandidateSpace;
use crate::config::Config;

/// Maximum number of choices of one descent: one that is stuck deep below a bad choice is restarted.
const DESCENT_STEPS: u64 = 4096;

/// The outcome of a descent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Descent {
    /// A config of the space.
    Found(Config),
    /// Every choice was tried: the constraints contradict each other, so no combination of values is a config.
    Empty,
    /// It gave up; another may find one.
    Stuck,
}

/// Descents through the choices of a space, values in random order.
///
/// Parameters that a constraint reads together are chosen one after another, those of the smallest groups first,
/// independent of their order in the file. So a constraint is checked as early as possible, and a contradiction is
/// found before the other parameters' values are combined. Configs are not drawn uniformly: one in a sparse region is
/// drawn more often.
#[derive(Debug, Clone)]
pub struct Descents<'a> {
    space: &'a CandidateSpace,
    /// Parameters in the order in which they are chosen.
    order: Vec<usize>,
    /// For each count of chosen parameters the constraints that can be checked then and not before.
    checks: Vec<Vec<usize>>,
    steps: u64,
}

impl CandidateSpace {
    /// Descents at random.
    pub fn descents(&self) -> Descents<'_> {
        let reads: Vec<Vec<usize>> =
            self.constraints.iter().map(|constraint| self.parameters_read(constraint)).collect();
        let size = |&at: &usize| self.parameters.get(at).map_or(1.0, |(_, values)| values.len() as f64).ln();
        let mut order: Vec<usize> = Vec::new();
        let mut checks = vec![Vec::new()];
        let mut open: Vec<usize> = (0..reads.len()).collect();
        loop {
            let missing = |&index: &usize| -> Vec<usize> {
                reads.get(index).into_iter().flatten().copied().filter(|at| !order.contains(at)).collect()
            };
            let (now, later) = open.iter().copied().partition::<Vec<_>, _>(|index| missing(index).is_empty());
            if let Some(last) = checks.last_mut() {
                last.extend(now);
            }
            let cost = |index: &usize| missing(index).iter().map(size).sum::<f64>();
            let next = later.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).map(missing).unwrap_or_default();
            open = later;
            let free = || (0..self.parameters.len()).find(|at| !order.contains(at));
            // one parameter at a time: another constraint may become the cheapest by it
            let Some(at) = next.into_iter().min_by(|a, b| size(a).total_cmp(&size(b))).or_else(free) else { break };
            order.push(at);
            checks.push(Vec::new());
        }
        Descents { space: self, order, checks, steps: 0 }
    }
}

impl Descents<'_> {
    /// Choices of a value tried so far, including the excluded ones.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// One descent; `below` draws a number below another.
    ///
    /// # Errors
    /// If a constraint cannot be evaluated.
    pub fn descend(&mut self, below: &mut dyn FnMut(usize) -> usize) -> Result<Descent, SpaceError> {
        let space = self.space;
        let unknown = Value::Null;
        let mut values: Vec<&Value> = vec![&unknown; space.parameters.len()];
        if self.order.is_empty() || !self.admits(0, &values)? {
            return Ok(Descent::Empty);
        }
        // for each chosen parameter the values that are left to try, in random order
        let mut left: Vec<Vec<usize>> = Vec::new();
        let began = self.steps;
        loop {
            if left.len() == self.order.len() {
                let values: Vec<Value> = values.into_iter().cloned().collect();
                return Ok(Descent::Found(space.config_of(&values)));
            }
            let count = self.order.get(left.len()).and_then(|&at| space.parameters.get(at)).map_or(0, |(_, v)| v.len());
            left.push((0..count).collect());
            // the last parameter's next value that is admitted, or the one's before
            loop {
                let (depth, Some(untried)) = (left.len(), left.last_mut()) else { return Ok(Descent::Empty) };
                if untried.is_empty() {
                    left.pop();
                    continue;
                }
                if self.steps - began == DESCENT_STEPS {
                    return Ok(Descent::Stuck);
                }
                self.steps += 1;
                let level = untried.swap_remove(below(untried.len()).min(untried.len() - 1));
                let Some(&at) = self.order.get(depth - 1) else { return Ok(Descent::Empty) };
                let value = space.parameters.get(at).and_then(|(_, known)| known.get(level));
                if let (Some(slot), Some(value)) = (values.get_mut(at), value) {
                    *slot = value;
                }
                if self.admits(depth, &values)? {
                    break;
                }
            }
        }
    }

    fn admits(&self, depth: usize, values: &[&Value]) -> Result<bool, SpaceError> {
        for &index in self.checks.get(depth).into_iter().flatten() {
            if !self.space.holds(index, values)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
