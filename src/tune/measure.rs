//! Measuring one job: compile, compare outputs, warm up, then interleaved rounds until the race is decided.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::counted::counted;
use crate::decision::{ComparisonRules, RaceState, Settled, compare, is_look, race, wants_bracket};
use crate::failure::{Failure, FailureKind};
use crate::samples::{CandidateSamples, ProgramFigures, Record, RoundRecord};
use crate::timer::events::{Events, Kind, Phase, Slice};
use crate::timer::replay::Method;
use crate::timer::{CandidateRuns, Job, Prepared, RoundRequest, Timer, TimerExt};

use super::device_seats::Seat;
use super::expected::Expected;
use super::job::JobIdentity;
use super::possible::count_possible;
use super::rounds::JobRounds;
use super::sampling::{ONE_RUN, Sampling, WarmUp};
use super::waves::Waves;
use super::{TuneError, TuneOptions};
use crate::ledger::Ledger;

/// Program time that a race may always take.
const LEAST_TIME: Duration = Duration::from_millis(150);
/// Otherwise it may take this part of the compile time of its programs, next to which it is hardly noticed.
const OF_COMPILING: f64 = 0.15;
/// Factors of that time and of the minimum if a winner is likely but not yet significant: keeping a slower baseline
/// costs every later run.
const IN_DOUBT: u32 = 4;
const IN_DOUBT_LEAST: u32 = 20;
/// Maximum multiple of the usual rounds, if an undecided race has time left.
const MOST_ROUNDS: usize = 20;
/// Maximum number of rounds if only the time ends the race.
const MOST_COMPARED: usize = 100_000;
/// Number of recent rounds that decide whether the next one has the baseline at its ends.
const RECENT: usize = 32;

/// Why measuring ended before its last round.
#[derive(Debug)]
pub(super) enum Aborted {
    /// The baseline, or the worker itself, failed: nothing can be decided.
    Failed(Failure),
    /// The user asked for it.
    Interrupted,
    /// Nothing can continue.
    Fatal(TuneError),
}

impl<E: Into<TuneError>> From<E> for Aborted {
    fn from(error: E) -> Self {
        Self::Fatal(error.into())
    }
}

/// A failure inside a round, and the candidate that was launched, if known.
pub(super) struct Fault {
    candidate: Option<usize>,
    pub(super) failure: Failure,
}

/// Asks for each candidate's ratio to the baseline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compares {
    /// The candidate that is the baseline's own program once more.
    pub(super) copy: Option<usize>,
    pub(super) rules: ComparisonRules,
}

/// One job being measured.
pub(super) struct Measuring<'a> {
    pub(super) timer: &'a mut dyn Timer,
    pub(super) ledger: &'a Ledger,
    pub(super) options: &'a TuneOptions,
    pub(super) cancel: &'a AtomicBool,
    pub(super) events: &'a Events,
    pub(super) identity: &'a JobIdentity,
    pub(super) job: &'a Job,
    pub(super) rounds: &'a mut JobRounds,
    /// Candidates that had their second chance: one that occasionally breaks a worker is dropped, however fast it is.
    pub(super) forgiven: BTreeSet<usize>,
    /// Whether the round before failed without a culprit.
    pub(super) round_forgiven: bool,
    /// Whether exactly the requested number of rounds is measured, decided or not.
    pub(super) is_exact: bool,
    /// Whether nothing is decided if the baseline's outputs are not all finite.
    pub(super) needs_finite: bool,
    /// By output, how far elements may be off beyond their type's tolerance.
    pub(super) slack: &'a [f64],
    /// The rules, if each candidate must be distinguished from the baseline instead of only finding the best.
    pub(super) compares: Option<Compares>,
    /// Whether candidates that compile to one executable are one candidate.
    pub(super) joins_executables: bool,
    /// The waves in which candidates are compiled; all at once if `None`.
    pub(super) waves: Option<&'a mut Waves>,
    /// Its place among the calls that are tuned side by side on this device.
    pub(super) seat: Option<&'a mut Seat>,
    /// Calls that compiled at the same time in the last wave, this one included.
    pub(super) beside: usize,
    /// Programs submitted for compilation so far.
    pub(super) tried: usize,
    /// The first epoch of this run in the log, and of the timer.
    pub(super) epochs: (u32, u32),
    /// Time in rounds so far, and the part of it in which programs ran.
    pub(super) in_rounds: Duration,
    pub(super) running: Duration,
    /// Compile time so far.
    pub(super) compiling: Duration,
}

