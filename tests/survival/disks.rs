//! Full or read-only disks, no file handles left, a clock that jumps back: each has a clear outcome, and no reported
//! decision is lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::support::folder::in_memory;
use crate::support::prerequisite::Mount;
use crate::support::program::{Run, run};
use crate::support::survival::tuning::{Acknowledged, Tuning, as_pairs, read_snapshot};
use autotune_lowered::cache::{CacheKey, Entry, Mapping, Tier, TieredCache};
use autotune_lowered::cli::exit;
use autotune_lowered::ledger::Ledger;

/// However a run ended: everything that it reported is there, and the next run, without the obstacle, completes.
fn completes_after(tuning: &Tuning, cache: &Path, hindered: &Run, unhinder: impl FnOnce()) {
    assert!(!hindered.stderr.contains("panicked"), "{}", hindered.stderr);
    let mut acknowledged = Acknowledged::default();
    acknowledged.take(&hindered.stderr);
    tuning.check(cache, &acknowledged);
    unhinder();
    let run = tuning.run(cache);
    assert_eq!(run.code, 0, "{}", run.stderr);
    tuning.check_complete(cache);
}

/// A limit on the file size simulates a full disk without root: blocks of half a KiB, of which the log finally has some
/// ninety.
#[test]
fn a_file_that_may_not_grow_stops_the_run_and_loses_nothing() {
    let tuning = Tuning::new();
    let mut stopped = 0;
    for blocks in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 80, 1000] {
        let cache = tuning.path(&format!("limited-{blocks}"));
        let run = tuning.run_limited(&cache, &format!("trap '' XFSZ; ulimit -f {blocks}"));
        if run.code != 0 {
            assert_eq!(run.code, i32::from(exit::CACHE_TROUBLE), "{blocks} blocks: {}", run.stderr);
            assert!(run.fault().contains("File too large") && run.fault().contains("free space"), "{}", run.fault());
            stopped += 1;
        }
        completes_after(&tuning, &cache, &run, || {});

        // without a handler, the signal ends the process in the middle of the write
        let cache = tuning.path(&format!("ended-{blocks}"));
        let run = tuning.run_limited(&cache, &format!("ulimit -c 0; ulimit -f {blocks}"));
        assert!(run.code == 0 || run.code == -1, "{blocks} blocks: {} {}", run.code, run.stderr);
        completes_after(&tuning, &cache, &run, || {});
    }
    assert!((8..12).contains(&stopped), "{stopped} runs were stopped by the limit");
}

#[test]
fn a_full_disk_stops_the_run_and_loses_nothing() {
    let tuning = Tuning::new();
    for kib in [8, 16, 24, 32, 48, 64, 96, 128] {
        let Some(mount) = Mount::new(&format!("size={kib}k")) else { return };
        let cache = mount.path().join("cache");
        let run = tuning.run(&cache);
        if run.code != 0 {
            assert_eq!(run.code, i32::from(exit::CACHE_TROUBLE), "{kib} KiB: {}", run.stderr);
            assert!(run.fault().contains("No space left"), "{kib} KiB: {}", run.fault());
        }
        completes_after(&tuning, &cache, &run, || mount.remount("size=64m"));
    }
}

/// Look-ups write nothing.
#[test]
fn a_read_only_folder_is_named_and_still_read() {
    let tuning = Tuning::new();
    let mount = Mount::new("size=64m");
    let is_root = rustix::process::geteuid().is_root();
    if mount.is_none() && is_root {
        return;
    }
    let folder = mount.as_ref().map_or_else(|| tuning.path("read-only"), |mount| mount.path().to_owned());
    let cache = folder.join("cache");
    assert_eq!(tuning.run(&cache).code, 0);
    let allow = |mode: u32| fs::set_permissions(&cache, fs::Permissions::from_mode(mode)).unwrap();
    match &mount {
        Some(mount) => mount.remount("ro"),
        None => allow(0o555),
    }
    let refused = tuning.run(&cache);
    assert_eq!(refused.code, i32::from(exit::CACHE_TROUBLE), "{}", refused.stderr);
    assert!(
        ["Read-only", "Permission denied"].iter().any(|word| refused.fault().contains(word)),
        "{}",
        refused.fault()
    );
    assert!(!refused.fault().contains("free space"), "{}", refused.fault());
    let list = run(&cache, &["cache", "ls", "--format", "json"]);
    assert_eq!(list.json()["entries"].as_array().unwrap().len(), tuning.expected.len(), "{}", list.stderr);
    let published = TieredCache::published(&cache, Mapping::WhereLocal, Vec::new()).unwrap();
    for key in tuning.expected.keys() {
        assert_eq!(published.entry(key).unwrap().unwrap().1, Tier::Snapshot);
    }
    match &mount {
        Some(mount) => mount.remount("rw"),
        None => allow(0o755),
    }
    tuning.check_complete(&cache);
}

