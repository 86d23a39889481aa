//! Transcripts of a terminal, in `tests/transcripts`. Each test runs the commands of its file in a new folder and
//! compares what they print. `SNAPSHOTS=overwrite` writes the files again.
//!
//! A line `$ COMMAND` is run by `sh`, with the lines `> …` after it. The lines that follow are its stdout, then its
//! stderr (`stderr: …`, without spaces at a line's end), then its exit code unless that is zero. `$ # REASON` says what
//! the next commands are for. `$REPO` is the repository; `example.json` and `small.json` are recorded samples for its
//! two modules, whose times are simulated. The cache is `cache`; what a user keeps elsewhere is in `data`
//! (`XDG_DATA_HOME`), `native` (`XDG_CACHE_HOME`) and `config` (`XDG_CONFIG_HOME`). `[..]` stands for anything in a
//! line, and a line `...` for any lines; JSON is also validated against its command's schema.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::program::*;
use snapbox::{Assert, Data};

const REPO: &str = env!("CARGO_MANIFEST_DIR");

fn folder() -> PathBuf {
    Path::new(REPO).join("tests/transcripts")
}

/// The commands of a transcript.
fn commands(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        if let Some(first) = line.strip_prefix("$ ") {
            commands.push(first.to_owned());
            goes_on = true;
        } else if let Some(more) = line.strip_prefix("> ").filter(|_| goes_on) {
            let last = commands.last_mut().unwrap();
            last.push('\n');
            last.push_str(more);
        } else {
            goes_on = false;
        }
    }
    commands
}

fn transcript(name: &str) {
    let path = folder().join(name).with_extension("txt");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (place, mut seen) = (Place::new(), String::new());
    for (file, registry) in
        [("example.json", "examples/transformer/registry"), ("small.json", "tests/data/small/registry")]
    {
        if text.contains(file) {
            write_replay(&Path::new(REPO).join(registry), &place.path(file));
        }
    }
    for line in commands(&text) {
        let words: Vec<&str> = line.split_whitespace().skip_while(|word| *word != "autotune-lowered").skip(1).collect();
        let run = Run::of(in_shell(&place, &line).output().unwrap(), &words);
        assert!(!run.stderr.contains("panicked"), "{line}: {}", run.stderr);
        if run.stdout.starts_with("{\n") {
            run.json();
        }
        seen += &format!("$ {}\n{}", line.replace('\n', "\n> "), run.stdout);
        if !run.stdout.is_empty() && !run.stdout.ends_with('\n') {
            seen += "\n";
        }
        run.stderr.lines().for_each(|line| seen += &format!("{}\n", format!("stderr: {line}").trim_end()));
        if run.code != 0 {
            seen += &format!("exit code {}\n", run.code);
        }
    }
    let here = fs::canonicalize(place.path("")).unwrap();
    let seen = seen.replace(REPO, "$REPO").replace(here.to_str().unwrap(), "$PWD");
    Assert::new().action_env("SNAPSHOTS").normalize_paths(false).eq(seen, Data::read_from(&path, None));
}

/// A command in a folder, where the program is found by its name and its settings are those of a new user.
fn in_shell(place: &Place, line: &str) -> std::process::Command {
    let program = command(&place.path("cache"));
    let bin = Path::new(program.get_program()).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(bin.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut shell = std::process::Command::new("sh");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AUTOTUNE_LOWERED_")) {
        shell.env_remove(name);
    }
    shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env_remove("RUST_LOG").env("PATH", path.unwrap()).env("REPO", REPO);
    shell.env("AUTOTUNE_LOWERED_CACHE", place.path("cache")).env("XDG_CACHE_HOME", place.path("native"));
    shell.current_dir(place.path("")).args(["-c", line]);
    shell.stdin(std::process::Stdio::null());
    shell
}

macro_rules! transcripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            transcript(stringify!($name));
        })*

        #[test]
        fn each_file_has_its_test() {
            let names = [$(stringify!($name)),*].map(|name| format!("{name}.txt"));
            let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
            assert_eq!(files.collect::<BTreeSet<_>>(), names.into_iter().collect());
        }
    };
}

transcripts! {
    budget
    cache_variable_takes_any_cache
    cached
    caches_that_are_not_there
    caches_that_cannot_be_made
    candidates
    check
    check_bad_input
    check_missing
    check_regressed
    check_stale
    classes_of_kept_options
    command_lines_that_are_wrong
    compile_bad_input
    compiler_options_as_flags
    compiler_options_bad_input
    configs_give_what_a_command_misses
    configs_that_are_found
    configs_that_are_no_file
    coverage
    diff_of_caches
    dry_run
    empty_parts_merge
    files_of_another_kind
    kept_executables
    log_folder
    look_up
    measure_of_what_is_none
    missing
    mistakes_in_a_config
    modules_that_are_none
    no_cache_left
    no_labels
    noise_floor
    not_recorded
    options
    paths_that_lead_nowhere
    peaks_that_cannot_be_measured
    plugins_that_are_none
    programs_that_are_none
    prune
    registries_that_are_broken
    registry
    replayed_decisions
    report_bad_input
    rows_in_json
    scan
    search_spaces_with_a_mistake
    selftest_bad_input
    settings_by_priority
    side_file_bad_input
    signatures_are_verified
    snapshots_are_only_read
    snapshots_are_published_of_what_is_there
    stdout_that_cannot_be_written
    steps_that_are_none
    summary
    tune
    tune_is_the_main_job
    view_nothing
    worker_dies_at_hello
}

/// `docs/cli.md` is the program's own help.
#[test]
fn the_reference_of_the_command_line() {
    let printed = run(Path::new("cache"), &["man", "--markdown"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let path = Path::new(REPO).join("docs/cli.md");
    Assert::new().action_env("SNAPSHOTS").eq(printed.stdout, Data::read_from(&path, None).raw());
}
