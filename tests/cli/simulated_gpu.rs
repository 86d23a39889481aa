//! The program on a SIMULATED GPU: the vendor's own plugin with drivers that do nothing (`tests/simulated_gpu`).
//! Outputs are zeros and times are made up, so nothing here says how fast a kernel is.
//!
//! `AUTOTUNE_LOWERED_TEST_SIMULATED_GPU` names what `tests/simulated_gpu/build` made; `.ci/full gpu` makes it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use autotune_lowered::digest::Digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::prerequisite::{Promised, present};
use crate::support::program::*;

/// The options that JAX passes for a function (tests/data/pjrt/README.md). Their default is to replay kernels.
const OF_JAX: &[u8] = include_bytes!("../data/pjrt/jax-0.10.2-compile-options-default.pb");

/// Memory of a context, as `tests/simulated_gpu/memory.c` has it.
const CONTEXT_BYTES: u64 = 128 << 20;

/// What a program runs on, and its account.
struct SimulatedGpu {
    folder: PathBuf,
    place: Place,
    refuses_cupti: bool,
    /// What a process of somebody else's uses of it, in per cent.
    neighbour: u32,
}

/// What the processes of a run took from the device.
struct Account {
    graph_launches: u64,
    /// The most that each process held.
    peaks: Vec<u64>,
}

impl SimulatedGpu {
    fn new() -> Option<Self> {
        let named = std::env::var_os("AUTOTUNE_LOWERED_TEST_SIMULATED_GPU").filter(|folder| !folder.is_empty());
        let folder = named.map(PathBuf::from).ok_or("AUTOTUNE_LOWERED_TEST_SIMULATED_GPU names no simulated GPU");
        let folder = present(folder, Promised::ByNobody)?;
        Some(Self { folder, place: Place::new(), refuses_cupti: false, neighbour: 0 })
    }

    /// The same without CUDA's compilers, and with the Python on which the environment stands, which has no packages.
    fn without_compilers(self) -> Self {
        let (site, bare) = (self.folder.join("site-packages"), self.place.path("bare"));
        let link_all = |folder: &str, without: &[&str]| {
            let to = bare.join("site-packages").join(folder);
            fs::create_dir_all(&to).unwrap();
            let entries = fs::read_dir(site.join(folder)).unwrap().map(Result::unwrap);
            for entry in entries.filter(|entry| without.iter().all(|name| entry.file_name() != *name)) {
                symlink(entry.path(), to.join(entry.file_name())).unwrap();
            }
        };
        link_all("", &["nvidia", "jax_plugins"]);
        link_all("nvidia", &["cu13"]);
        link_all("nvidia/cu13", &["bin"]);
        // JAX looks for the packages where links lead
        let package = "site-packages/jax_plugins/xla_cuda13";
        fs::create_dir_all(bare.join(package)).unwrap();
        for name in ["__init__.py", "version.py", "xla_cuda_plugin.so"] {
            let (from, to) = (self.folder.join(package).join(name), bare.join(package).join(name));
            fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop)).unwrap();
        }
        symlink(self.folder.join("lib"), bare.join("lib")).unwrap();
        let python = fs::read_to_string(self.folder.join("python")).unwrap();
        fs::write(bare.join("python"), fs::canonicalize(python.trim()).unwrap().display().to_string()).unwrap();
        Self { folder: bare, ..self }
    }

    fn plugin(&self) -> String {
        self.folder.join("site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so").display().to_string()
    }

    /// Both timers of this program, as arguments.
    fn timers(&self) -> [Vec<String>; 2] {
        let python = fs::read_to_string(self.folder.join("python")).unwrap();
        let jax = format!("jax:{}", python.trim());
        let pjrt = ["--timer".to_owned(), "pjrt".to_owned(), "--plugin".to_owned(), self.plugin()];
        [pjrt.to_vec(), vec!["--timer".to_owned(), jax]]
    }

    fn run(&self, arguments: &[&str]) -> (Run, Account) {
        let program = command(&self.place.path("cache"));
        let mut simulated = Command::new("tests/simulated_gpu/run");
        simulated.arg(&self.folder).arg(program.get_program()).args(arguments);
        simulated.current_dir(env!("CARGO_MANIFEST_DIR"));
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => simulated.env(name, value),
                None => simulated.env_remove(name),
            };
        }
        let account = self.place.path("account");
        let _ = fs::remove_file(&account);
        simulated.env_remove("XLA_FLAGS").env_remove("VIRTUAL_ENV").env("SIMULATED_GPU_ACCOUNT", &account);
        if self.refuses_cupti {
            simulated.env("SIMULATED_GPU_REFUSE_CUPTI", "1");
        }
        if self.neighbour > 0 {
            simulated.env("SIMULATED_GPU_NEIGHBOUR", self.neighbour.to_string());
            simulated.env_remove("AUTOTUNE_LOWERED_IGNORE_LOAD");
        }
        let run = Run::of(simulated.output().unwrap(), arguments);
        (run, Account::read(&account))
    }

    fn tune(&self, fixture: &str, timer: &[String], more: &[&str]) -> (Run, Account) {
        let folder = Path::new("tests/data/targets").join(fixture);
        let (module, registry) = (folder.join("module.mlir"), folder.join("registry"));
        let (module, registry) = (module.display().to_string(), registry.display().to_string());
        let fixed =
            [&*module, "--registry", &registry, "--match", "any", "--thorough", "--rounds", "6", "--no-persist"];
        let timer: Vec<&str> = timer.iter().map(String::as_str).collect();
        self.run(&[&fixed[..], &timer, &["--format", "json"], more].concat())
    }

    /// The kernels of a run of a program, and how many graphs were launched.
    fn measure(&self, program: &str, timer: &[String], launch: &str) -> (u64, u64) {
        let timer: Vec<&str> = timer.iter().map(String::as_str).collect();
        let measure = ["measure", program, "--mode", "kernels", "--iterations", "3", "--launch", launch];
        let (run, account) = self.run(&[&measure[..], &timer, &["--format", "json"]].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stderr.contains(&format!("(`{launch}`)")), "{}", run.stderr);
        let document = run.json();
        assert_eq!((&document["launch"], &document["source"]), (&json!(launch), &json!("device-profile")));
        (document["kernels"].as_u64().unwrap(), account.graph_launches)
    }
}

