//! `compile` of the module itself, for absent devices: *does my step fit?*

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use serde_json::Value;

use crate::compile::cuda;
use crate::support::program::*;

fn program(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer").join(name).display().to_string()
}

/// Compiles a module for the targets, with the plugin and a store in the place.
fn compile(place: &Place, plugin: &Path, module: &str, arguments: &[&str]) -> Run {
    let (plugin, store) = (plugin.display().to_string(), place.text("store"));
    place.run(&[&["compile", module, "--plugin", &plugin, "-o", &store], arguments].concat())
}

fn outcome(run: &Run) -> Value {
    let target = run.json()["targets"][0].clone();
    assert_eq!(target["module"]["status"], "compiled", "{target}");
    target
}

#[test]
fn a_module_of_several_partitions_is_compiled_and_what_it_takes_is_that_of_one_device() {
    let Some(cuda) = cuda() else { return };
    let place = Place::new();
    let json = ["--format", "json", "--target"];
    for name in ["sharded2.mlir", "sharded2.mlirbc", "sharded2_gspmd.mlir"] {
        // as many GPUs as the module needs, or as the target specifies
        for target in ["cuda:h100_sxm", "cuda:h100_sxm:2", "cuda:h100_sxm:2x4"] {
            let run = compile(&place, &cuda, &program(name), &[&json[..], &[target]].concat());
            assert_eq!(run.code, 0, "{name} {target}: {}", run.stderr);
            let target = outcome(&run);
            assert_eq!(target["devices"], 2, "{target}");
            // one device's halves of `x` and `w`, and all of `b`
            assert_eq!(
                target["module"]["memory"]["argument_bytes"],
                (64 * 128 + 128 * 32) / 2 * 4 + 32 * 4,
                "{target}"
            );
        }
    }
    // 8×4 cut in eight, in four, in two, and a number
    let eight = compile(&place, &cuda, &program("sharded8.mlir"), &[&json[..], &["cuda:h100_sxm:8"]].concat());
    let eight = outcome(&eight);
    assert_eq!(
        (&eight["devices"], &eight["module"]["memory"]["argument_bytes"]),
        (&8.into(), &(16 + 16 + 96 + 4).into())
    );
    // fewer GPUs than partitions
    let few = compile(&place, &cuda, &program("sharded8.mlir"), &[&json[..], &["cuda:h100_sxm:4"]].concat());
    let module = few.json()["targets"][0]["module"].clone();
    assert_eq!((few.code, &module["status"]), (0, &"refused".into()), "{}", few.stderr);
    let reason = module["reason"].as_str().unwrap();
    assert!(reason.contains("8 partitions, and the target 4 devices"), "{reason}");
    // one partition on the first of many
    let one = compile(&place, &cuda, &program("add.mlir"), &[&json[..], &["cuda:l4:8"]].concat());
    assert_eq!(outcome(&one)["devices"], Value::Null);
    let table = compile(&place, &cuda, &program("sharded2.mlir"), &["--target", "cuda:h100_sxm"]);
    assert!(table.stdout.contains("the module, on each of 2 devices"), "{}", table.stdout);
}

#[test]
fn a_module_fits_a_device_or_does_not() {
    let Some(cuda) = cuda() else { return };
    let place = Place::new();
    let spec = std::fs::read_to_string("candidates/targets/l4.txtpb").unwrap();
    let verdict = |memory: u64| {
        let whole = spec.lines().map(|line| match line.contains("device_memory_size") {
            true => format!("  device_memory_size: {memory}"),
            false => line.to_owned(),
        });
        let file = place.file("own.txtpb", whole.collect::<Vec<_>>().join("\n"));
        let run = compile(&place, &cuda, &program("matmul.mlir"), &["--target", &format!("cuda:{file}")]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
    };
    // three matrices of 64 × 64 floats
    let needed = 3 * 64 * 64 * 4;
    assert!(verdict(needed).contains("it fits: "));
    assert!(verdict(needed - 1).contains("it does not fit: "));
}

#[test]
fn options_of_the_compiler_are_part_of_what_is_kept_and_a_wrong_one_is_no_refusal() {
    let Some(cuda) = cuda() else { return };
    let place = Place::new();
    let of = |options: &[&str]| {
        let fixed = ["--target", "cuda:h100_sxm", "--format", "json"];
        compile(&place, &cuda, &program("matmul.mlir"), &[&fixed, options].concat())
    };
    let reused = |run: &Run| outcome(run)["module"]["reused"] == true;
    let without = of(&[]);
    let with = of(&["--base-options", "xla_gpu_enable_triton_gemm=false"]);
    assert!(!reused(&without) && !reused(&with), "{}", with.stderr);
    assert!(reused(&of(&[])) && reused(&of(&["--base-options", "--xla_gpu_enable_triton_gemm=False"])));
    // without Triton, XLA uses another kernel for the product
    let kernels = |run: &Run| outcome(run)["module"]["kernels"].clone();
    assert_ne!(kernels(&without), kernels(&with));
    for (wrong, words) in [
        ("xla_no_such_option=1", "No such compile option"),
        ("xla_gpu_enable_triton_gemm=seven", "xla_gpu_enable_triton_gemm"),
    ] {
        let run = of(&["--base-options", wrong]);
        assert_eq!((run.code, run.stderr.lines().count()), (5, 1), "{wrong}: {}", run.stderr);
        assert!(run.fault().contains("`--base-options`") && run.fault().contains(words), "{}", run.stderr);
    }
    assert_eq!(of(&["--base-options", "no dashes and no value"]).code, 2);
    // nothing of it is kept as refused
    let files = std::fs::read_dir(place.path("store/executables-v1")).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.filter(|name| name.to_string_lossy().ends_with(".exe")).count(), 2);
}
