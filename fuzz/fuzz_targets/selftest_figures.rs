//! The figures of `selftest` in a cache folder: valid ones are usable and survive writing, others leave a note.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use autotune_lowered::cache::FolderLock;
use autotune_lowered::selftest::{FigureKey, SELFTEST_FILE, StoredFigures};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    let folder = FOLDER.path();
    fs::write(folder.join(SELFTEST_FILE), bytes).expect("a file");
    let (mut stored, note) = StoredFigures::read(folder);
    if let Some(note) = note {
        assert!(stored.is_empty() && note.contains(SELFTEST_FILE) && !note.contains('\n'), "{note}");
        return;
    }
    let document: serde_json::Value = serde_json::from_slice(bytes).expect("what was read is JSON");
    for entry in document["entries"].as_array().into_iter().flatten() {
        let setting: FigureKey = serde_json::from_value(entry.clone()).expect("what was read has its settings");
        let resolution = stored.resolution(&setting);
        assert!(resolution.points().iter().all(|(ns, resolution)| *ns > 0.0 && *resolution >= 0.0), "{resolution:?}");
        // measured once more
        stored.add(&setting, stored.points(&setting).to_vec());
    }
    let lock = FolderLock::acquire(folder).expect("nobody else has it");
    stored.write(&lock).expect("written");
    assert_eq!(StoredFigures::read(folder), (stored, None), "figures survive being written and read");
});
