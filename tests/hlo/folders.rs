//! Dump folders: which files are read, and what is said of the others.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use autotune_lowered::hlo::{FoundLabel, ModuleForm, Scan, ScanErrorKind, ScanOptions, scan_path};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hlo").join(name)
}

fn scan(folder: &Path) -> Scan {
    scan_path(folder, &ScanOptions::default()).unwrap()
}

fn find<'a>(scan: &'a Scan, op_id: &str) -> &'a FoundLabel {
    let label = scan.labels.iter().find(|label| label.label.op_id == op_id);
    label.unwrap_or_else(|| panic!("{op_id} in {:?}", scan.labels))
}

/// HLO text with one call of an operation.
fn module(op_id: &str) -> String {
    format!(
        "HloModule jit_f\n\nENTRY %main (a: f32[4]) -> f32[4] {{\n  %a = f32[4]{{0}} parameter(0)\n  ROOT %n = f32[4]{{0}} \
         negate(%a), metadata={{op_name=\"jit(f)/ejkernel_ops#{op_id}:00aa11bb22cc33dd/neg\"}}\n}}\n"
    )
}

/// The operations that a folder of such files shows, each with how often.
fn shown(files: &[(&str, &str)]) -> Vec<(String, u64)> {
    let folder = tempfile::tempdir().unwrap();
    for (name, op_id) in files {
        std::fs::write(folder.path().join(name), module(op_id)).unwrap();
    }
    scan(folder.path()).labels.iter().map(|label| (label.label.op_id.clone(), label.forward_calls)).collect()
}

#[test]
fn of_a_dump_the_earliest_stage_of_each_module_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let put = |from: &str, to: &str| std::fs::copy(data(from), folder.path().join(to)).unwrap();
    put("grouped_matmul.hash.pre.hlo.txt", "module_0001.jit_g.before_optimizations.txt");
    put("grouped_matmul.hash.pre.hlo.pb", "module_0001.jit_g.before_optimizations.hlo.pb");
    put("grouped_matmul.hash.post.hlo.txt", "module_0001.jit_g.cpu_after_optimizations.txt");
    put("flash_attention.hash.pre.hlo.txt", "module_0002.jit_f.before_optimizations.txt");
    put("flash_attention.hash.stablehlo_debug.mlir", "jax_ir0000_jit_f_compile.mlir");
    std::fs::write(folder.path().join("module_0001.jit_g.debug_options"), "x: 1").unwrap();
    let scan = scan_path(folder.path(), &ScanOptions::default()).unwrap();
    assert_eq!(scan.form, ModuleForm::DumpFolder);
    // 14 by a text search of one file, 2 of the other
    assert_eq!(find(&scan, "grouped_matmul").occurrences, 14);
    assert_eq!(find(&scan, "flash_attention@v2").occurrences, 2);
    assert_eq!(scan.labels.len(), 2);
    assert!(scan.diagnosis[0].message.contains("read 2 of 6 files"), "{}", scan.diagnosis[0].message);

    // properties common to several modules are one line
    let folder = tempfile::tempdir().unwrap();
    for number in 10..24 {
        std::fs::copy(data("grouped_matmul.hash.stablehlo.mlir"), folder.path().join(format!("f{number}.mlir")))
            .unwrap();
        std::fs::write(folder.path().join(format!("cut{number}.pb.gz")), b"\x1f\x8b\x08\0garbage").unwrap();
    }
    let scan = scan_path(folder.path(), &ScanOptions::default()).unwrap();
    let said: Vec<&str> = scan.diagnosis.iter().map(|one| one.code.as_str()).collect();
    assert_eq!(said, ["dump-folder", "module-unreadable", "no-metadata"]);
    let [read, unreadable, without] = &scan.diagnosis[..] else { panic!("{said:?}") };
    assert!(read.message.contains("read 14 of 28 files"), "{}", read.message);
    assert!(
        unreadable.message.starts_with("14 modules cannot be read: `cut10.pb.gz`: its gzip"),
        "{}",
        unreadable.message
    );
    assert!(unreadable.message.ends_with(" and 2 more") && without.message.contains("`f21.mlir` and 2 more"));
    assert!(without.message.starts_with("of 14 of 14 modules (`f10.mlir`, "), "{}", without.message);

    let empty = tempfile::tempdir().unwrap();
    std::fs::write(empty.path().join("notes.txt"), "nothing").unwrap();
    let error = scan_path(empty.path(), &ScanOptions::default()).unwrap_err();
    assert!(matches!(error.kind, ScanErrorKind::NoModuleInFolder { files: 1, .. }), "{error}");
}

