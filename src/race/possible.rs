//! Which configs can run on this device at all. One that cannot is not a failure: there is nothing to fix or to retry.

use crate::counted::counted;
use crate::failure::Failure;

use super::JobIdentity;
use super::evidence::Evidence;

/// Candidates with programs of their own that cannot run here, never including the baseline.
fn impossible<'a>(identity: &'a JobIdentity, evidence: &'a Evidence) -> impl Iterator<Item = usize> + 'a {
    let others = identity.distinct().into_iter().filter(|&candidate| candidate != identity.baseline);
    others.filter(|candidate| {
        evidence.failures.get(candidate).is_some_and(|failure| identity.not_lowered.is_proven(*candidate, failure))
    })
}

/// How many programs can run here, as far as known; those that failed for other reasons are included.
pub(crate) fn count_possible(identity: &JobIdentity, evidence: &Evidence) -> usize {
    identity.distinct().len() - impossible(identity, evidence).count()
}

/// Why there was nothing to compare the baseline with, if so.
pub(crate) fn why_alone(identity: &JobIdentity, evidence: &Evidence) -> Option<String> {
    if count_possible(identity, evidence) > 1 {
        return None;
    }
    let mut others = impossible(identity, evidence).peekable();
    Some(match others.peek().and_then(|first| evidence.failures.get(first)) {
        Some(Failure { message, .. }) => {
            let count = counted(others.count(), "config");
            format!("no other config can run here ({count} without a program): {message}")
        }
        None if identity.same_as.len() == 1 => "there is only one config".to_owned(),
        None => "every candidate is the same program".to_owned(),
    })
}
