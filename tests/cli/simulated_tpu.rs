//! Compiling for absent TPUs, with a SIMULATED libtpu that compiles nothing (`tests/data/targets/simulated_libtpu.c`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use autotune_lowered::digest::Digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::program::*;

/// A Pallas matrix product for a TPU on a grid of 4 × 4 × 3, lowered by JAX.
const MODULE: &str = "tests/data/targets/mosaic_matmul.mlir";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/targets").join(name)
}

pub(crate) struct Tpu {
    pub(crate) place: Place,
    plugin: String,
}

impl Tpu {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        let plugin = place.text("libtpu.so");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o", &plugin]).arg(data("simulated_libtpu.c"));
        assert!(cc.status().unwrap().success());
        Self { place, plugin }
    }

    pub(crate) fn compile(&self, module: &str, arguments: &[&str], init_args: &str) -> Run {
        ended(&mut self.command(module, arguments, init_args))
    }

    pub(crate) fn command(&self, module: &str, arguments: &[&str], init_args: &str) -> Command {
        let store = self.place.text("store");
        let fixed = ["compile", module, "--target", "tpu:v5e", "--plugin", &self.plugin, "-o", &store];
        let optimized = data("mosaic_matmul.hlo.pb").display().to_string();
        let mut command = command(&self.place.path("cache"));
        command.args(fixed).args(arguments).env("SIMULATED_OPTIMIZED", optimized).env("LIBTPU_INIT_ARGS", init_args);
        command
    }

    fn outcome(&self, arguments: &[&str], init_args: &str) -> Value {
        let done = self.compile(MODULE, &[&["--format", "json"], arguments].concat(), init_args);
        assert_eq!(done.code, 0, "{}", done.stderr);
        done.json()["targets"][0]["module"].clone()
    }
}

#[test]
fn scheduled_bundles_and_vector_memory_are_read_of_the_dump_and_kept() {
    let tpu = Tpu::new();
    let expected = serde_json::json!({"bundles": 298.0 * 48.0, "vmem_bytes": 3 << 20});
    let first = tpu.outcome(&["--llo"], "");
    assert_eq!((&first["cost"]["schedule"], &first["reused"]), (&expected, &Value::Bool(false)), "{first}");
    let again = tpu.outcome(&[], "");
    assert_eq!((&again["cost"]["schedule"], &again["reused"]), (&expected, &Value::Bool(true)), "{again}");
    let table = tpu.compile(MODULE, &[], "");
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert!(lines[0].starts_with("tpu:v5e: tpu:TPU v5 lite"), "{}", table.stdout);
    assert!(lines[1].ends_with("bundles     VMEM") && lines[2].contains("14304  3.15 MB"), "{}", table.stdout);
}

#[test]
fn flags_of_libtpu_are_part_of_what_was_compiled_and_no_dump_is_asked_for_unless_named() {
    let tpu = Tpu::new();
    let plain = tpu.outcome(&[], "");
    assert!(plain["cost"].is_null() && plain["reused"] == false, "{plain}");
    assert_eq!(tpu.outcome(&[], "")["reused"], true);
    let limit = "--xla_tpu_scoped_vmem_limit_kib=65536";
    assert_eq!(tpu.outcome(&[], limit)["reused"], false);
    assert_eq!(tpu.outcome(&["--llo"], limit)["reused"], true, "the dump is no part of the key");
}

#[test]
fn a_refusal_has_libtpus_own_words() {
    let tpu = Tpu::new();
    let module = tpu.place.text("large.mlir");
    let text = fs::read_to_string(MODULE).unwrap().replace("module @jit_matmul", "// too large\nmodule @jit_matmul");
    fs::write(&module, text).unwrap();
    let done = tpu.compile(&module, &["--llo"], "");
    let words = "Scoped allocation with size 18.36M and limit 16.00M exceeded scoped vmem limit by 2.36M";
    assert!(done.code == 0 && done.stdout.contains(words), "{} {}", done.stdout, done.stderr);
    let store = tpu.place.text("no-store");
    let none = tpu.place.run(&["compile", MODULE, "--target", "tpu:v6e", "--plugin", &tpu.plugin, "-o", &store]);
    assert!(none.code == 5 && none.fault().contains("the simulated libtpu knows v5e:2x2 alone"), "{}", none.stderr);
}

/// Writes a module's side file with these compile options.
fn side_file(module: &str, options: &[u8]) {
    let digest = Digest::of(&fs::read(module).unwrap());
    let side = json!({"schema": 1, "module_digest": digest, "labels": [], "compile_options": STANDARD.encode(options)});
    fs::write(format!("{module}.labels.json"), side.to_string()).unwrap();
}

