//! Totals over executions, by module and by operation.

use std::collections::BTreeMap;

use super::execution::DeviceTime;
use super::names::NameId;

/// All executions of one program on all devices of a capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModuleTotal {
    /// Executions.
    pub executions: u64,
    /// Operation events.
    pub events: u64,
    /// Sum of the executions' spans.
    pub span_ps: u64,
    /// Sum of their busy times.
    pub busy_ps: u64,
}

/// All events of one operation of one program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationTotal {
    /// Events.
    pub count: u64,
    /// Sum of their durations.
    pub total_ps: u64,
    /// Their own time, see [`super::Operation::own_ps`].
    pub own_ps: u64,
}

/// A module by name and program id.
pub type ModuleKey = (NameId, Option<i64>);

impl DeviceTime {
    /// Totals of each module.
    pub fn module_totals(&self) -> BTreeMap<ModuleKey, ModuleTotal> {
        let mut totals = BTreeMap::<ModuleKey, ModuleTotal>::new();
        for execution in &self.executions {
            let total = totals.entry((execution.module, execution.program_id)).or_default();
            total.executions += 1;
            total.events += execution.events;
            total.span_ps = total.span_ps.saturating_add(execution.span_ps);
            total.busy_ps = total.busy_ps.saturating_add(execution.busy_ps);
        }
        totals
    }

    /// Totals of each operation of each module, operations in the names' order.
    pub fn operation_totals(&self) -> BTreeMap<ModuleKey, Vec<(NameId, OperationTotal)>> {
        let mut totals = BTreeMap::<ModuleKey, Vec<OperationTotal>>::new();
        for execution in &self.executions {
            let of_module = totals.entry((execution.module, execution.program_id)).or_default();
            for operation in &execution.operations {
                let place = operation.name.0 as usize;
                if of_module.len() <= place {
                    of_module.resize(place + 1, OperationTotal::default());
                }
                if let Some(total) = of_module.get_mut(place) {
                    total.count += operation.count;
                    total.total_ps = total.total_ps.saturating_add(operation.total_ps);
                    total.own_ps = total.own_ps.saturating_add(operation.own_ps);
                }
            }
        }
        let named = |totals: Vec<OperationTotal>| {
            let numbered = totals.into_iter().zip(0..).filter(|(total, _)| total.count > 0);
            numbered.map(|(total, number)| (NameId(number), total)).collect()
        };
        totals.into_iter().map(|(module, totals)| (module, named(totals))).collect()
    }
}
