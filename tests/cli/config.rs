//! `autotune.toml` of another user.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::program::*;

#[test]
fn only_a_file_of_ones_own_is_trusted() {
    let place = Place::new();
    let file = place.file("autotune.toml", "cache = \"/of-other\"\n");
    // only root can give a file away
    if std::os::unix::fs::chown(&file, Some(12_345), None).is_err() {
        return;
    }
    let in_place = |words: &[&str]| {
        let mut command = command(&place.path("cache"));
        command.env_remove("AUTOTUNE_LOWERED_CACHE_DIR").env("XDG_CACHE_HOME", place.path("native"));
        ended(command.current_dir(place.path("")).args(words))
    };
    let run = in_place(&["config", "trust"]);
    assert!(run.code == BAD_INPUT && run.fault().contains("another user"), "{}", run.stderr);
    let run = in_place(&["cache", "path"]);
    assert!(run.code == 0 && !run.stdout.contains("/of-other"), "{}", run.stdout);
    assert!(run.stderr.contains("is ignored; `--config"), "{}", run.stderr);
}
