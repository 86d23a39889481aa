//! The parts of one collective on its devices, brought together.

use super::align::Alignment;
use super::model::{Collectives, Part};

/// One collective of one group of devices, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) operation: u32,
    pub(super) parts: Vec<Part>,
}

/// The instances among parts, which stay where they are: of each part only its group and its place in the order are held.
pub(super) struct Instances<'c> {
    collectives: &'c Collectives,
    groups: Vec<Option<u32>>,
    order: Vec<u32>,
}

/// Parts that are the same collective: of one operation, execution and occurrence, and where the groups are known of one group.
type Key = (u32, u64, u32, Option<u32>);

impl<'c> Instances<'c> {
    pub(super) fn new(collectives: &'c Collectives) -> Self {
        let group = |part: &Part| {
            let groups = &collectives.operations.get(part.operation as usize)?.communication.groups;
            let ordinal = collectives.devices.get(part.device as usize)?.ordinal;
            groups.iter().position(|group| group.contains(&ordinal)).map(|place| place as u32)
        };
        let groups = collectives.parts.iter().map(group).collect();
        let mut instances = Self { collectives, groups, order: (0..collectives.parts.len() as u32).collect() };
        let mut order = std::mem::take(&mut instances.order);
        order.sort_unstable_by_key(|&place| {
            (instances.key(place), instances.part(place).map(|part| part.device), place)
        });
        instances.order = order;
        instances
    }

    fn part(&self, place: u32) -> Option<&'c Part> {
        self.collectives.parts.get(place as usize)
    }

    fn key(&self, place: u32) -> Option<Key> {
        let part = self.part(place)?;
        Some((part.operation, part.execution, part.occurrence, *self.groups.get(place as usize)?))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Instance> {
        let same = self.order.chunk_by(|&one, &next| self.key(one) == self.key(next));
        same.filter_map(|places| {
            let parts: Vec<Part> = places.iter().filter_map(|&place| self.part(place).copied()).collect();
            Some(Instance { operation: parts.first()?.operation, parts })
        })
    }
}

impl Instance {
    /// The shortest of its devices' durations: the last to come waited for nobody.
    pub(super) fn fastest_ps(&self) -> u64 {
        self.parts.iter().map(Part::duration_ps).min().unwrap_or(0)
    }

    /// Last end less first start less the shortest duration: what was lost to stragglers. `None` for a single device, and
    /// where clocks cannot be compared.
    pub(super) fn wait_ps(&self, collectives: &Collectives, alignment: &Alignment) -> Option<u64> {
        let first = self.parts.first().filter(|_| self.parts.len() > 1)?;
        if !self.parts.iter().all(|part| alignment.compares(collectives, first.device, part.device)) {
            return None;
        }
        let starts = self.parts.iter().map(|part| alignment.corrected(part.device, part.start_ps));
        let ends = self.parts.iter().map(|part| alignment.corrected(part.device, part.end_ps));
        let span = ends.max()?.saturating_sub(starts.min()?);
        Some(u64::try_from(span).unwrap_or(0).saturating_sub(self.fastest_ps()))
    }
}
