//! `compile` for absent devices, with the vendors' own plugins.
//!
//! `AUTOTUNE_LOWERED_TEST_CUDA` names a CUDA plugin with ptxas beside it. Its refusals are compared with those of JAX's
//! own compilation of the same programs for absent devices (`tests/data/targets/make.py`).
//! `AUTOTUNE_LOWERED_TEST_LIBTPU` names libtpu.so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::prerequisite::{Promised, plugin, present};
use crate::support::program::*;
use serde_json::{Value, json};

const TARGETS: [&str; 2] = ["cuda:a100_sxm_80", "cuda:h100_sxm"];

const CUDA: &str = "AUTOTUNE_LOWERED_TEST_CUDA";
const LIBTPU: &str = "AUTOTUNE_LOWERED_TEST_LIBTPU";

pub(crate) fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/targets").join(name).display().to_string()
}

pub(crate) fn cuda() -> Option<PathBuf> {
    named_in(CUDA, "AUTOTUNE_LOWERED_TEST_CUDA names no CUDA plugin")
}

fn named_in(variable: &str, otherwise: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable);
    // a set but empty variable means that a CI stage did not find its installation
    let promised = if named.is_some() { Promised::ByCi } else { Promised::ByNobody };
    let named = named.filter(|path| !path.is_empty()).map(PathBuf::from);
    present(named.ok_or(otherwise), promised)
}

/// The minor version of the CUDA plugin's PJRT API: 112 in JAX 0.10.2, 115 in 0.11.2, 116 in 0.12.0.
pub(crate) fn api(cuda: &Path) -> u32 {
    static API: OnceLock<u32> = OnceLock::new();
    *API.get_or_init(|| {
        let (place, plugin) = (Place::new(), cuda.display().to_string());
        let (module, store) = ("tests/data/timer/add.mlir", place.text("store"));
        let words = ["compile", module, "--plugin", &plugin, "--target", "cuda:l4", "-o", &store, "--dry-run"];
        let result = place.run(&[&words[..], &["--format", "json"]].concat()).json();
        let version = result["targets"][0]["device"]["environment"]["plugin_api"].as_str().unwrap().to_owned();
        version.split_once('.').unwrap().1.parse().unwrap()
    })
}

/// A file of the recorded Triton kernel. Its bytecode changes with JAX's versions, and a plugin reads its own.
fn triton(plugin: &Path, name: &str) -> String {
    let is_cuda = std::env::var_os(CUDA).is_some_and(|named| plugin.as_os_str() == named);
    let version = if is_cuda { api(plugin) } else { 0 };
    data(&match version {
        ..115 => name.to_owned(),
        115 => format!("triton-0.11/{name}"),
        _ => format!("triton-0.12/{name}"),
    })
}

/// Under Google Cloud's terms: `.ci/full adapters` alone installs it.
fn libtpu() -> Option<PathBuf> {
    named_in(LIBTPU, "AUTOTUNE_LOWERED_TEST_LIBTPU names no libtpu.so")
}

fn compile(folder: &Path, plugin: &Path, arguments: &[&str]) -> Run {
    let store = folder.join("store").display().to_string();
    let [module, registry] = ["module.mlir", "registry"].map(|name| triton(plugin, name));
    let plugin = plugin.display().to_string();
    let fixed = ["compile", &module, "--registry", &registry, "--plugin", &plugin, "-o", &store];
    run(&folder.join("cache"), &[&fixed, arguments].concat())
}

/// The outcome for each config.
pub(crate) fn outcomes(target: &Value) -> BTreeMap<String, (String, String, bool)> {
    let candidates = target["calls"].as_array().unwrap().iter().flat_map(|call| call["candidates"].as_array().unwrap());
    let of = |candidate: &Value| {
        let text = |name: &str| candidate[name].as_str().unwrap_or_default().to_owned();
        (candidate["config"].to_string(), (text("status"), text("reason"), candidate["reused"] == true))
    };
    candidates.map(of).collect()
}

/// What JAX said of each config, by target; configs of several operations are together.
pub(crate) fn oracle(path: &str) -> Value {
    let mut by_target: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for said in by_target.as_object_mut().unwrap().values_mut() {
        let flat = said.as_object().unwrap().iter().flat_map(|(name, said)| match said.as_object() {
            Some(of_operation) => of_operation.clone(),
            None => serde_json::Map::from_iter([(name.clone(), said.clone())]),
        });
        *said = Value::Object(flat.collect());
    }
    by_target
}

