//! `scan` of kernels without labels. What they should be is written in their modules' own text and in the projects that
//! they are from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use serde_json::{Value, json};

use crate::support::prerequisite::shared_data;
use crate::support::program::*;

const EXAMPLE: &str = "examples/kernels/step.mlir";

fn scanned(place: &Place, module: &str, more: &[&str]) -> (i32, Vec<Value>) {
    let run = place.run(&[&["scan", module, "--format", "json"], more].concat());
    let kernels = run.json()["kernels"].as_array().cloned().unwrap_or_default();
    (run.code, kernels)
}

/// `operation name=value …`, and how often it is called.
fn brief(kernel: &Value) -> (String, u64) {
    let known = &kernel["known"];
    let mut words = vec![known["operation"].as_str().unwrap_or("?").to_owned()];
    words.extend(known["parameters"].as_object().into_iter().flatten().map(|(name, value)| format!("{name}={value}")));
    (words.join(" "), kernel["calls"].as_u64().unwrap())
}

#[test]
fn the_examples_kernels_and_their_block_sizes_are_listed() {
    let place = Place::new();
    let (code, kernels) = scanned(&place, EXAMPLE, &[]);
    let found: Vec<(String, u64)> = kernels.iter().map(brief).collect();
    let expected = [
        ("ragged_paged_attention_v3 bkv=512 bkv_compute=256 bq=8 bq_compute=8", 2),
        ("gmm_v2 tile_k=1024 tile_m=512 tile_n=768", 1),
        ("quantized_matmul batch_block_size=128 in_block_size=128 out_block_size=128", 1),
        ("splash_attention block_kv=512 block_kv_compute=256 block_q=512", 1),
        ("?", 1),
    ];
    assert_eq!(found, expected.map(|(brief, calls)| (brief.to_owned(), calls)));
    assert_eq!(code, 0, "kernels are something, labels or not");
    let [attention, gmm, quantized, splash, other] = kernels.as_slice() else { panic!("{kernels:?}") };
    assert_eq!(attention["known"]["static_arguments"], json!({"case": "d", "page_size": 64}));
    assert_eq!(attention["known"]["project"], "sglang-jax or tpu-inference");
    assert_eq!(
        (&attention["source"], &attention["operands"]),
        (&json!("examples/kernels/make.py:23"), &json!(["f32[8,128]"]))
    );
    assert_eq!(gmm["known"]["static_arguments"]["activation"], "None");
    assert_eq!((&quantized["name"], &quantized["known"]["on_defaults"]), (&json!("matmul_kernel"), &json!(true)));
    assert_eq!(splash["known"]["on_defaults"], false);
    assert_eq!(splash["metadata"], json!({"block_q": 512, "block_kv": 512, "block_kv_compute": 256}));
    assert_eq!((&other["name"], other.get("known")), (&json!("somebody_elses"), None));

    let table = place.run(&["scan", EXAMPLE]).stdout;
    let row = table.lines().find(|line| line.contains("quantized_matmul")).unwrap();
    assert!(row.ends_with("out_block_size=128 (defaults)"), "{table}");
}

/// `tests/data/hlo/kernels/make.py` says what is launched, and on which of its lines.
#[test]
fn bytecode_says_of_a_launch_what_text_says() {
    let place = Place::new();
    for file in ["launch.mlir", "launch.mlirbc", "launch.portable.mlirbc"] {
        let (_, kernels) = scanned(&place, &format!("tests/data/hlo/kernels/{file}"), &[]);
        let [kernel] = kernels.as_slice() else { panic!("{file}: {kernels:?}") };
        let launch = json!([kernel["grid"], kernel["num_warps"], kernel["num_stages"], kernel["operands"]]);
        assert_eq!(launch, json!([[300, 2, 1], 4, 3, ["f32[4800,32]"]]), "{file}");
        assert_eq!(kernel["source"], "tests/data/hlo/kernels/make.py:22", "{file}");
        assert_eq!(brief(kernel), ("mha num_stages=3 num_warps=4".to_owned(), 1), "{file}");
    }
}

