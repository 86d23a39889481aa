//! Compares the program's output with files. Each file's first line is its command; `BLESS=1` rewrites them; a missing
//! file is a failure. Times are simulated by `replay`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use crate::support::program::*;

/// Runs a command in a separate folder, where `REPLAY` stands for recorded samples and `CACHE` for the cache.
fn golden(name: &str, commands: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let (cache, replay) = (folder.path().join("cache"), folder.path().join("replay.json"));
    write_replay(&example().join("registry"), &replay);
    let mut text = String::new();
    for words in commands {
        let arguments: Vec<String> =
            words.split(' ').map(|word| word.replace("REPLAY", &format!("replay:{}", replay.display()))).collect();
        let run = run(&cache, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        text += &format!("$ autotune-lowered {words}\n{}", run.stdout);
        // stderr shows progress; its last line is the result
        let talk = run.stderr.replace(&cache.display().to_string(), "CACHE");
        text += &talk.lines().last().map_or_else(String::new, |line| format!("stderr: {line}\n"));
        text += &format!("exit code {}\n", run.code);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let expected =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}; BLESS=1 makes it", path.display()));
    assert_eq!(text, expected, "{}: BLESS=1 writes it again", path.display());
}

#[test]
fn tuning_twice() {
    let words = "examples/transformer/module.hlo.txt --timer REPLAY";
    golden("tune", &[words, words]);
}

#[test]
fn a_plan() {
    golden("dry_run", &["examples/transformer/module.stablehlo.mlir --timer REPLAY --dry-run"]);
}

#[test]
fn labels() {
    golden("scan", &["scan examples/transformer/module.hlo.txt", "scan examples/transformer/module.stablehlo.mlir"]);
}

#[test]
fn recordings() {
    golden("registry", &["registry ls examples/transformer/registry", "registry verify examples/transformer/registry"]);
}

#[test]
fn spaces() {
    golden("candidates", &["candidates ls", "candidates show flash_attention", "candidates show nothing"]);
}

#[test]
fn where_the_time_goes() {
    let path = "tests/data/xplane/multi8_shardmap.xplane.pb.gz";
    golden("summary", &[&format!("profile summary {path} --top 5"), "profile summary nowhere.xplane.pb"]);
}

/// `docs/cli.md` is the program's own help.
#[test]
fn the_reference_of_the_command_line() {
    let printed = run(Path::new("cache"), &["guide", "cli"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &printed.stdout).unwrap();
    }
    assert_eq!(printed.stdout, fs::read_to_string(&path).unwrap_or_default(), "BLESS=1 writes docs/cli.md again");
}

#[test]
fn pages_of_the_guide() {
    golden("guide", &["guide", "guide compare#exit-codes", "guide compares", "guide compare#exit"]);
}

#[test]
fn what_is_not_there() {
    golden("missing", &["nowhere.hlo.txt", "scan nowhere.hlo.txt", "registry ls nowhere", "cache ls"]);
}
