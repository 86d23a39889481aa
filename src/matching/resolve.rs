//! Each label to its invocations, or to the reason why it has none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::shapes;
use super::{ByName, MatchBasis, Matched, MatchedLabel, Matching, MissReason, Missed};
use crate::batch::{is_same_call, preference, split_variant, to_words};
use crate::call::split_op_id;
use crate::call::{Call, Direction};
use crate::counted::listed;
use crate::device::{DeviceIdentity, DeviceMatch, MatchMode};
use crate::digest::Digest;
use crate::hlo::Evidence;
use crate::hlo::{FoundLabel, Scan};
use crate::registry::{Invocation, RecordedTarget, Registry};

/// Maximum number of recorded calls that a label matched by name alone may match without `--by-name all`.
pub const MAX_BY_NAME: usize = 8;

/// One recorded call that the device may run.
struct RecordedChoice<'a> {
    invocation: &'a Arc<Invocation>,
    flags: Vec<String>,
}

/// Matches every label of a module with recorded invocations on a device.
///
/// Of several recordings of one call the device's own comes first, then its platform's, then one that `mode` accepts
/// with a flag; among equals the newest. A label under a transpose takes the recording with the vector-Jacobian
/// product, any other label the forward one; if only the other exists, it is taken and flagged.
pub fn match_labels(
    scan: &Scan,
    registry: &Registry,
    device: &DeviceIdentity,
    mode: MatchMode,
    by_name: ByName,
) -> Matching {
    let resolver = Resolver { scan, registry, device, mode, by_name };
    let mut matching = Matching::default();
    let mut places: BTreeMap<Digest, usize> = BTreeMap::new();
    for (index, found) in scan.labels.iter().enumerate() {
        match resolver.resolve(found) {
            Ok((how, choices)) => {
                for choice in choices {
                    let next = matching.matched.len();
                    let place = *places.entry(choice.invocation.key()).or_insert(next);
                    if place == next {
                        let invocation = Arc::clone(choice.invocation);
                        matching.matched.push(Matched { invocation, labels: Vec::new(), flags: Vec::new() });
                    }
                    if let Some(matched) = matching.matched.get_mut(place) {
                        matched.labels.push(MatchedLabel { index, label: found.label.clone(), how: how.clone() });
                        let new = choice.flags.into_iter().filter(|flag| !matched.flags.contains(flag));
                        let new: Vec<String> = new.collect();
                        matched.flags.extend(new);
                    }
                }
            }
            Err((reason, text)) => matching.missed.push(Missed { index, label: found.label.clone(), reason, text }),
        }
    }
    matching
}

struct Resolver<'a> {
    scan: &'a Scan,
    registry: &'a Registry,
    device: &'a DeviceIdentity,
    mode: MatchMode,
    by_name: ByName,
}

type Miss = (MissReason, String);

impl<'a> Resolver<'a> {
    fn resolve(&self, found: &FoundLabel) -> Result<(MatchBasis, Vec<RecordedChoice<'a>>), Miss> {
        let name = found.label.op_name();
        let of_name: Vec<&Arc<Invocation>> = self.registry.of_operation(name).collect();
        // an op_id that is not a `name@vN`, as tokamax's class paths, is all name
        if of_name.is_empty() {
            return Err((MissReason::NotRecorded, self.not_recorded(name)));
        }
        match (&found.label.call_key, found.evidence) {
            (Some(key), Evidence::Exact) => {
                let own_version = found.label.version().is_some();
                Ok((MatchBasis::Exact, self.keyed(found, key, &of_name, own_version)?))
            }
            (Some(key), Evidence::Recomputed | Evidence::ByName) => {
                Ok((MatchBasis::Recomputed, self.keyed(found, key, &of_name, false)?))
            }
            (None, _) => self.named(found, &of_name),
        }
    }

