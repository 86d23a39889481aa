//! `replay:FILE`: replays recorded samples in the same order. No process, no clock, no randomness.
//!
//! The file is one JSON object:
//!
//! ```json
//! {
//!   "schema": 1,
//!   "device": { "identity": { "platform": "cpu", "device_kind": "cpu", "hardware": {} }, "environment": {} },
//!   "invocations": [
//!     {
//!       "op_id": "matmul@v1",
//!       "call_key": "0123456789abcdef",
//!       "direction": "forward",
//!       "candidates": [
//!         { "config": { "block": 64 }, "compile_ns": 1000, "epochs": [[900, 910], [880, 890]],
//!           "outputs": [{ "spec": "f32[2]", "hex": "0000803f00000040" }] },
//!         { "config": { "block": 128 }, "epochs": [[700]],
//!           "failures": [{ "in": "measure", "kind": "crash", "message": "died", "after": 2, "times": 1 }] }
//!       ]
//!     }
//!   ]
//! }
//! ```
//!
//! * A candidate is found by operation, call key, direction (`forward` by default) and config.
//! * `epochs` holds a list of samples, nanoseconds, for each worker epoch; the last one serves all later epochs. A
//!   list is read from its start in each epoch, and again from its start when it is used up.
//! * A failure replaces a call of `prepare`, `measure` or `outputs`: after `after` calls of that method that
//!   succeeded (0 by default), counted over the job, and `times` times (forever by default). One that breaks a
//!   worker (`crash`, `timeout`, `memory`, `protocol`, `execute`, `device`) makes every call fail until
//!   [`restart`](Timer::restart), as it would with a process.
//! * `outputs` are dense little-endian bytes in hexadecimal digits; none by default.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::calls::{RecordedCalls, RecordedFailure, RecordedMethod, ends_worker};
use super::json_file;
use crate::array::ArraySpec;
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::failure::{Failure, FailureKind};
use crate::hlo::Cost;
use crate::measured_by::Source;
use crate::timer::answers::OutputArray;
use crate::timer::info::TimerInfo;
use crate::timer::job::{Job, Prepared, find, scratch};
use crate::timer::measured::{OutputsAs, RoundRequest, RoundSamples, TakenOutputs};
use crate::timer::model::Timer;

/// The schema that this program reads.
const SCHEMA: u32 = 1;
/// Maximum size of the file.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// What to do about a file that is not a recording.
const NEXT: &str = "give recorded samples, or a folder of profiles that `--keep-profiles` made";

/// A file of recorded samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Recording {
    /// Version of this form: 1.
    pub schema: u32,
    /// The device that the samples come from.
    pub device: DeviceFingerprint,
    /// What was measured.
    pub invocations: Vec<RecordedInvocation>,
}

/// The recorded candidates of one invocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedInvocation {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// What the programs compute.
    #[serde(default = "forward")]
    pub direction: Direction,
    /// The measurements of each config.
    pub candidates: Vec<RecordedCandidate>,
}

fn forward() -> Direction {
    Direction::Forward
}

/// The recording of one candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedCandidate {
    /// Its config.
    pub config: Config,
    /// Time of its compilation, nanoseconds.
    #[serde(default)]
    pub compile_ns: u64,
    /// Temporary bytes of a run (neither arguments nor results).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_bytes: Option<u64>,
    /// The work of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Cost>,
    /// Samples of each worker epoch, nanoseconds.
    #[serde(default)]
    pub epochs: Vec<Vec<u64>>,
    /// Calls that fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<RecordedFailure>,
    /// Its outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<RecordedOutput>,
}

/// A recorded output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedOutput {
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// Its bytes.
    pub hex: String,
}

/// Replays recorded samples.
#[derive(Debug)]
pub struct ReplayTimer {
    info: TimerInfo,
    recording: Recording,
    broken: bool,
    job: Option<Job>,
    loaded: BTreeSet<usize>,
    /// Position in a candidate's samples of this epoch.
    read: BTreeMap<usize, usize>,
    calls: RecordedCalls,
}

