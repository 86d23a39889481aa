//! Compaction: rewriting the log without the records of superseded jobs.
//!
//! A job is superseded if another job made a later decision of the same call on the same device, and either the first
//! job had decided that call before, or it was measured under other software (environment) than the later one. An
//! exception is a job that the entry in force refers to. What a job measured before it was started afresh (`--force`)
//! is superseded too. Everything else stays: each round of a job in force, including its losers'; undecided jobs that
//! can be continued, including those of a search; each decision and each removal in its order, so that counts and
//! digests remain valid and nothing that was removed returns; records that this version does not know. Damage stays as
//! one empty line, because its position says which decisions may have been lost.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::geteuid;
use serde::Deserialize;

use super::frame;
use super::log::{SampleLog, is_at};
use super::replay::{Envelope, Replay, replay};
use super::{LogError, LogRecord};
use crate::atomic_write::write_atomic;
use crate::digest::Digest;
use crate::mapped_file::is_local;

/// A log below this size is left alone: it is read quickly, and old rounds may still be useful.
const WORTH_BYTES: u64 = 8 << 20;

impl Replay {
    /// The jobs that were superseded.
    fn superseded(&self) -> HashSet<Digest> {
        // a merge may bring an earlier decision back into force
        let named = self.entries.values().filter_map(|value| job_of(value));
        let in_force: HashSet<Digest> = self.deciders.values().map(|(job, _)| *job).chain(named).collect();
        // the decision in force for a call on a device: the software under which it was measured, and its position in
        // the log
        let mut by_call: HashMap<Digest, (Digest, u64)> = HashMap::new();
        for (decider, at) in self.deciders.values() {
            let Some((call, environment)) = self.jobs.get(decider).and_then(|job| job.measures) else { continue };
            let last = by_call.entry(call).or_insert((environment, *at));
            if *at > last.1 {
                *last = (environment, *at);
            }
        }
        let is_superseded = |job: &Digest| {
            if in_force.contains(job) || self.decided.contains(job) {
                return !in_force.contains(job);
            }
            let Some(known) = self.jobs.get(job) else { return false };
            let later = known.measures.and_then(|(call, environment)| Some((environment, by_call.get(&call)?)));
            let last = known.frames.last().map_or(0, |(offset, _)| *offset);
            later.is_some_and(|(environment, (now, at))| environment != *now && last < *at)
        };
        self.jobs.keys().filter(|job| is_superseded(job)).copied().collect()
    }

    /// Bytes that compaction would save.
    fn superseded_bytes(&self) -> u64 {
        let superseded = self.superseded();
        let of_job = |(job, known): (&Digest, &super::replay::JobFrames)| {
            let all = known.frames.iter().map(|(_, length)| u64::from(*length)).sum();
            known.outdated_bytes + if superseded.contains(job) { all } else { 0 }
        };
        self.jobs.iter().map(of_job).sum()
    }
}

/// The job that an entry names as its source.
fn job_of(entry: &str) -> Option<Digest> {
    #[derive(Deserialize)]
    struct Entry {
        provenance: Provenance,
    }
    #[derive(Deserialize)]
    struct Provenance {
        job: Digest,
    }
    serde_json::from_str(entry).ok().map(|Entry { provenance: Provenance { job } }| job)
}

impl SampleLog {
    /// Compacts the log if that saves half of it, and more than a little.
    ///
    /// # Errors
    /// As [`compact`](Self::compact).
    pub fn compact_if_worth(&mut self) -> Result<u64, LogError> {
        if self.end < WORTH_BYTES {
            return Ok(0);
        }
        let bytes = self.replay.superseded_bytes();
        if bytes >= WORTH_BYTES && bytes >= self.end / 2 { self.compact() } else { Ok(0) }
    }

