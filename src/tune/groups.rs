//! Programs of several partitions: how many devices a plan needs at once, and which of the available ones.

use std::collections::BTreeSet;

use super::{PlannedInvocation, TuningPlan};
use crate::call::Call;
use crate::counted::counted;
use crate::registry::Registry;
use crate::timer::Timer;

/// The call of a plan that needs the most devices at once, and how many: one per partition of its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WidestCall {
    /// The call.
    pub call: Call,
    /// The partitions: two at least.
    pub partitions: u64,
}

/// A program for more devices than are available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{call}` has a program of {partitions} partitions, and {} here: use `compile --target` for programs that run \
         on several hosts{}", are(*.devices), way(*.is_cpu, *.partitions))]
pub struct SeveralHosts {
    /// The call.
    pub call: Call,
    /// Its partitions.
    pub partitions: u64,
    /// How many devices there are.
    pub devices: usize,
    /// Whether they are CPU devices.
    pub is_cpu: bool,
}

fn are(devices: usize) -> String {
    format!("{} {}", counted(devices, "device"), if devices == 1 { "is" } else { "are" })
}

fn way(is_cpu: bool, count: u64) -> String {
    if is_cpu { format!("; `--client-option cpu_device_count={count}` makes as many of a CPU") } else { String::new() }
}

/// A list of devices that cannot be divided into groups for a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{call}` has a program of {partitions} partitions, which needs {partitions} consecutive devices, and {} in \
         the list cannot be divided into such groups: list a multiple of {partitions}, such as `0-{}`",
        counted(*.devices, "device"), .partitions.saturating_sub(1))]
pub struct NoGroups {
    /// The call.
    pub call: Call,
    /// Its partitions.
    pub partitions: u64,
    /// How many devices the list has.
    pub devices: usize,
}

impl TuningPlan {
    /// What needs the most devices at once; `None` if every program runs on one.
    pub fn widest(&self, registry: &Registry) -> Option<WidestCall> {
        let mut seen = BTreeSet::new();
        let mut widest: Option<WidestCall> = None;
        for PlannedInvocation { invocation, .. } in &self.invocations {
            for program in invocation.candidates.iter().filter_map(|candidate| candidate.program.as_ref()) {
                if !seen.insert(program.digest) {
                    continue;
                }
                let partitions = registry.partitions(program);
                if partitions > widest.as_ref().map_or(1, |widest| widest.partitions) {
                    widest = Some(WidestCall { call: invocation.call.clone(), partitions });
                }
            }
        }
        widest
    }
}

impl WidestCall {
    /// Compares it with the number of the timer's devices, if the timer knows it.
    ///
    /// # Errors
    /// If there are fewer: such a program runs over several hosts.
    pub fn check_hosts(&self, timer: &dyn Timer) -> Result<(), SeveralHosts> {
        match timer.info().device_count {
            Some(devices) if self.partitions > devices as u64 => {
                let is_cpu = timer.info().device.identity.platform == "cpu";
                let Self { call, partitions } = self.clone();
                Err(SeveralHosts { call, partitions, devices, is_cpu })
            }
            _ => Ok(()),
        }
    }

    /// The first device of each group of the listed ones: a group has one device per partition, with consecutive
    /// numbers. A program of one partition runs on a group's first.
    ///
    /// # Errors
    /// If the list cannot be divided into such groups.
    pub fn groups(&self, devices: &[usize]) -> Result<Vec<usize>, NoGroups> {
        let size = usize::try_from(self.partitions).unwrap_or(usize::MAX).max(1);
        let first_of = |group: &[usize]| {
            let first = group.first()?;
            let follow = group.iter().zip(*first..).all(|(device, expected)| *device == expected);
            (follow && group.len() == size).then_some(*first)
        };
        let groups = devices.chunks(size).map(first_of).collect::<Option<_>>();
        let Self { call, partitions } = self.clone();
        groups.ok_or(NoGroups { call, partitions, devices: devices.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_fall_into_groups_that_follow_each_other() {
        let groups = |partitions: u64, devices: &[usize]| {
            WidestCall { call: Call::new("op@v1", "k"), partitions }.groups(devices).map_err(|error| error.to_string())
        };
        assert_eq!(groups(2, &[0, 1, 2, 3, 4, 5, 6, 7]), Ok(vec![0, 2, 4, 6]));
        assert_eq!(groups(4, &[4, 5, 6, 7, 12, 13, 14, 15]), Ok(vec![4, 12]));
        for (partitions, devices) in
            [(4, &[0, 1, 2, 3, 4, 5][..]), (2, &[0]), (2, &[0, 2]), (2, &[1, 0]), (u64::MAX, &[0])]
        {
            assert!(groups(partitions, devices).is_err(), "{partitions} on {devices:?}");
        }
        let error = groups(4, &[0, 1]).unwrap_err();
        assert_eq!(
            error,
            "`op@v1:k` has a program of 4 partitions, which needs 4 consecutive devices, and 2 devices in the list \
             cannot be divided into such groups: list a multiple of 4, such as `0-3`"
        );
    }
}
