//! The registry's folder: round trips, damage is named, and nothing else is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use autotune_lowered::array::{ArraySpec, DType, Fill};
use autotune_lowered::batch::{BatchAxis, variant_of};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::config::Config;
use autotune_lowered::device::{DeviceIdentity, MatchMode};
use autotune_lowered::digest::Digest;
use autotune_lowered::registry::{
    Argument, Candidate, Invocation, NotRunnable, ProblemKind, ProgramFormat, RecordedTarget, Registry, RegistryError,
    semantic_digest,
};

const PROGRAM: &str = "module @jit_f {\n  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n    \
                       return %arg0 : tensor<4xf32>\n  }\n}\n";

fn config(block: u32) -> Config {
    serde_json::from_value(serde_json::json!({ "block": block })).unwrap()
}

fn put(registry: &Registry, text: &str) -> autotune_lowered::registry::Program {
    let format = ProgramFormat::StablehloText;
    let semantic = semantic_digest(format, text.as_bytes());
    registry.writer().put_program(format, text.as_bytes(), semantic, Vec::new()).unwrap()
}

/// A call with one candidate for each block size; `program` makes the text of its program.
fn invocation(registry: &Registry, key: &str, at: u64, blocks: &[u32], program: impl Fn(u32) -> String) -> Invocation {
    let candidates: Vec<_> = blocks
        .iter()
        .map(|&block| Candidate::new(config(block)).program(Some(put(registry, &program(block)))))
        .collect();
    let call = Call::new("odd op/../name@v1", key);
    let x = Argument::new("x", ArraySpec::new(DType::F32, [4]), Fill::Normal { scale: 1.0 });
    Invocation::new(RecordedTarget::Platform("cpu".into()), call, config(blocks[0]))
        .arguments(vec![x])
        .static_arguments(BTreeMap::from([("causal".into(), true.into())]))
        .candidates(candidates)
        .recorded_at(at)
        .recorder("a test".into())
}

fn program_of(block: u32) -> String {
    PROGRAM.replace("tensor<4xf32>", &format!("tensor<{block}xf32>"))
}