impl ReplayTimer {
    /// Opens a recording.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is not a recording.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let recording = json_file::read(path, "recording of samples", NEXT, MAX_FILE_BYTES)?;
        let mut timer = Self::new(recording).map_err(|failure| json_file::wrong(path, failure.message))?;
        timer.info.name = format!("replay:{}", path.display());
        Ok(timer)
    }

    /// A timer from a recording in memory.
    ///
    /// # Errors
    ///
    /// If the recording has another schema.
    pub fn new(recording: Recording) -> Result<Self, Failure> {
        if recording.schema != SCHEMA {
            let message = format!("a recording of schema {}, {SCHEMA} is needed; {NEXT}", recording.schema);
            return Err(Failure::new(FailureKind::Device, message));
        }
        Ok(Self {
            info: TimerInfo::new("replay", Source::Replay, recording.device.clone()),
            recording,
            broken: false,
            job: None,
            loaded: BTreeSet::new(),
            read: BTreeMap::new(),
            calls: RecordedCalls::default(),
        })
    }

    fn recorded(&self, candidate: usize) -> Result<&RecordedCandidate, Failure> {
        let config = &find(&self.job, candidate)?.config;
        let job = self.job.as_ref().ok_or_else(|| Failure::new(FailureKind::Protocol, "no job was started"))?;
        self.recording
            .invocations
            .iter()
            .filter(|invocation| {
                invocation.call.op_id == job.call.op_id
                    && invocation.call.call_key == job.call.call_key
                    && invocation.direction == job.direction
            })
            .flat_map(|invocation| &invocation.candidates)
            .find(|recorded| recorded.config == *config)
            .ok_or_else(|| {
                let message = format!("{} with {config} has no recorded samples", job.call);
                Failure::new(FailureKind::NoProgram, message)
            })
    }

    /// The candidate, unless this call fails.
    fn call(&mut self, candidate: usize, method: RecordedMethod) -> Result<RecordedCandidate, Failure> {
        if self.broken {
            return Err(Failure::new(FailureKind::Device, "the worker is gone and must be restarted"));
        }
        if method != RecordedMethod::Prepare && !self.loaded.contains(&candidate) {
            return Err(Failure::new(FailureKind::NoProgram, format!("candidate {candidate} was not prepared")));
        }
        let recorded = self.recorded(candidate)?.clone();
        if let Err(failure) = self.calls.call(candidate, method, &recorded.failures) {
            self.broken = ends_worker(&failure);
            return Err(failure);
        }
        Ok(recorded)
    }

    /// The next recorded samples of a candidate in this epoch.
    fn next_samples(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        let recorded = self.call(candidate, RecordedMethod::Measure)?;
        let epoch = (self.info.epoch as usize).min(recorded.epochs.len());
        let samples = epoch.checked_sub(1).and_then(|index| recorded.epochs.get(index));
        let samples = samples.filter(|samples| !samples.is_empty()).ok_or_else(|| {
            Failure::new(FailureKind::Execute, format!("{} has no recorded samples", recorded.config))
        })?;
        let place = self.read.entry(candidate).or_default();
        let taken = samples.iter().cycle().skip(*place).take(runs as usize).copied().collect();
        *place = (*place + runs as usize) % samples.len();
        Ok(taken)
    }

    fn recorded_outputs(&self, recorded: &RecordedCandidate) -> Result<Vec<OutputArray>, Failure> {
        let folder = scratch(&self.job)?;
        let mut outputs = Vec::new();
        for (index, output) in recorded.outputs.iter().enumerate() {
            let bytes = bytes_of(&output.hex)
                .filter(|bytes| output.spec.host_bytes() == Some(bytes.len() as u64))
                .ok_or_else(|| {
                    let message = format!("output {index} of {} is not an array {}", recorded.config, output.spec);
                    Failure::new(FailureKind::Execute, message)
                })?;
            let written = OutputArray::write(output.spec.clone(), &bytes, &folder);
            outputs.push(written.map_err(|error| {
                let message = format!("cannot write output {index} in `{}`: {error}", folder.display());
                Failure::new(FailureKind::Device, message)
            })?);
        }
        Ok(outputs)
    }
}

impl Timer for ReplayTimer {
    fn info(&self) -> &TimerInfo {
        &self.info
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.end();
        if !job.cache_state.is_warm() {
            let message = "recorded samples do not say what was in the caches: omit `--cache-state`";
            return Err(Failure::new(FailureKind::Device, message));
        }
        self.job = Some(job.clone());
        Ok(())
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        let recorded = self.call(candidate, RecordedMethod::Prepare)?;
        self.loaded.insert(candidate);
        let work = recorded.work.filter(Cost::is_plausible);
        Ok(Prepared::new(recorded.compile_ns).temporary_bytes(recorded.temporary_bytes).work(work))
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        round.one_by_one(|candidate, runs| self.next_samples(candidate, runs))
    }

    fn outputs(&mut self, candidate: usize, _taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        let recorded = self.call(candidate, RecordedMethod::Outputs)?;
        self.recorded_outputs(&recorded).map(TakenOutputs::Files)
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.info.epoch += 1;
        self.broken = false;
        self.read.clear();
        for candidate in without {
            self.loaded.remove(candidate);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.job = None;
        self.loaded.clear();
        self.read.clear();
        self.calls = RecordedCalls::default();
    }
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> = hex.as_bytes().iter().map(digit).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured_by::CacheState;
    use crate::timer::job::JobCandidate;
    use crate::timer::model::TimerExt;
    use std::fs;

    const RECORDING: &str = r#"{
        "schema": 1,
        "device": {"identity": {"platform": "cpu", "device_kind": "cpu"}},
        "invocations": [{
            "op_id": "matmul@v1", "call_key": "k",
            "candidates": [
                {"config": {"block": 64}, "compile_ns": 5, "epochs": [[9, 8, 7], [4]],
                 "outputs": [{"spec": "f32[1]", "hex": "0000803F"}]},
                {"config": {"block": 128}, "epochs": [[1]],
                 "failures": [{"in": "measure", "kind": "crash", "message": "died", "after": 2, "times": 1}]},
                {"config": {"block": 256}, "failures": [{"in": "prepare", "kind": "compile", "message": "no"}]}
            ]
        }]
    }"#;

