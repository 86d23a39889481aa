//! The contract between the tuner and whatever times a candidate.

use std::time::Duration;

use super::answers::OutputArray;
use super::events::Events;
use super::forecast::Forecast;
use super::job::{Job, Prepared, ProgramFile};
use super::profiled::ProfiledRound;
use super::protocol::{ComparedOutput, KeptOutput, MAX_RUNS, Signature};
use super::said::Said;
use crate::array::Tolerance;
use crate::device::{DeviceFingerprint, gpu_launch};
use crate::failure::{Failure, FailureKind};
use crate::measured_by::{CacheState, Clocks, MeasuredBy, Metric, Source};
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
    /// Name as in `--timer`: `pjrt`, `command:…`, `replay:…`.
    fn name(&self) -> &str;

    /// The clock of every sample of this timer.
    fn source(&self) -> Source;

    /// What of an execution is its duration.
    fn metric(&self) -> Metric {
        Metric::Elapsed
    }

    /// How samples are taken where runs find the caches in this state.
    fn measured_by(&self, cache_state: &CacheState) -> MeasuredBy {
        MeasuredBy::new(self.name(), self.source())
            .metric(self.metric())
            .cache_state(cache_state.clone())
            .launch(gpu_launch(&self.device().identity.platform, &self.device().environment.xla_flags))
            .clocks(self.clocks())
            .compiler(self.device().environment.compiler())
    }

    /// How fast its GPU may run; `None` if nobody reports it.
    fn clocks(&self) -> Option<Clocks> {
        None
    }

    /// How fast its GPU ran as it was measured, for the reader; `None` if nobody reports it.
    fn clocks_seen(&self) -> Option<String> {
        None
    }

    /// Things that the user should know, one line each: why times come from where they do, for instance.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// What the clock of the samples can tell, nanoseconds: the larger of its step and of what reading it costs. `None`
    /// where that is not known, or where no clock is read around a run: durations from profiles have none.
    fn clock_resolution_ns(&self) -> Option<u64> {
        None
    }

    /// What compiling programs would take; `None` if that is not known.
    fn forecast(&self, _programs: &[ProgramFile]) -> Option<Forecast> {
        None
    }

    /// What a compiler said of a program where the device was not; `None` if that is not known.
    fn said(&self, _program: &Program) -> Option<Said> {
        None
    }

    /// Why a compiler refused a program where the device was not; `None` if it did not, where that is not known, or where it must be
    /// found out here.
    fn refused(&self, _program: &ProgramFile) -> Option<String> {
        None
    }

    /// The device that samples come from.
    fn device(&self) -> &DeviceFingerprint;

    /// How many devices of its kind there are here, that one included, if it knows: a program of several partitions runs
    /// on that device and on those after it.
    fn device_count(&self) -> Option<usize> {
        None
    }

    /// Whether it builds the program of a config by itself, so that configs without a recorded program can be tried.
    fn builds_programs(&self) -> bool {
        false
    }

    /// Whether it can have one job of each call only, since what it reads or writes is kept by calls: no other can be started
    /// to search for configs.
    fn has_one_job_a_call(&self) -> bool {
        false
    }

    /// Another timer of the same device, whose job may be open beside this one's. It measures in a process of its own and compiles
    /// in the same pool, so whoever has both measures with one of them at a time and compiles with neither meanwhile.
    fn beside(&self) -> Option<Box<dyn Timer>> {
        None
    }

    /// Whether [`outputs`](Self::outputs) lets continue what compiles: nothing is timed then.
    fn compiles_beside_outputs(&self) -> bool {
        false
    }

    /// Tells what it does there from now on: profiles that it took, and whatever takes it time besides the calls themselves.
    fn follow(&mut self, _events: &Events) {}

    /// Starts a job: inputs are loaded. A job before it ends.
    ///
    /// # Errors
    /// If an input cannot be loaded, the worker knows nothing of the job's state of the caches, or the worker fails.
    fn begin(&mut self, job: &Job) -> Result<(), Failure>;

    /// What a candidate's program takes and gives, if the timer knows: for one who makes the inputs afterwards. The job at
    /// hand need not have any.
    ///
    /// # Errors
    /// If the program cannot be read or compiled, or the worker fails.
    fn signature(&mut self, _candidate: usize) -> Result<Option<Signature>, Failure> {
        Ok(None)
    }

    /// Says which candidates will be prepared, in this order, so that a timer may compile several at once. No failure of
    /// one of them shows before it is prepared.
    ///
    /// # Errors
    /// If the worker fails.
    fn expect(&mut self, _candidates: &[usize]) -> Result<(), Failure> {
        Ok(())
    }

    /// Compiles a candidate, or takes its kept executable, and loads it beside the others.
    ///
    /// # Errors
    /// If the candidate has no program, it does not compile or load, it takes other inputs than the job's, or the worker fails.
    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure>;

    /// Runs a loaded candidate `runs` times; one duration in nanoseconds for each, launch to completion.
    ///
    /// # Errors
    /// If the program fails, takes longer than its limit, or breaks the worker.
    fn measure(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure>;

    /// Takes `samples` durations, nanoseconds, each the mean of `batch` runs that follow each other: for candidates so fast
    /// that the clock cannot tell one run. A timer that cannot time several runs together takes the mean of single ones.
    ///
    /// # Errors
    /// As [`measure`](Self::measure), and where `samples` times `batch` is more than a timer runs.
    fn measure_batches(&mut self, candidate: usize, samples: u32, batch: u32) -> Result<Vec<u64>, Failure> {
        let runs = runs_of_batches(samples, batch)?;
        Ok(means(&self.measure(candidate, runs)?, batch))
    }

    /// From now on and until the next [`begin`](Self::begin), a run that takes longer need not be awaited: it is a failure of
    /// kind `timeout`. `None` leaves the limits as they were set up.
    fn cut_off(&mut self, _longest_run: Option<Duration>) {}

    /// Whether [`measure_round`](Self::measure_round) takes a whole round in one go.
    fn measures_rounds(&self) -> bool {
        false
    }

    /// Runs several candidates, each so often, under one profile; their durations in the order of the launches. On a
    /// failure nobody knows which launch is to blame.
    ///
    /// # Errors
    /// As [`measure`](Self::measure), and where the profile cannot be read or shows other runs.
    fn measure_round(&mut self, launches: &[(usize, u32)]) -> Result<Vec<Vec<u64>>, Failure> {
        launches.iter().map(|&(candidate, runs)| self.measure(candidate, runs)).collect()
    }

    /// The same, with everything that the profile says about the launches.
    ///
    /// # Errors
    /// As [`measure_round`](Self::measure_round), and where the timer takes no profiles.
    fn profile_round(&mut self, _launches: &[(usize, u32)]) -> Result<ProfiledRound, Failure> {
        Err(Failure::new(FailureKind::Device, format!("the timer `{}` takes no profiles", self.name())))
    }

    /// Runs a loaded candidate once. Its outputs are files in the job's scratch folder, there as long as the result is.
    ///
    /// # Errors
    /// If the program fails, its outputs cannot be written, or the worker fails.
    fn outputs(&mut self, candidate: usize) -> Result<Vec<OutputArray>, Failure>;

    /// Whether [`keep_outputs`](Self::keep_outputs) keeps outputs that are large enough.
    fn compares_outputs(&self) -> bool {
        false
    }

    /// Runs a loaded candidate once and keeps its outputs where they are, for [`compare_outputs`](Self::compare_outputs); `None` where
    /// they take no more than so many bytes together, or the timer cannot keep any: then [`outputs`](Self::outputs) has them.
    ///
    /// # Errors
    /// As [`outputs`](Self::outputs).
    fn keep_outputs(&mut self, _candidate: usize, _above: u64) -> Result<Option<Vec<KeptOutput>>, Failure> {
        Ok(None)
    }

    /// Runs a loaded candidate once and compares its outputs with those that are kept, each within its tolerance.
    ///
    /// # Errors
    /// As [`outputs`](Self::outputs), and where none are kept.
    fn compare_outputs(
        &mut self,
        _candidate: usize,
        _tolerances: &[Tolerance],
    ) -> Result<Vec<ComparedOutput>, Failure> {
        Err(Failure::new(FailureKind::Protocol, format!("the timer `{}` keeps no outputs", self.name())))
    }

    /// Counts the measuring workers started so far; samples of different epochs are never paired.
    fn epoch(&self) -> u32;

    /// Ends the measuring worker, starts another and loads again what was prepared, leaving `without` out.
    ///
    /// # Errors
    /// If no worker starts, or it fails to begin the job again. What it cannot load any more fails when it is measured.
    fn restart(&mut self, without: &[usize]) -> Result<(), Failure>;

    /// Ends the job: candidates and inputs are dropped.
    fn end(&mut self);
}

