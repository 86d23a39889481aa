//! The fuzzers' corpora: each target has one, and each reader accepts some of it, so that the fuzzer starts beyond the
//! first check.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use autotune_lowered::analysis::mosaic::{Clock, Dump, Extent, Scope, draw, read_names, read_npy};
use autotune_lowered::cache::{ConfigStore, JsonForm, Mapping, ShippedConfigs, Snapshot};
use autotune_lowered::candidates::CandidateSpace;
use autotune_lowered::exchange::{EjkernelFields, import_ejkernel, import_json, import_tokamax};
use autotune_lowered::hlo::{ScanOptions, scan_bytes};
use autotune_lowered::measure::CompiledWith;
use autotune_lowered::profile::{XSpace, executions};
use autotune_lowered::registry::{Invocation, ProgramFormat, custom_calls};
use autotune_lowered::remote::CacheManifest;
use autotune_lowered::samples::{LogRecord, SampleLog};
use autotune_lowered::selftest::{SELFTEST_FILE, StoredFigures};
use autotune_lowered::settings::SettingsFile;
use autotune_lowered::signature::PublicKeys;
use autotune_lowered::timer::pjrt::kernels_of;
use autotune_lowered::timer::protocol::Response;
use autotune_lowered::timer::replay::{ProfileIndex, Recording};
use serde_json::Value;

/// Larger corpora stay on the machines that fuzz for long.
const MOST_BYTES: usize = 256 << 10;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(fuzz().join("corpus").join(target)).unwrap().map(|item| item.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// How many files of a corpus its reader accepts.
fn taken(target: &str, mut takes: impl FnMut(&[u8]) -> bool) -> usize {
    corpus(target).iter().filter(|(_, bytes)| takes(bytes)).count()
}

#[test]
fn every_target_has_a_small_corpus() {
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let named = |line: &str| Some(line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\"")?.to_owned());
    let targets: BTreeSet<String> = manifest.lines().filter_map(named).collect();
    let folders = fs::read_dir(fuzz().join("corpus")).unwrap().map(|item| item.unwrap().path());
    let corpora: BTreeSet<String> = folders
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(targets.len() >= 17 && targets == corpora, "{targets:?} {corpora:?}");
    let documents = ["docs/fuzzing.md", "fuzz/corpus/README.md"]
        .map(|name| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap());
    for target in targets {
        let bytes: usize = corpus(&target).iter().map(|(_, bytes)| bytes.len()).sum();
        assert!((1..MOST_BYTES).contains(&bytes), "{target}: {bytes} bytes");
        assert!(documents.iter().all(|text| text.contains(&format!("| `{target}` |"))), "{target} is not described");
    }
}

#[test]
fn modules_programs_and_profiles_are_read() {
    let options = ScanOptions::default();
    let labelled = |bytes: &[u8]| scan_bytes(bytes, "fuzz", &options).is_ok_and(|scan| !scan.labels.is_empty());
    assert!(taken("scan", labelled) >= 5);
    // anything has a digest; custom calls show that a program was parsed
    let called = |bytes: &[u8]| !custom_calls(ProgramFormat::StablehloText, bytes).is_empty();
    assert!(taken("semantic_digest", called) >= 1);
    let timed =
        |bytes: &[u8]| XSpace::from_bytes(bytes.to_vec()).is_ok_and(|space| !executions(&space).executions.is_empty());
    assert!(taken("profile", timed) >= 2);
    assert!(taken("gpu_code", |bytes| kernels_of(bytes).is_ok_and(|kernels| !kernels.is_empty())) >= 1);
    assert!(taken("trace", |bytes| bytes.split_first().is_some_and(|(_, space)| timed(space))) >= 3);
}

#[test]
fn dumps_and_captures_of_other_tools_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = |bytes: &[u8]| {
        let Some((&[x, y, threads, warps, scope, _, names], rest)) = bytes.split_first_chunk() else { return false };
        let Some((names, dump)) = rest.split_at_checked(usize::from(names)) else { return false };
        let [names_at, dump_at] = ["names.json", "dump.npy"].map(|name| folder.path().join(name));
        fs::write(&names_at, names).unwrap();
        fs::write(&dump_at, dump).unwrap();
        let (Ok(names), Ok(words)) = (read_names(&names_at), read_npy(&dump_at)) else { return false };
        let scope = if scope & 1 == 0 { Scope::Warpgroup } else { Scope::Warp };
        let (grid, block) = (Extent([x.into(), y.into(), 1]), Extent([u32::from(threads) * 32, warps.into(), 1]));
        let Ok(dump) = Dump::new(&words, grid, block, scope) else { return false };
        draw(&dump, &names, Clock::Unknown, &mut std::io::sink()).unwrap().events > 0
    };
    assert!(taken("mosaic", drawn) >= 3);
    // each kind of file begins correctly; `tests/profile/nsys.rs` reads the same files
    for (kind, magic) in
        [(0, &b"PK"[..]), (1, b"PAR1"), (2, b"PAR1"), (3, b"Start (ns)"), (4, b"\xfd7zXZ"), (5, b"PAR1")]
    {
        let begins =
            |bytes: &[u8]| bytes.split_first().is_some_and(|(first, rest)| *first == kind && rest.starts_with(magic));
        assert!(taken("nsys", begins) >= 1, "nothing of kind {kind}");
    }
}

