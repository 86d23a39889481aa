//! What races run on.

use std::sync::atomic::{AtomicBool, Ordering};

use super::RaceError;
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::timer::events::Events;
use crate::timer::{Job, Timer};

/// What races run on: a device's timer, the log that keeps their samples, the user's wish to end, and who is told.
pub struct Runner<'a> {
    /// The timer.
    pub timer: &'a mut dyn Timer,
    /// Where samples go.
    pub ledger: &'a Ledger,
    /// Set from outside to end the race.
    pub cancel: &'a AtomicBool,
    /// The event sink.
    pub events: &'a Events,
}

impl<'a> Runner<'a> {
    /// Races on a timer.
    pub fn new(timer: &'a mut dyn Timer, ledger: &'a Ledger, cancel: &'a AtomicBool, events: &'a Events) -> Self {
        Self { timer, ledger, cancel, events }
    }

    /// The same for a while.
    pub fn borrowed(&mut self) -> Runner<'_> {
        Runner { timer: &mut *self.timer, ledger: self.ledger, cancel: self.cancel, events: self.events }
    }

    /// The same with another event sink.
    pub(crate) fn telling<'b>(&'b mut self, events: &'b Events) -> Runner<'b> {
        Runner { events, ..self.borrowed() }
    }

    /// Whether the user ended it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), RaceError> {
        if self.is_cancelled() { Err(RaceError::Interrupted) } else { Ok(()) }
    }

    /// Begins a job whose candidates run once each, outside a race, and lets all of them compile.
    pub(crate) fn begin(&mut self, job: &Job) -> Result<(), RaceError> {
        self.timer.begin(job).map_err(RaceError::Failed)?;
        let order: Vec<usize> = (0..job.candidates.len()).collect();
        // it is unknown which of them broke it: from here on they are compiled one by one
        if self.timer.expect(&order).is_err() { self.start_fresh_process() } else { Ok(()) }
    }

    /// Compiles and runs a candidate. If it breaks the worker, starts it again without the candidate.
    pub(crate) fn run_once<T>(
        &mut self,
        candidate: usize,
        call: impl FnOnce(&mut dyn Timer) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let outputs = self.timer.prepare(candidate).and_then(|_| call(self.timer));
        if outputs.as_ref().is_err_and(Failure::needs_restart) {
            self.timer.restart(&[candidate])?;
        }
        outputs
    }

    /// Replaces the measuring process: the next rounds have another memory layout.
    pub(crate) fn start_fresh_process(&mut self) -> Result<(), RaceError> {
        self.timer.restart(&[]).map_err(RaceError::Failed)
    }
}
