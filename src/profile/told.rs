//! Executions that are known before a capture's events are looked at: an importer's, whose format says more than events do.

use std::collections::{BTreeSet, HashMap};

use crate::stats::Moments;

use super::execution::{DeviceTime, Execution};
use super::finding::Finding;
use super::names::NameId;

/// The executions of a capture as its importer found them; [`executions`](super::executions) gives these.
#[derive(Debug, Default)]
pub struct Told {
    executions: Vec<Execution>,
    /// Of each execution by plane, device and order, each operation's runs.
    runs: HashMap<(usize, Option<i64>, usize), Vec<Moments>>,
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, NameId>,
    compiled: BTreeSet<(NameId, Option<i64>)>,
    findings: Vec<Finding>,
}

/// Programs whose first execution on a device is slower than the others, since it loads code and fills caches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SlowFirst {
    /// Any program: nothing tells which.
    #[default]
    Any,
    /// Those that were compiled while the capture was taken; the others ran before.
    Of(BTreeSet<(NameId, Option<i64>)>),
}

impl SlowFirst {
    /// Whether it is so of a program.
    pub fn is_of(&self, module: NameId, program_id: Option<i64>) -> bool {
        match self {
            Self::Any => true,
            Self::Of(programs) => programs.contains(&(module, program_id)),
        }
    }
}

impl Told {
    /// The number of a name.
    pub fn name(&mut self, name: &str) -> NameId {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        number
    }

    /// Adds an execution: the next of its device, by start. `runs` has the times of each run of its operations, in
    /// nanoseconds, in the order of [`Execution::operations`].
    pub fn add(&mut self, mut execution: Execution, runs: Vec<Moments>) {
        let device = |one: &Execution| (one.plane, one.device);
        let last = self.executions.last().filter(|last| device(last) == device(&execution));
        execution.order = last.map_or(0, |last| last.order + 1);
        self.runs.insert((execution.plane, execution.device, execution.order), runs);
        self.executions.push(execution);
    }

    /// Notes that a program was compiled while the capture was taken.
    pub fn add_compiled(&mut self, module: &str, program_id: Option<i64>) {
        let module = self.name(module);
        self.compiled.insert((module, program_id));
    }

    /// Notes something to know.
    pub fn add_finding(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// What there is to know.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The times of each run of an execution's operations, in their order.
    pub fn runs(&self, execution: &Execution) -> &[Moments] {
        self.runs.get(&(execution.plane, execution.device, execution.order)).map_or(&[], Vec::as_slice)
    }

    /// The executions, each shown to `fold` first.
    pub(super) fn time(&self, fold: &mut dyn FnMut(&mut Execution)) -> DeviceTime {
        let shown = self.executions.iter().cloned().map(|mut execution| {
            fold(&mut execution);
            execution
        });
        DeviceTime {
            executions: shown.collect(),
            findings: self.findings.clone(),
            slow_first: SlowFirst::Of(self.compiled.clone()),
            names: self.names.clone(),
        }
    }
}
