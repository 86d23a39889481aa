//! The second pass over the executions: assembles the parts of each launch and passes them on.

use std::collections::{BTreeMap, HashMap};

use super::gatherer::{Launch, OperationLookup, Plan};
use super::hiding::Timed;
use super::model::Part;

/// Holds the parts of launches until all their devices, and the program's earlier launches, are complete.
pub(super) struct Assembly<'p> {
    plan: &'p Plan,
    /// How many executions have arrived for an index of a profile that several share.
    come: HashMap<(usize, u32), usize>,
    programs: HashMap<u32, PendingLaunches>,
}

/// Launches of a program that are in progress.
#[derive(Default)]
struct PendingLaunches {
    /// The first that was not passed on.
    next: u32,
    launches: BTreeMap<u32, (u32, Vec<Part>)>,
}

impl<'p> Assembly<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        Self { plan, come: HashMap::new(), programs: HashMap::new() }
    }

    /// Adds an execution, in the same order as for the plan, with its collectives by start.
    pub(super) fn add(
        &mut self,
        launch: &Launch<'_>,
        collectives: &[Timed],
        operation_lookup: OperationLookup<'_>,
        give: &mut dyn FnMut(Vec<Part>),
    ) {
        let placed = self.plan.executions.next((launch.capture, launch.place), &mut self.come);
        let Some(placed) = placed.filter(|placed| !placed.is_skipped) else { return };
        let pending = self.programs.entry(placed.program).or_default();
        let (come, parts) = pending.launches.entry(placed.launch).or_default();
        *come += 1;
        let names = self.plan.places.get(&placed.program);
        let mut occurrences: HashMap<u32, u32> = HashMap::new();
        for timed in collectives {
            let Some((name, _)) = operation_lookup(timed.operation) else { continue };
            let Some(&operation) = names.and_then(|names| names.get(name)) else { continue };
            let occurrence = occurrences.entry(operation).or_default();
            parts.push(Part {
                operation,
                device: placed.device,
                execution: u64::from(placed.launch),
                occurrence: *occurrence,
                start_ps: timed.time.start_ps,
                end_ps: timed.time.end_ps,
                hidden_ps: timed.hidden_ps,
                overlaps_ps: timed.overlaps_ps,
            });
            *occurrence += 1;
        }
        let awaited = self.plan.awaited.get(placed.program as usize).map_or(&[][..], Vec::as_slice);
        pending.give(awaited, give);
    }
}

impl PendingLaunches {
    fn give(&mut self, awaited: &[u32], give: &mut dyn FnMut(Vec<Part>)) {
        while let Some(&count) = awaited.get(self.next as usize) {
            // for some, all executions were left out
            if count > 0 {
                match self.launches.first_entry() {
                    Some(first) if *first.key() == self.next && first.get().0 >= count => give(first.remove().1),
                    _ => return,
                }
            }
            self.next += 1;
        }
    }
}
