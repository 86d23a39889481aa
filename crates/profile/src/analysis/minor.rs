//! Minor modules: those that ran before and beside the steps.

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::DeviceTime;
use crate::setters;

use super::capture::Capture;
use super::runtime::Counted;

/// Which executions count.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counting {
    /// Whether first executions count, which load code and fill caches.
    pub with_warm_up: bool,
    /// Modules are left out that together make up no more than this part of all modules' time, the shortest first; zero
    /// leaves none out.
    pub minor: f64,
}

setters!(Counting { with_warm_up: bool, minor: f64 });

impl From<bool> for Counting {
    /// All modules, with first executions or without.
    fn from(with_warm_up: bool) -> Self {
        Self { with_warm_up, minor: 0.0 }
    }
}

/// Programs that are left out.
#[derive(Debug, Default)]
pub(super) struct Minor(BTreeSet<(String, Option<i64>)>);

impl Minor {
    /// Scans the captures of one run, if anything may be left out.
    pub(super) fn of(captures: &[Capture], counting: Counting) -> Self {
        if counting.minor <= 0.0 {
            return Self::default();
        }
        let mut spans: BTreeMap<(String, Option<i64>), u64> = BTreeMap::new();
        for capture in captures {
            let time = capture.executions_folded(&mut |execution, _| execution.operations = Vec::new());
            for execution in Counted::new(&time, counting.with_warm_up).executions {
                let program = (time.name(execution.module).to_owned(), execution.program_id);
                let span = spans.entry(program).or_default();
                *span = span.saturating_add(execution.span_ps);
            }
        }
        let all: f64 = spans.values().map(|span| *span as f64).sum();
        let mut by_span: Vec<((String, Option<i64>), u64)> = spans.into_iter().collect();
        by_span.sort_by_key(|(_, span)| *span);
        let mut sum = 0.0;
        let minor = by_span.into_iter().take_while(|(_, span)| {
            sum += *span as f64;
            sum <= counting.minor * all
        });
        Self(minor.map(|(program, _)| program).collect())
    }

    /// Whether a program is among them.
    pub(super) fn has(&self, module: &str, program_id: Option<i64>) -> bool {
        !self.0.is_empty() && self.0.contains(&(module.to_owned(), program_id))
    }
}

impl Counted<'_> {
    /// Leaves executions of these programs out too.
    pub(super) fn leave_out(&mut self, time: &DeviceTime, programs: &Minor) {
        let minor = &mut self.minor;
        self.executions.retain(|execution| {
            let is_minor = programs.has(time.name(execution.module), execution.program_id);
            if is_minor {
                minor.add(execution);
            }
            !is_minor
        });
    }
}
