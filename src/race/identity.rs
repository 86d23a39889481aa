//! What a job is, before any file of it is written, and the consequences if a candidate without a program fails.

use std::collections::BTreeMap;

use crate::cache::CacheKey;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::MeasuredBy;
use crate::registry::{Invocation, RecordedTarget};
use crate::samples::{CandidateRecord, JobRecord};
use crate::timer::{Job, Timer};

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
        let device = timer.info().device.identity.clone();
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
            device: timer.info().device.clone(),
            call: self.key.call.clone(),
            direction: self.key.direction,
            measured_by,
            baseline: self.baseline,
            candidates: candidates.collect(),
            fresh,
        }
    }
}

/// The candidates of a job that could not be lowered when they were recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotLowered {
    /// Whether they were recorded on the device that the job is for.
    was_here: bool,
    /// The reason, by candidate.
    reasons: BTreeMap<usize, String>,
}

impl NotLowered {
    /// Those of an invocation.
    pub(crate) fn of(invocation: &Invocation) -> Self {
        let candidates = invocation.candidates.iter().enumerate();
        let without = candidates.filter(|(_, candidate)| candidate.program.is_none());
        let reasons = without.filter_map(|(index, candidate)| Some((index, candidate.not_lowered.clone()?)));
        Self { was_here: matches!(invocation.target, RecordedTarget::Device(_)), reasons: reasons.collect() }
    }

    /// A failure because there is no program, with the recorded reason.
    pub(crate) fn explain(&self, candidate: usize, failure: Failure) -> Failure {
        match (&failure.kind, self.reasons.get(&candidate)) {
            (FailureKind::NoProgram, Some(reason)) => {
                let way_out = if self.was_here { String::new() } else { format!("; {}", failure.message) };
                Failure::new(failure.kind, format!("it was not lowered when it was recorded: {reason}{way_out}"))
            }
            _ => failure,
        }
    }

    /// Whether a failed candidate cannot exist on this device: it was not lowered, and either that was tried on the
    /// device itself, or a worker on it could not build its program either.
    pub(crate) fn is_proven(&self, candidate: usize, failure: &Failure) -> bool {
        let is_no_failure = match failure.kind {
            FailureKind::Compile => true,
            FailureKind::NoProgram => self.was_here,
            _ => false,
        };
        is_no_failure && self.reasons.contains_key(&candidate)
    }
}
