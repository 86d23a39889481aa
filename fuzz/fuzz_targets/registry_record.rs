//! A registry whose only record has these bytes: once under a wrong name, once under the right one.

#![no_main]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use autotune_lowered::device::MatchMode;
use autotune_lowered::digest::Digest;
use autotune_lowered::registry::{Invocation, Registry};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    Registry::create_or_open(folder.path()).expect("an empty registry");
    fs::create_dir_all(folder.path().join("invocations/op")).expect("a folder for records");
    folder
});

/// Larger arrays are not filled: they are legal to record, but would make the fuzzer slow.
const FILL_BYTES: u64 = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    let root = FOLDER.path();
    let content = Digest::of(bytes);
    let fitting = serde_json::from_slice::<serde_json::Value>(bytes)
        .ok()
        .and_then(|record| serde_json::from_value::<Invocation>(record.get("invocation")?.clone()).ok())
        .map_or_else(|| "0".repeat(16), |invocation| invocation.key().to_short());
    for name in [format!("{fitting}-{content}.json"), format!("{}-{content}.json", "f".repeat(16)), "x.json".to_owned()]
    {
        let path = root.join("invocations/op").join(name);
        fs::write(&path, bytes).expect("a record");
        read(root);
        fs::remove_file(&path).expect("the record is there");
    }
});

fn read(root: &Path) {
    let registry = Registry::open(root).expect("a bad record is a problem, not an error");
    assert_eq!(registry.problems().len() + registry.record_count(), 1);
    registry.list();
    registry.verify();
    for invocation in registry.invocations() {
        let _ = invocation.runnable();
        invocation.program_groups();
        if let Some(device) = &invocation.recorded_on {
            registry.not_runnable(MatchMode::Any, &device.identity, &invocation.call.op_id, &invocation.call.call_key);
        }
        for (index, argument) in invocation.arguments.iter().enumerate() {
            if argument.spec.host_bytes().is_some_and(|bytes| bytes <= FILL_BYTES) {
                let _ = registry.argument_bytes(invocation, index);
            }
        }
    }
}
