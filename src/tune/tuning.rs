//! One call, from what is known of it to its entry.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use crate::cache::{Entry, Tier};
use crate::config::Config;
use crate::core_limits::CoreLimits;
use crate::counted::counted;
use crate::decision::{DecidedRace, Finalist, JudgedOutcome, Judgement, ProcessSpread, counted_rounds, finalists};
use crate::failure::FailureKind;
use crate::race::{JobEvidence, JobIdentity, NextWave, RaceError, Referee, Terms, candidate_results};
use crate::registry::NotRunnable;
use crate::search::{ExpectedRatio, Predictions, Surrogate};
use crate::timer::events::{EventKind, Events, Phase, Slice};

use super::commit::{entry_of, fill_from_entry, fill_from_judgement, status_of};
use super::job::InputFolder;
use super::provisional::{OtherRace, ProvisionalCall, TunedCall, standing, write_confirmation};
use super::searching::Race;
use super::tuner::{Autotuner, DecidedEntry, Extent, Tuned, known_before, timed_otherwise};
use super::waves::Waves;
use super::{CandidateResult, MoreTime, OperationResult, Status, TuneError, ended_by_user};

/// Why a baseline that nothing beats is not kept.
const HIDES_GAINS: &str = "but its rounds scatter so much that a large gain may be hidden: measure on a quiet machine, or \
                           allow more time (`--rounds`)";

impl Autotuner<'_> {
    /// Races the candidates of a call and commits the best.
    pub(super) fn tune(
        &mut self,
        events: &Events,
        race: &Race,
        result: &mut OperationResult,
    ) -> Result<TunedCall, TuneError> {
        let invocation = &*race.invocation;
        // the timer decides about a missing program: some timers build programs themselves
        if let Err(reason @ NotRunnable::ValuesUnknown(_)) = invocation.runnable() {
            result.status = Status::ValuesUnknown;
            result.reason = reason.to_string();
            return Ok(TunedCall::Ended(None));
        }
        let identity = match self.identity(invocation) {
            Ok(identity) => identity,
            Err(reason) => {
                result.reason = reason;
                return Ok(TunedCall::Ended(None));
            }
        };
        let operation: Tuned = (invocation.call.op_id.clone(), invocation.direction);
        let before = self.lock_surrogates().remove(&operation);
        let surrogate = before.unwrap_or_else(|| Surrogate::new(self.options.race.seed));
        let mut waves = self.waves(surrogate, race, &identity);
        let tuning = Tuning::begin(self, events, (race, identity), waves.as_mut().ok(), result);
        let tuned = tuning.and_then(Tuning::run);
        let surrogate = waves.map_or_else(|surrogate| surrogate, |waves| waves.surrogate);
        self.lock_surrogates().insert(operation, surrogate);
        tuned
    }

    /// The waves in which a call's candidates are compiled; only the surrogate if everything is compiled at once.
    fn waves(&self, surrogate: Surrogate, race: &Race, identity: &JobIdentity) -> Result<Waves, Surrogate> {
        // configs found by a search are already compiled
        if race.search.is_some() || self.timer.info().can.only_one_job_a_call {
            return Err(surrogate);
        }
        let mut waves = Waves::begin(surrogate, &race.invocation, identity, self.options)?;
        let of_candidate = |candidate: usize| {
            let program = race.invocation.candidates.get(candidate)?.program.as_ref()?;
            self.timer.foreknown(program, &|| None).figures
        };
        waves.add_compiler_figures(self.core_limits().as_ref(), of_candidate);
        Ok(waves)
    }

    /// The occupancy limits of a GPU's multiprocessors.
    pub(super) fn core_limits(&self) -> Option<CoreLimits> {
        CoreLimits::of(self.timer.info().device.identity.hardware.get("compute_capability")?)
    }
}

/// A call being tuned.
pub(super) struct Tuning<'t, 'a> {
    pub(super) tuner: &'t mut Autotuner<'a>,
    pub(super) events: &'t Events,
    pub(super) race: &'t Race,
    pub(super) identity: JobIdentity,
    waves: Option<&'t mut Waves>,
    /// The entry in force.
    cached: Option<Arc<Entry>>,
    /// Whether this device has it. A shipped entry is a look-up's last resort; tuning measures it here.
    is_own: bool,
    pub(super) evidence: JobEvidence,
    /// What was measured with other values.
    pub(super) others: Vec<OtherRace>,
    pub(super) result: &'t mut OperationResult,
}

