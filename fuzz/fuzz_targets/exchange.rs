//! Any text as another tool's cache, or as our JSON: no panic, and what was read survives export and import unchanged.

#![no_main]

use autotune_lowered::exchange::{
    EjkernelFields, TokamaxOperations, export_json, import_ejkernel, import_json, import_tokamax,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, text)) = bytes.split_first() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(if kind % 5 == 1 { "a.jsonl" } else { "a.json" });
    std::fs::write(&path, text).unwrap();
    let entries = match kind % 5 {
        0 | 1 => import_json(&path).unwrap_or_default(),
        2 => import_ejkernel(&path).map(|read| read.entries).unwrap_or_default(),
        3 => import_tokamax(&path, None, None).map(|read| read.entries).unwrap_or_default(),
        _ => {
            let _ = (EjkernelFields::read(&path), TokamaxOperations::read(&path));
            return;
        }
    };
    let out = folder.path().join("out.jsonl");
    export_json(&out, &entries).unwrap();
    let mut sorted = entries;
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(import_json(&out).unwrap(), sorted);
});
