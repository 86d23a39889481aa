//! The cost of a look-up at run time: publishing a snapshot, opening it, the first config of a fresh process, and hits;
//! and the same for a plain sled database that holds only call keys and configs.
//!
//! `cargo bench --bench lookup [-- --entries N]`; `--publish` only publishes, and `--in-order` does so from entries
//! that are in memory in the order of their keys. `cargo bench --bench lookup -- --write FILE --entries N` only writes
//! a snapshot, and beside it `FILE.json`, the same entries as ejkernel's persistent cache, for `benches/lookup.py`.
//! `-- --library FILE` also measures the C ABI of that library (`cargo build --release --package
//! autotune-lowered-capi`), alternating with Rust's look-up.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "lookup/c_abi.rs"]
mod c_abi;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use autotune_lowered::cache::{
    CacheKey, ConfigStore, Entry, Lookup, Mapping, MemoryStore, Snapshot, SnapshotStore, TieredCache, write_snapshot,
};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::{DeviceFingerprint, DeviceIdentity, MatchMode};
use autotune_lowered::digest::Digest;

const OP: &str = "flash_attention@v2";

fn device() -> DeviceIdentity {
    let hardware = BTreeMap::from([
        ("compute_capability".to_owned(), "9.0".to_owned()),
        ("sm_count".to_owned(), "132".to_owned()),
    ]);
    DeviceIdentity { platform: "cuda".into(), device_kind: "NVIDIA H200".into(), hardware }
}

fn call(number: u64) -> String {
    Digest::of(&number.to_le_bytes()).to_short()
}

/// Entries as a tuner writes them: nested config, full provenance.
fn entries(count: u64) -> Vec<(CacheKey, Arc<Entry>)> {
    let one = |number: u64| {
        let block = 32 << (number % 4);
        let text = format!(
            r#"{{"config":{{"backend":"gpu","bwd_params":{{"kv_blocksize":{block},"num_stages":2,"num_warps":4,"q_blocksize":64}},
            "fwd_params":{{"kv_blocksize":{block},"num_stages":2,"num_warps":4,"q_blocksize":128}},"platform":"triton"}},
            "provenance":{{"job":"{job}","timer":"pjrt","source":"device-profile","metric":"busy",
            "environment":{{"platform_version":"cuda 12090","driver":"570.86","xla_flags":[]}},
            "baseline":{{"platform":"triton"}},"baseline_ns":{number}.5,"best_ns":1000.25,"ratio":0.75,
            "interval":{{"low":0.7,"high":0.8,"confidence":0.95}},"rounds":20,"measured":19,"failed":0,"tie_set":[],
            "tool":"autotune-lowered 0.1.0","decided_at":1760000000}}}}"#,
            job = Digest::of(&number.to_be_bytes())
        );
        let direction = if number.is_multiple_of(2) { Direction::Forward } else { Direction::ForwardVjp };
        let key = CacheKey { call: Call::new(OP, call(number)), direction, device: device() };
        (key, Arc::new(serde_json::from_str(&text).unwrap()))
    };
    (0..count).map(one).collect()
}

fn direction(number: u64) -> Direction {
    if number.is_multiple_of(2) { Direction::Forward } else { Direction::ForwardVjp }
}

/// Median and quartiles of repeated runs.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 4].as_secs_f64() * 1e3;
    format!("{:.3} ms (quartiles {:.3} to {:.3})", at(2), at(1), at(3))
}

fn repeated(count: usize, mut run: impl FnMut()) -> String {
    let once = |_| {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    spread((0..count).map(once).collect())
}

/// The requested keys, in an order without cache locality, but adjacent in memory: a caller has its key at hand.
fn asked<K>(numbers: &[u64], key: impl Fn(u64) -> K) -> Vec<K> {
    numbers.iter().map(|number| key(*number)).collect()
}

/// Nanoseconds of one call, median of seven passes.
fn each<K>(asked: &[K], mut call: impl FnMut(&K)) -> f64 {
    let mut passes: Vec<f64> = (0..7)
        .map(|_| {
            let start = Instant::now();
            asked.iter().for_each(&mut call);
            start.elapsed().as_nanos() as f64 / asked.len() as f64
        })
        .collect();
    passes.sort_by(f64::total_cmp);
    passes[3]
}

/// Memory of this process that no file backs, KiB.
fn own_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").to_owned()
}

