//! Entries to and from Tokamax's autotuning results and databases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::folder::in_memory;
use crate::support::program::*;
use autotune_lowered::array::Fill;
use autotune_lowered::cache::{CacheKey, ConfigStore, Entry, Mapping, Snapshot, SnapshotStore, write_snapshot};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::config::Config;
use autotune_lowered::device::{DeviceIdentity, DeviceMatch, MatchMode};
use autotune_lowered::digest::Digest;
use autotune_lowered::exchange::{ExchangeError, TokamaxCall, TokamaxImport, export_tokamax, import_tokamax};
use autotune_lowered::hlo::{ScanOptions, scan_path};
use autotune_lowered::registry::{Argument, Candidate, Invocation, ProgramFormat, RecordedTarget, RegistryWriter};
use serde_json::{Value, json};

const ATTENTION: &str = "tokamax._src.ops.attention.xla_chunked.XlaChunkedDotProductAttention";
const NORMALIZATION: &str = "tokamax._src.ops.normalization.base.Normalization";
const OPERATIONS: [&str; 3] = ["normalization", "gated_linear_unit", "xla_chunked_dot_product_attention"];

pub(super) type Pair = (CacheKey, Arc<Entry>);

pub(super) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub(super) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

pub(super) fn import(path: &Path) -> Vec<Pair> {
    let TokamaxImport { entries, skipped, notes, .. } = import_tokamax(path, None, None).unwrap();
    assert_eq!((skipped, notes), (Vec::new(), Vec::new()));
    entries
}

/// The files of an export of entries, none of which was tuned here.
pub(super) fn export(path: &Path, entries: &[Pair]) -> Result<Vec<PathBuf>, ExchangeError> {
    let export =
        export_tokamax(path, entries, None, &mut |key, _| Err(format!("{} was not tuned here", key.call.op_id)))?;
    assert_eq!(export.skipped, &[] as &[String]);
    assert_eq!(export.written, entries.len());
    Ok(export.files)
}

