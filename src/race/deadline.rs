//! When the time for races is over.

use std::time::{Duration, Instant};

/// When the time for races is over; never if there is no budget.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// After this time from now.
    pub(crate) fn after(budget: Option<Duration>) -> Self {
        Self(budget.and_then(|budget| Instant::now().checked_add(budget)))
    }

    /// Whether there is one.
    pub(crate) fn is_set(self) -> bool {
        self.0.is_some()
    }

    /// Whether the time is over.
    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(|until| Instant::now() >= until)
    }

    /// The time that is left, if it is limited.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|until| until.saturating_duration_since(Instant::now()))
    }
}
