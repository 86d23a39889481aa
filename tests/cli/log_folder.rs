//! `profile list` and `profile extract` over a log folder.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::program::{Run, run};
use serde_json::Value;

const TRIVIAL: &str = "tests/data/xplane/trivial.xplane.pb";
const MULTI8: &str = "tests/data/xplane/multi8_shardmap.xplane.pb.gz";

/// Two runs: an older one of one host, and a newer one of two hosts.
fn log_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (source, target) in [
        (MULTI8, "train/plugins/profile/2025_01_02/only.xplane.pb.gz"),
        (TRIVIAL, "plugins/profile/2025_01_03/a.xplane.pb"),
        (MULTI8, "plugins/profile/2025_01_03/b.xplane.pb.gz"),
    ] {
        let target = folder.path().join(target);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(root.join(source), &target).unwrap();
        let days = if target.ends_with("only.xplane.pb.gz") { 20_089 } else { 20_090 };
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400);
        fs::File::options().write(true).open(target).unwrap().set_modified(time).unwrap();
    }
    folder
}

fn profile(folder: &tempfile::TempDir, arguments: &[&str]) -> Run {
    run(folder.path(), &[&["profile", arguments[0], folder.path().to_str().unwrap()], &arguments[1..]].concat())
}

fn expanded(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::bufread::GzDecoder::new(&fs::read(path).unwrap()[..]).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn runs_are_listed_with_their_hosts() {
    let folder = log_folder();
    let document = profile(&folder, &["list", "--format", "json"]).json();
    let runs: Vec<(String, Vec<(String, u64)>)> = document["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| {
            let of = |one: &Value| (one["host"].as_str().unwrap().to_owned(), one["bytes"].as_u64().unwrap());
            (run["run"].as_str().unwrap().to_owned(), run["captures"].as_array().unwrap().iter().map(of).collect())
        })
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let [trivial, multi8] = [TRIVIAL, MULTI8].map(|name| fs::metadata(root.join(name)).unwrap().len());
    let expected = [
        ("train/2025_01_02".to_owned(), vec![("only".to_owned(), multi8)]),
        ("2025_01_03".to_owned(), vec![("a".to_owned(), trivial), ("b".to_owned(), multi8)]),
    ];
    assert_eq!(runs, expected);
    let first = &document["runs"][0]["captures"][0];
    assert!(first["path"].as_str().unwrap().ends_with("only.xplane.pb.gz"));
    assert_eq!(first["written_at"].as_u64(), Some(20_089 * 86_400));

    let table = profile(&folder, &["list"]);
    let rows: Vec<Vec<&str>> = table.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["run", "host", "bytes", "file"]);
    assert_eq!((rows.len(), rows[3][0], rows[3][1]), (4, "2025_01_03", "b"));

    let empty = tempfile::tempdir().unwrap();
    let none = profile(&empty, &["list"]);
    assert_eq!(none.code, 4);
    assert!(none.fault().contains("holds no capture"), "{}", none.stderr);
}

#[test]
fn a_run_is_taken_out_as_a_capture_or_as_a_trace() {
    let folder = log_folder();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = tempfile::tempdir().unwrap();
    let extract = |name: &str, more: &[&str]| {
        let out = target.path().join(name);
        (profile(&folder, &[&["extract", "-o", out.to_str().unwrap()], more].concat()), out)
    };
    let (run, out) = extract("plain.xplane.pb", &["--run", "train/2025_01_02"]);
    assert_eq!((run.code, run.stdout.trim_end()), (0, out.to_str().unwrap()), "{}", run.stderr);
    assert_eq!(fs::read(&out).unwrap(), expanded(&root.join(MULTI8)));
    let (run, out) = extract("small.xplane.pb.gz", &["--host", "a"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(expanded(&out), fs::read(root.join(TRIVIAL)).unwrap());

    // the newest run, both hosts
    let (run, out) = extract("both.json", &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let trace: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let processes: Vec<_> =
        events.iter().filter(|one| one["name"] == "process_name").map(|one| &one["args"]["name"]).collect();
    assert_eq!(processes, ["a: /host:CPU", "b: /host:CPU"]);
    let oracle: Value =
        serde_json::from_str(&fs::read_to_string(root.join("tests/data/trace/oracle.json")).unwrap()).unwrap();
    let slices = |name: &str| {
        oracle[name].as_object().unwrap().values().map(|line| line["slices"].as_u64().unwrap()).sum::<u64>()
    };
    let found = events.iter().filter(|one| one["ph"] == "X").count() as u64;
    assert_eq!(found, slices("trivial") + slices("multi8_shardmap"));

    for (name, more, code, message) in [
        ("x.xplane.pb", &[][..], 2, "choose one with --host, or write a trace of all (`a`, `b`)"),
        ("x.txt", &[], 2, "the name does not say what to write"),
        ("x.json", &["--run", "2025"], 3, "has no run `2025`; `profile list` names them, the last is `2025_01_03`"),
        ("x.json", &["--host", "c"], 3, "has no host `c`; there are `a`, `b`"),
    ] {
        let (run, out) = extract(name, more);
        assert_eq!(run.code, code, "{}", run.stderr);
        assert!(run.fault().contains(message), "{}", run.fault());
        assert!(!out.exists());
    }
}
