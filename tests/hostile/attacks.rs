//! One attack of each kind: what a repository, a server, a worker or another user may put before the program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use autotune_lowered::digest::Digest;
use autotune_lowered::settings::SETTINGS;
use base64::Engine;
use serde_json::{Value, json};

use crate::cell::Cell;
use crate::support::prerequisite::python3;
use crate::support::program::{SMALL_CALL, copy_folder, write_replay};

const SOURCE: &str = env!("CARGO_MANIFEST_DIR");
const MODULE: &str = "module.mlir";

/// A cell whose repository has a small module beside its registry, and the samples of a worker.
fn repository() -> Option<Cell> {
    let cell = Cell::new()?;
    copy_folder(&Path::new(SOURCE).join("tests/data/small"), &cell.path("repo"));
    write_replay(&cell.path("repo/registry"), &cell.path("repo/times.json"));
    Some(cell)
}

/// The worker that the user named, which answers with the repository's samples.
fn worker(cell: &mut Cell, script: &str, arguments: &str) -> String {
    cell.may_start.push(python3().into());
    cell.may_start.push("/usr/bin/sh".into());
    format!("command:exec {} {SOURCE}/tests/data/timer/{script} {arguments}", python3())
}

#[test]
fn a_found_configuration() {
    let Some(mut cell) = repository() else { return };
    let timer = worker(&mut cell, "recorded_worker.py", "times.json");
    let keys = SETTINGS.iter().map(|setting| setting.key);
    let run = cell.text("victim/run");
    let values = [run.clone(), format!("command:{run}"), "1://../victim".to_owned(), "../victim".to_owned()];
    for key in keys {
        for value in &values {
            cell.plant("autotune.toml", format!("{key} = {}\n", json!(value)));
            cell.run(&[MODULE, "--timer", &timer, "--dry-run"]);
        }
    }
    // the file itself, and a folder on the way, may be somebody else's
    fs::remove_file(cell.path("repo/autotune.toml")).unwrap();
    symlink("../victim/secret.bin", cell.path("repo/autotune.toml")).unwrap();
    cell.run(&[MODULE, "--timer", &timer, "--dry-run"]);
}

#[test]
fn options_that_a_file_sets() {
    let Some(mut cell) = repository() else { return };
    // which is asked, apart from the repository, where its packages are
    cell.may_run.push("/usr/bin/python3".into());
    let secret = cell.text("victim/secret.bin");
    let module = fs::read(cell.path("repo/module.mlir")).unwrap();
    // a bare `CompileOptionsProto` with one override: field 7 is a map of names to values of one string
    let options = |name: &str| {
        let field =
            |number: u8, bytes: &[u8]| [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()][..], bytes].concat();
        let value = field(1, format!("-o,{secret}").as_bytes());
        field(7, &[field(1, name.as_bytes()), field(2, &value)].concat())
    };
    for name in ["xla_gpu_ptx_compiler_extra_flags", "xla_dump_to", "xla_gpu_cuda_data_dir", "xla_of_next_year_to"] {
        let options = base64::engine::general_purpose::STANDARD.encode(options(name));
        let side = json!({"schema": 1, "module_digest": Digest::of(&module), "labels": [], "compile_options": options});
        cell.plant("module.mlir.labels.json", side.to_string());
        let run = cell.run(&[MODULE, "--compiler-options", "safe", "--plugin", "none.so"]);
        let is_skipped = ["xla_dump_to", "xla_gpu_cuda_data_dir"].contains(&name);
        assert_eq!(run.code, if is_skipped { 5 } else { 4 }, "{name}: {}", run.stderr);
        assert!(is_skipped || run.stderr.contains("--base-options"), "{name}: {}", run.stderr);
        cell.run(&["measure", MODULE]);
        let place = ["--target", "cuda:h100_sxm", "-o", "../home/compiled"];
        cell.run(&[&["compile", MODULE][..], &place].concat());
    }
}

/// Names that would be paths, flags or commands if anything took them for such.
fn names(cell: &Cell) -> Vec<String> {
    let mut names = cell.names_of("secret.bin", 0);
    names.extend(cell.names_of("deep/new", 1));
    names.extend(["--config=../victim/secret.bin".to_owned(), format!("$({})", cell.text("victim/run"))]);
    names.push(format!("|{}", cell.text("victim/run")));
    names
}

