//! A tuner on one device: its timer, the ledger, and the tuning of an invocation.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::array::Fill;
use crate::cache::{CacheKey, Entry, Tier};
use crate::call::Direction;
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::lowering::Lowering;
use crate::measured_by::Source;
use crate::race::{
    Compiling, DeviceSlot, JobEvidence, JobIdentity, NextWave, RaceError, RaceOptions, Referee, Runner, Terms, measure,
};
use crate::registry::{Invocation, Registry};
use crate::samples::{CandidateRecord, JobRecord};
use crate::search::Surrogate;
use crate::timer::events::{EventKind, Events};
use crate::timer::{JobCandidate, Timer};

use super::commit::fill_from_entry;
use super::job::{InputFolder, Materialized, identity_of, materialize};
use super::{OperationResult, Status, TuneError, TuneOptions};

/// Tunes planned invocations on one timer's device.
pub(super) struct Autotuner<'a> {
    /// Where programs and arrays are.
    pub(super) registry: &'a Registry,
    /// The timer.
    pub(super) timer: &'a mut dyn Timer,
    /// Where samples and decisions go.
    pub(super) ledger: &'a Ledger,
    /// How to tune.
    pub(super) options: &'a TuneOptions,
    /// Set from outside to end the run after the call in flight.
    pub(super) cancel: &'a AtomicBool,
    /// The event sink.
    pub(super) events: Events,
    /// For each operation the outcomes of its calls so far; shared by all calls tuned side by side on one device.
    pub(super) surrogates: Surrogates,
    /// Configs that won in this run and are not confirmed yet; shared likewise.
    pub(super) winners: ProvisionalWinners,
    /// Who lowers what was recorded to be lowered on demand.
    pub(super) lowering: Option<&'a Lowering>,
    /// Its slot among the calls that are tuned side by side on one device.
    pub(super) slot: Option<DeviceSlot>,
}

/// An operation, whose calls have a surrogate in common.
pub(super) type Tuned = (String, Direction);

/// For each operation the outcomes of its calls so far.
pub(super) type Surrogates = Arc<Mutex<BTreeMap<Tuned, Surrogate>>>;

/// Configs that won in a run and are not confirmed yet, by their calls.
pub(super) type ProvisionalWinners = Arc<Mutex<Vec<(CacheKey, Config)>>>;

/// How much of a job is measured.
pub(super) enum Extent<'w> {
    /// Until the race is decided; all candidates at once, or in waves.
    Race(Option<&'w mut dyn NextWave>),
    /// The requested number of rounds.
    Exact,
}

/// An entry that is in force, and its key.
pub(super) type DecidedEntry = Option<(CacheKey, Arc<Entry>)>;

impl Autotuner<'_> {
    /// Measures an invocation whose inputs are in a folder, and adds the rounds to the evidence.
    pub(super) fn measure_at(
        &mut self,
        events: &Events,
        input_folder: &InputFolder,
        (options, extent): (&RaceOptions, Extent<'_>),
        (invocation, identity): (&Invocation, &JobIdentity),
        evidence: &mut JobEvidence,
    ) -> Result<u32, RaceError> {
        let Materialized { job, unusable } =
            materialize(invocation, self.registry, options.cache_state.clone(), input_folder);
        for (candidate, failure) in unusable {
            if let Some(JobCandidate { config, .. }) = job.candidates.get(candidate) {
                events.tell(EventKind::Failed { candidate, config, failure: &failure });
            }
            evidence.failures.insert(candidate, failure);
        }
        if let Some(failure) = evidence.failures.get(&identity.baseline) {
            let message = format!("the baseline cannot be run: {}", failure.message);
            return Err(RaceError::Failed(Failure::new(failure.kind.clone(), message)));
        }
        let (is_exact, waves) = match extent {
            Extent::Race(waves) => (false, waves.map(|waves| waves as &mut dyn NextWave)),
            Extent::Exact => (true, None),
        };
        let fills: Vec<Option<Fill>> = invocation.arguments.iter().map(|one| Some(one.fill.clone())).collect();
        let terms = Terms { is_exact, fills: &fills, tolerance: invocation.tolerance, ..Terms::default() };
        let referee = Referee { options, identity, terms };
        let runner = Runner::new(&mut *self.timer, self.ledger, self.cancel, events);
        measure(runner, &job, referee, Compiling::new(waves, self.slot.as_mut()), evidence)
    }

    pub(super) fn lock_surrogates(&self) -> MutexGuard<'_, BTreeMap<Tuned, Surrogate>> {
        self.surrogates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An invocation's identity under this timer.
    pub(super) fn identity(&self, invocation: &Invocation) -> Result<JobIdentity, String> {
        identity_of(
            invocation,
            &self.timer.info().device,
            &self.timer.info().measured_by(&self.options.race.cache_state),
            &self.options.race.tolerances,
        )
    }

    /// Its identity under another timer that measured an entry; `None` if this one did, or if caches were in another
    /// state.
    pub(super) fn identity_of_other_timer(&self, invocation: &Invocation, entry: &Entry) -> Option<JobIdentity> {
        let from = entry.provenance.as_ref()?;
        let by = &from.measured_by;
        // samples that were recorded elsewhere are not a measurement of this device
        let is_measured = by.source != Source::Replay && self.timer.info().source != Source::Replay;
        let is_other =
            is_measured && by.timer != self.timer.info().name && by.cache_state == self.options.race.cache_state;
        let device = DeviceFingerprint {
            identity: self.timer.info().device.identity.clone(),
            environment: from.environment.clone(),
        };
        is_other.then(|| identity_of(invocation, &device, by, &self.options.race.tolerances).ok()).flatten()
    }

    /// What is cached for a key. What replayed samples decided counts only for a timer that replays.
    pub(super) fn cached(&self, key: &CacheKey) -> Result<Option<(Arc<Entry>, Tier)>, TuneError> {
        let is_replay = self.timer.info().source == Source::Replay;
        Ok(self.ledger.cache().entry(key)?.filter(|(entry, _)| is_replay || !entry.is_replayed()))
    }

    pub(super) fn job_record(&self, invocation: &Invocation, identity: &JobIdentity) -> JobRecord {
        let candidates = invocation.candidates.iter().map(|candidate| CandidateRecord {
            config: candidate.config.clone(),
            semantic_digest: candidate.program.as_ref().map(|program| program.semantic_digest),
        });
        let by = self.timer.info().measured_by(&self.options.race.cache_state);
        identity.record(&*self.timer, by, candidates, self.options.race.force)
    }
}

pub(super) fn known_before(result: &mut OperationResult, key: CacheKey, entry: &Arc<Entry>) -> (CacheKey, Arc<Entry>) {
    fill_from_entry(result, entry);
    result.status = Status::Cached;
    "already known; nothing was measured (`--force` measures again)".clone_into(&mut result.reason);
    (key, Arc::clone(entry))
}

/// Notes that an entry was decided by another timer.
pub(super) fn timed_otherwise(entry: &Entry, timer: &str) -> Option<String> {
    let from = entry.provenance.as_ref()?;
    let compiler =
        from.environment.compiler().map_or_else(String::new, |compiler| format!(" (compiled by {compiler})"));
    Some(format!("timed by `{}`{compiler}, not by `{timer}`; `--force` measures it again", from.measured_by.timer))
}
