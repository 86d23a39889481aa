//! Tuning runs that are killed, and runs whose workers are: nothing reported is lost, nothing is torn, and a single
//! kill is not blamed on a program.
//!
//! `cargo bench --bench survival` kills ten times as many.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::folder::in_memory;
use crate::support::{program, survival};
use autotune_lowered::cache::{CacheKey, Entry};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::{DeviceFingerprint, DeviceIdentity, Environment};
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::measured_by::{MeasuredBy, Source};
use autotune_lowered::samples::{CandidateSamples, FailureRecord, JobRecord, LogRecord, RoundRecord, SampleLog};

#[test]
fn fifty_killed_runs_lose_nothing() {
    let seen = survival::kills::run(50, 6);
    assert_eq!(seen.kills, 50);
    // a test whose kills all come before the first decision, or after the last, would show nothing
    assert!(seen.in_between >= 10, "{seen:?}");
    assert!(seen.folders >= 2, "{seen:?}");
}

/// The data behind a decision, in a separate folder: an old job of `old_rounds` rounds and as many failures of 1 MB
/// each, superseded, then the current one.
fn superseded(root: &Path, old_rounds: u32) -> (Digest, Digest) {
    fs::create_dir_all(root).unwrap();
    let mut log = SampleLog::open(&root.join("samples-v1.log")).unwrap();
    let identity = DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware: Default::default() };
    let (op_id, call_key, direction) = ("op@v1".to_owned(), "k".to_owned(), Direction::Forward);
    let device = DeviceFingerprint { identity: identity.clone(), environment: Environment::default() };
    let key = CacheKey { call: Call::new(&op_id, &call_key), direction, device: identity }.to_text();
    let (old, new) = (Digest::of(b"old"), Digest::of(b"new"));
    for (job, rounds) in [(old, old_rounds), (new, 3)] {
        let record = {
            let call = Call::new(op_id.clone(), call_key.clone());
            let measured_by = MeasuredBy::new("replay", Source::Replay);
            JobRecord::new(job, device.clone(), call, direction, measured_by, 0, Vec::new())
        };
        log.append(&LogRecord::Job(Box::new(record))).unwrap();
        for round in 0..rounds {
            let samples = vec![CandidateSamples { candidate: 0, ns: vec![1_000_000_000; 5] }];
            log.append(&LogRecord::Round(RoundRecord::new(job, 0, round, Source::Replay, samples))).unwrap();
        }
        for _ in 0..if job == old { old_rounds } else { 0 } {
            let failure = Failure::new(FailureKind::Crash, "long ".repeat(200_000));
            log.append(&LogRecord::Failed(FailureRecord::new(job, 1, failure))).unwrap();
        }
        let config = if job == old { r#"{"block":1}"# } else { r#"{"block":2}"# };
        let entry = Entry::new(serde_json::from_str(config).unwrap());
        log.commit(Some(job), &key, &entry.to_text()).unwrap();
    }
    (old, new)
}

/// The content of a folder's log: its bytes, the one entry, and the rounds of either job.
fn held(root: &Path, (old, new): (Digest, Digest)) -> (u64, String, usize, usize) {
    let path = root.join("samples-v1.log");
    let log = SampleLog::read(&path).unwrap();
    assert!(log.is_consistent() && log.damage.is_empty() && log.stated.count == 1, "{log:?}");
    let rounds = |job| log.history_of(&path, job).unwrap().rounds.len();
    let entry = log.entries.values().next().unwrap().clone();
    (fs::metadata(&path).unwrap().len(), entry, rounds(old), rounds(new))
}

/// Rounds and failures of the old job in the log that is compacted.
const OLD: u32 = 9;

/// Whenever a compaction is killed, the old log or the new one remains, and the next run completes.
#[test]
fn a_killed_compaction_leaves_a_whole_log() {
    let folder = in_memory();
    let (template, root) = (folder.path().join("template"), folder.path().join("cache"));
    // a little more than the 8 MiB below which a log is left alone
    let jobs = superseded(&template, OLD);
    let (bytes, entry, ..) = held(&template, jobs);
    let mut waited = Duration::ZERO;
    let mut killed = 0;
    loop {
        if root.exists() {
            fs::remove_dir_all(&root).unwrap();
        }
        program::copy_folder(&template, &root);
        let mut command = program::command(&root);
        let mut child = command.args(["cache", "ls"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(waited);
        child.kill().unwrap();
        let is_killed = !child.wait().unwrap().success();
        let now = held(&root, jobs);
        match now.2 {
            whole if whole == OLD as usize => assert_eq!(now, (bytes, entry.clone(), whole, 3)),
            rounds => assert_eq!((&now.1, rounds, now.3, now.0 < 10_000), (&entry, 0, 3, true)),
        }
        let next = program::run(&root, &["cache", "ls", "--format", "json"]);
        assert_eq!(next.code, 0, "{}", next.stderr);
        assert_eq!(next.json()["entries"][0]["config"]["block"], 2);
        let (.., old, new) = held(&root, jobs);
        assert_eq!((old, new), (0, 3), "the next run compacts");
        let names = fs::read_dir(&root).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = names.filter(|name| name.starts_with(".tmp") || name.contains("set-aside")).collect();
        assert_eq!(left, [] as [String; 0]);
        if !is_killed {
            break;
        }
        killed += 1;
        // until one completes: each kill comes later than the one before
        waited += Duration::from_millis(4).max(waited / 8);
    }
    assert!(killed > 0);
}

/// Only `cache prune` compacts small logs, even with nothing to prune.
#[test]
fn prune_compacts_whatever_it_gives_back() {
    let folder = in_memory();
    let root = folder.path().join("cache");
    let jobs = superseded(&root, 1);
    let before = held(&root, jobs);
    assert_eq!(program::run(&root, &["cache", "ls"]).code, 0);
    assert_eq!(held(&root, jobs), before, "a log of little is left as it is");
    let dry = program::run(&root, &["cache", "prune", "--older-than", "90d", "--dry-run"]);
    assert_eq!((dry.code, held(&root, jobs)), (0, before.clone()));
    let pruned = program::run(&root, &["cache", "prune", "--older-than", "90d", "-v"]);
    assert_eq!(pruned.code, 0, "{}", pruned.stderr);
    assert!(pruned.stderr.contains("the sample log released"), "{}", pruned.stderr);
    let after = held(&root, jobs);
    assert_eq!((&after.1, after.2, after.3), (&before.1, 0, 3));
    assert_eq!(program::run(&root, &["cache", "verify", root.to_str().unwrap()]).code, 0);
    // after its removal, it does not come back from the rest of the log or from the snapshot
    assert_eq!(program::run(&root, &["cache", "rm", "op@v1"]).code, 0);
    assert_eq!(program::run(&root, &["cache", "prune", "--older-than", "90d"]).code, 0);
    fs::write(root.join("sled-v1.state"), "open\n").unwrap();
    let listed = program::run(&root, &["cache", "ls", "--format", "json"]).json();
    assert_eq!(listed["entries"], serde_json::json!([]));
}

#[test]
fn a_worker_that_is_killed_at_any_request_costs_nothing() {
    // an odd step, so that workers and supervisors take turns
    let runs = survival::workers::run_every_request(3);
    assert!(runs >= 12, "{runs}");
}

#[test]
fn killed_workers_change_no_result() {
    let seen = survival::workers::run_played(15, 6);
    assert_eq!(seen.kills(), 15);
    assert!(seen.restarts >= 1 && seen.victims.len() == 2, "{seen:?}");
}
