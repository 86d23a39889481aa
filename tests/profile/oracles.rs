//! Real captures compared with independent programs' results for the same files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use autotune_lowered::profile::{Profiler, Semantics, XSpace, executions};
use regex::bytes::Regex;
use serde_json::Value;

/// Every committed capture with its oracle.
fn captures() -> Vec<(PathBuf, XSpace, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane");
    let mut found = Vec::new();
    for path in fs::read_dir(&folder).unwrap().map(|item| item.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some(stem) = name.strip_suffix(".xplane.pb.gz").or(name.strip_suffix(".xplane.pb")) {
            let oracle = fs::read_to_string(folder.join(format!("{stem}.oracle.json"))).unwrap();
            found.push((path.clone(), XSpace::open(&path).unwrap(), serde_json::from_str(&oracle).unwrap()));
        }
    }
    assert_eq!(found.len(), 5);
    found
}

#[test]
fn what_is_read_twice_is_what_was_held() {
    for (path, mut space, _) in captures() {
        let held = executions(&space);
        // none, and the events of some chunks
        for events in [0, 3000] {
            space.hold_events(events);
            let read = executions(&space);
            assert_eq!((read.executions, read.findings), (held.executions.clone(), vec![]), "{}", path.display());
        }
    }
}

#[test]
fn spans_busy_times_and_operation_sums_are_the_oracles() {
    for (path, space, oracle) in captures() {
        let time = executions(&space);
        assert!(time.findings.is_empty(), "{}: {:?}", path.display(), time.findings);
        let modules = oracle["modules"].as_array().unwrap();
        assert_eq!(time.executions.len(), modules.len(), "{}", path.display());
        for module in modules {
            let same = time.executions.iter().find(|execution| {
                execution.run_id == module["run_id"].as_i64()
                    && execution.program_id == module["program_id"].as_i64()
                    && execution.device == module["device_ordinal"].as_i64()
            });
            let execution = same.unwrap_or_else(|| panic!("{}: {module}", path.display()));
            assert_eq!(time.name(execution.module), module["hlo_module"].as_str().unwrap());
            let expected = ["events", "span_ps", "busy_union_ps"].map(|name| module[name].as_u64().unwrap());
            assert_eq!([execution.events, execution.span_ps, execution.busy_ps], expected, "{}", path.display());
            let start_ps = execution.start_ps + space.base_ns() * 1000;
            assert_eq!(start_ps, module["start_ps"].as_i64().unwrap());
            assert_eq!(execution.end_ps - execution.start_ps, execution.span_ps as i64);
            let sums: BTreeMap<&str, u64> =
                execution.operations.iter().map(|operation| (time.name(operation.name), operation.total_ps)).collect();
            let expected: BTreeMap<&str, u64> = module["ops_sum_ps"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, sum)| (name.as_str(), sum.as_u64().unwrap()))
                .collect();
            assert_eq!(sums, expected, "{}", path.display());
            // self times add up to at least the busy time, since lines run in parallel, and to at most the total
            let own: u64 = execution.operations.iter().map(|operation| operation.self_ps).sum();
            let total: u64 = execution.operations.iter().map(|operation| operation.total_ps).sum();
            assert!(own >= execution.busy_ps && own <= total, "{own} {total} {}", execution.busy_ps);
        }
    }
}

/// ejkernel's numbers, exactly, in each of the four ways of running it.
#[test]
fn the_seeds_semantics_give_the_seeds_numbers() {
    let everything = Regex::new(".*").unwrap();
    for (path, space, oracle) in captures() {
        for variant in ["default", "noprefix", "unlimited", "regex_all"] {
            let mut profiler = Profiler::new(Semantics::Ejkernel);
            match variant {
                "noprefix" => profiler.prefix_filter.clear(),
                // neither a cap nor a minimum duration
                "unlimited" => (profiler.max_events_per_profile, profiler.min_duration_ns) = (None, 0.0),
                "regex_all" => profiler.event_filter_regex = Some(everything.clone()),
                _ => {}
            }
            let planes = Profiler::find_device_planes(&space, "cpu");
            let numbers: Vec<Value> = planes.iter().map(|plane| plane.number().into()).collect();
            assert_eq!(oracle["cpu_plane_ids"], Value::from(numbers));
            let timings = profiler.timings(planes[0], &executions(&space));
            let found: BTreeMap<&str, f64> =
                timings.samples.iter().map(|(name, samples)| (name.as_str(), samples[0])).collect();
            let expected = oracle[format!("seed_on_proto_{variant}")]["result"].as_object().unwrap();
            let expected: BTreeMap<&str, f64> =
                expected.iter().map(|(name, seconds)| (name.as_str(), seconds.as_f64().unwrap())).collect();
            assert_eq!(found, expected, "{} {variant}", path.display());
            // the seed on jax.profiler.ProfileData gives the same
            if let Some(fixed) = oracle[format!("fixed_profiledata_{variant}")]["result"].as_object() {
                let fixed: BTreeMap<&str, f64> =
                    fixed.iter().map(|(name, seconds)| (name.as_str(), seconds.as_f64().unwrap())).collect();
                assert_eq!(found, fixed, "{} {variant}", path.display());
            }
        }
    }
}