    fn job(folder: &Path, blocks: &[u32]) -> Job {
        let config = |block: &u32| serde_json::from_str(&format!("{{\"block\":{block}}}")).unwrap();
        Job {
            call: Call::new("matmul@v1", "k"),
            direction: Direction::Forward,
            inputs: Vec::new(),
            candidates: blocks.iter().map(|block| JobCandidate::new(config(block))).collect(),
            results: Vec::new(),
            recipe: None,
            cache_state: CacheState::Warm,
            scratch: folder.to_owned(),
        }
    }

    #[test]
    fn samples_that_do_not_tell_are_not_given_for_cold_caches() {
        let folder = tempfile::tempdir().unwrap();
        let mut timer = ReplayTimer::new(serde_json::from_str(RECORDING).unwrap()).unwrap();
        let failure = timer.begin(&Job { cache_state: CacheState::Cold, ..job(folder.path(), &[64]) }).unwrap_err();
        assert!(failure.message.contains("omit `--cache-state`"), "{failure}");
        timer.begin(&job(folder.path(), &[64])).unwrap();
        timer.prepare(0).unwrap();
        // means of what follows in the recording: 9 8 7 9 8 7
        assert_eq!(timer.run_batches(0, 2, 3).unwrap(), [8, 8]);
        assert_eq!(timer.run_batches(0, 1, 2).unwrap(), [9], "8.5, rounded");
        assert_eq!(timer.info().clock_resolution_ns, None);
        timer.cut_off(Some(std::time::Duration::ZERO));
        assert_eq!(timer.run(0, 1).unwrap(), [7], "there is nothing to wait for");
    }

    #[test]
    fn gives_what_was_recorded_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording.json");
        fs::write(&path, RECORDING).unwrap();
        let mut timer = ReplayTimer::open(&path).unwrap();
        assert_eq!(
            (timer.info().name.clone(), timer.info().source.clone()),
            (format!("replay:{}", path.display()), Source::Replay)
        );
        timer.begin(&job(folder.path(), &[128, 64, 256, 512])).unwrap();
        assert_eq!(timer.prepare(1), Ok(Prepared::new(5)));
        assert_eq!(timer.run(1, 2).unwrap(), [9, 8]);
        assert_eq!(timer.run(1, 3).unwrap(), [7, 9, 8]);
        let outputs = timer.output_files(1).unwrap();
        assert_eq!(fs::read(&outputs[0].path).unwrap(), 1.0_f32.to_le_bytes());
        assert_eq!(timer.prepare(2).unwrap_err(), Failure::new(FailureKind::Compile, "no"));
        assert_eq!(timer.run(2, 1).unwrap_err().kind, FailureKind::NoProgram);
        assert_eq!(timer.prepare(3).unwrap_err().kind, FailureKind::NoProgram);
        // a crash after two good calls, once; everything waits for the restart
        timer.prepare(0).unwrap();
        assert_eq!(timer.run(0, 1).unwrap(), [1]);
        assert_eq!(timer.run(0, 1).unwrap(), [1]);
        assert_eq!(timer.run(0, 1).unwrap_err(), Failure::new(FailureKind::Crash, "died"));
        assert_eq!(timer.run(1, 1).unwrap_err().kind, FailureKind::Device);
        timer.restart(&[]).unwrap();
        assert_eq!((timer.info().epoch, timer.run(0, 1).unwrap()), (2, vec![1]));
        assert_eq!(timer.run(1, 2).unwrap(), [4, 4], "the second epoch's samples");
        timer.restart(&[0]).unwrap();
        assert_eq!(timer.run(1, 1).unwrap(), [4], "and those of the last serve on");
        assert_eq!(timer.run(0, 1).unwrap_err().kind, FailureKind::NoProgram);
    }

    #[test]
    fn a_bad_file_is_one_line_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording.json");
        for (text, expected) in [
            ("{\n  \"schema\": 1,\n  x", "line 3 column 3"),
            ("", "EOF"),
            (&RECORDING.replace("\"schema\": 1", "\"schema\": 2"), "schema 2, 1 is needed"),
            (&RECORDING.replace("epochs", "epoch"), "unknown field `epoch`"),
        ] {
            fs::write(&path, text).unwrap();
            let message = ReplayTimer::open(&path).unwrap_err().message;
            assert!(message.contains(expected) && message.contains("recording.json"), "{message}");
        }
        assert_eq!(bytes_of("0g"), None);
        assert_eq!(bytes_of("012"), None);
    }
}
