//! Readers of a cache folder with one flipped bit in one file, or with one truncated file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use autotune_lowered::cache::{CacheKey, Entry, Mapping, SNAPSHOT_FILE, Snapshot, StoreError, TieredCache};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::DeviceIdentity;
use autotune_lowered::ledger::Ledger;

use super::Chance;
use crate::support::folder::in_memory;

const LOG_FILE: &str = "samples-v1.log";
const STATE_FILE: &str = "sled-v1.state";
const SLED_FOLDER: &str = "sled-v1";

/// Which bits and lengths are tried.
#[derive(Debug, Clone, Copy)]
pub enum Extent {
    /// Each bit of each byte, and each length.
    All,
    /// This many random ones per file.
    Some { of_a_file: u64, seed: u64 },
}

/// The stores next to the damaged one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Every other store, intact.
    Everything,
    /// The snapshot, and the sled of a killed run that did not close it, which counts as none.
    Snapshot,
    /// No other store.
    Nothing,
}

/// The outcome of the damage to one store.
#[derive(Debug, Default)]
pub struct Outcome {
    pub trials: u64,
    /// A message names it, and everything is read: from another store, or because the damage did not affect content.
    pub named: u64,
    /// A message names it, and an entry is missing or its predecessor is read: no other store had it.
    pub named_and_lost: u64,
    /// No message, and everything is read.
    pub harmless: u64,
    /// No message, and an entry is missing: a log was cut between two records, and no other store is left.
    pub cut_between_records: u64,
    /// The positions of the harmless ones, by file and byte.
    pub harmless_at: BTreeMap<String, u64>,
}

/// The folder before the damage.
pub struct Whole {
    files: BTreeMap<PathBuf, Vec<u8>>,
    expected: Vec<(CacheKey, Arc<Entry>)>,
    /// All committed entries.
    committed: Vec<(CacheKey, Arc<Entry>)>,
    place: tempfile::TempDir,
}

fn entry(text: &str) -> Arc<Entry> {
    Arc::new(serde_json::from_str(text).unwrap())
}

/// An entry with everything that a tuner writes besides the config.
fn decided(block: u64, decided_at: u64) -> Arc<Entry> {
    entry(&format!(
        r#"{{"config":{{"block":{block}}},"provenance":{{"job":"{job}","timer":"pjrt","source":"host-wall","metric":"elapsed",
        "environment":{{"platform_version":"cpu"}},"baseline":{{"block":0}},"baseline_ns":2000.5,"best_ns":1000.25,"ratio":0.5,
        "interval":{{"low":0.49,"high":0.51,"confidence":0.95}},"rounds":8,"measured":4,"failed":0,"tie_set":[],
        "tool":"tests","decided_at":{decided_at}}}}}"#,
        job = "0123456789abcdef".repeat(4)
    ))
}

