//! Aligns clocks of devices and hosts by collectives that all of them end together.

use std::collections::BTreeMap;

use serde::Serialize;

use super::instance::Instance;
use super::model::{Collectives, Communication, Device};
use super::sample::Sample;

/// Which clocks are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clocks {
    /// As they were recorded.
    Recorded,
    /// All devices of a host together.
    Host,
    /// Each device for itself, as nsys-jax does.
    Device,
}

impl Clocks {
    /// The default: with several hosts, each host's clock.
    pub fn usual(found: &Collectives<'_>) -> Self {
        if found.hosts() > 1 { Self::Host } else { Self::Recorded }
    }
}

/// How far the clocks are apart.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Alignment {
    /// Which clocks were aligned.
    pub clocks: Clocks,
    /// Number of collectives over all devices, from which the skews are computed.
    pub collectives: u64,
    /// Those whose ends the medians are taken over: all of them, as long as they fit into 2 MiB, else an even sample.
    pub sampled: u64,
    /// By device, in the order of the devices: the median of its end less the mean end of all, in picoseconds.
    pub skews_ps: Vec<i64>,
    /// What was subtracted from each device's times, in picoseconds.
    pub corrections_ps: Vec<i64>,
}

/// Maximum number of values held for medians: 2 MiB.
const MOST_HELD: usize = 1 << 18;
/// Minimum number of instances for medians, if there are as many, for any number of devices.
const LEAST_SAMPLED: usize = 4096;

/// The ends of devices in the collectives in which all of them take part, as they arrive.
pub(super) struct Skews {
    devices: usize,
    sample: Sample,
    used: u64,
}

impl Skews {
    pub(super) fn new(collectives: &Collectives<'_>) -> Self {
        let devices = collectives.devices.len();
        Self { devices, sample: Sample::new(devices, (MOST_HELD / devices.max(1)).max(LEAST_SAMPLED)), used: 0 }
    }

    /// Adds an instance of an operation with this instruction.
    pub(super) fn add(&mut self, communication: &Communication, instance: &Instance<'_>) {
        let count = self.devices;
        let is_each_once = instance.parts.iter().zip(0..).all(|(part, device)| part.device == device);
        let spans = communication.group_size == Some(count as u64) && instance.parts.len() == count && is_each_once;
        // of a kind that no device can end before all have started
        if count < 2 || !spans || !communication.kind.is_common() {
            return;
        }
        let sum: i128 = instance.parts.iter().map(|part| i128::from(part.end_ps)).sum();
        let mean = i64::try_from(sum.div_euclid(count as i128)).unwrap_or(0);
        self.sample.add(&instance.key, instance.parts.iter().map(|part| part.end_ps.saturating_sub(mean)));
        self.used += 1;
    }

    /// Medians of the skews (nsys-jax, `align_profiler_data_timestamps`), and the resulting corrections.
    pub(super) fn alignment(&self, collectives: &Collectives<'_>, clocks: Clocks) -> Alignment {
        let mut hosts: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        let mut skews_ps = Vec::new();
        for (place, device) in collectives.devices.iter().enumerate().filter(|_| self.used > 0) {
            let mut skews: Vec<i64> = self.sample.column(place).collect();
            hosts.entry(&device.host).or_default().extend(&skews);
            skews_ps.extend(median(&mut skews));
        }
        let hosts: BTreeMap<&str, i64> =
            hosts.into_iter().map(|(host, mut list)| (host, median(&mut list).unwrap_or(0))).collect();
        let correction = |(device, skew): (&Device, &i64)| match clocks {
            Clocks::Recorded => 0,
            Clocks::Host => hosts.get(device.host.as_str()).copied().unwrap_or(0),
            Clocks::Device => *skew,
        };
        let corrections_ps = collectives.devices.iter().zip(&skews_ps).map(correction).collect();
        Alignment { clocks, collectives: self.used, sampled: self.sample.len() as u64, skews_ps, corrections_ps }
    }
}

impl Alignment {
    /// Last end minus first start minus the shortest duration: the time lost to stragglers. `None` for a single device,
    /// and if clocks cannot be compared.
    pub(super) fn wait_ps(&self, collectives: &Collectives<'_>, instance: &Instance<'_>) -> Option<u64> {
        let first = instance.parts.first().filter(|_| instance.parts.len() > 1)?;
        if !instance.parts.iter().all(|part| self.compares(collectives, first.device, part.device)) {
            return None;
        }
        let starts = instance.parts.iter().map(|part| self.corrected(part.device, part.start_ps));
        let ends = instance.parts.iter().map(|part| self.corrected(part.device, part.end_ps));
        let span = ends.max()?.saturating_sub(starts.min()?);
        Some(u64::try_from(span).unwrap_or(0).saturating_sub(instance.fastest_ps()))
    }

    /// Times as they are.
    pub(super) fn none() -> Self {
        Self { clocks: Clocks::Recorded, collectives: 0, sampled: 0, skews_ps: Vec::new(), corrections_ps: Vec::new() }
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

/// The median; for an even number the mean of the two middle ones, rounded down.
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
