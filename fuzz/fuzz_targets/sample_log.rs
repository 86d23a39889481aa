//! A sample log's bytes: appended records are there after the next opening, and nothing else is lost.
//!
//! After a first byte of `+`, each line is a record that gets its frame here: a fuzzer does not guess checksums.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use autotune_lowered::digest::Digest;
use autotune_lowered::samples::{CandidateSamples, LogRecord, RoundRecord, SampleLog};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fn framed(records: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    for record in records.split(|&byte| byte == b'\n').filter(|record| !record.is_empty()) {
        log.extend_from_slice(format!("ATL1 {:08x} {:08x} ", record.len(), crc32fast::hash(record)).as_bytes());
        log.extend_from_slice(record);
        log.push(b'\n');
    }
    log
}

fuzz_target!(|input: &[u8]| {
    let log = input.strip_prefix(b"+").map(framed);
    let bytes = log.as_deref().unwrap_or(input);
    let path = FOLDER.path().join("samples-v1.log");
    fs::write(&path, bytes).expect("a log");
    let read = SampleLog::read(&path);
    let Ok(mut log) = SampleLog::open(&path) else {
        assert!(read.is_err());
        assert_eq!(fs::read(&path).expect("still there"), bytes, "a log that is refused stays as it is");
        return;
    };
    let before = log.replay().entries.clone();
    assert_eq!(read.expect("what can be opened can be read").entries, before);
    assert_eq!(log.replay().committed.count, before.len() as u64);
    let job = Digest::of(b"fuzz");
    let earlier = log.history(job).expect("readable");
    let round = RoundRecord::new(job, 1, 7, "replay".into(), vec![CandidateSamples { candidate: 0, ns: vec![1] }]);
    log.append(&LogRecord::Round(round.clone())).expect("appended");
    log.commit(Some(job), "key", "value").expect("committed");
    let live = log.history(job).expect("readable");
    drop(log);

    let log = SampleLog::open(&path).expect("our own log");
    let mut expected = before;
    expected.insert("key".to_owned(), "value".to_owned());
    assert_eq!(log.replay().entries, expected);
    let history = log.history(job).expect("readable");
    assert_eq!(history, live);
    assert_eq!(history.rounds.len(), earlier.rounds.len() + 1);
    assert_eq!(history.rounds.last(), Some(&round));
    assert!(fs::read(&path).expect("still there").starts_with(bytes), "a log only grows");
});
