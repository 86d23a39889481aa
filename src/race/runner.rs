//! What races run on.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{LARGE_OUTPUTS, RaceError};
use crate::array::ArraySpec;
use crate::failure::{Failure, FailureKind};
use crate::ledger::Ledger;
use crate::measure::{Inputs, Preflight};
use crate::timer::events::Events;
use crate::timer::{Job, ProgramSignature, Timer};

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

    /// The inputs and outputs of a candidate of a job whose inputs are not made yet; what is compiled for that serves
    /// the same job later.
    pub(crate) fn signature(&mut self, job: &Job, candidate: usize) -> Result<Option<ProgramSignature>, Failure> {
        self.timer.begin(job)?;
        self.timer.signature(candidate)
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

/// What the inputs of a race need on so many devices, and what the outputs need if the programs report them.
pub(crate) fn preflight(timer: &dyn Timer, inputs: &Inputs, results: Option<&[ArraySpec]>, devices: u64) -> Preflight {
    let files_up_to = if timer.info().can.compare_outputs { LARGE_OUTPUTS } else { u64::MAX };
    let preflight = inputs.preflight.clone();
    let preflight = match results {
        Some(results) => preflight.with_outputs(results, files_up_to),
        None => preflight,
    };
    preflight.on_device(timer.info().device_memory, devices)
}

/// The failure of a timer that does not know the inputs of a module.
pub(crate) fn no_signature(timer: &dyn Timer) -> Failure {
    let message = format!("the timer `{}` does not report the module's inputs", timer.info().name);
    Failure::new(FailureKind::Signature, message)
}