impl Whole {
    pub fn new() -> Self {
        let place = in_memory();
        let root = place.path().join("whole");
        let device = DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware: Default::default() };
        let key =
            |op: &str| CacheKey { call: Call::new(op, "k"), direction: Direction::Forward, device: device.clone() };
        // the last decision replaces an earlier one, although the clock had jumped back between them
        let committed = vec![
            (key("a@v1"), decided(1, 2000)),
            (key("b@v1"), entry(r#"{"config":{"block":2}}"#)),
            (key("c@v1"), entry(r#"{"config":{"block":3}}"#)),
            (key("a@v1"), decided(4, 1000)),
        ];
        let ledger = Ledger::open(&root, Vec::new()).unwrap();
        for (key, entry) in &committed {
            ledger.commit(None, key, entry).unwrap();
        }
        ledger.publish().unwrap().unwrap();
        drop(ledger);
        let mut files = BTreeMap::new();
        collect(&root, &root, &mut files);
        fs::remove_dir_all(&root).unwrap();
        Self { files, expected: committed[1..].to_vec(), committed, place }
    }

    fn write(&self, root: &Path) {
        for (name, bytes) in &self.files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    /// Damages one store after the other; panics if readers get uncommitted data, or if data is lost without a message.
    pub fn damage(&self, is_damaged: impl Fn(&str) -> bool, beside: Beside, extent: Extent) -> Outcome {
        let mut outcome = Outcome::default();
        for (name, bytes) in self.files.iter().filter(|(name, _)| is_damaged(name.to_str().unwrap())) {
            let mut tried = |what: String, at: usize, damaged: &[u8]| {
                let what = format!("{}, {what}", name.display());
                let root = self.place.path().join("trial");
                self.write(&root);
                if beside != Beside::Everything {
                    fs::write(root.join(STATE_FILE), "open\n").unwrap();
                }
                if beside == Beside::Nothing {
                    fs::remove_dir_all(root.join(SLED_FOLDER)).unwrap();
                    fs::remove_file(root.join(STATE_FILE)).unwrap();
                    fs::remove_file(root.join(SNAPSHOT_FILE)).unwrap();
                }
                // a new file: a mapped one must not change
                let path = root.join(name);
                fs::remove_file(&path).unwrap();
                fs::write(&path, damaged).unwrap();
                let is_snapshot = name.ends_with(SNAPSHOT_FILE);
                let (said, whole) = if is_snapshot {
                    self.read_snapshot(&root, &what)
                } else {
                    self.read_ledger(&root, name.to_str().unwrap(), &what)
                };
                outcome.trials += 1;
                match (said, whole) {
                    (true, true) => outcome.named += 1,
                    (true, false) => outcome.named_and_lost += 1,
                    (false, true) => {
                        outcome.harmless += 1;
                        *outcome.harmless_at.entry(format!("{} byte {at}", name.display())).or_default() += 1;
                    }
                    (false, false) if beside == Beside::Nothing && ends_with_a_record(bytes, damaged) => {
                        outcome.cut_between_records += 1;
                    }
                    (false, false) => panic!("{what}: an entry is lost, and nothing was said"),
                }
                fs::remove_dir_all(&root).unwrap();
            };
            let mut flip = |at: usize, bit: usize| {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                tried(format!("bit {bit} of byte {at}"), at, &damaged);
            };
            match extent {
                Extent::All => (0..bytes.len() * 8).for_each(|place| flip(place / 8, place % 8)),
                Extent::Some { of_a_file, seed } => {
                    let mut chance = Chance::new(seed);
                    for _ in 0..of_a_file {
                        let place = chance.below(bytes.len() as u64 * 8) as usize;
                        flip(place / 8, place % 8);
                    }
                }
            }
            let mut cut = |length: usize| tried(format!("cut to {length} bytes"), length, &bytes[..length]);
            match extent {
                Extent::All => (0..bytes.len()).for_each(cut),
                Extent::Some { of_a_file, seed } => {
                    let mut chance = Chance::new(seed + 1);
                    (0..of_a_file / 4).for_each(|_| cut(chance.below(bytes.len() as u64) as usize));
                    // a cut between two records shows no damage
                    let ends =
                        (1..bytes.len()).filter(|&length| is_log(name.to_str().unwrap()) && bytes[length - 1] == b'\n');
                    ends.for_each(cut);
                }
            }
        }
        outcome
    }

    /// Whether a message named the damage, and whether everything is read, now and by later readers.
    fn read_ledger(&self, root: &Path, name: &str, what: &str) -> (bool, bool) {
        let ledger = Ledger::open(root, Vec::new()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = ledger.own_entries().unwrap();
        let notes = ledger.notes().to_vec();
        assert!(notes.iter().all(|note| !note.contains('\n')), "{what}: {notes:?}");
        drop(ledger);
        // a missing sled says nothing about a damaged log
        let names_it = |note: &String| match is_log(name) {
            true => note.contains(LOG_FILE) || note.contains("lost"),
            false => note.contains("sled"),
        };
        let said = notes.iter().any(names_it);
        for pair in &found {
            assert!(self.committed.contains(pair), "{what}: {} was never committed", pair.0.call.op_id);
        }
        let again = Ledger::open(root, Vec::new()).unwrap();
        assert_eq!(again.own_entries().unwrap(), found, "{what}: {notes:?}");
        assert_eq!(again.notes(), [] as [String; 0], "{what}: what was put right stays right");
        drop(again);
        // the log has everything: sled is rebuilt from it
        fs::remove_dir_all(root.join(SLED_FOLDER)).unwrap();
        fs::remove_file(root.join(STATE_FILE)).unwrap();
        let _ = fs::remove_file(root.join(SNAPSHOT_FILE));
        assert_eq!(Ledger::open(root, Vec::new()).unwrap().own_entries().unwrap(), found, "{what}");
        (said, found == self.sorted())
    }

    /// The same for a look-up at run time, and for the tuner that publishes next.
    fn read_snapshot(&self, root: &Path, what: &str) -> (bool, bool) {
        let path = root.join(SNAPSHOT_FILE);
        let mut said = false;
        let mut tell = |error: StoreError| {
            assert!(error.to_string().contains(SNAPSHOT_FILE), "{what}: {error}");
            said = true;
        };
        match Snapshot::open(&path, Mapping::WhereLocal).and_then(|snapshot| snapshot.verify()) {
            Ok(()) => {}
            Err(error) => tell(error),
        }
        match TieredCache::published(root, Mapping::WhereLocal, Vec::new()) {
            Err(error) => tell(error),
            Ok(cache) => {
                for (key, entry) in &self.expected {
                    match cache.entry(key) {
                        Ok(found) => assert_eq!(found.map(|(found, _)| found).as_ref(), Some(entry), "{what}"),
                        Err(error) => tell(error),
                    }
                }
            }
        }
        let ledger = Ledger::open(root, Vec::new()).unwrap();
        ledger.publish().unwrap();
        let whole = fs::read(&path).unwrap() == self.files[Path::new(SNAPSHOT_FILE)];
        (said, whole)
    }

    fn sorted(&self) -> Vec<(CacheKey, Arc<Entry>)> {
        let mut expected = self.expected.clone();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        expected
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for path in fs::read_dir(folder).unwrap().map(|item| item.unwrap().path()) {
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            files.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap());
        }
    }
}

pub fn is_log(name: &str) -> bool {
    name == LOG_FILE
}

pub fn is_sled(name: &str) -> bool {
    name.starts_with(SLED_FOLDER)
}

pub fn is_snapshot(name: &str) -> bool {
    name == SNAPSHOT_FILE
}

/// Whether a log was cut after a record, with or without its line feed.
fn ends_with_a_record(whole: &[u8], cut: &[u8]) -> bool {
    let is_at_line_feed = || cut.ends_with(b"\n") || whole.get(cut.len()) == Some(&b'\n');
    whole.starts_with(cut) && (cut.is_empty() || is_at_line_feed())
}
