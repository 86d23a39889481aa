//! Which configs can run on this device at all. One that cannot is not a failure: there is nothing to fix or to retry.

use crate::counted::counted;
use crate::failure::Failure;

use super::job::JobIdentity;
use super::rounds::JobRounds;

/// Candidates with programs of their own that cannot run here, never including the baseline.
fn impossible<'a>(identity: &'a JobIdentity, rounds: &'a JobRounds) -> impl Iterator<Item = usize> + 'a {
    let others = identity.distinct().into_iter().filter(|&candidate| candidate != identity.baseline);
    others.filter(|candidate| {
        rounds.failures.get(candidate).is_some_and(|failure| identity.not_lowered.is_proven(*candidate, failure))
    })
}

/// How many programs can run here, as far as known; those that failed for other reasons are included.
pub(super) fn count_possible(identity: &JobIdentity, rounds: &JobRounds) -> usize {
    identity.distinct().len() - impossible(identity, rounds).count()
}

/// Why there was nothing to compare the baseline with, if so.
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
