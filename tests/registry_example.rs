//! The committed example: a registry that the Python recorder wrote.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::path::Path;

use autotune_lowered::device::{DeviceIdentity, DeviceMatch, MatchMode};
use autotune_lowered::registry::{Direction, Registry};

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
        assert!((4..=16).contains(&invocation.program_groups().len()), "{}", invocation.op_id);
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
    for model in ["A", "B"] {
        let found = registry.find(MatchMode::Exact, &device("cpu", model), "flash_attention@v2", "d9a668bdbb2245c3");
        let directions: Vec<_> = found.iter().map(|found| found.invocation.direction).collect();
        assert_eq!(directions.len(), 2);
        assert!(directions.contains(&Direction::Forward) && directions.contains(&Direction::ForwardVjp));
        assert!(found.iter().all(|found| found.device == DeviceMatch::Same));
    }
    let gpu = registry.find(MatchMode::Kind, &device("cuda", "A"), "flash_attention@v2", "d9a668bdbb2245c3");
    assert!(gpu.iter().all(|found| matches!(found.device, DeviceMatch::Miss(_))));
    assert!(registry.find(MatchMode::Any, &device("cpu", "A"), "flash_attention@v2", "0000000000000000").is_empty());
}