    /// Rewrites the log without superseded records; returns the bytes saved. The new one replaces the old one by a
    /// rename, so that a killed process leaves one of them complete. The caller holds the folder's lock.
    ///
    /// A log on a network file system is not rewritten, since another machine may have it open; neither is one of
    /// another user, who could not append to the new file, nor one whose damage was not reported yet.
    ///
    /// # Errors
    /// If the new log cannot be written; then the old one stays in force.
    pub fn compact(&mut self) -> Result<u64, LogError> {
        let is_told = self.replay.damage.iter().all(|damage| damage.offset < self.replay.noted_until);
        let is_own = self.file.metadata().is_ok_and(|metadata| metadata.uid() == geteuid().as_raw());
        if !is_told || !is_own || !is_local(&self.file) || self.replay.superseded_bytes() == 0 {
            return Ok(0);
        }
        let before = self.end;
        let mut made = None;
        let written = write_atomic(&self.path, |file| {
            let new = self.rewrite(file)?;
            made = Some((file.try_clone()?, new));
            Ok(())
        });
        let write_error = |source| LogError::Write { path: self.path.clone(), source };
        // also if the folder could not be synced after the rename: then the new file has the name
        if let Some((file, (replay, end))) = made
            && is_at(&self.path, &file.metadata().map_err(write_error)?)
        {
            (self.file, self.replay, self.end, self.needs_line_feed) = (file, replay, end, false);
        }
        written.map_err(|source| LogError::Write { path: self.path.clone(), source })?;
        Ok(before.saturating_sub(self.end))
    }

    /// Writes the remaining records into a file opened for appending, and reads it again: it must have the same content
    /// as this log.
    fn rewrite(&self, file: &mut File) -> io::Result<(Replay, u64)> {
        file.set_permissions(self.file.metadata()?.permissions())?;
        let superseded = self.replay.superseded();
        let stays = self.replay.jobs.iter().filter(|(job, _)| !superseded.contains(job));
        let kept: HashSet<u64> = stays.flat_map(|(_, job)| job.frames.iter().map(|(offset, _)| *offset)).collect();
        let mut out = Copied { out: BufWriter::new(&*file), bytes: 0, damage_until: 0, failure: None };
        (&self.file).seek(SeekFrom::Start(0))?;
        // where the last frame ended: bytes between it and the next one are damage
        let mut behind = 0;
        let reader = BufReader::with_capacity(1 << 20, &self.file);
        let (end, _) = frame::read_frames(reader, |offset, json| {
            if offset > behind {
                out.damage();
            }
            behind = offset + frame::encoded_bytes(json.len());
            let drops = |envelope: Envelope<'_>| match envelope.is_of_a_job() {
                true => !kept.contains(&offset),
                false => envelope.record == "noted",
            };
            if !serde_json::from_slice(json).is_ok_and(drops) {
                out.frame(json);
            }
        })?;
        if end > behind {
            out.damage();
        }
        if out.damage_until > 0 {
            let noted = LogRecord::Noted { until: out.damage_until };
            out.frame(serde_json::to_string(&noted)?.as_bytes());
        }
        out.finish()?;
        (&*file).seek(SeekFrom::Start(0))?;
        let (new, end) = replay(&self.path, file).map_err(io::Error::other)?;
        let frames = new.jobs.values().map(|job| job.frames.len()).sum::<usize>();
        let old = &self.replay;
        if new.entries != old.entries
            || (new.committed, new.stated, new.unknown) != (old.committed, old.stated, old.unknown)
            || frames != kept.len()
        {
            return Err(io::Error::other("it changed while it was compacted"));
        }
        fcntl_setfl(&*file, fcntl_getfl(&*file)? | OFlags::APPEND)?;
        Ok((new, end))
    }
}

/// The state of writing the new log, and the first failure.
struct Copied<W: Write> {
    out: W,
    bytes: u64,
    /// Where the last line that marks damage ends.
    damage_until: u64,
    failure: Option<io::Error>,
}

impl<W: Write> Copied<W> {
    fn put(&mut self, bytes: &[u8]) {
        if self.failure.is_none() {
            self.failure = self.out.write_all(bytes).err();
            self.bytes += bytes.len() as u64;
        }
    }

    fn frame(&mut self, json: &[u8]) {
        self.put(&frame::encode(json));
    }

    fn damage(&mut self) {
        self.put(b"\n");
        self.damage_until = self.bytes;
    }