impl Measuring<'_> {
    /// Measures until the race is decided or the budget spent. Returns the rounds measured here.
    pub(super) fn run(&mut self) -> Result<u32, Aborted> {
        self.timer.follow(self.events);
        let _job = self.events.try_open(Slice::Job(self.job)).map_err(Aborted::Failed)?;
        self.in_phase(Phase::LoadInputs, |this| this.timer.begin(this.job)).map_err(Aborted::Failed)?;
        let measured = self.run_begun();
        let _ending = self.events.open(Slice::Step("end"));
        self.timer.end();
        measured
    }

    fn run_begun(&mut self) -> Result<u32, Aborted> {
        self.epochs = (self.rounds.next_epoch(), self.timer.info().epoch);
        let mut warm = WarmUp::of(self.job.candidates.len());
        let mut reference = None;
        let (mut measured, mut raced) = (0, false);
        // candidates still competing from an earlier run are loaded with the first wave
        let mut wave = self.active();
        loop {
            wave.extend(self.next_wave());
            if wave.is_empty() {
                if raced {
                    return Ok(measured);
                }
                measured += self.in_phase(Phase::Measure, |this| this.measure_rounds(&warm))?;
                if self.waves.is_none() {
                    return Ok(measured);
                }
                // the race's outcomes may bring back a skipped candidate
                raced = true;
                continue;
            }
            raced = false;
            // comparing outputs while the next one compiles saves doing it afterwards
            let compared = reference.as_ref().filter(|_| self.timer.info().can.compile_beside_outputs);
            self.compile(&mut wave, compared)?;
            wave.retain(|&candidate| !self.rounds.is_left(candidate));
            let is_compared = compared.is_some();
            if reference.is_none() {
                // the baseline's time comes first, because it bounds how long to wait for the others
                self.in_phase(Phase::WarmUp, |this| this.warm_up_baseline(&mut warm))?;
            }
            if !is_compared {
                self.in_phase(Phase::CompareOutputs, |this| {
                    let reference = match &reference {
                        Some(reference) => reference,
                        None => reference.insert(this.reference_outputs()?),
                    };
                    this.compare_outputs(&wave, reference)
                })?;
            }
            self.in_phase(Phase::WarmUp, |this| this.warm_up(&wave, &mut warm))?;
            if self.waves.is_some() {
                measured += self.in_phase(Phase::Measure, |this| this.look(&wave, &warm))?;
            }
            wave.clear();
        }
    }

    /// Prepares a wave, beside the other calls' waves. Each candidate's outputs are compared with these while the next
    /// ones compile.
    fn compile(&mut self, wave: &mut [usize], reference: Option<&Expected>) -> Result<(), Aborted> {
        self.seat.iter_mut().for_each(|seat| seat.work());
        let begin = Instant::now();
        self.in_phase(Phase::Compile, |this| this.prepare_all(wave, reference))?;
        let mut took = begin.elapsed();
        // from here on it has the machine to itself
        if let Some(seat) = &mut self.seat {
            self.beside = seat.measure().max(1);
            self.events.tell(Kind::CompiledBeside { calls: self.beside });
            took /= u32::try_from(self.beside).unwrap_or(u32::MAX);
        }
        self.compiling += took;
        Ok(())
    }

    /// Whether the time is used up, with what passed since `begin`. A comparison needs all its programs, so compiling them does
    /// not count there.
    fn is_late(&self, begin: Instant) -> bool {
        let compiling = if self.compares.is_some() { Duration::ZERO } else { self.compiling };
        self.options.budget.is_some_and(|budget| compiling + self.in_rounds + begin.elapsed() >= budget)
    }

    /// Whether no further program is compiled, because the rest of the time belongs to the rounds.
    fn has_compiled_enough(&self, begin: Instant) -> bool {
        let most = self.options.budget.filter(|_| self.compares.is_none()).map(|budget| budget / 2);
        most.is_some_and(|most| self.compiling + begin.elapsed() >= most)
    }

    /// Candidates to compile and measure next, which compete from now on; none if the rest is skipped.
    fn next_wave(&mut self) -> Vec<usize> {
        let is_late = self.is_late(Instant::now());
        let Some(waves) = self.waves.as_mut().filter(|_| !is_late) else { return Vec::new() };
        waves.share(self.beside);
        let mut wave = waves.predict(self.rounds, self.identity).next;
        wave.retain(|&candidate| self.rounds.is_left(candidate));
        self.rounds.admit(&wave);
        wave
    }

    /// One round of a wave, beside the baseline and the fastest so far: its result determines what is compiled next.
    fn look(&mut self, wave: &[usize], warm: &WarmUp) -> Result<u32, Aborted> {
        let (race_state, begin) = (self.race_state(), Instant::now());
        let is_beside = |candidate| candidate == self.identity.baseline || Some(candidate) == race_state.leader;
        let mut contenders = race_state.contenders.clone();
        contenders.retain(|&candidate| is_beside(candidate) || wave.contains(&candidate));
        let is_whole = self.add_round(&contenders, &self.samplings(warm, race_state.resolution))?;
        self.in_rounds += begin.elapsed();
        Ok(u32::from(is_whole))
    }

    /// Does a part of the work.
    fn in_phase<T>(&mut self, phase: Phase, work: impl FnOnce(&mut Self) -> T) -> T {
        let _phase = self.events.open(Slice::Phase(phase));
        work(self)
    }

    fn measure_rounds(&mut self, warm: &WarmUp) -> Result<u32, Aborted> {
        let (begin, looked) = (Instant::now(), self.running);
        let mut measured = 0;
        // every restart drops at least one candidate or uses up its second chance; disturbed rounds are measured again
        let is_short = self.is_exact || self.timer.info().can.measure_rounds;
        let usual = self.options.usual_rounds();
        let most = match self.options.budget {
            // a comparison with a time budget uses all of it, to make each ratio as precise as possible
            Some(_) if self.compares.is_some() && !self.is_exact => MOST_COMPARED,
            _ if is_short => usual as usize,
            _ => usual as usize * MOST_ROUNDS,
        };
        let mut attempts = most * 3 / 2 + 2 * self.job.candidates.len();
        let (mut race_state, mut failures) = (self.race_state(), self.rounds.failures.len());
        let mut sampling = self.samplings(warm, race_state.resolution);
        loop {
            // between the looks only candidates that fail are dropped
            let count = self.rounds.count();
            if self.is_exact || is_look(count as usize) || count == usual || failures != self.rounds.failures.len() {
                (race_state, failures) = (self.race_state(), self.rounds.failures.len());
                sampling = self.samplings(warm, race_state.resolution);
            }
            // `--rounds` promises that many rounds of every candidate; a profile's cost hardly grows with the programs
            // in it
            let takes_turns = self.options.rounds.is_none() && !is_short && self.compares.is_none();
            let active = if takes_turns { race_state.next.clone() } else { race_state.contenders.clone() };
            // if no other config can run here, the baseline is still measured for its time; a search learns nothing
            // from that
            let possible = count_possible(self.identity, self.rounds);
            let lone = active.len() < 2 && (possible > 1 || (self.is_exact && self.identity.distinct().len() > 1));
            let is_settled = race_state.settled.is_some() && !self.is_exact;
            let is_enough = self.is_enough(&race_state, most, &sampling, looked);
            if is_settled || lone || is_enough || self.is_late(begin) || attempts == 0 {
                self.in_rounds += begin.elapsed();
                return Ok(measured);
            }
            attempts -= 1;
            measured += u32::from(self.add_round(&active, &sampling)?);
        }
    }

    /// Whether an undecided race has used up its time. Part of the time went to first rounds of new candidates.
    fn is_enough(&self, race_state: &RaceState, most: usize, sampling: &[Sampling], looked: Duration) -> bool {
        let (rounds, least) = match self.options.rounds {
            Some(rounds) => (race_state.rounds, rounds as usize),
            None if race_state.is_in_doubt => (race_state.leader_rounds, self.options.usual_rounds() as usize),
            None => (race_state.leader_rounds, self.options.rules.min_rounds),
        };
        if self.compares.is_some() && self.options.budget.is_some() && !self.is_exact {
            return rounds >= most;
        }
        if self.timer.info().can.measure_rounds {
            // a profile costs far more than the programs in it, and a replay asks for the same ones, however fast it compiles
            return rounds >= least.min(most);
        }
        let one_run_each = sampling.iter().map(|sampling| sampling.run_ns).fold(0, u64::saturating_add);
        let of_asked = |rounds: u32| Duration::from_nanos(one_run_each.saturating_mul(u64::from(rounds)));
        let asked = self.options.rounds.map_or(Duration::ZERO, of_asked);
        let time = LEAST_TIME.max(self.compiling.mul_f64(OF_COMPILING)).max(asked);
        let time = match race_state.is_in_doubt {
            // the first rounds prove nothing
            true => looked + time.saturating_mul(IN_DOUBT).max(LEAST_TIME * IN_DOUBT_LEAST),
            false => time,
        };
        rounds >= least.min(most) && (rounds >= most || self.running >= time)
    }

    /// Measures a round and writes it to the log. Returns whether nothing failed in it.
    fn add_round(&mut self, active: &[usize], sampling: &[Sampling]) -> Result<bool, Aborted> {
        let (base_epoch, first_epoch) = self.epochs;
        let epoch = base_epoch.saturating_add(self.timer.info().epoch.saturating_sub(first_epoch));
        let round = self.rounds.next_round();
        let slice = self.events.open(Slice::Round { number: u64::from(round) + 1, contenders: active.len() });
        let (samples, fault) = self.one_round(active, sampling, round)?;
        drop(slice);
        let took = samples.iter().flat_map(|sample| &sample.ns).fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        self.running = self.running.saturating_add(Duration::from_nanos(took));
        if !samples.is_empty() {
            let source = self.timer.info().source.clone();
            let programs = self.rounds.take_unlogged();
            let record = RoundRecord { job: self.identity.digest, epoch, round, source, samples, programs };
            self.ledger.append(&Record::Round(record.clone()))?;
            self.rounds.push(record);
            self.events.tell(Kind::Sampled { running_ns: took });
        }
        let is_whole = fault.is_none();
        match fault {
            None => {
                self.round_forgiven = false;
                let done = self.rounds.count();
                let (of, is_most) = (self.options.usual_rounds(), self.options.rounds.is_some());
                self.events.tell(Kind::Round { done, of, is_most, contenders: active.len() });
            }
            Some(Fault { candidate: Some(candidate), failure }) => self.blame(candidate, failure)?,
            Some(Fault { candidate: None, failure }) => self.find_culprit(failure)?,
        }
        Ok(is_whole)
    }

    /// The state of the race after all rounds, including those of earlier runs.
    fn race_state(&self) -> RaceState {
        let rounds = self.rounds.to_decision(self.job.candidates.len(), self.identity.baseline);
        let rules = self.options.rules_for(&rounds, self.identity.baseline);
        let competing = self.rounds.competing(self.identity);
        let mut race_state = race(&rounds, &competing, self.identity.baseline, &rules);
        if let Some(Compares { copy, rules }) = &self.compares {
            let pair = (self.identity.baseline, *copy);
            let found = compare(&rounds, self.job.candidates.len(), &competing, pair, rules);
            race_state.settled = found.is_settled.then_some(Settled::Separated);
            race_state.is_in_doubt = !found.is_settled;
        }
        race_state
    }

    /// Candidates that were not dropped and have a program of their own, the baseline included.
    pub(super) fn active(&self) -> Vec<usize> {
        self.race_state().contenders
    }

    pub(super) fn check_cancelled(&self) -> Result<(), Aborted> {
        if self.cancel.load(Ordering::Relaxed) { Err(Aborted::Interrupted) } else { Ok(()) }
    }

    fn prepare_all(&mut self, order: &mut [usize], reference: Option<&Expected>) -> Result<(), Aborted> {
        // the baseline first: without it nothing can be decided; then long programs, so that no core waits for one
        // started late
        order.sort_by_cached_key(|&candidate| {
            (candidate != self.identity.baseline, Reverse(self.program_bytes(candidate)))
        });
        if let Err(failure) = self.timer.expect(order) {
            // it is unknown which of them broke it: from here on they are loaded one by one
            self.restart(failure)?;
        }
        let before = self.tried;
        self.tried += order.len();
        let (of, begin, mut left) = (self.tried, Instant::now(), Vec::new());
        for (done, &mut candidate) in order.iter_mut().enumerate() {
            self.check_cancelled()?;
            // the baseline and one more, or there is nothing to decide
            if done > 1 && self.has_compiled_enough(begin) {
                left.push(candidate);
                continue;
            }
            let slice = self.slice_of(candidate);
            let mut outcome = self.prepare(candidate);
            if let Err(failure) = &outcome
                && self.breaks(failure)
            {
                // a compiler must die twice before the candidate is blamed
                self.restart(failure.clone())?;
                outcome = self.prepare(candidate);
            }
            match outcome {
                Ok(cost) => {
                    if let Some(executable) = cost.executable {
                        if self.joins_executables {
                            self.rounds.join(candidate, executable);
                        }
                        self.rounds.executables.insert(candidate, executable);
                    }
                    let (is_baseline, done) = (candidate == self.identity.baseline, before + done + 1);
                    self.events.tell(Kind::Prepared { cost: &cost, is_baseline, done, of });
                    self.rounds.tell(ProgramFigures::new(candidate, cost.temporary_bytes, cost.work));
                }
                // a handler missing for one candidate is missing for all: it is the wrong worker
                Err(failure) if failure.kind == FailureKind::CustomCall => return Err(Aborted::Failed(failure)),
                // no device, or no space for files: no candidate has run that could be to blame
                Err(failure) if failure.kind == FailureKind::Device => return Err(Aborted::Failed(failure)),
                Err(failure) => self.blamed(candidate, self.identity.not_lowered.explain(candidate, failure))?,
            }
            drop(slice);
            if let Some(reference) = reference {
                self.in_phase(Phase::CompareOutputs, |this| this.compare_outputs(&[candidate], reference))?;
            }
        }
        if !left.is_empty() {
            let left_of = counted(order.len(), "program");
            self.rounds.notes.push(format!(
                "{} of {left_of} were not compiled, because that took half of `--budget`: allow more time",
                left.len()
            ));
            self.rounds.leave(left);
        }
        Ok(())
    }

    /// Length of a candidate's program, a proxy for its compile time; 0 if the worker builds it.
    fn program_bytes(&self, candidate: usize) -> u64 {
        let program = self.job.candidates.get(candidate).and_then(|candidate| candidate.program.as_ref());
        program.and_then(|program| program.path.metadata().ok()).map_or(0, |metadata| metadata.len())
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        let prepared = self.timer.prepare(candidate);
        let failure = prepared.as_ref().err();
        self.events.tell(Kind::Called { candidate, method: Method::Prepare, failure });
        prepared
    }

    /// Measures each candidate once, in a new random order every round, between two samples of the baseline if due.
    fn one_round(
        &mut self,
        active: &[usize],
        sampling: &[Sampling],
        round: u32,
    ) -> Result<(Vec<CandidateSamples>, Option<Fault>), Aborted> {
        let mut order = active.to_vec();
        shuffle(&mut order, self.options.seed, round);
        let baseline = self.identity.baseline;
        let recent = self.rounds.last_to_decision(RECENT, self.job.candidates.len(), baseline);
        if self.is_exact || wants_bracket(&recent) {
            order.insert(0, baseline);
            order.push(baseline);
        }
        let launches: Vec<(usize, Sampling)> =
            order.iter().map(|&candidate| (candidate, sampling.get(candidate).copied().unwrap_or(ONE_RUN))).collect();
        if self.timer.info().can.measure_rounds {
            // a profile's times are not differences of two clock readings
            let launches: Vec<_> =
                launches.into_iter().map(|(candidate, sampling)| (candidate, sampling.runs)).collect();
            return self.whole_round(&launches);
        }
        let mut samples = Vec::with_capacity(launches.len());
        for (candidate, Sampling { runs, batch, .. }) in launches {
            self.check_cancelled()?;
            let _slice = self.slice_of(candidate);
            match self.timer.run_batches(candidate, runs, batch.max(1)) {
                Ok(ns) => samples.push(CandidateSamples { candidate, ns }),
                Err(failure) => return Ok((samples, Some(Fault { candidate: Some(candidate), failure }))),
            }
        }
        Ok((samples, None))
    }

    /// The same under one profile.
    pub(super) fn whole_round(
        &mut self,
        launches: &[(usize, u32)],
    ) -> Result<(Vec<CandidateSamples>, Option<Fault>), Aborted> {
        self.check_cancelled()?;
        let runs = launches.iter().map(|&(candidate, runs)| CandidateRuns::new(candidate, runs));
        match self.timer.measure(&RoundRequest::new(runs.collect())) {
            Ok(measured) => {
                let samples = launches.iter().zip(measured.durations_ns);
                Ok((samples.map(|(&(candidate, _), ns)| CandidateSamples { candidate, ns }).collect(), None))
            }
            Err(failure) => Ok((Vec::new(), Some(Fault { candidate: None, failure }))),
        }
    }

    pub(super) fn config(&self, candidate: usize) -> crate::config::Config {
        let config = self.job.candidates.get(candidate).map(|candidate| candidate.config.clone());
        config.unwrap_or_else(|| crate::config::Config::new(serde_json::Map::new()))
    }
}

/// Fisher–Yates shuffle by a generator that is the same on every machine and in every release.
fn shuffle(order: &mut [usize], seed: u64, round: u32) {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ (u64::from(round) << 32 | 0x726f_756e));
    for last in (1..order.len()).rev() {
        // the bias of a remainder over 2^64 is far too small to matter for an order
        let chosen = (random.next_u64() % (last as u64 + 1)) as usize;
        order.swap(last, chosen);
    }
}
