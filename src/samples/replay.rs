//! Reading a log from its start: which entries are in force, and where each job's records are.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::frame::{self, Damage};
use super::{FailureRecord, JobRecord, LogError, LogRecord, RoundRecord, SCHEMA};
use crate::digest::{Digest, FieldHasher, SetDigest};

/// The result of reading a whole log. Rounds stay on disk; only their positions are kept.
#[derive(Debug, Default)]
pub struct Replay {
    /// Entries in force: the cache's keys and values, as text.
    pub entries: BTreeMap<String, String>,
    /// Their count and digest, counted while reading.
    pub committed: SetDigest,
    /// Count and digest as the last decision or removal states them.
    pub stated: SetDigest,
    /// The position of that decision or removal; `None` if the log holds neither.
    pub stated_at: Option<u64>,
    /// Whether there was no log, or an empty one.
    pub is_new: bool,
    /// Damage before this position was reported at an earlier opening.
    pub noted_until: u64,
    /// Bytes that are not a frame.
    pub damage: Vec<Damage>,
    /// Complete frames with an unknown record.
    pub unknown: u64,
    pub(super) jobs: HashMap<Digest, JobFrames>,
    /// For each key the job that decided it last, and where.
    pub(super) deciders: HashMap<String, (Digest, u64)>,
    /// Every job that decided something.
    pub(super) decided: HashSet<Digest>,
    /// The file that was read, if it is not written to: another one may replace its name.
    pub(super) file: Option<File>,
}

/// The positions of a job's records that count: none from before it was restarted.
#[derive(Debug, Default)]
pub(super) struct JobFrames {
    /// Offset and length of each.
    pub(super) frames: Vec<(u64, u32)>,
    /// Digests of what it tunes on which device, and of that device's software; `None` if the log lost that record.
    pub(super) measures: Option<(Digest, Digest)>,
    /// Bytes of its records that no longer count.
    pub(super) outdated_bytes: u64,
}

/// Everything in the log about one job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobHistory {
    /// The job.
    pub job: Option<JobRecord>,
    /// Its rounds, oldest first.
    pub rounds: Vec<RoundRecord>,
    /// Dropped candidates.
    pub failures: Vec<FailureRecord>,
}

/// The part of a record that replaying needs.
#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    pub(super) record: String,
    pub(super) job: Option<Digest>,
    schema: Option<u32>,
    until: Option<u64>,
    key: Option<String>,
    value: Option<String>,
    committed: Option<SetDigest>,
    #[serde(default)]
    fresh: bool,
    op_id: Option<String>,
    call_key: Option<String>,
    #[serde(borrow)]
    direction: Option<&'a RawValue>,
    #[serde(borrow)]
    device: Option<&'a RawValue>,
}

impl Envelope<'_> {
    /// Whether the record belongs to a job and matters only to it.
    pub(super) fn is_of_a_job(&self) -> bool {
        matches!(self.record.as_str(), "job" | "round" | "failed") && self.job.is_some()
    }

    /// Digests of what a job tunes on which device, and of that device's software, by the texts that its own digest
    /// covers.
    fn measures(&self) -> Option<(Digest, Digest)> {
        #[derive(Deserialize)]
        struct Device<'a> {
            #[serde(borrow)]
            identity: &'a RawValue,
            #[serde(borrow)]
            environment: &'a RawValue,
        }
        let device: Device<'_> = serde_json::from_str(self.device?.get()).ok()?;
        let mut call = FieldHasher::new("tuned-call");
        call.field(self.op_id.as_ref()?.as_bytes()).field(self.call_key.as_ref()?.as_bytes());
        call.field(self.direction?.get().as_bytes()).field(device.identity.get().as_bytes());
        Some((call.finish(), Digest::of(device.environment.get().as_bytes())))
    }
}

