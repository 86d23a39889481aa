//! A call whose winner is known from one process alone, and what fresh processes make of it, in words.

use std::sync::Arc;

use crate::cache::Entry;
use crate::counted::counted;
use crate::decision::{CandidateVerdict, Judgement};
use crate::measured_by::MachineLoad;
use crate::race::{Confirmation, JobEvidence, JobIdentity};
use crate::registry::Candidate;
use crate::search::Predictions;

use super::searching::Race;
use super::tuner::DecidedEntry;

/// A race of a call with other values of its arguments.
pub(super) struct OtherRace {
    /// The values' name.
    pub(super) name: String,
    pub(super) judgement: Judgement,
}

/// Writes into an entry what fresh processes say about its config.
pub(super) fn write_confirmation(entry: &mut Entry, Confirmation { verdict, processes }: &Confirmation) {
    let Some(provenance) = &mut entry.provenance else { return };
    provenance.ratio = verdict.ratio;
    provenance.interval = verdict.interval;
    if processes.iter().any(|process| process.is_contended) {
        provenance.measured_by.load = MachineLoad::Contended;
    }
    provenance.processes = u32::try_from(processes.len()).unwrap_or(u32::MAX);
}

/// How the tuning of a call ended.
pub(super) enum TunedCall {
    /// With the entry in force, if there is one.
    Ended(DecidedEntry),
    /// With a winner that fresh processes have to confirm.
    Provisional(Box<ProvisionalCall>),
}

/// A call whose winner is known from the process that chose it alone.
pub(super) struct ProvisionalCall {
    pub(super) race: Race,
    pub(super) identity: JobIdentity,
    pub(super) evidence: JobEvidence,
    pub(super) cached: Option<Arc<Entry>>,
    pub(super) is_own: bool,
    /// The candidate that wins so far, and its rivals, which fresh processes measure beside it.
    pub(super) finalists: Vec<usize>,
    /// What was measured with other values.
    pub(super) others: Vec<OtherRace>,
    pub(super) predictions: Predictions,
    pub(super) not_compiled: usize,
}

/// Configs that are named while their winner is provisional.
const NAMED: usize = 5;

/// How the configs stand in the first process, the fastest first, in one line.
pub(super) fn standing(candidates: &[Candidate], judgement: &Judgement) -> String {
    let ratio = |verdict: &Option<CandidateVerdict>| verdict.as_ref().map(|verdict| verdict.ratio);
    let mut known: Vec<(f64, &Candidate)> = judgement
        .candidates
        .iter()
        .zip(candidates)
        .filter_map(|(verdict, candidate)| Some((ratio(verdict)?, candidate)))
        .collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let named: Vec<String> =
        known.iter().take(NAMED).map(|(ratio, one)| format!("{} {ratio:.3}", one.config.to_brief())).collect();
    let more = match known.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("of the baseline's time so far: {}{more}; fresh processes confirm the winner", named.join("; "))
}

/// Why another config than the winner of one process is published.
pub(super) fn preferred(finalists: usize, Confirmation { processes, .. }: &Confirmation) -> String {
    let of = counted(finalists, "config");
    format!("the best of {of} in {}; another one seemed faster in the first", counted(processes.len(), "fresh process"))
}

/// Why a winner of one process is none.
pub(crate) fn not_confirmed(Confirmation { verdict, processes }: &Confirmation) -> String {
    format!(
        "the best of the first process takes {:.3} of the baseline's time ({:.3}–{:.3}) in {}: not confirmed",
        verdict.ratio,
        verdict.interval.low,
        verdict.interval.high,
        counted(processes.len(), "fresh process")
    )
}

/// Why nothing is decided, with what could have been seen.
pub(crate) fn undecided(confirmation: Option<&Confirmation>) -> String {
    let Some(Confirmation { verdict, processes }) = confirmation else {
        return "no fresh process confirmed it in the time: allow more time".to_owned();
    };
    let least = match verdict.least_gain {
        Some(gain) => format!("a gain of {:.1} % would have been seen", 100.0 * gain),
        None => "too few for any gain".to_owned(),
    };
    format!(
        "it varies by process: {:.3} of the baseline's time ({:.3}–{:.3}) over {}, {least}; allow more time, or more \
         `--processes`",
        verdict.ratio,
        verdict.interval.low,
        verdict.interval.high,
        counted(processes.len(), "fresh process")
    )
}