pub(super) fn benchmark(times: &str) -> String {
    format!(r#"{{"compile_time_ms":1,"lower_time_ms":1,"evaluation_times_ms":{times},"metadata":{{}}}}"#)
}

pub(super) fn result_of(calls: &[(&str, &str, &str)]) -> String {
    let calls: Vec<String> = calls
        .iter()
        .map(|(op, arguments, data)| format!(r#"[{{"op":{op},"arguments":{arguments}}},{data}]"#))
        .collect();
    format!(r#"{{"device_kind":"TPU v7","data":[{}]}}"#, calls.join(","))
}

#[test]
fn what_tokamax_wrote_leaves_byte_for_byte() {
    let folder = in_memory();
    let source = data("tokamax/autotuning_result.json");
    let mut entries = import(&source);
    assert_eq!(entries.len(), 3);
    // a cache sorts its entries by key, unlike the file
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let path = folder.path().join("result.json");
    assert_eq!(export(&path, &entries).unwrap(), [path.as_path()]);
    assert_eq!(read(&path), read(&source));
    // the database that Tokamax itself makes from that result
    let files = export(folder.path(), &entries).unwrap();
    assert_eq!(files.len(), 3);
    for name in OPERATIONS {
        let name = format!("cpu/{name}.json");
        assert_eq!(read(&folder.path().join(&name)), read(&data("tokamax/autotuning").join(&name)), "{name}");
    }
}

#[test]
fn a_database_with_empty_files_goes_in_and_out_unchanged() {
    let folder = in_memory();
    let root = data("tokamax/autotuning");
    assert_eq!(fs::metadata(root.join("cpu/flex_attention.json")).unwrap().len(), 0);
    let entries = import(&root);
    assert_eq!(entries.len(), 3);
    assert_eq!(export(folder.path(), &entries).unwrap().len(), 3);
    for name in OPERATIONS {
        let name = format!("cpu/{name}.json");
        assert_eq!(read(&folder.path().join(&name)), read(&root.join(&name)), "{name}");
        let alone = import(&root.join(&name));
        assert_eq!(alone.len(), 1);
        assert!(entries.iter().any(|(key, _)| *key == alone[0].0), "{name}");
    }
    // the same calls as in the result: the class follows from the file's name, the key from the arguments
    let of_result: BTreeSet<CacheKey> =
        import(&data("tokamax/autotuning_result.json")).into_iter().map(|pair| pair.0).collect();
    assert_eq!(entries.into_iter().map(|pair| pair.0).collect::<BTreeSet<_>>(), of_result);
}

#[test]
fn an_entry_has_the_label_that_a_scan_finds_in_the_module() {
    let entries = import(&data("tokamax/autotuning_result.json"));
    for module in ["tokamax_mix_fwd.stablehlo_debug.mlir.gz", "tokamax_mix_fwd.pre.hlo.txt.gz"] {
        let scan = scan_path(data("hlo").join(module), &ScanOptions::default()).unwrap();
        for (key, _) in &entries {
            let found = scan.labels.iter().find(|found| found.label.op_id == key.call.op_id).unwrap();
            assert_eq!(
                found.label.call_key.as_deref(),
                Some(key.call.call_key.as_str()),
                "{module}: {}",
                key.call.op_id
            );
        }
    }
}

#[test]
fn an_entry_never_passes_for_a_device_whose_hardware_is_known() {
    let (key, entry) = import(&data("tokamax/autotuning_result.json")).remove(0);
    assert_eq!((key.device.platform.as_str(), key.device.device_kind.as_str()), ("cpu", "cpu"));
    assert!(entry.provenance.is_none());
    for hardware in [BTreeMap::from([("cores".to_owned(), "2".to_owned())]), BTreeMap::new()] {
        let here = DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware };
        assert!(matches!(MatchMode::Exact.compare(&here, &key.device), DeviceMatch::Miss(_)));
        assert!(matches!(MatchMode::Kind.compare(&here, &key.device), DeviceMatch::Flagged(_)));
    }
    // a database's folder only hints at the kind; the user may state it
    let folder = in_memory();
    let files = folder.path().join("nvidia_h100_80gb_hbm3");
    fs::create_dir(&files).unwrap();
    fs::copy(data("tokamax/autotuning/cpu/normalization.json"), files.join("normalization.json")).unwrap();
    let unnamed = import(folder.path()).remove(0).0.device;
    assert_eq!((unnamed.platform.as_str(), unnamed.device_kind.as_str()), ("cuda", "nvidia_h100_80gb_hbm3"));
    let named = import_tokamax(folder.path(), Some("NVIDIA H100 80GB HBM3"), None).unwrap();
    assert_eq!(named.entries[0].0.device.device_kind, "NVIDIA H100 80GB HBM3");
    let out = folder.path().join("out");
    assert_eq!(export(&out, &named.entries).unwrap(), [out.join("nvidia_h100_80gb_hbm3/normalization.json").as_path()]);
    let other = import_tokamax(folder.path(), Some("NVIDIA H200"), None).unwrap();
    assert!(other.entries.is_empty() && other.skipped[0].contains("nvidia_h100_80gb_hbm3"), "{:?}", other.skipped);
}

#[test]
fn a_snapshot_keeps_the_record() {
    let folder = in_memory();
    let path = folder.path().join("a.snapshot");
    let entries = import(&data("tokamax/autotuning_result.json"));
    write_snapshot(&path, &entries).unwrap();
    let snapshot = Snapshot::open(&path, Mapping::WhereLocal).unwrap();
    snapshot.verify().unwrap();
    let read_back = SnapshotStore::new(snapshot).entries().unwrap();
    let out = folder.path().join("result.json");
    export(&out, &read_back).unwrap();
    assert_eq!(read(&out), read(&data("tokamax/autotuning_result.json")));
}

#[test]
fn the_winner_is_the_one_with_the_least_median_of_all_evaluations() {
    let folder = in_memory();
    let path = folder.path().join("result.json");
    // the first evaluation counts like all others: without it `{"a":2}` would win
    let data = format!(
        r#"{{"{{\"a\":1}}":{},"{{\"a\":2}}":{},"{{\"a\":3}}":{}}}"#,
        benchmark("[2,2,9]"),
        benchmark("[9,3,1]"),
        benchmark("[2,2,2]")
    );
    let op = format!(r#"{{"__type":"{NORMALIZATION}"}}"#);
    fs::write(&path, result_of(&[(&op, r#"{"x":"f32[2]"}"#, &data)])).unwrap();
    assert_eq!(import(&path)[0].1.config.as_str(), r#"{"a":1}"#);
}

#[test]
fn calls_that_only_tokamax_tells_apart_leave_both() {
    let folder = in_memory();
    let path = folder.path().join("result.json");
    let call = |block: u32| format!(r#"{{"{{\"b\":{block}}}":{}}}"#, benchmark("[1]"));
    let op = |chunk: u32| format!(r#"{{"__type":"{ATTENTION}","chunk_size":{chunk}}}"#);
    let arguments = r#"{"q":"bf16[2,2,2,2]","s":1e-6}"#;
    let text = result_of(&[(&op(1), arguments, &call(7)), (&op(2), arguments, &call(8))]);
    fs::write(&path, &text).unwrap();
    let imported = import_tokamax(&path, None, None).unwrap();
    assert_eq!((imported.entries.len(), imported.skipped.len(), imported.notes.len()), (1, 0, 1));
    assert_eq!(imported.entries[0].1.config.as_str(), r#"{"b":7}"#);
    let out = folder.path().join("out.json");
    let written = export_tokamax(&out, &imported.entries, None, &mut |_, _| Err(String::new())).unwrap();
    assert_eq!((written.written, read(&out)), (2, text));
    // a database has one slot for both
    let database = export_tokamax(folder.path(), &imported.entries, None, &mut |_, _| Err(String::new())).unwrap();
    assert_eq!((database.written, database.skipped.len()), (1, 1));
    // the same call twice is one call: Tokamax uses the last one
    fs::write(&path, result_of(&[(&op(1), arguments, &call(7)), (&op(1), arguments, &call(8))])).unwrap();
    let imported = import_tokamax(&path, None, None).unwrap();
    assert_eq!(imported.entries[0].1.config.as_str(), r#"{"b":8}"#);
    assert!(imported.skipped[0].contains("occurs twice"), "{:?}", imported.skipped);
}

#[test]
fn calls_without_a_config_are_kept_for_the_export() {
    let folder = in_memory();
    let path = folder.path().join("result.json");
    let op = format!(r#"{{"__type":"{NORMALIZATION}"}}"#);
    let fine = format!(r#"{{"{{}}":{}}}"#, benchmark("[1]"));
    let calls: Vec<String> = (0..200).map(|n| format!(r#"{{"x":{n}}}"#)).collect();
    let of = |n: usize| if n % 60 == 30 { fine.as_str() } else { "{}" };
    let calls: Vec<(&str, &str, &str)> =
        calls.iter().enumerate().map(|(n, arguments)| (op.as_str(), arguments.as_str(), of(n))).collect();
    let text = result_of(&calls);
    fs::write(&path, &text).unwrap();
    let imported = import_tokamax(&path, None, None).unwrap();
    assert_eq!((imported.entries.len(), imported.notes.len(), imported.skipped.len()), (3, 1, 1));
    assert!(imported.skipped[0].contains("8 calls without a config"), "3 entries hold 64 records each: 200 = 192 + 8");
    fs::write(&path, result_of(&calls[..100])).unwrap();
    let imported = import_tokamax(&path, None, None).unwrap();
    assert_eq!((imported.entries.len(), imported.skipped.len()), (2, 0));
    export_tokamax(&path, &imported.entries, None, &mut |_, _| Err(String::new())).unwrap();
    assert_eq!(read(&path), result_of(&calls[..100]));
    // without any config there is nothing to look up, and nothing is kept
    fs::write(&path, result_of(&calls[..9])).unwrap();
    let imported = import_tokamax(&path, None, None).unwrap();
    assert_eq!((imported.entries.len(), imported.skipped.len()), (0, 1));
}

#[test]
fn other_calls_of_a_database_stay() {
    let folder = in_memory();
    let path = folder.path().join("cpu/normalization.json");
    fs::create_dir(folder.path().join("cpu")).unwrap();
    let entries = import(&data("tokamax/autotuning_result.json"));
    let stored: Value = serde_json::from_str(&read(&data("tokamax/autotuning/cpu/normalization.json"))).unwrap();
    let arguments = stored.as_object().unwrap().keys().next().unwrap();
    // the same call with other whitespace, and another one
    let respelled = arguments.replace("\":", "\": ");
    assert_ne!(&respelled, arguments);
    let other = r#"{"x":"f32[1]"}"#;
    fs::write(&path, json!({ respelled.as_str(): {"{}": 1}, other: {"{}": 2} }).to_string()).unwrap();
    export(folder.path(), &entries).unwrap();
    let content: Value = serde_json::from_str(&read(&path)).unwrap();
    assert_eq!(content, json!({ respelled.as_str(): stored[arguments], other: {"{}": 2} }));
    // an empty file is a database without calls
    fs::write(&path, "").unwrap();
    export(folder.path(), &entries).unwrap();
    assert_eq!(read(&path), read(&data("tokamax/autotuning/cpu/normalization.json")));
    // a broken one is refused before anything is written
    fs::write(&path, "{\"a\":").unwrap();
    fs::remove_file(folder.path().join("cpu/gated_linear_unit.json")).unwrap();
    let error = export(folder.path(), &entries).unwrap_err().to_string();
    assert!(error.contains("normalization.json") && error.contains("is not a cache of Tokamax"), "{error}");
    assert_eq!(read(&path), "{\"a\":");
    assert!(!folder.path().join("cpu/gated_linear_unit.json").exists());
}

#[test]
fn bad_files_are_refused_or_left_out_by_name() {
    let folder = in_memory();
    let path = folder.path().join("result.json");
    let good = read(&data("tokamax/autotuning_result.json"));
    for length in (1..good.len()).step_by(97) {
        fs::write(&path, &good[..length]).unwrap();
        let error = import_tokamax(&path, None, None).unwrap_err().to_string();
        assert!(error.contains("result.json") && !error.contains('\n'), "cut to {length} bytes: {error}");
    }
    for (text, expected) in [
        ("[]", "expected a JSON object"),
        (r#"{"device_kind":7,"data":[]}"#, "invalid type: integer `7`"),
        (r#"{"device_kind":"cpu"}"#, "missing field `data`"),
        (r#"{"device_kind":"cpu","data":{}}"#, "invalid type: map"),
        (r#"{"device_kind":"cpu","data":[],"data":[]}"#, "duplicate field `data`"),
        ("{\"device_kind\":\"cpu\",\"data\":[]} x", "trailing characters"),
    ] {
        fs::write(&path, text).unwrap();
        let error = import_tokamax(&path, None, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let op = format!(r#"{{"__type":"{NORMALIZATION}"}}"#);
    let fine = format!(r#"{{"{{}}":{}}}"#, benchmark("[1]"));
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(1 << 20));
    for (op, arguments, data, expected) in [
        ("{}", "{}", fine.as_str(), "names no operation"),
        (r#"{"__type":7}"#, "{}", &fine, "names no operation"),
        (&op, &deep, &fine, "names no operation"),
        (&op, &long, &fine, "more than 1048576 bytes"),
        (&op, "{}", "[]", "its data are broken"),
        (&op, "{}", r#"{"{}":{}}"#, "missing field `compile_time_ms`"),
        (&op, "{}", r#"{"7":{}}"#, "is not a JSON object"),
    ] {
        fs::write(&path, result_of(&[(op, arguments, data), (r#"{"__type":"tokamax.A"}"#, "{}", &fine)])).unwrap();
        let import = import_tokamax(&path, None, None).unwrap();
        assert_eq!(import.entries.len(), 1, "{expected}");
        assert_eq!(import.skipped.len(), 1, "{expected}");
        assert!(import.skipped[0].contains(expected), "{expected}: {:?}", import.skipped);
    }
    fs::write(&path, r#"{"device_kind":"cpu","data":[[{}],[{},{},{}],7]}"#).unwrap();
    let import = import_tokamax(&path, None, None).unwrap();
    assert_eq!((import.entries.len(), import.skipped.len()), (0, 3));
    assert!(import.skipped[1].contains("call 1: no call with data"), "{:?}", import.skipped);
    // a mixed folder: Tokamax's files are read, the others are named
    fs::write(folder.path().join("notes.txt"), "no JSON").unwrap();
    fs::write(folder.path().join("broken.json"), "{").unwrap();
    let cpu = folder.path().join("cpu");
    fs::create_dir(&cpu).unwrap();
    fs::write(cpu.join("No operation.json"), "{\"{}\":{}}").unwrap();
    fs::copy(data("tokamax/autotuning/cpu/normalization.json"), cpu.join("normalization.json")).unwrap();
    fs::write(cpu.join("gated_linear_unit.json"), r#"{"no JSON":{},"{}":{},"{}":{}}"#).unwrap();
    fs::write(&path, &good).unwrap();
    let import = import_tokamax(folder.path(), None, None).unwrap();
    assert_eq!(import.entries.len(), 3);
    assert_eq!(import.notes.len(), 1, "the call without a config: {:?}", import.notes);
    for (file, reason) in [
        ("broken.json", "EOF"),
        ("No operation.json", "no operation of Tokamax is called `No operation`"),
        ("gated_linear_unit.json", "its arguments are not a JSON object"),
        ("gated_linear_unit.json", "occurs twice"),
    ] {
        let named = import.skipped.iter().any(|line| line.contains(file) && line.contains(reason));
        assert!(named, "{file}: {reason}: {:#?}", import.skipped);
    }
}

#[test]
fn names_that_would_leave_the_folder_are_not_written() {
    let folder = in_memory();
    let path = folder.path().join("result.json");
    let fine = format!(r#"{{"{{}}":{}}}"#, benchmark("[1]"));
    fs::write(&path, result_of(&[(r#"{"__type":"a.b/../../C"}"#, "{}", &fine)])).unwrap();
    let out = folder.path().join("deep/out");
    let export = |entries: &[Pair]| export_tokamax(&out, entries, None, &mut |_, _| Err(String::new())).unwrap();
    let entries = import(&path);
    assert_eq!((export(&entries).written, export(&entries).skipped.len()), (0, 1));
    fs::write(&path, result_of(&[(r#"{"__type":"a.C"}"#, "{}", &fine)]).replace("TPU v7", "../../x")).unwrap();
    let entries = import(&path);
    assert_eq!((export(&entries).written, export(&entries).skipped.len()), (0, 1));
    assert!(!folder.path().join("deep").exists());
}

fn pair(cores: &str, direction: Direction, config: &Value) -> Pair {
    let hardware = BTreeMap::from([("cores".into(), cores.into())]);
    let device = DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware };
    // printf '{"a":"f32[2]","b":1}' | sha256sum
    let key = CacheKey { call: Call::new("tokamax.A", "9812f8a05b6be59f"), direction, device };
    (key, Arc::new(serde_json::from_value(json!({"config": config})).unwrap()))
}

fn measured(times: &[(u32, &[u64])]) -> TokamaxCall {
    let stamp = json!({"op": {"config": {"m": 1}, "vjp": null, "size": [1, 2], "__type": "tokamax.A"},
                       "arguments": {"b": 1, "a": "f32[2]"}});
    let config = |m: u32| Config::new(json!({"m": m}).as_object().unwrap().clone());
    TokamaxCall::new(stamp, times.iter().map(|(m, ns)| (config(*m), ns.to_vec())).collect())
}

#[test]
fn what_was_tuned_here_is_told_so_that_tokamax_takes_our_config() {
    let folder = in_memory();
    let path = folder.path().join("result.json");
    let own = pair("2", Direction::Forward, &json!({"m": 2}));
    // 4 was never measured; 3 has the smaller median, but was not chosen
    let call = measured(&[(1, &[4_000_000, 3_000_000]), (2, &[2_500_000]), (3, &[2_400_000]), (4, &[])]);
    let export = export_tokamax(&path, &[own], None, &mut |_, _| Ok(call.clone())).unwrap();
    assert_eq!((export.written, export.skipped.len()), (1, 1));
    assert!(export.skipped[0].contains("`m=3` has a smaller median"), "{:?}", export.skipped);
    let times = |times: &str| {
        format!(
            r#"{{"compile_time_ms":-1.0,"lower_time_ms":-1.0,"evaluation_times_ms":{times},"metadata":{{"not_measured":["compile_time_ms","lower_time_ms"]}},"peak_memory_mb":null}}"#
        )
    };
    let expected = format!(
        r#"{{"device_kind":"cpu","data":[[{{"op":{{"__type":"tokamax.A","size":[1,2]}},"arguments":{{"a":"f32[2]","b":1}}}},{{"{{\"m\":2}}":{},"{{\"m\":1}}":{}}}]]}}"#,
        times("[2.5]"),
        times("[4.0,3.0]")
    );
    assert_eq!(read(&path), expected);
    // an exported entry comes back with the same key and config
    let (key, entry) = import(&path).remove(0);
    assert_eq!(key.call, Call::new("tokamax.A", "9812f8a05b6be59f"));
    assert_eq!(entry.config.as_str(), r#"{"m":2}"#);
}

#[test]
fn what_cannot_be_told_is_left_out_or_refused() {
    let folder = in_memory();
    let path = folder.path().join("result.json");
    let call = || measured(&[(1, &[1]), (2, &[2])]);
    let own = |cores: &str, m: u32| pair(cores, Direction::Forward, &json!({ "m": m }));
    let export =
        |entries: &[Pair], call: TokamaxCall| export_tokamax(&path, entries, None, &mut |_, _| Ok(call.clone()));
    let mut other = call();
    other.stamp["arguments"]["b"] = json!(2);
    let mut stampless = call();
    stampless.stamp["op"] = json!(null);
    for (entry, call, expected) in [
        (own("2", 5), call(), "no sample of its config"),
        (own("2", 1), other, "stamped as another call"),
        (own("2", 1), stampless, "no Tokamax stamp"),
    ] {
        let export = export(&[entry], call).unwrap();
        assert!(export.files.is_empty() && export.skipped[0].contains(expected), "{expected}: {:?}", export.skipped);
        assert!(!path.exists());
    }
    let error = export(&[own("2", 1), own("4", 2)], call()).unwrap_err();
    assert!(matches!(error, ExchangeError::Ambiguous { .. }), "{error}");
    let mut gpu = own("2", 1);
    gpu.0.device.device_kind = "NVIDIA H200".into();
    let error = export(&[own("2", 1), gpu.clone()], call()).unwrap_err().to_string();
    assert!(error.contains("`NVIDIA H200`, `cpu`") && error.contains("--for"), "{error}");
    assert!(!path.exists());
    let files = export_tokamax(folder.path(), &[own("2", 1), gpu], None, &mut |_, _| Ok(call())).unwrap().files;
    assert_eq!(files, ["cpu/a.json", "nvidia_h200/a.json"].map(|name| folder.path().join(name)));
    // for a call without data, any other one is better
    let data = format!(r#"{{"{{}}":{}}}"#, benchmark("[1]"));
    let nothing = [(r#"{"__type":"tokamax.A","size":[1,2]}"#, r#"{"a":"f32[2]","b":1}"#, "{}")];
    let source = folder.path().join("source.json");
    let calls = [&nothing[..], &[(r#"{"__type":"tokamax.B"}"#, "{}", data.as_str())]].concat();
    fs::write(&source, result_of(&calls).replace("TPU v7", "cpu")).unwrap();
    let kept = import_tokamax(&source, None, None).unwrap().entries.remove(0);
    for entries in [[kept.clone(), own("2", 1)], [own("2", 1), kept]] {
        assert_eq!(export(&entries, call()).unwrap().written, 2);
        let found = import(&path).into_iter().find(|(key, _)| key.call.op_id == "tokamax.A").unwrap();
        assert_eq!(found.1.config.as_str(), r#"{"m":1}"#);
    }
    // Tokamax tunes only the forward pass
    let both = [own("2", 1), pair("2", Direction::ForwardVjp, &json!({"m": 2}))];
    for entries in [both.clone(), [both[1].clone(), both[0].clone()]] {
        let export = export(&entries, call()).unwrap();
        assert_eq!(export.written, 1);
        assert!(export.skipped.iter().any(|line| line.contains("cannot be stored beside")), "{:?}", export.skipped);
        assert_eq!(import(&path)[0].1.config.as_str(), r#"{"m":1}"#);
    }
    export(&both[1..], call()).unwrap();
    assert!(read(&path).contains(r#""mode":"forward_and_vjp""#));
}

/// A registry with one call of the module's attention, as the recorder keeps it.
fn record(root: &Path, stamp: Option<&Value>) {
    let writer = RegistryWriter::create_or_open(root).unwrap();
    let candidates = [1, 2, 3].map(|block| {
        let text = format!("module @m{block} {{}}");
        let digest = Digest::of(text.as_bytes());
        let program = writer.put_program(ProgramFormat::StablehloText, text.as_bytes(), digest, Vec::new()).unwrap();
        let config = Config::new(json!({ "block": block }).as_object().unwrap().clone());
        Candidate::new(config).program(Some(program))
    });
    let argument = |name: &str| Argument::new(name, "bf16[2,256,4,64]".parse().unwrap(), Fill::Constant { value: 0.0 });
    let recipe = stamp.map(|stamp| ("recipe".to_owned(), json!({"kind": "tokamax", "bound": stamp})));
    let call = Call::new(ATTENTION, "227e7ed20221d18e");
    let invocation = Invocation::new(RecordedTarget::Platform("cpu".into()), call, candidates[0].config.clone())
        .arguments(["q", "k", "v"].map(argument).to_vec())
        .static_arguments(recipe.into_iter().collect())
        .candidates(candidates.to_vec())
        .recorder("a test".into());
    writer.store(&invocation).unwrap();
}

#[test]
fn a_tuned_module_becomes_a_result_by_registry_and_sample_log() {
    let folder = in_memory();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let cache = folder.path().join("cache");
    let sample: Value = serde_json::from_str(&read(&data("tokamax/autotuning_result.json"))).unwrap();
    let mut stamp = sample["data"][2][0].clone();
    stamp["op"]["config"] = Value::Null;
    record(Path::new(&at("registry")), Some(&stamp));
    write_replay(Path::new(&at("registry")), Path::new(&at("replay.json")));
    let module = data("hlo/tokamax_mix_fwd.stablehlo_debug.mlir.gz").display().to_string();
    let timer = measured_as_in(Path::new(&at("replay.json")));
    let tuned = run(&cache, &[&module, "--registry", &at("registry"), "--timer", &timer, "--format", "json"]);
    assert!(tuned.stdout.contains(r#""block":3"#) || tuned.stdout.contains(r#""block": 3"#), "{}", tuned.stderr);

    let export = |out: &str, more: &[&str]| {
        run(&cache, &[&["cache", "export", "--format", "tokamax", &at(out)][..], more].concat())
    };
    let without = export("out.json", &[]);
    assert_eq!(without.code, 3, "{}", without.stderr);
    assert!(without.stderr.contains("`--registry`"), "{}", without.stderr);
    let done = export("out.json", &["--registry", &at("registry")]);
    assert_eq!((done.code, done.stdout.trim()), (0, at("out.json").as_str()), "{}", done.stderr);
    let result: Value = serde_json::from_str(&read(Path::new(&at("out.json")))).unwrap();
    let [call] = result["data"].as_array().unwrap().as_slice() else { panic!("{result}") };
    // stamped like Tokamax's own
    assert_eq!(call[0], sample["data"][2][0]);
    assert_eq!(result["device_kind"], "cpu");
    let configs = call[1].as_object().unwrap();
    assert_eq!(configs.keys().collect::<Vec<_>>(), [r#"{"block":1}"#, r#"{"block":2}"#, r#"{"block":3}"#]);
    for (config, ms) in [(r#"{"block":1}"#, 10.0), (r#"{"block":3}"#, 8.0)] {
        let times = configs[config]["evaluation_times_ms"].as_array().unwrap();
        assert!(times.len() > 3 && times.iter().all(|time| (time.as_f64().unwrap() - ms).abs() < 0.002), "{config}");
    }
    // a second process reads while the first one holds the cache
    let lock = autotune_lowered::cache::FolderLock::acquire(&cache).unwrap();
    let locked = export("again.json", &["--registry", &at("registry")]);
    assert_eq!(locked.code, 0, "{}", locked.stderr);
    assert_eq!(read(Path::new(&at("again.json"))), read(Path::new(&at("out.json"))));
    drop(lock);
    // a message says that the recording has no stamp
    record(Path::new(&at("stampless")), None);
    let stampless = export("none.json", &["--registry", &at("stampless")]);
    assert_eq!(stampless.code, 3);
    assert!(stampless.stderr.contains("keeps no Tokamax stamp"), "{}", stampless.stderr);
    assert!(!Path::new(&at("none.json")).exists());
}

#[test]
fn the_command_line_takes_over_and_gives_back() {
    let folder = in_memory();
    let cache = folder.path().join("cache");
    let out = folder.path().join("out.json").display().to_string();
    let source = data("tokamax/autotuning_result.json").display().to_string();
    let import = |path: &str| run(&cache, &["cache", "import", "--format", "tokamax", path]);
    assert_eq!(import(&source).stdout, "imported 3 of 3\n");
    assert_eq!(import(&source).stdout, "imported 0 of 3\n");
    let rebuilt = run(&cache, &["cache", "rebuild"]);
    assert_eq!(rebuilt.stdout, "3 entries\n", "{}", rebuilt.stderr);
    let export = run(&cache, &["cache", "export", "--format", "tokamax", &out]);
    assert_eq!((export.code, export.stdout), (0, format!("{out}\n")), "{}", export.stderr);
    assert_eq!(read(Path::new(&out)), read(Path::new(&source)));
    // through JSON, which people review and merge
    let (lines, other) = (folder.path().join("entries.jsonl").display().to_string(), folder.path().join("other"));
    assert_eq!(run(&cache, &["cache", "export", "--format", "json", &lines]).code, 0);
    assert_eq!(run(&other, &["cache", "import", "--format", "json", &lines]).stdout, "imported 3 of 3\n");
    fs::remove_file(&out).unwrap();
    run(&other, &["cache", "export", "--format", "tokamax", &out]);
    assert_eq!(read(Path::new(&out)), read(Path::new(&source)));
    let missing = import("no/such/file.json");
    assert_eq!(missing.code, 4, "{}", missing.stderr);
    assert!(missing.fault().contains("no/such/file.json"));
    let refused = run(&cache, &["cache", "import", "--format", "ejkernel", "--fingerprint", "cpu", &source]);
    assert!(refused.fault().contains("--fingerprint"));
}
