//! Flame graphs: stacks compared with what XLA prints for the same instructions, and the SVG with hostile names.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::program;
use crate::support::xspace::*;
use autotune_lowered::analysis::Capture;
use autotune_lowered::analysis::{
    ACTIVE, HloFiles, IDLE_BETWEEN_FRAME, IDLE_INSIDE_FRAME, StacksBy, SummaryOptions, stacks, stacks_by, summarize,
};
use autotune_lowered::profile::XSpace;
use autotune_lowered::report::write_flame_graph;
use serde_json::Value;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane").join(name)
}

fn captured(name: &str) -> Vec<Capture> {
    let path = sample(&format!("{name}.xplane.pb.gz"));
    let space = XSpace::open(&path).unwrap();
    vec![Capture::xspace(path, name, space)]
}

/// The stacks and scopes of each operation are XLA's; its time, which the summary's tests check, is distributed over
/// them.
#[test]
fn time_is_split_over_the_stacks_that_xla_prints() {
    for name in ["multi8_shardmap", "autotune6x5", "tf2_step"] {
        let text = std::fs::read_to_string(sample(&format!("{name}.instructions.json"))).unwrap();
        let peer: Value = serde_json::from_str(&text).unwrap();
        let captures = captured(name);
        let files = HloFiles::default();
        let summary = summarize(&captures, &files, SummaryOptions::default());
        let mut by_source: BTreeMap<Vec<String>, f64> = BTreeMap::new();
        let mut by_op_name = by_source.clone();
        let texts = |list: &Value| -> Vec<String> {
            list.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
        };
        let add = |all: &mut BTreeMap<Vec<String>, f64>, mut found: Vec<Vec<String>>, time_ns: f64| {
            if found.is_empty() {
                found.push(vec!["[unknown]".to_owned()]);
            }
            let part = time_ns / found.len() as f64;
            for stack in found {
                *all.entry([vec![ACTIVE.to_owned()], stack].concat()).or_default() += part;
            }
        };
        for operation in &summary.operations {
            let module = format!("{}({})", operation.module, operation.program_id.unwrap());
            let expected = &peer["modules"][&module][&operation.operation];
            let op_names = texts(&expected["op_names"]);
            let mut whole: Vec<Vec<String>> = expected["stacks"]
                .as_array()
                .unwrap()
                .iter()
                .map(|number| texts(&peer["stacks"][number.as_u64().unwrap() as usize]))
                .collect();
            if whole.is_empty() {
                whole = op_names.iter().map(|name| vec!["[unknown]".to_owned(), name.clone()]).collect();
            }
            add(&mut by_source, whole, operation.time_ns);
            let scopes = op_names.iter().map(|name| name.split('/').map(str::to_owned).collect()).collect();
            add(&mut by_op_name, scopes, operation.time_ns);
        }
        let kinds = [StacksBy::Source, StacksBy::OpName];
        let both = stacks_by(&captures, &files, kinds, false);
        for ((by, found), mut expected) in kinds.into_iter().zip(both).zip([by_source, by_op_name]) {
            let inside = summary.devices.iter().map(|device| device.idle_inside_ns).sum();
            let between = summary.devices.iter().map(|device| device.idle_between_ns).sum();
            expected.insert(vec![IDLE_INSIDE_FRAME.to_owned()], inside);
            expected.insert(vec![IDLE_BETWEEN_FRAME.to_owned()], between);
            assert_eq!(found, stacks(&captures, &files, by, false), "{name} {by:?}");
            let found = found.time_ns;
            assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{name} {by:?}");
            for (stack, time_ns) in &expected {
                assert!((found[stack] - time_ns).abs() < 1e-6 * time_ns + 1e-6, "{name} {stack:?}");
            }
            // active and idle time make up the third total; no two executions overlap here
            let wall: f64 = summary.devices.iter().map(|device| device.wall_ns).sum();
            assert!((found.values().sum::<f64>() - wall).abs() < 1e-6 * wall, "{name} {by:?}");
        }
    }
}

#[test]
fn hostile_names_stay_text_and_the_bytes_are_the_same_each_time() {
    let name = "a;b\n<script>alert(1)</script>&\"'\u{0}\u{1b}]]>\u{fffe} 12";
    let stacks = BTreeMap::from([
        (vec![ACTIVE.to_owned(), name.to_owned()], 600.4),
        (vec![ACTIVE.to_owned(), "plain".to_owned()], 399.6),
        (vec![IDLE_INSIDE_FRAME.to_owned()], 1000.0),
    ]);
    let draw = || {
        let mut svg = Vec::new();
        write_flame_graph(&mut svg, name, name, &stacks, false).unwrap();
        String::from_utf8(svg).unwrap()
    };
    let svg = draw();
    assert_eq!(svg, draw());
    assert!(!svg.contains("<script>alert") && svg.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{svg}");
    assert!(svg.chars().all(|c| !c.is_control() || c == '\n' || c == '\t' || c == '\r'));
    assert!(svg.contains("plain (400 ns, 20.00%)") && svg.contains("\u{a0}12 (600 ns, 30.00%)"), "{svg}");
    let idle = svg.split("<g>").find(|part| part.contains("[idle during")).unwrap();
    assert!(idle.contains("rgb(190,190,190)"), "{idle}");
    // the SVG loads nothing from elsewhere
    for link in svg.split("href=\"").skip(1).chain(svg.split("src=\"").skip(1)) {
        assert!(!link.starts_with("http") && !link.starts_with("//"), "{link}");
    }
}

#[test]
fn the_command_writes_the_file_whole_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/out.svg");
    let out_text = out.to_str().unwrap();
    let capture = sample("multi8_shardmap.xplane.pb.gz");
    let run = |arguments: &[&str]| program::run(folder.path(), arguments);
    let drawn = run(&["profile", "flamegraph", capture.to_str().unwrap(), "--by", "op_name", "-o", out_text]);
    assert_eq!((drawn.code, drawn.stdout.as_str()), (0, ""), "{}", drawn.stderr);
    let svg = std::fs::read_to_string(&out).unwrap();
    assert!(svg.contains("shard_map") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(std::fs::read_dir(out.parent().unwrap()).unwrap().count(), 1, "a temporary file is left");

    let bare = folder.path().join("bare.xplane.pb");
    let events = [("dot.1", "jit_f", 3, 1, 0, 10), ("dot.1", "jit_f", 3, 2, 100, 10)];
    std::fs::write(&bare, space(&[host(&[&events])]).0).unwrap();
    let unknown = run(&["profile", "flamegraph", bare.to_str().unwrap(), "-o", "-"]);
    assert_eq!(unknown.code, 0, "{}", unknown.stderr);
    assert!(unknown.stdout.contains("[unknown]") && unknown.stderr.contains("no HLO of `jit_f`"), "{}", unknown.stderr);
    let folder_text = folder.path().to_str().unwrap();
    let refused = run(&["profile", "flamegraph", capture.to_str().unwrap(), "-o", folder_text]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(refused.fault().contains("cannot be written"));
}
