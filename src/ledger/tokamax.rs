//! Tokamax's stamps and samples of calls tuned here.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cache::{CacheKey, Entry};
use crate::config::{Config, canonical_json};
use crate::device::{DeviceMatch, MatchMode};
use crate::digest::Digest;
use crate::exchange::TokamaxCall;
use crate::registry::Registry;
use crate::samples::JobHistory;

use super::folder::Ledger;

impl Ledger {
    /// Tokamax's stamp of a call tuned here, from the registry, with the samples of the job that decided it.
    ///
    /// # Errors
    /// If the entry was not tuned here, no recording keeps Tokamax's stamp of the call, several stamps differ, or the
    /// sample log cannot be read.
    pub fn to_tokamax(
        &self,
        registry: Option<&Registry>,
        key: &CacheKey,
        entry: &Entry,
    ) -> Result<TokamaxCall, String> {
        let Some(provenance) = &entry.provenance else {
            return Err("it was neither tuned here nor imported from Tokamax".to_owned());
        };
        let registry =
            registry.ok_or("its recording holds Tokamax's name for it; name the folder with `--registry`")?;
        let stamp = stamp_of(registry, key)?;
        let history = self.history(provenance.job).map_err(|error| error.to_string())?;
        Ok(TokamaxCall { stamp, times_ns: times_of(&history) })
    }
}

/// Tokamax's stamp of a call, as its recorder keeps it.
fn stamp_of(registry: &Registry, key: &CacheKey) -> Result<Value, String> {
    let mut recorded = false;
    // by the canonical spelling; whether it was recorded for exactly this device
    let mut stamps: BTreeMap<String, (bool, &Value)> = BTreeMap::new();
    let of_call = registry.of_operation(&key.call.op_id);
    let of_call = of_call.filter(|invocation| invocation.call == key.call && invocation.direction == key.direction);
    for invocation in of_call {
        recorded = true;
        let recipe = invocation.static_arguments.get("recipe");
        let recipe = recipe.filter(|recipe| recipe.get("kind").and_then(Value::as_str) == Some("tokamax"));
        if let Some(stamp) = recipe.and_then(|recipe| recipe.get("bound")) {
            let is_same = invocation.target.compare(MatchMode::Exact, &key.device) == DeviceMatch::Same;
            stamps.entry(canonical_json(stamp)).or_insert((is_same, stamp)).0 |= is_same;
        }
    }
    if stamps.len() > 1 {
        stamps.retain(|_, (is_same, _)| *is_same);
    }
    let folder = registry.root().display();
    match stamps.into_values().map(|(_, stamp)| stamp).collect::<Vec<_>>().as_slice() {
        [stamp] => Ok(Value::clone(stamp)),
        [] if recorded => Err(format!("its recording in `{folder}` keeps no Tokamax stamp")),
        [] => Err(format!("`{folder}` has no recording of it")),
        _ => Err(format!("`{folder}` has recordings of it that Tokamax distinguishes but a label does not")),
    }
}

/// All samples of each candidate that did not fail.
fn times_of(history: &JobHistory) -> Vec<(Config, Vec<u64>)> {
    let Some(job) = &history.job else { return Vec::new() };
    let mut samples: Vec<Vec<u64>> = vec![Vec::new(); job.candidates.len()];
    for taken in history.rounds.iter().flat_map(|round| &round.samples) {
        if let Some(samples) = samples.get_mut(taken.candidate) {
            samples.extend(&taken.ns);
        }
    }
    for failure in &history.failures {
        if let Some(samples) = samples.get_mut(failure.candidate) {
            samples.clear();
        }
    }
    // candidates with the same program are measured once, as the baseline or the first of them
    let mut of_program: BTreeMap<Digest, Vec<u64>> = BTreeMap::new();
    for (candidate, samples) in job.candidates.iter().zip(&samples) {
        if let (Some(digest), false) = (candidate.semantic_digest, samples.is_empty()) {
            of_program.entry(digest).or_insert_with(|| samples.clone());
        }
    }
    let times = job.candidates.iter().zip(samples).map(|(candidate, own)| {
        let shared = candidate.semantic_digest.as_ref().and_then(|digest| of_program.get(digest));
        (candidate.config.clone(), if own.is_empty() { shared.cloned().unwrap_or_default() } else { own })
    });
    times.collect()
}
