//! The wait of each instance, for who wants their distribution and not their sums.

use super::align::Alignment;
use super::instance::{Instance, Instances};
use super::model::Collectives;

/// What one collective of one group of devices lost to stragglers, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceWait {
    /// Place in [`Collectives::operations`].
    pub operation: u32,
    /// Last end less first start less the shortest duration.
    pub wait_ps: u64,
    /// The shortest duration among the devices.
    pub fastest_ps: u64,
}

/// The waits of all instances that have one: of two devices or more whose clocks compare.
pub fn instance_waits(collectives: &Collectives, alignment: &Alignment) -> Vec<InstanceWait> {
    let wait = |instance: Instance| {
        let wait_ps = instance.wait_ps(collectives, alignment)?;
        Some(InstanceWait { operation: instance.operation, wait_ps, fastest_ps: instance.fastest_ps() })
    };
    Instances::new(collectives).iter().filter_map(wait).collect()
}
