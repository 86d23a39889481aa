//! JAX's compile options in a side file, on a real plugin.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use autotune_lowered::digest::Digest;
use autotune_lowered::hlo::semantic_digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::prerequisite::plugin;
use crate::support::program::{run as run_in, *};

/// `exp` of a sum over rows, which LLVM compiles differently at another level.
const MODULE: &str = "module @jit_f {
  func.func public @main(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64xf32> {
    %0 = stablehlo.exponential %x : tensor<64x64xf32>
    %1 = stablehlo.multiply %0, %y : tensor<64x64xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
    return %2 : tensor<64xf32>
  }
}
";

/// The options that JAX passed for a function (tests/data/pjrt/README.md).
const DEFAULT: &[u8] = include_bytes!("../data/pjrt/jax-0.10.2-compile-options-default.pb");

/// A module whose side file names these compile options.
fn module(place: &Place, name: &str, options: &[u8]) -> String {
    let path = place.path(name);
    fs::write(&path, MODULE).unwrap();
    let side = json!({"schema": 1, "module_digest": Digest::of(MODULE.as_bytes()), "labels": [],
        "compile_options": STANDARD.encode(options)});
    fs::write(format!("{}.labels.json", path.display()), side.to_string()).unwrap();
    path.display().to_string()
}

/// A field of wire type 2.
fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
}

/// `env_option_overrides` (field 7) of one option with an integer (fields 2 and 3).
fn named(name: &str, value: u8) -> Vec<u8> {
    bytes(7, &[bytes(1, name.as_bytes()), bytes(2, &[3 << 3, value])].concat())
}

/// The same with a string (field 1).
fn named_text(name: &str, text: &str) -> Vec<u8> {
    bytes(7, &[bytes(1, name.as_bytes()), bytes(2, &bytes(1, text.as_bytes()))].concat())
}

/// JAX's own options with another `xla_backend_optimization_level` (field 31 of `debug_options`, field 3 of field 3):
/// of a repeated field, the last one counts.
fn level(level: u8) -> Vec<u8> {
    [DEFAULT, &bytes(3, &bytes(3, &[0xf8, 0x01, level]))].concat()
}

fn executables(found: &Value) -> Vec<&str> {
    let rows = found["contestants"].as_array().unwrap_or_else(|| panic!("{found}"));
    rows.iter().map(|row| row["executable"].as_str().unwrap_or_else(|| panic!("{row}"))).collect()
}

#[test]
fn a_module_is_compiled_as_its_side_file_says() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let plain = place.path("plain.mlir");
    fs::write(&plain, MODULE).unwrap();
    let plain = plain.display().to_string();
    let plugin = plugin.display().to_string();
    let option = "xla_backend_optimization_level";
    let compared = |arguments: &[&str]| {
        let how = ["--plugin", &plugin, "--timer", "pjrt", "--rounds", "6", "--format", "json"];
        let run = place.run(&[&["compare"], arguments, &how].concat());
        assert!(run.code == 0 || run.code == 1, "{}", run.stderr);
        run.json()
    };
    let (none, all) = (format!("{option}=0"), format!("{option}=3"));
    // the user's option is one that `--options` can name, and `--options` has priority
    let by_name = module(&place, "by_name.mlir", &named(option, 0));
    let found = compared(&[&plain, &plain, "--options", &none, &by_name, &by_name, "--options", &all]);
    let [default, without, told, over] = executables(&found)[..] else { panic!("{found}") };
    assert_ne!(default, without, "the option changes code");
    assert_eq!((told, over), (without, default));
    // the values of all options, as JAX sends them
    let (zero, three) = (module(&place, "zero.mlir", &level(0)), module(&place, "three.mlir", &level(3)));
    let found = compared(&[&plain, &zero, &three, &three, "--options", &none]);
    let [default, zero, three, over] = executables(&found)[..] else { panic!("{found}") };
    assert_eq!(zero, over);
    assert_ne!(zero, three);
    assert_ne!(default, zero);
    let kept = compared(&[&plain, &zero_path(&place)]);
    assert_eq!(executables(&kept)[1], zero, "what is kept of the one is not taken for the other");
}