#[test]
fn entries_of_others() {
    let Some(mut cell) = repository() else { return };
    let names = names(&cell);
    let mut lines = Vec::new();
    for name in &names {
        let config = json!({"path": name, "command": name, "$ref": name, "timer": format!("command:{name}")});
        for (op_id, call_key, device) in
            [(name.as_str(), "k", "cpu:cpu"), ("op@v1", name, "cpu:cpu"), ("op@v1", "k", name)]
        {
            lines.push(json!({"device": device, "op_id": op_id, "call_key": call_key, "config": config}));
        }
        let op_id = format!("{name}@v1");
        lines.push(json!({"device": "cpu:cpu", "op_id": op_id, "call_key": "k", "config": {"xla_dump_to": name}}));
    }
    // a line that cannot be read would hide the others
    let mut taken = 0;
    for (number, line) in lines.iter().enumerate() {
        cell.plant("entries.jsonl", format!("{line}\n"));
        let import = cell.run(&["cache", "import", "--format", "jsonl", "entries.jsonl"]);
        taken += usize::from(import.code == 0);
        let file = format!("../home/{number}.snapshot");
        cell.run(&["cache", "merge", "entries.jsonl", "-o", &file]);
        cell.run(&["cache", "verify", &file]);
    }
    assert!(taken * 2 > lines.len(), "{taken} of {} entries were imported", lines.len());
    for name in &names {
        cell.run(&["cache", "rm", "--", name, "k"]);
    }
    cell.may_write.push(cell.path("out"));
    let shared = format!("file://{}", cell.text("out/shared"));
    for words in [
        &["cache", "ls"][..],
        &["cache", "ls", "--format", "json"],
        &["cache", "shipped", "../out/shipped"],
        &["cache", "snapshot", "../out/snapshot"],
        &["cache", "ls", "--all", "--shipped", "../out/shipped"],
        &["cache", "export", "--format", "ejkernel", "../out/ejkernel"],
        &["cache", "export", "--format", "tokamax", "../out/tokamax"],
        &["cache", "export", "--format", "json", "../out/all.json"],
        &["cache", "export", "--format", "xla-flags"],
        &["cache", "verify"],
        &["cache", "rebuild"],
        &["cache", "push", &shared],
    ] {
        cell.run(words);
    }
}

#[test]
fn a_registry() {
    let Some(mut cell) = repository() else { return };
    let timer = worker(&mut cell, "recorded_worker.py", "times.json");
    let folder = cell.path("repo/registry/invocations/split_matmul_v1");
    let records: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|record| record.unwrap().path()).collect();
    let sound: Value = serde_json::from_slice(&fs::read(&records[0]).unwrap()).unwrap();
    let mut swaps = Vec::new();
    for name in names(&cell) {
        for pointer in ["/invocation/candidates/0/program/digest", "/invocation/op_id", "/invocation/call_key"] {
            swaps.push((pointer, json!(name)));
        }
        // it is exactly the file that the record describes
        let fill = json!({"kind": "file", "path": name, "digest": Digest::of(&[7; 16])});
        swaps.push(("/invocation/arguments/0", json!({"name": "x", "spec": "u8[16]", "fill": fill})));
        swaps.push(("/invocation/target", json!({"platform": name, "plugin": name})));
        swaps.push(("/invocation/recipe", json!({"python": name, "module": name, "file": name})));
    }
    for (pointer, value) in swaps {
        let mut record = sound.clone();
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        match (record.pointer_mut(parent).unwrap(), member.parse::<usize>()) {
            (Value::Array(list), Ok(at)) => list[at] = value,
            (within, _) => within[member] = value,
        }
        let bytes = serde_json::to_vec_pretty(&record).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        // as the recorder names it
        let name = records[0].file_name().unwrap().to_str().unwrap();
        let key = name.split('-').next().unwrap();
        cell.plant(&format!("registry/invocations/split_matmul_v1/{key}-{}.json", Digest::of(&bytes)), &bytes);
        cell.run(&["registry", "verify", "registry"]);
        cell.run(&[MODULE, "--timer", &timer, "--dry-run"]);
    }
    // links where files are expected
    cell.may_read.push(cell.path("victim"));
    fs::remove_dir_all(cell.path("repo/registry/programs")).unwrap();
    symlink("../../victim", cell.path("repo/registry/programs")).unwrap();
    cell.run(&["registry", "verify", "registry"]);
    cell.run(&["registry", "ls", "registry"]);
    cell.run(&[MODULE, "--timer", &timer]);
    fs::remove_file(cell.path("repo/registry/registry.json")).unwrap();
    symlink("../../victim/secret.bin", cell.path("repo/registry/registry.json")).unwrap();
    cell.run(&["registry", "ls", "registry"]);
}

