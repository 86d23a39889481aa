//! The records of the log.

use serde::{Deserialize, Serialize};

use crate::call::{Call, Direction};
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::digest::{Digest, SetDigest};
use crate::failure::Failure;
use crate::hlo::Cost;
use crate::measured_by::{MeasuredBy, Source};
use crate::setters;

/// Version of the log's records.
pub const SCHEMA: u32 = 1;

/// One frame's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LogRecord {
    /// The first frame of a file.
    Log {
        /// Version of the records that follow.
        schema: u32,
        /// Program and version that created the file.
        tool: String,
    },
    /// A job is about to be measured; its rounds refer to this.
    Job(Box<JobRecord>),
    /// One interleaved round.
    Round(RoundRecord),
    /// A candidate was dropped.
    Failed(FailureRecord),
    /// The best config of a call was decided; written and synced before any cache.
    Decision {
        /// The job that decided it; `None` for an imported entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<Digest>,
        /// The cache's key, as text.
        key: String,
        /// The cache's entry, as text.
        value: String,
        /// All entries in force after this one.
        committed: SetDigest,
    },
    /// Damage before this position was reported to the user.
    Noted {
        /// Byte offset in the log.
        until: u64,
    },
    /// An entry was removed.
    Removed {
        /// The cache's key, as text.
        key: String,
        /// All entries in force after the removal.
        committed: SetDigest,
    },
}

/// What a job measures. `job` is a digest of everything that makes samples comparable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job's digest.
    pub job: Digest,
    /// Where samples come from.
    pub device: DeviceFingerprint,
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// What the programs compute.
    pub direction: Direction,
    /// How its samples are taken.
    #[serde(flatten)]
    pub measured_by: MeasuredBy,
    /// Index of the baseline.
    pub baseline: usize,
    /// The candidates, named by their index.
    pub candidates: Vec<CandidateRecord>,
    /// Whether this job's earlier records no longer count (`--force`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
}

impl JobRecord {
    /// A job whose earlier samples count.
    pub fn new(
        job: Digest,
        device: DeviceFingerprint,
        call: Call,
        direction: Direction,
        measured_by: MeasuredBy,
        baseline: usize,
        candidates: Vec<CandidateRecord>,
    ) -> Self {
        Self { job, device, call, direction, measured_by, baseline, candidates, fresh: false }
    }
}

setters!(JobRecord { fresh: bool });

/// One candidate of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateRecord {
    /// Its config.
    pub config: Config,
    /// Its program without locations and names, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_digest: Option<Digest>,
}

/// All samples of one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// The job.
    pub job: Digest,
    /// The measuring process, counted over all runs of the job.
    pub epoch: u32,
    /// The round, counted over all runs of the job.
    pub round: u32,
    /// The clock of every sample in it.
    pub source: Source,
    /// Samples in the order in which they were taken.
    pub samples: Vec<CandidateSamples>,
    /// What is known about programs prepared since the previous round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramFigures>,
    /// Whether its process confirms a winner that others chose. Such rounds choose none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confirming: bool,
    /// How many cores other processes used meanwhile while threads of this measurement waited for one; absent if that
    /// is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contention: Option<f64>,
}

/// What is known about a candidate's program besides its times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramFigures {
    /// Index of the candidate.
    pub candidate: usize,
    /// Peak temporary bytes of a run (neither arguments nor results).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_bytes: Option<u64>,
    /// The work of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Cost>,
}

impl ProgramFigures {
    /// What is known about a candidate's program.
    pub fn new(candidate: usize, temporary_bytes: Option<u64>, work: Option<Cost>) -> Self {
        Self { candidate, temporary_bytes, work }
    }
}

impl RoundRecord {
    /// A round of a job.
    pub fn new(job: Digest, epoch: u32, round: u32, source: Source, samples: Vec<CandidateSamples>) -> Self {
        Self { job, epoch, round, source, samples, programs: Vec::new(), confirming: false, contention: None }
    }
}

setters!(RoundRecord { programs: Vec<ProgramFigures>, confirming: bool, contention: Option<f64> });

/// The samples of one candidate in one round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateSamples {
    /// Index of the candidate.
    pub candidate: usize,
    /// Durations of single runs, nanoseconds.
    pub ns: Vec<u64>,
}

/// Why a candidate was dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// The job.
    pub job: Digest,
    /// Index of the candidate.
    pub candidate: usize,
    /// Why it was dropped.
    #[serde(flatten)]
    pub failure: Failure,
}

impl FailureRecord {
    /// A candidate of a job that failed.
    pub fn new(job: Digest, candidate: usize, failure: Failure) -> Self {
        Self { job, candidate, failure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The members lie flat, whatever type holds them.
    #[test]
    fn records_keep_their_form() {
        let digest = Digest::of(b"job");
        let stored = [
            format!(r#"{{"record":"round","job":"{digest}","epoch":1,"round":2,"source":"host-wall","samples":[]}}"#),
            format!(r#"{{"record":"failed","job":"{digest}","candidate":3,"kind":"crash","message":"it died"}}"#),
        ];
        for stored in stored {
            let record: LogRecord = serde_json::from_str(&stored).unwrap();
            assert_eq!(serde_json::to_string(&record).unwrap(), stored);
        }
        let device = r#"{"identity":{"platform":"cpu","device_kind":"cpu","hardware":{}},
            "environment":{"platform_version":""}}"#;
        let job = format!(
            r#"{{"record":"job","job":"{digest}","device":{device},"op_id":"op@v1","call_key":"k",
                "direction":"forward","timer":"pjrt","source":"host-wall","baseline":0,"candidates":[]}}"#
        );
        let LogRecord::Job(read) = serde_json::from_str(&job).unwrap() else { panic!("no job") };
        assert_eq!((read.call.to_string(), &*read.measured_by.timer), ("op@v1:k".to_owned(), "pjrt"));
        let written: serde_json::Value =
            serde_json::from_str(&serde_json::to_string(&LogRecord::Job(read)).unwrap()).unwrap();
        let mut expected: serde_json::Value = serde_json::from_str(&job).unwrap();
        expected["metric"] = "elapsed".into();
        assert_eq!(written, expected, "an absent metric is the default one");
    }
}