fn zero_path(place: &Place) -> String {
    place.path("zero.mlir").display().to_string()
}

#[test]
fn what_the_user_set_is_not_tried_and_names_over_it_hold() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let path = module(&place, "module.mlir", &named("xla_cpu_prefer_vector_width", 64));
    let plugin = plugin.display().to_string();
    let tuned = |more: &[&str]| {
        let how = [&*path, "--plugin", &plugin, "--timer", "pjrt", "--compiler-options", "safe", "--format", "json"];
        let run = place.run(&[&how[..], more].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.json()["operations"][0].clone()
    };
    let list = place.path("list.json");
    let option = |name: &str, value: u32| json!({"name": name, "values": [value], "kind": "safe", "scope": "compile", "does": "d", "source": "s"});
    let options = [option("xla_cpu_prefer_vector_width", 512), option("xla_backend_optimization_level", 1)];
    fs::write(&list, json!({"schema": 1, "platform": "cpu", "options": options}).to_string()).unwrap();
    let list = ["--options-file", list.to_str().unwrap()];
    let found = tuned(&list);
    assert_eq!(found["baseline"]["config"], json!({"xla_cpu_prefer_vector_width": 64}));
    let configs: Vec<&Value> = found["candidates"].as_array().unwrap().iter().map(|row| &row["config"]).collect();
    assert!(configs.iter().all(|config| config["xla_cpu_prefer_vector_width"] == 64), "{configs:?}");
    assert!(configs.iter().any(|config| config["xla_backend_optimization_level"] == 1), "{configs:?}");
    let over = tuned(&[&list[..], &["--base-options", "xla_cpu_prefer_vector_width=128"]].concat());
    assert_eq!(over["baseline"]["config"], json!({"xla_cpu_prefer_vector_width": 128}));
    // other options for the same code are another search, which uses no earlier results
    let path = module(&place, "module.mlir", &[level(3), named("xla_cpu_prefer_vector_width", 64)].concat());
    let how = [&*path, "--plugin", &plugin, "--timer", "pjrt", "--compiler-options", "safe", "--format", "json"];
    let other = place.run(&[&how[..], &list].concat()).json()["operations"][0].clone();
    assert_ne!(other["status"], "cached", "{other}");
    assert_eq!(tuned(&list)["status"], "cached");
}

