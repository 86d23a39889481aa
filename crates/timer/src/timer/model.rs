//! The interface between the tuner and a timer.

use std::time::Duration;

use super::answers::OutputArray;
use super::compiler_figures::CompilerFigures;
use super::events::Events;
use super::forecast::Forecast;
use super::info::TimerInfo;
use super::job::{Job, Prepared, ProgramFile};
use super::measured::{CandidateRuns, OutputsAs, RoundRequest, RoundSamples, TakenOutputs};
use super::protocol::ProgramSignature;
use crate::failure::Failure;
use crate::registry::Program;

/// Times candidates of one job at a time.
///
/// The order of calls: [`begin`](Self::begin), [`prepare`](Self::prepare) for each candidate,
/// [`measure`](Self::measure) and [`outputs`](Self::outputs) in any order, [`end`](Self::end). After a failure that
/// [needs a restart](Failure::needs_restart), [`restart`](Self::restart) loads what was prepared before into a fresh
/// worker (except `without`) and the epoch grows.
///
/// The kind of a [`Failure`] says what failed: the candidate's program, the worker or the device.
pub trait Timer: Send {
    /// What it is and can do.
    fn info(&self) -> &TimerInfo;

    /// Makes it emit events from now on: profiles that it took, and work besides the calls themselves.
    fn follow(&mut self, _events: &Events) {}

    /// The cost of compiling programs; `None` if it is unknown.
    fn forecast(&self, _programs: &[ProgramFile]) -> Option<Forecast> {
        None
    }

    /// What a compiler without the device found out about a program. Its file is asked for only if the program may have
    /// been refused.
    fn foreknown(&self, _program: &Program, _file: &dyn Fn() -> Option<ProgramFile>) -> Foreknown {
        Foreknown::default()
    }

    /// Another timer of the same device, whose job may be open beside this one's. It measures in its own process and
    /// compiles in the same pool. The owner of both measures with one at a time and compiles with neither meanwhile.
    fn beside(&self) -> Option<Box<dyn Timer>> {
        None
    }

    /// Starts a job: inputs are loaded. A job before it ends.
    ///
    /// # Errors
    /// If an input cannot be loaded, the worker cannot provide the job's cache state, or the worker fails.
    fn begin(&mut self, job: &Job) -> Result<(), Failure>;

    /// The inputs and outputs of a candidate's program, if known, for a caller that makes the inputs afterwards. The
    /// current job need not have any.
    ///
    /// # Errors
    /// If the program cannot be read or compiled, or the worker fails.
    fn signature(&mut self, _candidate: usize) -> Result<Option<ProgramSignature>, Failure> {
        Ok(None)
    }

    /// Says which candidates will be prepared, in this order, so that a timer may compile several at once. A failure of
    /// one of them shows only when it is prepared.
    ///
    /// # Errors
    /// If the worker fails.
    fn expect(&mut self, _candidates: &[usize]) -> Result<(), Failure> {
        Ok(())
    }

    /// Compiles a candidate, or takes its stored executable, and loads it beside the others.
    ///
    /// # Errors
    /// If the candidate has no program, it does not compile or load, it takes other inputs than the job's, or the
    /// worker fails.
    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure>;

    /// Runs loaded candidates one after the other, as a round asks. On a failure of a round that is measured in one go,
    /// it is unknown which launch is to blame.
    ///
    /// # Errors
    /// If a program fails, takes longer than its limit, or breaks the worker; if more runs are asked for than a timer
    /// runs; if a profile is asked for and cannot be taken or read, or shows other runs.
    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure>;

    /// Until the next [`begin`](Self::begin), a run that takes longer is abandoned as a failure of kind `timeout`.
    /// `None` keeps the configured limits.
    fn cut_off(&mut self, _longest_run: Option<Duration>) {}

    /// Runs a loaded candidate once and takes its outputs: as files in the job's scratch folder, which exist as long as
    /// the result does, or in place. A timer that keeps none answers with files.
    ///
    /// # Errors
    /// If the program fails, its outputs cannot be written, none are kept to compare with, or the worker fails.
    fn outputs(&mut self, candidate: usize, taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure>;

    /// Ends the measuring worker, starts another and loads what was prepared again, except `without`.
    ///
    /// # Errors
    /// If no worker starts, or it fails to begin the job again. A candidate that it can no longer load fails when it is
    /// measured.
    fn restart(&mut self, without: &[usize]) -> Result<(), Failure>;

    /// Ends the job: candidates and inputs are dropped.
    fn end(&mut self);
}

/// What a compiler without the device found out about a program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Foreknown {
    /// What it reported; `None` if that is unknown.
    pub figures: Option<CompilerFigures>,
    /// Why it refused the program; `None` if it did not, if that is unknown, or if it must be found out here.
    pub refused: Option<String>,
}

/// Short forms of what a timer is asked for most.
pub trait TimerExt: Timer {
    /// Runs a loaded candidate so many times; one duration in nanoseconds for each, launch to completion.
    ///
    /// # Errors
    /// As [`Timer::measure`].
    fn run(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        self.run_batches(candidate, runs, 1)
    }

    /// Takes samples of a loaded candidate, nanoseconds, each the mean of `batch` consecutive runs.
    ///
    /// # Errors
    /// As [`Timer::measure`].
    fn run_batches(&mut self, candidate: usize, samples: u32, batch: u32) -> Result<Vec<u64>, Failure> {
        let samples = self.measure(&RoundRequest::new(vec![CandidateRuns { candidate, samples, batch }]))?;
        Ok(samples.durations_ns.into_iter().next().unwrap_or_default())
    }

    /// Runs a loaded candidate once; its outputs as files.
    ///
    /// # Errors
    /// As [`Timer::outputs`].
    fn output_files(&mut self, candidate: usize) -> Result<Vec<OutputArray>, Failure> {
        self.outputs(candidate, OutputsAs::Files)?.into_files()
    }
}

impl<T: Timer + ?Sized> TimerExt for T {}