#[test]
fn what_a_compiler_refuses_is_what_jax_says_that_it_refuses() {
    let Some(cuda) = cuda() else { return };
    let folder = tempfile::tempdir().unwrap();
    let oracle = oracle(&triton(&cuda, "oracle.json"));
    let arguments = ["--target", TARGETS[0], "--target", TARGETS[1], "--format", "json"];
    let first = compile(folder.path(), &cuda, &arguments);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let mut seen = 0;
    for (target, name) in first.json()["targets"].as_array().unwrap().iter().zip(TARGETS) {
        assert_eq!(target["target"], name);
        for (config, (status, reason, reused)) in outcomes(target) {
            let expected = oracle[name][&config].as_str().unwrap();
            match expected {
                "compiled" => assert_eq!(status, "compiled", "{name} {config}: {reason}"),
                words => assert!(status == "refused" && reason.contains(words), "{name} {config}: {status} {reason}"),
            }
            assert!(!reused);
            seen += 1;
        }
    }
    assert_eq!(seen, 2 * oracle[TARGETS[0]].as_object().unwrap().len());
    // a second time: nothing is compiled
    let again = compile(folder.path(), &cuda, &arguments).json();
    assert!(again["targets"].as_array().unwrap().iter().flat_map(outcomes).all(|(_, (.., reused))| reused));
}