    /// The recordings of one call key, of the label's own version or of the newest there is: that of the call itself,
    /// and, where the key names no `vmap`, those of its variants.
    fn keyed(
        &self,
        found: &FoundLabel,
        key: &str,
        of_name: &[&'a Arc<Invocation>],
        own_version: bool,
    ) -> Result<Vec<RecordedChoice<'a>>, Miss> {
        let op_id = &found.label.op_id;
        let of_key: Vec<_> =
            of_name.iter().copied().filter(|invocation| is_same_call(&invocation.call.call_key, key)).collect();
        if of_key.is_empty() {
            let keys: BTreeSet<&str> = of_name.iter().map(|invocation| invocation.call.call_key.as_str()).collect();
            let text = format!("`{op_id}` is recorded with other call keys: {}; record this call", list(keys));
            return Err((MissReason::OtherKey, text));
        }
        let mut of_version = of_key.clone();
        if own_version {
            of_version.retain(|invocation| invocation.call.op_id == *op_id);
        }
        if of_version.is_empty() {
            let versions: BTreeSet<&str> = of_key.iter().map(|invocation| invocation.call.op_id.as_str()).collect();
            let text = format!("this call is recorded for {}, not for `{op_id}`; record it again", list(versions));
            return Err((MissReason::OtherVersion, text));
        }
        if !own_version {
            let newest = of_version.iter().map(|invocation| split_op_id(&invocation.call.op_id).1).max().flatten();
            of_version.retain(|invocation| split_op_id(&invocation.call.op_id).1 == newest);
        }
        self.variants(found, key, &of_version)
    }

    /// The recordings of one call by the `vmap`s around it, the best of each.
    fn variants(
        &self,
        found: &FoundLabel,
        key: &str,
        records: &[&'a Arc<Invocation>],
    ) -> Result<Vec<RecordedChoice<'a>>, Miss> {
        let mut by_batch: BTreeMap<_, Vec<&'a Arc<Invocation>>> = BTreeMap::new();
        for &record in records {
            let place = (record.call.call_key != key, preference(&record.call.call_key), &record.call.call_key);
            by_batch.entry(place).or_default().push(record);
        }
        let is_recorded = by_batch.keys().any(|(is_other, ..)| !is_other);
        let names_none = split_variant(key).1.is_none();
        let mut choices = Vec::new();
        let mut refused = None;
        for ((is_other, _, recorded), records) in by_batch {
            // if its label names its `vmap`s, at most one of the others matches it
            if is_other && !names_none && (is_recorded || !choices.is_empty()) {
                break;
            }
            let mut choice = match self.best(found, &records) {
                Ok(choice) => choice,
                Err(miss) => {
                    refused.get_or_insert(miss);
                    continue;
                }
            };
            let recorded = to_words(recorded);
            if is_other && !names_none {
                choice.flags.push(format!("other batch: recorded {recorded}, the module runs it {}", to_words(key)));
            } else if is_other && !found.mapped && !is_recorded {
                choice.flags.push(format!("other batch: recorded {recorded}, the module has no `vmap` around it"));
            }
            choices.push(choice);
        }
        match (&mut *choices, refused) {
            ([], Some(miss)) => return Err(miss),
            ([alone], _)
                if found.mapped && names_none && split_variant(&alone.invocation.call.call_key).1.is_none() =>
            {
                let flag = "other batch: recorded unmapped, the module runs it under `vmap`; record it again";
                alone.flags.push(flag.to_owned());
            }
            _ => {}
        }
        Ok(choices)
    }

