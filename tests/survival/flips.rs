//! Flipped bits and truncated files in each store: reported, repaired from the others, and never another config.
//!
//! `cargo bench --bench survival -- --flips all` tries each bit and each length.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::survival::flips::{Beside, Extent, Whole, is_log, is_sled, is_snapshot};

const SOME: Extent = Extent::Some { of_a_file: 60, seed: 6 };

#[test]
fn damage_to_sled_is_named_and_costs_nothing() {
    let seen = Whole::new().damage(is_sled, Beside::Everything, SOME);
    assert!(seen.trials > 200 && seen.named_and_lost == 0, "{seen:?}");
    // a letter of the stored digest may become upper case
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
    // it cannot detect that the log was longer once
    assert!((4..10).contains(&seen.cut_between_records), "{seen:?}");
}

#[test]
fn damage_to_the_snapshot_is_named_and_the_next_tuner_publishes_it_again() {
    let seen = Whole::new().damage(is_snapshot, Beside::Everything, SOME);
    assert!(seen.trials > 70 && seen.named == seen.trials, "{seen:?}");
}
