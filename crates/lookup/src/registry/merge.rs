//! Several records of one call become one invocation.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::record::StoredRecord;
use super::{Argument, Candidate, Invocation};
use crate::call::Call;
use crate::config::Config;
use crate::digest::Digest;

/// The differences between two records of one call.
///
/// The newer record (by `recorded_at`, then by content digest) gives the invocation. A candidate that only the older
/// one has is added, unless the two disagree: then the older one was made from another kernel, and its additional
/// candidates are left out. Programs that differ only in their bytes, as recordings from two folders do, agree. What
/// the same recorder has lowered since is taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecordChange {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// Configs whose programs differ in the semantic digest: the kernel really changed.
    pub configs: Vec<Config>,
    /// Whether the records differ in number, type or shape of the arguments.
    pub arguments: bool,
    /// Candidates of the older record that are left out.
    pub skipped: usize,
}

/// Merges records of one key; `None` for no record at all.
pub(super) fn merge(mut records: Vec<StoredRecord>) -> Option<(Invocation, Vec<RecordChange>)> {
    records.sort_by_key(|record| std::cmp::Reverse((record.invocation.recorded_at, record.content)));
    let mut records = records.into_iter();
    let mut merged = records.next()?.invocation;
    let mut changes = Vec::new();
    for older in records.map(|record| record.invocation) {
        let configs = changed_configs(&merged, &older);
        let arguments = !same_arguments(&merged.arguments, &older.arguments);
        let known: BTreeSet<Config> = merged.candidates.iter().map(|candidate| candidate.config.clone()).collect();
        let (lowered, only_older): (Vec<_>, Vec<_>) =
            older.candidates.into_iter().partition(|candidate| known.contains(&candidate.config));
        if configs.is_empty() && !arguments {
            if older.recorder == merged.recorder {
                take_lowered(&mut merged.candidates, lowered);
            }
            merged.candidates.extend(only_older);
        } else {
            changes.push(RecordChange { call: merged.call.clone(), configs, arguments, skipped: only_older.len() });
        }
    }
    Some((merged, changes))
}

/// Fills in candidates that are open.
fn take_lowered(candidates: &mut [Candidate], lowered: Vec<Candidate>) {
    let mut lowered: BTreeMap<Config, Candidate> =
        lowered.into_iter().map(|candidate| (candidate.config.clone(), candidate)).collect();
    for candidate in candidates.iter_mut().filter(|candidate| candidate.is_open()) {
        if let Some(other) = lowered.remove(&candidate.config) {
            *candidate = other;
        }
    }
}

fn changed_configs(newer: &Invocation, older: &Invocation) -> Vec<Config> {
    let digests = |invocation: &Invocation| -> BTreeMap<Config, Digest> {
        let lowered = invocation.candidates.iter();
        lowered
            .filter_map(|candidate| Some((candidate.config.clone(), candidate.program.as_ref()?.semantic_digest)))
            .collect()
    };
    let before = digests(older);
    let after = digests(newer).into_iter();
    after
        .filter(|(config, digest)| before.get(config).is_some_and(|before| before != digest))
        .map(|(config, _)| config)
        .collect()
}

fn same_arguments(a: &[Argument], b: &[Argument]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.spec == b.spec && a.donated == b.donated)
}
