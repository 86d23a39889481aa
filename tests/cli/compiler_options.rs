//! `--compiler-options`, on a real plugin and on what is no module for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use autotune_lowered::cache::{Mapping, TieredCache};

use crate::support::prerequisite::plugin;
use crate::support::program::*;

/// `tanh` of a sum, with a name of its own.
const MODULE: &str = "module @jit_f {
  func.func public @main(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32> {
    %0 = stablehlo.add %x, %y : tensor<64x64xf32>
    %1 = stablehlo.tanh %0 : tensor<64x64xf32>
    return %1 : tensor<64x64xf32>
  }
}
";

#[test]
fn a_module_without_labels_is_tuned_and_found_again() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let path = place.path("module.mlir");
    fs::write(&path, MODULE).unwrap();
    let (module, plugin) = (path.display().to_string(), plugin.display().to_string());
    let arguments = [&*module, "--plugin", &plugin, "--compiler-options", "safe", "--format", "json"];
    // what is named is set, and not tried
    let named = ["--base-options", "xla_backend_optimization_level=1"];
    let first = run(&place.path("cache"), &[&arguments[..], &named[..]].concat());
    assert_eq!(first.code, 0, "{}", first.stderr);
    let found: serde_json::Value = serde_json::from_str(&first.stdout).unwrap();
    let operation = &found["operations"][0];
    assert_eq!(operation["op_id"], "compiler_options@v1");
    assert_eq!(operation["call_key"].as_str().unwrap().len(), 64);
    assert_eq!(operation["baseline"]["config"], serde_json::json!({"xla_backend_optimization_level": 1}));
    assert_eq!(operation["best"]["config"]["xla_backend_optimization_level"], 1);
    let rows = operation["candidates"].as_array().unwrap();
    let status = |status: &str| rows.iter().filter(|row| row["status"] == status).count();
    assert!(status("same-program") > 0, "some options change nothing: {rows:?}");
    let refused = rows.iter().find(|row| row["config"].get("xla_cpu_opt_preset").is_some()).unwrap();
    assert!(refused["failure"]["message"].as_str().unwrap().contains("No such compile option"), "{refused}");
    // JAX has a compiler of its own on a CPU
    assert!(operation["flags"].as_array().unwrap().iter().any(|flag| flag.as_str().unwrap().contains("`--timer jax`")));
    // what a process that compiles the module reads
    let published = TieredCache::published(&place.path("cache"), Mapping::Never, vec![]).unwrap().entries().unwrap();
    let [(key, entry, _)] = &published[..] else { panic!("{} entries", published.len()) };
    assert_eq!(key.call.call_key, operation["call_key"].as_str().unwrap());
    assert_eq!(serde_json::to_value(&entry.config).unwrap(), operation["best"]["config"]);
    let again = run(&place.path("cache"), &[&arguments[..], &named[..]].concat());
    let again: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["operations"][0]["status"], "cached");
    assert_eq!(again["operations"][0]["best"]["config"], operation["best"]["config"]);
}

#[test]
fn without_the_option_a_module_without_labels_ends_as_before_and_names_it() {
    let place = Place::new();
    let module = place.path("module.mlir");
    fs::write(&module, MODULE).unwrap();
    let module = module.display().to_string();
    let plain = run(&place.path("cache"), &[&*module]);
    assert_eq!(plain.code, 3);
    assert!(plain.stderr.contains("`--compiler-options safe`"), "{}", plain.stderr);
    for (arguments, code, said) in [
        (&["-", "--compiler-options", "safe"][..], 2, "needs a file"),
        (&[&*module, "--compiler-options", "all"], 2, "safe"),
        (&[&*module, "--only-compiler-options"], 2, "--compiler-options"),
        (&[&*module, "--compiler-options", "safe", "--base-options", "XLA=1"], 2, "XLA"),
        (&["/dev/zero", "--compiler-options", "safe"], 4, "/dev/zero"),
    ] {
        let run = run(&place.path("cache"), arguments);
        assert!(run.code == code && run.stderr.contains(said), "{arguments:?}: {} {}", run.code, run.stderr);
    }
}
