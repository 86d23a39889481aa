//! The step that a profile shows: the share of each call in it, the order that follows, and what tuning gains in all.

use serde::{Deserialize, Serialize};

use crate::analysis::LabelShare;
use crate::batch::own_key;
use crate::registry::Invocation;

use super::{AutotuningResult, OperationResult, PlannedInvocation};

/// What a run gains of the step that a profile shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfiledStep {
    /// The profile.
    pub profile: String,
    /// Time of all its module executions that count, nanoseconds: what the shares are parts of.
    pub modules_ns: f64,
    /// Share of all labels in it.
    pub labelled: f64,
    /// Share of the calls that are decided.
    pub decided: f64,
    /// Part of the step's time that the best configs save: Σ share · (1 − best ÷ baseline). What is not decided saves nothing.
    pub expected_gain: f64,
    /// The same with every ratio at the end of its interval that saves least.
    pub expected_gain_low: f64,
    /// And at the one that saves most.
    pub expected_gain_high: f64,
}

/// Whether what is left of a profile's label may be of this call.
fn may_be(label: &LabelShare, invocation: &Invocation) -> bool {
    let label = &label.label;
    // a label may know nothing of a `vmap` around the call
    let same_key = label
        .call_key
        .as_ref()
        .is_none_or(|key| [&*invocation.call.call_key, own_key(&invocation.call.call_key)].contains(&&**key));
    if label.version().is_some() {
        return label.op_id == invocation.call.op_id && same_key;
    }
    label.op_name() == invocation.call.op_name() && same_key
}

/// Gives each planned call its share of a profile's time, and puts those with the most first. A label that is cut in the
/// profile may be of several calls: its share is divided equally among them, and that is flagged. Gives one line for what
/// the profile and the plan do not have in common.
pub fn order_by_share(plan: &mut [PlannedInvocation], labels: &[LabelShare]) -> Vec<String> {
    let mut strangers = Vec::new();
    for planned in &mut *plan {
        planned.share = Some(0.0);
    }
    for label in labels {
        let of_label: Vec<usize> = plan
            .iter()
            .enumerate()
            .filter(|(_, planned)| may_be(label, &planned.invocation))
            .map(|(place, _)| place)
            .collect();
        if of_label.is_empty() {
            strangers.push(format!("`{}`", label.label));
        }
        for &place in &of_label {
            let Some(planned) = plan.get_mut(place) else { continue };
            planned.share = planned.share.map(|share| share + label.share / of_label.len() as f64);
            if of_label.len() > 1 {
                planned.flags.push(format!(
                    "the profile has only `{}` of its label: its share is divided equally among {} calls",
                    label.label,
                    of_label.len()
                ));
            }
        }
    }
    let mut notes = Vec::new();
    if !strangers.is_empty() {
        notes.push(format!("the profile holds labels that no planned call has: {}", strangers.join(", ")));
    }
    let absent = plan.iter().filter(|planned| planned.share == Some(0.0)).count();
    match absent {
        0 => {}
        all if all == plan.len() => {
            notes.push("the profile shows none of the planned calls: they are tuned in the module's order".to_owned());
        }
        some => notes.push(format!("{some} of {} planned calls are not in the profile: they come last", plan.len())),
    }
    // stable: what has the same share stays in the module's order
    plan.sort_by(|one, other| other.share.unwrap_or(0.0).total_cmp(&one.share.unwrap_or(0.0)));
    notes
}

impl ProfiledStep {
    /// What the operations of a result gain of a step of `modules_ns`, where labels have this share.
    pub fn new(profile: String, modules_ns: f64, labels: &[LabelShare], result: &AutotuningResult) -> Self {
        let sum = |of: &dyn Fn(&OperationResult) -> f64| {
            result.operations.iter().filter_map(|one| Some(one.share? * of(one))).fold(0.0, |sum, part| sum + part)
        };
        Self {
            profile,
            modules_ns,
            labelled: labels.iter().map(|label| label.share).sum(),
            decided: sum(&|operation| f64::from(u8::from(operation.status.is_decided()))),
            expected_gain: sum(&|operation| saved(operation, |operation| operation.speed_up)),
            expected_gain_low: sum(&|operation| saved(operation, |one| Some(one.speed_up_interval?.low))),
            expected_gain_high: sum(&|operation| saved(operation, |one| Some(one.speed_up_interval?.high))),
        }
    }
}

/// Part of the baseline's time that the best config saves; none where that is the baseline or not known.
fn saved(operation: &OperationResult, speed_up: impl Fn(&OperationResult) -> Option<f64>) -> f64 {
    let replaces = operation.best.as_ref().is_some_and(|best| best.config != operation.baseline.config);
    let speed_up = speed_up(operation).filter(|one| one.is_finite() && *one > 0.0);
    match speed_up {
        Some(speed_up) if replaces && operation.status.is_decided() => 1.0 - 1.0 / speed_up,
        _ => 0.0,
    }
}
