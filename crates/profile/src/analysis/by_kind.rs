//! A summary's operations, and what they have in common: opcode, source line, `op_name`, label.

use std::collections::BTreeMap;

use serde::Serialize;

use super::attribution::{Attribution, UNKNOWN};
use super::totals::OperationTime;
use super::work::Work;
use crate::hlo::{Evidence, KnownKernel, Label};
use crate::peaks::Peaks;
use crate::stats::Moments;

/// Mean and sample standard deviation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeanStd {
    /// The mean.
    pub mean: f64,
    /// The deviation, with n − 1; `None` for a single number.
    pub std: Option<f64>,
}

impl From<Moments> for MeanStd {
    fn from(moments: Moments) -> Self {
        Self { mean: moments.mean(), std: moments.deviation() }
    }
}

/// All events of one operation of one program, on all devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OperationSummary {
    /// The instruction's name.
    pub operation: String,
    /// The module's name.
    pub module: String,
    /// The program's id.
    pub program_id: Option<i64>,
    /// The opcode; `unknown` if the module is missing.
    pub opcode: String,
    /// The scopes that it came from.
    pub op_name: String,
    /// `file:line`, if known.
    pub source: Option<String>,
    /// The tunable call that it is part of.
    pub label: Option<Label>,
    /// The kernel that it is, if its name is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KnownKernel>,
    /// Bytes of its result.
    pub bytes: u64,
    /// Whether it moves data between devices.
    pub communication: bool,
    /// Events.
    pub count: u64,
    /// Executions in which it ran.
    pub executions: u64,
    /// Its self time in an execution in which it ran.
    pub self_time_ns: MeanStd,
    /// Time of each of its runs, for communication the part that no computation hides; `None` if the capture's format
    /// does not have it.
    pub run_ns: Option<MeanStd>,
    /// Its share of the time during which operations ran.
    pub time_ns: f64,
    /// The same as a share of all modules' spans.
    pub share: f64,
    /// Its work, if its cost is known.
    pub work: Option<Work>,
}

impl OperationSummary {
    /// The values behind its spread, and their number: its runs if each is known, otherwise its time per execution.
    pub fn varying_ns(&self) -> (MeanStd, u64) {
        self.run_ns.map_or((self.self_time_ns, self.executions), |run| (run, self.count))
    }
}

/// Time that operations have in common.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Part {
    /// What they have in common.
    pub name: String,
    /// How many operations.
    pub operations: u64,
    /// Their time.
    pub time_ns: f64,
    /// As a share of all modules' spans.
    pub share: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct OfOperation {
    pub(super) time: OperationTime,
    /// The name of the operation that encloses it.
    pub(super) inside: Option<String>,
    pub(super) attribution: Option<Attribution>,
}

/// Operations and time by what the operations have in common.
#[derive(Default)]
pub(super) struct ByKind {
    pub(super) opcodes: Parts,
    pub(super) sources: Parts,
    pub(super) op_names: Parts,
    pub(super) labels: BTreeMap<(Label, Evidence), (u64, f64, Vec<Work>)>,
    /// Operations and time of each known kernel, by its document.
    pub(super) kernels: BTreeMap<String, (KnownKernel, u64, f64)>,
}

impl ByKind {
    /// Counts an operation of a module, and returns its summary.
    pub(super) fn operation(
        &mut self,
        (module, program_id, operation): (&str, Option<i64>, String),
        OfOperation { time: total, attribution, .. }: OfOperation,
        peaks: Option<&Peaks>,
        share: &dyn Fn(f64) -> f64,
    ) -> OperationSummary {
        let known = attribution.unwrap_or_else(|| Attribution { opcode: UNKNOWN.into(), ..Default::default() });
        let source = known.source.as_ref().map(|(file, line)| format!("{file}:{line}"));
        let communication = known.communication;
        self.opcodes.add(&known.opcode, total.time_ns);
        self.sources.add(source.as_deref().unwrap_or(UNKNOWN), total.time_ns);
        self.op_names.add(if known.op_name.is_empty() { UNKNOWN } else { &known.op_name }, total.time_ns);
        let work = known.cost.map(|cost| Work::of(&cost, total.count, total.time_ns, peaks));
        let label = known.label.map(|(label, evidence)| {
            let (operations, time_ns, works) = self.labels.entry((label.clone(), evidence)).or_default();
            *operations += 1;
            *time_ns += total.time_ns;
            works.extend(work.clone());
            label
        });
        if let Some(kernel) = &known.kernel {
            let key = serde_json::to_string(kernel).unwrap_or_default();
            let (_, operations, time_ns) = self.kernels.entry(key).or_insert_with(|| (kernel.clone(), 0, 0.0));
            *operations += 1;
            *time_ns += total.time_ns;
        }
        OperationSummary {
            operation,
            module: module.to_owned(),
            program_id,
            opcode: known.opcode,
            op_name: known.op_name,
            source,
            label,
            kernel: known.kernel,
            bytes: known.bytes,
            communication,
            count: total.count,
            executions: total.own.count(),
            self_time_ns: total.own.into(),
            run_ns: (total.runs.count() > 0).then(|| total.runs.into()),
            time_ns: total.time_ns,
            share: share(total.time_ns),
            work,
        }
    }
}

/// Operations and time by name.
#[derive(Debug, Default)]
pub(super) struct Parts(pub(super) BTreeMap<String, (u64, f64)>);

impl Parts {
    fn add(&mut self, name: &str, time_ns: f64) {
        match self.0.get_mut(name) {
            Some(part) => *part = (part.0 + 1, part.1 + time_ns),
            None => drop(self.0.insert(name.to_owned(), (1, time_ns))),
        }
    }

    pub(super) fn sorted(self, share: &dyn Fn(f64) -> f64) -> Vec<Part> {
        let parts = self.0.into_iter().map(|(name, (operations, time_ns))| Part {
            name,
            operations,
            time_ns,
            share: share(time_ns),
        });
        let mut parts: Vec<Part> = parts.collect();
        parts.sort_by(|one, other| other.time_ns.total_cmp(&one.time_ns));
        parts
    }
}