#[test]
fn a_module() {
    let Some(mut cell) = repository() else { return };
    let timer = worker(&mut cell, "recorded_worker.py", "times.json");
    cell.may_write.push(cell.path("out"));
    let secret = cell.text("victim/secret.bin");
    let text = fs::read_to_string(cell.path("repo/module.mlir")).unwrap();
    // sources that a report might want to show
    let located = text.replace("loc(", &format!("loc(\"{secret}\":1:1 to :2) loc("));
    cell.plant("located.mlir", located);
    cell.plant("located.mlir.labels.json", fs::read(cell.path("repo/module.mlir.labels.json")).unwrap());
    let hlo = format!(
        "HloModule m, entry_computation_layout={{(f32[4]{{0}})->f32[4]{{0}}}}\n\nENTRY main {{\n  p = f32[4]{{0}} parameter(0)\n  \
         ROOT n = f32[4]{{0}} negate(p), metadata={{op_name=\"jit(f)/autotune[split_matmul@v1:75674f6951a28614]/neg\" \
         source_file=\"{secret}\" source_line=1}}\n}}\n"
    );
    cell.plant("module.hlo.txt", hlo);
    for module in ["located.mlir", "module.hlo.txt", MODULE] {
        cell.run(&["scan", module]);
        cell.run(&[module, "--timer", &timer, "--report", "../out/page.html", "--registry", "registry"]);
    }
}

#[test]
fn a_folder_of_variants() {
    let Some(mut cell) = repository() else { return };
    let timer = worker(&mut cell, "recorded_worker.py", "times.json");
    symlink("../victim", cell.path("repo/linked")).unwrap();
    let linked = "../linked/secret.bin".to_owned();
    for name in names(&cell).into_iter().chain(cell.names_of("secret.bin", 1)).chain([linked]) {
        let call = json!({"op_id": "op@v1", "call_key": "k", "direction": "forward", "baseline": {"n": 1},
                          "tuned": {"path": name}});
        // it is exactly the program that the manifest describes
        let variant = |tuned: &[u32]| json!({"tuned": tuned, "sha256": Digest::of(&[7; 16]), "file": name});
        let manifest = json!({"format": "autotune-lowered-prove-v1", "digest": "0".repeat(64), "calls": [call],
                              "variants": [variant(&[]), variant(&[0])]});
        let unsigned = manifest.to_string();
        let digest = Digest::of(unsigned.as_bytes()).to_string();
        cell.plant("variants/prove.json", unsigned.replacen(&"0".repeat(64), &digest, 1));
        assert_eq!(cell.run(&["prove", "variants", "--timer", &timer]).code, 4, "{name}");
    }
}

