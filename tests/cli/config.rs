//! Configuration files of another user.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::program::*;

#[test]
fn a_file_of_another_user_is_ignored_and_one_for_the_user_refused() {
    let place = Place::new();
    let file = place.file("autotune.toml", "cache = \"/of-other\"\n");
    // only root can give a file away
    if std::os::unix::fs::chown(&file, Some(12_345), None).is_err() {
        return;
    }
    let in_place = |words: &[&str]| {
        let mut command = command(&place.path("cache"));
        command.env_remove("AUTOTUNE_LOWERED_CACHE").env("XDG_CACHE_HOME", place.path("native"));
        ended(command.current_dir(place.path("")).args(words))
    };
    let run = in_place(&["cache", "path"]);
    assert!(run.code == 0 && !run.stdout.contains("/of-other"), "{}", run.stdout);
    assert!(run.stderr.contains("is ignored; `--config"), "{}", run.stderr);
    std::fs::create_dir_all(place.path("config/autotune-lowered")).unwrap();
    std::fs::rename(&file, place.path("config/autotune-lowered/config.toml")).unwrap();
    let run = in_place(&["cache", "path"]);
    assert!(
        run.code == BAD_INPUT && run.fault().contains("it belongs to another user (number 12345)"),
        "{}",
        run.stderr
    );
}
