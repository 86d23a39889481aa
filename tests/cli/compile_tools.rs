//! What `compile` for an absent GPU takes from its environment: CUDA's tools, and `XLA_FLAGS`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use crate::compile::cuda;
use crate::support::program::*;

const MATMUL: &str = "tests/data/timer/matmul.mlir";

/// A plugin's file in a package of the same name, with no other package beside it.
fn alone(cuda: &Path, place: &Place) -> PathBuf {
    let package = cuda.parent().unwrap().file_name().unwrap();
    let plugin = place.path("packages/jax_plugins").join(package).join("xla_cuda_plugin.so");
    fs::create_dir_all(plugin.parent().unwrap()).unwrap();
    fs::hard_link(cuda, &plugin).or_else(|_| fs::copy(cuda, &plugin).map(drop)).unwrap();
    plugin
}

/// CUDA's folder in the packages beside a plugin: of CUDA 13, or of 12.
fn tools_beside(cuda: &Path) -> PathBuf {
    let packages = cuda.ancestors().nth(3).unwrap().join("nvidia");
    let folders = ["cu13", "cuda_nvcc"].map(|name| packages.join(name));
    folders.into_iter().find(|folder| folder.join("bin/ptxas").is_file()).expect("ptxas beside the plugin")
}

/// Compiles a module in an environment without CUDA, with these variables.
fn compiled(place: &Place, plugin: &Path, module: &str, variables: &[(&str, &Path)]) -> Run {
    let mut command = command(&place.path("cache"));
    command.args(["compile", module, "--target", "cuda:l4", "--format", "json", "-o"]).arg(place.path("store"));
    command.arg("--plugin").arg(plugin).env("PATH", "");
    for name in ["VIRTUAL_ENV", "CUDA_HOME", "CUDA_ROOT", "CUDA_PATH", "XLA_FLAGS"] {
        command.env_remove(name);
    }
    ended(command.envs(variables.iter().copied()))
}

fn kept(place: &Place) -> usize {
    let files = fs::read_dir(place.path("store/executables-v1")).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "exe")).count()
}