/// A fresh process that looks one config up; returns its output.
fn first(word: &str, path: &Path, count: u64) -> String {
    let exe = std::env::current_exe().unwrap();
    let done = Command::new(exe).arg(word).arg(path).args(["--entries", &count.to_string()]).output().unwrap();
    assert!(done.status.success());
    String::from_utf8(done.stdout).unwrap()
}

/// Rust's look-ups and those through the C ABI, alternating, so that the machine's disturbances affect both.
fn beside_c(library: &str, path: &Path, numbers: &[u64], few: &[u64]) {
    // the software in every entry's provenance
    let environment = serde_json::json!({"platform_version": "cuda 12090", "driver": "570.86"});
    let json = serde_json::json!({"identity": device(), "environment": environment}).to_string();
    let fingerprint: DeviceFingerprint = serde_json::from_str(&json).unwrap();
    let snapshot = Snapshot::open(path, Mapping::WhereLocal).unwrap();
    let place = snapshot.device(&fingerprint.identity).unwrap();
    let tiers =
        TieredCache::new(vec![Box::new(SnapshotStore::new(Snapshot::open(path, Mapping::WhereLocal).unwrap()))]);
    let c_abi = c_abi::CAbi::open(library, path, &json);
    println!("                      snapshot   tiers   C ABI   C ABI and a value, ns");
    for (what, numbers) in [("among 100 calls", few), ("any of 20,000", numbers)] {
        let keys = asked(numbers, |number| (call(number), direction(number)));
        let queries = asked(numbers, |number| {
            let direction = if direction(number) == Direction::Forward { 1 } else { 2 };
            c_abi.query(OP, &call(number), direction)
        });
        let mut turns: [Vec<f64>; 4] = Default::default();
        for _ in 0..9 {
            turns[0].push(each(&keys, |(call, direction)| {
                black_box(snapshot.get(place, OP, call, *direction).unwrap().unwrap().config.len());
            }));
            turns[1].push(each(&keys, |(call, direction)| {
                let found = tiers.lookup(&fingerprint, OP, call, Some(*direction), MatchMode::Exact).unwrap();
                assert!(matches!(black_box(found), Lookup::Hit(_)));
            }));
            turns[2].push(each(&queries, |query| assert!(c_abi.hit(query, None) == 0)));
            turns[3].push(each(&queries, |query| assert!(c_abi.hit(query, Some("fwd_params.q_blocksize")) == 128)));
        }
        let [snapshot, tiers, hit, value] = turns.map(|mut turn| {
            turn.sort_by(f64::total_cmp);
            turn[turn.len() / 2]
        });
        println!("hit, {what:<16} {snapshot:8.0} {tiers:7.0} {hit:7.0} {value:7.0}");
    }
}