/// A link to an endless device and one to nothing: neither is opened, and both are named.
#[test]
fn what_is_named_like_a_module_and_is_no_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str| folder.path().join(name);
    std::fs::copy(data("grouped_matmul.hash.pre.hlo.txt"), put("module_0001.jit_f.before_optimizations.txt")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", put("module_0002.jit_g.before_optimizations.txt")).unwrap();
    std::os::unix::fs::symlink("/nowhere", put("module_0003.jit_h.cpu_after_optimizations.txt")).unwrap();
    std::os::unix::fs::symlink("/nowhere", put("notes.txt")).unwrap();
    let scan = scan(folder.path());
    let [read, unreadable, ..] = &scan.diagnosis[..] else { panic!("{:?}", scan.diagnosis) };
    assert!(read.message.starts_with("read 1 of 3 files"), "{}", read.message);
    let named = "2 modules cannot be read: `module_0002.jit_g.before_optimizations.txt`: is not a file, \
                 `module_0003.jit_h.cpu_after_optimizations.txt`: is not a file";
    assert_eq!(unreadable.message, named);
}

#[test]
fn numbers_separate_modules_of_one_name() {
    let found = scan(&data("dumps/one_name"));
    let names: Vec<&str> = found.labels.iter().map(|label| label.label.op_id.as_str()).collect();
    assert_eq!(names, ["gate_mix@v3", "pair_sum@v1"]);
    assert_eq!(find(&found, "gate_mix@v3").occurrences, 1);
    let once = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1)).collect::<Vec<_>>();
    for (files, names) in [
        // each with the time of its first dump
        (
            &[
                ("1763719200000001.module_0001.jit_f.before_optimizations.txt", "a@v1"),
                ("1763719200000001.module_0001.jit_f.cpu_after_optimizations.txt", "a@v1"),
                ("1763719200000009.module_0007.jit_f.cpu_after_optimizations.txt", "b@v1"),
                ("1763719300000000.module_0001.jit_f.sm_90.gpu_after_optimizations.txt", "c@v1"),
            ][..],
            &["a@v1", "b@v1", "c@v1"][..],
        ),
        // a name that is too long for a file is left out
        (
            &[("module_0001.before_optimizations.txt", "a@v1"), ("module_0002.gpu_after_optimizations.txt", "b@v1")],
            &["a@v1", "b@v1"],
        ),
        (&[("model.fwd.hlo.txt", "a@v1"), ("model.bwd.hlo.txt", "b@v1")], &["a@v1", "b@v1"]),
        (&[("f.before_optimizations.txt", "a@v1"), ("f.cpu_after_optimizations.txt", "a@v1")], &["a@v1"]),
        (
            &[("module_0001.jit_f.0002.fusion.after_x.before_y.txt", "a@v1"), ("module_0001.jit_g.txt", "b@v1")],
            &["a@v1", "b@v1"],
        ),
    ] {
        assert_eq!(shown(files), once(names), "{files:?}");
    }
}

