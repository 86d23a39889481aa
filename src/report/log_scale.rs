//! The logarithmic scale of every axis; an axis adds its ends and ticks.

/// Positions of values between two ends above zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LogScale {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl LogScale {
    /// Returns the position of a value, from 0 to 1; values outside are at the edge.
    pub(super) fn part(&self, value: f64) -> f64 {
        let low = self.low.ln();
        let part = (value.ln() - low) / (self.high.ln() - low);
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }

    /// Says whether a value lies between the ends.
    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}
