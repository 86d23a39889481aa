//! Snapshots: readers find what was written, and a damaged file never gives another config.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use crate::support::folder::in_memory;
use autotune_lowered::cache::{
    CacheKey, ConfigStore, Entry, Mapping, SNAPSHOT_FILE, Snapshot, SnapshotStore, StoreError, StoreErrorKind, Tier,
    TieredCache, write_snapshot,
};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::DeviceIdentity;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_64;

fn device(number: u32) -> DeviceIdentity {
    let hardware = BTreeMap::from([("cores".to_owned(), number.to_string())]);
    DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware }
}

fn key(op: u32, call: u32, device_number: u32, vjp: bool) -> CacheKey {
    CacheKey {
        call: Call::new(format!("op_{op}@v1"), format!("{call:x}")),
        direction: if vjp { Direction::ForwardVjp } else { Direction::Forward },
        device: device(device_number),
    }
}

fn entry(block: u32) -> Arc<Entry> {
    Arc::new(serde_json::from_str(&format!(r#"{{"config":{{"block":{block},"name":"größe"}}}}"#)).unwrap())
}

fn entries(count: u32) -> Vec<(CacheKey, Arc<Entry>)> {
    (0..count).map(|n| (key(n % 7, n / 7, n % 3, n % 2 == 0), entry(n))).collect()
}

fn open(path: &std::path::Path) -> Result<Snapshot, StoreError> {
    Snapshot::open(path, Mapping::WhereLocal)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_key_is_found_and_no_other(
        wanted in prop::collection::vec((0..5_u32, 0..40_u32, 0..3_u32, any::<bool>(), any::<u32>()), 0..400),
    ) {
        let folder = in_memory();
        let path = folder.path().join("a.snapshot");
        let list: Vec<_> =
            wanted.iter().map(|&(op, call, device, vjp, block)| (key(op, call, device, vjp), entry(block))).collect();
        // of equal keys the last one counts, as in a map
        let map: BTreeMap<CacheKey, Arc<Entry>> = list.iter().cloned().collect();
        let digest = write_snapshot(&path, &list).unwrap();
        let store = SnapshotStore::new(open(&path).unwrap());
        prop_assert_eq!(store.snapshot().digest(), digest);
        prop_assert_eq!(store.snapshot().len(), map.len() as u64);
        store.snapshot().verify().unwrap();
        for op in 0..6 {
            for call in 0..41 {
                for (device, vjp) in [(0, false), (0, true), (1, false), (2, true), (3, false)] {
                    let key = key(op, call, device, vjp);
                    prop_assert_eq!(store.get(key.parts()).unwrap(), map.get(&key).cloned());
                }
                let (op, call) = (format!("op_{op}@v1"), format!("{call:x}"));
                let of_call: Vec<_> = map
                    .iter()
                    .filter(|(key, _)| key.call.op_id == op && key.call.call_key == call)
                    .map(|(key, entry)| (key.clone(), Arc::clone(entry)))
                    .collect();
                prop_assert_eq!(store.of_call(&op, &call).unwrap(), of_call);
            }
        }
        let all: Vec<_> = map.into_iter().collect();
        prop_assert_eq!(store.entries().unwrap(), all.clone());
        // the same entries in another order and with repetitions give the same bytes
        let again = folder.path().join("b.snapshot");
        write_snapshot(&again, &all.iter().rev().chain(&all).cloned().collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
    }
}

/// Every request of a reader is answered correctly or with an error, never with another config.
fn asks_are_right_or_fail(path: &std::path::Path, expected: &[(CacheKey, Arc<Entry>)]) -> bool {
    let Ok(snapshot) = open(path) else { return true };
    let mut failed = snapshot.verify().is_err();
    let store = SnapshotStore::new(snapshot);
    for pair @ (key, entry) in expected {
        match store.get(key.parts()) {
            Ok(Some(found)) => assert_eq!(found, *entry, "another config for {key:?}"),
            Ok(None) => panic!("{key:?} is lost without a word"),
            Err(error) => {
                failed = true;
                assert!(error.to_string().contains("a.snapshot"), "{error}");
            }
        }
        if let Ok(found) = store.of_call(&key.call.op_id, &key.call.call_key) {
            // each call has one entry
            assert!(found.iter().all(|other| other == pair), "{found:?}");
        }
    }
    match store.entries() {
        Ok(found) => assert_eq!(found, expected),
        Err(_) => failed = true,
    }
    failed
}

#[test]
fn every_flipped_bit_is_noticed_and_never_gives_another_config() {
    let folder = in_memory();
    let path = folder.path().join("a.snapshot");
    // several blocks of the index, of which the last one is not full, with each operation on each device
    let mut expected = entries(24);
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    write_snapshot(&path, &expected).unwrap();
    let good = fs::read(&path).unwrap();
    assert!(!asks_are_right_or_fail(&path, &expected), "the whole file is good");
    for at in 0..good.len() {
        for bit in [0, 5] {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            // a new file each time: a mapped one must not change
            fs::remove_file(&path).unwrap();
            fs::write(&path, &bad).unwrap();
            assert!(asks_are_right_or_fail(&path, &expected), "bit {bit} of byte {at} was flipped unnoticed");
        }
    }
    for length in 0..good.len() {
        fs::remove_file(&path).unwrap();
        fs::write(&path, &good[..length]).unwrap();
        assert!(open(&path).is_err(), "cut to {length} bytes");
    }
}

/// Damage after a config hides no config, and the damaged part is not used.
#[test]
fn a_damaged_provenance_leaves_the_config_readable() {
    let folder = in_memory();
    let path = folder.path().join("a.snapshot");
    let text =
        r#"{"config":{"block":1},"peer":{"format":"other","records":[{"place":0,"key":"k","value":"as it was"}]}}"#;
    let with_origin: Entry = serde_json::from_str(text).unwrap();
    let key = key(0, 0, 0, false);
    write_snapshot(&path, &[(key.clone(), Arc::new(with_origin))]).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(9).position(|part| part == b"as it was").unwrap();
    bytes[at] = b'A';
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    let store = SnapshotStore::new(open(&path).unwrap());
    let record = store.snapshot().get(0, &key.call.op_id, &key.call.call_key, key.direction).unwrap().unwrap();
    assert_eq!(record.config, r#"{"block":1}"#);
    assert!(store.get(key.parts()).unwrap_err().to_string().contains("a.snapshot"));
    assert!(store.snapshot().verify().unwrap_err().to_string().contains("the record at byte"));
}

#[test]
fn what_is_no_snapshot_is_refused_by_name() {
    let folder = in_memory();
    let path = folder.path().join("a.snapshot");
    let message = || open(&path).unwrap_err().to_string();
    assert!(message().contains("a.snapshot") && message().ends_with("; check the path"), "{}", message());
    fs::write(&path, "{\"schema\":1}").unwrap();
    assert!(message().contains("it is not a snapshot"), "{}", message());
    write_snapshot(&path, &entries(3)).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, &bytes[..100]).unwrap();
    assert!(message().contains("it ends inside its header"), "{}", message());
    for (version, says) in [(0, "its version was never written"), (2, "version 2, which this program does not read")] {
        bytes[8] = version;
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes).unwrap();
        assert!(message().contains(says), "{version}: {}", message());
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(message().contains("not a regular file"), "{}", message());
    assert!(write_snapshot(&path, &entries(3)).unwrap_err().to_string().contains("a.snapshot"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
}

/// A snapshot with an additional section, of an unknown kind, sealed as the module's documentation describes.
fn with_another_section(good: &[u8], flags: u32) -> Vec<u8> {
    const ANOTHER: u32 = 4711;
    let content = [7_u8; 128];
    let number = |at: usize| u64::from_le_bytes(good[at..at + 8].try_into().unwrap());
    let sections = number(24) as usize;
    let mut bytes = good[..64 + 64 * sections].to_vec();
    for section in 0..sections {
        // the table grows by one row
        let at = 64 + 64 * section + 8;
        bytes.splice(at..at + 8, (number(at) + 64).to_le_bytes());
    }
    let (offset, length) = (good.len() as u64 + 64, content.len() as u64);
    bytes.extend(ANOTHER.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    [offset, length, 1].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.extend(<[u8; 32]>::from(Sha256::digest(content)));
    bytes.splice(16..24, (offset + length).to_le_bytes());
    bytes.splice(24..32, (sections as u64 + 1).to_le_bytes());
    bytes[12..16].fill(0);
    bytes[32..64].fill(0);
    let digest = Sha256::digest(&bytes);
    bytes.splice(32..64, digest);
    let checksum = XxHash3_64::oneshot(&bytes) as u32;
    bytes.splice(12..16, checksum.to_le_bytes());
    bytes.extend(&good[64 + 64 * sections..]);
    bytes.extend(content);
    bytes
}

#[test]
fn an_unknown_section_is_skipped_unless_readers_must_know_it() {
    let folder = in_memory();
    let path = folder.path().join("a.snapshot");
    let mut expected = entries(40);
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    let digest = write_snapshot(&path, &expected).unwrap();
    let good = fs::read(&path).unwrap();
    let written = |bytes: &[u8]| {
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        open(&path)
    };
    let optional = with_another_section(&good, 0);
    let snapshot = written(&optional).unwrap();
    snapshot.verify().unwrap();
    assert_ne!(snapshot.digest(), digest, "it is part of the content");
    assert_eq!(SnapshotStore::new(snapshot).entries().unwrap(), expected);
    // a damaged one hides no entry, and is detected
    let mut damaged = optional;
    *damaged.last_mut().unwrap() ^= 1;
    let snapshot = written(&damaged).unwrap();
    assert!(snapshot.verify().unwrap_err().to_string().contains("digest"));
    assert_eq!(SnapshotStore::new(snapshot).entries().unwrap(), expected);
    for (flags, what) in [(1, "a section of kind 4711"), (2, "a section with the flags 0x2")] {
        let error = written(&with_another_section(&good, flags)).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NewerSnapshot);
        let line = error.to_string();
        assert!(line.contains(what) && line.ends_with("use a newer autotune-lowered"), "{line}");
    }
}

#[test]
fn an_open_snapshot_stays_what_it_was_when_another_is_published() {
    let folder = in_memory();
    let path = folder.path().join("a.snapshot");
    let first = write_snapshot(&path, &entries(100)).unwrap();
    let reader = SnapshotStore::new(open(&path).unwrap());
    assert_eq!(reader.tier(), Tier::Snapshot);
    let second = write_snapshot(&path, &[(key(0, 0, 0, true), entry(999))]).unwrap();
    assert_ne!(first, second);
    assert_eq!(reader.snapshot().digest(), first);
    assert_eq!(reader.entries().unwrap().len(), 100);
    reader.snapshot().verify().unwrap();
    let later = SnapshotStore::new(open(&path).unwrap());
    assert_eq!(later.snapshot().digest(), second);
    assert_eq!(later.get(key(0, 0, 0, true).parts()).unwrap(), Some(entry(999)));
    assert_eq!(later.put(&key(0, 0, 0, true), &entry(1)).unwrap_err().kind(), StoreErrorKind::ReadOnly);
}

/// The calls of a program at run time: open once, refresh by choice.
#[test]
fn a_refresh_shows_what_was_published_since() {
    let folder = in_memory();
    let path = folder.path().join(SNAPSHOT_FILE);
    let (one, two, gone) = (key(1, 0, 0, true), key(2, 0, 0, true), key(3, 0, 0, true));
    for mapping in [Mapping::WhereLocal, Mapping::Never] {
        let _ = fs::remove_file(&path);
        let mut cache = TieredCache::published(folder.path(), mapping, vec![]).unwrap();
        let found = |cache: &TieredCache, key: &CacheKey| cache.entry(key).unwrap();
        assert_eq!(found(&cache, &one), None);
        assert!(!cache.refresh().unwrap(), "nothing was published yet");

        write_snapshot(&path, &[(one.clone(), entry(1)), (gone.clone(), entry(3))]).unwrap();
        assert_eq!(found(&cache, &one), None, "nothing refreshes by itself");
        assert!(cache.refresh().unwrap());
        assert!(!cache.refresh().unwrap(), "it is this one still");
        assert_eq!(found(&cache, &one), Some((entry(1), Tier::Snapshot)));
        assert_eq!(found(&cache, &one), Some((entry(1), Tier::Memory)));
        assert_eq!(found(&cache, &gone), Some((entry(3), Tier::Snapshot)));
        cache.put(&two, &entry(20)).unwrap();
        let overlay = cache.overlay([(key(4, 0, 0, true), entry(4))]);

        write_snapshot(&path, &[(one.clone(), entry(10)), (two.clone(), entry(2))]).unwrap();
        assert_eq!(found(&cache, &one), Some((entry(1), Tier::Memory)));
        assert!(cache.refresh().unwrap());
        assert_eq!(found(&cache, &one), Some((entry(10), Tier::Snapshot)), "what memory held is asked again");
        assert_eq!(found(&cache, &gone), None);
        assert_eq!(found(&cache, &two), Some((entry(20), Tier::Memory)), "what was put into memory alone stays");
        assert_eq!(found(&cache, &key(4, 0, 0, true)), Some((entry(4), Tier::Overlay)));
        drop(overlay);

        // a damaged one is refused, and the open one stays in force
        fs::remove_file(&path).unwrap();
        fs::write(&path, "no snapshot").unwrap();
        assert!(cache.refresh().unwrap_err().to_string().contains(SNAPSHOT_FILE));
        fs::remove_file(&path).unwrap();
        assert!(!cache.refresh().unwrap(), "one that was taken away stays in force");
        assert_eq!(found(&cache, &one).unwrap().0, entry(10));
    }
}

#[test]
fn a_file_larger_than_any_snapshot_is_not_read() {
    let folder = in_memory();
    let path = folder.path().join("huge.snapshot");
    // without using disk space
    std::fs::File::create(&path).unwrap().set_len((1 << 34) + 1).unwrap();
    for mapping in [Mapping::Never, Mapping::WhereLocal] {
        let error = Snapshot::open(&path, mapping).unwrap_err().to_string();
        assert!(error.contains("17179869185 bytes, where at most 17179869184 are allowed"), "{error}");
    }
}

/// Copying over a snapshot truncates it first. If it is mapped, a refresh reports that instead of calling it unchanged;
/// if it was read, it stays as it was.
#[test]
fn a_refresh_notices_that_the_file_was_cut() {
    let folder = in_memory();
    let path = folder.path().join("a.snapshot");
    let list = entries(500);
    write_snapshot(&path, &list).unwrap();
    let [mapped, read] = [Mapping::WhereLocal, Mapping::Never].map(|how| Snapshot::open(&path, how).unwrap());
    assert!(mapped.is_mapped() && !read.is_mapped());
    let bytes = fs::read(&path).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    // the header remains
    file.set_len(4096).unwrap();
    let error = mapped.refreshed().unwrap_err().to_string();
    assert!(error.contains(&format!("it has 4096 bytes, {} were written", bytes.len())), "{error}");
    read.verify().unwrap();
    file.set_len(0).unwrap();
    assert!(mapped.refreshed().is_err() && read.refreshed().is_err());
    read.verify().unwrap();
    // written again, as in the second half of a copy: the same file, complete
    fs::write(&path, &bytes).unwrap();
    assert!(mapped.refreshed().unwrap().is_none());
    mapped.verify().unwrap();
}

#[test]
fn a_large_file_that_is_no_snapshot_is_not_read_into_memory() {
    let folder = in_memory();
    let path = folder.path().join("huge.snapshot");
    // without using disk space, and larger than a test's memory limit
    std::fs::File::create(&path).unwrap().set_len(1 << 34).unwrap();
    let error = Snapshot::open(&path, Mapping::Never).unwrap_err().to_string();
    assert!(error.contains("it is not a snapshot"), "{error}");
}
