//! A step in several forms, as `dump(…, variants=…)` writes it.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use autotune_lowered::digest::Digest;
use serde_json::{Value, json};

/// Writes the variants of a step with this many calls, halved repeatedly; `program` returns the text with these calls
/// tuned.
pub fn write_step(folder: &Path, calls: usize, program: &dyn Fn(&[usize]) -> String) {
    let all: Vec<usize> = (0..calls).collect();
    let mut variants = vec![Vec::new(), all.clone()];
    let mut sets = vec![all.clone()];
    while let Some(set) = sets.pop() {
        let halves = set.split_at(set.len().div_ceil(2));
        for half in [halves.0, halves.1].into_iter().filter(|half| !half.is_empty() && set.len() > 1) {
            variants.push(all.iter().copied().filter(|call| !half.contains(call)).collect());
            sets.push(half.to_vec());
        }
    }
    write_variants(folder, calls, &variants, program);
}

/// The same with these variants, each given by its tuned calls.
pub fn write_variants(folder: &Path, calls: usize, variants: &[Vec<usize>], program: &dyn Fn(&[usize]) -> String) {
    let rows = variants.iter().map(|tuned| {
        let text = program(tuned);
        let digest = Digest::of(text.as_bytes());
        let file = format!("{digest}.mlir");
        fs::write(folder.join(&file), text).unwrap();
        json!({"tuned": tuned, "file": file, "sha256": digest})
    });
    let rows: Vec<Value> = rows.collect();
    let call = |number: usize| {
        json!({
            "op_id": "op@v1", "call_key": format!("{number:016x}"), "direction": "forward",
            "baseline": {"block": 8}, "tuned": {"block": 64 + number}, "alone": 2.0,
            "alone_interval": {"low": 1.875, "high": 2.125, "confidence": 0.95},
        })
    };
    let calls: Vec<Value> = (0..calls).map(call).collect();
    seal(folder, &json!({"format": "autotune-lowered-prove-v1", "calls": calls, "variants": rows}));
}

/// Writes a manifest with its digest.
pub fn seal(folder: &Path, manifest: &Value) {
    let mut manifest = manifest.clone();
    manifest["digest"] = "0".repeat(64).into();
    let digest = Digest::of(manifest.to_string().as_bytes());
    manifest["digest"] = digest.to_string().into();
    fs::write(folder.join("prove.json"), manifest.to_string()).unwrap();
}