fn fresh() -> (tempfile::TempDir, Registry) {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::create_or_open(folder.path().join("new/registry")).unwrap();
    (folder, registry)
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_of(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

#[test]
fn what_is_added_comes_back() {
    let (_folder, mut registry) = fresh();
    let added = invocation(&registry, "k", 5, &[4, 8], program_of);
    let record = registry.add(&added).unwrap();
    assert!(record.starts_with(registry.root().join("invocations/odd_op_.._name_v1")), "{}", record.display());
    let again = Registry::open(registry.root()).unwrap();
    assert_eq!(again.invocations().len(), 1);
    assert_eq!(*again.invocations()[0], added);
    let program = added.candidates[1].program.as_ref().unwrap();
    assert_eq!(fs::read(again.checked_program_path(program).unwrap()).unwrap(), program_of(8).into_bytes());
    assert!(again.verify().is_good());
    let left = files_of(registry.root())
        .into_iter()
        .filter(|file| file.file_name().unwrap().to_string_lossy().starts_with('.'));
    assert_eq!(left.count(), 0);
    // the same record again gives the same file
    assert_eq!(registry.add(&added).unwrap(), record);
    assert_eq!(registry.record_count(), 1);
}

#[test]
fn python_and_rust_name_a_record_alike() {
    let (_folder, registry) = fresh();
    let mut recorded = invocation(&registry, "é|k", 5, &[4], program_of);
    recorded.call.op_id = "op@v1".into();
    recorded.direction = Direction::ForwardVjp;
    let hardware = [("sm_count", "132"), ("compute_capability", "9.0")];
    recorded.target = RecordedTarget::Device(DeviceIdentity {
        platform: "cuda".into(),
        device_kind: "NVIDIA H200".into(),
        hardware: hardware.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
    });
    // examples/transformer/registry_writer.py, invocation_key
    assert_eq!(recorded.key().to_string(), "67916a362f5503c9c9ea674577010a54ab51ea322f27ea9a429f459bd454ed57");
}

#[test]
fn what_cannot_be_written_is_named_and_leaves_nothing() {
    let (_folder, mut registry) = fresh();
    let recorded = invocation(&registry, "k", 5, &[4], program_of);
    let blocked = registry.root().join("invocations");
    fs::write(&blocked, "a file where a folder must be").unwrap();
    let before = files_of(registry.root());
    let error = registry.add(&recorded).unwrap_err().to_string();
    assert!(error.contains(blocked.to_str().unwrap()) && !error.contains('\n'), "{error}");
    assert_eq!(files_of(registry.root()), before);
    assert!(Registry::open(registry.root()).unwrap_err().to_string().contains(blocked.to_str().unwrap()));
}

#[test]
fn every_flipped_byte_is_found_and_costs_one_file() {
    let (_folder, mut registry) = fresh();
    let hurt = invocation(&registry, "hurt", 5, &[4], program_of);
    let record = registry.add(&hurt).unwrap();
    let well = invocation(&registry, "well", 5, &[16], program_of);
    registry.add(&well).unwrap();

    let good = fs::read(&record).unwrap();
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1 << (place % 8);
        fs::write(&record, &bad).unwrap();
        let opened = Registry::open(registry.root()).unwrap();
        assert_eq!(opened.invocations().len(), 1, "byte {place}");
        let problems: Vec<_> = opened.problems().iter().map(|problem| (&problem.path, problem.kind)).collect();
        assert_eq!(problems, [(&record, ProblemKind::Digest)], "byte {place}");
    }
    for length in 0..good.len() {
        fs::write(&record, &good[..length]).unwrap();
        assert_eq!(Registry::open(registry.root()).unwrap().problems().len(), 1, "length {length}");
    }
    fs::write(&record, &good).unwrap();

    let program = hurt.candidates[0].program.clone().unwrap();
    let path = registry.program_path(&program);
    let good = fs::read(&path).unwrap();
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1 << (place % 8);
        fs::write(&path, &bad).unwrap();
        let checked = registry.checked_program_path(&program);
        assert!(matches!(checked, Err(RegistryError::Digest { .. })), "byte {place}");
    }
    let report = Registry::open(registry.root()).unwrap().verify();
    let problems: Vec<_> = report.problems.iter().map(|problem| (&problem.path, problem.kind)).collect();
    assert_eq!(problems, [(&path, ProblemKind::Digest)]);
    // recording again repairs it
    put(&registry, &program_of(4));
    assert!(registry.verify().is_good());
    fs::remove_file(&path).unwrap();
    assert_eq!(registry.verify().problems[0].kind, ProblemKind::Missing);
    assert!(registry.add(&hurt).is_err(), "a record never names a program that is not there");
}

