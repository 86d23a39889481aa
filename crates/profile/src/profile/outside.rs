//! Events of devices outside every module execution, added up by name.

use std::collections::HashMap;

use super::interval::Interval;

/// Lines whose events are not work: views of other lines, marks, and the regions in kernels.
const NO_WORK: [&str; 16] = [
    "Async XLA Ops",
    "Framework Name Scope",
    "Framework Ops",
    "Launch Stats",
    "Source",
    "Source code",
    "Sparse Core Modules",
    "Sparse Core Steps",
    "Steps",
    "Tensor Core",
    "TensorFlow Name Scope",
    "TensorFlow Ops",
    "XLA Modules",
    "XLA TraceMe",
    "_counters_",
    "XLA Framework Name Scope",
];

/// Whether events of a line of a device's plane may be work.
pub(super) fn may_be_work(plane: &str, line: &str) -> bool {
    // planes of tools beside the devices
    !plane.starts_with("/device:CUSTOM:") && !NO_WORK.contains(&line)
}

/// The events of one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutsideTime {
    /// How many.
    pub count: u64,
    /// Sum of their durations.
    pub total_ps: u64,
}

impl OutsideTime {
    /// Adds that of other events.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total_ps = self.total_ps.saturating_add(other.total_ps);
    }
}

/// Events outside every execution, by the number of their name.
#[derive(Debug, Default)]
pub(super) struct OutsideEvents(HashMap<u32, OutsideTime>);

impl OutsideEvents {
    pub(super) fn add(&mut self, name: u32, time: Interval) {
        self.join_one(name, OutsideTime { count: 1, total_ps: time.length_ps() });
    }

    /// Adds those of a chunk, whose names have other numbers.
    pub(super) fn join(&mut self, others: Self, number: impl Fn(u32) -> u32) {
        others.0.into_iter().for_each(|(name, time)| self.join_one(number(name), time));
    }

    fn join_one(&mut self, name: u32, time: OutsideTime) {
        self.0.entry(name).or_default().add(time);
    }

    /// By name's number, the longest first.
    pub(super) fn sorted(&self) -> Vec<(u32, OutsideTime)> {
        let mut all: Vec<(u32, OutsideTime)> = self.0.iter().map(|(name, time)| (*name, *time)).collect();
        all.sort_by_key(|(name, time)| (std::cmp::Reverse(time.total_ps), *name));
        all
    }
}
