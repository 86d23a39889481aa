//! Measuring one job: compile, compare outputs, warm up, then interleaved rounds until the race is settled.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::decision::{Settled, Standing, is_look, is_stationary, race};
use crate::failure::{Failure, FailureKind};
use crate::samples::{CandidateSamples, Record, RoundRecord};
use crate::timer::events::{Events, Kind, Phase, Slice};
use crate::timer::replay::Method;
use crate::timer::{Job, Prepared, Timer};

use super::job::JobIdentity;
use super::possible::count_possible;
use super::rounds::JobRounds;
use super::waves::Waves;
use super::{TuneError, TuneOptions};
use crate::ledger::Ledger;

/// Runs of a candidate in a round: the fastest counts, and the first finds the caches as another program left them.
const RUNS: u32 = 3;
/// Time that a race may take in any case, of the programs' own: it costs nothing beside their compilation.
const LEAST_TIME_NS: u64 = 150_000_000;
/// How many times that time where ties are coarse: it tells configs apart that would be called equal one day and not the
/// next.
const COARSE_TIMES: u64 = 8;
/// Ties are coarse where the resolution is above this and the minimum improvement.
const COARSE: f64 = 0.05;
/// How many times the time of the rounds asked for where a winner is in sight but in doubt, and how many times the least.
const IN_DOUBT: u64 = 4;
const IN_DOUBT_LEAST: u64 = 10;
/// How many times the rounds asked for there may be, where a race that is not settled has time left.
const MOST_ROUNDS: usize = 20;
/// Runs of a candidate before the first round, where one profile holds them all.
const PROFILED_WARM_UP: u32 = 3;
/// A program that ran for so long is warm.
const WARM_NS: u64 = 1_000_000_000;

/// A sample is this many times what the clock can tell, at least.
const CLOCK_PARTS: u64 = 100;
/// The most runs of one batch: a clock so coarse is none.
const MAX_BATCH: u64 = 200;
/// A run that takes this many times the best one's, and a second, is not awaited.
const FAR_SLOWER: u64 = 50;
const LEAST_AWAITED: Duration = Duration::from_secs(1);

/// How a candidate is sampled in a round: so many durations, each of a batch of runs timed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sampling {
    runs: u32,
    batch: u32,
    /// Time of one run in the warm-up; 0 for one that cannot win.
    run_ns: u64,
}

const ONE_RUN: Sampling = Sampling { runs: 1, batch: 1, run_ns: 0 };

fn longest_run(best_ns: u64) -> Duration {
    Duration::from_nanos(best_ns.saturating_mul(FAR_SLOWER)).max(LEAST_AWAITED)
}

/// What the first runs of the candidates told.
#[derive(Debug, Default)]
struct WarmUp {
    /// Of each candidate the fastest, nanoseconds.
    fastest: Vec<Option<u64>>,
    /// The fastest of all.
    best: Option<u64>,
}

/// Why measuring ended before its last round.
#[derive(Debug)]
pub(super) enum Ended {
    /// The baseline, or the worker itself, failed: nothing can be decided.
    Failed(Failure),
    /// The user asked for it.
    Interrupted,
    /// Nothing can go on.
    Fatal(TuneError),
}

impl<E: Into<TuneError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Fatal(error.into())
    }
}

/// A failure inside a round, and whose launch it was where that is known.
struct Fault {
    candidate: Option<usize>,
    failure: Failure,
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
    /// Candidates that had their second chance: one that breaks a worker now and then is out, however fast it is.
    pub(super) forgiven: BTreeSet<usize>,
    /// Whether the round before failed without a culprit.
    pub(super) round_forgiven: bool,
    /// Whether there are as many rounds as asked for and no more, whatever is settled.
    pub(super) is_exact: bool,
    /// Which candidates are compiled when; all at once where there is none.
    pub(super) waves: Option<&'a mut Waves>,
    /// Programs that were to be compiled so far.
    pub(super) tried: usize,
    /// The first epoch of this run in the log, and of the timer.
    pub(super) epochs: (u32, u32),
    /// Time in rounds so far.
    pub(super) in_rounds: Duration,
}

