//! Which run of a log folder is read, and files that are no capture.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::support::program::*;
use serde_json::Value;

const CAPTURE: &str = "tests/data/xplane/devices/nohlo.xplane.pb";

/// A log folder with these captures: run and host.
fn logs(captures: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (run, host) in captures {
        let run = folder.path().join("plugins/profile").join(run);
        fs::create_dir_all(&run).unwrap();
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(CAPTURE), run.join(format!("{host}.xplane.pb"))).unwrap();
    }
    folder
}

/// The runs that `profile summary` read, and what it said.
fn read(folder: &Path) -> (Vec<String>, String) {
    let ended = run(folder, &["profile", "summary", folder.to_str().unwrap(), "--format", "json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let path = |one: &Value| one["path"].as_str().unwrap().to_owned();
    let run_of = |path: String| Path::new(&path).parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let read = ended.json()["profiles"].as_array().unwrap().iter().map(path).map(run_of).collect();
    (read, ended.stderr)
}

#[test]
fn the_newest_run_is_read_and_named() {
    // written in this order, so that the newest is not the last that was written
    for (runs, newest) in
        [(["run_10", "run_9"], "run_10"), (["2026_05_06_10_00_00", "2026_05_06_09_59_59"], "2026_05_06_10_00_00")]
    {
        let folder = logs(&runs.map(|run| (run, "host")));
        let (read, said) = read(folder.path());
        assert_eq!(read, [newest]);
        assert!(said.contains(&format!("`{newest}`, the newest of 2")), "{said}");
        for command in ["timings", "collectives", "list"] {
            let ended = run(folder.path(), &["profile", command, folder.path().to_str().unwrap()]);
            assert!(format!("{}{}", ended.stderr, ended.stdout).contains(newest), "{command}: {}", ended.stderr);
        }
    }
    let folder = logs(&[("only", "host")]);
    assert!(read(folder.path()).1.contains("`only`"));
}

#[test]
fn hosts_of_one_launch_are_read_together_or_named() {
    let launch = logs(&[("2026_05_06_04_47_36", "node-1"), ("2026_05_06_04_47_38", "node-0")]);
    let (read_runs, said) = read(launch.path());
    assert_eq!(read_runs, ["2026_05_06_04_47_38", "2026_05_06_04_47_36"]);
    assert!(said.contains("2 runs of one launch"), "{said}");
    let minutes = logs(&[("2026_05_06_04_45_00", "node-1"), ("2026_05_06_04_47_38", "node-0")]);
    let (read_runs, said) = read(minutes.path());
    assert_eq!(read_runs, ["2026_05_06_04_47_38"]);
    assert!(
        said.contains("`2026_05_06_04_45_00` began within 10 minutes of it") && said.contains("give all: "),
        "{said}"
    );
}

#[test]
fn other_files_are_named_as_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let trace = br#"{"displayTimeUnit":"ns","traceEvents":[]}"#;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(trace).unwrap();
    let capture = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(CAPTURE)).unwrap();
    let wide: Vec<u8> = "\u{feff}HloModule jit_f".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (name, bytes, what) in [
        ("host.trace.json", trace.to_vec(), "is a Chrome trace"),
        ("host.trace.json.gz", gzip.finish().unwrap(), "is a Chrome trace"),
        ("wide.xplane.pb", wide, "is UTF-16"),
        ("copied.xplane.pb", String::from_utf8_lossy(&capture).into_owned().into_bytes(), "a text decoder"),
        ("module.mlir", b"module @jit_f {}\n".to_vec(), "is text"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let ended = run(folder.path(), &["profile", "summary", path.to_str().unwrap()]);
        assert_eq!(ended.code, BAD_INPUT, "{name}");
        assert!(ended.fault().contains(what) && ended.fault().contains(".xplane.pb"), "{name}: {}", ended.fault());
    }
    let trace = folder.path().join("step.pftrace");
    let trace = trace.to_str().unwrap();
    assert_eq!(run(folder.path(), &["profile", "trace", CAPTURE, "-o", trace]).code, 0);
    let ended = run(folder.path(), &["profile", "summary", trace]);
    assert!(ended.fault().contains("a trace of Perfetto"), "{}", ended.fault());
}
