//! Measuring one job: compile, compare outputs, warm up, then interleaved rounds, with the blame for failures put where
//! it belongs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::array::{Tolerance, compare_bytes, element_text};
use crate::samples::{CandidateSamples, FailureRecord, Record, RoundRecord};
use crate::timer::{Failure, FailureKind, Job, OutputArray, Timer};

use super::job::JobIdentity;
use super::rounds::JobRounds;
use super::{Event, Ledger, TuneError, TuneOptions};

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
pub(super) struct Measuring<'a, 'e> {
    pub(super) timer: &'a mut dyn Timer,
    pub(super) ledger: &'a Ledger,
    pub(super) options: &'a TuneOptions,
    pub(super) cancel: &'a AtomicBool,
    pub(super) on_event: &'a mut (dyn FnMut(Event<'_>) + 'e),
    pub(super) identity: &'a JobIdentity,
    pub(super) job: &'a Job,
    pub(super) rounds: &'a mut JobRounds,
    /// Candidates that had their second chance: one that breaks a worker now and then is out, however fast it is.
    pub(super) forgiven: BTreeSet<usize>,
    /// Whether a round without a culprit was tried again before.
    pub(super) round_forgiven: bool,
}

impl Measuring<'_, '_> {
    /// Measures until every candidate that is not out has its rounds. Returns the rounds measured here.
    pub(super) fn run(&mut self) -> Result<u32, Ended> {
        self.timer.begin(self.job).map_err(Ended::Failed)?;
        let measured = self.run_begun();
        self.timer.end();
        measured
    }

    fn run_begun(&mut self) -> Result<u32, Ended> {
        self.prepare_all()?;
        self.compare_outputs()?;
        let runs = self.warm_up()?;
        let base_epoch = self.rounds.next_epoch();
        let first_epoch = self.timer.epoch();
        let mut measured = 0;
        // every restart takes at least one candidate out or uses up its second chance
        let mut attempts = self.options.rounds as usize + 2 * self.job.candidates.len();
        loop {
            let active = self.active();
            let done = self.rounds.complete(&active);
            let lone = active.len() < 2 && self.identity.distinct().len() > 1;
            if done >= self.options.rounds || lone || attempts == 0 {
                return Ok(measured);
            }
            attempts -= 1;
            let epoch = base_epoch.saturating_add(self.timer.epoch().saturating_sub(first_epoch));
            let round = self.rounds.next_round();
            let (samples, fault) = self.one_round(&active, &runs, round)?;
            if !samples.is_empty() {
                let source = self.timer.source().to_string();
                let record = RoundRecord { job: self.identity.digest, epoch, round, source, samples };
                self.ledger.append(&Record::Round(record.clone()))?;
                self.rounds.push(record);
            }
            match fault {
                None => {
                    measured += 1;
                    (self.on_event)(Event::Round { done: done + 1, of: self.options.rounds });
                }
                Some(Fault { candidate: Some(candidate), failure }) => self.blame(candidate, failure)?,
                Some(Fault { candidate: None, failure }) => self.find_culprit(failure)?,
            }
        }
    }

    /// The baseline and every candidate with a program of its own that is not out.
    fn active(&self) -> Vec<usize> {
        self.identity.distinct().into_iter().filter(|candidate| !self.rounds.failures.contains_key(candidate)).collect()
    }

    fn check_cancelled(&self) -> Result<(), Ended> {
        if self.cancel.load(Ordering::Relaxed) { Err(Ended::Interrupted) } else { Ok(()) }
    }

    fn prepare_all(&mut self) -> Result<(), Ended> {
        let mut order = self.active();
        // the baseline first: without it nothing can be decided
        order.sort_by_key(|&candidate| candidate != self.identity.baseline);
        let of = order.len();
        if let Err(failure) = self.timer.expect(&order) {
            // nobody knows which of them broke it: from here on they are loaded one by one
            self.restart(failure)?;
        }
        for (done, candidate) in order.into_iter().enumerate() {
            self.check_cancelled()?;
            let mut outcome = self.timer.prepare(candidate);
            if let Err(failure) = &outcome
                && failure.needs_restart()
            {
                // a compiler that dies is seen twice before the candidate is blamed
                self.restart(failure.clone())?;
                outcome = self.timer.prepare(candidate);
            }
            match outcome {
                Ok(prepared) => {
                    let config = self.config(candidate);
                    (self.on_event)(Event::Prepared { config: &config, done: done + 1, of, reused: prepared.reused });
                }
                // one candidate's missing handler is every candidate's: the worker is the wrong one
                Err(failure) if failure.kind == FailureKind::CustomCall => return Err(Ended::Failed(failure)),
                // no device, no room for files: nothing has run yet that could be to blame
                Err(failure) if failure.kind == FailureKind::Device => return Err(Ended::Failed(failure)),
                Err(failure) => self.blamed(candidate, failure)?,
            }
        }
        Ok(())
    }