fn plain_sled(folder: &Path, all: &[(CacheKey, Arc<Entry>)], numbers: &[u64], few: &[u64]) {
    let path = folder.join("plain");
    let database = sled::open(&path).unwrap();
    for (key, entry) in all {
        database.insert(&key.call.call_key, entry.config.as_str()).unwrap();
    }
    database.flush().unwrap();
    drop(database);
    println!("process, sled    {}", repeated(11, || drop(first("--first-sled", &path, all.len() as u64))));
    let database = sled::open(&path).unwrap();
    let get = |call: &String| assert!(black_box(database.get(call).unwrap()).is_some());
    let (far, near) = (asked(numbers, call), asked(few, call));
    println!("hit, sled        {:.0} ns; among 100 calls {:.0} ns", each(&far, get), each(&near, get));
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let after = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).cloned();
    let count: u64 = after("--entries").map_or(100_000, |text| text.parse().unwrap());
    if let Some(path) = after("--first-sled") {
        let database = sled::open(path).unwrap();
        assert!(database.get(call(count / 2)).unwrap().is_some());
        return;
    }
    if let Some(path) = after("--first") {
        // a fresh process: open, look up, exit
        let snapshot = Snapshot::open(Path::new(&path), Mapping::WhereLocal).unwrap();
        let place = snapshot.device(&device()).unwrap();
        let found = snapshot.get(place, OP, &call(count / 2), direction(count / 2)).unwrap().unwrap();
        assert!(found.config.contains("kv_blocksize"));
        print!("{}", own_memory());
        return;
    }
    if let Some(path) = after("--write") {
        let entries = entries(count);
        write_snapshot(Path::new(&path), &entries).unwrap();
        let peer: BTreeMap<String, &serde_json::Map<String, serde_json::Value>> = entries
            .iter()
            .map(|(key, entry)| {
                (format!("NVIDIA H200|PJRT C API\ncuda 12090|{OP}|{}", key.call.call_key), entry.config.as_map())
            })
            .collect();
        std::fs::write(format!("{path}.json"), serde_json::to_string(&peer).unwrap()).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("a.snapshot");
    let has = |flag: &str| words.iter().any(|word| word == flag);
    let mut all = entries(count);
    if has("--in-order") {
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let anew = |(key, entry): &(CacheKey, Arc<Entry>)| {
            (key.clone(), Arc::new(serde_json::from_str(&entry.to_text()).unwrap()))
        };
        all = all.iter().map(anew).collect();
    }
    println!("{count} entries, {} of a record's JSON", all[0].1.to_text().len());
    println!("publish          {}", repeated(5, || assert!(write_snapshot(&path, &all).is_ok())));
    if has("--publish") {
        return;
    }
    println!("file             {:.1} MB", std::fs::metadata(&path).unwrap().len() as f64 / 1e6);
    println!("open             {}", repeated(51, || drop(Snapshot::open(&path, Mapping::WhereLocal).unwrap())));
    println!("process to first {}", repeated(51, || drop(first("--first", &path, count))));
    let small = folder.path().join("small.snapshot");
    write_snapshot(&small, all.get(..all.len() / 100).unwrap()).unwrap();
    let of_small = first("--first", &small, count / 100);
    println!("its own memory   {} KiB; with a hundredth of the entries {of_small} KiB", first("--first", &path, count));
    println!("process, nothing {}", repeated(51, || assert!(Command::new("/bin/true").status().unwrap().success())));

    let snapshot = Snapshot::open(&path, Mapping::WhereLocal).unwrap();
    let place = snapshot.device(&device()).unwrap();
    let numbers: Vec<u64> = (0..20_000).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count).collect();
    let few: Vec<u64> = numbers.iter().map(|number| number % 100).collect();
    let get = |(call, direction): &(String, Direction)| {
        let found = snapshot.get(place, OP, call, *direction).unwrap();
        black_box(found.unwrap().config.len());
    };
    let key = |number: u64| (call(number), direction(number));
    if let Some(library) = after("--library") {
        beside_c(&library, &path, &numbers, &few);
    }
    println!("hit, snapshot    {:.0} ns (the config's text, checksums checked)", each(&asked(&numbers, key), get));
    println!("hit, 100 calls   {:.0} ns", each(&asked(&few, key), get));
    let store = SnapshotStore::new(Snapshot::open(&path, Mapping::WhereLocal).unwrap());
    let key = |number: u64| all[number as usize].0.clone();
    println!(
        "hit, parsed      {:.0} ns",
        each(&asked(&numbers, key), |key| drop(black_box(store.get(key.parts()).unwrap())))
    );
    let memory = MemoryStore::default();
    for (key, entry) in &all {
        memory.put(key, entry).unwrap();
    }
    println!(
        "hit, memory      {:.0} ns",
        each(&few, |n| drop(black_box(memory.get(all[*n as usize].0.parts()).unwrap())))
    );
    plain_sled(folder.path(), &all, &numbers, &few);
    let verify = repeated(3, || snapshot.verify().unwrap());
    println!("verify           {verify}");
}