/// A plugin alone, without NVIDIA's packages, refuses nothing: that is the machine's fault. With them it needs nothing
/// else, not even Python.
#[test]
fn a_missing_assembler_is_no_refusal_and_python_is_not_needed() {
    let Some(cuda) = cuda() else { return };
    let (with, without) = (Place::new(), Place::new());
    let alone = alone(&cuda, &without);
    let done = compiled(&with, &cuda, MATMUL, &[]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let advice = if alone.to_string_lossy().contains("xla_cuda12") {
        "install nvidia-cuda-nvcc-cu12 beside it"
    } else {
        "install nvidia-cuda-nvcc and nvidia-nvvm beside it"
    };
    let refused = compiled(&without, &alone, MATMUL, &[]);
    assert_eq!((refused.code, refused.stderr.lines().count()), (5, 1), "{}", refused.stderr);
    for part in ["finds no ptxas", advice, "--xla_gpu_cuda_data_dir="] {
        assert!(refused.fault().contains(part), "{part}: {}", refused.stderr);
    }
    // ptxas alone is not enough for a program with a function such as `tanh`
    let tanh = without.file(
        "tanh.mlir",
        "module @m { func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {\n\
         %y = stablehlo.tanh %x : tensor<64xf32>\n\
         %z = stablehlo.power %x, %y : tensor<64xf32>\n\
         return %z : tensor<64xf32> } }\n",
    );
    let bin = tools_beside(&cuda).join("bin");
    let refused = compiled(&without, &alone, &tanh, &[("PATH", &bin)]);
    assert_eq!((refused.code, refused.stderr.lines().count()), (5, 1), "{}", refused.stderr);
    assert!(refused.fault().contains("finds no libdevice") && refused.fault().contains(advice), "{}", refused.stderr);
    assert_eq!((kept(&with), kept(&without)), (1, 0));
}

/// XLA reads `CUDA_HOME`, and users know other variables.
#[test]
fn cudas_folder_is_found_by_each_of_its_variables() {
    let Some(cuda) = cuda() else { return };
    let tools = tools_beside(&cuda);
    for name in ["CUDA_HOME", "CUDA_ROOT", "CUDA_PATH"] {
        let place = Place::new();
        let done = compiled(&place, &alone(&cuda, &place), MATMUL, &[(name, &tools)]);
        assert_eq!((done.code, kept(&place)), (0, 1), "{name}: {}", done.stderr);
    }
    // the folder that XLA is given stays, whatever else is set
    let place = Place::new();
    let none = place.path("none");
    let refused = compiled(&place, &alone(&cuda, &place), MATMUL, &[("CUDA_HOME", &none), ("CUDA_ROOT", &tools)]);
    assert!(refused.code == 5 && refused.fault().contains("finds no ptxas"), "{}", refused.stderr);
    // a plugin with packages beside it is not sent elsewhere
    let old = place.path("old");
    fs::create_dir_all(old.join("bin")).unwrap();
    fs::write(old.join("bin/ptxas"), "no program").unwrap();
    let done = compiled(&place, &cuda, MATMUL, &[("CUDA_ROOT", &old)]);
    assert_eq!((done.code, kept(&place)), (0, 1), "{}", done.stderr);
}

/// A plugin for absent devices reads its flags with the first program, and dies of a wrong one.
#[test]
fn a_flag_that_the_plugin_does_not_know_is_a_note_and_not_in_the_key() {
    let Some(cuda) = cuda() else { return };
    let place = Place::new();
    let with = |flags: &str| {
        let run = compiled(&place, &cuda, MATMUL, &[("XLA_FLAGS", Path::new(flags))]);
        assert_eq!(run.code, 0, "{flags}: {}", run.stderr);
        run.json()["targets"][0].clone()
    };
    let target = with("--no_such_flag=1 --xla_gpu_autotune_level=0 --xla_gpu_dot_merger_threshold_mb=many");
    let note = |flag: &str| format!("this plugin does not accept `{flag}` in XLA_FLAGS: it runs without");
    let notes = [note("--no_such_flag=1"), note("--xla_gpu_dot_merger_threshold_mb=many")];
    let mut told: Vec<&str> = target["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    told.sort_unstable();
    assert_eq!(told, notes, "{target}");
    assert_eq!((&target["module"]["status"], &target["module"]["reused"]), (&"compiled".into(), &false.into()));
    assert_eq!(target["device"]["environment"]["xla_flags"], serde_json::json!(["--xla_gpu_autotune_level=0"]));
    // the flags in force are the key
    let again = with("--xla_gpu_autotune_level=0");
    assert_eq!((&again["module"]["reused"], again.get("notes")), (&true.into(), None));
    assert_eq!(with("--xla_gpu_autotune_level=1")["module"]["reused"], false);
    // a file of flags is not rewritten: one line names the flag
    let file = place.file("flags.txt", "--no_such_flag=1\n");
    let refused = compiled(&place, &cuda, MATMUL, &[("XLA_FLAGS", Path::new(&file))]);
    assert_eq!((refused.code, refused.stderr.lines().count()), (5, 1), "{}", refused.stderr);
    assert!(refused.fault().contains("Unknown flag in XLA_FLAGS: --no_such_flag=1"), "{}", refused.stderr);
}

/// Reading the flags early dumps nothing that the user did not ask for.
#[test]
fn only_the_users_program_is_dumped() {
    let Some(cuda) = cuda() else { return };
    let place = Place::new();
    let flags = format!("--xla_dump_to={}", place.text("dump"));
    let run = compiled(&place, &cuda, MATMUL, &[("XLA_FLAGS", Path::new(&flags))]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let names = fs::read_dir(place.path("dump")).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let modules: Vec<String> = names.filter(|name| name.starts_with("module_")).collect();
    assert!(!modules.is_empty() && modules.iter().all(|name| name.contains("jit__lambda")), "{modules:?}");
}
