//! Collects a round: each competing candidate once, in one measuring process.

use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::RaceError;
use super::contention::{CONTENDED, LoadPolicy};
use super::measuring::Measuring;
use super::sampling::{ONE_RUN, Sampling};
use crate::decision::wants_bracket;
use crate::failure::Failure;
use crate::samples::{CandidateSamples, LogRecord, RoundRecord};
use crate::timer::events::{EventKind, Slice};
use crate::timer::{CandidateRuns, RoundRequest, TimerExt};

/// Number of recent rounds that decide whether the next one has the baseline at its ends.
const RECENT: usize = 32;

/// A failure inside a round, and the candidate that was launched, if known.
pub(super) struct RoundFault {
    candidate: Option<usize>,
    pub(super) failure: Failure,
}

impl Measuring<'_> {
    /// Measures a round and writes it to the log. Returns whether nothing failed in it.
    pub(super) fn add_round(&mut self, active: &[usize], sampling: &[Sampling]) -> Result<bool, RaceError> {
        let epoch = self.process.epoch();
        let round = self.evidence.next_round();
        let contenders = active.len();
        let slice = self.process.events.open(Slice::Round { number: u64::from(round) + 1, contenders });
        let (begin, before) = (Instant::now(), self.stalls());
        let (samples, fault) = self.one_round(active, sampling, round)?;
        let (of_cores, of_device) = (self.watch.since(begin), self.device_use());
        let contention = of_cores.into_iter().chain(of_device).reduce(f64::max);
        let contended = contention.filter(|used| *used >= CONTENDED);
        if let Some(used) = contended {
            self.process.events.tell(EventKind::Contended { used, of_device: of_device == contention });
        }
        drop(slice);
        let took = samples.iter().flat_map(|sample| &sample.ns).fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        self.spent.running = self.spent.running.saturating_add(Duration::from_nanos(took));
        if !samples.is_empty() {
            let source = self.process.timer.info().source.clone();
            let programs = self.evidence.take_unlogged();
            let record = RoundRecord::new(self.referee.identity.digest, epoch, round, source, samples)
                .programs(programs)
                .confirming(self.is_confirming())
                .contention(contention);
            self.ledger.append(&LogRecord::Round(record.clone()))?;
            self.evidence.push(record);
            if !self.is_confirming() {
                self.process.events.tell(EventKind::Sampled { running_ns: took });
            }
        }
        let is_whole = fault.is_none();
        if contended.is_some() {
            self.wait_for_quiet();
        }
        match fault {
            None if self.is_confirming() => self.forgiven.round = false,
            None => {
                self.forgiven.round = false;
                let done = self.evidence.count();
                let (of, is_most) = (self.referee.options.usual_rounds(), self.referee.options.rounds.is_some());
                self.process.events.tell(EventKind::Round { done, of, is_most, contenders });
            }
            Some(RoundFault { candidate: Some(candidate), failure }) => self.blame(candidate, failure, before)?,
            Some(RoundFault { candidate: None, failure }) => self.find_culprit(failure)?,
        }
        Ok(is_whole)
    }

    /// The part of the device's time that other processes used, if it is known and wanted.
    fn device_use(&self) -> Option<f64> {
        self.process.timer.info().others_use.filter(|_| self.referee.options.load != LoadPolicy::Ignore)
    }

    /// Waits for others to leave the cores or the device, unless the load is what is measured.
    fn wait_for_quiet(&mut self) {
        let options = self.referee.options;
        if options.load == LoadPolicy::Wait && options.quiet.is_left() {
            let of_device = self.device_use().is_some_and(|used| used >= CONTENDED);
            if options.quiet.is_unused() {
                self.process.events.tell(EventKind::Ahead(match of_device {
                    true => "other processes use the device: waiting for them to end (`--wait-for-quiet`)",
                    false => "other processes use the cores: waiting for them to end (`--wait-for-quiet`)",
                }));
            }
            let _waiting = self.process.events.open(Slice::Step("wait for a quiet machine"));
            let process = &self.process;
            let is_cancelled = || process.check_cancelled().is_err();
            match of_device {
                // only the next round tells
                true => options.quiet.pause(is_cancelled),
                false => {
                    self.watch.wait_for_quiet(&options.quiet, is_cancelled);
                }
            }
        }
    }

    /// Measures each candidate once, in a new random order every round, between two samples of the baseline if due.
    fn one_round(
        &mut self,
        active: &[usize],
        sampling: &[Sampling],
        round: u32,
    ) -> Result<(Vec<CandidateSamples>, Option<RoundFault>), RaceError> {
        let mut order = active.to_vec();
        shuffle(&mut order, self.referee.options.seed, round);
        let baseline = self.referee.identity.baseline;
        let recent = self.evidence.recent_to_decision(RECENT, self.process.job.candidates.len(), baseline);
        let terms = self.referee.terms;
        if !terms.no_sentinels && (terms.is_exact || wants_bracket(&recent)) {
            order.insert(0, baseline);
            order.push(baseline);
        }
        let launches: Vec<(usize, Sampling)> =
            order.iter().map(|&candidate| (candidate, sampling.get(candidate).copied().unwrap_or(ONE_RUN))).collect();
        if self.process.timer.info().can.measure_rounds {
            // a profile's times are not differences of two clock readings
            let launches: Vec<_> =
                launches.into_iter().map(|(candidate, sampling)| (candidate, sampling.runs)).collect();
            return self.whole_round(&launches);
        }
        let mut samples = Vec::with_capacity(launches.len());
        for (candidate, Sampling { runs, batch, .. }) in launches {
            self.process.check_cancelled()?;
            let _slice = self.process.slice_of(candidate);
            match self.process.timer.run_batches(candidate, runs, batch.max(1)) {
                Ok(ns) => samples.push(CandidateSamples { candidate, ns }),
                Err(failure) => return Ok((samples, Some(RoundFault { candidate: Some(candidate), failure }))),
            }
        }
        Ok((samples, None))
    }

    /// The same under one profile.
    pub(super) fn whole_round(
        &mut self,
        launches: &[(usize, u32)],
    ) -> Result<(Vec<CandidateSamples>, Option<RoundFault>), RaceError> {
        self.process.check_cancelled()?;
        let runs = launches.iter().map(|&(candidate, runs)| CandidateRuns::new(candidate, runs));
        match self.process.timer.measure(&RoundRequest::new(runs.collect())) {
            Ok(measured) => {
                let samples = launches.iter().zip(measured.durations_ns);
                Ok((samples.map(|(&(candidate, _), ns)| CandidateSamples { candidate, ns }).collect(), None))
            }
            Err(failure) => Ok((Vec::new(), Some(RoundFault { candidate: None, failure }))),
        }
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
