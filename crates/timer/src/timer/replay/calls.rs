//! Calls that failed when they were recorded, and fail again at the same points.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureKind};

/// The method that a [`RecordedFailure`] is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RecordedMethod {
    /// [`Timer::prepare`](crate::timer::Timer::prepare).
    Prepare,
    /// [`Timer::measure`](crate::timer::Timer::measure).
    Measure,
    /// [`Timer::outputs`](crate::timer::Timer::outputs).
    Outputs,
}

/// A call that fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedFailure {
    /// In which method.
    #[serde(rename = "in")]
    pub method: RecordedMethod,
    /// What kind.
    pub kind: FailureKind,
    /// One line.
    pub message: String,
    /// Calls that succeed before it.
    #[serde(default)]
    pub after: u64,
    /// How often it occurs; forever if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

/// The calls of a job so far.
#[derive(Debug, Default)]
pub(super) struct RecordedCalls {
    /// Calls of a method for a candidate that succeeded.
    succeeded: BTreeMap<(usize, RecordedMethod), u64>,
    /// How often each failure of a candidate occurred.
    failed: BTreeMap<(usize, usize), u64>,
}

impl RecordedCalls {
    /// Counts a call, and fails if one of the candidate's failures is due.
    pub(super) fn call(
        &mut self,
        candidate: usize,
        method: RecordedMethod,
        failures: &[RecordedFailure],
    ) -> Result<(), Failure> {
        let succeeded = self.succeeded.entry((candidate, method)).or_default();
        for (index, failure) in failures.iter().enumerate().filter(|(_, failure)| failure.method == method) {
            let came = self.failed.entry((candidate, index)).or_default();
            if *succeeded >= failure.after && failure.times.is_none_or(|times| *came < times) {
                *came += 1;
                return Err(Failure::new(failure.kind.clone(), failure.message.clone()));
            }
        }
        *succeeded += 1;
        Ok(())
    }

    /// Calls of a method for a candidate that succeeded.
    pub(super) fn succeeded(&self, candidate: usize, method: RecordedMethod) -> u64 {
        self.succeeded.get(&(candidate, method)).copied().unwrap_or(0)
    }
}

/// Whether the worker had to be restarted: a program that merely reports an error may leave it intact.
pub(super) fn ends_worker(failure: &Failure) -> bool {
    failure.needs_restart() && failure.kind != FailureKind::Execute
}
