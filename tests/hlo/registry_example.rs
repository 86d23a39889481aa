//! The committed example: a registry that the Python recorder wrote.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::path::Path;
use std::sync::Arc;

use autotune_lowered::call::Direction;
use autotune_lowered::device::{DeviceIdentity, DeviceMatch, MatchMode};
use autotune_lowered::hlo::{FoundLabel, Label, ModuleForm, Scan};
use autotune_lowered::matching::{ByName, match_labels};
use autotune_lowered::registry::{Invocation, Registry};

fn example() -> Registry {
    Registry::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/transformer/registry")).unwrap()
}

#[test]
fn every_byte_that_python_wrote_is_good() {
    let registry = example();
    let report = registry.verify();
    assert_eq!(report.problems, []);
    assert_eq!(report.unused, Vec::<std::path::PathBuf>::new());
    assert_eq!((report.records, report.invocations, report.programs), (8, 8, 48));
    for invocation in registry.invocations() {
        assert_eq!(invocation.runnable(), Ok(()));
        assert!((4..=16).contains(&invocation.program_groups().len()), "{}", invocation.call.op_id);
        for (index, argument) in invocation.arguments.iter().enumerate() {
            let bytes = registry.argument_bytes(invocation, index).unwrap();
            assert_eq!(Some(bytes.len() as u64), argument.spec.host_bytes());
        }
    }
}

#[test]
fn a_platforms_recording_matches_every_device_of_it() {
    let registry = example();
    let device = |platform: &str, model: &str| DeviceIdentity {
        platform: platform.into(),
        device_kind: platform.into(),
        hardware: [("cpu_model".to_owned(), model.to_owned())].into(),
    };
    let of_call = || {
        let same_key = |invocation: &&Arc<Invocation>| invocation.call.call_key == "d9a668bdbb2245c3";
        registry.of_operation("flash_attention@v2").filter(same_key)
    };
    let directions: Vec<_> = of_call().map(|invocation| invocation.direction).collect();
    assert_eq!(directions.len(), 2);
    assert!(directions.contains(&Direction::Forward) && directions.contains(&Direction::ForwardVjp));
    for model in ["A", "B"] {
        let compare = |invocation: &Invocation| invocation.target.compare(MatchMode::Exact, &device("cpu", model));
        assert!(of_call().all(|invocation| compare(invocation) == DeviceMatch::Same));
    }
    let gpu = |invocation: &Invocation| invocation.target.compare(MatchMode::Kind, &device("cuda", "A"));
    assert!(of_call().all(|invocation| matches!(gpu(invocation), DeviceMatch::Miss(_))));
}

#[test]
fn invocations_are_listed() {
    let registry = example();
    let listed = registry.list();
    assert_eq!(listed.len(), 8);
    assert_eq!((listed[0].call.op_id.as_str(), listed[0].direction), ("blocked_matmul@v1", Direction::Forward));
    assert_eq!((listed[0].candidates, listed[0].programs, listed[0].target.as_str()), (6, 6, "every cpu device"));
}

/// The labels of the committed module by a plain regular expression, without the scanner.
fn labels_of(text: &str) -> Vec<FoundLabel> {
    let stamp = regex::Regex::new(r"ejkernel_ops#(\w+)(?:[@.]v(\d+):([0-9a-f]{16}))?").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for found in stamp.captures_iter(text) {
        let part = |index: usize| found.get(index).map(|part| part.as_str().to_owned());
        let op_id = match part(2) {
            Some(version) => format!("{}@v{version}", &found[1]),
            None => found[1].to_owned(),
        };
        seen.insert(Label::new(op_id, part(3)));
    }
    let label = |label: Label| {
        let mut label = FoundLabel::new(label, "ejkernel-hash");
        label.backward = true;
        label
    };
    seen.into_iter().map(label).collect()
}

#[test]
fn every_label_of_the_example_module_is_recorded() {
    let registry = example();
    let device = DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware: [].into() };
    for (name, flash) in [("module.stablehlo.mlir", "exact"), ("module.hlo.txt", "by name, of 1 recorded")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/transformer").join(name);
        let labels = labels_of(&std::fs::read_to_string(path).unwrap());
        let scan = Scan::new(ModuleForm::HloText, labels);
        let found = match_labels(&scan, &registry, &device, MatchMode::Exact, ByName::Few);
        assert_eq!(found.missed, []);
        let shown: Vec<_> =
            found.matched.iter().map(|m| (m.invocation.call.op_id.as_str(), m.labels[0].how.to_string())).collect();
        let exact = || "exact".to_owned();
        assert_eq!(
            shown,
            [
                ("blocked_matmul@v1", exact()),
                ("blocked_matmul@v1", exact()),
                ("chunked_cross_entropy@v1", exact()),
                ("flash_attention@v2", flash.to_owned()),
            ],
            "{name}"
        );
        assert!(found.matched.iter().all(|m| m.flags.is_empty() && m.invocation.direction == Direction::ForwardVjp));
    }
}
