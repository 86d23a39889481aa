//! The main job on `examples/transformer`, and the cost of its stores.
//!
//! `cargo bench --bench main_job -- [RUNS]` prints a table: wall time of a first run, of one that measures again with
//! the first one's executables, and of one with nothing new; then the cost of a round, a decision and opening a ledger.
//! It needs the PJRT plugin that `examples/transformer/tune` installs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::panic)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use autotune_lowered::cache::{CacheKey, Entry};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::DeviceIdentity;
use autotune_lowered::digest::Digest;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::report::format_ns;
use autotune_lowered::samples::{CandidateSamples, LogRecord, RoundRecord, SampleLog};
use autotune_lowered::stats::{median, quantile};

fn main() {
    let runs = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(3);
    println!("| what | median | least | most | n |\n| --- | --- | --- | --- | --- |");
    main_job(runs);
    stores();
}

fn row(what: &str, seconds: &[f64]) {
    let ns = |value: Option<f64>| format_ns(value.unwrap() * 1e9);
    let (least, most) = (ns(quantile(seconds, 0.0)), ns(quantile(seconds, 1.0)));
    println!("| {what} | {} | {least} | {most} | {} |", ns(median(seconds)), seconds.len());
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn main_job(runs: usize) {
    let (mut first, mut force, mut nothing) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        let cache = tempfile::tempdir().unwrap();
        let tune = |more: &[&str]| {
            let done = Command::new(env!("CARGO_BIN_EXE_autotune-lowered"))
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .args(["examples/transformer/module.hlo.txt", "--cache"])
                .arg(cache.path())
                .args(more)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            assert!(done.success(), "the main job failed: run examples/transformer/tune first");
        };
        first.push(timed(|| tune(&[])));
        force.push(timed(|| tune(&["--force"])));
        nothing.push(timed(|| tune(&[])));
    }
    row("first run: 24 programs compiled, 4 races", &first);
    row("`--force`: executables kept, 4 races", &force);
    row("nothing new", &nothing);
}

fn stores() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = SampleLog::open(&folder.path().join("log")).unwrap();
    let round = |round| {
        let samples = (0..16).map(|candidate| CandidateSamples { candidate, ns: vec![1_234_567; 4] }).collect();
        LogRecord::Round(RoundRecord::new(Digest::of(b"job"), 1, round, "host-wall".into(), samples))
    };
    let append: Vec<f64> = (0..1000).map(|n| timed(|| log.append(&round(n)).unwrap())).collect();
    row("append a round of 16 candidates × 4 runs", &append);

    let root = folder.path().join("cache");
    let ledger = Ledger::open(&root, vec![]).unwrap();
    let commit: Vec<f64> = (0..1000).map(|n| timed(|| ledger.commit(None, &key(n), &entry()).unwrap())).collect();
    row("commit a decision: log synced, sled flushed", &commit);
    row("close a cache of 1,000 entries", &[timed(|| drop(ledger))]);
    let open: Vec<f64> = (0..5).map(|_| timed(|| drop(reopen(&root)))).collect();
    row("open and close a cache of 1,000 entries", &open);
    let ledger = reopen(&root);
    let hit: Vec<f64> = (0..1000).map(|n| timed(|| drop(ledger.cache().entry(&key(n)).unwrap().unwrap()))).collect();
    row("hit in sled", &hit);
    let hit: Vec<f64> = (0..1000).map(|n| timed(|| drop(ledger.cache().entry(&key(n)).unwrap().unwrap()))).collect();
    row("hit in memory", &hit);
}

fn reopen(root: &Path) -> Ledger {
    Ledger::open(root, vec![]).unwrap()
}

fn key(n: usize) -> CacheKey {
    let device = DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware: Default::default() };
    CacheKey { call: Call::new(format!("op{n}@v1"), "0123456789abcdef"), direction: Direction::Forward, device }
}

fn entry() -> Arc<Entry> {
    let config =
        serde_json::from_str(r#"{"fwd_params":{"q_blocksize":256,"kv_blocksize":512},"platform":"xla"}"#).unwrap();
    Arc::new(Entry::new(config))
}
