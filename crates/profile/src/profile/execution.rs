//! Device time of module executions.

use std::collections::BTreeSet;

use serde::Serialize;

use super::finding::Finding;
use super::folding::Operation;
use super::names::NameId;
use super::outside::OutsideTime;
use super::plane_view::Layout;
use crate::measured_by::Metric;

/// Every module execution of a capture, and caveats of the capture.
#[derive(Debug, Clone)]
pub struct DeviceTime {
    /// By plane, device and start.
    pub executions: Vec<Execution>,
    /// The findings.
    pub findings: Vec<Finding>,
    /// What devices ran outside every execution, by plane, the longest first.
    pub outside: Vec<OutsideKernel>,
    /// Programs whose first execution is not a measurement.
    pub slow_first: SlowFirst,
    /// By the numbers of [`NameId`].
    pub(crate) names: Vec<Box<str>>,
}

/// What a device ran under one name outside every module execution: the events name no module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutsideKernel {
    /// Number of the plane in its file.
    pub plane: usize,
    /// The device, as [`Execution::device`].
    pub device: Option<i64>,
    /// The events' name.
    pub name: NameId,
    /// Their number and durations.
    pub time: OutsideTime,
}

/// The program id of what XLA's own autotuner runs.
pub const AUTOTUNER: i64 = -1;

/// Programs whose first execution on a device is slower than the others, since it loads code and fills caches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowFirst {
    /// Any program, because it is unknown which.
    #[default]
    Any,
    /// Those that were compiled while the capture was taken; the others ran before.
    Of(BTreeSet<(NameId, Option<i64>)>),
}

impl SlowFirst {
    /// Whether this applies to a program.
    pub fn is_of(&self, module: NameId, program_id: Option<i64>) -> bool {
        match self {
            Self::Any => true,
            Self::Of(programs) => programs.contains(&(module, program_id)),
        }
    }
}

/// One execution of a module on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Execution {
    /// Number of the plane in its file.
    pub plane: usize,
    /// The device: the number in the plane's name, or the events' `device_ordinal`.
    pub device: Option<i64>,
    /// How the execution was distinguished.
    pub layout: Layout,
    /// The module's name.
    #[serde(skip)]
    pub module: NameId,
    /// The program's id; unique in its process.
    pub program_id: Option<i64>,
    /// The launch's id; devices that run one launch share it.
    pub run_id: Option<i64>,
    /// Its place among the executions of its device, by start.
    pub order: usize,
    /// Operation events.
    pub events: u64,
    /// Start, in picoseconds after [`XSpace::base_ns`](super::XSpace::base_ns).
    pub start_ps: i64,
    /// End, likewise.
    pub end_ps: i64,
    /// Time from the first operation's start to the last one's end; of a module line, the module event's duration.
    pub span_ps: u64,
    /// Time during which at least one operation ran: the union of their intervals, never their sum.
    pub busy_ps: u64,
    /// The part of it during which an operation other than control flow ran: a `while` covers the gaps in its body.
    pub kernels_busy_ps: u64,
    /// By name's first appearance in the execution.
    #[serde(skip)]
    pub operations: Vec<Operation>,
}

impl Layout {
    /// The metric for decisions: the span if thunks of a thread pool wait for each other, busy time on a device.
    pub fn metric(self) -> Metric {
        match self {
            Self::HostThunks => Metric::Span,
            Self::DeviceStreams | Self::ModuleLines => Metric::Busy,
        }
    }
}

impl Execution {
    /// Its duration by a metric, picoseconds: a profile has its span and its busy time, and every other metric is the
    /// span.
    pub fn time_ps(&self, metric: &Metric) -> u64 {
        if *metric == Metric::Busy { self.busy_ps } else { self.span_ps }
    }
}

impl DeviceTime {
    /// The text of a name.
    pub fn name(&self, id: NameId) -> &str {
        self.names.get(id.0 as usize).map_or("", |name| name)
    }
}
