//! `profile extract` of a run in a log folder, as a trace.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use crate::support::program::Place;
use serde_json::Value;

#[test]
fn a_trace_of_a_run_has_the_slices_of_all_hosts() {
    let place = Place::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let captures = place.path("log/plugins/profile/2025_01_03");
    fs::create_dir_all(&captures).unwrap();
    for (name, host) in [("trivial.xplane.pb", "a.xplane.pb"), ("multi8_shardmap.xplane.pb.gz", "b.xplane.pb.gz")] {
        fs::copy(data.join("xplane").join(name), captures.join(host)).unwrap();
    }
    let out = place.text("both.json");
    let run = place.run(&["profile", "extract", &place.text("log"), "-o", &out]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let trace: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let processes: Vec<_> =
        events.iter().filter(|one| one["name"] == "process_name").map(|one| &one["args"]["name"]).collect();
    assert_eq!(processes, ["a: /host:CPU", "b: /host:CPU"]);
    let oracle: Value = serde_json::from_slice(&fs::read(data.join("trace/oracle.json")).unwrap()).unwrap();
    let slices = |name: &str| {
        oracle[name].as_object().unwrap().values().map(|line| line["slices"].as_u64().unwrap()).sum::<u64>()
    };
    let found = events.iter().filter(|one| one["ph"] == "X").count() as u64;
    assert_eq!(found, slices("trivial") + slices("multi8_shardmap"));
}
