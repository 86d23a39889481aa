//! The plan: a module's labels matched with the recordings, and the part of them to tune here.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::call::Call;
use crate::candidates::Spaces;
use crate::counted::counted;
use crate::device::{DeviceIdentity, DeviceMatch, MatchMode};
use crate::failure::Failure;
use crate::hlo::Scan;
use crate::lowering::{Lowering, without_recorder};
use crate::matching::{ByName, Matching, match_labels};
use crate::registry::{Invocation, Registry};
use crate::setters;
use crate::timer::{IsCancelled, Timer};

use super::step::order_by_share;
use super::{MissedLabel, PlannedInvocation, Shard, StepProfile};

/// Which calls of a module are tuned, and from which recordings.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// Which devices' recordings may be used for this device.
    pub match_mode: MatchMode,
    /// Whether a label that only kept its operation's name may match many calls.
    pub by_name: ByName,
    /// Only these operations (`op@vN`) and calls (`op@vN:key`); all of them if there is none.
    pub only: Vec<String>,
    /// Only this part of the calls.
    pub shard: Option<Shard>,
    /// The profile of a step: the calls come in order of their share of its time.
    pub step: Option<StepProfile>,
    /// Search spaces that add configs to those recorded, for a timer that
    /// [builds programs](crate::timer::TimerCapabilities::build_programs).
    pub spaces: Spaces,
}

setters!(PlanOptions {
    match_mode: MatchMode,
    by_name: ByName,
    only: Vec<String>,
    shard: Option<Shard>,
    step: Option<StepProfile>,
    spaces: Spaces,
});

/// What will be tuned, in that order, and what cannot be.
#[derive(Debug, Clone, Default)]
pub struct TuningPlan {
    /// What is tuned here.
    pub invocations: Vec<PlannedInvocation>,
    /// The module's other calls, which are of other shards.
    pub elsewhere: Vec<PlannedInvocation>,
    /// Labels of this shard that matched no invocation.
    pub missed: Vec<MissedLabel>,
    /// Notes on the module and the registry, one line each.
    pub notes: Vec<String>,
    /// The shard of the module's calls, if not all of them.
    pub shard: Option<Shard>,
    /// The step whose profile determined the order.
    pub(super) step: Option<StepProfile>,
    /// Notes on that profile.
    pub(super) of_step: Vec<String>,
}

/// Requested names that no call of the module has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no operation to tune has the name {}", .only.join(", "))]
pub struct NoSuchCall {
    /// The requested names.
    pub only: Vec<String>,
}

/// Plans the tuning of a module for a device.
///
/// # Errors
/// If calls are named ([`PlanOptions::only`]), and the module has none of them.
pub fn plan(
    scan: &Scan,
    registry: &Registry,
    device: &DeviceIdentity,
    options: &PlanOptions,
) -> Result<TuningPlan, NoSuchCall> {
    let matching = match_labels(scan, registry, device, options.match_mode, options.by_name);
    let mut invocations = planned(scan, &matching);
    let borders = borders(&invocations, registry);
    invocations.extend(borders);
    // by the shares of all calls, not only the requested ones
    let mut of_step = Vec::new();
    if let Some(step) = &options.step {
        of_step = order_by_share(&mut invocations, &step.labels);
        of_step.extend(step.notes.iter().cloned());
    }
    let diagnosis = scan.diagnosis.iter().map(|diagnosis| format!("{}: {}", diagnosis.code, diagnosis.message));
    let notes = diagnosis.chain(registry.problems().iter().map(ToString::to_string)).collect();
    let step = options.step.clone();
    let mut plan =
        TuningPlan { invocations, missed: missed(scan, &matching), notes, step, of_step, ..TuningPlan::default() };
    plan.retain_named(&options.only)?;
    let mut plan = match options.shard {
        Some(shard) => plan.of_shard(shard),
        None => plan,
    };
    for planned in &mut plan.invocations {
        if let Some(space) = options.spaces.get(planned.invocation.call.op_name()) {
            planned.extend_from(space);
        }
    }
    Ok(plan)
}

/// Plans the calls of a registry that apply to a device, without a module.
///
/// # Errors
/// As [`plan`].
pub fn whole_registry(
    registry: &Registry,
    device: &DeviceIdentity,
    options: &PlanOptions,
) -> Result<TuningPlan, NoSuchCall> {
    let of_device = |invocation: &&Arc<Invocation>| {
        !matches!(invocation.target.compare(options.match_mode, device), DeviceMatch::Miss(_))
    };
    let mut plan: TuningPlan =
        registry.invocations().iter().filter(of_device).cloned().map(PlannedInvocation::new).collect();
    plan.retain_named(&options.only)?;
    plan.notes = registry.problems().iter().map(ToString::to_string).collect();
    Ok(match options.shard {
        Some(shard) => plan.of_shard(shard),
        None => plan,
    })
}

/// Maximum number of calls that are tuned side by side on one device, and maximum size of each one's inputs.
const MOST_SIDE_BY_SIDE: usize = 4;
const MOST_INPUT_BYTES: u64 = 1 << 28;

impl TuningPlan {
    /// The part of it that belongs to a shard.
    #[must_use]
    pub fn of_shard(self, shard: Shard) -> Self {
        let is_mine = |planned: &PlannedInvocation| {
            let call = &planned.invocation.call;
            shard.holds(&call.op_id, &call.call_key)
        };
        let (invocations, others): (Vec<_>, Vec<_>) = self.invocations.into_iter().partition(is_mine);
        let elsewhere = self.elsewhere.into_iter().chain(others).collect();
        let mut missed = self.missed;
        missed.retain(|missed| shard.holds(&missed.label.op_id, missed.label.call_key.as_deref().unwrap_or_default()));
        Self { invocations, elsewhere, missed, shard: Some(shard), ..self }
    }

