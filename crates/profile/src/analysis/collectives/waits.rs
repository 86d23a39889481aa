//! The distribution of waits for stragglers.

use std::collections::BTreeMap;

use super::align::Alignment;
use super::instance::each_instance;
use super::kind::CollectiveKind;
use super::model::Collectives;

/// Steps of a distribution in a power of ten.
pub const STEPS: f64 = 5.0;

/// The waits of all instances that have one: of two devices or more whose clocks compare.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Waits {
    /// By kind, group size and message size, of instances that took any time.
    pub sizes: BTreeMap<(CollectiveKind, Option<u64>, u64), SizeWaits>,
    /// Histogram of a kind's waits: by the integer number of fifths of a power of ten of a nanosecond; `None` for no
    /// wait.
    pub kinds: BTreeMap<CollectiveKind, BTreeMap<Option<i32>, u64>>,
    /// The shortest non-zero wait, and the longest, in picoseconds.
    pub ends_ps: Option<(u64, u64)>,
}

/// Waits of one kind, group size and message size.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct SizeWaits {
    /// Instances.
    pub count: u64,
    /// Sum of the waits, in picoseconds: last end less first start less the shortest duration.
    pub wait_ps: u128,
    /// Sum of the shortest durations among the devices, in picoseconds.
    pub fastest_ps: u128,
    /// Lowest wait over the shortest duration.
    pub low: f64,
    /// Highest.
    pub high: f64,
}

/// The waits of all instances.
pub fn straggler_waits(collectives: &Collectives<'_>, alignment: &Alignment) -> Waits {
    let mut waits = Waits::default();
    each_instance(collectives, &mut |instance| {
        let operation = collectives.operations.get(instance.key.operation as usize);
        if let Some((operation, wait_ps)) = operation.zip(alignment.wait_ps(collectives, instance)) {
            let of = &operation.communication;
            waits.add((of.kind, of.group_size, of.message_bytes), wait_ps, instance.fastest_ps());
        }
    });
    waits
}

impl Waits {
    fn add(
        &mut self,
        (kind, group_size, bytes): (CollectiveKind, Option<u64>, Option<u64>),
        wait_ps: u64,
        fastest_ps: u64,
    ) {
        let step = (wait_ps > 0).then(|| ((wait_ps as f64 / 1e3).log10() * STEPS).floor() as i32);
        *self.kinds.entry(kind).or_default().entry(step).or_default() += 1;
        if wait_ps > 0 {
            let (least, most) = self.ends_ps.unwrap_or((wait_ps, wait_ps));
            self.ends_ps = Some((least.min(wait_ps), most.max(wait_ps)));
        }
        let Some(bytes) = bytes.filter(|&bytes| bytes > 0 && fastest_ps > 0) else { return };
        let of = self.sizes.entry((kind, group_size, bytes)).or_default();
        let ratio = wait_ps as f64 / fastest_ps as f64;
        (of.low, of.high) = if of.count == 0 { (ratio, ratio) } else { (of.low.min(ratio), of.high.max(ratio)) };
        of.count += 1;
        of.wait_ps += u128::from(wait_ps);
        of.fastest_ps += u128::from(fastest_ps);
    }
}
