//! `compile` of recordings by other versions of JAX, and of Mosaic GPU kernels (`tests/data/targets/make.py`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use crate::compile::{api, cuda, data, oracle, outcomes};
use crate::support::program::*;

const H100: &str = "cuda:h100_sxm";

/// Compiles a folder's recorded kernels for an H100.
fn compiled(place: &Place, plugin: &Path, folder: &str) -> Run {
    let [module, registry] = ["module.mlir", "registry"].map(|name| data(&format!("{folder}/{name}")));
    let (plugin, store) = (plugin.display().to_string(), place.text("store"));
    let words = ["compile", &module, "--registry", &registry, "--plugin", &plugin, "-o", &store];
    place.run(&[&words[..], &["--target", H100, "--format", "json"]].concat())
}

/// Asserts that a plugin of another version reads none of a folder's programs, says whose they are, and keeps nothing.
fn assert_unreadable(run: &Run, place: &Place, recorder: &str) {
    assert_eq!(run.code, 1, "{}", run.stderr);
    let target = &run.json()["targets"][0];
    for (config, (status, reason, _)) in outcomes(target) {
        let is_said = reason.starts_with("unreadable: ") || reason.starts_with("not lowered where it was recorded");
        assert!(status == "failed" && is_said, "{config}: {status} {reason}");
    }
    let notes: Vec<&str> = target["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    let names_both = |note: &&str| note.contains(&format!("jax {recorder}")) && note.contains("the plugin is jax_cuda");
    assert!(notes.iter().any(names_both), "{notes:?}");
    let kept = std::fs::read_dir(place.path("store/executables-v1")).into_iter().flatten();
    let executables = kept.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "exe"));
    assert_eq!(executables.count(), 0);
}

/// Mosaic GPU kernels need a library beside the plugin, of JAX's own package, and no JAX.
#[test]
fn mosaic_gpu_kernels_are_compiled_as_jax_compiles_them() {
    let Some(cuda) = cuda() else { return };
    let place = Place::new();
    let run = compiled(&place, &cuda, "mosaic_gpu");
    if api(&cuda) < 115 {
        return assert_unreadable(&run, &place, "0.11.2");
    }
    let oracle = oracle(&data("mosaic_gpu/oracle.json"));
    let found = outcomes(&run.json()["targets"][0]);
    for (config, (status, reason, _)) in &found {
        match oracle[H100][config].as_str().unwrap() {
            "compiled" => assert_eq!(status, "compiled", "{config}: {reason}"),
            // JAX refuses it while it lowers, so that there is no program
            words => assert!(status == "failed" && reason.contains(words), "{config}: {status} {reason}"),
        }
    }
    let compiled = found.values().filter(|(status, ..)| status == "compiled").count();
    assert_eq!((found.len(), compiled), (oracle[H100].as_object().unwrap().len(), 6));
}

/// Triton's bytecode has no stable form.
#[test]
fn a_triton_kernel_of_another_version_is_unreadable_and_both_versions_are_named() {
    let Some(cuda) = cuda() else { return };
    let place = Place::new();
    let (folder, recorder) = if api(&cuda) < 116 { ("triton-0.12", "0.12.0.1") } else { ("triton-0.11", "0.11.2") };
    assert_unreadable(&compiled(&place, &cuda, folder), &place, recorder);
}
