//! Opening and appending.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::frame::{self, MAX_FRAME_BYTES};
use super::replay::{JobHistory, Replay, replay};
use super::{LogError, LogRecord, SCHEMA};
use crate::digest::Digest;
use crate::measured_by::TOOL;
use crate::outside_file;

/// The position of a key's decision, and its value from there on.
pub type LoggedDecision = (u64, Option<String>);

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
            log.append(&LogRecord::Log { schema: SCHEMA, tool })?;
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
    pub fn append(&mut self, record: &LogRecord) -> Result<(), LogError> {
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
        self.append(&LogRecord::Decision { job, key: key.to_owned(), value: value.to_owned(), committed })
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
        self.append(&LogRecord::Removed { key: key.to_owned(), committed })?;
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
                Ok(LogRecord::Decision { key, value, .. }) if keys.contains(key.as_str()) => {
                    decisions.entry(key).or_default().push((offset, Some(value)));
                }
                Ok(LogRecord::Removed { key, .. }) if keys.contains(key.as_str()) => {
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

/// Whether a path names the file of these metadata.
pub(super) fn is_at(path: &Path, file: &Metadata) -> bool {
    std::fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{CandidateSamples, RoundRecord};

    fn round(job: Digest, round: u32) -> LogRecord {
        let samples = vec![CandidateSamples { candidate: 0, ns: vec![u64::from(round) + 10] }];
        LogRecord::Round(RoundRecord::new(job, 1, round, "replay".into(), samples))
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