#[test]
fn what_compiling_takes_is_said_before_and_stores_of_two_machines_are_one() {
    let Some(cuda) = cuda() else { return };
    let forecast = |folder: &Path, target: &str, more: &[&str]| {
        let fixed = ["--target", target, "--dry-run", "--format", "json"];
        let result = compile(folder, &cuda, &[&fixed, more].concat()).json();
        assert_eq!(result["targets"][0]["calls"], Value::Array(Vec::new()));
        result["targets"][0].clone()
    };
    let (one, two, both) = (Place::new(), Place::new(), Place::new());
    let before = &forecast(&one.path(""), TARGETS[0], &[])["forecast"];
    assert_eq!((&before["to_compile"], &before["kept"], &before["seconds"]), (&10.into(), &0.into(), &Value::Null));
    assert!(!one.path("store").exists(), "a dry run leaves nothing behind");
    for (folder, target) in [(&one, TARGETS[0]), (&two, TARGETS[1])] {
        assert_eq!(compile(&folder.path(""), &cuda, &["--target", target]).code, 0);
        let after = &forecast(&folder.path(""), target, &[])["forecast"];
        assert_eq!((&after["to_compile"], &after["kept"], &after["seconds"]), (&0.into(), &10.into(), &0.0.into()));
        let from = fs::read_dir(folder.path("store/executables-v1")).unwrap().map(|file| file.unwrap().path());
        let files: Vec<PathBuf> = from.filter(|path| path.is_file()).collect();
        // each with its signature
        let count = |end: &str| files.iter().filter(|path| path.to_string_lossy().ends_with(end)).count();
        assert_eq!((count(".exe"), count(".exe.sig")), (10, 10));
        fs::create_dir_all(both.path("store/executables-v1")).unwrap();
        for file in files {
            fs::copy(&file, both.path("store/executables-v1").join(file.file_name().unwrap())).unwrap();
        }
    }
    // each machine signed with a key of its own, and refusals count only where the key is trusted
    let [key_of_one, key_of_two] = [&one, &two].map(|place| place.text("data/autotune-lowered/own-key.pub"));
    let keys = both.file("keys.pub", [&key_of_one, &key_of_two].map(|key| fs::read_to_string(key).unwrap()).concat());
    for target in TARGETS {
        let unknown = forecast(&both.path(""), target, &[]);
        let notes = unknown["notes"].to_string();
        assert_eq!((&unknown["forecast"]["kept"], notes.matches("3 refusals of `").count()), (&7.into(), 1), "{notes}");
        let known = forecast(&both.path(""), target, &["--verify-key", &keys]);
        assert_eq!((&known["forecast"]["kept"], &known["notes"]), (&10.into(), &Value::Null), "{known}");
    }
    // half of it is kept: the rest is unknown to the first run, and known after this one
    let half = Place::new();
    fs::create_dir_all(half.path("store/executables-v1")).unwrap();
    let files = fs::read_dir(one.path("store/executables-v1")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "exe")).collect();
    files.sort();
    for file in &files[..5] {
        for file in [file.clone(), file.with_extension("exe.sig")] {
            fs::copy(&file, half.path("store/executables-v1").join(file.file_name().unwrap())).unwrap();
        }
    }
    let known = &forecast(&half.path(""), TARGETS[0], &["--verify-key", &key_of_one])["forecast"];
    assert_eq!((&known["to_compile"], &known["kept"]), (&5.into(), &5.into()));
    let bytes: u64 = files[..5].iter().map(|file| file.metadata().unwrap().len()).sum();
    let (seconds, forecast_bytes) = (known["seconds"].as_f64().unwrap(), known["bytes"].as_u64().unwrap());
    assert!(seconds > 0.5 && seconds < 60.0 && forecast_bytes > bytes / 4 && forecast_bytes < 4 * bytes, "{known}");
    let words = ["--target", TARGETS[0], "--verify-key", &key_of_one, "--dry-run"];
    let said = compile(&half.path(""), &cuda, &words).stdout;
    assert!(said.contains("5 programs to compile, 5 kept: about "), "{said}");
    // also without a device, by the main job
    let [module, registry] = ["module.mlir", "registry"].map(|name| triton(&cuda, name));
    let plugin = cuda.display().to_string();
    let words = [&*module, "--registry", &registry, "--dry-run", "--target", TARGETS[0], "--plugin", &plugin];
    let from = ["--compiled", &half.text("store"), "--verify-key", &key_of_one];
    let main = run(&half.path("cache"), &[&words[..], &from].concat());
    assert!(
        main.code == 0 && main.stdout.contains("5 programs to compile, 5 kept: about "),
        "{} {}",
        main.stdout,
        main.stderr
    );
    // the same by program
    let (together, of_one, of_two) = (Place::new(), one.text("store"), two.text("store"));
    let from = ["--compiled", &of_one, "--compiled", &of_two, "--verify-key", &keys, "--format", "json"];
    let targets = ["--target", TARGETS[0], "--target", TARGETS[1]];
    let before = compile(&together.path(""), &cuda, &[&targets[..], &from, &["--dry-run"]].concat()).json();
    assert!((0..2).all(|at| before["targets"][at]["forecast"]["kept"] == 10), "{before}");
    let taken = compile(&together.path(""), &cuda, &[&targets[..], &from].concat()).json();
    let reused = taken["targets"].as_array().unwrap().iter().flat_map(outcomes).map(|(_, (.., reused))| reused);
    assert_eq!(reused.collect::<Vec<_>>(), [true; 20]);
    for file in fs::read_dir(one.path("store/executables-v1")).unwrap().map(|file| file.unwrap()) {
        let name = file.file_name().into_string().unwrap();
        if name.ends_with(".exe") || name.ends_with(".sig") {
            let copied = fs::read(together.path("store/executables-v1").join(name)).unwrap();
            assert_eq!(copied, fs::read(file.path()).unwrap());
        }
    }
    let none = compile(&together.path(""), &cuda, &["--target", TARGETS[0], "--compiled", &together.text("none")]);
    assert_eq!((none.code, none.stderr.lines().count()), (4, 1), "{}", none.stderr);
}