    fn finish(mut self) -> io::Result<()> {
        self.failure.map_or(Ok(()), Err)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::call::Direction;
    use crate::config::Config;
    use crate::device::{DeviceFingerprint, DeviceIdentity, Environment};
    use crate::failure::{Failure, FailureKind};
    use crate::measured_by::{MeasuredBy, Source};
    use crate::samples::{CandidateSamples, FailureRecord, JobRecord, RoundRecord};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn job(name: &str, call: &str, version: &str, fresh: bool) -> LogRecord {
        let identity =
            DeviceIdentity { platform: "cpu".into(), device_kind: "simulated".into(), hardware: BTreeMap::new() };
        let environment = Environment { platform_version: version.into(), ..Environment::default() };
        LogRecord::Job(Box::new(JobRecord {
            job: Digest::of(name.as_bytes()),
            device: DeviceFingerprint { identity, environment },
            call: Call::new("op@v1", call),
            direction: Direction::Forward,
            measured_by: MeasuredBy::new("replay:x", Source::Replay),
            baseline: 0,
            candidates: vec![crate::samples::CandidateRecord {
                config: serde_json::from_str::<Config>("{}").unwrap(),
                semantic_digest: None,
            }],
            fresh,
        }))
    }

    fn round(name: &str, round: u32) -> LogRecord {
        let samples = vec![CandidateSamples { candidate: 0, ns: vec![u64::from(round) + 10] }];
        LogRecord::Round(RoundRecord::new(Digest::of(name.as_bytes()), 0, round, "replay".into(), samples))
    }

    fn failed(name: &str) -> LogRecord {
        let failure = Failure::new(FailureKind::Crash, "it died");
        LogRecord::Failed(FailureRecord { job: Digest::of(name.as_bytes()), candidate: 0, failure })
    }

    fn rounds(log: &SampleLog, name: &str) -> Vec<u32> {
        log.history(Digest::of(name.as_bytes())).unwrap().rounds.iter().map(|round| round.round).collect()
    }

    /// A log with every kind of record that is kept or removed, as the module's documentation says.
    fn filled(path: &Path) -> SampleLog {
        let mut log = SampleLog::open(path).unwrap();
        let decide = |log: &mut SampleLog, name: &str, key: &str, value: &str| {
            log.commit(Some(Digest::of(name.as_bytes())), key, value).unwrap();
        };
        // a call that was decided under old software, then under new, with another job each; a search's pair under each
        for record in [job("old", "a", "1", false), round("old", 1), failed("old"), job("old-pair", "a", "1", false)] {
            log.append(&record).unwrap();
        }
        log.append(&round("old-pair", 2)).unwrap();
        decide(&mut log, "old", "a", "v1");
        for record in [job("new-pair", "a", "2", false), round("new-pair", 3), job("new", "a", "2", false)] {
            log.append(&record).unwrap();
        }
        log.append(&round("new", 4)).unwrap();
        decide(&mut log, "new", "a", "v2");
        // old software again, after that decision: work continues there
        log.append(&job("back", "a", "1", false)).unwrap();
        log.append(&round("back", 5)).unwrap();
        // one that was forced, one that an import replaced, one whose entry was removed
        for record in [job("forced", "b", "2", false), round("forced", 6), failed("forced")] {
            log.append(&record).unwrap();
        }
        decide(&mut log, "forced", "b", "v3");
        for record in [job("forced", "b", "2", true), round("forced", 7)] {
            log.append(&record).unwrap();
        }
        decide(&mut log, "forced", "b", "v4");
        for (name, key) in [("imported", "c"), ("removed", "d")] {
            log.append(&job(name, key, "2", false)).unwrap();
            log.append(&round(name, 8)).unwrap();
            decide(&mut log, name, key, "v5");
        }
        log.commit(None, "c", "v6").unwrap();
        log.remove("d").unwrap();
        log
    }

    #[test]
    fn what_is_in_force_stays_and_the_rest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = filled(&path);
        let (entries, stated) = (log.replay().entries.clone(), log.replay().stated);
        let before = log.bytes();
        assert!(log.compact().unwrap() > 0);
        assert!(log.bytes() < before);
        assert_eq!(log.compact().unwrap(), 0, "there is nothing more to give back");
        // appended to, it is the same log as one that is read again
        log.append(&round("new", 9)).unwrap();
        log.commit(Some(Digest::of(b"new")), "a", "v7").unwrap();
        for log in [log, SampleLog::open(&path).unwrap()] {
            for (name, expected) in [
                ("old", &[][..]),
                ("old-pair", &[]),
                ("new-pair", &[3]),
                ("new", &[4, 9]),
                ("back", &[5]),
                ("forced", &[7]),
                ("imported", &[8]),
                ("removed", &[8]),
            ] {
                assert_eq!(rounds(&log, name), expected, "{name}");
            }
            assert!(log.history(Digest::of(b"forced")).unwrap().failures.is_empty());
            let replay = log.replay();
            assert!(replay.is_consistent() && replay.damage.is_empty() && !replay.may_lack_decisions());
            let mut expected = entries.clone();
            expected.insert("a".to_owned(), "v7".to_owned());
            assert_eq!((&replay.entries, replay.stated.count), (&expected, stated.count));
            let decisions = log.decisions_of(&["a", "d"].into()).unwrap();
            let values = |key: &str| decisions[key].iter().map(|(_, value)| value.clone()).collect::<Vec<_>>();
            assert_eq!(values("a"), ["v1", "v2", "v7"].map(|value| Some(value.to_owned())));
            assert_eq!(values("d"), [Some("v5".to_owned()), None], "a removal is not forgotten");
        }
    }

