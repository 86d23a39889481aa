//! Flipped bits and cut files in each store: named, put right from the others, and never another config.
//!
//! `cargo bench --bench survival -- --flips all` tries each bit and each length.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use crate::support::survival;
use crate::support::survival::flips::{Beside, Extent, Whole, is_log, is_sled, is_snapshot};
use crate::support::survival::tuning::best_configs;

const SOME: Extent = Extent::Some { of_a_file: 60, seed: 6 };

#[test]
fn damage_to_sled_is_named_and_costs_nothing() {
    let seen = Whole::new().damage(is_sled, Beside::Everything, SOME);
    assert!(seen.trials > 200 && seen.named_and_lost == 0, "{seen:?}");
    // a letter of the noted digest may be a capital one
    assert!(seen.harmless_at.keys().all(|at| at.starts_with("sled-v1.state")) && seen.harmless < 20, "{seen:?}");
}

#[test]
fn damage_to_the_log_is_named_and_sled_or_the_snapshot_gives_it_back() {
    let whole = Whole::new();
    for beside in [Beside::Everything, Beside::Snapshot] {
        let seen = whole.damage(is_log, beside, SOME);
        assert!(seen.trials > 70 && seen.named_and_lost == 0, "{beside:?}: {seen:?}");
        assert!(seen.harmless < 5 && seen.cut_between_records == 0, "{beside:?}: {seen:?}");
    }
}

#[test]
fn damage_to_a_log_that_stands_alone_is_named() {
    let seen = Whole::new().damage(is_log, Beside::Nothing, SOME);
    assert!(seen.named_and_lost > 30 && seen.harmless < 40, "{seen:?}");
    // what it cannot tell of: that it ended later once
    assert!((4..10).contains(&seen.cut_between_records), "{seen:?}");
}

#[test]
fn damage_to_the_snapshot_is_named_and_the_next_tuner_publishes_it_again() {
    let seen = Whole::new().damage(is_snapshot, Beside::Everything, SOME);
    assert!(seen.trials > 70 && seen.named == seen.trials, "{seen:?}");
}

/// Each file is sound, and made for the same arguments: only what it says of its key tells that it is another program.
#[test]
fn exchanged_executables_are_compiled_again() {
    let Some(real) = survival::real::Real::new() else { return };
    let cache = real.path("cache");
    let best = |extra: &[&str]| {
        let output = real.command(&cache).args(extra).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        best_configs(&serde_json::from_slice(&output.stdout).unwrap())
    };
    let expected = best(&[]);
    assert_eq!(expected.len(), survival::real::OPERATIONS);
    assert!(expected.iter().all(|(_, config)| *config == survival::real::Real::fastest()), "{expected:?}");
    let folder = cache.join("executables-v2");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|item| item.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 3 * survival::real::OPERATIONS, "one for each program, and nothing is left behind");
    // the first takes the second's name, and so on
    let bytes: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).unwrap()).collect();
    for (path, bytes) in files.iter().zip(bytes.iter().cycle().skip(1)) {
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(best(&["--force"]), expected);
    let names: Vec<_> = files.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(names.iter().zip(&bytes).all(|(now, before)| now.len() == before.len()), "each was made good");
}
