//! Sample log and sled together: whatever happens to the files of either, exactly the committed entries are read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::folder::in_memory;
use autotune_lowered::cache::{CacheKey, Entry, Tier};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::config::Config;
use autotune_lowered::device::DeviceIdentity;
use autotune_lowered::ledger::{Ledger, LedgerError};

fn key(n: usize) -> CacheKey {
    let device = DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware: Default::default() };
    CacheKey { call: Call::new(format!("op{n}@v1"), "k"), direction: Direction::Forward, device }
}

fn entry(n: usize) -> Arc<Entry> {
    let config: Config = serde_json::from_str(&format!(r#"{{"block":{n}}}"#)).unwrap();
    Arc::new(Entry::new(config))
}

fn filled(root: &Path, entries: usize) {
    let ledger = Ledger::open(root, vec![]).unwrap();
    for n in 0..entries {
        ledger.commit(None, &key(n), &entry(n)).unwrap();
    }
}

/// A fresh process's result for each of the first `entries` keys.
fn read(root: &Path, entries: usize) -> (Vec<Option<Config>>, Vec<String>) {
    let ledger = Ledger::open(root, vec![]).unwrap();
    let configs =
        (0..entries).map(|n| ledger.cache().entry(&key(n)).unwrap().map(|(entry, _)| entry.config.clone())).collect();
    (configs, ledger.notes().to_vec())
}

fn all(entries: usize) -> Vec<Option<Config>> {
    (0..entries).map(|n| Some(entry(n).config.clone())).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for item in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(item.file_name());
        if item.path().is_dir() {
            copy(&item.path(), &target);
        } else {
            fs::copy(item.path(), target).unwrap();
        }
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for item in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if item.path().is_dir() { files.extend(files_below(&item.path())) } else { files.push(item.path()) }
    }
    files.sort();
    files
}

#[test]
fn sled_is_what_the_next_process_reads() {
    let root = in_memory();
    filled(root.path(), 3);
    let ledger = Ledger::open(root.path(), vec![]).unwrap();
    assert_eq!(ledger.cache().entry(&key(1)).unwrap().unwrap().1, Tier::Sled);
    assert_eq!(ledger.cache().entry(&key(1)).unwrap().unwrap().1, Tier::Memory, "a hit is promoted");
    assert_eq!(ledger.notes(), &[] as &[String]);
}

/// Every non-zero byte of the database's files, and one in 4096 of the zeroes that pad them.
#[test]
fn a_flipped_byte_of_sled_never_changes_what_is_read() {
    let original = in_memory();
    filled(original.path(), 3);
    let database = original.path().join("sled-v1");
    let mut flipped = 0;
    let trial = in_memory();
    for file in files_below(&database) {
        let name = file.strip_prefix(original.path()).unwrap();
        let bytes = fs::read(&file).unwrap();
        let places = (0..bytes.len()).filter(|&at| bytes[at] != 0 || at % 4096 == 0);
        for at in places {
            let root = trial.path().join(flipped.to_string());
            copy(original.path(), &root);
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(root.join(name), damaged).unwrap();
            let (configs, notes) = read(&root, 3);
            assert_eq!(configs, all(3), "{} byte {at}", name.display());
            assert!(notes[0].contains("set aside"), "{notes:?}");
            fs::remove_dir_all(root).unwrap();
            flipped += 1;
        }
    }
    assert!(flipped > 100, "only {flipped} bytes were flipped");
}

/// A flipped byte of the log costs at most one decision, the one with this byte, and sled still has that.
#[test]
fn a_flipped_byte_of_the_log_loses_nothing_that_sled_holds() {
    let original = in_memory();
    filled(original.path(), 2);
    let log = fs::read(original.path().join("samples-v1.log")).unwrap();
    let first_line = log.iter().position(|&byte| byte == b'\n').unwrap();
    let trial = in_memory();
    for at in (first_line..log.len()).step_by(7) {
        let root = trial.path().join(at.to_string());
        copy(original.path(), &root);
        let mut damaged = log.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(root.join("samples-v1.log"), damaged).unwrap();
        let (configs, notes) = read(&root, 2);
        assert_eq!(configs, all(2), "byte {at}: {notes:?}");
        assert!(!notes.is_empty(), "byte {at} went unnoticed");
        // sled's entries are in the log again
        fs::remove_dir_all(root.join("sled-v1")).unwrap();
        assert_eq!(read(&root, 2).0, all(2), "byte {at}");
        fs::remove_dir_all(root).unwrap();
    }
}

#[test]
fn a_foreign_or_missing_database_is_filled_again_from_the_log() {
    let root = in_memory();
    filled(root.path(), 3);
    fs::remove_dir_all(root.path().join("sled-v1")).unwrap();
    let (configs, notes) = read(root.path(), 3);
    assert_eq!(configs, all(3));
    assert!(notes[0].contains("was missing"), "{notes:?}");

    fs::remove_dir_all(root.path().join("sled-v1")).unwrap();
    fs::remove_file(root.path().join("sled-v1.state")).unwrap();
    fs::create_dir(root.path().join("sled-v1")).unwrap();
    fs::write(root.path().join("sled-v1/db"), [7; 100]).unwrap();
    let (configs, notes) = read(root.path(), 3);
    assert_eq!(configs, all(3));
    assert!(notes[0].contains("not a folder of this program"), "{notes:?}");
}

#[test]
fn a_lost_log_is_written_again_from_sled() {
    let root = in_memory();
    filled(root.path(), 3);
    fs::remove_file(root.path().join("samples-v1.log")).unwrap();
    let (configs, notes) = read(root.path(), 3);
    assert_eq!(configs, all(3));
    assert!(notes[0].contains("lost 3 decisions"), "{notes:?}");
    fs::remove_dir_all(root.path().join("sled-v1")).unwrap();
    assert_eq!(read(root.path(), 3).0, all(3));
}

/// The log is the truth: if sled missed a commit and was closed cleanly, it must not undo a synced decision, not even
/// if a killed run once left a torn line in the log.
#[test]
fn a_decision_that_sled_missed_survives_an_old_torn_line() {
    let root = in_memory();
    filled(root.path(), 1);
    let log = root.path().join("samples-v1.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend_from_slice(b"ATL1 000000ff 00000000 {\"record\":\"rou");
    fs::write(&log, bytes).unwrap();
    // sled before the second commit: as if that commit had failed in sled alone
    let before = in_memory();
    copy(root.path(), before.path());
    Ledger::open(root.path(), vec![]).unwrap().commit(None, &key(1), &entry(1)).unwrap();
    for name in ["sled-v1", "sled-v1.state"] {
        let (from, to) = (before.path().join(name), root.path().join(name));
        if to.is_dir() {
            fs::remove_dir_all(&to).unwrap();
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
    let (configs, notes) = read(root.path(), 2);
    assert_eq!(configs, all(2), "{notes:?}");
    assert_eq!(read(root.path(), 2).0, all(2));
}

/// The same with damage after the last decision, where either store may lack entries: nothing is lost.
#[test]
fn a_damaged_log_and_an_older_sled_give_all_that_either_holds() {
    let root = in_memory();
    filled(root.path(), 2);
    let log = root.path().join("samples-v1.log");
    let mut bytes = fs::read(&log).unwrap();
    let last = bytes.len() - 1 - bytes.iter().rev().skip(1).position(|&byte| byte == b'\n').unwrap();
    bytes[last + 40] ^= 1;
    fs::write(&log, &bytes).unwrap();
    // a third decision follows the damage in the log alone
    let other = in_memory();
    fs::write(other.path().join("samples-v1.log"), &bytes).unwrap();
    Ledger::open(other.path(), vec![]).unwrap().commit(None, &key(2), &entry(2)).unwrap();
    bytes = fs::read(other.path().join("samples-v1.log")).unwrap();
    bytes.extend_from_slice(b"torn");
    fs::write(&log, bytes).unwrap();
    assert_eq!(read(root.path(), 3).0, all(3));
    assert_eq!(read(root.path(), 3).0, all(3));
}

#[test]
fn a_removed_entry_stays_removed_after_a_rebuild() {
    let root = in_memory();
    filled(root.path(), 3);
    let ledger = Ledger::open(root.path(), vec![]).unwrap();
    assert_eq!(ledger.remove_all(&[key(1)]).unwrap(), 1);
    drop(ledger);
    drop(Ledger::rebuild(root.path()).unwrap());
    let (configs, _) = read(root.path(), 3);
    assert_eq!(configs, [Some(entry(0).config.clone()), None, Some(entry(2).config.clone())]);
}

#[test]
fn a_foreign_log_is_left_alone_and_named() {
    let root = in_memory();
    fs::write(root.path().join("samples-v1.log"), "not ours\n").unwrap();
    let Err(LedgerError::Log(error)) = Ledger::open(root.path(), vec![]).map(drop) else { panic!("it was opened") };
    assert!(error.to_string().contains("samples-v1.log"), "{error}");
    assert_eq!(fs::read_to_string(root.path().join("samples-v1.log")).unwrap(), "not ours\n");
}

#[test]
fn a_second_ledger_is_refused_by_name() {
    let root = in_memory();
    let first = Ledger::open(root.path(), vec![]).unwrap();
    let error = Ledger::open(root.path(), vec![]).map(drop).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    drop(first);
    Ledger::open(root.path(), vec![]).unwrap();
}

#[test]
fn look_ups_go_on_while_another_process_has_the_folder() {
    let root = in_memory();
    filled(root.path(), 2);
    let writer = Ledger::open(root.path(), vec![]).unwrap();
    writer.commit(None, &key(2), &entry(2)).unwrap();
    let reader = Ledger::open_for_reading(root.path(), Vec::new).unwrap();
    let found = reader.cache().entry(&key(2)).unwrap().unwrap();
    assert_eq!(found, (entry(2), Tier::SampleLog));
    assert!(reader.notes()[0].contains(&format!("process {}", std::process::id())), "{:?}", reader.notes());
    assert_eq!(reader.cache().entries().unwrap().len(), 3);
    drop(writer);
    let free = Ledger::open_for_reading(root.path(), Vec::new).unwrap();
    assert_eq!(free.cache().entry(&key(2)).unwrap().unwrap().1, Tier::Sled);
    let nowhere = root.path().join("nowhere");
    assert!(Ledger::open_for_reading(&nowhere, Vec::new).unwrap().cache().entries().unwrap().is_empty());
    assert!(!nowhere.exists(), "a look-up makes no folder");
}

#[test]
fn a_run_killed_before_its_first_decision_leaves_nothing_behind() {
    let root = in_memory();
    filled(root.path(), 0);
    // as after a kill
    fs::write(root.path().join("sled-v1.state"), "open\n").unwrap();
    let (_, notes) = read(root.path(), 0);
    assert_eq!(notes, [] as [String; 0]);
    let names: Vec<_> = fs::read_dir(root.path()).unwrap().map(|item| item.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_str().unwrap().contains("set-aside")), "{names:?}");
}

#[test]
fn a_torn_line_is_told_of_once() {
    let root = in_memory();
    filled(root.path(), 1);
    let log = root.path().join("samples-v1.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend_from_slice(b"ATL1 00000");
    fs::write(&log, bytes).unwrap();
    let (configs, notes) = read(root.path(), 1);
    assert_eq!((configs, notes.len()), (all(1), 1), "{notes:?}");
    assert!(notes[0].contains("incomplete record"), "{notes:?}");
    assert_eq!(read(root.path(), 1), (all(1), vec![]));
}
