//! Many processes that look up configs while one publishes.

use crate::support::survival;

const ROLE: &[&str] = &["--exact", "readers::one_reader", "--nocapture", "--quiet"];

/// A process that the other test starts; on its own it does nothing.
#[test]
fn one_reader() {
    survival::readers::serve_if_asked();
}

/// `cargo bench --bench survival` starts four times as many for a minute.
#[test]
fn sixteen_readers_find_what_was_published_and_nothing_else() {
    let seen = survival::readers::run(16, 2, 100, ROLE);
    assert!(seen.published > 100 && seen.newer > 100 && seen.opens > 100, "{seen:?}");
}