impl Measuring<'_> {
    /// Measures until the race is settled or the budget spent. Returns the rounds measured here.
    pub(super) fn run(&mut self) -> Result<u32, Ended> {
        self.timer.follow(self.events);
        let _job = self.events.try_open(Slice::Job(self.job)).map_err(Ended::Failed)?;
        self.in_phase(Phase::LoadInputs, |this| this.timer.begin(this.job)).map_err(Ended::Failed)?;
        let measured = self.run_begun();
        let _ending = self.events.open(Slice::Step("end"));
        self.timer.end();
        measured
    }

    fn run_begun(&mut self) -> Result<u32, Ended> {
        self.epochs = (self.rounds.next_epoch(), self.timer.epoch());
        let mut warm = WarmUp { fastest: vec![None; self.job.candidates.len()], ..WarmUp::default() };
        let mut reference = None;
        let (mut measured, mut raced) = (0, false);
        // whoever competes from before is loaded with the first wave
        let mut wave = self.active();
        loop {
            wave.extend(self.next_wave());
            if wave.is_empty() {
                if raced {
                    return Ok(measured);
                }
                let sampling = self.samplings(&warm);
                measured += self.in_phase(Phase::Measure, |this| this.measure_rounds(&sampling))?;
                if self.waves.is_none() {
                    return Ok(measured);
                }
                // what the race found out may bring in one that was left
                raced = true;
                continue;
            }
            raced = false;
            self.in_phase(Phase::Compile, |this| this.prepare_all(&mut wave))?;
            if reference.is_none() {
                // the baseline's time comes first: it bounds how long one waits for the others
                self.in_phase(Phase::WarmUp, |this| this.warm_up_baseline(&mut warm))?;
            }
            self.in_phase(Phase::CompareOutputs, |this| {
                let reference = match &reference {
                    Some(reference) => reference,
                    None => reference.insert(this.reference_outputs()?),
                };
                this.compare_outputs(&wave, reference)
            })?;
            self.in_phase(Phase::WarmUp, |this| this.warm_up(&wave, &mut warm))?;
            wave.clear();
            if self.waves.is_some() {
                measured += self.in_phase(Phase::Measure, |this| this.look(&warm))?;
            }
        }
    }

    /// Whether the time for the rounds is used up, so much of it since `begin`.
    fn is_late(&self, begin: Instant) -> bool {
        self.options.budget.is_some_and(|budget| self.in_rounds + begin.elapsed() >= budget)
    }

    /// Candidates to compile and look at next, which compete from now on; none where the rest is left.
    fn next_wave(&mut self) -> Vec<usize> {
        let is_late = self.is_late(Instant::now());
        let Some(waves) = self.waves.as_mut().filter(|_| !is_late) else { return Vec::new() };
        let mut wave = waves.outlook(self.rounds, self.identity).next;
        wave.retain(|&candidate| self.rounds.is_left(candidate));
        self.rounds.admit(&wave);
        wave
    }

    /// One round of all that compete: what to compile next hangs on it.
    fn look(&mut self, warm: &WarmUp) -> Result<u32, Ended> {
        let (active, sampling, begin) = (self.active(), self.samplings(warm), Instant::now());
        let round = self.add_round(&active, &sampling).map(|(is_whole, _)| u32::from(is_whole));
        self.in_rounds += begin.elapsed();
        round
    }

    /// Does a part of the work.
    fn in_phase<T>(&mut self, phase: Phase, work: impl FnOnce(&mut Self) -> T) -> T {
        let _phase = self.events.open(Slice::Phase(phase));
        work(self)
    }

    fn measure_rounds(&mut self, sampling: &[Sampling]) -> Result<u32, Ended> {
        let begin = Instant::now();
        let mut measured = 0;
        // every restart takes at least one candidate out or uses up its second chance; disturbed rounds are measured again
        let is_short = self.is_exact || self.timer.measures_rounds();
        let most = self.options.rounds as usize * if is_short { 1 } else { MOST_ROUNDS };
        let mut attempts = most * 3 / 2 + 2 * self.job.candidates.len();
        let one_run_each = sampling.iter().fold(0, |sum: u64, sampling| sum.saturating_add(sampling.run_ns));
        let asked = u64::from(self.options.rounds).saturating_mul(one_run_each);
        let mut running_ns: u64 = 0;
        let (mut standing, mut failures) = (self.standing(), self.rounds.failures.len());
        loop {
            // in between the looks nobody leaves the race but who fails
            let count = self.rounds.count();
            if self.is_exact
                || is_look(count as usize)
                || count == self.options.rounds
                || failures != self.rounds.failures.len()
            {
                (standing, failures) = (self.standing(), self.rounds.failures.len());
            }
            let active = standing.contenders.clone();
            // where no other config can run here, the baseline is measured for its time; a search learns nothing from that
            let possible = count_possible(self.identity, self.rounds);
            let lone = active.len() < 2 && (possible > 1 || (self.is_exact && self.identity.distinct().len() > 1));
            let time = if standing.is_in_doubt {
                asked.saturating_mul(IN_DOUBT).max(IN_DOUBT_LEAST * LEAST_TIME_NS)
            } else {
                asked.max(if self.is_coarse(&standing) { COARSE_TIMES } else { 1 } * LEAST_TIME_NS)
            };
            let is_over = standing.rounds >= most || running_ns >= time;
            let enough = standing.rounds >= self.options.rounds as usize && is_over;
            let is_settled = match standing.settled {
                Some(Settled::Tied) => is_short || is_over || !self.is_coarse(&standing),
                settled => settled.is_some(),
            } && !self.is_exact;
            if is_settled || enough || lone || self.is_late(begin) || attempts == 0 {
                self.in_rounds += begin.elapsed();
                return Ok(measured);
            }
            attempts -= 1;
            let (is_whole, took) = self.add_round(&active, sampling)?;
            running_ns = running_ns.saturating_add(took);
            measured += u32::from(is_whole);
        }
    }

    /// Measures a round and notes it in the log. Returns whether nothing failed in it, and for how long programs ran,
    /// nanoseconds.
    fn add_round(&mut self, active: &[usize], sampling: &[Sampling]) -> Result<(bool, u64), Ended> {
        let (base_epoch, first_epoch) = self.epochs;
        let epoch = base_epoch.saturating_add(self.timer.epoch().saturating_sub(first_epoch));
        let round = self.rounds.next_round();
        let slice = self.events.open(Slice::Round { number: u64::from(round) + 1, contenders: active.len() });
        let (samples, fault) = self.one_round(active, sampling, round)?;
        drop(slice);
        let took = samples.iter().flat_map(|sample| &sample.ns).fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        if !samples.is_empty() {
            let source = self.timer.source();
            let record = RoundRecord { job: self.identity.digest, epoch, round, source, samples };
            self.ledger.append(&Record::Round(record.clone()))?;
            self.rounds.push(record);
            self.events.tell(Kind::Sampled { running_ns: took });
        }
        let is_whole = fault.is_none();
        match fault {
            None => {
                self.round_forgiven = false;
                let done = self.rounds.count();
                self.events.tell(Kind::Round { done, of: self.options.rounds, contenders: active.len() });
            }
            Some(Fault { candidate: Some(candidate), failure }) => self.blame(candidate, failure)?,
            Some(Fault { candidate: None, failure }) => self.find_culprit(failure)?,
        }
        Ok((is_whole, took))
    }

    /// Whether configs are left that are told apart only roughly.
    fn is_coarse(&self, standing: &Standing) -> bool {
        let others = standing.contenders.iter().filter(|&&candidate| candidate != self.identity.baseline);
        others.count() > 1 && standing.resolution > self.options.rules.min_improvement.max(COARSE)
    }

    /// Where the race stands after all rounds, those of earlier runs included.
    fn standing(&self) -> Standing {
        let rounds = self.rounds.to_decision(self.job.candidates.len(), self.identity.baseline);
        let rules = self.options.rules_for(&rounds, self.identity.baseline);
        race(&rounds, &self.rounds.competing(self.identity), self.identity.baseline, &rules)
    }

    /// Candidates that are neither out nor another one's program, the baseline included.
    pub(super) fn active(&self) -> Vec<usize> {
        self.standing().contenders
    }

    pub(super) fn check_cancelled(&self) -> Result<(), Ended> {
        if self.cancel.load(Ordering::Relaxed) { Err(Ended::Interrupted) } else { Ok(()) }
    }

    fn prepare_all(&mut self, order: &mut [usize]) -> Result<(), Ended> {
        // the baseline first: without it nothing can be decided
        order.sort_by_key(|&candidate| candidate != self.identity.baseline);
        if let Err(failure) = self.timer.expect(order) {
            // nobody knows which of them broke it: from here on they are loaded one by one
            self.restart(failure)?;
        }
        let before = self.tried;
        self.tried += order.len();
        let of = self.tried;
        for (done, &mut candidate) in order.iter_mut().enumerate() {
            self.check_cancelled()?;
            let _slice = self.slice_of(candidate);
            let mut outcome = self.prepare(candidate);
            if let Err(failure) = &outcome
                && failure.needs_restart()
            {
                // a compiler that dies is seen twice before the candidate is blamed
                self.restart(failure.clone())?;
                outcome = self.prepare(candidate);
            }
            match outcome {
                Ok(cost) => self.events.tell(Kind::Prepared { cost, done: before + done + 1, of }),
                // one candidate's missing handler is every candidate's: the worker is the wrong one
                Err(failure) if failure.kind == FailureKind::CustomCall => return Err(Ended::Failed(failure)),
                // no device, no room for files: nothing has run yet that could be to blame
                Err(failure) if failure.kind == FailureKind::Device => return Err(Ended::Failed(failure)),
                Err(failure) => self.blamed(candidate, self.identity.not_lowered.explain(candidate, failure))?,
            }
        }
        Ok(())
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        let prepared = self.timer.prepare(candidate);
        let failure = prepared.as_ref().err();
        self.events.tell(Kind::Called { candidate, method: Method::Prepare, failure });
        prepared
    }

    /// The baseline's time, its first runs left behind.
    fn warm_up_baseline(&mut self, warm: &mut WarmUp) -> Result<(), Ended> {
        let times = self.warm(self.identity.baseline, None)?;
        warm.best = times.into_iter().filter(|&ns| ns > 0).min();
        if let Some(place) = warm.fastest.get_mut(self.identity.baseline) {
            *place = warm.best;
        }
        self.timer.cut_off(warm.best.map(longest_run));
        Ok(())
    }

    /// Runs every other candidate of a wave that is still in it until its first runs are over.
    fn warm_up(&mut self, wave: &[usize], warm: &mut WarmUp) -> Result<(), Ended> {
        let active = self.active();
        for &candidate in wave.iter().filter(|&&candidate| candidate != self.identity.baseline) {
            if !active.contains(&candidate) {
                continue;
            }
            let own = self.warm(candidate, warm.best)?.into_iter().filter(|&ns| ns > 0).min();
            warm.best = [warm.best, own].into_iter().flatten().min();
            if let Some(place) = warm.fastest.get_mut(candidate) {
                *place = own;
            }
        }
        self.timer.cut_off(warm.best.map(longest_run));
        Ok(())
    }

    /// How each candidate is sampled.
    fn samplings(&self, warm: &WarmUp) -> Vec<Sampling> {
        let is_baseline = |candidate| candidate == self.identity.baseline;
        let fastest = warm.fastest.iter().enumerate();
        fastest.map(|(index, own)| self.sampling(*own, warm.best, is_baseline(index))).collect()
    }

    /// The first runs of one candidate; one far slower than the best so far is as warm as it need be.
    fn warm(&mut self, candidate: usize, best: Option<u64>) -> Result<Vec<u64>, Ended> {
        let whole = self.timer.measures_rounds();
        let count = if whole { PROFILED_WARM_UP } else { 1 };
        let mut times: Vec<u64> = Vec::new();
        let _slice = self.slice_of(candidate);
        loop {
            self.check_cancelled()?;
            let Some(more) = self.try_twice(candidate, |timer| timer.measure(candidate, count))? else { break };
            let none = more.is_empty();
            times.extend(more);
            let took = times.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
            let is_slow = |best| times.iter().all(|&ns| ns as f64 > self.options.rules.cut_off * best as f64);
            if none || whole || took > WARM_NS || best.is_some_and(is_slow) || is_stationary(&times) {
                break;
            }
        }
        Ok(times)
    }

    /// The same for all that can win, since the fastest of more runs is faster.
    fn sampling(&self, own: Option<u64>, best: Option<u64>, is_baseline: bool) -> Sampling {
        let (Some(own), Some(best)) = (own, best) else { return ONE_RUN };
        // every run with cold caches costs a flush, and a batch would warm them
        let is_cold = !self.options.cache_state.is_warm();
        let clock = self.timer.clock_resolution_ns().filter(|_| !is_cold).unwrap_or(0);
        let batch = clock.saturating_mul(CLOCK_PARTS).div_ceil(best).clamp(1, MAX_BATCH);
        // the machine may have been slower in the one's warm-up than in the other's
        if !is_baseline && own as f64 > self.options.rules.cut_off.powi(3) * best as f64 {
            return Sampling { runs: 1, batch: batch as u32, run_ns: 0 };
        }
        let runs = if self.timer.measures_rounds() && !is_cold {
            // what a profile costs does not grow with the runs in it
            self.options.sample_ns.div_ceil(best).clamp(u64::from(RUNS), u64::from(self.options.max_runs.max(RUNS)))
        } else {
            u64::from(RUNS)
        };
        Sampling { runs: runs as u32, batch: batch as u32, run_ns: own }
    }

    /// Measures each candidate once, in an order of its own for every round, between two samples of the baseline.
    fn one_round(
        &mut self,
        active: &[usize],
        sampling: &[Sampling],
        round: u32,
    ) -> Result<(Vec<CandidateSamples>, Option<Fault>), Ended> {
        let mut order = active.to_vec();
        shuffle(&mut order, self.options.seed, round);
        let baseline = self.identity.baseline;
        order.insert(0, baseline);
        order.push(baseline);
        let launches: Vec<(usize, Sampling)> =
            order.iter().map(|&candidate| (candidate, sampling.get(candidate).copied().unwrap_or(ONE_RUN))).collect();
        if self.timer.measures_rounds() {
            // the times of a profile are no differences of two looks at a clock
            let launches: Vec<_> =
                launches.into_iter().map(|(candidate, sampling)| (candidate, sampling.runs)).collect();
            return self.whole_round(&launches);
        }
        let mut samples = Vec::with_capacity(launches.len());
        for (candidate, Sampling { runs, batch, .. }) in launches {
            self.check_cancelled()?;
            let _slice = self.slice_of(candidate);
            let measured = match batch {
                0 | 1 => self.timer.measure(candidate, runs),
                _ => self.timer.measure_batches(candidate, runs, batch),
            };
            match measured {
                Ok(ns) => samples.push(CandidateSamples { candidate, ns }),
                Err(failure) => return Ok((samples, Some(Fault { candidate: Some(candidate), failure }))),
            }
        }
        Ok((samples, None))
    }

    /// The same under one profile.
    fn whole_round(&mut self, launches: &[(usize, u32)]) -> Result<(Vec<CandidateSamples>, Option<Fault>), Ended> {
        self.check_cancelled()?;
        match self.timer.measure_round(launches) {
            Ok(durations) => {
                let samples = launches.iter().zip(durations);
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

/// Fisher and Yates's shuffle by a generator that is the same on every machine and release.
fn shuffle(order: &mut [usize], seed: u64, round: u32) {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ (u64::from(round) << 32 | 0x726f_756e));
    for last in (1..order.len()).rev() {
        // the bias of a remainder over 2^64 is far below what an order can matter
        let chosen = (random.next_u64() % (last as u64 + 1)) as usize;
        order.swap(last, chosen);
    }
}
