//! How long a run over several operations still takes, judging by those that were measured.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::counted::roughly;

/// Shorter times are not worth a word.
const LEAST: Duration = Duration::from_secs(10);

/// The pace of a run, which the tuners of several devices share.
pub(super) type SharedPace = Arc<Mutex<Pace>>;

/// When a run began, and what it has done since.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the first operation began, in nanoseconds by the events' clock.
    began_ns: Option<u64>,
    /// Operations that ended, and those of them that were measured.
    ended: usize,
    measured: usize,
    /// When the run stops at the latest.
    until: Option<Instant>,
}

impl Pace {
    pub(super) fn shared(until: Option<Instant>) -> SharedPace {
        Arc::new(Mutex::new(Self { until, ..Self::default() }))
    }

    /// Notes that an operation begins.
    pub(super) fn begin(&mut self, at_ns: u64) {
        self.began_ns.get_or_insert(at_ns);
    }

    /// Notes that an operation ended; what was cached tells nothing about the time of the others.
    pub(super) fn end(&mut self, is_measured: bool) {
        self.ended += 1;
        self.measured += usize::from(is_measured);
    }

    /// Roughly how long it takes until all of so many operations are raced; `None` if nothing was measured yet, or it is
    /// not worth a word.
    pub(super) fn left(&self, at_ns: u64, of: usize) -> Option<String> {
        let elapsed = Duration::from_nanos(at_ns.saturating_sub(self.began_ns?));
        let open = of.checked_sub(self.ended)?;
        let left = elapsed.mul_f64(open as f64 / (self.measured > 0).then_some(self.measured as f64)?);
        let at_most = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = at_most.map_or(left, |at_most| left.min(at_most));
        (left >= LEAST).then(|| format!("about {} until all are raced", roughly(left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_time_left_follows_from_what_was_measured() {
        let mut pace = Pace::default();
        pace.begin(5 * S);
        assert_eq!(pace.left(5 * S, 4), None, "nothing is known before the first one ended");
        // a cached one, and one of a minute: two of a minute each are open
        pace.end(false);
        assert_eq!(pace.left(6 * S, 4), None);
        pace.begin(6 * S);
        pace.end(true);
        assert_eq!(pace.left(65 * S, 4).as_deref(), Some("about 2 min until all are raced"));
        // two devices at the same time need half of it
        pace.end(true);
        assert_eq!(pace.left(65 * S, 4).as_deref(), Some("about 30 s until all are raced"));
        pace.end(true);
        assert_eq!(pace.left(65 * S, 4), None);
        assert_eq!(pace.left(65 * S, 3), None, "more ended than there are");
    }

    #[test]
    fn short_times_and_those_beyond_the_budget_are_left_out() {
        let mut pace = Pace { until: Some(Instant::now()), ..Pace::default() };
        pace.begin(0);
        pace.end(true);
        assert_eq!(pace.left(60 * S, 9), None, "the budget is used up");
        pace.until = None;
        assert_eq!(pace.left(9 * S, 2), None);
        assert_eq!(pace.left(10 * S, 2).as_deref(), Some("about 10 s until all are raced"));
        assert_eq!(pace.left(3600 * S, 3).as_deref(), Some("about 2.0 h until all are raced"));
    }
}
