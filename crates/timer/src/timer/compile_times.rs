//! How long compilations took, and how long to wait for another one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Compilations after which the limit follows them.
const ENOUGH: usize = 5;
/// The limit never rests on a shorter time.
const SHORTEST: Duration = Duration::from_secs(30);
/// How many times as long as nine in ten others a compilation may take.
const TIMES: u32 = 2;

/// How long the compilations of a run took; its clones are one.
#[derive(Debug, Clone)]
pub struct CompileTimes {
    took: Arc<Mutex<Vec<Duration>>>,
    shortest: Duration,
}

impl Default for CompileTimes {
    fn default() -> Self {
        Self::resting_on(SHORTEST)
    }
}

impl PartialEq for CompileTimes {
    /// What was seen is no part of how a worker is limited.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CompileTimes {}

impl CompileTimes {
    /// The same with another time than half a minute as the shortest that counts.
    pub fn resting_on(shortest: Duration) -> Self {
        Self { took: Arc::default(), shortest }
    }

    /// None yet, of something else that is limited alike.
    pub(crate) fn of_others(&self) -> Self {
        Self::resting_on(self.shortest)
    }

    /// Notes one that succeeded: a refusal is quick and says nothing about the next one.
    pub(crate) fn add(&self, took: Duration) {
        self.took.lock().unwrap_or_else(PoisonError::into_inner).push(took);
    }

    /// Twice the 90th percentile so far, and twice the shortest that counts at least; `None` of too few.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let mut times = self.took.lock().unwrap_or_else(PoisonError::into_inner).clone();
        times.sort_unstable();
        let place = (times.len() * 9).div_ceil(10).checked_sub(1)?;
        let most = times.get(place).filter(|_| times.len() >= ENOUGH)?;
        Some((*most).max(self.shortest).saturating_mul(TIMES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_nine_in_ten() {
        let times = CompileTimes::default();
        (0..4).for_each(|_| times.add(Duration::from_secs(1)));
        assert_eq!(times.limit(), None, "too few");
        times.clone().add(Duration::from_secs(1));
        assert_eq!(times.limit(), Some(Duration::from_secs(60)), "quick ones");
        (0..4).for_each(|_| times.add(Duration::from_secs(90)));
        times.add(Duration::from_secs(98));
        assert_eq!(times.limit(), Some(Duration::from_secs(180)), "of ten, the ninth");
    }
}