    /// Further timers of one device that are worth [tuning with](super::Session::beside), as far as it has any.
    pub fn timers_beside(&self, timer: &dyn Timer) -> Vec<Box<dyn Timer>> {
        (1..self.side_by_side()).map_while(|_| timer.beside()).collect()
    }

    /// How many calls are worth tuning side by side on one device: one of each operation, at most four, because each
    /// has a worker process. Only one if the inputs of a call are large, because each worker holds those of its call.
    pub fn side_by_side(&self) -> usize {
        let operations: BTreeSet<_> = self.invocations.iter().map(PlannedInvocation::tuned).collect();
        let largest = self.invocations.iter().map(PlannedInvocation::input_bytes).max().unwrap_or(0);
        if largest > MOST_INPUT_BYTES { 1 } else { operations.len().clamp(1, MOST_SIDE_BY_SIDE) }
    }

    /// Lowers all candidates that are to be lowered on demand.
    ///
    /// # Errors
    /// If the recorders are at fault.
    pub fn lower(
        &mut self,
        lowering: &Lowering,
        registry: &Registry,
        is_cancelled: IsCancelled<'_>,
    ) -> Result<(), Failure> {
        for planned in self.invocations.iter_mut().filter(|planned| planned.invocation.is_lowered_on_demand()) {
            let whole = Arc::clone(&planned.invocation);
            let candidates = &mut Arc::make_mut(&mut planned.invocation).candidates;
            lowering.complete(registry, &whole, candidates, is_cancelled)?;
        }
        Ok(())
    }

    /// Leaves out the candidates that are to be lowered on demand, because there is no recorder; a note says so.
    pub fn leave_open(&mut self) {
        self.notes.extend(without_recorder(self.invocations.iter().map(|planned| &*planned.invocation)));
        for planned in self.invocations.iter_mut().filter(|planned| planned.invocation.is_lowered_on_demand()) {
            Arc::make_mut(&mut planned.invocation).candidates.retain(|candidate| !candidate.is_open());
        }
    }

    /// Whether the module has none of the requested calls; a shard may be empty even if it has.
    pub fn matched_nothing(&self) -> bool {
        self.invocations.is_empty() && self.elsewhere.is_empty()
    }

    /// One line on how much of the module is this shard's.
    pub fn shard_note(&self) -> Option<String> {
        let (held, of) = (self.invocations.len(), self.invocations.len() + self.elsewhere.len());
        self.shard.map(|shard| format!("shard {shard} holds {held} of {}", counted(of, "operation")))
    }
}

impl TuningPlan {
    fn retain_named(&mut self, only: &[String]) -> Result<(), NoSuchCall> {
        if only.is_empty() {
            return Ok(());
        }
        self.invocations.retain(|planned| only.iter().any(|only| is_named(only, &planned.invocation)));
        if self.invocations.is_empty() { Err(NoSuchCall { only: only.to_vec() }) } else { Ok(()) }
    }
}

impl FromIterator<PlannedInvocation> for TuningPlan {
    fn from_iter<I: IntoIterator<Item = PlannedInvocation>>(planned: I) -> Self {
        Self { invocations: planned.into_iter().collect(), ..Self::default() }
    }
}

/// Whether `op@vN` or `op@vN:key` names this call.
fn is_named(name: &str, invocation: &Invocation) -> bool {
    let rest = name.strip_prefix(&invocation.call.op_id);
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(':') == Some(&invocation.call.call_key))
}

fn planned(scan: &Scan, matching: &Matching) -> Vec<PlannedInvocation> {
    let planned = matching.matched.iter().map(|matched| {
        let mut how: Vec<String> = matched.labels.iter().map(|label| label.how.to_string()).collect();
        how.dedup();
        PlannedInvocation {
            labels: matched.labels.iter().filter_map(|label| scan.labels.get(label.index).cloned()).collect(),
            how: how.join("; "),
            flags: matched.flags.clone(),
            ..PlannedInvocation::new(Arc::clone(&matched.invocation))
        }
    });
    planned.collect()
}

/// The calls at the borders of these calls' buckets that are recorded and that the module does not have itself.
fn borders(planned: &[PlannedInvocation], registry: &Registry) -> Vec<PlannedInvocation> {
    let id = |call: &Invocation| (call.call.clone(), call.direction, call.target.clone());
    let mut known: HashSet<_> = planned.iter().map(|planned| id(&planned.invocation)).collect();
    let mut found = Vec::new();
    for of in planned.iter().map(|planned| &planned.invocation) {
        for key in of.borders() {
            let call = Call::new(of.call.op_id.clone(), key);
            let wanted = (call, of.direction, of.target.clone());
            let Some(other) = registry.invocations().iter().find(|other| id(other) == wanted) else { continue };
            if known.insert(wanted) {
                let how = format!("at the border of the bucket of {}", of.call);
                found.push(PlannedInvocation { how, ..PlannedInvocation::new(Arc::clone(other)) });
            }
        }
    }
    found
}

fn missed(scan: &Scan, matching: &Matching) -> Vec<MissedLabel> {
    let missed = matching.missed.iter().filter_map(|missed| {
        Some(MissedLabel {
            label: missed.label.clone(),
            evidence: scan.labels.get(missed.index)?.evidence,
            reason: missed.text.clone(),
        })
    });
    missed.collect()
}
