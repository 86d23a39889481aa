//! Attributes failures to candidates and decides what continues.

use crate::failure::{Failure, FailureKind};
use crate::samples::{FailureRecord, LogRecord};
use crate::timer::events::{EventKind, Slice};
use crate::timer::{Timer, TimerExt};

use super::RaceError;
use super::contention::LoadPolicy;
use super::measuring::Measuring;
use super::stalls::Stalls;

/// Prefix of the reason when the baseline is dropped.
pub(crate) const BASELINE_FAILED: &str = "the baseline failed, so nothing can be compared with it: ";

impl Measuring<'_> {
    /// A round failed and the failing candidate is unknown: each candidate runs alone.
    pub(super) fn find_culprit(&mut self, failure: Failure) -> Result<(), RaceError> {
        if self.process.breaks(&failure) {
            self.restart(&failure)?;
        }
        let failed_before = self.evidence.failures.len();
        let _alone = self.process.events.open(Slice::Step("each candidate alone"));
        for candidate in self.active() {
            self.process.check_cancelled()?;
            let _slice = self.process.slice_of(candidate);
            self.try_twice(candidate, |timer| timer.run(candidate, 1))?;
        }
        // a round that fails although each candidate runs is tried once more, as a candidate is: two failures in a row
        // are no accident
        if self.evidence.failures.len() == failed_before && std::mem::replace(&mut self.forgiven.round, true) {
            return Err(RaceError::Failed(failure));
        }
        Ok(())
    }

    /// A call that failed in a round that began `before`: after a device error the worker is started again, the baseline run, and the
    /// candidate tried once more before it is blamed.
    pub(super) fn blame(
        &mut self,
        candidate: usize,
        failure: Failure,
        before: Option<Stalls>,
    ) -> Result<(), RaceError> {
        if !self.process.breaks(&failure) {
            return self.fail(candidate, failure);
        }
        if !self.forgive(candidate, &failure, before) {
            return self.blamed(candidate, failure);
        }
        self.restart(&failure)?;
        self.run_baseline()?;
        let _slice = self.process.slice_of(candidate);
        match self.process.timer.run(candidate, 1) {
            Ok(_) => Ok(()),
            Err(again) => self.blamed(candidate, again),
        }
    }

    /// A call outside the rounds, with the same second chance; `None` when the candidate is dropped.
    pub(super) fn try_twice<T>(
        &mut self,
        candidate: usize,
        mut call: impl FnMut(&mut dyn Timer) -> Result<T, Failure>,
    ) -> Result<Option<T>, RaceError> {
        let before = self.stalls();
        match call(self.process.timer) {
            Ok(value) => Ok(Some(value)),
            Err(failure) if self.process.breaks(&failure) && self.forgive(candidate, &failure, before) => {
                self.restart(&failure)?;
                if candidate != self.referee.identity.baseline {
                    self.run_baseline()?;
                }
                match call(self.process.timer) {
                    Ok(value) => Ok(Some(value)),
                    Err(again) => self.blamed(candidate, again).map(|()| None),
                }
            }
            Err(failure) => self.blamed(candidate, failure).map(|()| None),
        }
    }

    /// What processes waited up to now, if the machine may be looked at.
    pub(super) fn stalls(&self) -> Option<Stalls> {
        if self.referee.options.load == LoadPolicy::Ignore { None } else { Stalls::now() }
    }

    /// Whether a candidate may be tried once more. One that took too long may not if the machine kept nobody waiting
    /// meanwhile. The baseline always may: another candidate may have broken the worker in which it died.
    fn forgive(&mut self, candidate: usize, failure: &Failure, before: Option<Stalls>) -> bool {
        let hangs = failure.kind == FailureKind::Timeout && before.is_some_and(|before| before.were_few_since());
        let is_first = self.forgiven.candidates.insert(candidate);
        (is_first && !hangs) || candidate == self.referee.identity.baseline
    }

    pub(super) fn blamed(&mut self, candidate: usize, failure: Failure) -> Result<(), RaceError> {
        let broken = self.process.breaks(&failure).then(|| failure.clone());
        // logged before the restart: if the restart fails too, the next run must not try this candidate again
        let failed = self.fail(candidate, failure);
        let restarted = broken.map_or(Ok(()), |reason| self.restart(&reason));
        failed.and(restarted)
    }

    /// One run, to check the fresh worker. Its death is forgiven once, as a candidate's is.
    fn run_baseline(&mut self) -> Result<(), RaceError> {
        let baseline = self.referee.identity.baseline;
        let slice = self.process.slice_of(baseline);
        let mut measured = self.process.timer.run(baseline, 1);
        drop(slice);
        if let Err(failure) = &measured
            && failure.kind == FailureKind::Crash
        {
            self.restart(failure)?;
            let _slice = self.process.slice_of(baseline);
            measured = self.process.timer.run(baseline, 1);
        }
        measured.map(drop).map_err(|failure| {
            let message = format!("the baseline fails in a fresh worker too: {}", failure.message);
            RaceError::Failed(Failure::new(failure.kind, message))
        })
    }

    /// Starts another worker, without the candidates that were dropped or that share another one's code.
    pub(super) fn restart(&mut self, reason: &Failure) -> Result<(), RaceError> {
        let without: Vec<usize> = self.evidence.failures.keys().chain(self.evidence.same.keys()).copied().collect();
        self.process.restart(reason, &without)?;
        self.watch_cores();
        Ok(())
    }

    pub(super) fn fail(&mut self, candidate: usize, failure: Failure) -> Result<(), RaceError> {
        if failure.kind == FailureKind::Device && candidate == self.referee.identity.baseline {
            // the environment failed, not a program: it is not stored, because the next run may succeed
            return Err(RaceError::Failed(failure));
        }
        let config = self.process.config(candidate);
        self.process.events.tell(EventKind::Failed { candidate, config: &config, failure: &failure });
        self.ledger.append(&LogRecord::Failed(FailureRecord {
            job: self.referee.identity.digest,
            candidate,
            failure: failure.clone(),
        }))?;
        self.evidence.failures.insert(candidate, failure);
        if candidate == self.referee.identity.baseline { Err(self.baseline_failed()) } else { Ok(()) }
    }

    pub(super) fn baseline_failed(&self) -> RaceError {
        let failure = self.evidence.failures.get(&self.referee.identity.baseline).cloned();
        let failure = failure.unwrap_or_else(|| Failure::new(FailureKind::Execute, "it gave no outputs"));
        let message = format!("{BASELINE_FAILED}{}", failure.message);
        RaceError::Failed(Failure::new(failure.kind, message))
    }
}