    #[test]
    fn a_job_that_a_merge_brought_back_into_force_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = filled(&folder.path().join("log"));
        let entry = format!(r#"{{"config":{{}},"provenance":{{"job":"{}"}}}}"#, Digest::of(b"old"));
        log.commit(None, "a", &entry).unwrap();
        log.compact().unwrap();
        assert_eq!((rounds(&log, "old"), rounds(&log, "new")), (vec![1], vec![4]));
        assert_eq!(rounds(&log, "old-pair"), [] as [u32; 0], "it is no part of that decision's evidence");
    }

    #[test]
    fn damage_keeps_its_place_and_unreported_damage_keeps_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        drop(filled(&path));
        let mut bytes = std::fs::read(&path).unwrap();
        // a torn line between the decisions v1 and v2, and a kind of record that a later version has
        let decision = bytes.windows(12).position(|window| window == b"\"value\":\"v1\"").unwrap();
        let at = decision + bytes[decision..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let later = frame::encode(br#"{"record":"weather","op_id":7}"#);
        bytes.splice(at..at, [b"ATL1 0000torn\n".as_slice(), &later].concat());
        std::fs::write(&path, &bytes).unwrap();

        let mut log = SampleLog::open(&path).unwrap();
        let damage = log.replay().damage.clone();
        assert_eq!((damage.len(), damage[0].offset, log.replay().unknown), (1, at as u64, 1));
        assert_eq!(log.compact().unwrap(), 0, "the damage is not reported yet");
        log.append(&LogRecord::Noted { until: damage[0].offset + damage[0].bytes }).unwrap();
        drop(log);
        let mut log = SampleLog::open(&path).unwrap();
        let places = |log: &SampleLog| log.decisions_of(&["a", "b"].into()).unwrap();
        let is_behind = |log: &SampleLog| {
            let at = log.replay().damage[0].offset;
            places(log).into_values().flatten().map(|(place, value)| (value, place > at)).collect::<Vec<_>>()
        };
        let expected = is_behind(&log);
        assert!(log.compact().unwrap() > 0);
        for log in [log, SampleLog::open(&path).unwrap()] {
            assert_eq!(is_behind(&log), expected);
            let replay = log.replay();
            assert_eq!((replay.damage.len(), replay.unknown), (1, 1));
            assert!(replay.damage[0].offset < replay.noted_until, "it was reported before");
        }
    }

    /// A reader without the lock continues to read the log that it opened.
    #[test]
    fn a_reader_keeps_the_log_that_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = filled(&path);
        let reader = SampleLog::read(&path).unwrap();
        assert!(log.compact().unwrap() > 0);
        let history = reader.history_of(&path, Digest::of(b"old")).unwrap();
        assert_eq!(history.rounds.len(), 1);
        assert_eq!(reader.history_of(&path, Digest::of(b"new")).unwrap().rounds[0].round, 4);
    }

    #[test]
    fn little_is_not_worth_it_and_a_failed_write_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/log");
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        let mut log = filled(&path);
        assert_eq!(log.compact_if_worth().unwrap(), 0);
        // many samples of the superseded job
        let samples = vec![CandidateSamples { candidate: 0, ns: vec![123_456_789; 400_000] }];
        for number in 20..23 {
            let round = RoundRecord::new(Digest::of(b"old"), 0, number, "replay".into(), samples.clone());
            log.append(&LogRecord::Round(round)).unwrap();
        }
        // the folder was deleted, and with it the log's name
        std::fs::rename(folder.path().join("logs"), folder.path().join("moved")).unwrap();
        std::fs::write(folder.path().join("logs"), "a file").unwrap();
        assert!(log.compact_if_worth().is_err());
        assert_eq!(rounds(&log, "old").len(), 4);
        std::fs::remove_file(folder.path().join("logs")).unwrap();
        std::fs::rename(folder.path().join("moved"), folder.path().join("logs")).unwrap();
        assert!(log.compact_if_worth().unwrap() > WORTH_BYTES);
        assert!(std::fs::metadata(&path).unwrap().len() < 1 << 16);
        assert_eq!(rounds(&log, "new"), [4]);
    }
}
