//! Every sample compared with independent counts: `*.labels.json` has, for each dialect of one module, the counts of a
//! plain text search (`raw_prefix`, `json_prefix`) and of ejkernel's own expression (`labels`, `unique`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::support::prerequisite::shared_data;
use autotune_lowered::hlo::Evidence;
use autotune_lowered::hlo::{FoundLabel, ScanOptions, scan_path};

#[derive(serde::Deserialize)]
struct Counted {
    labels: u64,
    unique: BTreeSet<String>,
    raw_prefix: u64,
    json_prefix: u64,
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hlo")
}

fn occurrences(labels: &[FoundLabel], choose: impl Fn(&FoundLabel) -> bool) -> u64 {
    labels.iter().filter(|label| choose(label)).map(|label| label.occurrences).sum()
}

/// The spellings in which ejkernel's expression lists a whole label; patched samples write `.vN` for `@vN`.
fn spellings(label: &FoundLabel) -> [String; 2] {
    let key = label.label.call_key.as_deref().unwrap_or_default();
    let op = &label.label.op_id;
    [format!("ejkernel_ops#{op}:{key}"), format!("ejkernel_ops#{}:{key}", op.replace("@v", ".v"))]
}

/// Checks each file named by the oracles of a folder; returns their number.
fn check(folder: &Path) -> usize {
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let oracle = entry.unwrap().path();
        let Some(stem) = oracle.to_string_lossy().strip_suffix(".labels.json").map(str::to_owned) else { continue };
        let counted: BTreeMap<String, Counted> = serde_json::from_slice(&std::fs::read(&oracle).unwrap()).unwrap();
        for (suffix, counted) in counted {
            let Some(path) = ["", ".gz", ".zst"]
                .iter()
                .map(|packed| PathBuf::from(format!("{stem}{suffix}{packed}")))
                .find(|path| path.exists())
            else {
                continue;
            };
            let scan = scan_path(&path, &ScanOptions::default()).unwrap();
            let labels = &scan.labels;
            let place = path.display();
            assert_eq!(occurrences(labels, |label| label.family == "ejkernel-hash"), counted.raw_prefix, "{place}");
            assert_eq!(occurrences(labels, |label| label.family == "ejkernel-json"), counted.json_prefix, "{place}");
            assert_eq!(
                occurrences(labels, |label| label.evidence == Evidence::Exact && label.family == "ejkernel-hash"),
                counted.labels,
                "{place}"
            );
            let whole: Vec<&FoundLabel> = labels
                .iter()
                .filter(|label| label.evidence == Evidence::Exact && label.family == "ejkernel-hash")
                .collect();
            assert_eq!(whole.len(), counted.unique.len(), "{place}");
            for label in whole {
                assert!(
                    spellings(label).iter().any(|spelling| counted.unique.contains(spelling)),
                    "{place}: {label:?}"
                );
            }
            if labels.is_empty() {
                let codes: Vec<&str> = scan.diagnosis.iter().map(|said| said.code.as_str()).collect();
                assert!(codes.contains(&"no-labels") || codes.contains(&"no-metadata"), "{place}: {codes:?}");
            }
            assert!(scan.diagnosis.iter().all(|said| said.code != "truncated"), "{place}: {:?}", scan.diagnosis);
            checked += 1;
        }
    }
    checked
}

#[test]
fn committed_samples_are_counted_as_the_oracles_say() {
    assert_eq!(check(&data()), 20);
}

#[test]
fn every_shared_sample_is_counted_as_the_oracles_say() {
    // without it, the committed samples suffice
    let Some(shared) = shared_data("hlo") else { return };
    assert_eq!(check(&shared.join("alone")), 56);
    assert_eq!(check(&shared.join("model")), 21);
}