#[test]
fn records_spaces_and_recordings_are_read() {
    let recorded = |bytes: &[u8]| {
        let record = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
        serde_json::from_value::<Invocation>(record["invocation"].clone()).is_ok()
    };
    assert!(taken("registry_record", recorded) >= 5);
    let space = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        CandidateSpace::parse("fuzz.json", text).is_ok_and(|space| space.configs().flatten().count() > 1)
    };
    assert!(taken("candidate_space", space) >= 3);
    assert!(
        taken("replay", |bytes| serde_json::from_slice::<Recording>(bytes).is_ok_and(|r| !r.invocations.is_empty()))
            >= 1
    );
    assert!(taken("replay", |bytes| serde_json::from_slice::<ProfileIndex>(bytes).is_ok()) >= 1);
    let answers = |bytes: &[u8]| {
        bytes
            .split(|byte| *byte == b'\n')
            .any(|line| serde_json::from_slice::<Response>(line).is_ok_and(|answer| answer.result.is_some()))
    };
    assert!(taken("worker_protocol", answers) >= 1);
    let asks = |bytes: &[u8]| {
        ["hello", "begin", "compile", "load", "measure", "outputs", "end"]
            .iter()
            .all(|method| String::from_utf8_lossy(bytes).contains(&format!("\"method\":\"{method}\"")))
    };
    assert!(taken("worker_protocol", asks) >= 1);
}

#[test]
fn small_files_that_come_with_code_are_read() {
    let of_kind = |kind: u8, takes: &dyn Fn(&[u8]) -> bool| {
        taken("small_files", |bytes| bytes.split_first().is_some_and(|(first, rest)| *first == kind && takes(rest)))
    };
    let folder = tempfile::tempdir().unwrap();
    let written = |bytes: &[u8]| {
        fs::write(folder.path().join("file"), bytes).unwrap();
        folder.path().join("file")
    };
    let is_json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).is_ok();
    assert!(of_kind(0, &|bytes| CompiledWith::read(bytes, &[]).is_ok()) >= 1);
    assert!(of_kind(1, &is_json) >= 1 && of_kind(2, &is_json) >= 1);
    let settings = |bytes: &[u8]| matches!(SettingsFile::found(&written(bytes), &|_| Some(0.01)), Ok(Some(file)) if file.values().len() >= 6);
    assert!(of_kind(3, &settings) >= 1);
    assert!(of_kind(4, &|bytes| serde_json::from_slice::<CacheManifest>(bytes).is_ok()) >= 1);
    assert!(of_kind(5, &|bytes| PublicKeys::read(&written(bytes)).is_ok()) >= 1);
}

#[test]
fn stores_and_what_they_exchange_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).unwrap();
        path
    };
    let logged = |bytes: &[u8]| SampleLog::read(&write("log", bytes)).is_ok_and(|log| !log.entries.is_empty());
    assert!(taken("sample_log", logged) >= 1);
    let framed = |bytes: &[u8]| {
        let records = bytes.strip_prefix(b"+").unwrap_or_default().split(|byte| *byte == b'\n');
        records.filter(|line| serde_json::from_slice::<LogRecord>(line).is_ok()).count() > 3
    };
    assert!(taken("sample_log", framed) >= 1);
    let whole = |bytes: &[u8]| {
        let snapshot = Snapshot::open(&write("a.snapshot", bytes), Mapping::WhereLocal);
        snapshot.is_ok_and(|snapshot| snapshot.verify().is_ok() && !snapshot.is_empty())
    };
    assert!(taken("snapshot", whole) >= 2);
    let shipped = |bytes: &[u8]| {
        let mut store = ShippedConfigs::default();
        let added = store.add(JsonForm::Lines, std::str::from_utf8(bytes).unwrap_or_default());
        added.is_ok() && !store.entries().unwrap().is_empty()
    };
    assert!(taken("shipped_configs", shipped) >= 1);
    let figures = |bytes: &[u8]| {
        write(SELFTEST_FILE, bytes);
        let (stored, note) = StoredFigures::read(folder.path());
        note.is_none() && !stored.is_empty()
    };
    assert!(taken("selftest_figures", figures) >= 1);
    // the first byte decides the format of the rest
    let reads = |kind: u8, bytes: &[u8]| {
        let Some((first, text)) = bytes.split_first().filter(|(first, _)| **first % 5 == kind) else { return false };
        let path = write(if first % 5 == 1 { "a.jsonl" } else { "a.json" }, text);
        match kind {
            0 | 1 => import_json(&path).is_ok_and(|entries| entries.len() > 1),
            2 => import_ejkernel(&path).is_ok_and(|read| !read.entries.is_empty()),
            3 => import_tokamax(&path, None, None).is_ok_and(|read| !read.entries.is_empty()),
            _ => EjkernelFields::read(&path).is_ok(),
        }
    };
    for kind in 0..5 {
        assert!(taken("exchange", |bytes| reads(kind, bytes)) >= 1, "nothing is read of kind {kind}");
    }
}