/// A named option with an integer: `env_option_overrides` of `CompileOptionsProto`.
fn named(name: &str, value: u8) -> Vec<u8> {
    let bytes = |field: u8, value: &[u8]| [&[field << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat();
    bytes(7, &[bytes(1, name.as_bytes()), bytes(2, &[3 << 3, value])].concat())
}

#[test]
fn a_module_is_compiled_with_the_options_of_its_side_file() {
    const LEVEL: &str = "xla_backend_optimization_level";
    let tpu = Tpu::new();
    let module = tpu.place.file("step.mlir", fs::read(MODULE).unwrap());
    let compile = |arguments: &[&str]| {
        let done = tpu.compile(&module, &[&["--format", "json"], arguments].concat(), "");
        assert_eq!(done.code, 0, "{}", done.stderr);
        let target = done.json()["targets"][0].clone();
        (target["module"]["reused"].clone(), target["notes"].to_string(), target["forecast"]["kept"].clone())
    };
    // the simulated executable holds the options
    let with_level = |value: u8| {
        let files = fs::read_dir(tpu.place.path("store/executables-v1")).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|end| end == "exe"));
        let option = named(LEVEL, value);
        files.filter(|path| fs::read(path).unwrap().windows(option.len()).any(|part| part == option)).count()
    };
    assert_eq!((compile(&[]).0, with_level(1)), (json!(false), 0));
    side_file(&module, &named(LEVEL, 1));
    assert_eq!((compile(&["--dry-run"]).2, compile(&[]).0, with_level(1)), (json!(0), json!(false), 1));
    assert_eq!((compile(&["--dry-run"]).2, compile(&[]).0), (json!(1), json!(true)));
    // `--base-options` comes last, and so has priority
    assert_eq!(compile(&["--base-options", &format!("{LEVEL}=2")]).0, false);
    assert_eq!((with_level(1), with_level(2)), (2, 1));
    side_file(&module, &named(LEVEL, 3));
    assert_eq!((compile(&[]).0, with_level(3)), (json!(false), 1), "other options are another program");
    // nobody has files written by a side file
    side_file(&module, &named("xla_dump_to", 1));
    let (_, notes, _) = compile(&[]);
    assert!(notes.contains("`xla_dump_to`"), "{notes}");
    // what the compiler does not accept says nothing about the program, and is not kept
    side_file(&module, &named(LEVEL, 9));
    for _ in 0..2 {
        let done = tpu.compile(&module, &[], "");
        assert_eq!(done.code, 5, "{} {}", done.stdout, done.stderr);
        assert!(done.fault().contains("the side file") && done.fault().contains(LEVEL), "{}", done.stderr);
    }
    side_file(&module, b"\x1a\x7f");
    let done = tpu.compile(&module, &[], "");
    assert!(done.code == 4 && done.fault().contains("step.mlir.labels.json"), "{}", done.stderr);
}

