//! Which configs can run on this device at all. One that cannot is no failure: there is nothing to mend or to try again.

use std::collections::BTreeMap;

use crate::counted::counted;
use crate::failure::{Failure, FailureKind};
use crate::registry::{Invocation, Target};

use super::job::JobIdentity;
use super::rounds::JobRounds;

/// The candidates of a job that could not be lowered when they were recorded.
#[derive(Debug, Clone, Default)]
pub(super) struct NotLowered {
    /// Whether they were recorded on the device that the job is for.
    was_here: bool,
    /// The reason, by candidate.
    reasons: BTreeMap<usize, String>,
}

impl NotLowered {
    /// Those of an invocation.
    pub(super) fn of(invocation: &Invocation) -> Self {
        let candidates = invocation.candidates.iter().enumerate();
        let without = candidates.filter(|(_, candidate)| candidate.program.is_none());
        let reasons = without.filter_map(|(index, candidate)| Some((index, candidate.not_lowered.clone()?)));
        Self { was_here: matches!(invocation.target, Target::Device(_)), reasons: reasons.collect() }
    }

    /// A failure for want of a program, with the reason that the record gives.
    pub(super) fn explain(&self, candidate: usize, failure: Failure) -> Failure {
        match (&failure.kind, self.reasons.get(&candidate)) {
            (FailureKind::NoProgram, Some(reason)) => {
                let way_out = if self.was_here { String::new() } else { format!("; {}", failure.message) };
                Failure::new(failure.kind, format!("it was not lowered when it was recorded: {reason}{way_out}"))
            }
            _ => failure,
        }
    }

    /// Whether a failed candidate cannot be on this device: it was not lowered for it, and either that was tried on the
    /// device itself, or a worker on it could not build its program either.
    fn is_proven(&self, candidate: usize, failure: &Failure) -> bool {
        let is_no_failure = match failure.kind {
            FailureKind::Compile => true,
            FailureKind::NoProgram => self.was_here,
            _ => false,
        };
        is_no_failure && self.reasons.contains_key(&candidate)
    }
}

/// Candidates with programs of their own that cannot run here, the baseline never one of them.
fn impossible<'a>(identity: &'a JobIdentity, rounds: &'a JobRounds) -> impl Iterator<Item = usize> + 'a {
    let others = identity.distinct().into_iter().filter(|&candidate| candidate != identity.baseline);
    others.filter(|candidate| {
        rounds.failures.get(candidate).is_some_and(|failure| identity.not_lowered.is_proven(*candidate, failure))
    })
}

/// How many programs can run here, as far as it is known; what failed otherwise is one of them.
pub(super) fn count_possible(identity: &JobIdentity, rounds: &JobRounds) -> usize {
    identity.distinct().len() - impossible(identity, rounds).count()
}

/// Why there was nothing to compare the baseline with, where there was not.
pub(super) fn why_alone(identity: &JobIdentity, rounds: &JobRounds) -> Option<String> {
    if count_possible(identity, rounds) > 1 {
        return None;
    }
    let mut others = impossible(identity, rounds).peekable();
    Some(match others.peek().and_then(|first| rounds.failures.get(first)) {
        Some(Failure { message, .. }) => {
            let count = counted(others.count(), "config");
            format!("no other config can run here ({count} without a program): {message}")
        }
        None if identity.same_as.len() == 1 => "there is only one config".to_owned(),
        None => "every candidate is the same program".to_owned(),
    })
}