#[test]
fn a_side_file_lets_nobody_write_files() {
    let Some(plugin) = plugin() else { return };
    let (place, plugin) = (Place::new(), plugin.display().to_string());
    let [dumps, others] = ["by-name", "by-number"].map(|name| place.text(name));
    let as_text = bytes(7, &[bytes(1, b"xla_dump_hlo_as_text"), bytes(2, &[2 << 3, 1])].concat());
    let by_name = [named_text("xla_dump_to", &dumps), as_text].concat();
    // as fields of `debug_options`: 109 is a path, 112 a string, 253 anything
    let by_number = [&[0xea, 0x06, u8::try_from(others.len()).unwrap()], others.as_bytes()].concat();
    let by_number = [&by_number[..], &[0x80, 0x07, 1, 0xe8, 0x0f, 1]].concat();
    let by_number = [DEFAULT, &bytes(3, &bytes(3, &by_number))].concat();
    let (path, other) = (module(&place, "by_name.mlir", &by_name), module(&place, "by_number.mlir", &by_number));
    let how = ["--plugin", &plugin, "--timer", "pjrt", "--format", "json"];
    let run = place.run(&[&["compare", &path, &other, "--rounds", "6"], &how[..]].concat());
    assert!(run.code <= 1, "{}", run.stderr);
    let notes = run.json()["notes"].to_string();
    let said = "tools: `xla_dump_hlo_as_text`, `xla_dump_to`\"";
    assert_eq!(notes.matches(said).count(), 1, "the same of both: {notes}");
    assert_eq!([&dumps, &others].map(|folder| Path::new(folder).exists()), [false; 2], "{}", run.stderr);
    // nor is its digest trusted for the text
    let side = place.path("by_name.mlir.labels.json");
    let claim = format!("{{\"stablehlo_digest\": \"{}\",", "ab".repeat(32));
    fs::write(&side, fs::read_to_string(&side).unwrap().replacen('{', &claim, 1)).unwrap();
    let run = place.run(&[&[&*path, "--compiler-options", "safe", "--dry-run"], &how[..]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let found = run.json();
    assert_eq!(found["operations"][0]["baseline"]["config"], json!({}));
    let own = semantic_digest(MODULE.as_bytes(), "").unwrap().to_string();
    assert_eq!(found["operations"][0]["call_key"], own);
    let said = format!("has the StableHLO digest {} for a text whose digest is {}", &"ab".repeat(32)[..16], &own[..16]);
    assert!(run.stderr.contains(&said), "{}", run.stderr);
    // no cache takes an entry with such an option
    let entry = json!({"op_id": "compiler_options@v1", "call_key": own, "direction": "forward", "config": {"xla_dump_to": dumps},
        "device": {"platform": "cpu", "device_kind": "cpu", "hardware": {}}});
    let entries = place.file("entries.jsonl", format!("{entry}\n"));
    let other = place.path("other");
    let merged = place.text("merged.snapshot");
    for words in [&["cache", "import", "--format", "jsonl", &entries][..], &["cache", "merge", &entries, "-o", &merged]]
    {
        let refused = run_in(&other, words);
        assert_eq!(refused.code, BAD_INPUT, "{}", refused.stdout);
        let said = format!("the entry sets `xla_dump_to` to `{dumps}`, which is on no list of what an entry may set");
        assert!(refused.fault().contains(&said[..80]), "{}", refused.stderr);
    }
    assert!(!Path::new(&merged).exists());
    // what only looks like a number, and what a newer compiler may read as a path
    let by_number = |field: u32, value: &[u8]| {
        let mut tag = vec![(field << 3 | 2) as u8 & 0x7f | 0x80, (field >> 4) as u8];
        tag.push(u8::try_from(value.len()).unwrap());
        [DEFAULT, &bytes(3, &bytes(3, &[&tag[..], value].concat()))].concat()
    };
    for (options, named) in [
        (by_number(491, b"-o,/x"), "xla_gpu_ptx_compiler_extra_flags"),
        (by_number(544, b"/x"), "xla_candidate_configs_file"),
        (by_number(1999, b"/x"), "field 1999 of DebugOptions"),
        (named_text("xla_gpu_ptx_compiler_extra_flags", "-o,/x"), "xla_gpu_ptx_compiler_extra_flags"),
    ] {
        let path = module(&place, "refused.mlir", &options);
        for words in [&["measure", &path][..], &["compare", &path, &path], &[&path, "--compiler-options", "safe"]] {
            let refused = place.run(&[words, &how].concat());
            assert_eq!(refused.code, BAD_INPUT, "{words:?}: {}", refused.stderr);
            let said = format!("has `compile_options` with `{named}`, which is on no list of what a file may set");
            assert!(refused.fault().contains(&said), "{words:?}: {}", refused.stderr);
        }
    }
    // the user's own value counts, whatever the file says
    let path = module(&place, "own.mlir", &named_text("xla_cpu_mock_custom_calls", "x"));
    let own = [&*path, "--compiler-options", "safe", "--dry-run", "--base-options", "xla_cpu_mock_custom_calls=false"];
    let run = place.run(&[&own[..], &how].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.json()["operations"][0]["baseline"]["config"], json!({"xla_cpu_mock_custom_calls": false}));
}
