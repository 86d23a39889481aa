//! Which executions of a capture count, and how each device spent its time.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use crate::profile::interval::{Interval, merge};
use crate::profile::{AUTOTUNER, DeviceTime, Execution, Layout, NameId};

use super::capture::Capture;

/// The executions of a capture that count, and what was left out.
#[derive(Debug)]
#[non_exhaustive]
pub struct Counted<'t> {
    /// By plane, device and start.
    pub executions: Vec<&'t Execution>,
    /// First executions of a module on a device.
    pub warm_up: Skipped,
    /// Runs of XLA's autotuner.
    pub autotuner: Skipped,
    /// Executions of minor modules.
    pub minor: Skipped,
    /// Whether first executions count because nothing else ran.
    pub only_first: bool,
}

/// Executions that do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// How many.
    pub executions: u64,
    /// Their spans, added up.
    pub span_ps: u64,
}

impl Skipped {
    pub(super) fn join(&mut self, other: Self) {
        self.executions += other.executions;
        self.span_ps = self.span_ps.saturating_add(other.span_ps);
    }

    pub(super) fn add(&mut self, execution: &Execution) {
        self.executions += 1;
        self.span_ps = self.span_ps.saturating_add(execution.span_ps);
    }
}

impl<'t> Counted<'t> {
    /// Leaves out the first execution of each program on each device, since it may load code and fill caches
    /// ([`DeviceTime::slow_first`]), and runs of XLA's autotuner. If there are only such executions, they count.
    pub fn new(time: &'t DeviceTime, with_warm_up: bool) -> Self {
        let (mut warm_up, mut autotuner) = (Skipped::default(), Skipped::default());
        let mut seen: HashSet<(usize, Option<i64>, NameId, Option<i64>)> = HashSet::new();
        let (mut first, mut executions) = (Vec::new(), Vec::new());
        for execution in &time.executions {
            let key = (execution.plane, execution.device, execution.module, execution.program_id);
            if execution.program_id == Some(AUTOTUNER) {
                autotuner.add(execution);
            } else if seen.insert(key) && !with_warm_up && time.slow_first.is_of(execution.module, execution.program_id)
            {
                warm_up.add(execution);
                first.push(execution);
            } else {
                executions.push(execution);
            }
        }
        let only_first = executions.is_empty() && !first.is_empty();
        if only_first {
            (executions, warm_up) = (first, Skipped::default());
        }
        Self { executions, warm_up, autotuner, minor: Skipped::default(), only_first }
    }
}

/// How one device spent its time, by three definitions of the total.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeviceRuntime {
    /// The host, by the file's name.
    pub host: String,
    /// The plane.
    pub plane: String,
    /// The device's number, if there is one.
    pub device: Option<i64>,
    /// How executions were distinguished.
    pub layout: Layout,
    /// Executions that count.
    pub executions: u64,
    /// First definition: the time during which an operation ran, for each execution separately.
    pub operations_ns: f64,
    /// Second: the executions' spans, added up. It is the first and [`DeviceRuntime::idle_inside_ns`].
    pub modules_ns: f64,
    /// Third: from the first start to the last end, without time covered only by left-out executions. It is the second
    /// and [`DeviceRuntime::idle_between_ns`], less [`DeviceRuntime::overlap_ns`].
    pub wall_ns: f64,
    /// Time inside executions during which no operation ran.
    pub idle_inside_ns: f64,
    /// Time between executions.
    pub idle_between_ns: f64,
    /// Time that overlapping executions count more than once.
    pub overlap_ns: f64,
}

impl DeviceRuntime {
    /// The device as tables name it: `host plane device N`.
    pub fn name(&self) -> String {
        let number = self.device.map_or_else(String::new, |number| format!(" device {number}"));
        format!("{} {}{number}", self.host, self.plane).trim_start().to_owned()
    }
}

/// Picoseconds as nanoseconds.
pub(super) fn ns(ps: u64) -> f64 {
    ps as f64 / 1e3
}

/// Each device's runtime, in the order of planes and devices.
pub(super) fn device_runtimes(capture: &Capture, time: &DeviceTime, counted: &Counted<'_>) -> Vec<DeviceRuntime> {
    let mut all: BTreeMap<(usize, Option<i64>), Vec<Interval>> = BTreeMap::new();
    for execution in &time.executions {
        let span = Interval { start_ps: execution.start_ps, end_ps: execution.end_ps };
        all.entry((execution.plane, execution.device)).or_default().push(span);
    }
    let device = |execution: &Execution| (execution.plane, execution.device);
    let of_devices = counted.executions.chunk_by(|one, next| device(one) == device(next));
    let runtimes = of_devices.filter_map(|executions| {
        let first = executions.first()?;
        let plane = capture.timeline().planes().nth(first.plane)?;
        let mut spans: Vec<Interval> = executions
            .iter()
            .map(|execution| Interval { start_ps: execution.start_ps, end_ps: execution.end_ps })
            .collect();
        let sum = |of: fn(&Execution) -> u64| {
            executions.iter().fold(0_u64, |sum, execution| sum.saturating_add(of(execution)))
        };
        let (operations_ps, modules_ps) = (sum(|one| one.busy_ps), sum(|one| one.span_ps));
        let window = Interval {
            start_ps: spans.iter().map(|span| span.start_ps).min().unwrap_or(0),
            end_ps: spans.iter().map(|span| span.end_ps).max().unwrap_or(0),
        };
        let covered = |spans: &mut Vec<Interval>| -> u64 {
            merge(spans);
            spans.iter().map(Interval::length_ps).sum()
        };
        let union_ps = covered(&mut spans);
        let mut within: Vec<Interval> = all.remove(&device(first)).unwrap_or_default();
        for span in &mut within {
            span.start_ps = span.start_ps.clamp(window.start_ps, window.end_ps);
            span.end_ps = span.end_ps.clamp(window.start_ps, window.end_ps);
        }
        // time of left-out executions is neither counted work nor idle time
        let idle_between_ps = window.length_ps().saturating_sub(covered(&mut within));
        Some(DeviceRuntime {
            host: capture.host().to_owned(),
            plane: plane.name().into_owned(),
            device: first.device,
            layout: first.layout,
            executions: executions.len() as u64,
            operations_ns: ns(operations_ps),
            modules_ns: ns(modules_ps),
            wall_ns: ns(union_ps.saturating_add(idle_between_ps)),
            idle_inside_ns: ns(modules_ps.saturating_sub(operations_ps)),
            idle_between_ns: ns(idle_between_ps),
            overlap_ns: ns(modules_ps.saturating_sub(union_ps)),
        })
    });
    runtimes.collect()
}
