//! `prove`: a step of two calls on a real plugin, and folders without variants.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use autotune_lowered::cache::{Mapping, Snapshot};

use crate::support::prerequisite::plugin;
use crate::support::program::*;
use crate::support::step::{seal, write_step};

/// A step of two loops that negate an even number of times, `baseline` or `tuned` of each: it gives what it takes.
fn step(folder: &Path, baseline: [u32; 2], tuned: [u32; 2]) {
    fs::create_dir_all(folder).unwrap();
    let turns = |calls: &[usize], call: usize| if calls.contains(&call) { tuned[call] } else { baseline[call] };
    let text = |calls: &[usize]| {
        let repeated = |call: usize, from: &str| {
            format!(
                "    %n{call} = stablehlo.constant dense<{}> : tensor<i32>
    %r{call}:2 = stablehlo.while(%i{call} = %zero, %v{call} = {from}) : tensor<i32>, tensor<65536xf32>
    cond {{
      %c{call} = stablehlo.compare LT, %i{call}, %n{call} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c{call} : tensor<i1>
    }} do {{
      %j{call} = stablehlo.add %i{call}, %one : tensor<i32>
      %w{call} = stablehlo.negate %v{call} : tensor<65536xf32>
      stablehlo.return %j{call}, %w{call} : tensor<i32>, tensor<65536xf32>
    }}\n",
                turns(calls, call)
            )
        };
        format!(
            "module @jit_step {{
  func.func public @main(%x: tensor<65536xf32>) -> tensor<65536xf32> {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
{}{}    return %r1#1 : tensor<65536xf32>
  }}
}}\n",
            repeated(0, "%x"),
            repeated(1, "%r0#1")
        )
    };
    write_step(folder, 2, &text);
}

#[test]
fn a_call_that_loses_in_the_step_is_not_in_the_snapshot() {
    let Some(plugin) = plugin() else { return };
    let (place, plugin) = (Place::new(), plugin.display().to_string());
    let (folder, snapshot) = (place.path("variants"), place.path("proven.snapshot"));
    let (folder_name, snapshot_name) = (folder.display().to_string(), snapshot.display().to_string());
    let given = ["prove", &folder_name, "-o", &snapshot_name, "--plugin", &plugin, "--timer", "pjrt"];
    // 1050 turns either way, 100 where the second is put back, and 2000 where the first is
    step(&folder, [1000, 50], [50, 1000]);
    let found = place.run(&[&given[..], &["--format", "json"]].concat());
    assert_eq!(found.code, 0, "{}{}", found.stdout, found.stderr);
    let found = found.json();
    let standing = |call: usize| found["calls"][call]["in_step"]["standing"].as_str().unwrap();
    assert_eq!((standing(0), standing(1)), ("gains", "loses"), "{found}");
    let proven: Vec<_> = found["proven"]["calls"].as_array().unwrap().iter().collect();
    assert_eq!(proven.len(), 1, "{found}");
    let entries = Snapshot::open(&snapshot, Mapping::Never).unwrap();
    let entries: Vec<_> = entries.records().map(|one| one.and_then(|one| entries.entry(&one)).unwrap()).collect();
    let [entry] = &entries[..] else { panic!("{} entries", entries.len()) };
    assert_eq!(entry.config.as_str(), "{\"block\":64}");
    // the step is compiled as JAX compiles it: with an option that no compiler knows it does not compile
    let manifest = fs::read_to_string(folder.join("prove.json")).unwrap();
    let mut told: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    // env_option_overrides (field 7), an entry of `none` with the switch (field 2) on
    told["compile_options"] = "OgoKBG5vbmUSAhAB".into();
    seal(&folder, &told);
    let refused = place.run(&given);
    assert_eq!(refused.code, BAD_INPUT, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("No such compile option: 'none'"), "{}", refused.stderr);
    // both lose: what was proven before stays, and nothing new is written
    fs::remove_dir_all(&folder).unwrap();
    step(&folder, [50, 50], [1000, 1000]);
    let before = fs::read(&snapshot).unwrap();
    let nothing = place.run(&given);
    assert_eq!(nothing.code, 1, "{}{}", nothing.stdout, nothing.stderr);
    assert!(nothing.stdout.contains("op@v1"), "{}", nothing.stdout);
    assert_eq!(fs::read(&snapshot).unwrap(), before);
}

#[test]
fn folders_that_are_no_steps_get_one_line() {
    let place = Place::new();
    let folder = place.path("variants");
    step(&folder, [2, 2], [4, 4]);
    let manifest = folder.join("prove.json");
    let refused = |file: &str, what: &str| {
        let run = place.run(&["prove", file]);
        assert_eq!(run.code, BAD_INPUT, "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        assert!(run.fault().contains(what), "{}", run.stderr);
    };
    refused("missing", "missing");
    let name = folder.display().to_string();
    fs::remove_file(&manifest).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &manifest).unwrap();
    refused(&name, "prove.json");
}