#[test]
fn what_is_worse_than_in_a_store_of_before_fails() {
    let Some(cuda) = cuda() else { return };
    let folder = Place::new();
    let spec = fs::read_to_string("candidates/targets/a100_sxm_80.txtpb").unwrap();
    let (target, small) = (folder.path("own.txtpb"), folder.path("small"));
    fs::write(&target, &spec).unwrap();
    let target = format!("cuda:{}", target.display());
    assert_eq!(compile(&folder.path(""), &cuda, &["--target", &target]).code, 0);
    let (baseline, junit) = (folder.text("store"), folder.text("junit.xml"));
    let arguments = ["--target", &target, "--baseline", &baseline, "--junit", &junit, "--format", "json"];
    fs::create_dir(&small).unwrap();
    let same = compile(&small, &cuda, &arguments);
    let compared = same.json()["targets"][0]["baseline"].clone();
    // another user's key signed the three refusals
    assert_eq!((&compared["compared"], &compared["unknown"]), (&7.into(), &3.into()), "{compared}");
    assert_eq!((same.code, &compared["regressions"]), (0, &Value::Array(Vec::new())));
    let changed = compared["changes"].as_array().unwrap().iter().filter(|change| !change["changed_most"].is_null());
    assert_eq!(changed.count(), 0, "the compiler is the same: {compared}");
    assert!(fs::read_to_string(&junit).unwrap().contains(r#"tests="1" failures="0" errors="0""#));
    // the same device with a quarter of the shared memory
    let less = spec.replace("shared_memory_per_block_optin: 166912", "shared_memory_per_block_optin: 41728");
    assert_ne!(less, spec);
    fs::write(folder.path("own.txtpb"), less).unwrap();
    let worse = compile(&small, &cuda, &arguments);
    assert_eq!(worse.code, 7, "{}", worse.stderr);
    let regressions = worse.json()["targets"][0]["baseline"]["regressions"].as_array().unwrap().clone();
    assert!(
        regressions
            .iter()
            .all(|one| one["what"] == "refused" && one["reason"].as_str().unwrap().contains("hared memory"))
    );
    assert!(!regressions.is_empty() && regressions.len() < 10, "{regressions:?}");
    let xml = fs::read_to_string(&junit).unwrap();
    assert!(xml.contains(r#"failures="1""#) && xml.contains("was compiled before and is refused now"), "{xml}");
    let none = compile(&small, &cuda, &["--target", &target, "--baseline", &folder.text("none")]);
    assert_eq!((none.code, none.stderr.lines().count()), (4, 1), "{}", none.stderr);
}

#[test]
fn a_target_is_told_as_its_device_is() {
    let Some(cuda) = cuda() else { return };
    let folder = tempfile::tempdir().unwrap();
    let result = compile(folder.path(), &cuda, &["--target", "cuda:h100_sxm", "--format", "json"]).json();
    // the fingerprint is the one that JAX reports for an existing device
    let expected = serde_json::json!({"platform": "cuda", "device_kind": "NVIDIA H100 80GB HBM3",
                                      "hardware": {"compute_capability": "9.0", "sm_count": "132"}});
    assert_eq!(result["targets"][0]["device"]["identity"], expected);

    // all targets, with the recorder's names; listing them needs no plugin
    let recorder = fs::read_to_string("python/autotune_lowered/record/target.py").unwrap();
    let table = recorder.split_once("_CUDA = {").unwrap().1.split_once("}").unwrap().0;
    let known: Vec<(String, Value)> = table
        .lines()
        .filter_map(|line| line.trim().strip_suffix("),")?.split_once(": ("))
        .map(|(name, told)| {
            let told: Vec<&str> = told.split(", ").map(|one| one.trim_matches('"')).collect();
            let hardware = json!({"compute_capability": told[1], "sm_count": told[2]});
            let identity = json!({"platform": "cuda", "device_kind": told[0], "hardware": hardware});
            (format!("cuda:{}", name.trim_matches('"')), identity)
        })
        .collect();
    let files = fs::read_dir("candidates/targets").unwrap().map(|file| file.unwrap().path());
    assert_eq!(files.filter(|file| file.extension().is_some_and(|end| end == "txtpb")).count(), known.len());
    let names = known.iter().flat_map(|(name, _)| ["--target", name]);
    let arguments: Vec<&str> = names.chain(["--dry-run", "--format", "json"]).collect();
    let result = compile(folder.path(), &cuda, &arguments).json();
    let told = result["targets"].as_array().unwrap().iter();
    let told = told.map(|target| (target["target"].as_str().unwrap().to_owned(), target["device"]["identity"].clone()));
    assert_eq!(told.collect::<Vec<_>>(), known);
}

/// On a machine without a GPU, the message has the plugin's and the driver's words.
#[test]
fn a_gpu_that_is_not_there_is_told_with_its_cause() {
    let Some(cuda) = cuda() else { return };
    let place = Place::new();
    let (plugin, module) = (cuda.display().to_string(), module());
    for words in [&["device"][..], &[&module], &["measure", "tests/data/timer/add.mlir"]] {
        let told = place.run(&[words, &["--plugin", &plugin]].concat());
        assert_eq!(told.code, 5, "{words:?}: {}", told.stderr);
        for part in ["xla_cuda_plugin.so", "No visible GPU devices", "cuInit", "`compile --target`"] {
            assert!(told.fault().contains(part), "{words:?}: {part}: {}", told.stderr);
        }
    }
}

#[test]
fn a_program_is_compiled_for_absent_tpus_and_one_that_is_not_there_is_told() {
    let Some(libtpu) = libtpu() else { return };
    let (place, plugin) = (Place::new(), libtpu.display().to_string());
    let store = place.text("store");
    let fixed = ["compile", "tests/data/timer/matmul.mlir", "--plugin", &plugin, "-o", &store, "--format", "json"];
    let done = place.run(&[&fixed[..], &["--target", "tpu:v5e", "--target", "tpu:v6e"]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    for target in done.json()["targets"].as_array().unwrap() {
        let module = &target["module"];
        assert_eq!(module["status"], "compiled", "{target}");
        // a TPU pads each row of 64 numbers to the 128 of its tiles
        assert_eq!(module["memory"]["argument_bytes"], 2 * 64 * 128 * 4, "{target}");
        assert!(module["cost"]["estimated_cycles"].as_f64().unwrap() > 0.0, "{target}");
    }
    let none = place.run(&["device", "--plugin", &plugin]);
    assert_eq!(none.code, 5, "{}", none.stderr);
    assert!(none.fault().contains("libtpu.so") && !none.stderr.contains("sudo"), "{}", none.stderr);
}

#[test]
fn a_plugin_for_present_devices_alone_is_told() {
    let Some(cpu) = plugin() else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = compile(folder.path(), &cpu, &["--target", "cuda:h100_sxm"]);
    assert_eq!(run.code, 5, "{}", run.stderr);
    assert!(run.stderr.contains("target `cuda:h100_sxm`") && run.stderr.lines().count() == 1, "{}", run.stderr);
    assert!(run.stderr.contains("cannot compile without a device; is it a plugin for `cuda`?"), "{}", run.stderr);
}

#[test]
fn a_module_is_compiled_itself_and_a_bad_target_is_told_before_anything_is_compiled() {
    let Some(cuda) = cuda() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (store, plugin) = (folder.path().join("store").display().to_string(), cuda.display().to_string());
    let fixed = ["compile", "tests/data/timer/add.mlir", "--plugin", &plugin, "-o", &store, "--format", "json"];
    let of = |arguments: &[&str]| run(&folder.path().join("cache"), &[&fixed, arguments].concat());
    let bad = folder.path().join("bad.txtpb");
    fs::write(&bad, "platform_name: \"CUDA\"\n").unwrap();
    let run = of(&["--target", "cuda:l4", "--target", &format!("cuda:{}", bad.display())]);
    assert!(run.code == 5 && run.fault().contains("names no compute capability"), "{}", run.stderr);
    // naming one twice changes nothing
    let run = of(&["--target", "cuda:l4", "--target", "cuda:l4"]);
    let targets = run.json()["targets"].clone();
    assert_eq!((run.code, &targets[0]["module"]["status"]), (0, &"compiled".into()), "{}", run.stderr);
    assert_eq!((&targets[0]["module"]["reused"], &targets[1]["module"]["reused"]), (&false.into(), &true.into()));
    // its kernels are reported, and kept
    let kernels = &targets[0]["module"]["kernels"];
    assert_eq!((&kernels[0]["name"], &kernels[0]["stack_bytes"]), (&"wrapped_add".into(), &0.into()));
    assert_eq!(kernels, &targets[1]["module"]["kernels"]);
    // three times the memory is a regression
    let (module, before) = (folder.path().join("step.mlir").display().to_string(), folder.path().join("before"));
    let add = fs::read_to_string("tests/data/timer/add.mlir").unwrap();
    let compiled = |elements: &str, arguments: &[&str]| {
        fs::write(&module, add.replace("<4x", &format!("<{elements}x"))).unwrap();
        let fixed = ["compile", &module, "--plugin", &plugin, "--target", "cuda:l4", "--format", "json", "-o"];
        crate::support::program::run(&folder.path().join("cache"), &[&fixed, arguments].concat())
    };
    assert_eq!(compiled("1024", &[before.to_str().unwrap()]).code, 0);
    let more = compiled("3072", &[&store, "--baseline", before.to_str().unwrap()]);
    let regression = more.json()["targets"][0]["baseline"]["regressions"][0].clone();
    assert_eq!((more.code, &regression["figure"]), (7, &"memory".into()), "{}", more.stderr);
    // two arguments and a result
    assert_eq!((&regression["before"], &regression["now"]), (&json!(12288.0), &json!(36864.0)), "{regression}");
    let run = of(&["--target", "cuda:l4", "--registry", &data("registry")]);
    assert!(run.code == 3 && run.fault().contains("holds no label"), "{}", run.stderr);
}

#[test]
fn programs_of_several_partitions_are_compiled_for_as_many_gpus() {
    let Some(cuda) = cuda() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let candidate =
        |name: &str| json!({"config": {"form": name}, "program_file": root.join("tests/data/timer").join(name)});
    let argument =
        |name: &str, spec: &str| json!({"name": name, "spec": spec, "fill": {"kind": "normal", "scale": 1.0}});
    let candidates = ["sharded2.mlir", "sharded2.mlirbc", "sharded2_gspmd.mlir"].map(candidate);
    let description = json!({
        "target": {"platform": "cuda"}, "op_id": "hostile@v1", "call_key": "0123456789abcdef",
        "arguments": [argument("x", "f32[64,128]"), argument("w", "f32[128,32]"), argument("b", "f32[32]")],
        "baseline": {"form": "sharded2.mlir"},
        "candidates": candidates,
    });
    let (file, registry) =
        (folder.path().join("description.json"), folder.path().join("registry").display().to_string());
    fs::write(&file, description.to_string()).unwrap();
    let cache = folder.path().join("cache");
    let added = run(&cache, &["registry", "add", &registry, file.to_str().unwrap()]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    let (module, store) = (root.join("tests/data/cli/module.mlir").display().to_string(), folder.path().join("store"));
    let run = run(
        &cache,
        &[
            "compile",
            &module,
            "--registry",
            &registry,
            "--target",
            "cuda:h100_sxm",
            "--plugin",
            cuda.to_str().unwrap(),
            "-o",
            store.to_str().unwrap(),
            "--format",
            "json",
        ],
    );
    let result = run.json();
    let candidates = result["targets"][0]["calls"][0]["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 3, "{}", run.stderr);
    for candidate in candidates {
        assert_eq!(candidate["status"], "compiled", "{candidate}");
        // one device's halves of `x` and `w`, and all of `b`
        assert_eq!(candidate["memory"]["argument_bytes"], (64 * 128 + 128 * 32) / 2 * 4 + 32 * 4, "{candidate}");
    }
}

#[test]
fn a_store_takes_nothing_but_files_of_its_own() {
    let Some(cuda) = cuda() else { return };
    let place = Place::new();
    let (store, plugin) = (place.text("store"), cuda.display().to_string());
    let compile = || {
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/add.mlir").display().to_string();
        place.run(&["compile", &module, "--target", "cuda:l4", "--plugin", &plugin, "-o", &store, "--format", "json"])
    };
    let outcome = |run: &Run| run.json()["targets"][0]["module"].clone();
    assert_eq!(outcome(&compile())["reused"], false);
    let files = fs::read_dir(place.path("store/executables-v1")).unwrap().map(|file| file.unwrap().path());
    let file = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "exe")).unwrap();
    assert_eq!(outcome(&compile())["reused"], true);
    // anything in place of a file is replaced, without waiting for it or reading it endlessly
    type Planted<'a> = (&'a str, &'a dyn Fn());
    let sound = fs::read(&file).unwrap();
    let folder = || fs::create_dir(&file).unwrap();
    let full_folder = || {
        folder();
        fs::write(file.join("theirs"), "").unwrap();
    };
    let places: [Planted<'_>; 6] = [
        ("link", &|| std::os::unix::fs::symlink("/dev/zero", &file).unwrap()),
        ("pipe", &|| make_pipe(&file)),
        ("half", &|| fs::write(&file, &sound[..sound.len() / 2]).unwrap()),
        ("nothing", &|| fs::write(&file, b"").unwrap()),
        ("folder", &folder),
        ("folder with something in it", &full_folder),
    ];
    for (name, make) in places {
        fs::remove_file(&file).unwrap();
        make();
        let run = compile();
        assert_eq!((run.code, &outcome(&run)["reused"]), (0, &false.into()), "{name}: {}", run.stderr);
        assert_eq!(outcome(&compile())["reused"], true, "{name}");
    }
    // what was in the last one's place is aside, and another such folder finds no place there: the program stays
    // undecided, with a message
    fs::remove_file(&file).unwrap();
    full_folder();
    let run = compile();
    assert_eq!((run.code, &outcome(&run)["status"]), (1, &"failed".into()), "{}", run.stderr);
    assert!(run.stderr.contains("is a folder that cannot be moved aside"), "{}", run.stderr);
    assert!([file.clone(), file.with_extension("exe.aside")].iter().all(|path| path.join("theirs").exists()));
}

fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}