/// `tests/data/hlo/kernels/make_calls.py` says what is called; jaxlib wrote the messages.
#[test]
fn what_jaxlib_runs_says_its_launch_in_every_form() {
    let place = Place::new();
    for (form, line) in [
        ("mlir", json!(4)),
        ("mlirbc", json!(null)),
        ("portable.mlirbc", json!(null)),
        ("hlo.pb", json!(null)),
        ("hlo.txt", json!(5)),
    ] {
        let (_, kernels) = scanned(&place, &format!("tests/data/hlo/kernels/calls.{form}"), &[]);
        let said = |kernel: &Value| json!([kernel["name"], kernel["grid"], kernel["num_warps"], kernel["metadata"]]);
        let expected = [
            json!(["add_rows", [300, 2, 1], 8, {"block": 64}]),
            json!(["scale_rows", [70, 1, 1], 2, null]),
            json!(["tune_rows", null, null, {"autotuned_configs": ["BLOCK: 2", "BLOCK: 4"]}]),
        ];
        assert_eq!(kernels.iter().map(said).collect::<Vec<_>>(), expected, "{form}");
        assert_eq!(kernels[0]["line"], line, "{form}");
    }
}

#[test]
fn a_kernel_on_defaults_fails_where_that_is_asked() {
    let place = Place::new();
    assert_eq!(place.run(&["scan", EXAMPLE, "--fail-on-defaults"]).code, 9);
    let text = fs::read_to_string(EXAMPLE).unwrap();
    let tuned = place.path("tuned.mlir");
    fs::write(&tuned, text.replace("kernel_128_128_128", "kernel_256_128_128")).unwrap();
    assert_eq!(place.run(&["scan", tuned.to_str().unwrap(), "--fail-on-defaults"]).code, 0);
    // a module without kernels
    assert_eq!(place.run(&["scan", &module(), "--fail-on-defaults"]).code, 0);
}

#[test]
fn users_name_their_own_kernels() {
    let place = Place::new();
    let own = place.path("own.json");
    let template = |name: &str| {
        json!({"schema": 1, "kernels": [{"operation": "mine", "projects": {"me": "examples/"}, "targets": ["tpu_custom_call"],
            "name": name, "defaults": {"who": "body"}, "source": "here"}]})
    };
    fs::write(&own, template("some(?<who>body)_elses").to_string()).unwrap();
    let (code, kernels) = scanned(&place, EXAMPLE, &["--kernels", own.to_str().unwrap()]);
    assert_eq!(
        (code, &kernels[4]["known"]["project"], &kernels[4]["known"]["on_defaults"]),
        (0, &json!("me"), &json!(true))
    );
    for (text, word) in [
        (template("(").to_string(), "no pattern"),
        ("{}".to_owned(), "no kernel templates"),
        (template("x").to_string().replace("\"schema\":1", "\"schema\":7"), "schema 7"),
    ] {
        fs::write(&own, &text).unwrap();
        let run = place.run(&["scan", EXAMPLE, "--kernels", own.to_str().unwrap()]);
        assert!(
            run.code == 4 && run.stderr.contains(word) && run.stderr.lines().count() == 1,
            "{text}: {}",
            run.stderr
        );
    }
    let endless = place.run(&["scan", EXAMPLE, "--kernels", "/dev/zero"]);
    assert_eq!(endless.code, 4, "{}", endless.stderr);
    assert_eq!(place.run(&["scan", EXAMPLE, "--kernels", "missing.json"]).code, 4);
}

