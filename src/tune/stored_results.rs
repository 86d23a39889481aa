//! The samples behind a cache folder's decisions, read from its sample log: results as a run returns them, without a
//! device.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::cache::{COMPILER_OPTIONS, CacheKey, Entry};
use crate::config::Config;
use crate::decision::{DecisionRules, judge};
use crate::device::DeviceFingerprint;
use crate::ledger::{LOG_FILE, StoredError, entries_of, log_findings};
use crate::measured_by::{MeasuredBy, TOOL};
use crate::peaks::Peaks;
use crate::race::{JobEvidence, candidate_results};
use crate::samples::{JobHistory, LogError, SampleLog};

use super::commit::fill_from_entry;
use super::job::same_programs;
use super::work::fill_work;
use super::{AutotuningResult, CandidateOutcome, CandidateResult, OperationResult, RESULT_SCHEMA, Status};

/// The decisions in force in a cache folder, one result per device, timer, clock and metric, in the order of their
/// keys. Takes no lock and writes nothing; the notes report damage in the log.
///
/// Times, ratios, intervals and ties are those of the decisions. Labels are not kept, so there are no occurrences.
///
/// # Errors
/// If the log cannot be read.
pub fn stored_results(folder: &Path) -> Result<Vec<AutotuningResult>, StoredError> {
    let path = folder.join(LOG_FILE);
    if !path.exists() {
        return Err(StoredError::NoCache(folder.to_owned()));
    }
    let log = SampleLog::read(&path)?;
    let found = log_findings(&log);
    let notes: Vec<String> = found.problems.into_iter().chain(found.notes).collect();
    let history_of = |entry: &Entry| -> Result<JobHistory, LogError> {
        entry.provenance.as_ref().map_or(Ok(JobHistory::default()), |from| log.history_of(&path, from.job))
    };
    let mut results: Vec<AutotuningResult> = Vec::new();
    for (key, entry) in entries_of(&path, &log)? {
        let result = result_for(&key, &entry, &notes);
        let mut operation = operation_of(&key, &entry, history_of(&entry)?);
        fill_work(&mut operation, result.peaks.as_ref());
        let is_same = |other: &&mut AutotuningResult| {
            other.device == result.device && other.measured_by.as_condition() == result.measured_by.as_condition()
        };
        match results.iter_mut().find(is_same) {
            Some(other) => other.take(Some(operation), Some((key, entry))),
            None => {
                let mut result = result;
                result.take(Some(operation), Some((key, entry)));
                results.push(result);
            }
        }
    }
    Ok(results)
}

/// The result that an entry belongs to, initially without operations.
fn result_for(key: &CacheKey, entry: &Entry, notes: &[String]) -> AutotuningResult {
    let from = entry.provenance.as_ref();
    let measured_by = from.map_or_else(
        || MeasuredBy::new("not known", "not known".into()).metric("not known".into()),
        |from| from.measured_by.clone(),
    );
    AutotuningResult {
        schema: RESULT_SCHEMA,
        tool: TOOL.to_owned(),
        peaks: Peaks::of_kind(&key.device.device_kind),
        device: DeviceFingerprint {
            identity: key.device.clone(),
            environment: from.map(|from| from.environment.clone()).unwrap_or_default(),
        },
        measured_by,
        operations: Vec::new(),
        missed: Vec::new(),
        step: None,
        notes: notes.to_vec(),
        interrupted: false,
        entries: Vec::new(),
    }
}

fn operation_of(key: &CacheKey, entry: &Arc<Entry>, history: JobHistory) -> OperationResult {
    let baseline = entry.provenance.as_ref().map_or_else(|| entry.config.clone(), |from| from.baseline.clone());
    let mut operation = OperationResult {
        status: Status::Cached,
        reason: "decided earlier, drawn from the sample log".to_owned(),
        ..OperationResult::undecided(key.call.clone(), key.direction, baseline)
    };
    fill_from_entry(&mut operation, entry);
    let Some(job) = history.job.clone() else {
        operation.reason = match &entry.peer {
            Some(peer) => format!("imported from {}; there are no samples", peer.format),
            None => "decided elsewhere; its samples are not in this log".to_owned(),
        };
        return operation;
    };
    let configs: Vec<Config> = job.candidates.iter().map(|candidate| candidate.config.clone()).collect();
    let digests: Vec<_> = job.candidates.iter().map(|candidate| candidate.semantic_digest).collect();
    let same_as = same_programs(&digests, job.baseline);
    let rounds = JobEvidence::from_history(history);
    let decided = rounds.to_decision(configs.len(), job.baseline);
    let is_own = |index: &usize| same_as.get(*index).is_some_and(Option::is_none);
    let competing: Vec<usize> =
        (0..configs.len()).filter(is_own).filter(|index| !rounds.failures.contains_key(index)).collect();
    let judgement = judge(&decided, configs.len(), &competing, job.baseline, None, &[], &DecisionRules::default());
    operation.candidates = candidate_results(&configs, &same_as, job.baseline, &judgement, &rounds, &[]);
    for candidate in &mut operation.candidates {
        // ties depend on the noise floor at that time, which the entry has
        candidate.tied_with_best = operation.tie_set.contains(&candidate.config);
    }
    if key.call.op_id == COMPILER_OPTIONS {
        as_decided(&mut operation.candidates, entry);
    }
    operation.rounds_kept = rounds.count();
    operation.rounds_set_aside = u32::try_from(judgement.race_state.disturbance.set_aside.len()).unwrap_or(u32::MAX);
    operation.drift = judgement.race_state.disturbance.drift;
    operation
}

/// Rows of the race that decided a set of compiler options: without the default's copy, and the set with the interval
/// of its own verdict.
fn as_decided(rows: &mut Vec<CandidateResult>, entry: &Entry) {
    let mut seen = BTreeSet::new();
    rows.retain(|row| seen.insert(row.config.clone()));
    for row in rows.iter_mut().filter(|row| row.config == entry.config) {
        let decided = entry.provenance.as_ref().filter(|from| from.baseline != row.config);
        if let (CandidateOutcome::Measured(times), Some(from)) = (&mut row.outcome, decided) {
            (times.ratio, times.interval) = (from.ratio, from.interval);
        }
    }
}
