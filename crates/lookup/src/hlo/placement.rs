//! The devices on which a program was placed.

use crate::wire::{WireCursor, WireError, WireValue, repeated_varints};

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
    pub(super) fn decode(assignment: &[u8]) -> Result<Self, WireError> {
        // one list per partition, with a device for each replica
        let mut lists: Vec<Vec<u64>> = Vec::new();
        for field in WireCursor::new(assignment) {
            if let (3, WireValue::Bytes(list)) = field? {
                let mut ids = Vec::new();
                for field in WireCursor::new(list) {
                    if let (1, value) = field? {
                        repeated_varints(value, &mut ids)?;
                    }
                }
                lists.push(ids);
            }
        }
        let (partitions, replicas) = (lists.len(), lists.first().map_or(0, Vec::len));
        if partitions.saturating_mul(replicas) > MAX_DEVICES || lists.iter().any(|list| list.len() != replicas) {
            return Ok(Self::default());
        }
        let devices = (0..replicas).flat_map(|replica| lists.iter().filter_map(move |list| list.get(replica)));
        Ok(Self { replicas, partitions, devices: devices.map(|&id| id as i64).collect() })
    }

    /// Whether ids of replicas, ids of partitions and ids counted over both are the same numbers.
    pub fn is_plain(&self) -> bool {
        self.replicas == 1 || self.partitions == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted_by_replica_then_partition() {
        // two partitions of two replicas: {0, 2} and {1, 3}
        let placement = Placement::decode(&[8, 2, 16, 2, 26, 4, 10, 2, 0, 2, 26, 4, 10, 2, 1, 3]).unwrap();
        assert_eq!(placement, Placement { replicas: 2, partitions: 2, devices: vec![0, 1, 2, 3] });
        assert!(!placement.is_plain());
        // lists of different lengths are damage
        assert_eq!(Placement::decode(&[26, 3, 10, 1, 0, 26, 4, 10, 2, 1, 3]).unwrap(), Placement::default());
    }
}
