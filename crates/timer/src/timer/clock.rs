//! The resolution of the host's clock.

use std::time::{Duration, Instant};

/// Prefix of the note that says why there is no device time; it is no warning if a device has no better clock.
pub const HOST_CLOCK: &str = "timed by the host clock";

/// Why a plugin gives no device time, if it never does.
pub const NO_PROFILER: &str = "the plugin has no profiler extension";

/// A duration as protocol and stores have it.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Consecutive reads that are compared.
const READS: usize = 4096;

/// The larger of the clock's smallest step and of the median cost of a pair of reads, nanoseconds; `None` for a clock
/// that does not advance.
pub(super) fn resolution_ns() -> Option<u64> {
    let start = Instant::now();
    resolution_of(|| nanoseconds(start.elapsed()))
}

fn resolution_of(mut read_ns: impl FnMut() -> u64) -> Option<u64> {
    let mut reads = Vec::with_capacity(READS);
    // consecutive reads; they are processed later
    for _ in 0..READS {
        reads.push(read_ns());
    }
    let mut steps: Vec<u64> = reads.iter().zip(reads.iter().skip(1)).map(|(a, b)| b.saturating_sub(*a)).collect();
    let smallest = steps.iter().copied().filter(|&step| step > 0).min()?;
    steps.sort_unstable();
    let median = steps.get(steps.len() / 2).copied().unwrap_or_default();
    Some(smallest.max(median))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated clock with a step and a cost per read.
    fn clock(step: u64, cost: u64) -> impl FnMut() -> u64 {
        let mut now = 0;
        move || {
            now += cost;
            now / step * step
        }
    }

    #[test]
    fn simulated_clocks_are_recognised_by_their_step_or_their_cost() {
        assert_eq!(resolution_of(clock(1, 25)), Some(25));
        assert_eq!(resolution_of(clock(1000, 30)), Some(1000));
        // a reader every 250 ns sees steps of 100 ns as 200 or 300
        assert_eq!(resolution_of(clock(100, 250)), Some(300));
        assert_eq!(resolution_of(clock(1 << 40, 1)), None, "it never moved");
        // one quick pair among slow ones is not a resolution
        let mut reads = 0;
        let with_quick_pair = || {
            reads += 1;
            if reads < 100 { reads * 40 } else { reads * 40 - 39 }
        };
        assert_eq!(resolution_of(with_quick_pair), Some(40));
    }

    #[test]
    fn this_machines_clock_tells_less_than_a_millisecond() {
        let resolution = resolution_ns().unwrap();
        assert!((1..1_000_000).contains(&resolution), "{resolution} ns");
    }
}