impl Account {
    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let numbers: Vec<u64> =
            bytes.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect();
        let peaks = numbers[3..].chunks_exact(3).take(numbers[0] as usize).map(|entry| entry[2]).collect();
        Self { graph_launches: numbers[1], peaks }
    }
}

fn candidates(document: &Value) -> Vec<&Value> {
    let operations = document["operations"].as_array().unwrap();
    operations.iter().flat_map(|operation| operation["candidates"].as_array().unwrap()).collect()
}

/// A chain of products and functions of their elements.
fn chain(name: &str, links: usize) -> String {
    let of = "tensor<128x128xf32>";
    let link = |at: usize| {
        format!(
            "    %p{at} = stablehlo.dot_general %r{at}, %y, contracting_dims = [1] x [0] : ({of}, {of}) -> {of}\n    \
             %r{} = stablehlo.sine %p{at} : {of}\n",
            at + 1
        )
    };
    let links_text: String = (0..links).map(link).collect();
    format!(
        "module @{name} {{\n  func.func public @main(%r0: {of}, %y: {of}) -> {of} {{\n{links_text}    return %r{links} : {of}\n  }}\n}}\n"
    )
}

/// A module beside a side file with compile options of JAX.
fn with_options(gpu: &SimulatedGpu, name: &str, text: &str, options: &[u8]) -> String {
    let side = json!({"schema": 1, "module_digest": Digest::of(text.as_bytes()), "labels": [],
        "compile_options": STANDARD.encode(options)});
    gpu.place.file(&format!("{name}.labels.json"), side.to_string());
    gpu.place.file(name, text)
}

/// `env_option_overrides` (field 7) of a CompileOptionsProto: an option with a text.
fn named_text(name: &str, text: &str) -> Vec<u8> {
    let bytes = |field: u8, value: &[u8]| [&[field << 3 | 2, value.len() as u8], value].concat();
    bytes(7, &[bytes(1, name.as_bytes()), bytes(2, &bytes(1, text.as_bytes()))].concat())
}

