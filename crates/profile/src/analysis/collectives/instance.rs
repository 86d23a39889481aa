//! Joins the parts of one collective on its devices.

use std::collections::HashMap;

use super::model::{Collectives, Part};

/// One collective of one group of devices, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instance<'p> {
    pub(super) key: Key,
    /// By device.
    pub(super) parts: &'p [Part],
}

/// Parts of the same collective: same operation, execution and occurrence, and the same group if groups are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) operation: u32,
    pub(super) execution: u64,
    pub(super) occurrence: u32,
    pub(super) group: Option<u32>,
}

/// Passes on each instance, those of an operation in the order of its executions, independent of the profile's order.
pub(super) fn each_instance(collectives: &Collectives<'_>, give: &mut dyn FnMut(&Instance<'_>)) {
    // searched once for each operation on each device
    let mut groups: HashMap<(u32, u32), Option<u32>> = HashMap::new();
    let mut group_of = |part: &Part| {
        *groups.entry((part.operation, part.device)).or_insert_with(|| {
            let groups = &collectives.operations.get(part.operation as usize)?.communication.groups;
            let ordinal = collectives.devices.get(part.device as usize)?.ordinal;
            groups.iter().position(|group| group.contains(&ordinal)).map(|place| place as u32)
        })
    };
    let mut keyed: Vec<(Key, Part)> = Vec::new();
    let mut parts_of: Vec<Part> = Vec::new();
    collectives.parts.each_launch(&mut |parts| {
        keyed.clear();
        keyed.extend(parts.into_iter().map(|part| {
            let Part { operation, execution, occurrence, .. } = part;
            (Key { operation, execution, occurrence, group: group_of(&part) }, part)
        }));
        // stable: a device that has an instance twice keeps the order of its parts
        keyed.sort_by_key(|(key, part)| (*key, part.device));
        for same in keyed.chunk_by(|(one, _), (next, _)| one == next) {
            let Some((key, _)) = same.first() else { continue };
            parts_of.clear();
            parts_of.extend(same.iter().map(|(_, part)| part));
            give(&Instance { key: *key, parts: &parts_of });
        }
    });
}

impl Instance<'_> {
    /// The shortest of its devices' durations: the last to arrive did not wait.
    pub(super) fn fastest_ps(&self) -> u64 {
        self.parts.iter().map(Part::duration_ps).min().unwrap_or(0)
    }
}