#[test]
fn strange_files_are_named_and_the_rest_works() {
    let (_folder, mut registry) = fresh();
    let good = invocation(&registry, "k", 5, &[4], program_of);
    let record = registry.add(&good).unwrap();
    let folder = record.parent().unwrap();
    fs::write(folder.join("notes.json"), "{}").unwrap();
    fs::write(folder.join(".tmp-left-behind"), "half").unwrap();
    fs::write(folder.join("README.md"), "for people").unwrap();
    let as_record = |content: &str| {
        let key = good.key().to_short();
        let path = folder.join(format!("{key}-{}.json", Digest::of(content.as_bytes())));
        fs::write(&path, content).unwrap();
        path
    };
    let newer = as_record(r#"{"schema":2,"invocation":{"unheard":"of"}}"#);
    let hollow = as_record(r#"{"schema":1,"invocation":{}}"#);
    let deep = as_record(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    let mut other_key = good.clone();
    other_key.call.call_key = "another".into();
    let renamed = as_record(&serde_json::json!({"schema": 1, "invocation": other_key}).to_string());
    let fifo = folder.join(format!("0000000000000000-{}.json", Digest::of(b"fifo")));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());

    let opened = Registry::open(registry.root()).unwrap();
    assert_eq!(opened.invocations().len(), 1);
    let found: BTreeMap<_, _> =
        opened.problems().iter().map(|p| (p.path.clone(), (p.kind, p.message.clone()))).collect();
    let expected = BTreeMap::from([
        (folder.join("notes.json"), ProblemKind::Name),
        (newer.clone(), ProblemKind::Schema),
        (hollow, ProblemKind::Content),
        (deep, ProblemKind::Content),
        (renamed, ProblemKind::Name),
        (fifo, ProblemKind::Unreadable),
    ]);
    assert_eq!(found.iter().map(|(path, (kind, _))| (path.clone(), *kind)).collect::<BTreeMap<_, _>>(), expected);
    assert!(found[&newer].1.contains("schema 2"));
    assert!(found.values().all(|(_, message)| !message.contains('\n')));
}

#[test]
fn folders_that_are_no_registry_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Registry::open(folder.path()).unwrap_err();
    assert!(matches!(open(), RegistryError::Missing(_)));
    let header = folder.path().join("registry.json");
    for (content, part) in [
        ("", "EOF"),
        ("{\"kind\":\"autotune-lowered-regis", "EOF"),
        ("{\"kind\":\"something\",\"schema\":1}", "its kind is not"),
        ("{\"kind\":\"autotune-lowered-registry\",\"schema\":0}", "no schema 0"),
        ("{\"kind\":\"autotune-lowered-registry\",\"schema\":2}", "schema 2, this version reads 1"),
    ] {
        fs::write(&header, content).unwrap();
        let message = open().to_string();
        assert!(message.contains(part) && message.contains("registry.json"), "{message}");
    }
    assert!(matches!(open(), RegistryError::NewerSchema { schema: 2, .. }));
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(matches!(Registry::open(file), Err(RegistryError::Missing(_))));
}

#[test]
fn paths_in_records_never_leave_the_folder() {
    let (folder, mut registry) = fresh();
    let secret = folder.path().join("secret.bin");
    fs::write(&secret, [0; 16]).unwrap();
    let digest = Digest::of(&[0; 16]);
    for path in [
        "../secret.bin",
        "arrays/../../secret.bin",
        "arrays/../registry.json",
        "registry.json",
        "arrays",
        "",
        "arrays/a/b",
    ]
    .into_iter()
    .map(PathBuf::from)
    .chain([secret.clone()])
    {
        let mut hostile = invocation(&registry, "k", 5, &[4], program_of);
        hostile.arguments[0].fill = Fill::File { path: path.clone(), digest };
        let error = registry.add(&hostile).unwrap_err().to_string();
        assert!(error.contains("not inside the registry's `arrays/`"), "{}: {error}", path.display());
        assert!(registry.argument_bytes(&hostile, 0).is_err());
        // as another recorder would write it
        let content = serde_json::json!({"schema": 1, "invocation": hostile}).to_string();
        let record = registry.root().join("invocations/x");
        fs::create_dir_all(&record).unwrap();
        let record = record.join(format!("{}-{}.json", hostile.key().to_short(), Digest::of(content.as_bytes())));
        fs::write(&record, content).unwrap();
        let opened = Registry::open(registry.root()).unwrap();
        assert_eq!((opened.invocations().len(), opened.problems()[0].kind), (0, ProblemKind::Content));
        fs::remove_file(record).unwrap();
    }
}

#[test]
fn recorded_arrays_come_back_checked() {
    let (_folder, mut registry) = fresh();
    let values: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut with_file = invocation(&registry, "k", 5, &[4], program_of);
    with_file.arguments[0].fill = registry.writer().put_array(&values).unwrap();
    registry.add(&with_file).unwrap();
    assert_eq!(registry.argument_bytes(&with_file, 0).unwrap(), values);
    assert_eq!(registry.verify().arrays, 1);
    with_file.arguments[0].spec = ArraySpec::new(DType::F32, [5]);
    assert!(matches!(registry.argument_bytes(&with_file, 0), Err(RegistryError::ArraySize { found: 16, .. })));
    let huge = ArraySpec::new(DType::F32, [1 << 40, 1 << 40]);
    with_file.arguments[0] = Argument::new("x", huge, Fill::Constant { value: 0.0 });
    assert!(registry.add(&with_file).unwrap_err().to_string().contains("larger than 16 GiB"));
}

#[test]
fn unknown_values_are_not_run() {
    let (_folder, mut registry) = fresh();
    let mut unknown = invocation(&registry, "k", 5, &[4], program_of);
    assert_eq!(unknown.runnable(), Ok(()));
    unknown.arguments[0].fill = Fill::ValuesUnknown;
    registry.add(&unknown).unwrap();
    assert_eq!(registry.invocations()[0].runnable(), Err(NotRunnable::ValuesUnknown(vec!["x".into()])));
    assert!(registry.list()[0].not_runnable.as_ref().unwrap().starts_with("values-unknown"));
    assert!(registry.argument_bytes(&unknown, 0).is_err());
    unknown.arguments[0].fill = Fill::Constant { value: 1.0 };
    unknown.candidates[0].program = None;
    unknown.candidates[0].not_lowered = Some("no triton here".into());
    assert!(unknown.runnable().unwrap_err().to_string().contains("no triton here"));
}

#[test]
fn why_a_call_cannot_be_tuned_is_in_its_record() {
    let (_folder, mut registry) = fresh();
    let mut without = invocation(&registry, "k", 5, &[4, 8], program_of);
    // all others are compared with the baseline
    without.candidates[0].program = None;
    without.candidates[0].not_lowered = Some("no triton here".into());
    registry.add(&without).unwrap();
    let cpu = |platform: &str| DeviceIdentity {
        platform: platform.into(),
        device_kind: "simulated".into(),
        hardware: BTreeMap::new(),
    };
    let why =
        |platform: &str, key: &str| registry.not_runnable(MatchMode::Exact, &cpu(platform), &without.call.op_id, key);
    assert_eq!(why("cpu", "k"), Some(NotRunnable::NoProgram("no triton here".into())));
    assert_eq!((why("cpu", "other"), why("cuda", "k")), (None, None));
}

#[test]
fn captured_values_are_their_owners_alone_to_read() {
    let (_folder, registry) = fresh();
    let fill = registry.writer().put_array(&[1, 2, 3, 4]).unwrap();
    let Fill::File { path, .. } = &fill else { panic!("{fill:?}") };
    let mode = fs::metadata(registry.root().join(path)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn records_that_do_not_hold_together_are_refused() {
    let (_folder, mut registry) = fresh();
    let good = invocation(&registry, "k", 5, &[4, 8], program_of);
    let mut refused = |change: fn(&mut Invocation), part: &str| {
        let mut bad = good.clone();
        change(&mut bad);
        let error = registry.add(&bad).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(|bad| bad.baseline = config(99), "baseline");
    refused(|bad| bad.candidates[1].config = config(4), "twice");
    refused(|bad| bad.call.op_id.clear(), "op_id");
    refused(|bad| bad.call.call_key.clear(), "call_key");
}

#[test]
fn records_of_one_call_are_merged_and_changes_told() {
    let (_folder, mut registry) = fresh();
    let renamed = |block| program_of(block).replace("@jit_f", "@jit_g");
    registry.add(&invocation(&registry, "k", 5, &[4, 8], program_of)).unwrap();
    // the same kernel from another checkout, with another candidate: other bytes, the same program
    let second = invocation(&registry, "k", 6, &[4, 16], renamed);
    registry.add(&second).unwrap();
    assert_eq!((registry.record_count(), registry.invocations().len()), (2, 1));
    let blocks = |registry: &Registry| -> Vec<String> {
        registry.invocations()[0].candidates.iter().map(|candidate| candidate.config.to_brief()).collect()
    };
    assert_eq!(blocks(&registry), ["block=4", "block=16", "block=8"]);
    assert_eq!(registry.invocations()[0].recorded_at, 6);
    assert_eq!(registry.invocations()[0].candidates[0].program, second.candidates[0].program);
    assert_eq!(registry.changes(), []);

    // a changed kernel: candidates of the older recordings alone were made from the old kernel
    registry.add(&invocation(&registry, "k", 7, &[4], |block| program_of(block + 1))).unwrap();
    assert_eq!(blocks(&registry), ["block=4"]);
    let told: Vec<_> = registry.changes().iter().map(|c| (c.configs.clone(), c.arguments, c.skipped)).collect();
    assert_eq!(told, [(vec![config(4)], false, 1), (vec![config(4)], false, 1)]);

    // another call under the same key, as keys can collide
    let mut collides = invocation(&registry, "k", 8, &[64], program_of);
    collides.arguments[0].spec = ArraySpec::new(DType::Bf16, [4]);
    registry.add(&collides).unwrap();
    assert_eq!(blocks(&registry), ["block=64"]);
    assert!(registry.changes().iter().all(|change| change.arguments));
    // the other direction is another call
    let mut backward = invocation(&registry, "k", 1, &[4], program_of);
    backward.direction = Direction::ForwardVjp;
    registry.add(&backward).unwrap();
    assert_eq!(registry.invocations().len(), 2);
}

#[test]
fn one_program_is_measured_once() {
    let (_folder, registry) = fresh();
    let mut call = invocation(&registry, "k", 5, &[1, 2, 3, 4], |block| program_of(block % 2));
    call.candidates[3].program = None;
    let groups = call.program_groups();
    assert_eq!(groups.iter().map(|group| group.candidates.clone()).collect::<Vec<_>>(), [vec![0, 2], vec![1], vec![3]]);
    assert_eq!(groups[2].program, None);
}

#[test]
fn two_checkouts_are_one_program() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/registry");
    let digest = |name: &str| {
        let bytes = fs::read(data.join(name)).unwrap();
        (Digest::of(&bytes), semantic_digest(ProgramFormat::StablehloText, &bytes).to_string())
    };
    let (one, two) = (digest("checkout_one.mlir"), digest("checkout_two.mlir"));
    assert_ne!(one.0, two.0);
    // the output of MLIR's own printer, see tests/data/registry/README.md
    let expected = "e13da78cd0f207743178c9e6bf9da8b488fceeaa9ca2d31dcff895f6721a8dd7";
    assert_eq!((one.1.as_str(), two.1.as_str()), (expected, expected));
}

#[test]
fn an_invocation_is_added_from_a_description() {
    let (folder, mut registry) = fresh();
    let write = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/registry");
    for name in ["checkout_one.mlir", "checkout_two.mlir"] {
        write(name, &fs::read(checkout.join(name)).unwrap());
    }
    write("values.bin", &[0; 48]);
    write("module.txt", b"HloModule jit_f\n");
    let description = r#"{
        "target": {"platform": "cpu"}, "op_id": "scan@v1", "call_key": "k",
        "arguments": [
            {"name": "x", "spec": "f32[3,4]", "array_file": "values.bin"},
            {"name": "w", "spec": "f32[4,4]", "fill": {"kind": "normal", "scale": 0.5}}
        ],
        "baseline": {"block": 1},
        "candidates": [
            {"config": {"block": 1}, "program_file": "checkout_one.mlir"},
            {"config": {"block": 2}, "program_file": "checkout_two.mlir"},
            {"config": {"block": 3}, "not_lowered": "no device"}
        ]
    }"#;
    let file = folder.path().join("description.json");
    fs::write(&file, description).unwrap();
    registry.add_described(&file).unwrap();
    let added = registry.invocations()[0].clone();
    assert_eq!((added.call.op_id.as_str(), added.direction), ("scan@v1", Direction::Forward));
    assert!(added.recorded_at > 1_700_000_000 && added.recorder.contains("registry add"));
    assert_eq!(added.program_groups().len(), 2, "the two checkouts are one program");
    assert_eq!(registry.argument_bytes(&added, 0).unwrap(), [0; 48]);
    assert!(registry.verify().is_good());

    for (from, to, part) in [
        ("\"call_key\": \"k\",", "", "missing field `call_key`"),
        ("\"platform\"", "\"planet\"", "unknown variant `planet`"),
        ("f32[3,4]", "f33[3,4]", "`f33` is not an element type"),
        ("checkout_one.mlir", "absent.mlir", "absent.mlir"),
        ("checkout_one.mlir", "module.txt", "this is HLO text"),
        ("checkout_one.mlir", "values.bin", "neither StableHLO"),
        ("\"block\": 1},\n        \"candidates\"", "\"block\": 9},\n        \"candidates\"", "the baseline"),
        ("\"array_file\": \"values.bin\"", "\"donated\": true", "one of `fill` and `array_file`"),
        ("\"baseline\"", "\"base\"", "unknown field `base`"),
    ] {
        assert!(description.contains(from), "{from}");
        fs::write(&file, description.replacen(from, to, 1)).unwrap();
        let error = registry.add_described(&file).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
    assert_eq!(registry.record_count(), 1);
}

/// Not a test of its own: one of the processes of the test below.
#[test]
fn recorder_process() {
    let Some(root) = std::env::var_os("REGISTRY_TEST_ROOT") else { return };
    let mine: u32 = std::env::var("REGISTRY_TEST_RECORDER").unwrap().parse().unwrap();
    let mut registry = Registry::create_or_open(root).unwrap();
    for call in 0..20 {
        // both record every call, each with one common candidate and one different candidate
        let recorded = invocation(&registry, &format!("call{call}"), 5, &[4, 100 + mine], program_of);
        registry.add(&recorded).unwrap();
    }
}

#[test]
fn two_recorders_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("registry");
    let recorders: Vec<_> = (0..2)
        .map(|number| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "registry_folder::recorder_process", "--nocapture"])
                .env("REGISTRY_TEST_ROOT", &root)
                .env("REGISTRY_TEST_RECORDER", number.to_string())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut recorder in recorders {
        assert!(recorder.wait().unwrap().success());
    }
    let registry = Registry::open(&root).unwrap();
    assert_eq!((registry.invocations().len(), registry.record_count()), (20, 40));
    assert!(registry.verify().is_good() && registry.changes().is_empty());
    for call in registry.invocations() {
        let mut blocks: Vec<_> = call.candidates.iter().map(|candidate| candidate.config.to_brief()).collect();
        blocks.sort();
        assert_eq!(blocks, ["block=100", "block=101", "block=4"], "{}", call.call);
    }
}

#[test]
fn the_axes_of_a_mapped_call_are_those_of_its_key_and_arguments() {
    let (folder, mut registry) = fresh();
    let axis = |size, place| BatchAxis { axes: BTreeMap::from([("x".to_owned(), place)]), size };
    let plain = invocation(&registry, "k", 1, &[1, 2], program_of);
    let mapped = |batch: Vec<BatchAxis>, dims: &[u64]| {
        let mut mapped = plain.clone();
        mapped.call.call_key = format!("k~{}", variant_of(&batch).unwrap());
        mapped.arguments[0].spec = ArraySpec::new(DType::F32, dims);
        mapped.batch = batch;
        mapped
    };
    // the outer `vmap` of 3 maps the last axis that the inner one, of 2, leaves
    let good = mapped(vec![axis(3, 2), axis(2, 0)], &[2, 4, 3]);
    let path = registry.add(&good).unwrap();
    registry.add(&plain).unwrap();
    let read = Registry::open(folder.path().join("new/registry")).unwrap();
    assert_eq!(read.problems(), []);
    // two calls, not two recordings of one
    assert_eq!(read.invocations().len(), 2);
    assert!(read.invocations().iter().any(|invocation| **invocation == good));
    let record: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let axes = serde_json::json!([{"axes": {"x": 2}, "size": 3}, {"axes": {"x": 0}, "size": 2}]);
    assert_eq!(record["invocation"]["batch"], axes);
    // on a mesh, with such a part for each of seven devices
    registry.add(&mapped(good.batch.clone(), &[7, 2, 4, 3])).unwrap();
    let mut unnamed = good.clone();
    unnamed.call.call_key = "k".into();
    let deep = mapped((0..17).map(|_| axis(1, 0)).collect(), &[1; 17]);
    for (bad, expected) in [
        (unnamed, "which `k` does not name"),
        (mapped(vec![axis(3, 0), axis(2, 0)], &[2, 4, 3]), "has no axis of 3 at 0"),
        (mapped(vec![axis(3, 3)], &[2, 4, 3]), "has no axis of 3 at 3"),
        (deep, "17 axes are more than the 16"),
    ] {
        let error = registry.add(&bad).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
