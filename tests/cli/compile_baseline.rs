//! What `compile --baseline` says of two stores, with the SIMULATED libtpu (`tests/data/targets/simulated_libtpu.c`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::simulated_tpu::Tpu;
use crate::support::compiled_elsewhere::with_header;
use crate::support::program::*;

const MODULE: &str = "tests/data/targets/mosaic_matmul.mlir";

/// Where a figure stands in the header of a kept executable.
const FIGURES: [(&str, &str); 11] = [
    ("memory", "/note/memory/peak_bytes"),
    ("temporary", "/note/memory/temporary_bytes"),
    ("code", "/note/kernels/0/code_bytes"),
    ("executable", "/payload_bytes"),
    ("cycles", "/note/cost/estimated_cycles"),
    ("bundles", "/note/cost/schedule/bundles"),
    ("vmem", "/note/cost/schedule/vmem_bytes"),
    ("registers", "/note/kernels/0/registers"),
    ("stack", "/note/kernels/0/stack_bytes"),
    ("shared", "/note/kernels/0/shared_bytes"),
    ("seconds", "/note/compile_ns"),
];

/// A store with one program that has every figure.
struct Stores {
    tpu: Tpu,
}

impl Stores {
    fn new() -> Self {
        let tpu = Tpu::new();
        assert_eq!(tpu.compile(MODULE, &["--llo"], "").code, 0);
        let stores = Self { tpu };
        edit(&stores.tpu.place.path("store"), |header| {
            let kernel = json!({"name": "k", "code_bytes": 64, "registers": 64, "stack_bytes": 64, "shared_bytes": 64});
            header["note"]["kernels"] = json!([kernel]);
            header["note"]["cost"]["estimated_cycles"] = json!(64.0);
        });
        stores
    }

    /// Makes a baseline of the same content, changed.
    fn baseline(&self, name: &str, change: impl Fn(&mut Value)) -> String {
        let baseline = self.tpu.place.path(name);
        copy_folder(&self.tpu.place.path("store"), &baseline);
        edit(&baseline, change);
        self.tpu.place.text(name)
    }

    fn compare(&self, baseline: &str, arguments: &[&str]) -> Run {
        let fixed = ["--llo", "--baseline", baseline, "--format", "json"];
        self.tpu.compile(MODULE, &[&fixed, arguments].concat(), "")
    }
}

fn edit(store: &Path, change: impl Fn(&mut Value)) {
    let files = fs::read_dir(store.join("executables-v1")).unwrap().map(|file| file.unwrap().path());
    let files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "exe")).collect();
    assert!(!files.is_empty());
    for file in files {
        fs::write(&file, with_header(&fs::read(&file).unwrap(), &change)).unwrap();
    }
}

fn halve(header: &mut Value, place: &str) {
    let value = header.pointer_mut(place).unwrap();
    *value = match value.as_u64() {
        Some(count) => json!(count / 2),
        None => json!(value.as_f64().unwrap() / 2.0),
    };
}

fn comparison(run: &Run) -> Value {
    run.json()["targets"][0]["baseline"].clone()
}

