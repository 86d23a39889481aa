//! Attributes failures to candidates and decides what continues.

use crate::failure::{Failure, FailureKind};
use crate::samples::{FailureRecord, Record};
use crate::timer::events::{Kind, Open, Slice};
use crate::timer::{Timer, TimerExt};

use super::measure::{Aborted, Measuring};

/// Prefix of the reason when the baseline is dropped.
pub(crate) const BASELINE_FAILED: &str = "the baseline failed, so nothing can be compared with it: ";

impl<'a> Measuring<'a> {
    /// Opens the slice of the work on a candidate.
    pub(super) fn slice_of(&self, candidate: usize) -> Open<'a> {
        let config = self.job.candidates.get(candidate).map(|candidate| &candidate.config);
        self.events.open(Slice::Candidate { number: candidate, config })
    }

    /// A round failed and the failing candidate is unknown: each candidate runs alone.
    pub(super) fn find_culprit(&mut self, failure: Failure) -> Result<(), Aborted> {
        if self.breaks(&failure) {
            self.restart(failure.clone())?;
        }
        let failed_before = self.rounds.failures.len();
        let _alone = self.events.open(Slice::Step("each candidate alone"));
        for candidate in self.active() {
            self.check_cancelled()?;
            let _slice = self.slice_of(candidate);
            self.try_twice(candidate, |timer| timer.run(candidate, 1))?;
        }
        // a round that fails although each candidate runs is tried once more, as a candidate is: two failures in a row
        // are no accident
        if self.rounds.failures.len() == failed_before && std::mem::replace(&mut self.round_forgiven, true) {
            return Err(Aborted::Failed(failure));
        }
        Ok(())
    }

    /// A call that failed in a round: after a device error the worker is started again, the baseline run, and the
    /// candidate tried once more before it is blamed.
    pub(super) fn blame(&mut self, candidate: usize, failure: Failure) -> Result<(), Aborted> {
        if !self.breaks(&failure) {
            return self.fail(candidate, failure);
        }
        if !self.forgive(candidate) {
            return self.blamed(candidate, failure);
        }
        self.restart(failure)?;
        self.run_baseline()?;
        let _slice = self.slice_of(candidate);
        match self.timer.run(candidate, 1) {
            Ok(_) => Ok(()),
            Err(again) => self.blamed(candidate, again),
        }
    }

    /// A call outside the rounds, with the same second chance; `None` when the candidate is dropped.
    pub(super) fn try_twice<T>(
        &mut self,
        candidate: usize,
        mut call: impl FnMut(&mut dyn Timer) -> Result<T, Failure>,
    ) -> Result<Option<T>, Aborted> {
        match call(self.timer) {
            Ok(value) => Ok(Some(value)),
            Err(failure) if self.breaks(&failure) && self.forgive(candidate) => {
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

    /// Whether the worker is unusable after this. On a CPU, a program that reports an error leaves its process intact.
    pub(super) fn breaks(&self, failure: &Failure) -> bool {
        let is_program_error =
            failure.kind == FailureKind::Execute && self.timer.info().device.identity.platform == "cpu";
        failure.needs_restart() && !is_program_error
    }

    /// Whether a candidate may be tried once more. The baseline always may: another candidate may have broken the
    /// worker in which it died.
    fn forgive(&mut self, candidate: usize) -> bool {
        self.forgiven.insert(candidate) || candidate == self.identity.baseline
    }

    pub(super) fn blamed(&mut self, candidate: usize, failure: Failure) -> Result<(), Aborted> {
        let broken = self.breaks(&failure).then(|| failure.clone());
        // logged before the restart: if the restart fails too, the next run must not try this candidate again
        let failed = self.fail(candidate, failure);
        let restarted = broken.map_or(Ok(()), |reason| self.restart(reason));
        failed.and(restarted)
    }

    /// One run, to check the fresh worker. Its death is forgiven once, as a candidate's is.
    fn run_baseline(&mut self) -> Result<(), Aborted> {
        let baseline = self.identity.baseline;
        let slice = self.slice_of(baseline);
        let mut measured = self.timer.run(baseline, 1);
        drop(slice);
        if let Err(failure) = &measured
            && failure.kind == FailureKind::Crash
        {
            self.restart(failure.clone())?;
            let _slice = self.slice_of(baseline);
            measured = self.timer.run(baseline, 1);
        }
        measured.map(drop).map_err(|failure| {
            let message = format!("the baseline fails in a fresh worker too: {}", failure.message);
            Aborted::Failed(Failure::new(failure.kind, message))
        })
    }

    /// Starts another worker, without the candidates that were dropped or that share another one's code.
    pub(super) fn restart(&mut self, reason: Failure) -> Result<(), Aborted> {
        let _restarting = self.events.open(Slice::Restart(&reason));
        let without: Vec<usize> = self.rounds.failures.keys().chain(self.rounds.same.keys()).copied().collect();
        self.timer.restart(&without).map_err(Aborted::Failed)
    }

    pub(super) fn fail(&mut self, candidate: usize, failure: Failure) -> Result<(), Aborted> {
        if failure.kind == FailureKind::Device && candidate == self.identity.baseline {
            // the environment failed, not a program: it is not stored, because the next run may succeed
            return Err(Aborted::Failed(failure));
        }
        let config = self.config(candidate);
        self.events.tell(Kind::Failed { candidate, config: &config, failure: &failure });
        self.ledger.append(&Record::Failed(FailureRecord {
            job: self.identity.digest,
            candidate,
            failure: failure.clone(),
        }))?;
        self.rounds.failures.insert(candidate, failure);
        if candidate == self.identity.baseline { Err(self.baseline_failed()) } else { Ok(()) }
    }

    pub(super) fn baseline_failed(&self) -> Aborted {
        let failure = self.rounds.failures.get(&self.identity.baseline).cloned();
        let failure = failure.unwrap_or_else(|| Failure::new(FailureKind::Execute, "it gave no outputs"));
        let message = format!("{BASELINE_FAILED}{}", failure.message);
        Aborted::Failed(Failure::new(failure.kind, message))
    }
}