#[test]
fn too_few_file_handles_stop_the_run_and_lose_nothing() {
    let tuning = Tuning::new();
    let mut stopped = 0;
    // with four, nothing can be opened at all: three are the standard ones, and stdout's is duplicated
    for handles in 5..16 {
        let cache = tuning.path(&format!("handles-{handles}"));
        let run = tuning.run_limited(&cache, &format!("ulimit -n {handles}"));
        if run.code != 0 {
            // if they suffice for the cache, outputs cannot be read, which counts as trouble of the device
            let codes = [exit::CACHE_TROUBLE, exit::DEVICE_TROUBLE].map(i32::from);
            assert!(codes.contains(&run.code), "{handles} handles: {}: {}", run.code, run.stderr);
            let said = if run.code == codes[0] { run.fault() } else { &run.stderr };
            assert!(said.contains("Too many open files"), "{said}");
            assert!(said.contains("ulimit -n") && !said.contains("free space"), "{said}");
            stopped += 1;
        }
        completes_after(&tuning, &cache, &run, || {});
    }
    assert!((1..11).contains(&stopped), "{stopped} runs were stopped by the limit");
}

/// The log's order decides which decision is the last one, in every store; a clock that was set back does not.
#[test]
fn a_clock_that_jumps_back_changes_no_order() {
    let root = in_memory();
    let (key, entry) = as_pairs(&Tuning::new().expected).remove(1);
    let at = |decided_at: u64, block: u32| {
        let mut entry = Entry::clone(&entry);
        entry.config = serde_json::from_str(&format!(r#"{{"block":{block}}}"#)).unwrap();
        entry.provenance.as_mut().unwrap().decided_at = decided_at;
        Arc::new(entry)
    };
    let block = |entry: Option<Arc<Entry>>| entry.map(|entry| entry.config.to_string());
    let (before, after) = (at(2_000_000_000, 1), at(0, 2));
    let ledger = Ledger::open(root.path(), Vec::new()).unwrap();
    ledger.commit(None, &key, &before).unwrap();
    ledger.commit(None, &key, &after).unwrap();
    ledger.publish().unwrap();
    let newest = Some(r#"{"block":2}"#.to_owned());
    let in_force = |ledger: &Ledger, key: &CacheKey| block(ledger.cache().entry(key).unwrap().map(|(entry, _)| entry));
    assert_eq!(in_force(&ledger, &key), newest);
    drop(ledger);
    assert_eq!(in_force(&Ledger::open(root.path(), Vec::new()).unwrap(), &key), newest, "sled");
    assert_eq!(in_force(&Ledger::rebuild(root.path()).unwrap(), &key), newest, "the log");
    let published = read_snapshot(&root.path().join("best-v1.snapshot"));
    assert_eq!(published[&key].config.to_string(), newest.clone().unwrap());
    // the log loses the last decision, and a cleanly closed sled restores it although it looks older
    let log = root.path().join("samples-v1.log");
    let mut bytes = fs::read(&log).unwrap();
    let place = bytes.windows(12).rposition(|window| window == br#"\"block\":2}"#).expect("the last decision");
    bytes[place] ^= 1;
    fs::write(&log, bytes).unwrap();
    let mended = Ledger::open(root.path(), Vec::new()).unwrap();
    assert_eq!(in_force(&mended, &key), newest, "{:?}", mended.notes());
    assert_eq!(mended.own_entries().unwrap().len(), 1);
}