#[test]
fn each_figure_that_doubled_fails_under_its_limit_alone() {
    let stores = Stores::new();
    let junit = stores.tpu.place.text("junit.xml");
    for (figure, place) in FIGURES {
        let baseline = stores.baseline(figure, |header| halve(header, place));
        let grown = stores.compare(&baseline, &["--max-growth", &format!("{figure}=0.5"), "--junit", &junit]);
        assert_eq!(grown.code, 7, "{figure}: {} {}", grown.stdout, grown.stderr);
        let found = comparison(&grown);
        let regressions = found["regressions"].as_array().unwrap();
        let [regression] = regressions.as_slice() else { panic!("{figure}: {found}") };
        assert_eq!((&regression["what"], &regression["figure"]), (&json!("growth"), &json!(figure)));
        assert_eq!(regression["limit"], 0.5);
        let changed = found["changes"][0]["figures"].as_array().unwrap().iter().find(|one| one["figure"] == figure);
        let ratio = changed.unwrap()["ratio"].as_f64().unwrap();
        assert!((1.99..2.1).contains(&ratio), "{figure}: {ratio}");
        let most = if figure == "seconds" { Value::Null } else { json!(figure) };
        assert_eq!(found["changes"][0]["changed_most"], most);
        let xml = fs::read_to_string(&junit).unwrap();
        assert!(xml.contains(r#"failures="1""#) && xml.contains(&format!("{figure} grew from")), "{xml}");
        let allowed = stores.compare(&baseline, &["--max-growth", &format!("{figure}=1.5")]);
        assert_eq!(allowed.code, 0, "{figure}: {} {}", allowed.stdout, allowed.stderr);
        // memory has a limit of its own
        let code = if figure == "memory" { 7 } else { 0 };
        assert_eq!(stores.compare(&baseline, &[]).code, code, "{figure}");
    }
}

#[test]
fn a_limit_of_what_a_store_does_not_know_is_noted() {
    let stores = Stores::new();
    let baseline = stores.baseline("without", |header| {
        header["note"]["cost"]["schedule"].as_object_mut().unwrap().remove("bundles");
    });
    let compared = stores.compare(&baseline, &["--max-growth", "bundles=0", "--max-growth", "vmem=0"]);
    assert_eq!(compared.code, 0, "{}", compared.stderr);
    let notes = compared.json()["targets"][0]["notes"].to_string();
    let note = "the growth of bundles is not judged in 1 program, where a store does not know it; compile both stores \
                with `--llo`";
    assert!(notes.contains(note) && !notes.contains("vmem"), "{notes}");
    let bundles = comparison(&compared)["figures"].as_array().unwrap().clone();
    let bundles = bundles.iter().find(|one| one["figure"] == "bundles").unwrap().clone();
    assert_eq!((&bundles["programs"], &bundles["unknown"]), (&json!(0), &json!(1)), "{bundles}");
}

#[test]
fn programs_of_one_store_alone_are_counted() {
    let stores = Stores::new();
    let other = stores.tpu.place.file("other.mlir", fs::read(MODULE).unwrap());
    let small = stores.baseline("small", |_| {});
    assert_eq!(stores.tpu.compile(&other, &["--base-options", "xla_a=1"], "").code, 0);
    let both = stores.baseline("both", |_| {});
    let counts = |run: &Run| ["compared", "unknown", "only_in_baseline"].map(|name| comparison(run)[name].clone());
    assert_eq!(counts(&stores.compare(&both, &[])), [json!(1), json!(0), json!(1)]);
    let fixed = ["--baseline", &small, "--format", "json", "--base-options", "xla_a=1"];
    let unknown = stores.tpu.compile(&other, &fixed, "");
    assert_eq!(counts(&unknown), [json!(0), json!(1), json!(1)], "{}", unknown.stdout);
}

#[test]
fn limits_that_are_none_are_refused_in_one_line() {
    let stores = Stores::new();
    let baseline = stores.baseline("baseline", |_| {});
    for (limit, words) in [
        ("speed=0.1", "`speed` is no figure: name one of memory, temporary, code"),
        ("bundles", "expected a figure and a part, such as bundles=0.02"),
        ("bundles=-1", "a number of at least 0"),
        ("bundles=inf", "a number of at least 0"),
        ("bundles=NaN", "a number of at least 0"),
    ] {
        let wrong = stores.compare(&baseline, &["--max-growth", limit]);
        assert!(wrong.code == 2 && wrong.stderr.contains(words), "{limit}: {} {}", wrong.code, wrong.stderr);
    }
    let alone = stores.tpu.compile(MODULE, &["--max-growth", "bundles=0.02"], "");
    assert!(alone.code == 2 && alone.stderr.contains("--baseline"), "{} {}", alone.code, alone.stderr);
}