    /// Every recorded call of the operation that the device may run, narrowed by shapes.
    fn named(
        &self,
        found: &FoundLabel,
        of_name: &[&'a Arc<Invocation>],
    ) -> Result<(MatchBasis, Vec<RecordedChoice<'a>>), Miss> {
        let mut calls: BTreeMap<&Call, Vec<&'a Arc<Invocation>>> = BTreeMap::new();
        for &invocation in of_name {
            calls.entry(&invocation.call).or_default().push(invocation);
        }
        let mut refused = None;
        let mut accepted = Vec::new();
        for records in calls.into_values() {
            match self.best(found, &records) {
                Ok(choice) => accepted.push((choice, records)),
                Err(miss) => refused = Some(miss),
            }
        }
        let of = accepted.len();
        let sites = &found.call_sites;
        // a list that is cut says nothing about the shapes of the others
        let narrow = self.scan.partitioned != Some(true) && shapes::are_shown(sites) && !found.is_list_cut();
        let fits = |records: &[&Arc<Invocation>]| records.iter().any(|invocation| shapes::fits(invocation, sites));
        // call sites that fit nothing belong to inner instructions and say nothing about the call's arguments
        let by_shapes = narrow && accepted.iter().any(|(_, records)| fits(records));
        if by_shapes {
            accepted.retain(|(_, records)| fits(records));
        }
        if let (0, Some(miss)) = (of, refused) {
            return Err(miss);
        }
        if accepted.len() > MAX_BY_NAME && self.by_name == ByName::Few {
            let calls = accepted.iter().map(|(choice, _)| choice.invocation.call.to_string());
            let calls: BTreeSet<String> = calls.collect();
            let text = format!(
                "only the name `{}` is left of the label, and it matches {} recorded calls: {}; give `--by-name all` \
                 to tune them all, or a StableHLO module, whose labels are whole",
                found.label.op_name(),
                calls.len(),
                list(calls.iter().map(String::as_str))
            );
            return Err((MissReason::TooMany, text));
        }
        let mut choices: Vec<RecordedChoice<'a>> = accepted.into_iter().map(|(choice, _)| choice).collect();
        if narrow && !by_shapes {
            let flag = "no call site in the module has the shapes of its arguments";
            choices.iter_mut().for_each(|choice| choice.flags.push(flag.to_owned()));
        }
        Ok((MatchBasis::ByName { of, by_shapes }, choices))
    }

    /// The best of the recordings of one call.
    fn best(&self, found: &FoundLabel, records: &[&'a Arc<Invocation>]) -> Result<RecordedChoice<'a>, Miss> {
        let wanted = if found.backward { Direction::ForwardVjp } else { Direction::Forward };
        let mut refused = BTreeSet::new();
        let mut choices = Vec::new();
        for &invocation in records {
            let (rank, flag) = match (invocation.target.compare(self.mode, self.device), &invocation.target) {
                (DeviceMatch::Same, RecordedTarget::Device(_)) => (0, None),
                (DeviceMatch::Same, RecordedTarget::Platform(_)) => (1, None),
                (DeviceMatch::Flagged(flag), _) => (2, Some(flag)),
                (DeviceMatch::Miss(reason), _) => {
                    refused.insert(reason);
                    continue;
                }
            };
            let order = (invocation.direction != wanted, rank, Reverse(invocation.recorded_at), invocation.key());
            choices.push((order, RecordedChoice { invocation, flags: flag.into_iter().collect() }));
        }
        let Some((_, mut choice)) = choices.into_iter().min_by_key(|(order, _)| *order) else {
            let text = format!("this device is `{}`: {}", self.device, listed(refused));
            return Err((MissReason::OtherDevice, text));
        };
        match (wanted, choice.invocation.direction) {
            (Direction::ForwardVjp, Direction::Forward) => choice.flags.push(
                "backward not exercised: the module runs the backward pass, only the forward one is recorded"
                    .to_owned(),
            ),
            (Direction::Forward, Direction::ForwardVjp) => choice.flags.push(
                "measured with its backward pass: the module runs only the forward pass, which is not recorded"
                    .to_owned(),
            ),
            _ => {}
        }
        Ok(choice)
    }

    fn not_recorded(&self, name: &str) -> String {
        let all: BTreeSet<&str> =
            self.registry.invocations().iter().map(|invocation| invocation.call.op_id.as_str()).collect();
        if all.is_empty() {
            return format!("`{name}` is not recorded: the registry `{}` is empty", self.registry.root().display());
        }
        format!("`{name}` is not recorded; `{}` holds {}", self.registry.root().display(), list(all))
    }
}

fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    listed(names.into_iter().map(|name| format!("`{name}`")))
}
