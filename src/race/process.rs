//! The measuring process of a race: the only part of it that talks to the timer.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{RaceError, Runner};
use crate::config::Config;
use crate::failure::{Failure, FailureKind};
use crate::timer::events::{Events, OpenSlice, Slice};
use crate::timer::{Job, Timer};

/// The process that measures a job, one after the other if it has to be started again.
pub(super) struct Process<'a> {
    pub(super) timer: &'a mut dyn Timer,
    pub(super) job: &'a Job,
    pub(super) events: &'a Events,
    cancel: &'a AtomicBool,
    /// The epoch of the first one, in the evidence and of the timer.
    first: (u32, u32),
}

impl<'a> Process<'a> {
    pub(super) fn new(runner: Runner<'a>, job: &'a Job) -> Self {
        let Runner { timer, cancel, events, .. } = runner;
        Self { timer, job, events, cancel, first: (0, 0) }
    }

    /// Loads the job's inputs. The process gets this epoch in the evidence.
    pub(super) fn begin(&mut self, epoch: u32) -> Result<(), Failure> {
        self.timer.begin(self.job)?;
        self.first = (epoch, self.timer.info().epoch);
        Ok(())
    }

    /// Its number among all processes that measured the job.
    pub(super) fn epoch(&self) -> u32 {
        let (epoch, of_timer) = self.first;
        epoch.saturating_add(self.timer.info().epoch.saturating_sub(of_timer))
    }

    /// Starts another one, without these candidates.
    pub(super) fn restart(&mut self, reason: &Failure, without: &[usize]) -> Result<(), RaceError> {
        let _restarting = self.events.open(Slice::Restart(reason));
        self.timer.restart(without).map_err(RaceError::Failed)
    }

    /// Whether the worker is unusable after this. On a CPU, a program that reports an error leaves its process intact.
    pub(super) fn breaks(&self, failure: &Failure) -> bool {
        let is_program_error =
            failure.kind == FailureKind::Execute && self.timer.info().device.identity.platform == "cpu";
        failure.needs_restart() && !is_program_error
    }

    pub(super) fn check_cancelled(&self) -> Result<(), RaceError> {
        if self.cancel.load(Ordering::Relaxed) { Err(RaceError::Interrupted) } else { Ok(()) }
    }

    /// Opens the slice of the work on a candidate.
    pub(super) fn slice_of(&self, candidate: usize) -> OpenSlice<'a> {
        let config = self.job.candidates.get(candidate).map(|candidate| &candidate.config);
        self.events.open(Slice::Candidate { number: candidate, config })
    }

    pub(super) fn config(&self, candidate: usize) -> Config {
        let config = self.job.candidates.get(candidate).map(|candidate| candidate.config.clone());
        config.unwrap_or_else(|| Config::new(serde_json::Map::new()))
    }
}