#[test]
fn a_names_escapes_do_not_reach_the_terminal() {
    let place = Place::new();
    let text = fs::read_to_string(EXAMPLE).unwrap();
    let hostile = place.path("hostile.mlir");
    fs::write(&hostile, text.replace("somebody_elses", "a\\1B[31m\\0Ab")).unwrap();
    let run = place.run(&["scan", hostile.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(!run.stdout.contains('\u{1b}') && run.stdout.lines().any(|line| line.contains("[31m")), "{}", run.stdout);
}

#[test]
fn more_kernels_than_are_listed_are_said() {
    let place = Place::new();
    let call = |number: usize| {
        format!(
            "    %{number} = stablehlo.custom_call @tpu_custom_call(%arg0) {{kernel_name = \"k{}\"}} : (tensor<8xf32>) -> \
             tensor<8xf32>\n",
            number % 5000
        )
    };
    let module = |calls: usize| {
        let body: String = (0..calls).map(call).collect();
        let head = "module @m {\n  func.func @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {\n";
        let path = place.path(&format!("{calls}.mlir"));
        fs::write(&path, format!("{head}{body}    return %0 : tensor<8xf32>\n  }}\n}}\n")).unwrap();
        place.run(&["scan", path.to_str().unwrap(), "--format", "json"]).json()
    };
    let is_cut = |scan: &Value| scan["diagnosis"].as_array().unwrap().iter().any(|one| one["code"] == "kernels-cut");
    let (few, many) = (module(4096), module(5000));
    assert_eq!((few["kernels"].as_array().unwrap().len(), is_cut(&few)), (4096, false));
    assert_eq!((many["kernels"].as_array().unwrap().len(), is_cut(&many)), (4096, true));
}

/// Real kernels of JAX, tpu-inference and MaxText, in every form. `kernels.md` beside the data says which of their
/// values can be read.
#[test]
fn real_kernels_are_recognised_in_every_form() {
    let place = Place::new();
    let splash = [
        ("splash_attention block_kv=512 block_kv_compute=256 block_q=512", 1),
        ("splash_attention block_kv_dkv=512 block_kv_dkv_compute=256 block_q_dkv=512", 1),
        ("splash_attention block_kv_dq=512 block_q_dq=512", 1),
    ];
    let mha = [("mha num_stages=3 num_warps=4", 1)];
    let labelled_mha = [("mha num_stages=2 num_warps=4", 1)];
    let labelled = [("flash_attention", 1), ("matmul", 1)];
    let cases: [(&str, &[(&str, u64)]); 19] = [
        (
            "k_rpa_v3b.mlir",
            &[
                ("ragged_paged_attention_v3 bkv=512 bkv_compute=256 bq=8 bq_compute=8", 1),
                ("ragged_paged_attention_v3 bkv=512 bkv_compute=256 bq=64 bq_compute=32", 1),
            ],
        ),
        ("k_gmm_v2.mlir", &[("gmm_v2 tile_k=1024 tile_m=512 tile_n=768", 1)]),
        ("k_gpu_mha.mlir", &mha),
        ("k_gpu_mha.hlo.txt", &mha),
        ("k_gpu_mha.hlo.pb", &mha),
        ("h_gpu.mlir", &labelled_mha),
        ("h_gpu.hlo.txt", &labelled_mha),
        ("h_gpu.hlo.pb", &labelled_mha),
        ("k_gpu_ragged_dot.mlir", &[("ragged_dot", 1)]),
        ("k_tpu_flash.mlir", &[("flash_attention", 1)]),
        ("k_tpu_gmm.mlir", &[("megablox_gmm", 1)]),
        ("k_tpu_splash.mlir", &splash),
        ("k_tpu_splash.mlirbc", &splash),
        ("k_tpu_splash.hlo.txt", &splash),
        ("k_tpu_splash.hlo.pb", &splash),
        ("h_tpu.mlir", &labelled),
        ("h_tpu.hlo.txt", &labelled),
        ("h_tpu.hlo.pb", &labelled),
        (
            "h_tpugrad.mlir",
            &[
                ("flash_attention", 1),
                ("flash_attention_backward_dq block_k_dq=128 block_k_major_dq=128 block_q_dq=128", 1),
            ],
        ),
    ];
    for (file, expected) in cases {
        let Some(path) = shared_data(&format!("kernels/{file}")) else { return };
        let (_, kernels) = scanned(&place, path.to_str().unwrap(), &[]);
        let found: Vec<(String, u64)> = kernels.iter().map(brief).collect();
        let found: Vec<(&str, u64)> = found.iter().map(|(brief, calls)| (brief.as_str(), *calls)).collect();
        assert_eq!(found, expected, "{file}");
    }
}