pub(super) fn replay(path: &Path, file: &File) -> Result<(Replay, u64), LogError> {
    let mut replay = Replay::default();
    let read_error = |source| LogError::Read { path: path.to_owned(), source };
    let mut newer = None;
    let mut frames = 0_u64;
    let (end, damage) = frame::read_frames(BufReader::with_capacity(1 << 20, file), |offset, json| {
        frames += 1;
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(json) else {
            replay.unknown += 1;
            return;
        };
        if let Some(schema) = envelope.schema.filter(|schema| *schema > SCHEMA) {
            newer = Some(schema);
        }
        replay.take(envelope, offset, json.len());
    })
    .map_err(read_error)?;
    if let Some(found) = newer {
        return Err(LogError::NewerSchema { path: path.to_owned(), found, known: SCHEMA });
    }
    // an interrupted first write leaves the start of a frame, which is ours; any other file without a frame is not
    if frames == 0 && end > 0 && !frame::starts_like_a_frame(file).map_err(read_error)? {
        return Err(LogError::Foreign { path: path.to_owned() });
    }
    replay.damage = damage;
    replay.is_new = end == 0;
    Ok((replay, end))
}

impl Replay {
    /// Whether the counted entries match those that the log states, so that no decision before the last one was lost.
    pub fn is_consistent(&self) -> bool {
        self.stated == self.committed
    }

    /// Whether the log may have lost a decision: it holds none, lacks one that a later one counts, or is damaged after
    /// the last. Damage before it, such as that of a killed run, does not count.
    pub fn may_lack_decisions(&self) -> bool {
        let behind_last = |damage: &Damage| self.stated_at.is_none_or(|at| damage.offset > at);
        !self.is_consistent() || self.stated_at.is_none() || self.damage.iter().any(behind_last)
    }

    pub(super) fn take(&mut self, envelope: Envelope<'_>, offset: u64, json_bytes: usize) {
        let measures = if envelope.record == "job" { envelope.measures() } else { None };
        match (envelope.record.as_str(), envelope.job, envelope.key, envelope.value) {
            ("log", ..) => {}
            ("noted", ..) => self.noted_until = envelope.until.unwrap_or(0).min(offset),
            ("job" | "round" | "failed", Some(job), ..) => {
                // bounded by MAX_FRAME_BYTES
                let length = u32::try_from(frame::encoded_bytes(json_bytes)).unwrap_or(u32::MAX);
                let known = self.jobs.entry(job).or_default();
                if envelope.record == "job" && envelope.fresh {
                    known.outdated_bytes += known.frames.drain(..).map(|(_, length)| u64::from(length)).sum::<u64>();
                }
                known.frames.push((offset, length));
                known.measures = measures.or(known.measures);
            }
            ("decision", job, Some(key), Some(value)) => {
                if let Some(job) = job {
                    self.decided.insert(job);
                    self.deciders.insert(key.clone(), (job, offset));
                }
                if let Some(old) = self.entries.get(&key) {
                    self.committed.remove(key.as_bytes(), old.as_bytes());
                }
                self.committed.insert(key.as_bytes(), value.as_bytes());
                self.entries.insert(key, value);
                self.stated = envelope.committed.unwrap_or_default();
                self.stated_at = Some(offset);
            }
            ("removed", _, Some(key), _) => {
                if let Some(old) = self.entries.remove(&key) {
                    self.committed.remove(key.as_bytes(), old.as_bytes());
                }
                self.stated = envelope.committed.unwrap_or_default();
                self.stated_at = Some(offset);
            }
            _ => self.unknown += 1,
        }
    }

    /// Reads one job's records from the log of this replay.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn history_of(&self, path: &Path, job: Digest) -> Result<JobHistory, LogError> {
        // a missing log has nothing to read
        self.file.as_ref().map_or_else(|| Ok(JobHistory::default()), |file| self.history(path, file, job))
    }

    pub(super) fn history(&self, path: &Path, file: &File, job: Digest) -> Result<JobHistory, LogError> {
        let read_error = |source| LogError::Read { path: path.to_owned(), source };
        let mut history = JobHistory::default();
        for &(offset, length) in self.jobs.get(&job).map(|job| job.frames.as_slice()).unwrap_or_default() {
            let mut bytes = vec![0_u8; length as usize];
            file.read_exact_at(&mut bytes, offset).map_err(read_error)?;
            let record = frame::decode(&bytes).and_then(|(json, _)| serde_json::from_slice(json).ok());
            match record {
                Some(LogRecord::Job(record)) => history.job = Some(*record),
                Some(LogRecord::Round(round)) => history.rounds.push(round),
                Some(LogRecord::Failed(failure)) => history.failures.push(failure),
                _ => {}
            }
        }
        Ok(history)
    }
}
