//! Candidates that the recorder could not lower, and the consequences if they fail.

use std::collections::BTreeMap;

use crate::failure::{Failure, FailureKind};
use crate::registry::{Invocation, Target};

/// The candidates of a job that could not be lowered when they were recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotLowered {
    /// Whether they were recorded on the device that the job is for.
    was_here: bool,
    /// The reason, by candidate.
    reasons: BTreeMap<usize, String>,
}

impl NotLowered {
    /// Those of an invocation.
    pub(crate) fn of(invocation: &Invocation) -> Self {
        let candidates = invocation.candidates.iter().enumerate();
        let without = candidates.filter(|(_, candidate)| candidate.program.is_none());
        let reasons = without.filter_map(|(index, candidate)| Some((index, candidate.not_lowered.clone()?)));
        Self { was_here: matches!(invocation.target, Target::Device(_)), reasons: reasons.collect() }
    }

    /// A failure because there is no program, with the recorded reason.
    pub(crate) fn explain(&self, candidate: usize, failure: Failure) -> Failure {
        match (&failure.kind, self.reasons.get(&candidate)) {
            (FailureKind::NoProgram, Some(reason)) => {
                let way_out = if self.was_here { String::new() } else { format!("; {}", failure.message) };
                Failure::new(failure.kind, format!("it was not lowered when it was recorded: {reason}{way_out}"))
            }
            _ => failure,
        }
    }

    /// Whether a failed candidate cannot exist on this device: it was not lowered, and either that was tried on the
    /// device itself, or a worker on it could not build its program either.
    pub(crate) fn is_proven(&self, candidate: usize, failure: &Failure) -> bool {
        let is_no_failure = match failure.kind {
            FailureKind::Compile => true,
            FailureKind::NoProgram => self.was_here,
            _ => false,
        };
        is_no_failure && self.reasons.contains_key(&candidate)
    }
}
