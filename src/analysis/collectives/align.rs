//! Clocks of devices and hosts, compared by collectives that all of them end together.

use std::collections::BTreeMap;

use serde::Serialize;

use super::instance::Instances;
use super::model::Collectives;

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
    /// By device, in the order of the devices: the median of its end less the mean end of all, in picoseconds.
    pub skews_ps: Vec<i64>,
    /// What was taken off each device's times, in picoseconds.
    pub corrections_ps: Vec<i64>,
}

impl Alignment {
    /// Skews by the collectives in which all devices take part together (nsys-jax, `align_profiler_data_timestamps`).
    pub(super) fn new(collectives: &Collectives, instances: &Instances<'_>, clocks: Clocks) -> Self {
        let count = collectives.devices.len();
        let mut skews: Vec<Vec<i64>> = vec![Vec::new(); count];
        let mut used = 0;
        for instance in instances.iter() {
            let Some(operation) = collectives.operations.get(instance.operation as usize) else { continue };
            let communication = &operation.communication;
            let spans = communication.group_size == Some(count as u64) && instance.parts.len() == count;
            if count < 2 || !spans || !communication.kind.is_common() {
                continue;
            }
            let sum: i128 = instance.parts.iter().map(|part| i128::from(part.end_ps)).sum();
            let mean = i64::try_from(sum.div_euclid(count as i128)).unwrap_or(0);
            for part in &instance.parts {
                if let Some(list) = skews.get_mut(part.device as usize) {
                    list.push(part.end_ps.saturating_sub(mean));
                }
            }
            used += 1;
        }
        let mut hosts: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for (device, list) in collectives.devices.iter().zip(&skews) {
            hosts.entry(&device.host).or_default().extend(list);
        }
        let hosts: BTreeMap<&str, i64> =
            hosts.into_iter().map(|(host, mut list)| (host, median(&mut list).unwrap_or(0))).collect();
        let skews: Option<Vec<i64>> = skews.iter_mut().map(|list| median(list)).collect();
        let skews_ps = skews.unwrap_or_default();
        let correction = |(device, skew): (&super::model::Device, &i64)| match clocks {
            Clocks::Recorded => 0,
            Clocks::Host => hosts.get(device.host.as_str()).copied().unwrap_or(0),
            Clocks::Device => *skew,
        };
        let corrections_ps = collectives.devices.iter().zip(&skews_ps).map(correction).collect();
        Self { clocks, collectives: used, skews_ps, corrections_ps }
    }

    /// Whether these two devices' times can be compared: they share a clock, or it was aligned.
    pub(super) fn compares(&self, collectives: &Collectives, one: u32, other: u32) -> bool {
        let host = |device: u32| collectives.devices.get(device as usize).map(|device| &device.host);
        let aligned = self.clocks != Clocks::Recorded && !self.corrections_ps.is_empty();
        aligned || host(one) == host(other)
    }

    /// A time of a device, corrected.
    pub(super) fn corrected(&self, device: u32, time_ps: i64) -> i64 {
        time_ps.saturating_sub(self.corrections_ps.get(device as usize).copied().unwrap_or(0))
    }
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
