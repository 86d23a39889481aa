//! The devices on which a program was placed.

use super::schema::xla_data::DeviceAssignmentProto;

/// Maximum number of devices of a program.
const MAX_DEVICES: usize = 1 << 16;

/// Device ids by replica and partition, from a `DeviceAssignmentProto`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// Replicas; one if a program is only partitioned, like JAX's.
    pub replicas: usize,
    /// Partitions.
    pub partitions: usize,
    /// The devices of the first replica's partitions, then those of the second; empty if unknown.
    pub devices: Vec<i64>,
}

impl Placement {
    pub(super) fn of(assignment: &DeviceAssignmentProto) -> Self {
        // one list per partition, with a device for each replica
        let lists = assignment.computation_devices.iter().map(|devices| devices.replica_device_ids.as_slice());
        let lists: Vec<&[i64]> = lists.collect();
        let (partitions, replicas) = (lists.len(), lists.first().map_or(0, |list| list.len()));
        if partitions.saturating_mul(replicas) > MAX_DEVICES || lists.iter().any(|list| list.len() != replicas) {
            return Self::default();
        }
        let devices = (0..replicas).flat_map(|replica| lists.iter().filter_map(move |list| list.get(replica)));
        Self { replicas, partitions, devices: devices.copied().collect() }
    }

    /// Whether ids of replicas, ids of partitions and ids counted over both are the same numbers.
    pub fn is_plain(&self) -> bool {
        self.replicas == 1 || self.partitions == 1
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn devices_are_counted_by_replica_then_partition() {
        let of = |bytes: &[u8]| Placement::of(&DeviceAssignmentProto::decode(bytes).unwrap());
        // two partitions of two replicas: {0, 2} and {1, 3}
        let placement = of(&[8, 2, 16, 2, 26, 4, 10, 2, 0, 2, 26, 4, 10, 2, 1, 3]);
        assert_eq!(placement, Placement { replicas: 2, partitions: 2, devices: vec![0, 1, 2, 3] });
        assert!(!placement.is_plain());
        // lists of different lengths are damage
        assert_eq!(of(&[26, 3, 10, 1, 0, 26, 4, 10, 2, 1, 3]), Placement::default());
    }
}