#[test]
fn the_simulated_gpu_is_told_as_its_target_is() {
    let Some(gpu) = SimulatedGpu::new() else { return };
    let (run, _) = gpu.run(&["device", "--plugin", &gpu.plugin(), "--format", "json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let expected = json!({"platform": "cuda", "device_kind": "NVIDIA H100 80GB HBM3",
                          "hardware": {"compute_capability": "9.0", "sm_count": "132"}});
    let document = run.json();
    assert_eq!(document["plugins"][0]["devices"][0]["identity"], expected);
    assert_eq!(document["plugins"][0]["clocks"]["max_sm_mhz"], 1980, "{document}");
}

#[test]
fn mosaic_gpu_kernels_are_compiled_loaded_and_timed_by_both_timers_in_both_launch_modes() {
    let Some(gpu) = SimulatedGpu::new() else { return };
    for timer in gpu.timers() {
        for launch in ["eager", "replay"] {
            let (run, account) = gpu.tune("mosaic_gpu", &timer, &["--launch", launch]);
            assert_eq!(run.code, 0, "{}", run.stderr);
            let document = run.json();
            assert_eq!(document["source"], "device-profile");
            assert_eq!(document["launch"], launch);
            for candidate in candidates(&document) {
                // it takes more shared memory than there is, so it was not lowered
                let is_lowered = candidate["config"]["block_n"] != 256;
                assert_eq!(candidate["status"] == "measured", is_lowered, "{timer:?} {launch}: {candidate}");
            }
            assert_eq!(account.graph_launches > 0, launch == "replay", "{timer:?} {launch}");
        }
    }
}

#[test]
fn launch_modes_act_on_one_kernel_and_on_many_and_over_the_options_that_a_module_brings() {
    let Some(gpu) = SimulatedGpu::new() else { return };
    let [pjrt, jax] = gpu.timers();
    let (one, many) = (chain("one", 1), chain("many", 6));
    let eager = named_text("xla_gpu_enable_command_buffer", "");
    let programs = [
        gpu.place.file("one.mlir", &one),
        gpu.place.file("many.mlir", &many),
        with_options(&gpu, "replays.mlir", &many, OF_JAX),
        with_options(&gpu, "launches.mlir", &many, &[OF_JAX, &eager].concat()),
    ];
    for program in &programs {
        for timer in [&pjrt, &jax] {
            let (kernels, graphs) = gpu.measure(program, timer, "eager");
            assert!(graphs == 0 && kernels >= if program == &programs[0] { 1 } else { 5 }, "{program}: {kernels}");
            let (replayed, graphs) = gpu.measure(program, timer, "replay");
            assert!(graphs > 0 && replayed == kernels, "{program} {timer:?}: {replayed} of {kernels}, {graphs} graphs");
        }
    }
}

