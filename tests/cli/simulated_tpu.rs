//! Compiling for absent TPUs, with a SIMULATED libtpu that compiles nothing (`tests/data/targets/simulated_libtpu.c`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::program::*;

/// A Pallas matrix product for a TPU on a grid of 4 × 4 × 3, lowered by JAX.
const MODULE: &str = "tests/data/targets/mosaic_matmul.mlir";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/targets").join(name)
}

struct Tpu {
    place: Place,
    plugin: String,
}

impl Tpu {
    fn new() -> Self {
        let place = Place::new();
        let plugin = place.text("libtpu.so");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o", &plugin]).arg(data("simulated_libtpu.c"));
        assert!(cc.status().unwrap().success());
        Self { place, plugin }
    }

    fn compile(&self, module: &str, arguments: &[&str], init_args: &str) -> Run {
        let store = self.place.text("store");
        let fixed = ["compile", module, "--target", "tpu:v5e", "--plugin", &self.plugin, "-o", &store];
        let optimized = data("mosaic_matmul.hlo.pb").display().to_string();
        let mut command = command(&self.place.path("cache"));
        command.args(fixed).args(arguments).env("SIMULATED_OPTIMIZED", optimized).env("LIBTPU_INIT_ARGS", init_args);
        ended(&mut command)
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
    let none = tpu.place.run(&["compile", MODULE, "--target", "tpu:v6e", "--plugin", &tpu.plugin, "-o", "no-store"]);
    assert!(none.code == 5 && none.fault().contains("the simulated libtpu knows v5e:2x2 alone"), "{}", none.stderr);
}