/// What the evidence says, and what was not compiled.
pub(super) struct TuningVerdict {
    pub(super) judgement: Judgement,
    pub(super) predictions: Predictions,
    /// Programs that the budget left uncompiled.
    pub(super) not_compiled: usize,
}

impl<'t, 'a> Tuning<'t, 'a> {
    /// Reads what is known.
    fn begin(
        tuner: &'t mut Autotuner<'a>,
        events: &'t Events,
        (race, identity): (&'t Race, JobIdentity),
        waves: Option<&'t mut Waves>,
        result: &'t mut OperationResult,
    ) -> Result<Self, TuneError> {
        let cached = tuner.cached(&identity.key)?;
        let evidence = JobEvidence::stored(tuner.ledger, identity.digest, tuner.options.race.force)?;
        result.rounds_kept = evidence.count();
        let is_own = cached.as_ref().is_some_and(|(_, tier)| *tier != Tier::Shipped);
        let cached = cached.map(|(entry, _)| entry);
        Ok(Self { tuner, events, race, identity, waves, cached, is_own, evidence, others: Vec::new(), result })
    }

    /// The same of a call whose winner is provisional.
    pub(super) fn of_provisional(
        (tuner, events): (&'t mut Autotuner<'a>, &'t Events),
        race: &'t Race,
        ((identity, evidence, cached), is_own): ((JobIdentity, JobEvidence, Option<Arc<Entry>>), bool),
        others: Vec<OtherRace>,
        result: &'t mut OperationResult,
    ) -> Self {
        Self { tuner, events, race, identity, waves: None, cached, is_own, evidence, others, result }
    }

    /// What is known now.
    pub(super) fn into_evidence(self) -> (JobEvidence, Vec<OtherRace>) {
        (self.evidence, self.others)
    }

    /// Whether the user ended the run.
    pub(super) fn is_cancelled(&self) -> bool {
        self.tuner.cancel.load(Ordering::Relaxed)
    }

    fn run(mut self) -> Result<TunedCall, TuneError> {
        let begin = Instant::now();
        let is_comparable = self.is_comparable();
        if let Some(waves) = &mut self.waves {
            self.evidence.leave_unseen(&self.identity);
            // this reads the whole cache, so only for a first wave
            if self.evidence.is_empty() {
                waves.know(&self.tuner.priors(&self.identity.key, &self.race.invocation)?);
            }
        }
        if let Some(entry) = self.decided_before() {
            return Ok(TunedCall::Ended(Some(self.known(&entry))));
        }
        let is_decided = self.is_decided();
        let verdict = loop {
            let wants_more = self.wants_more(is_decided);
            if wants_more && is_comparable && !self.measure()? {
                return Ok(TunedCall::Ended(None));
            }
            let verdict = self.judge();
            if self.is_open(&verdict, is_decided) {
                return Ok(TunedCall::Ended(None));
            }
            // the race goes on without what fails with other values
            if !self.race_other_distributions(is_decided, begin)? {
                break verdict;
            }
        };
        if self.is_provisional(&verdict) {
            return Ok(self.into_provisional(verdict));
        }
        self.commit(verdict).map(TunedCall::Ended)
    }

    fn known(&mut self, entry: &Arc<Entry>) -> (crate::cache::CacheKey, Arc<Entry>) {
        known_before(self.result, self.identity.key.clone(), entry)
    }

    fn is_of_this_job(&self, entry: &Entry) -> bool {
        self.is_own && entry.provenance.as_ref().is_some_and(|from| from.job == self.identity.digest)
    }

    /// The fewest candidates for a decision. A lone program is measured for its time, also if no other can run here; a
    /// lone survivor of failures is not worth one.
    fn enough(&self) -> usize {
        self.evidence.count_possible(&self.identity).min(2)
    }

    fn is_comparable(&self) -> bool {
        let competing = self.evidence.competing(&self.identity);
        competing.len() >= self.enough() && competing.contains(&self.identity.baseline)
    }

    /// The entry of an earlier decision whose samples are elsewhere, or gone: by this job, or by another timer.
    fn decided_before(&mut self) -> Option<Arc<Entry>> {
        let options = self.tuner.options;
        if !self.evidence.is_empty() || options.race.force || !self.is_own {
            return None;
        }
        let entry = self.cached.clone()?;
        let from = entry.provenance.as_ref()?;
        // `--thorough` also measures what was skipped
        if self.is_of_this_job(&entry) && (!options.thorough || from.untried == 0) {
            return Some(entry);
        }
        let theirs = self.tuner.identity_of_other_timer(&self.race.invocation, &entry)?;
        let is_theirs = from.job == theirs.digest;
        self.result.flags.extend(timed_otherwise(&entry, &self.tuner.timer.info().name).filter(|_| is_theirs));
        is_theirs.then_some(entry)
    }

    /// Whether this job decided what is cached. A race that a budget ended early continues if there is more time.
    fn is_decided(&self) -> bool {
        let left_enough = |entry: &Entry| {
            let Some(provenance) = &entry.provenance else { return true };
            let is_enough = |chance| self.waves.as_ref().is_none_or(|waves| waves.is_enough(chance));
            // what was left without predictions was left for lack of time
            provenance.untried_chance.map_or(provenance.untried == 0, is_enough)
        };
        let cached = self.cached.as_ref().filter(|_| !self.tuner.options.race.force);
        cached.is_some_and(|entry| self.is_of_this_job(entry) && left_enough(entry))
    }

    /// Whether more rounds, or programs, are worth it. A decided call is measured further if more rounds are requested.
    fn wants_more(&mut self, is_decided: bool) -> bool {
        if self.evidence.is_confirmed() && !is_decided && self.tuner.options.race.rounds.is_none() {
            // its winner is known, and fresh processes have the word
            return false;
        }
        let race_state = self.judgement(None).race_state;
        let is_short = match self.tuner.options.race.rounds {
            Some(rounds) => race_state.rounds < rounds as usize,
            // nothing is known about a new one
            None => !is_decided || self.evidence.has_unseen(&race_state.contenders),
        };
        let leaves = is_decided || self.waves.is_none() || self.predict().next.is_empty();
        (race_state.settled.is_none() && is_short) || !leaves
    }

    /// What the waves expect of the candidates that are left.
    fn predict(&mut self) -> Predictions {
        let waves = self.waves.as_mut();
        waves.map(|waves| waves.predict(&self.evidence, &self.identity)).unwrap_or_default()
    }

    /// Adds rounds. Returns whether there is something to decide; otherwise the result says why not.
    fn measure(&mut self) -> Result<bool, TuneError> {
        let invocation = &self.race.invocation;
        let (programs, rounds_kept) = (self.identity.distinct().len(), self.result.rounds_kept);
        self.events.tell(EventKind::Started { programs, rounds_kept });
        self.evidence.log_job(self.tuner.ledger, || self.tuner.job_record(invocation, &self.identity))?;
        let (before, earlier) = (self.evidence.next_round(), self.result.rounds_measured);
        let measured = self.measure_logged();
        self.result.rounds_measured = earlier + self.evidence.next_round().saturating_sub(before);
        self.result.flags.append(&mut self.evidence.notes);
        match measured {
            Ok(measured) => {
                self.result.rounds_measured = earlier + measured;
                return Ok(true);
            }
            Err(RaceError::Fatal(error)) => return Err(error),
            Err(RaceError::Inputs(error)) => self.result.reason = error.to_string(),
            Err(RaceError::Failed(failure)) => {
                self.result.reason = failure.to_string();
                self.result.failure = Some(failure);
                self.result.candidates = self.rows(&self.judgement(None), &[]);
            }
            Err(RaceError::Interrupted) => {
                self.result.status = Status::Interrupted;
                ended_by_user(self.result.rounds_kept + self.result.rounds_measured)
                    .clone_into(&mut self.result.reason);
            }
        }
        Ok(false)
    }

    fn measure_logged(&mut self) -> Result<u32, RaceError> {
        let invocation = &*self.race.invocation;
        let making = self.events.open(Slice::Phase(Phase::MakeInputs));
        let input_folder = InputFolder::new(invocation, self.tuner.registry)?.map_err(RaceError::Failed)?;
        drop(making);
        let waves = self.waves.as_deref_mut().map(|waves| waves as &mut dyn NextWave);
        let (of_call, how) = ((invocation, &self.identity), (&self.tuner.options.race, Extent::Race(waves)));
        self.tuner.measure_at(self.events, &input_folder, how, of_call, &mut self.evidence)
    }

    /// How likely a fresh run publishes this candidate's config.
    fn stability(&self, published: usize) -> Option<f64> {
        let JobIdentity { same_as, baseline, .. } = &self.identity;
        let rounds = self.evidence.to_decision(same_as.len(), *baseline);
        let counted = counted_rounds(&rounds);
        let options = &self.tuner.options.race;
        let (rules, bytes) = (options.rules_for(&rounds, *baseline), self.temporary_bytes());
        let competing = self.evidence.competing(&self.identity);
        let finalists = self.with_processes(&self.finalists(&self.judgement(self.incumbent())));
        let processes = finalists.first().map_or(&[][..], |(_, processes)| processes);
        let most = if self.can_confirm() { options.most_processes(processes) } else { 0 };
        let race = DecidedRace::new(&counted, (&competing, *baseline), &bytes, &rules, published);
        race.confirmed(most as usize, options.spread_of(processes), &finalists).stability()
    }

    /// Whom fresh processes measure, the winner first.
    pub(super) fn finalists(&self, judgement: &Judgement) -> Vec<usize> {
        let spread = match judgement.race_state.disturbance.is_contended {
            true => ProcessSpread::CONTENDED,
            false => self.tuner.options.race.spread_of(&[]),
        };
        finalists(judgement, &self.evidence.competing(&self.identity), self.identity.baseline, spread)
    }

    /// Finalists, and what each fresh process says about them.
    pub(super) fn with_processes(&self, finalists: &[usize]) -> Vec<Finalist> {
        let referee = self.referee();
        finalists.iter().map(|&one| (one, referee.processes(&self.evidence, one))).collect()
    }

    /// Who decides about it.
    pub(super) fn referee(&self) -> Referee<'_> {
        Referee { options: &self.tuner.options.race, identity: &self.identity, terms: Terms::default() }
    }

    pub(super) fn judgement(&self, incumbent: Option<usize>) -> Judgement {
        self.referee().judge(&self.evidence, incumbent, &self.temporary_bytes())
    }

    /// What each candidate's runs need. Stored samples have no such figures.
    pub(super) fn temporary_bytes(&self) -> Vec<Option<u64>> {
        match self.tuner.options.one_job_a_call {
            true => Vec::new(),
            false => self.evidence.temporary_bytes(self.identity.same_as.len()),
        }
    }

    /// The candidate whose config is in force.
    pub(super) fn incumbent(&self) -> Option<usize> {
        let config = &self.cached.as_ref()?.config;
        self.race.invocation.candidates.iter().position(|candidate| candidate.config == *config)
    }

    fn rows(&self, judgement: &Judgement, left: &[(usize, ExpectedRatio)]) -> Vec<CandidateResult> {
        let candidates = &self.race.invocation.candidates;
        let configs: Vec<Config> = candidates.iter().map(|candidate| candidate.config.clone()).collect();
        let JobIdentity { same_as, baseline, .. } = &self.identity;
        candidate_results(&configs, same_as, *baseline, judgement, &self.evidence, left)
    }

    /// Judges the evidence and writes what it says into the result.
    fn judge(&mut self) -> TuningVerdict {
        let _deciding = self.events.open(Slice::Step("decide"));
        let judgement = self.judgement(self.incumbent());
        let predictions = self.predict();
        self.result.candidates = self.rows(&judgement, &predictions.left);
        self.result.untried_chance = (!predictions.left.is_empty()).then_some(predictions.chance);
        // without waves, only the budget leaves programs uncompiled
        let not_compiled = if self.waves.is_some() { 0 } else { self.evidence.count_left() };
        fill_from_judgement(self.result, &judgement);
        let decided = self.evidence.to_decision(self.identity.same_as.len(), self.identity.baseline);
        let rules = self.tuner.options.race.rules_for(&decided, self.identity.baseline);
        self.result.more_time = MoreTime::of(&judgement, &self.evidence, &rules);
        TuningVerdict { judgement, predictions, not_compiled }
    }

    /// Whether a verdict decides nothing, which the result then says.
    fn is_open(&mut self, verdict: &TuningVerdict, is_decided: bool) -> bool {
        let TuningVerdict { judgement, predictions, not_compiled } = verdict;
        if judgement.outcome == JudgedOutcome::NotBelieved {
            self.result.status = Status::NotBelieved;
            self.result.reason = not_believed(self.result);
            return true;
        }
        if let (JudgedOutcome::Undecided, Some(budget)) = (judgement.outcome, self.tuner.options.race.budget) {
            let (done, needed) = (judgement.race_state.leader_rounds, self.tuner.options.race.rules.min_rounds);
            self.result.reason = format!("{done} rounds in {budget:.1?}, {needed} are needed: allow more time");
        }
        let keeps_baseline = judgement.outcome == JudgedOutcome::BaselineKept;
        if keeps_baseline && !is_decided && (!predictions.next.is_empty() || *not_compiled > 0) {
            // a config that was not compiled may be faster
            let left = predictions.left.len().max(*not_compiled);
            let all = counted(self.identity.same_as.len(), "config");
            self.result.reason =
                format!("{left} of {all} were not compiled when the time was used up: allow more time");
            return true;
        }
        let race_state = &judgement.race_state;
        let is_hidden = race_state.may_hide_gain || (race_state.is_in_doubt && race_state.disturbance.is_contended);
        if keeps_baseline && is_hidden {
            // that nothing is faster was not shown
            self.result.status = Status::Undecided;
            if !race_state.disturbance.is_contended {
                self.result.reason = format!("{}, {HIDES_GAINS}", self.result.reason);
            }
            return true;
        }
        let failures = &self.evidence.failures;
        let survivors = self.identity.distinct().iter().filter(|candidate| !failures.contains_key(candidate)).count();
        if failures.contains_key(&self.identity.baseline) || survivors < self.enough() {
            self.result.reason = only_failures(&self.evidence, &self.identity);
            return true;
        }
        let alone = match &self.race.search {
            // the race was among the search's picks from a larger space
            Some(_) => self.race.all_failed.clone(),
            None => self.evidence.why_alone(&self.identity),
        };
        if let Some(reason) = alone.filter(|_| keeps_baseline) {
            self.result.reason = reason;
        }
        false
    }

    /// Whether a winner has to show itself in fresh processes before it is committed.
    fn is_provisional(&self, TuningVerdict { judgement, .. }: &TuningVerdict) -> bool {
        let config = |winner: usize| self.race.invocation.candidates.get(winner).map(|candidate| &candidate.config);
        let is_known = self.result.rounds_measured == 0
            && self
                .cached
                .as_deref()
                .is_some_and(|old| self.is_of_this_job(old) && Some(&old.config) == config(judgement.winner));
        judgement.outcome == JudgedOutcome::Faster && self.can_confirm() && !is_known
    }

    /// Whether there are fresh processes: a replay of profiles has none.
    fn can_confirm(&self) -> bool {
        !self.tuner.timer.info().can.skip_outputs && self.tuner.options.race.processes > 0
    }

    /// Writes the winner into the result as what it is so far.
    fn into_provisional(self, verdict: TuningVerdict) -> TunedCall {
        let by = (&*self.tuner.timer, &self.tuner.options.race.cache_state);
        let TuningVerdict { judgement, predictions, not_compiled } = verdict;
        let (race, search) = (&self.race.invocation, self.race.search.clone());
        let entry = entry_of(race, &self.identity, &judgement, &self.evidence, by, search, &predictions);
        if let Some(entry) = entry {
            fill_from_entry(self.result, &entry);
            let mut winners = self.tuner.winners.lock().unwrap_or_else(PoisonError::into_inner);
            winners.push((self.identity.key.clone(), entry.config));
        }
        self.events.tell(EventKind::Ahead(&standing(&race.candidates, &judgement)));
        self.result.status = Status::Provisional;
        let finalists = self.finalists(&judgement);
        let Self { race, identity, evidence, cached, is_own, others, .. } = self;
        let race = race.clone();
        TunedCall::Provisional(Box::new(ProvisionalCall {
            race,
            identity,
            evidence,
            cached,
            is_own,
            finalists,
            others,
            predictions,
            not_compiled,
        }))
    }

    /// Commits the entry of a verdict.
    pub(super) fn commit(
        &mut self,
        TuningVerdict { judgement, predictions, not_compiled }: TuningVerdict,
    ) -> Result<DecidedEntry, TuneError> {
        let by = (&*self.tuner.timer, &self.tuner.options.race.cache_state);
        let (race, search) = (&self.race.invocation, self.race.search.clone());
        let entry = entry_of(race, &self.identity, &judgement, &self.evidence, by, search, &predictions);
        let Some(mut entry) = entry else { return Ok(None) };
        if let (JudgedOutcome::Faster, Some(confirmation)) = (judgement.outcome, &self.result.confirmation) {
            write_confirmation(&mut entry, confirmation);
            self.result.load = entry.provenance.as_ref().map(|from| from.measured_by.load.clone()).unwrap_or_default();
        }
        let options = &self.tuner.options.race;
        if judgement.outcome == JudgedOutcome::Faster
            && options.processes == 0
            && !self.tuner.timer.info().can.skip_outputs
        {
            self.result.flags.push("chosen in one process, and confirmed in no other one (`--processes 0`)".to_owned());
        }
        self.note_distributions(judgement.winner);
        self.result.stability = self.stability(judgement.winner);
        if let Some(provenance) = &mut entry.provenance {
            provenance.stability = self.result.stability;
        }
        if let Some(provenance) = entry.provenance.as_mut().filter(|_| not_compiled > 0) {
            provenance.untried = not_compiled as u32;
        }
        let is_measured = |old: &Entry| old.provenance.is_some() && !old.is_replayed();
        if entry.is_replayed() && self.cached.as_deref().is_some_and(is_measured) {
            fill_from_entry(self.result, &entry);
            self.result.status = status_of(judgement.outcome);
            self.result.flags.push("not kept: runs on this device decided what the cache has".to_owned());
            return Ok(None);
        }
        let is_same = |old: &Entry| old.config == entry.config && old.search() == entry.search();
        let is_unchanged = |old: &&Arc<Entry>| self.is_of_this_job(old) && is_same(old);
        if let Some(old) = self.cached.clone().filter(|old| is_unchanged(&old) && self.result.rounds_measured == 0) {
            return Ok(Some(self.known(&old)));
        }
        let entry = Arc::new(entry);
        let committing = self.events.open(Slice::Step("commit"));
        self.tuner.ledger.commit(Some(self.identity.digest), &self.identity.key, &entry)?;
        drop(committing);
        fill_from_entry(self.result, &entry);
        self.result.status = status_of(judgement.outcome);
        Ok(Some((self.identity.key.clone(), entry)))
    }
}

/// Why nothing but failures is left.
fn only_failures(evidence: &JobEvidence, identity: &JobIdentity) -> String {
    let of_baseline = evidence.failures.get(&identity.baseline);
    let first = of_baseline.or_else(|| evidence.failures.values().next());
    match (of_baseline, first) {
        (Some(failure), _) => format!("the baseline failed: {failure}; `--force` tries again"),
        (None, Some(failure)) if failure.kind == FailureKind::NoProgram => {
            format!("no other candidate has a program; the first because of {failure}; record it again, on the device")
        }
        (None, Some(failure)) => {
            format!("every other candidate failed, the first with {failure}; `--force` tries again")
        }
        (None, None) => "there is nothing to compare".to_owned(),
    }
}

/// What was observed, why it is not a win, and what to do about it.
fn not_believed(result: &OperationResult) -> String {
    let measured =
        result.candidates.iter().filter_map(|row| row.times().map(|times| (times.ratio, times.median_ns, row)));
    let Some((ratio, ns, row)) = measured.min_by(|a, b| a.0.total_cmp(&b.0)) else { return result.reason.clone() };
    format!(
        "{} takes {ns:.0} ns, {}: most likely its program computes something else, or nothing; look at it, and accept \
         it with `--max-speed-up {:.0}` if it is right",
        row.config.to_brief(),
        result.reason,
        (2.0 / ratio).ceil()
    )
}