#[test]
fn a_refused_profiler_costs_profiles_and_no_measurement() {
    let Some(gpu) = SimulatedGpu::new() else { return };
    let gpu = SimulatedGpu { refuses_cupti: true, ..gpu };
    for timer in gpu.timers() {
        let kept = gpu.place.text("kept");
        let (run, _) = gpu.tune("mosaic_gpu", &timer, &["--keep-profiles", &kept]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(run.json()["source"], "host-wall");
        for words in ["timed by the host clock: ", "no profile is kept in `"] {
            assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
        }
        assert!(!Path::new(&kept).exists());
        // what cannot be measured without one says why
        let (run, _) = gpu.tune("mosaic_gpu", &timer, &["--metric", "busy"]);
        assert_eq!(run.code, DEVICE_TROUBLE);
        assert!(run.fault().contains("no `busy` to decide by") && run.fault().contains("host clock"), "{}", run.stderr);
    }
}

#[test]
fn rounds_beside_somebody_elses_work_on_the_gpu_are_contended() {
    let Some(gpu) = SimulatedGpu::new() else { return };
    let [pjrt, _] = gpu.timers();
    for (neighbour, load, more) in [
        (0, Value::Null, "--under-load"),
        (5, Value::Null, "--under-load"),
        (81, json!("contended"), "--under-load"),
        (81, Value::Null, "--ignore-load"),
    ] {
        let gpu = SimulatedGpu { neighbour, place: Place::new(), folder: gpu.folder.clone(), ..gpu };
        let (run, _) = gpu.tune("mosaic_gpu", &pjrt, &[more]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(run.json()["operations"][0]["load"], load, "{neighbour} {more}");
    }
    let gpu = SimulatedGpu { neighbour: 81, ..gpu };
    let (run, _) = gpu.tune("mosaic_gpu", &pjrt, &["--wait-for-quiet", "1"]);
    assert!(run.stderr.contains("other processes use the device: waiting for them to end"), "{}", run.stderr);
    assert_eq!(run.json()["operations"][0]["load"], "contended");
}

/// Nothing compiles there, and a compiler of XLA's that tries several kernels gives no reason.
#[test]
fn a_gpu_without_ptxas_names_the_packages_that_bring_it() {
    let Some(gpu) = SimulatedGpu::new() else { return };
    let gpu = gpu.without_compilers();
    let product = gpu.place.file("product.mlir", chain("product", 1));
    let missing = "plugin finds no ptxas: install nvidia-cuda-nvcc and nvidia-nvvm beside it, or name CUDA's folder";
    for timer in gpu.timers() {
        let timer: Vec<&str> = timer.iter().map(String::as_str).collect();
        for command in [&["measure", &*product][..], &["compare", &product, &product]] {
            let (run, _) = gpu.run(&[command, &timer].concat());
            assert_eq!(run.code, DEVICE_TROUBLE, "{}", run.stderr);
            assert!(run.fault().contains(missing), "{}", run.stderr);
        }
    }
}

/// Executables of the plugin since 0.11 are split messages.
#[test]
fn what_the_kernels_of_the_newest_plugins_use_is_read_or_why_not_is_said() {
    let Some(gpu) = SimulatedGpu::new() else { return };
    let compile = |fixture: &str| {
        let folder = Path::new("tests/data/targets").join(fixture);
        let (module, registry) = (folder.join("module.mlir"), folder.join("registry"));
        let (module, registry) = (module.display().to_string(), registry.display().to_string());
        let (plugin, store) = (gpu.plugin(), gpu.place.text(fixture));
        let fixed = ["compile", &module, "--registry", &registry, "--target", "cuda:h100_sxm", "--format", "json"];
        // no device is needed
        gpu.place.run(&[&fixed[..], &["--plugin", &plugin, "-o", &store]].concat()).json()["targets"][0].clone()
    };
    let outcomes = |target: &Value| -> Vec<Value> {
        let calls = target["calls"].as_array().unwrap();
        let all = calls.iter().flat_map(|call| call["candidates"].as_array().unwrap());
        all.filter(|one| one["status"] == "compiled").cloned().collect()
    };
    let triton = outcomes(&compile("triton-0.11"));
    assert!(triton.len() >= 5);
    assert!(triton.iter().all(|one| one["kernels"][0]["registers"].as_u64().is_some_and(|most| most >= 32)));
    let target = compile("mosaic_gpu");
    let mosaic = outcomes(&target);
    assert_eq!(mosaic.len(), 6);
    assert!(mosaic.iter().all(|one| one["kernels"].is_null() && one["kernels_unknown"].is_string()));
    let notes = target["notes"].to_string();
    assert!(notes.contains("registers, stack and shared memory of 6 programs are unknown: "), "{notes}");
}

/// Programs that XLA does not measure are compiled by workers that open no device; others by one that does.
#[test]
fn compile_workers_take_nothing_from_the_device_unless_xla_measures_on_it() {
    let Some(gpu) = SimulatedGpu::new() else { return };
    let [pjrt, _] = gpu.timers();
    let (run, account) = gpu.tune("triton-0.11", &pjrt, &["--compile-jobs", "3"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let with_context = |account: &Account| account.peaks.iter().filter(|&&peak| peak >= CONTEXT_BYTES).count();
    // the measuring worker alone
    assert_eq!(with_context(&account), 1, "{:?}", account.peaks);
    let statuses: BTreeSet<String> =
        candidates(&run.json()).iter().map(|one| one["status"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        statuses,
        ["failed", "measured"].map(str::to_owned).into(),
        "some need more shared memory than there is"
    );
    // a product outside of a kernel
    let product = gpu.place.file("product.mlir", chain("product", 1));
    let timer: Vec<&str> = pjrt.iter().map(String::as_str).collect();
    let (run, account) = gpu.run(&[&["measure", &product, "--iterations", "2"][..], &timer].concat());
    assert_eq!((run.code, with_context(&account)), (0, 2), "{} {:?}", run.stderr, account.peaks);
}