    /// Takes candidates out whose outputs are not the baseline's.
    fn compare_outputs(&mut self) -> Result<(), Ended> {
        let baseline = self.identity.baseline;
        let reference = match self.try_twice(baseline, |timer| timer.outputs(baseline))? {
            Some(outputs) => outputs,
            None => return Err(self.baseline_failed()),
        };
        let reference: Vec<(OutputArray, Vec<u8>)> = reference
            .into_iter()
            .map(|output| std::fs::read(&output.path).map(|bytes| (output, bytes)))
            .collect::<Result<_, _>>()
            .map_err(|error| {
                let message = format!("the baseline's outputs cannot be read: {error}");
                Ended::Failed(Failure::new(FailureKind::Device, message))
            })?;
        // where the baseline's files had room a candidate's have it too: none is blamed for a full disk
        for (output, _) in &reference {
            let _ = std::fs::remove_file(&output.path);
        }
        for candidate in self.active() {
            if candidate == baseline {
                continue;
            }
            self.check_cancelled()?;
            let Some(outputs) = self.try_twice(candidate, |timer| timer.outputs(candidate))? else { continue };
            if let Some(difference) = first_difference(&outputs, &reference) {
                self.fail(candidate, Failure::new(FailureKind::WrongOutput, difference))?;
            }
            for output in outputs {
                let _ = std::fs::remove_file(output.path);
            }
        }
        Ok(())
    }

    /// Runs every candidate twice and returns how many runs of each make a sample long enough.
    fn warm_up(&mut self) -> Result<Vec<u32>, Ended> {
        let mut runs = vec![1; self.job.candidates.len()];
        for candidate in self.active() {
            self.check_cancelled()?;
            let times = self.try_twice(candidate, |timer| timer.measure(candidate, 2))?;
            let shortest = times.into_iter().flatten().filter(|&ns| ns > 0).min();
            if let (Some(shortest), Some(runs)) = (shortest, runs.get_mut(candidate)) {
                let wanted =
                    self.options.sample_ns.div_ceil(shortest).clamp(1, u64::from(self.options.max_runs.max(1)));
                *runs = wanted as u32;
            }
        }
        Ok(runs)
    }

    /// Measures each candidate once, in an order of its own for every round.
    fn one_round(
        &mut self,
        active: &[usize],
        runs: &[u32],
        round: u32,
    ) -> Result<(Vec<CandidateSamples>, Option<Fault>), Ended> {
        let mut order = active.to_vec();
        shuffle(&mut order, self.options.seed, round);
        if self.timer.measures_rounds() {
            return self.whole_round(&order, runs);
        }
        let mut samples = Vec::with_capacity(order.len());
        for candidate in order {
            self.check_cancelled()?;
            let runs = runs.get(candidate).copied().unwrap_or(1);
            match self.timer.measure(candidate, runs) {
                Ok(ns) => samples.push(CandidateSamples { candidate, ns }),
                Err(failure) => return Ok((samples, Some(Fault { candidate: Some(candidate), failure }))),
            }
        }
        Ok((samples, None))
    }

    /// The same under one profile.
    fn whole_round(&mut self, order: &[usize], runs: &[u32]) -> Result<(Vec<CandidateSamples>, Option<Fault>), Ended> {
        self.check_cancelled()?;
        let launches: Vec<(usize, u32)> =
            order.iter().map(|&candidate| (candidate, runs.get(candidate).copied().unwrap_or(1))).collect();
        match self.timer.measure_round(&launches) {
            Ok(durations) => {
                let samples = order.iter().zip(durations).map(|(&candidate, ns)| CandidateSamples { candidate, ns });
                Ok((samples.collect(), None))
            }
            Err(failure) => Ok((Vec::new(), Some(Fault { candidate: None, failure }))),
        }
    }

    /// A round failed and nobody knows whose launch it was: each candidate is run alone.
    fn find_culprit(&mut self, failure: Failure) -> Result<(), Ended> {
        if failure.needs_restart() {
            self.restart(failure.clone())?;
        }
        let failed_before = self.rounds.failures.len();
        for candidate in self.active() {
            self.check_cancelled()?;
            self.try_twice(candidate, |timer| timer.measure(candidate, 1))?;
        }
        // a round that fails although each candidate runs is given one more try, as a candidate is
        if self.rounds.failures.len() == failed_before && std::mem::replace(&mut self.round_forgiven, true) {
            return Err(Ended::Failed(failure));
        }
        Ok(())
    }

    /// A call that failed in a round: after a device error the worker is started again, the baseline run, and the
    /// candidate tried once more before it is blamed.
    fn blame(&mut self, candidate: usize, failure: Failure) -> Result<(), Ended> {
        if !failure.needs_restart() {
            return self.fail(candidate, failure);
        }
        if !self.forgive(candidate) {
            return self.blamed(candidate, failure);
        }
        self.restart(failure)?;
        self.run_baseline()?;
        match self.timer.measure(candidate, 1) {
            Ok(_) => Ok(()),
            Err(again) => self.blamed(candidate, again),
        }
    }

