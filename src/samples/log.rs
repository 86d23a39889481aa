//! Opening, replaying and appending.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::frame::{self, Damage, MAX_FRAME_BYTES};
use super::{FailureRecord, JobRecord, LogError, Record, RoundRecord, SCHEMA};
use crate::digest::{Digest, FieldHasher, SetDigest};
use crate::measured_by::TOOL;
use crate::outside_file;

/// The result of reading a whole log. Rounds stay on disk; only their positions are kept.
#[derive(Debug, Default)]
#[non_exhaustive]
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
    file: Option<File>,
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

/// The position of a key's decision, and its value from there on.
pub type LoggedDecision = (u64, Option<String>);

/// Everything in the log about one job.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct JobHistory {
    /// The job.
    pub job: Option<JobRecord>,
    /// Its rounds, oldest first.
    pub rounds: Vec<RoundRecord>,
    /// Dropped candidates.
    pub failures: Vec<FailureRecord>,
}

/// A log open for appending. One process at a time: the caller holds the folder's lock.
#[derive(Debug)]
pub struct SampleLog {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) end: u64,
    // set after a failed write, whose remains must not run into the next frame
    pub(super) needs_line_feed: bool,
    pub(super) replay: Replay,
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

impl SampleLog {
    /// Opens a log, or starts one, and replays it.
    ///
    /// # Errors
    /// If the file cannot be read or written, is not a sample log, or is a later version's. A damaged record is not an
    /// error: the replay reports it.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let read_error = |source| LogError::Read { path: path.to_owned(), source };
        let write_error = |source| LogError::Write { path: path.to_owned(), source };
        // must not append through a link to a file elsewhere
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let file = outside_file::open_own_with(&mut options, path).map_err(write_error)?;
        let (replay, end) = replay(path, &file)?;
        let needs_line_feed = end > 0 && {
            let mut last = [0_u8; 1];
            file.read_exact_at(&mut last, end - 1).map_err(read_error)?;
            last != *b"\n"
        };
        let mut log = Self { path: path.to_owned(), file, end, needs_line_feed, replay };
        if log.end == 0 {
            let tool = TOOL.to_owned();
            log.append(&Record::Log { schema: SCHEMA, tool })?;
            log.sync()?;
        }
        Ok(log)
    }

    /// Reads a log without opening it for writing; a missing one is empty.
    ///
    /// # Errors
    /// As [`open`](Self::open), except for what concerns writing.
    pub fn read(path: &Path) -> Result<Replay, LogError> {
        let read_error = |source| LogError::Read { path: path.to_owned(), source };
        match outside_file::open_own(path, u64::MAX) {
            Ok(file) => Ok(Replay { file: Some(file.try_clone().map_err(read_error)?), ..replay(path, &file)?.0 }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Replay::default()),
            Err(source) => Err(read_error(source)),
        }
    }

    /// Reads a log that the user named; links are followed.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_named(path: &Path) -> Result<Replay, LogError> {
        let file = outside_file::open(path, u64::MAX);
        let file = file.map_err(|source| LogError::Read { path: path.to_owned(), source })?;
        Ok(replay(path, &file)?.0)
    }

    /// The log's content at opening, with what was appended since.
    pub fn replay(&self) -> &Replay {
        &self.replay
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// The log's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a round, a job or a failure by one write. It survives the process, but not yet a power loss.
    ///
    /// # Errors
    /// If it cannot be written; a reader skips its incomplete bytes.
    pub fn append(&mut self, record: &Record) -> Result<(), LogError> {
        let json = serde_json::to_string(record)
            .map_err(|error| LogError::Write { path: self.path.clone(), source: error.into() })?;
        if json.len() > MAX_FRAME_BYTES {
            return Err(LogError::TooLong { bytes: json.len() });
        }
        let mut bytes = frame::encode(&json);
        let length = bytes.len() as u64;
        if self.needs_line_feed {
            bytes.insert(0, b'\n');
        }
        if let Err(source) = self.file.write_all(&bytes) {
            self.needs_line_feed = true;
            self.end = self.file.metadata().map_or(self.end, |metadata| metadata.len());
            return Err(LogError::Write { path: self.path.clone(), source });
        }
        self.needs_line_feed = false;
        self.end += bytes.len() as u64;
        // the file's content counts from now on, even before it is on disk
        let envelope = serde_json::from_str(&json)
            .map_err(|error| LogError::Write { path: self.path.clone(), source: error.into() })?;
        self.replay.take(envelope, self.end - length, json.len());
        Ok(())
    }

    /// Syncs everything appended so far to the disk.
    ///
    /// # Errors
    /// If the disk rejects it, for example because it is full.
    pub fn sync(&self) -> Result<(), LogError> {
        let file = self.file.sync_data().and_then(|()| self.file.metadata());
        let file = file.map_err(|source| LogError::Write { path: self.path.clone(), source })?;
        // an unlinked file accepts writes like any other
        if is_at(&self.path, &file) { Ok(()) } else { Err(LogError::Removed { path: self.path.clone() }) }
    }

    /// Appends and syncs a decision. Only then may a cache hold it.
    ///
    /// # Errors
    /// As [`append`](Self::append) and [`sync`](Self::sync).
    pub fn commit(&mut self, job: Option<Digest>, key: &str, value: &str) -> Result<(), LogError> {
        self.append_decision(job, key, value)?;
        self.sync()
    }

    /// Appends many decisions and syncs them together.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_all<'a>(&mut self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), LogError> {
        pairs.into_iter().try_for_each(|(key, value)| self.append_decision(None, key, value))?;
        self.sync()
    }

    fn append_decision(&mut self, job: Option<Digest>, key: &str, value: &str) -> Result<(), LogError> {
        let mut committed = self.replay.committed;
        if let Some(old) = self.replay.entries.get(key) {
            committed.remove(key.as_bytes(), old.as_bytes());
        }
        committed.insert(key.as_bytes(), value.as_bytes());
        self.append(&Record::Decision { job, key: key.to_owned(), value: value.to_owned(), committed })
    }

    /// Appends and syncs a removal; `false` if there is no such entry.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn remove(&mut self, key: &str) -> Result<bool, LogError> {
        let removed = self.append_removal(key)?;
        if removed {
            self.sync()?;
        }
        Ok(removed)
    }

    /// Appends many removals and syncs them together; keys without an entry are skipped.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn remove_all<'a>(&mut self, keys: impl IntoIterator<Item = &'a str>) -> Result<(), LogError> {
        keys.into_iter().try_for_each(|key| self.append_removal(key).map(drop))?;
        self.sync()
    }

    fn append_removal(&mut self, key: &str) -> Result<bool, LogError> {
        let Some(old) = self.replay.entries.get(key) else {
            return Ok(false);
        };
        let mut committed = self.replay.committed;
        committed.remove(key.as_bytes(), old.as_bytes());
        self.append(&Record::Removed { key: key.to_owned(), committed })?;
        Ok(true)
    }

    /// Every decision of these keys in the log, each with its position, oldest first; a removal has no value.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn decisions_of(&self, keys: &BTreeSet<&str>) -> Result<BTreeMap<String, Vec<LoggedDecision>>, LogError> {
        let read_error = |source| LogError::Read { path: self.path.clone(), source };
        let file = outside_file::open_own(&self.path, u64::MAX).map_err(read_error)?;
        let mut decisions: BTreeMap<String, Vec<LoggedDecision>> = BTreeMap::new();
        frame::read_frames(BufReader::with_capacity(1 << 20, file), |offset, json| {
            match serde_json::from_slice(json) {
                Ok(Record::Decision { key, value, .. }) if keys.contains(key.as_str()) => {
                    decisions.entry(key).or_default().push((offset, Some(value)));
                }
                Ok(Record::Removed { key, .. }) if keys.contains(key.as_str()) => {
                    decisions.entry(key).or_default().push((offset, None));
                }
                _ => {}
            }
        })
        .map_err(read_error)?;
        Ok(decisions)
    }

    /// Reads one job's records.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn history(&self, job: Digest) -> Result<JobHistory, LogError> {
        self.replay.history(&self.path, &self.file, job)
    }
}