#[test]
fn profiles() {
    let Some(cell) = repository() else { return };
    let mut device = json!({"identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {}}});
    device["environment"] = json!({});
    for name in cell.names_of("secret.bin", 1) {
        let call = SMALL_CALL.split_once(':').unwrap();
        let invocations = json!([{"op_id": call.0, "call_key": call.1, "direction": "forward-vjp",
                                  "functions": {"0": {"slices": 1}, "1": {"slices": 2}}, "profiles": [name]}]);
        let index = json!({"schema": 1, "device": device, "invocations": invocations});
        cell.plant("replay/profiles.json", index.to_string());
        cell.run(&[MODULE, "--timer", "replay:replay"]);
    }
    // an archive that would unpack outside its folder, and one whose member is a link
    let make = "import sys, zipfile\n\
        with zipfile.ZipFile(sys.argv[1], 'w') as archive:\n\
        \x20   for name in sys.argv[2:]:\n\
        \x20       archive.writestr(name, b'x')\n\
        \x20   link = zipfile.ZipInfo('report.parquet'); link.external_attr = 0o120777 << 16\n\
        \x20   archive.writestr(link, '../victim/secret.bin')\n";
    let members = [cell.names_of("deep/new", 0), vec!["../victim/new.parquet".to_owned()]].concat();
    let mut python = Command::new(python3());
    python.args(["-c", make]).arg(cell.path("repo/capture.zip")).args(members);
    assert!(python.status().unwrap().success());
    cell.plant("logs/plugins/profile/2026_01_01_00_00_00/host.xplane.pb", b"");
    symlink("/dev/zero", cell.path("repo/logs/plugins/profile/2026_01_01_00_00_00/other.xplane.pb")).unwrap();
    for words in [
        ["profile", "list", "capture.zip"],
        ["profile", "summary", "capture.zip"],
        ["profile", "list", "logs"],
        ["profile", "summary", "logs"],
    ] {
        cell.run(&words);
    }
}

#[test]
fn a_worker_that_lies() {
    let Some(mut cell) = repository() else { return };
    let victim = cell.text("victim");
    for trick in ["outside", "relative", "dots", "link", "link-folder", "swapped", "device", "link-zero", "fifo"] {
        for kind in ["outputs", "profile"] {
            let timer = worker(&mut cell, "hostile_worker.py", &format!("{kind} {trick} {victim}"));
            let words = [MODULE, "--timer", &timer, "--only", SMALL_CALL];
            cell.run(&words);
            if kind == "profile" {
                cell.run(&["measure", MODULE, "--timer", &timer, "--timeout", "2"]);
            }
        }
    }
    assert_eq!(fs::read(cell.path("victim/secret.bin")).unwrap(), [7; 16]);
}

#[test]
fn a_shared_cache() {
    let Some(mut cell) = repository() else { return };
    cell.may_write.push(cell.path("repo/shared"));
    let url = format!("file://{}", cell.text("repo/shared"));
    cell.plant("entry.jsonl", "{\"device\":\"cpu:cpu\",\"op_id\":\"op@v1\",\"call_key\":\"k\",\"config\":{\"n\":1}}\n");
    cell.run(&["cache", "import", "--format", "jsonl", "entry.jsonl"]);
    let snapshot = cell.text("home/own.snapshot");
    assert_eq!(cell.run(&["cache", "snapshot", &snapshot]).code, 0);
    let digest = Digest::of(&fs::read(&snapshot).unwrap()).to_string();
    for name in [cell.names_of("secret.bin", 1), cell.names_of("secret.bin", 2)].concat() {
        for member in ["digest", "tool", "snapshot", "url"] {
            let mut manifest = json!({"schema": 1, "generation": 1, "entries": 1, "size": 16, "digest": digest,
                                      "tool": "t", "published_at": 1});
            manifest[member] = json!(name);
            cell.plant("shared/manifest-v1.json", manifest.to_string());
            cell.run(&["cache", "pull", &url, "../home/pulled.snapshot"]);
            cell.run(&["cache", "ls", "--cache", &url]);
        }
    }
    // the user lets it be written, and it leads elsewhere
    for (link, target) in [("manifest-v1.json", "../../victim/secret.bin"), ("snapshots", "../../victim")] {
        fs::remove_dir_all(cell.path("repo/shared")).unwrap();
        fs::create_dir(cell.path("repo/shared")).unwrap();
        symlink(target, cell.path("repo/shared").join(link)).unwrap();
        cell.run(&["cache", "pull", &url, "../home/pulled.snapshot"]);
        cell.run(&["cache", "push", &url, &snapshot]);
    }
}

/// A cache folder from elsewhere, which the user names: what it holds beside decisions is neither run nor followed.
#[test]
fn a_cache_folder() {
    let Some(mut cell) = repository() else { return };
    let timer = worker(&mut cell, "recorded_worker.py", "times.json");
    assert_eq!(cell.run(&[MODULE, "--timer", &timer, "--cache", "../home/cache"]).code, 0);
    let own = cell.path("home/cache");
    let files: BTreeMap<PathBuf, Vec<u8>> = fs::read_dir(&own)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    assert!(files.len() >= 2, "{files:?}");
    cell.may_read.push(cell.path("victim"));
    for (path, bytes) in files {
        fs::remove_file(&path).unwrap();
        symlink("../../victim/secret.bin", &path).unwrap();
        for words in [
            &["cache", "ls"][..],
            &["cache", "verify"],
            &["cache", "get", "op@v1", "k", "--timer", "replay:times.json"],
        ] {
            cell.run(&[words, &["--cache", "../home/cache"]].concat());
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    fs::create_dir_all(own.join("executables-v1")).unwrap();
    symlink("../../../victim/secret.bin", own.join("executables-v1/x")).unwrap();
    cell.run(&[MODULE, "--timer", &timer, "--cache", "../home/cache", "--force"]);
    assert_eq!(fs::read(cell.path("victim/secret.bin")).unwrap(), [7; 16]);
}
