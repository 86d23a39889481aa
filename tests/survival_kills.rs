//! Tuning runs that are killed: nothing that was reported is lost, nothing is torn, and the next run completes.

#[path = "support/survival/mod.rs"]
mod survival;

/// `cargo bench --bench survival` does ten times as many.
#[test]
fn fifty_killed_runs_lose_nothing() {
    let seen = survival::kills::run(50, 6);
    assert_eq!(seen.kills, 50);
    // a test whose kills all come before the first decision, or after the last, would show nothing
    assert!(seen.in_between >= 10, "{seen:?}");
    assert!(seen.folders >= 2, "{seen:?}");
}
