//! The step in a profile: each call's share of it, the resulting order, and the total gain of tuning.

use crate::analysis::{LabelShare, ModuleSummary, Summary};
use crate::batch::own_key;
use crate::registry::Invocation;

use super::{AutotuningResult, OperationResult, PlannedInvocation, ProfiledStep};

/// Where the time of the step to optimise goes.
#[derive(Debug, Clone, PartialEq)]
pub struct StepProfile {
    /// The profile, as the user named it.
    place: String,
    /// Time of all its module executions that count, nanoseconds.
    modules_ns: f64,
    /// Each module's name and its share of that time.
    modules: Vec<(String, f64)>,
    /// Source lines and their operations' share of the time, the largest first.
    sources: Vec<(String, f64)>,
    pub(super) labels: Vec<LabelShare>,
    pub(super) notes: Vec<String>,
}

/// Whether a truncated label of a profile may belong to this call.
fn may_be(label: &LabelShare, invocation: &Invocation) -> bool {
    let label = &label.label;
    // a label may lack the `vmap` around the call
    let same_key = label
        .call_key
        .as_ref()
        .is_none_or(|key| [&*invocation.call.call_key, own_key(&invocation.call.call_key)].contains(&&**key));
    if label.version().is_some() {
        return label.op_id == invocation.call.op_id && same_key;
    }
    label.op_name() == invocation.call.op_name() && same_key
}

/// Gives each planned call its share of a profile's time, and puts those with the most first. A label that is truncated
/// in the profile may match several calls: its share is divided equally among them, with a flag. Returns one line on
/// what the profile and the plan do not have in common.
pub(super) fn order_by_share(plan: &mut [PlannedInvocation], labels: &[LabelShare]) -> Vec<String> {
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
                    "the profile has only `{}` of its label, so its share is divided equally among {} calls",
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
            notes.push("the profile has none of the planned calls, so they are tuned in the module's order".to_owned());
        }
        some => notes.push(format!("{some} of {} planned calls are not in the profile: they come last", plan.len())),
    }
    // stable: calls with equal shares stay in the module's order
    plan.sort_by(|one, other| other.share.unwrap_or(0.0).total_cmp(&one.share.unwrap_or(0.0)));
    notes
}

impl StepProfile {
    /// What was read from a step's profile at a path; `None` if no module ran in it.
    pub fn of(place: String, summary: &Summary) -> Option<Self> {
        let findings = summary.findings.iter().map(ToString::to_string);
        let modules_ns: f64 = summary.modules.iter().map(|module| module.total_ns).sum();
        let part =
            |module: &ModuleSummary| (module.module.clone(), module.total_ns / modules_ns.max(f64::MIN_POSITIVE));
        (!summary.modules.is_empty()).then(|| Self {
            place,
            modules_ns,
            modules: summary.modules.iter().map(part).collect(),
            sources: summary.sources.iter().map(|source| (source.name.clone(), source.share)).collect(),
            labels: summary.labels.clone(),
            notes: summary.notes.iter().cloned().chain(findings).collect(),
        })
    }

    /// Source lines as the profile names them, such as `model.py:12`, each with its operations' part of the modules'
    /// time, the largest first. Leaves out operations without a line and lines of installed packages.
    pub fn own_sources(&self) -> impl Iterator<Item = (&str, f64)> {
        let is_own = |name: &str| name.contains(':') && !name.contains("-packages/");
        let own = self.sources.iter().filter(move |(name, share)| is_own(name) && *share > 0.0);
        own.map(|(name, share)| (name.as_str(), *share))
    }

    /// The share of all modules' time that belongs to modules of a name: `jit_f` of the profile's `jit_f(7)`.
    pub fn share_of_module(&self, name: &str) -> f64 {
        let is_it =
            |module: &str| module.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('('));
        self.modules.iter().filter(|(module, _)| is_it(module)).map(|(_, part)| part).fold(0.0, |sum, part| sum + part)
    }

    /// What a result's operations save of the step.
    pub(super) fn gain(&self, result: &AutotuningResult) -> ProfiledStep {
        let sum = |of: &dyn Fn(&OperationResult) -> f64| {
            result.operations.iter().filter_map(|one| Some(one.share? * of(one))).fold(0.0, |sum, part| sum + part)
        };
        ProfiledStep {
            profile: self.place.clone(),
            modules_ns: self.modules_ns,
            labelled: self.labels.iter().map(|label| label.share).sum(),
            decided: sum(&|operation| f64::from(u8::from(operation.status.is_decided()))),
            expected_gain: sum(&|operation| saved(operation, |operation| operation.speed_up)),
            expected_gain_low: sum(&|operation| saved(operation, |one| Some(one.speed_up_interval?.low))),
            expected_gain_high: sum(&|operation| saved(operation, |one| Some(one.speed_up_interval?.high))),
        }
    }
}

/// Share of the baseline's time that the best config saves; `None` if the best is the baseline or unknown.
fn saved(operation: &OperationResult, speed_up: impl Fn(&OperationResult) -> Option<f64>) -> f64 {
    let replaces = operation.best.as_ref().is_some_and(|best| best.config != operation.baseline.config);
    let speed_up = speed_up(operation).filter(|one| one.is_finite() && *one > 0.0);
    match speed_up {
        Some(speed_up) if replaces && operation.status.is_decided() => 1.0 - 1.0 / speed_up,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modules_part_is_that_of_all_of_its_name() {
        let modules = [("jit_f(7)", 0.5), ("jit_f(9)", 0.25), ("jit_f", 0.0625), ("jit_fg(1)", 0.1875)];
        let modules = modules.map(|(name, part)| (name.to_owned(), part)).to_vec();
        let step = StepProfile {
            place: String::new(),
            modules_ns: 1.0,
            modules,
            sources: vec![],
            labels: vec![],
            notes: vec![],
        };
        assert_eq!(["jit_f", "jit_fg", "jit"].map(|name| step.share_of_module(name)), [0.8125, 0.1875, 0.0]);
    }
}
