//! What a strategy observed so far.

use super::strategy::{StrategyPlan, TrialOutcome};

/// Outcomes in the order in which they were observed, and by point.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    observed: Vec<(usize, TrialOutcome)>,
    seen: Vec<bool>,
    left: usize,
    best: Option<(usize, f64)>,
}

impl History {
    /// Without outcomes; refused points count as seen.
    pub(super) fn new(plan: &StrategyPlan<'_>) -> Self {
        let count = plan.space.count();
        let mut seen = vec![false; count];
        for &point in plan.refused {
            if let Some(seen) = seen.get_mut(point) {
                *seen = true;
            }
        }
        let left = seen.iter().filter(|seen| !**seen).count();
        Self { observed: Vec::new(), seen, left, best: None }
    }

    /// Records an outcome; returns whether the point is in the space and new.
    pub(super) fn tell(&mut self, point: usize, outcome: TrialOutcome) -> bool {
        let Some(seen) = self.seen.get_mut(point) else { return false };
        self.observed.push((point, outcome));
        if let TrialOutcome::Time(time) = outcome
            && self.best.is_none_or(|(_, best)| time < best)
        {
            self.best = Some((point, time));
        }
        let new = !std::mem::replace(seen, true);
        self.left -= usize::from(new);
        new
    }

    pub(super) fn observed(&self) -> &[(usize, TrialOutcome)] {
        &self.observed
    }

    pub(super) fn is_seen(&self, point: usize) -> bool {
        self.seen.get(point).copied().unwrap_or(true)
    }

    /// Points without an outcome.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// The fastest point and its time.
    pub(super) fn best(&self) -> Option<(usize, f64)> {
        self.best
    }
}