/// A registry with a call for TPUs; each of its candidates is a program with one of these comments, the first the
/// baseline.
pub(crate) fn registry_of(place: &Place, comments: &[&str]) -> String {
    let program = fs::read_to_string("tests/data/timer/add.mlir").unwrap();
    let candidates = comments.iter().enumerate().map(|(number, comment)| {
        let file = place.file(&format!("{number}.mlir"), format!("// {comment} {number}\n{program}"));
        json!({"config": {"form": number}, "program_file": file})
    });
    let argument = |name: &str| json!({"name": name, "spec": "f32[4]", "fill": {"kind": "normal", "scale": 1.0}});
    let description = json!({
        "target": {"platform": "tpu"}, "op_id": "hostile@v1", "call_key": "0123456789abcdef",
        "arguments": [argument("x"), argument("y")], "recorder": "jax 0.99.1",
        "baseline": {"form": 0}, "candidates": candidates.collect::<Vec<_>>(),
    });
    let (file, registry) = (place.file("description.json", description.to_string()), place.text("registry"));
    let added = place.run(&["registry", "add", &registry, &file]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    registry
}

#[test]
fn what_the_compiler_cannot_read_is_no_refusal_and_both_versions_are_named() {
    let mut tpu = Tpu::new();
    // as pip installs it
    fs::create_dir_all(tpu.place.path("site-packages/libtpu")).unwrap();
    fs::create_dir_all(tpu.place.path("site-packages/libtpu-0.0.9.dist-info")).unwrap();
    let installed = tpu.place.text("site-packages/libtpu/libtpu.so");
    fs::rename(&tpu.plugin, &installed).unwrap();
    tpu.plugin = installed;
    tpu.place.file("site-packages/libtpu-0.0.9.dist-info/RECORD", "libtpu/libtpu.so,sha256=x,9\n");
    let registry = registry_of(&tpu.place, &["newer kernel", "newer kernel"]);
    // a second time: it is not remembered
    for _ in 0..2 {
        let done = tpu.compile("tests/data/cli/module.mlir", &["--registry", &registry, "--format", "json"], "");
        assert_eq!(done.code, 1, "{} {}", done.stdout, done.stderr);
        let target = done.json()["targets"][0].clone();
        for candidate in target["calls"][0]["candidates"].as_array().unwrap() {
            let reason = candidate["reason"].as_str().unwrap();
            assert!(candidate["status"] == "failed" && reason.contains("expected <= 7 but got 8"), "{candidate}");
        }
        let notes = target["notes"].to_string();
        assert!(notes.contains("recorded with jax 0.99.1, the plugin is libtpu 0.0.9"), "{notes}");
    }
}

#[test]
fn a_call_that_is_refused_as_a_whole_is_noted_and_its_baseline_is_marked() {
    let tpu = Tpu::new();
    let registry = registry_of(&tpu.place, &["too large", "too large"]);
    let compiled = |registry: &str| tpu.compile("tests/data/cli/module.mlir", &["--registry", registry], "");
    let done = compiled(&registry);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains(r#"{"form":0} (the baseline) and 1 other: Scoped allocation"#), "{}", done.stdout);
    let note = "every config of hostile@v1:0123456789abcdef is refused for one reason, the baseline too";
    assert!(done.stdout.contains(note), "{}", done.stdout);
    let other = Place::new();
    let done = compiled(&registry_of(&other, &["fine", "too large"]));
    assert!(done.stdout.contains(r#"{"form":1}: Scoped allocation"#), "{}", done.stdout);
    assert!(!done.stdout.contains("every config"), "{}", done.stdout);
}

#[test]
fn labels_that_are_not_recorded_for_the_target_are_told_with_the_reason() {
    let tpu = Tpu::new();
    let place = Place::new();
    let description = fs::read_to_string({
        registry_of(&place, &["fine"]);
        place.path("description.json")
    });
    let other =
        description.unwrap().replace(r#"{"platform":"tpu"}"#, r#"{"device":{"platform":"cuda","device_kind":"X"}}"#);
    let registry = tpu.place.text("registry");
    let added = tpu.place.run(&["registry", "add", &registry, &tpu.place.file("other.json", other)]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    for arguments in [&["--dry-run"][..], &[]] {
        let done = tpu.compile("tests/data/cli/module.mlir", &[&["--registry", &registry], arguments].concat(), "");
        assert_eq!(done.code, 3, "{}", done.stderr);
        let lines: Vec<&str> = done.stdout.lines().collect();
        assert_eq!(lines[1], "nothing to compile");
        let parts = [
            "hostile@v1:0123456789abcdef",
            " for tpu:v5e: ",
            "other device: cuda:X",
            "; record with `target=\"tpu:v5e\"`",
        ];
        let note = lines.iter().find(|line| parts.iter().all(|part| line.contains(part)));
        assert!(note.is_some(), "{}", done.stdout);
    }
}

#[test]
fn an_interrupted_run_says_how_far_it_came_and_goes_on() {
    let tpu = Tpu::new();
    let programs = [&["interrupt"][..], &["fine"; 19]].concat();
    let registry = registry_of(&tpu.place, &programs);
    let compiled = || {
        let arguments = ["--registry", &registry, "--compile-jobs", "1"];
        tpu.compile("tests/data/cli/module.mlir", &arguments, "")
    };
    let ended = compiled();
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    let said = ended.stderr.lines().find_map(|line| line.strip_prefix("interrupted, "));
    let (done, rest) = said.unwrap().split_once(' ').unwrap();
    assert_eq!(rest, "of 20 programs compiled; run again to go on");
    assert!((1..20).contains(&done.parse::<usize>().unwrap()), "{}", ended.stderr);
    assert_eq!(compiled().code, 0);
}

#[test]
fn without_a_plugin_no_folder_is_made() {
    let place = Place::new();
    let arguments = ["compile", MODULE, "--target", "tpu:v5e", "--plugin", "none.so", "-o", &place.text("store")];
    assert_eq!(place.run(&arguments).code, 5);
    assert!(!place.path("store").exists());
}