#[test]
fn a_snapshot_is_of_the_module_whose_number_it_has() {
    // field 1 of a message of this length
    let within = |bytes: Vec<u8>| {
        let (mut head, mut left) = (vec![0x0a], bytes.len());
        while left > 0x7f {
            head.push((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        head.push(left as u8);
        [head, bytes].concat()
    };
    let folder = tempfile::tempdir().unwrap();
    let snapshot = within(within(std::fs::read(data("grouped_matmul.hash.pre.hlo.pb")).unwrap()));
    let name = "1763719200000000.module_0001.jit_g.execution_0000.hlo_snapshot.pb";
    std::fs::write(folder.path().join(name), snapshot).unwrap();
    let read = || find(&scan(folder.path()), "grouped_matmul").occurrences;
    assert_eq!(read(), 14);
    std::fs::copy(
        data("grouped_matmul.hash.pre.hlo.txt"),
        folder.path().join("module_0001.jit_g.before_optimizations.txt"),
    )
    .unwrap();
    assert_eq!(read(), 14);
    // it is another module's if XLA wrote the time before other names too
    let name = "1763719200000009.module_0001.jit_g.before_optimizations.txt";
    std::fs::copy(data("grouped_matmul.hash.pre.hlo.txt"), folder.path().join(name)).unwrap();
    assert_eq!(read(), 28);
}

#[test]
fn what_jax_wrote_replaces_the_numbers_only_if_it_wrote_as_many() {
    let folder = tempfile::tempdir().unwrap();
    let put = |from: &str, to: &str| std::fs::copy(data(from), folder.path().join(to)).unwrap();
    put("flash_attention.hash.stablehlo_debug.mlir", "jax_ir0000_jit_f_compile.mlir");
    std::fs::write(folder.path().join("module_0001.jit_f.before_optimizations.txt"), module("a@v1")).unwrap();
    assert_eq!(scan(folder.path()).labels.len(), 1);
    std::fs::write(folder.path().join("module_0007.jit_f.cpu_after_optimizations.txt"), module("b@v1")).unwrap();
    let names: Vec<String> = scan(folder.path()).labels.iter().map(|label| label.label.op_id.clone()).collect();
    assert_eq!(names, ["a@v1", "b@v1", "flash_attention@v2"]);
    // what XLA's Triton emitter dumps beside its module is no StableHLO
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("module_0001.jit_f.before_optimizations.txt"), module("a@v1")).unwrap();
    let kernel = "module {\n  tt.func @f(%arg0: !tt.ptr<f32>) {\n    tt.return\n  }\n}\n";
    std::fs::write(folder.path().join("module_0001.jit_f.triton_fusion.before_validation.ttir.txt"), kernel).unwrap();
    assert_eq!(scan(folder.path()).labels.len(), 1);
}

#[test]
fn sub_folders_are_named_and_not_read() {
    let deep = data("dumps/deep");
    let error = scan_path(&deep, &ScanOptions::default()).unwrap_err().to_string();
    assert!(error.contains("1 sub-folder holds modules: `host_0`; give one of them"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("plugins/profile/run/host.xplane.pb", "");
    let error = scan_path(folder.path(), &ScanOptions::default()).unwrap_err().to_string();
    assert!(error.contains("it holds profiles, in `plugins/profile/run`; "), "{error}");
    put("module_0001.jit_f.before_optimizations.txt", &module("a@v1"));
    for host in 0..14 {
        put(&format!("step/host_{host:02}/module_0001.jit_f.before_optimizations.txt"), &module("b@v1"));
    }
    let found = scan(folder.path());
    assert_eq!(found.labels.len(), 1);
    let said = found.diagnosis.iter().find(|said| said.code == "sub-folders").unwrap();
    assert!(said.message.starts_with("14 sub-folders hold modules: `step/host_00`, "), "{}", said.message);
    assert!(said.message.ends_with("`step/host_11` and 2 more, which are not read; scan each"), "{}", said.message);
}

#[test]
fn a_file_named_like_a_module_is_not_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("module_0001.jit_f.before_optimizations.txt"), module("a@v1")).unwrap();
    std::fs::copy(data("utf16.hlo"), folder.path().join("module_0002.jit_f.before_optimizations.txt")).unwrap();
    std::fs::write(folder.path().join("module_0002.jit_f.cpu_after_optimizations-buffer-assignment.txt"), "").unwrap();
    let found = scan(folder.path());
    let said = found.diagnosis.iter().find(|said| said.code == "module-unreadable").unwrap();
    assert!(said.message.starts_with("1 module cannot be read: `module_0002.jit_f.before_optimizations.txt`: "));
    assert!(said.message.contains("UTF-16"), "{}", said.message);
}
