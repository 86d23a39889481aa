//! The parts of one collective on its devices, brought together.

use super::align::Alignment;
use super::model::{Collectives, Part};

/// One collective of one group of devices, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) operation: u32,
    pub(super) parts: Vec<Part>,
}

/// Brings parts together that are the same collective: of one operation, execution and occurrence, and where the groups are
/// known of one group.
pub(super) fn instances(collectives: &Collectives) -> Vec<Instance> {
    let group = |part: &Part| {
        let groups = &collectives.operations.get(part.operation as usize)?.communication.groups;
        let ordinal = collectives.devices.get(part.device as usize)?.ordinal;
        groups.iter().position(|group| group.contains(&ordinal))
    };
    let key = |part: &Part| (part.operation, part.execution, part.occurrence, group(part));
    let mut keyed: Vec<_> = collectives.parts.iter().map(|part| (key(part), *part)).collect();
    keyed.sort_by_key(|(key, part)| (*key, part.device));
    let same = keyed.chunk_by(|(one, _), (next, _)| one == next);
    same.filter_map(|parts| {
        let operation = parts.first()?.1.operation;
        Some(Instance { operation, parts: parts.iter().map(|(_, part)| *part).collect() })
    })
    .collect()
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