/// How often a candidate runs for so many batches, where that is allowed.
pub(crate) fn runs_of_batches(samples: u32, batch: u32) -> Result<u32, Failure> {
    let runs = samples.checked_mul(batch).filter(|&runs| batch > 0 && runs <= MAX_RUNS);
    runs.ok_or_else(|| {
        let message = format!("{samples} batches of {batch} runs: 1 to {MAX_RUNS} runs in all can be asked for");
        Failure::new(FailureKind::Protocol, message)
    })
}

/// The mean of each `batch` durations, rounded.
pub(crate) fn means(durations: &[u64], batch: u32) -> Vec<u64> {
    let count = batch.max(1);
    let mean = |chunk: &[u64]| {
        let sum: u128 = chunk.iter().copied().map(u128::from).sum();
        let count = chunk.len() as u128;
        u64::try_from((sum + count / 2) / count).unwrap_or(u64::MAX)
    };
    durations.chunks(count as usize).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_and_give_their_means() {
        assert_eq!(runs_of_batches(20, 500).unwrap(), MAX_RUNS);
        for (samples, batch) in [(20, 501), (1, 0), (u32::MAX, 2)] {
            assert!(runs_of_batches(samples, batch).unwrap_err().message.contains("1 to 10000 runs"));
        }
        assert_eq!(means(&[10, 20, 31, 40, u64::MAX, u64::MAX], 2), [15, 36, u64::MAX]);
        assert_eq!(means(&[7, 8], 1), [7, 8]);
    }
}
