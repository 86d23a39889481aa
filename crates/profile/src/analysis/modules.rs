//! The executions of each program, added up over captures.

use std::collections::{BTreeMap, BTreeSet};

use crate::hlo::ProgramMemory;
use crate::profile::Layout;
use crate::stats::Moments;

use super::by_kind::OfOperation;
use super::runtime::{Counted, ns};
use super::totals::Totals;

/// The executions of a program that count, on all devices.
#[derive(Debug, Default)]
pub(super) struct OfModule {
    pub(super) devices: BTreeSet<(usize, usize, Option<i64>)>,
    pub(super) events: Moments,
    pub(super) active: Moments,
    pub(super) span: Moments,
    pub(super) total_ns: f64,
    pub(super) operations: BTreeMap<String, OfOperation>,
    /// Whether its HLO is known.
    pub(super) is_known: bool,
    /// Whether it ran on a GPU's streams, whose kernels may have no name of an operation.
    pub(super) on_streams: bool,
    pub(super) memory: Option<ProgramMemory>,
}

/// By name and program id.
pub(super) type Modules = BTreeMap<(String, Option<i64>), OfModule>;

/// Adds the executions of one capture up.
pub(super) fn add(modules: &mut Modules, capture: usize, totals: &Totals, counted: &Counted<'_>) {
    let time = &totals.time;
    for execution in &counted.executions {
        let of_module = modules.entry((time.name(execution.module).to_owned(), execution.program_id)).or_default();
        of_module.on_streams |= execution.layout == Layout::DeviceStreams;
        of_module.devices.insert((capture, execution.plane, execution.device));
        of_module.events.add(execution.events as f64);
        of_module.active.add(ns(execution.busy_ps));
        of_module.span.add(ns(execution.span_ps));
        of_module.total_ns += ns(execution.span_ps);
    }
    for (&(module, program_id), operations) in &totals.operations {
        let of_module = modules.entry((time.name(module).to_owned(), program_id)).or_default();
        for (&name, total) in operations {
            let of_operation = of_module.operations.entry(time.name(name).to_owned()).or_default();
            of_operation.time.join(*total);
            if of_operation.inside.is_none() {
                of_operation.inside = total.inside.map(|inside| time.name(inside).to_owned());
            }
        }
    }
}
