//! Where the time went.

use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Wall time of each part of the work, nanoseconds; the parts do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// Inputs made, written and loaded.
    pub inputs_ns: u64,
    /// Programs compiled, or taken from the store, and loaded.
    pub compile_ns: u64,
    /// Outputs compared with the baseline's.
    pub checking_ns: u64,
    /// Runs before the first round.
    pub warm_up_ns: u64,
    /// Searching a space for the configs to race: everything that was done for it, which no other part counts.
    pub searching_ns: u64,
    /// Rounds.
    pub measuring_ns: u64,
    /// Workers started again after failures.
    pub waiting_ns: u64,
    /// Processor time of the compilations, over all cores: a part of no other.
    pub compile_cpu_ns: u64,
    /// The sum of all samples of the rounds: what of `measuring_ns` the programs themselves took.
    pub running_ns: u64,
}

impl Spent {
    /// All of it.
    pub fn total(&self) -> Duration {
        let parts = [
            self.inputs_ns,
            self.compile_ns,
            self.checking_ns,
            self.warm_up_ns,
            self.searching_ns,
            self.measuring_ns,
            self.waiting_ns,
        ];
        Duration::from_nanos(parts.into_iter().fold(0, u64::saturating_add))
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        let sums = [
            (&mut self.inputs_ns, other.inputs_ns),
            (&mut self.compile_ns, other.compile_ns),
            (&mut self.checking_ns, other.checking_ns),
            (&mut self.warm_up_ns, other.warm_up_ns),
            (&mut self.searching_ns, other.searching_ns),
            (&mut self.measuring_ns, other.measuring_ns),
            (&mut self.waiting_ns, other.waiting_ns),
            (&mut self.compile_cpu_ns, other.compile_cpu_ns),
            (&mut self.running_ns, other.running_ns),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

/// A duration as it is counted here.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