    /// A call outside the rounds, with the same second chance; `None` when the candidate is out.
    fn try_twice<T>(
        &mut self,
        candidate: usize,
        mut call: impl FnMut(&mut dyn Timer) -> Result<T, Failure>,
    ) -> Result<Option<T>, Ended> {
        match call(self.timer) {
            Ok(value) => Ok(Some(value)),
            Err(failure) if failure.needs_restart() && self.forgive(candidate) => {
                self.restart(failure)?;
                if candidate != self.identity.baseline {
                    self.run_baseline()?;
                }
                match call(self.timer) {
                    Ok(value) => Ok(Some(value)),
                    Err(again) => self.blamed(candidate, again).map(|()| None),
                }
            }
            Err(failure) => self.blamed(candidate, failure).map(|()| None),
        }
    }

    /// Whether a candidate may be tried once more. The baseline always may: another candidate may have broken the
    /// worker that it then died in.
    fn forgive(&mut self, candidate: usize) -> bool {
        self.forgiven.insert(candidate) || candidate == self.identity.baseline
    }

    fn blamed(&mut self, candidate: usize, failure: Failure) -> Result<(), Ended> {
        let broken = failure.needs_restart().then(|| failure.clone());
        // in the log before the restart: where that fails too, the next run must not try this candidate again
        let failed = self.fail(candidate, failure);
        let restarted = broken.map_or(Ok(()), |reason| self.restart(reason));
        failed.and(restarted)
    }

    fn run_baseline(&mut self) -> Result<(), Ended> {
        let baseline = self.identity.baseline;
        self.timer.measure(baseline, 1).map(drop).map_err(|failure| {
            let message = format!("the baseline fails in a fresh worker too: {}", failure.message);
            Ended::Failed(Failure::new(failure.kind, message))
        })
    }

    /// Another worker, without the candidates that are out.
    fn restart(&mut self, reason: Failure) -> Result<(), Ended> {
        (self.on_event)(Event::Restarted { reason: &reason });
        let without: Vec<usize> = self.rounds.failures.keys().copied().collect();
        self.timer.restart(&without).map_err(Ended::Failed)
    }

    fn fail(&mut self, candidate: usize, failure: Failure) -> Result<(), Ended> {
        if failure.kind == FailureKind::Device && candidate == self.identity.baseline {
            // trouble around the programs, not in them: it is not kept, the next run may do better
            return Err(Ended::Failed(failure));
        }
        let config = self.config(candidate);
        (self.on_event)(Event::Failed { config: &config, failure: &failure });
        self.ledger.append(&Record::Failed(FailureRecord {
            job: self.identity.digest,
            candidate,
            kind: failure.kind.to_string(),
            message: failure.message.clone(),
        }))?;
        self.rounds.failures.insert(candidate, failure);
        if candidate == self.identity.baseline { Err(self.baseline_failed()) } else { Ok(()) }
    }

    fn baseline_failed(&self) -> Ended {
        let failure = self.rounds.failures.get(&self.identity.baseline).cloned();
        let failure = failure.unwrap_or_else(|| Failure::new(FailureKind::Execute, "it gave no outputs"));
        let message = format!("the baseline failed, so nothing can be compared with it: {}", failure.message);
        Ended::Failed(Failure::new(failure.kind, message))
    }

    fn config(&self, candidate: usize) -> crate::config::Config {
        let config = self.job.candidates.get(candidate).map(|candidate| candidate.config.clone());
        config.unwrap_or_else(|| crate::config::Config::new(serde_json::Map::new()))
    }
}

/// What the first differing output is, in one phrase.
fn first_difference(outputs: &[OutputArray], reference: &[(OutputArray, Vec<u8>)]) -> Option<String> {
    if outputs.len() != reference.len() {
        return Some(format!("{} outputs, the baseline has {}", outputs.len(), reference.len()));
    }
    outputs.iter().zip(reference).enumerate().find_map(|(index, (output, (expected, reference)))| {
        if output.spec != expected.spec {
            return Some(format!("output {index} is `{}`, the baseline's is `{}`", output.spec, expected.spec));
        }
        let bytes = match std::fs::read(&output.path) {
            Ok(bytes) => bytes,
            Err(error) => return Some(format!("output {index} cannot be read: {error}")),
        };
        let found = compare_bytes(&output.spec, &bytes, reference, Tolerance::for_dtype(output.spec.dtype));
        (!found.matches).then(|| {
            let text = |bytes: &[u8], at| element_text(&output.spec, bytes, at).unwrap_or_else(|| "nothing".to_owned());
            let first = found.first.map_or_else(String::new, |at| {
                format!(", first at element {at}: {}, the baseline's is {}", text(&bytes, at), text(reference, at))
            });
            // nothing finite differs where one of the two is no number
            let most = match found.max_absolute {
                0.0 => String::new(),
                most => format!(" by up to {most:.3e}"),
            };
            format!("output {index} differs from the baseline's in {} elements{most}{first}", found.mismatches)
        })
    })
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
