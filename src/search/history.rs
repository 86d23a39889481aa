//! What a strategy was told so far.

use super::strategy::Outcome;

/// Outcomes in the order in which they were told, and by point.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    told: Vec<(usize, Outcome)>,
    seen: Vec<bool>,
    left: usize,
    best: Option<(usize, f64)>,
}

impl History {
    pub(super) fn new(count: usize) -> Self {
        Self { told: Vec::new(), seen: vec![false; count], left: count, best: None }
    }

    /// Notes an outcome; whether the point is one of the space and new.
    pub(super) fn tell(&mut self, point: usize, outcome: Outcome) -> bool {
        let Some(seen) = self.seen.get_mut(point) else { return false };
        self.told.push((point, outcome));
        if let Outcome::Time(time) = outcome
            && self.best.is_none_or(|(_, best)| time < best)
        {
            self.best = Some((point, time));
        }
        let new = !std::mem::replace(seen, true);
        self.left -= usize::from(new);
        new
    }

    pub(super) fn told(&self) -> &[(usize, Outcome)] {
        &self.told
    }

    pub(super) fn is_seen(&self, point: usize) -> bool {
        self.seen.get(point).copied().unwrap_or(true)
    }

    /// Points that nothing was told of.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// The fastest point and its time.
    pub(super) fn best(&self) -> Option<(usize, f64)> {
        self.best
    }
}
