//! Clocks of devices and hosts, compared by collectives that all of them end together.

use std::collections::BTreeMap;

use serde::Serialize;

use super::instance::{Instance, each_instance};
use super::model::{Collectives, Communication};
use super::sample::Sample;

/// Whose clock is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clocks {
    /// None.
    Recorded,
    /// All devices of a host by the same amount.
    Host,
    /// Each device's by its own, as nsys-jax does.
    Device,
}

/// How far the clocks are apart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alignment {
    /// What was moved.
    pub clocks: Clocks,
    /// Collectives over all devices, from which the skews come; none where there is no such collective.
    pub collectives: u64,
    /// Those whose ends the medians are taken over: all of them, as long as they fit into 2 MiB, else an even sample.
    pub sampled: u64,
    /// By device, in the order of the devices: the median of its end less the mean end of all, in picoseconds.
    pub skews_ps: Vec<i64>,
    /// What was taken off each device's times, in picoseconds.
    pub corrections_ps: Vec<i64>,
}

/// Numbers that are held for medians, at most: 2 MiB.
const MOST_HELD: usize = 1 << 18;
/// Instances that medians are taken over at least, where there are as many, however many devices there are.
const LEAST_SAMPLED: usize = 4096;

impl Alignment {
    /// Skews by the collectives in which all devices take part together (nsys-jax, `align_profiler_data_timestamps`).
    pub(super) fn new(collectives: &Collectives<'_>, clocks: Clocks) -> Self {
        let count = collectives.devices.len();
        let mut sample = Sample::new(count, (MOST_HELD / count.max(1)).max(LEAST_SAMPLED));
        let mut used = 0;
        if count > 1 {
            each_instance(collectives, &mut |instance| {
                let operation = collectives.operations.get(instance.key.operation as usize);
                if operation.is_some_and(|operation| spans(&operation.communication, instance, count)) {
                    let sum: i128 = instance.parts.iter().map(|part| i128::from(part.end_ps)).sum();
                    let mean = i64::try_from(sum.div_euclid(count as i128)).unwrap_or(0);
                    sample.add(&instance.key, instance.parts.iter().map(|part| part.end_ps.saturating_sub(mean)));
                    used += 1;
                }
            });
        }
        let mut hosts: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        let mut skews_ps = Vec::new();
        for (place, device) in collectives.devices.iter().enumerate().filter(|_| used > 0) {
            let mut skews: Vec<i64> = sample.column(place).collect();
            hosts.entry(&device.host).or_default().extend(&skews);
            skews_ps.extend(median(&mut skews));
        }
        let hosts: BTreeMap<&str, i64> =
            hosts.into_iter().map(|(host, mut list)| (host, median(&mut list).unwrap_or(0))).collect();
        let correction = |(device, skew): (&super::model::Device, &i64)| match clocks {
            Clocks::Recorded => 0,
            Clocks::Host => hosts.get(device.host.as_str()).copied().unwrap_or(0),
            Clocks::Device => *skew,
        };
        let corrections_ps = collectives.devices.iter().zip(&skews_ps).map(correction).collect();
        Self { clocks, collectives: used, sampled: sample.len() as u64, skews_ps, corrections_ps }
    }

    /// Whether these two devices' times can be compared: they share a clock, or it was aligned.
    pub(super) fn compares(&self, collectives: &Collectives<'_>, one: u32, other: u32) -> bool {
        let host = |device: u32| collectives.devices.get(device as usize).map(|device| &device.host);
        let aligned = self.clocks != Clocks::Recorded && !self.corrections_ps.is_empty();
        aligned || host(one) == host(other)
    }

    /// A time of a device, corrected.
    pub(super) fn corrected(&self, device: u32, time_ps: i64) -> i64 {
        time_ps.saturating_sub(self.corrections_ps.get(device as usize).copied().unwrap_or(0))
    }
}

/// Whether an instance is a collective that none of the devices can end before all have come.
fn spans(communication: &Communication, instance: &Instance<'_>, count: usize) -> bool {
    let each_once = instance.parts.iter().zip(0..).all(|(part, device)| part.device == device);
    communication.group_size == Some(count as u64)
        && instance.parts.len() == count
        && each_once
        && communication.kind.is_common()
}

/// The middle one; of an even number the mean of the two, rounded down.
fn median(list: &mut [i64]) -> Option<i64> {
    list.sort_unstable();
    let middle = list.len() / 2;
    let upper = *list.get(middle)?;
    if list.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *list.get(middle.checked_sub(1)?)?;
    i64::try_from((i128::from(lower) + i128::from(upper)).div_euclid(2)).ok()
}