impl Replay {
    /// Reads one job's records from the log of this replay.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn history_of(&self, path: &Path, job: Digest) -> Result<JobHistory, LogError> {
        // a missing log has nothing to read
        self.file.as_ref().map_or_else(|| Ok(JobHistory::default()), |file| self.history(path, file, job))
    }

    fn history(&self, path: &Path, file: &File, job: Digest) -> Result<JobHistory, LogError> {
        let read_error = |source| LogError::Read { path: path.to_owned(), source };
        let mut history = JobHistory::default();
        for &(offset, length) in self.jobs.get(&job).map(|job| job.frames.as_slice()).unwrap_or_default() {
            let mut bytes = vec![0_u8; length as usize];
            file.read_exact_at(&mut bytes, offset).map_err(read_error)?;
            let record = frame::decode(&bytes).and_then(|(json, _)| serde_json::from_slice(json).ok());
            match record {
                Some(Record::Job(record)) => history.job = Some(*record),
                Some(Record::Round(round)) => history.rounds.push(round),
                Some(Record::Failed(failure)) => history.failures.push(failure),
                _ => {}
            }
        }
        Ok(history)
    }
}

/// Whether a path names the file of these metadata.
pub(super) fn is_at(path: &Path, file: &Metadata) -> bool {
    std::fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (file.dev(), file.ino()))
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

    fn take(&mut self, envelope: Envelope<'_>, offset: u64, json_bytes: usize) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::CandidateSamples;

    fn round(job: Digest, round: u32) -> Record {
        let samples = vec![CandidateSamples { candidate: 0, ns: vec![u64::from(round) + 10] }];
        Record::Round(RoundRecord::new(job, 1, round, "replay".into(), samples))
    }

    #[test]
    fn what_is_appended_is_replayed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples-v1.log");
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let mut log = SampleLog::open(&path).unwrap();
        for n in 0..3 {
            log.append(&round(a, n)).unwrap();
            log.append(&round(b, n + 100)).unwrap();
        }
        log.commit(Some(a), "k1", "v1").unwrap();
        log.commit(None, "k2", "v2").unwrap();
        log.commit(Some(a), "k1", "v1'").unwrap();
        assert!(log.remove("k2").unwrap());
        assert!(!log.remove("k2").unwrap());
        let live = log.history(a).unwrap();
        drop(log);
        let log = SampleLog::open(&path).unwrap();
        assert_eq!(log.history(a).unwrap(), live);
        assert_eq!(live.rounds.iter().map(|r| r.samples[0].ns[0]).collect::<Vec<_>>(), [10, 11, 12]);
        assert_eq!(log.replay().entries, BTreeMap::from([("k1".to_owned(), "v1'".to_owned())]));
        assert!(log.replay().is_consistent());
        assert_eq!(log.replay().committed.count, 1);
        assert_eq!(log.replay().damage, []);
    }

    #[test]
    fn a_torn_tail_stays_and_the_next_frame_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let job = Digest::of(b"a");
        let mut log = SampleLog::open(&path).unwrap();
        log.append(&round(job, 0)).unwrap();
        log.append(&round(job, 1)).unwrap();
        drop(log);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        let mut log = SampleLog::open(&path).unwrap();
        assert!(log.replay().damage[0].torn_tail);
        log.append(&round(job, 7)).unwrap();
        assert_eq!(log.history(job).unwrap().rounds.len(), 2);
        drop(log);
        let history = SampleLog::open(&path).unwrap().history(job).unwrap();
        assert_eq!(history.rounds.iter().map(|r| r.round).collect::<Vec<_>>(), [0, 7]);
    }

    #[test]
    fn a_decision_in_a_removed_log_is_not_called_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = SampleLog::open(&path).unwrap();
        log.commit(None, "k", "v").unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(log.commit(None, "k", "w"), Err(LogError::Removed { .. })));
        std::fs::write(&path, "another file").unwrap();
        assert!(matches!(log.commit(None, "k", "w"), Err(LogError::Removed { .. })));
    }

    #[test]
    fn a_lost_decision_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = SampleLog::open(&path).unwrap();
        log.commit(None, "k1", "v1").unwrap();
        log.commit(None, "k2", "v2").unwrap();
        drop(log);
        let bytes = std::fs::read(&path).unwrap();
        let second = bytes.windows(4).enumerate().filter(|(_, w)| w == b"ATL1").nth(1).unwrap().0;
        let mut broken = bytes.clone();
        broken[second + 40] ^= 1;
        std::fs::write(&path, broken).unwrap();
        let replay = SampleLog::read(&path).unwrap();
        assert!(!replay.is_consistent());
        assert_eq!(replay.entries.len(), 1);
    }

    #[test]
    fn newer_and_foreign_files_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, frame::encode(r#"{"record":"log","schema":2,"tool":"x"}"#)).unwrap();
        let error = SampleLog::open(&path).unwrap_err().to_string();
        assert!(error.contains("schema 2"), "{error}");
        std::fs::write(&path, "a letter\nto a friend\n").unwrap();
        assert!(matches!(SampleLog::open(&path), Err(LogError::Foreign { .. })));
        std::fs::write(&path, "a letter without an end").unwrap();
        assert!(matches!(SampleLog::open(&path), Err(LogError::Foreign { .. })));
        std::fs::write(&path, "ATL1 00000").unwrap();
        SampleLog::open(&path).unwrap();
    }
}
