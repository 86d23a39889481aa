//! The cost of merging caches: ten snapshots into one, for three fleets.
//!
//! `cargo bench --bench merge [-- --entries N] [--caches N] [--mapped]`. The files are read from the page cache. The
//! output is synced to the disk of the temporary folder, which is timed separately, because it depends more on the disk
//! than on the program. As in `cache merge`, the snapshots are read into memory; `--mapped` maps them.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use autotune_lowered::cache::{CacheKey, Cached, Entry, Mapping, Snapshot, write_snapshot};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::DeviceIdentity;
use autotune_lowered::digest::Digest;
use autotune_lowered::merge::merge;

/// An entry as a tuner writes it.
fn entry(call: u64, decided_at: u64) -> (CacheKey, Arc<Entry>) {
    let block = 32 << ((call + decided_at) % 4);
    let text = format!(
        r#"{{"config":{{"backend":"gpu","bwd_params":{{"kv_blocksize":{block},"num_stages":2,"num_warps":4,"q_blocksize":64}},
        "fwd_params":{{"kv_blocksize":{block},"num_stages":2,"num_warps":4,"q_blocksize":128}},"platform":"triton"}},
        "provenance":{{"job":"{job}","timer":"pjrt","source":"device-profile","metric":"busy",
        "environment":{{"platform_version":"cuda 12090","driver":"570.86","xla_flags":[]}},
        "baseline":{{"platform":"triton"}},"baseline_ns":{call}.5,"best_ns":1000.25,"ratio":0.75,
        "interval":{{"low":0.7,"high":0.8,"confidence":0.95}},"rounds":20,"measured":19,"failed":0,"tie_set":[],
        "tool":"autotune-lowered 0.1.0","decided_at":{decided_at}}}}}"#,
        job = Digest::of(&call.to_be_bytes())
    );
    let hardware = BTreeMap::from([("compute_capability".to_owned(), "9.0".to_owned())]);
    let key = CacheKey {
        call: Call::new("flash_attention@v2", Digest::of(&call.to_le_bytes()).to_short()),
        direction: if call.is_multiple_of(2) { Direction::Forward } else { Direction::ForwardVjp },
        device: DeviceIdentity { platform: "cuda".into(), device_kind: "NVIDIA H200".into(), hardware },
    };
    (key, Arc::new(serde_json::from_str(&text).unwrap()))
}

fn option(name: &str, default: u64) -> u64 {
    let words: Vec<String> = std::env::args().collect();
    let place = words.iter().position(|word| word == name);
    place.and_then(|place| words.get(place + 1)?.parse().ok()).unwrap_or(default)
}

fn main() {
    let (entries, caches) = (option("--entries", 100_000), option("--caches", 10));
    println!("{caches} snapshots of {entries} entries; seconds");
    println!("| calls | merged entries | bytes | merge | write, synced | both | processor time | peak memory, MB |");
    println!("| --- | --: | --: | --: | --: | --: | --: | --: |");
    // name, whether each cache has different calls, whether each decided by itself
    let fleets = [
        ("the same, decided once", false, false),
        ("the same, decided by each cache", false, true),
        ("each cache its own", true, false),
    ];
    for (name, has_own_calls, decides) in fleets {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..caches).map(|cache| folder.path().join(format!("{cache}.snapshot"))).collect();
        for (cache, path) in (0..).zip(&paths) {
            let one = |call| {
                let call = if has_own_calls { cache * entries + call } else { call };
                entry(call, 1_760_000_000 + if decides { cache } else { 0 })
            };
            write_snapshot(path, &(0..entries).map(one).collect::<Vec<_>>()).unwrap();
        }
        time(name, &paths, &folder.path().join("out.snapshot"));
    }
}

fn time(name: &str, paths: &[PathBuf], out: &Path) {
    let mapping = if std::env::args().any(|word| word == "--mapped") { Mapping::WhereLocal } else { Mapping::Never };
    // the peak counts from here
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let (begin, used) = (Instant::now(), processor_seconds());
    let caches: Vec<Cached> =
        paths.iter().map(|path| Cached::of_snapshot(Snapshot::open(path, mapping).unwrap())).collect();
    let merged = merge(&caches).unwrap();
    let after_merge = begin.elapsed();
    merged.write_snapshot(out).unwrap();
    let all = begin.elapsed();
    let bytes = std::fs::metadata(out).unwrap().len();
    let seconds = [after_merge, all - after_merge, all].map(|time| format!("{:.2}", time.as_secs_f64()));
    let used = processor_seconds() - used;
    let peak = peak_megabytes();
    println!("| {name} | {} | {bytes} | {} | {used:.2} | {peak:.0} |", merged.len(), seconds.join(" | "));
}

/// Peak resident memory since the last reset, including mapped pages of files.
fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0 / 1e6
}

/// Processor time of this process over all cores; in hundredths, as Linux counts it.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}
