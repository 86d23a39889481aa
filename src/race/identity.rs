//! What a job is, before any file of it is written.

use crate::cache::CacheKey;
use crate::digest::Digest;
use crate::measured_by::MeasuredBy;
use crate::samples::{CandidateRecord, JobRecord};
use crate::timer::{Job, Timer};

use super::NotLowered;

/// What a job is, before any file of it is written.
#[derive(Debug, Clone)]
pub(crate) struct JobIdentity {
    /// Digest of everything that must be equal for samples to be comparable.
    pub(crate) digest: Digest,
    /// Where the decision will be cached.
    pub(crate) key: CacheKey,
    /// Index of the baseline.
    pub(crate) baseline: usize,
    /// For each candidate the earlier one whose program it shares, if any.
    pub(crate) same_as: Vec<Option<usize>>,
    /// Candidates that could not be lowered when they were recorded.
    pub(crate) not_lowered: NotLowered,
}

impl JobIdentity {
    /// The identity of a job of programs, of which the first is the baseline.
    pub(super) fn of_programs(job: &Job, digest: Digest, timer: &dyn Timer) -> Self {
        let device = timer.device().identity.clone();
        Self {
            digest,
            key: CacheKey { call: job.call.clone(), direction: job.direction, device },
            baseline: 0,
            same_as: vec![None; job.candidates.len()],
            not_lowered: NotLowered::default(),
        }
    }

    /// Candidates with a program of their own.
    pub(crate) fn distinct(&self) -> Vec<usize> {
        self.same_as.iter().enumerate().filter(|(_, same)| same.is_none()).map(|(index, _)| index).collect()
    }

    /// The log's record of the job. A fresh one has no earlier rounds.
    pub(crate) fn record(
        &self,
        timer: &dyn Timer,
        measured_by: MeasuredBy,
        candidates: impl Iterator<Item = CandidateRecord>,
        fresh: bool,
    ) -> JobRecord {
        JobRecord {
            job: self.digest,
            device: timer.device().clone(),
            call: self.key.call.clone(),
            direction: self.key.direction,
            measured_by,
            baseline: self.baseline,
            candidates: candidates.collect(),
            fresh,
        }
    }
}
