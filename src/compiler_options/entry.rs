//! The entry that a decision becomes, and the entry of an earlier run.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cache::{CacheKey, Entry, Provenance, why_refused};
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::digest::Digest;
use crate::ledger::Ledger;
use crate::measured_by::{MachineLoad, TOOL};
use crate::race::{CandidateOutcome, CandidateResult, CandidateTimes, RaceError, RaceOptions, TuneError};
use crate::stats::Interval;
use crate::timer::Timer;

/// What was decided about a module.
pub(super) struct DecidedModule<'a> {
    pub(super) config: Config,
    pub(super) times: CandidateTimes,
    /// Sets that are as fast, besides the one that was taken.
    pub(super) tied: Vec<Config>,
    pub(super) base: Config,
    pub(super) of_base: CandidateTimes,
    pub(super) candidates: &'a [CandidateResult],
    /// What other processes did on the cores meanwhile.
    pub(super) load: MachineLoad,
    /// Fresh processes that confirmed it.
    pub(super) processes: u32,
    /// The race that decided it, if there was one.
    pub(super) job: Option<Digest>,
    /// Digest of everything that the decision follows from, except the samples.
    pub(super) search: String,
    /// What the module computes, in the form in which it was tuned.
    pub(super) program: Digest,
}

impl DecidedModule<'_> {
    pub(super) fn into_entry(self, timer: &dyn Timer, options: &RaceOptions) -> Entry {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let failed = self.candidates.iter().filter(|row| row.failure().is_some()).count();
        let measured =
            self.candidates.iter().filter(|row| matches!(row.outcome, CandidateOutcome::Measured(_))).count();
        Entry {
            config: self.config.clone(),
            provenance: Some(Provenance {
                job: self.job.unwrap_or_else(|| Digest::of(self.search.as_bytes())),
                measured_by: timer.info().measured_by(&options.cache_state).compiler(None).load(self.load),
                batch: Vec::new(),
                environment: timer.info().device.environment.clone(),
                baseline: self.base,
                baseline_ns: self.of_base.median_ns,
                best_ns: self.times.median_ns,
                ratio: self.times.ratio,
                interval: self.times.interval,
                processes: self.processes,
                rounds: u32::try_from(self.times.rounds).unwrap_or(u32::MAX),
                measured: u32::try_from(measured).unwrap_or(u32::MAX),
                failed: u32::try_from(failed).unwrap_or(u32::MAX),
                tie_set: std::iter::once(self.config).chain(self.tied).collect(),
                semantic_digest: Some(self.program),
                baseline_semantic_digest: Some(self.program),
                search: Some(self.search),
                stability: None,
                untried: 0,
                untried_chance: None,
                tool: TOOL.to_owned(),
                decided_at: now,
            }),
            peer: None,
            superseded: Vec::new(),
        }
    }
}

/// The times of a baseline beside itself.
pub(super) fn beside_itself(of_base: CandidateTimes) -> CandidateTimes {
    let interval = Interval { low: 1.0, high: 1.0, confidence: 1.0 };
    CandidateTimes { ratio: 1.0, interval, ..of_base }
}

/// What the cache knows about a module.
pub(super) enum KnownDecision {
    /// The entry of the same search, for the same program and conditions.
    Entry(Arc<Entry>),
    /// No usable entry, with a note on the entry in force.
    No(Option<String>),
}

/// Looks up the entry of a search. It counts if the compiler, the environment's flags and the way of sampling are the
/// same.
pub(super) fn known(
    (timer, ledger): (&dyn Timer, &Ledger),
    options: &RaceOptions,
    key: &CacheKey,
    (search, program): (&str, Digest),
) -> Result<KnownDecision, RaceError> {
    let cached = ledger.cache().entry(key).map_err(TuneError::from)?;
    let Some((entry, _)) = cached else { return Ok(KnownDecision::No(None)) };
    if let Some(why) = why_refused(&entry.config) {
        return Ok(KnownDecision::No(Some(format!("the entry in force is not used: it {why}"))));
    }
    let Some(from) = &entry.provenance else { return Ok(KnownDecision::No(None)) };
    if let Some(other) = from.semantic_digest.filter(|other| *other != program) {
        return Ok(KnownDecision::No(Some(format!(
            "the entry in force was found with another program of the same StableHLO digest ({} there, {} here): \
             the side file of one of them is wrong, or they have different forms",
            other.to_short(),
            program.to_short()
        ))));
    }
    let (there, here) = (&from.environment, &timer.info().device.environment);
    let is_same_compiler = there == here || (there.has_same_compiler(here) && there.xla_flags == here.xla_flags);
    let by = timer.info().measured_by(&options.cache_state).as_condition().compiler(None);
    let is_same = entry.search() == Some(search)
        && is_same_compiler
        && from.measured_by.as_condition().compiler(None) == by
        && !options.force;
    Ok(if is_same { KnownDecision::Entry(entry) } else { KnownDecision::No(None) })
}

/// A caveat on who does not use an entry of this device: JAX has its own compiler for CPUs and loads no plugin's file.
pub(super) fn not_of_jax(device: &DeviceFingerprint) -> Option<String> {
    let plugin = device.environment.plugin.as_ref().filter(|plugin| !plugin.starts_with("jaxlib "))?;
    (device.identity.platform == "cpu").then(|| {
        format!(
            "a JAX process does not use these options, because `{plugin}` is not its compiler: `--timer jax` \
                 measures with JAX's own"
        )
    })
}
