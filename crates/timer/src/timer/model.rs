//! The interface between the tuner and a timer.

use std::time::Duration;

use super::answers::OutputArray;
use super::compiler_figures::CompilerFigures;
use super::events::Events;
use super::forecast::Forecast;
use super::job::{Job, Prepared, ProgramFile};
use super::profiled::ProfiledRound;
use super::protocol::{ComparedOutput, DeviceMemory, KeptOutput, MAX_RUNS, Signature};
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

    /// What counts as an execution's duration.
    fn metric(&self) -> Metric {
        Metric::Elapsed
    }

    /// How samples are taken if the caches are in this state before each run.
    fn measured_by(&self, cache_state: &CacheState) -> MeasuredBy {
        MeasuredBy::new(self.name(), self.source())
            .metric(self.metric())
            .cache_state(cache_state.clone())
            .launch(gpu_launch(&self.device().identity.platform, &self.device().environment.xla_flags))
            .clocks(self.clocks())
            .compiler(self.device().environment.compiler())
    }

    /// Memory of its device before the first job; `None` if it is not reported, as for a CPU.
    fn device_memory(&self) -> Option<DeviceMemory> {
        None
    }

    /// The clock limits of its GPU; `None` if not reported.
    fn clocks(&self) -> Option<Clocks> {
        None
    }

    /// The clocks of its GPU during the measurement, for people; `None` if not reported.
    fn clocks_seen(&self) -> Option<String> {
        None
    }

    /// Remarks for the user, one line each: which clock the times come from and why, for instance.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// The resolution of the samples' clock, nanoseconds: the larger of its step and the cost of reading it. `None` if
    /// it is unknown, or if no clock is read around a run, as for durations from profiles.
    fn clock_resolution_ns(&self) -> Option<u64> {
        None
    }

    /// The cost of compiling programs; `None` if it is unknown.
    fn forecast(&self, _programs: &[ProgramFile]) -> Option<Forecast> {
        None
    }

    /// What a compiler without the device reported about a program; `None` if that is unknown.
    fn compiler_figures(&self, _program: &Program) -> Option<CompilerFigures> {
        None
    }

    /// Why a compiler without the device refused a program; `None` if it did not, if that is unknown, or if it must be
    /// found out here.
    fn refused(&self, _program: &ProgramFile) -> Option<String> {
        None
    }

    /// The device that samples come from.
    fn device(&self) -> &DeviceFingerprint;

    /// Whether it compiles programs in processes that do not measure, so that these may have options of their own
    /// ([`Build::process`](super::Build::process)).
    fn takes_process_options(&self) -> bool {
        false
    }

    /// How many devices of its kind there are here, including that one, if it knows: a program of several partitions
    /// runs on that device and on those after it.
    fn device_count(&self) -> Option<usize> {
        None
    }

    /// Whether it builds the program of a config by itself, so that configs without a recorded program can be tried.
    fn builds_programs(&self) -> bool {
        false
    }

    /// Whether it can have only one job per call, because its inputs or outputs are stored by call: no other job can be
    /// started to search for configs.
    fn has_one_job_a_call(&self) -> bool {
        false
    }

    /// Another timer of the same device, whose job may be open beside this one's. It measures in its own process and
    /// compiles in the same pool. The owner of both measures with one at a time and compiles with neither meanwhile.
    fn beside(&self) -> Option<Box<dyn Timer>> {
        None
    }

    /// Whether compilation may continue during [`outputs`](Self::outputs): nothing is timed then.
    fn compiles_beside_outputs(&self) -> bool {
        false
    }

    /// Makes it emit events from now on: profiles that it took, and work besides the calls themselves.
    fn follow(&mut self, _events: &Events) {}

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
    fn signature(&mut self, _candidate: usize) -> Result<Option<Signature>, Failure> {
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
    /// If the candidate has no program, it does not compile or load, it takes other inputs than the job's, or the worker fails.
    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure>;

    /// Runs a loaded candidate `runs` times; one duration in nanoseconds for each, launch to completion.
    ///
    /// # Errors
    /// If the program fails, takes longer than its limit, or breaks the worker.
    fn measure(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure>;

    /// Takes `samples` durations, nanoseconds, each the mean of `batch` consecutive runs: for candidates too fast for
    /// the clock. A timer that cannot time several runs together takes the mean of single ones.
    ///
    /// # Errors
    /// As [`measure`](Self::measure), and if `samples` times `batch` is more than a timer runs.
    fn measure_batches(&mut self, candidate: usize, samples: u32, batch: u32) -> Result<Vec<u64>, Failure> {
        let runs = runs_of_batches(samples, batch)?;
        Ok(means(&self.measure(candidate, runs)?, batch))
    }

    /// Until the next [`begin`](Self::begin), a run that takes longer is abandoned as a failure of kind `timeout`.
    /// `None` keeps the configured limits.
    fn cut_off(&mut self, _longest_run: Option<Duration>) {}

    /// Whether [`measure_round`](Self::measure_round) takes a whole round in one go.
    fn measures_rounds(&self) -> bool {
        false
    }

    /// Runs several candidates, each the given number of times, under one profile; their durations in the order of the
    /// launches. On a failure it is unknown which launch is to blame.
    ///
    /// # Errors
    /// As [`measure`](Self::measure), and if the profile cannot be read or shows other runs.
    fn measure_round(&mut self, launches: &[(usize, u32)]) -> Result<Vec<Vec<u64>>, Failure> {
        launches.iter().map(|&(candidate, runs)| self.measure(candidate, runs)).collect()
    }

    /// The same, with everything that the profile says about the launches.
    ///
    /// # Errors
    /// As [`measure_round`](Self::measure_round), and if the timer takes no profiles.
    fn profile_round(&mut self, _launches: &[(usize, u32)]) -> Result<ProfiledRound, Failure> {
        Err(Failure::new(FailureKind::Device, format!("the timer `{}` takes no profiles", self.name())))
    }

    /// Runs a loaded candidate once. Its outputs are files in the job's scratch folder, which exist as long as the
    /// result does.
    ///
    /// # Errors
    /// If the program fails, its outputs cannot be written, or the worker fails.
    fn outputs(&mut self, candidate: usize) -> Result<Vec<OutputArray>, Failure>;

    /// Whether outputs were compared when the samples were taken, and what differed then fails here: a replay of profiles,
    /// which hold no outputs.
    fn compared_before(&self) -> bool {
        false
    }

    /// Whether [`keep_outputs`](Self::keep_outputs) keeps outputs that are large enough.
    fn compares_outputs(&self) -> bool {
        false
    }

    /// Runs a loaded candidate once and keeps its outputs in place, for [`compare_outputs`](Self::compare_outputs).
    /// `None` if they take at most that many bytes together, or if the timer cannot keep any; use
    /// [`outputs`](Self::outputs) then.
    ///
    /// # Errors
    /// As [`outputs`](Self::outputs).
    fn keep_outputs(&mut self, _candidate: usize, _above: u64) -> Result<Option<Vec<KeptOutput>>, Failure> {
        Ok(None)
    }

    /// Runs a loaded candidate once and compares its outputs with the kept ones, each within its tolerance.
    ///
    /// # Errors
    /// As [`outputs`](Self::outputs), and if none are kept.
    fn compare_outputs(
        &mut self,
        _candidate: usize,
        _tolerances: &[Tolerance],
    ) -> Result<Vec<ComparedOutput>, Failure> {
        Err(Failure::new(FailureKind::Protocol, format!("the timer `{}` keeps no outputs", self.name())))
    }

    /// Number of measuring workers started so far; samples of different epochs are never paired.
    fn epoch(&self) -> u32;

    /// Ends the measuring worker, starts another and loads what was prepared again, except `without`.
    ///
    /// # Errors
    /// If no worker starts, or it fails to begin the job again. A candidate that it can no longer load fails when it is
    /// measured.
    fn restart(&mut self, without: &[usize]) -> Result<(), Failure>;

    /// Ends the job: candidates and inputs are dropped.
    fn end(&mut self);
}

/// How often a candidate runs for this many batches, if allowed.
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
