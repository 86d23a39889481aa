//! `--profile-every N`: some of a run's profiles, put where TensorBoard, xprof and `autotune-lowered profile` look for them.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::answers::OutputArray;
use super::model::{Job, Prepared, Timer};
use super::phases::{Phase, Phases, now_ns};
use super::profiled::ProfiledRound;
use crate::array::ArraySpec;
use crate::device::DeviceFingerprint;
use crate::failure::Failure;
use crate::measured_by::{Metric, Source};
use crate::whole_file::write_whole;

/// A timer of whose profiles one in so many is kept as a run of a log folder: `plugins/profile/RUN/HOST.xplane.pb`.
///
/// They are to be looked at, so a profile that cannot be kept costs a warning and nothing else, and no decision is made from them
/// again; [`KeepingTimer`](super::KeepingTimer) keeps what that takes. Each gets one more plane: what was done for its operation until
/// then, from the calls that pass through here.
pub struct FollowingTimer {
    timer: Box<dyn Timer>,
    runs: PathBuf,
    every: u64,
    most: usize,
    /// Candidates that ran under a profile so far.
    candidates: u64,
    /// What this run wrote and did not remove.
    kept: VecDeque<PathBuf>,
    of_job: String,
    phases: Phases,
    has_warned: bool,
    has_warned_of_clock: bool,
}

impl FollowingTimer {
    /// Keeps a timer's profiles of the first candidate that runs and of every `every`-th after it, the newest `most` of them.
    pub fn new(timer: Box<dyn Timer>, folder: &Path, every: u64, most: usize) -> io::Result<Self> {
        let runs = folder.join("plugins/profile");
        fs::create_dir_all(&runs)?;
        Ok(Self {
            timer,
            runs,
            every,
            most,
            candidates: 0,
            kept: VecDeque::new(),
            of_job: String::new(),
            phases: Phases::default(),
            has_warned: false,
            has_warned_of_clock: false,
        })
    }

    /// Counts a round's candidates, and keeps its profile where one of them is the first or an N-th after it.
    fn follow(&mut self, round: &ProfiledRound, launches: &[(usize, u32)]) {
        let before = self.candidates;
        self.candidates = before.saturating_add(launches.len() as u64);
        let every = self.every.max(1);
        let is_due = before.div_ceil(every).saturating_mul(every) < self.candidates;
        if !is_due {
            return;
        }
        let Some(source) = round.bytes() else { return };
        let plane = self.phases.plane(round, launches);
        if plane.is_none() && !std::mem::replace(&mut self.has_warned_of_clock, true) {
            tracing::warn!(
                "the profiles that are kept do not say when they were taken: they hold no phases of the run"
            );
        }
        if let Err(error) = source.and_then(|source| self.keep(source, &plane.unwrap_or_default()))
            && !std::mem::replace(&mut self.has_warned, true)
        {
            tracing::warn!("a profile could not be kept in `{}`: {error}; the run goes on", self.runs.display());
        }
    }

    fn keep(&mut self, mut source: impl Read, plane: &[u8]) -> io::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // names sort by time, which is how readers find the newest run
        let run = self.runs.join(format!("tune-{}-{:06}-{}", since.as_nanos(), self.candidates, self.of_job));
        fs::create_dir(&run)?;
        let path = run.join(format!("{}.xplane.pb", host()));
        // a capture's planes are fields of one message: one more follows them
        let written = write_whole(&path, |file| {
            io::copy(&mut source, file)?;
            file.write_all(plane)
        });
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&run);
            return Err(error);
        }
        self.kept.push_back(run);
        while self.kept.len() > self.most {
            if let Some(oldest) = self.kept.pop_front() {
                fs::remove_dir_all(oldest)?;
            }
        }
        Ok(())
    }

    /// Makes a call, and notes when that was.
    fn noted<T>(
        &mut self,
        (phase, candidate): (Phase, Option<usize>),
        call: impl FnOnce(&mut dyn Timer) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let start_ns = now_ns();
        let done = call(&mut *self.timer);
        self.phases.note(phase, candidate, start_ns, done.as_ref().err());
        done
    }
}

fn host() -> String {
    plain(&rustix::system::uname().nodename().to_string_lossy())
}

/// Letters, digits, `-`, `_` and `.`: a part of a name on every system.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name.chars().take(64).map(|c| if is_plain(c) { c } else { '_' }).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

impl Timer for FollowingTimer {
    fn name(&self) -> &str {
        self.timer.name()
    }

    fn source(&self) -> Source {
        self.timer.source()
    }

    fn metric(&self) -> Metric {
        self.timer.metric()
    }

    fn notes(&self) -> &[String] {
        self.timer.notes()
    }

    fn clock_resolution_ns(&self) -> Option<u64> {
        self.timer.clock_resolution_ns()
    }

    fn device(&self) -> &DeviceFingerprint {
        self.timer.device()
    }

    fn builds_programs(&self) -> bool {
        self.timer.builds_programs()
    }

    fn has_one_job_a_call(&self) -> bool {
        self.timer.has_one_job_a_call()
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.of_job = plain(&format!("{}-{}", job.call.op_id, job.call.call_key));
        self.phases = Phases::of(job);
        self.noted((Phase::Inputs, None), |timer| timer.begin(job))
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<Vec<ArraySpec>>, Failure> {
        self.timer.signature(candidate)
    }

    fn expect(&mut self, candidates: &[usize]) -> Result<(), Failure> {
        self.noted((Phase::Compile, None), |timer| timer.expect(candidates))
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        self.noted((Phase::Compile, Some(candidate)), |timer| timer.prepare(candidate))
    }

    fn measure(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        self.measure_round(&[(candidate, runs)]).map(|mut durations| durations.pop().unwrap_or_default())
    }

    fn cut_off(&mut self, longest_run: Option<Duration>) {
        self.timer.cut_off(longest_run);
    }

    fn measures_rounds(&self) -> bool {
        self.timer.measures_rounds()
    }

    fn measure_round(&mut self, launches: &[(usize, u32)]) -> Result<Vec<Vec<u64>>, Failure> {
        Ok(self.profile_round(launches)?.durations(&self.metric()))
    }

    fn profile_round(&mut self, launches: &[(usize, u32)]) -> Result<ProfiledRound, Failure> {
        let phase = self.phases.of_launches(launches);
        let round = self.noted(phase, |timer| timer.profile_round(launches))?;
        self.follow(&round, launches);
        Ok(round)
    }

    fn outputs(&mut self, candidate: usize) -> Result<Vec<OutputArray>, Failure> {
        self.noted((Phase::CompareOutputs, Some(candidate)), |timer| timer.outputs(candidate))
    }

    fn epoch(&self) -> u32 {
        self.timer.epoch()
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.noted((Phase::Restart, None), |timer| timer.restart(without))
    }

    fn end(&mut self) {
        self.timer.end();
    }
}
