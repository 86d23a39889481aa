//! Reader processes beside one writer that publishes as fast as it can.
//!
//! Version `v` of the snapshot changes only the key `v % KEYS`, so that any mixture of two versions is detected: in
//! version `v`, key `k` has the largest number up to `v` with remainder `k`. The file `published` grows by a byte after
//! each publication, the file `opened` whenever a reader opens the snapshot anew, and `renewed` when a reader finds
//! something newer.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use autotune_lowered::cache::{CacheKey, Entry, Lookup, Mapping, SNAPSHOT_FILE, Snapshot, TieredCache, write_snapshot};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::{DeviceFingerprint, DeviceIdentity, Environment, MatchMode};
use serde_json::{Value, json};

const KEYS: u64 = 32;
/// How much longer than requested the test waits for slow readers.
const PATIENCE: Duration = Duration::from_secs(300);
/// Names the folder in a process that must be a reader.
const ROLE: &str = "AUTOTUNE_LOWERED_SURVIVAL_READER";

#[derive(Debug, Default)]
pub struct Readers {
    pub published: u64,
    pub opens: u64,
    pub refreshes: u64,
    /// Refreshes that found something newer.
    pub newer: u64,
    pub look_ups: u64,
}

fn device() -> DeviceFingerprint {
    let identity = DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware: Default::default() };
    DeviceFingerprint { identity, environment: Environment::default() }
}

fn op_id(key: u64) -> String {
    format!("op{key}@v1")
}

/// The value of a key in a version, 0 for nothing.
fn expected(key: u64, version: u64) -> u64 {
    ((version + KEYS - key) / KEYS * KEYS + key).saturating_sub(KEYS)
}

/// Makes this process a reader if it was started as one.
pub fn serve_if_asked() -> bool {
    let Some(folder) = std::env::var_os(ROLE) else { return false };
    let (folder, number) = (Path::new(&folder), std::process::id());
    let report = read(folder, if number.is_multiple_of(2) { Mapping::WhereLocal } else { Mapping::Never });
    fs::write(folder.join(format!("report-{number}")), report.to_string()).unwrap();
    true
}

fn read(folder: &Path, mapping: Mapping) -> Value {
    let device = device();
    let open = || TieredCache::published(folder, mapping, Vec::new()).unwrap();
    // each write appends one byte: all readers share these files
    let appending = |name: &str| OpenOptions::new().create(true).append(true).open(folder.join(name)).unwrap();
    let (mut opened, mut renewed) = (appending("opened"), appending("renewed"));
    let (mut opens, mut refreshes, mut newer, mut look_ups, mut seen) = (1_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    let mut cache = open();
    let parent = rustix::process::getppid();
    loop {
        assert_eq!(rustix::process::getppid(), parent, "the test was ended before its readers");
        let is_over = folder.join("over").exists();
        // published before this refresh, so that it must be found
        let published = fs::metadata(folder.join("published")).unwrap().len();
        if opens * 8 <= refreshes {
            cache = open();
            opens += 1;
            opened.write_all(b".").unwrap();
        } else {
            if cache.refresh().unwrap() {
                newer += 1;
                renewed.write_all(b".").unwrap();
            }
            refreshes += 1;
        }
        let versions: Vec<u64> = (0..KEYS)
            .map(|key| match cache.lookup(&device, &op_id(key), "k", None, MatchMode::Exact).unwrap() {
                Lookup::Hit(hit) => {
                    serde_json::from_str::<Value>(hit.entry.config.as_str()).unwrap()["version"].as_u64().unwrap()
                }
                Lookup::Miss(_) => 0,
            })
            .collect();
        look_ups += KEYS;
        let version = versions.iter().copied().max().unwrap();
        let whole: Vec<u64> = (0..KEYS).map(|key| expected(key, version)).collect();
        assert_eq!(versions, whole, "version {version} is not what was published");
        assert!(version >= published, "version {version} was found after {published} was published");
        assert!(version >= seen, "version {version} after {seen}");
        seen = version;
        if is_over {
            return json!({"opens": opens, "refreshes": refreshes, "newer": newer, "look_ups": look_ups, "seen": seen});
        }
    }
}

/// Runs `readers` processes for some seconds, and longer on a busy machine, until at least `least` snapshots were
/// published, opened anew and found newer. Panics if a reader finds a wrong value. `role` are the arguments that lead a
/// process of this program to [`serve_if_asked`].
pub fn run(readers: usize, seconds: u64, least: u64, role: &[&str]) -> Readers {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let mut published = OpenOptions::new().create(true).append(true).open(folder.join("published")).unwrap();
    let mut entries: Vec<(CacheKey, Arc<Entry>)> = Vec::new();
    let mut version = 0;
    let mut publish = |version: u64| {
        let config = serde_json::from_str(&format!(r#"{{"version":{version}}}"#)).unwrap();
        let key = CacheKey {
            call: Call::new(op_id(version % KEYS), "k"),
            direction: Direction::Forward,
            device: device().identity,
        };
        entries.retain(|(old, _)| *old != key);
        entries.push((key, Arc::new(Entry::new(config))));
        write_snapshot(&folder.join(SNAPSHOT_FILE), &entries).unwrap();
        published.write_all(b".").unwrap();
    };
    let program = std::env::current_exe().unwrap();
    let mut children: Vec<Child> = (0..readers)
        .map(|_| Command::new(&program).args(role).env(ROLE, folder).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let count = |name: &str| fs::metadata(folder.join(name)).map_or(0, |metadata| metadata.len());
    let is_enough = || ["published", "opened", "renewed"].into_iter().all(|name| count(name) > least);
    // one that ends before its signal has failed, and nobody waits for it
    let mut is_lost = || children.iter_mut().any(|child| !matches!(child.try_wait(), Ok(None)));
    while Instant::now() < deadline || (!is_enough() && !is_lost() && Instant::now() < deadline + PATIENCE) {
        version += 1;
        publish(version);
    }
    File::create(folder.join("over")).unwrap();
    let mut sum = Readers { published: version, ..Readers::default() };
    for mut child in children {
        let number = child.id();
        assert!(child.wait().unwrap().success(), "reader {number} failed");
        let report = fs::read_to_string(folder.join(format!("report-{number}"))).expect("a reader's report");
        let report: Value = serde_json::from_str(&report).unwrap();
        let count = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(count("seen"), version, "a reader ends with what was published last");
        sum.opens += count("opens");
        sum.refreshes += count("refreshes");
        sum.newer += count("newer");
        sum.look_ups += count("look_ups");
    }
    Snapshot::open(&folder.join(SNAPSHOT_FILE), Mapping::WhereLocal).unwrap().verify().unwrap();
    let left = fs::read_dir(folder)
        .unwrap()
        .filter(|item| item.as_ref().unwrap().file_name().to_str().unwrap().starts_with(".tmp"));
    assert_eq!(left.count(), 0, "no temporary file is left");
    sum
}
