//! The entry of a decision, and the one that an earlier run made.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::race::Ended;
use crate::cache::{CacheKey, Entry, Provenance};
use crate::config::Config;
use crate::digest::Digest;
use crate::ledger::Ledger;
use crate::measured_by::TOOL;
use crate::timer::Timer;
use crate::tune::{CandidateOutcome, CandidateResult, CandidateTimes, TuneOptions};

/// What was decided of a module.
pub(super) struct Decided<'a> {
    pub(super) config: Config,
    pub(super) times: CandidateTimes,
    pub(super) base: Config,
    pub(super) of_base: CandidateTimes,
    pub(super) candidates: &'a [CandidateResult],
    /// The race that decided, where there was one.
    pub(super) job: Option<Digest>,
    /// Digest of everything that the decision follows from, except for the samples.
    pub(super) search: String,
    /// The module's key.
    pub(super) key: Option<Digest>,
}

impl Decided<'_> {
    pub(super) fn into_entry(self, timer: &dyn Timer, options: &TuneOptions) -> Entry {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let failed = self.candidates.iter().filter(|row| row.failure().is_some()).count();
        let measured =
            self.candidates.iter().filter(|row| matches!(row.outcome, CandidateOutcome::Measured(_))).count();
        Entry {
            config: self.config.clone(),
            provenance: Some(Provenance {
                job: self.job.unwrap_or_else(|| Digest::of(self.search.as_bytes())),
                measured_by: timer.measured_by(&options.cache_state).compiler(None),
                batch: Vec::new(),
                environment: timer.device().environment.clone(),
                baseline: self.base,
                baseline_ns: self.of_base.median_ns,
                best_ns: self.times.median_ns,
                ratio: self.times.ratio,
                interval: self.times.interval,
                rounds: u32::try_from(self.times.rounds).unwrap_or(u32::MAX),
                measured: u32::try_from(measured).unwrap_or(u32::MAX),
                failed: u32::try_from(failed).unwrap_or(u32::MAX),
                tie_set: vec![self.config],
                semantic_digest: self.key,
                baseline_semantic_digest: self.key,
                search: Some(self.search),
                left: 0,
                chance_left: None,
                tool: TOOL.to_owned(),
                decided_at: now,
            }),
            peer: None,
            superseded: Vec::new(),
        }
    }
}

/// The entry in force, where the same search found it under the same compiler and clock.
pub(super) fn known(
    (timer, ledger): (&dyn Timer, &Ledger),
    options: &TuneOptions,
    key: &CacheKey,
    search: &str,
) -> Result<Option<Arc<Entry>>, Ended> {
    if options.force {
        return Ok(None);
    }
    let cached = ledger.cache().entry(key).map_err(|error| Ended::Fatal(error.into()))?;
    let by = timer.measured_by(&options.cache_state);
    let here = &timer.device().environment;
    let is_same = |entry: &Entry| {
        entry.search() == Some(search)
            && entry.provenance.as_ref().is_some_and(|from| {
                (from.environment == *here || from.environment.has_same_compiler(here))
                    && (&from.measured_by.timer, &from.measured_by.source, &from.measured_by.metric)
                        == (&by.timer, &by.source, &by.metric)
            })
    };
    Ok(cached.map(|(entry, _)| entry).filter(|entry| is_same(entry)))
}
