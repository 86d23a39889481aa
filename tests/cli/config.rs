//! `autotune.toml`: precedence, consent, and invalid files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::program::*;

/// A project folder with a configuration file, and a subfolder, in which the program runs.
struct Project(Place);

impl Project {
    fn new(config: impl AsRef<[u8]>) -> Self {
        let place = Place::new();
        fs::create_dir_all(place.path("project/inner")).unwrap();
        let project = Self(place);
        fs::write(project.file(), config).unwrap();
        project
    }

    /// Its path without links, as the program reports it.
    fn folder(&self) -> PathBuf {
        self.0.path("project").canonicalize().unwrap()
    }

    fn file(&self) -> PathBuf {
        self.folder().join("autotune.toml")
    }

    /// The program in the subfolder, with only these variables.
    fn run_with(&self, variables: &[(&str, &str)], words: &[&str]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_autotune-lowered"));
        for name in
            ["CACHE", "CACHE_DIR", "CONFIG", "REGISTRY", "SEEDS", "PIN", "VERIFY_KEY", "SIGN_KEY", "SIGN_COMMAND"]
        {
            command.env_remove(format!("AUTOTUNE_LOWERED_{name}"));
        }
        command.env("XDG_DATA_HOME", self.0.path("data")).env("XDG_CACHE_HOME", self.0.path("native"));
        command.env_remove("RUST_LOG").envs(variables.iter().copied()).args(words).stdin(Stdio::null());
        let output = command.current_dir(self.folder().join("inner")).output().unwrap();
        Run::of(output, words)
    }

    fn run(&self, words: &[&str]) -> Run {
        self.run_with(&[], words)
    }

    /// The source of a key's row, and its value.
    fn in_force(&self, variables: &[(&str, &str)], key: &str) -> (String, String) {
        let run = self.run_with(variables, &["config", "--format", "json"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let json = run.json();
        let rows = json["settings"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"] == key).unwrap();
        let value = row["value"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect::<Vec<_>>();
        (value.join(" "), row["from"].as_str().unwrap().to_owned())
    }
}

#[test]
fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
    let project = Project::new("# the team's\ncache = \"of-file\"\n");
    let path = |variables: &[(&str, &str)], words: &[&str]| {
        let run = project.run_with(variables, &[&["cache", "path"], words].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout.trim_end().to_owned()
    };
    let (new, old) = (("AUTOTUNE_LOWERED_CACHE", "/of-new"), ("AUTOTUNE_LOWERED_CACHE_DIR", "/of-old"));
    let of_file = project.folder().join("of-file").display().to_string();
    assert_eq!(path(&[], &[]), of_file);
    assert_eq!(path(&[old], &[]), "/of-old");
    assert_eq!(path(&[new], &[]), "/of-new");
    assert_eq!(path(&[old, new], &[]), "/of-new");
    assert_eq!(path(&[old, new], &["--cache", "/of-line"]), "/of-line");
    // an empty variable counts as unset
    let empty = [("AUTOTUNE_LOWERED_CACHE", ""), old];
    assert_eq!(path(&empty, &[]), "/of-old");
    assert_eq!(path(&[("AUTOTUNE_LOWERED_CACHE", ""), ("AUTOTUNE_LOWERED_CACHE_DIR", "")], &[]), of_file);
    // without the file, the platform's folder applies
    let native = project.0.path("native").join("autotune-lowered").display().to_string();
    assert_eq!(path(&[], &["--no-config"]), native);
    let named = project.0.file("named.toml", "cache = \"/of-named\"");
    assert_eq!(path(&[], &["--config", &named]), "/of-named");
    assert_eq!(path(&[("AUTOTUNE_LOWERED_CONFIG", &named)], &[]), "/of-named");
    assert_eq!(path(&[("AUTOTUNE_LOWERED_CONFIG", &named)], &["--no-config"]), native);
    // `config` reports it
    assert_eq!(project.in_force(&[], "match"), ("exact".to_owned(), "default".to_owned()));
    assert_eq!(project.in_force(&[old], "cache"), ("/of-old".to_owned(), "AUTOTUNE_LOWERED_CACHE_DIR".to_owned()));
    let secret = [("AUTOTUNE_LOWERED_CACHE", "https://ann:p4ss@host/team")];
    assert_eq!(project.in_force(&secret, "cache").0, "https://host/team");
}

#[test]
fn a_found_file_runs_nothing_until_it_is_accepted() {
    let project = Project::new("");
    let mark = project.0.path("mark");
    let text = format!("min-improvement = 0.05\ntimer = \"command:touch {}\"\n", mark.display());
    fs::write(project.file(), &text).unwrap();
    let (module, registry) = (module(), example().join("registry").display().to_string());
    let tune = |words: &[&str]| {
        let _ = fs::remove_file(&mark);
        let words = [&["tune", &module, "--registry", &registry, "--no-persist"], words].concat();
        (project.run(&words), mark.exists())
    };
    let refused = |why: &str| {
        let (run, ran) = tune(&[]);
        assert_eq!((run.code, ran), (BAD_INPUT, false), "{}", run.stderr);
        let place = format!("`{}`:2 sets `timer`, which may run code", project.file().display());
        assert!(run.fault().contains(&place) && run.fault().contains("config trust"), "{}", run.fault());
        assert!(run.fault().contains(why), "{}", run.fault());
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    };
    refused("");
    // flags have priority over the file
    let (run, ran) = tune(&["--timer", "replay:/nowhere"]);
    assert!(!ran && run.fault().contains("/nowhere"), "{}", run.stderr);
    // harmless settings are in force
    let place = project.file().display().to_string();
    assert_eq!(project.in_force(&[], "min-improvement"), ("0.05".to_owned(), format!("{place}:1")));
    assert_eq!(project.in_force(&[], "timer"), ("auto".to_owned(), "default".to_owned()));
    assert!(project.run(&["config"]).stdout.contains("not trusted"));
    // a digest other than the one shown is not accepted
    let wrong = project.run(&["config", "trust", "--digest", &"0".repeat(64)]);
    assert!(wrong.code == BAD_INPUT && wrong.fault().contains("read it again"), "{}", wrong.stderr);
    refused("");

    let trusted = project.run(&["config", "trust"]);
    assert_eq!(trusted.code, 0, "{}", trusted.stderr);
    assert!(trusted.stderr.contains("`timer` = `command:touch") && trusted.stderr.contains("may run code"));
    let (run, ran) = tune(&[]);
    assert!(ran, "{}", run.stderr);
    assert_eq!(project.in_force(&[], "timer").1, format!("{place}:2"));
    // the record is in the format of `sha256sum`, and private
    let folder = project.0.path("data/autotune-lowered/trusted-configs");
    let record = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o7777, 0o600);
    let checked = Command::new("sha256sum").arg("--check").arg("--status").arg(&record).status().unwrap();
    assert!(checked.success());
    // changes one byte, and reverts it
    fs::write(project.file(), text.replace("0.05", "0.06")).unwrap();
    refused("");
    fs::write(project.file(), &text).unwrap();
    assert!(tune(&[]).1);
    // a record that others may write or read does not count
    fs::set_permissions(&record, fs::Permissions::from_mode(0o666)).unwrap();
    refused("its mode is 0666: make it 0600");
    fs::remove_file(&record).unwrap();
    symlink(&mark, &record).unwrap();
    refused("symbolic link");
    fs::remove_file(&record).unwrap();
    refused("");
    // a named file needs no consent
    let (run, ran) = tune(&["--config", &place]);
    assert!(ran, "{}", run.stderr);
}

/// A file that requires signatures must not be ignored just because nobody accepted it.
#[test]
fn what_decides_trust_is_refused_and_not_passed_over() {
    let key = "verify-key = \"team.pub\"\ncache = \"file:///nowhere\"\n";
    for (key, text) in
        [("verify-key", key), ("pin", "pin = \"00\"\n"), ("pin", &format!("pin = \"{}\"\n", "0".repeat(64)))]
    {
        let project = Project::new(text);
        let run = project.run(&["cache", "ls"]);
        assert_eq!(run.code, BAD_INPUT, "{}", run.stderr);
        let what =
            if text.contains("\"00\"") { "is not a SHA-256 digest" } else { "decides whose results are trusted" };
        assert!(run.fault().contains(what) && run.stderr.contains(key), "{}", run.stderr);
    }
    // a copy of an accepted file is another file, with other files beside it
    let project = Project::new("plugin = \"plugin.so\"\n");
    assert_eq!(project.run(&["config", "trust"]).code, 0);
    fs::copy(project.file(), project.folder().join("inner/autotune.toml")).unwrap();
    assert!(project.run(&["device"]).fault().contains("inner/autotune.toml`:1 sets `plugin`, which may run code"));
    // a cache folder contains executables: measuring loads them, listing does not
    let project = Project::new("cache = \"cache\"\n");
    assert_eq!(project.run(&["cache", "ls"]).code, 0);
    assert!(project.run(&["selftest"]).fault().contains("sets `cache`, which may run code"));
}

#[test]
fn only_a_file_of_ones_own_is_trusted() {
    let project = Project::new("");
    let at = project.folder();
    symlink(project.file(), at.join("link.toml")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at.join("fifo.toml"), rustix::fs::Mode::RWXU).unwrap();
    fs::write(at.join("wrong.toml"), "nonsense = 1\n").unwrap();
    fs::File::create(at.join("large.toml")).unwrap().set_len(1 << 40).unwrap();
    let path = |name: &str| at.join(name).display().to_string();
    for (file, why) in [
        (path("link.toml"), "symbolic link"),
        (path("fifo.toml"), "not a regular file"),
        ("/dev/zero".to_owned(), "not a regular file"),
        (path("inner"), "directory"),
        (path("missing.toml"), "No such file"),
        (path("wrong.toml"), "unknown key"),
        (path("large.toml"), "at most 262144 are read"),
    ] {
        let run = project.run(&["config", "trust", &file]);
        assert_eq!(run.code, BAD_INPUT, "{file}: {}", run.stderr);
        assert!(run.fault().contains(why) && run.fault().contains(&file), "{file}: {}", run.stderr);
    }
    assert!(!project.0.path("data/autotune-lowered/trusted-configs").exists());
    // only root can give a file away
    if std::os::unix::fs::chown(project.file(), Some(12_345), None).is_ok() {
        fs::write(project.file(), "cache = \"/of-other\"\n").unwrap();
        let run = project.run(&["config", "trust"]);
        assert!(run.code == BAD_INPUT && run.fault().contains("another user"), "{}", run.stderr);
        let run = project.run(&["cache", "path"]);
        assert!(run.code == 0 && !run.stdout.contains("/of-other"), "{}", run.stdout);
        assert!(run.stderr.contains("is ignored; `--config"), "{}", run.stderr);
    }
}

#[test]
fn a_mistake_is_shown_with_its_place() {
    let project = Project::new("timer = \"auto\"\nmin_improvement = 0.1\n");
    let run = project.run(&["scan", "x"]);
    let place = project.file().display().to_string();
    let picture = "   |\n 2 | min_improvement = 0.1\n   | ^^^^^^^^^^^^^^^";
    let expected = format!(
        "autotune-lowered: {place}:2:1: unknown key `min_improvement`; did you mean `min-improvement`?\n{picture}\n"
    );
    assert_eq!((run.code, run.stdout.as_str(), run.stderr), (BAD_INPUT, "", expected));
    for (text, words) in [
        ("min-improvement = 2\n", ":1:19: expected a number of at least 0 and below 1"),
        ("timeout = 0\n", ":1:11: 0 is not in 1..=86400"),
        ("match = \"near\"\n", ":1:9: "),
        ("by-name = \"none-such\"\n", ":1:11: expected one of `"),
        ("timer = \"sundial\"\n", ":1:9: `--timer sundial` is not one of `auto`"),
        ("search = \"genetic\"\n", ":1:10: `genetic` was removed"),
        ("target = [\"tpu:v5e\", \"cuda:none\"]\n", ":1:10: "),
        ("label-regex = \"(\"\n", ":1:15: "),
        ("sign-key = \"a\"\nsign-command = \"b\"\n", ":2:16: `sign-key` and `sign-command` cannot both be set"),
    ] {
        fs::write(project.file(), text).unwrap();
        let run = project.run(&["cache", "push", "file:///nowhere", "--config", &place]);
        assert_eq!(run.code, BAD_INPUT, "{text}: {}", run.stderr);
        assert!(run.fault().contains(words) && run.stderr.trim_end().ends_with('^'), "{text}: {}", run.stderr);
    }
    // commands that read no file, and help, still work
    let exec = ["worker", "exec", "--", "true"];
    for words in
        [&["--help"][..], &["tune", "--help"], &["completions", "bash"], &["cache", "path", "--no-config"], &exec]
    {
        assert_eq!(project.run(words).code, 0, "{words:?}");
    }
    let plugin = project.run(&["worker", "pjrt", "--plugin", "/nowhere"]);
    assert!(!plugin.stderr.contains("autotune.toml"), "{}", plugin.stderr);
}

#[test]
fn what_is_no_file_is_one_line() {
    let place = Place::new();
    let project = Project::new("");
    let found = |make: &dyn Fn(&Path)| {
        fs::remove_file(project.file()).or_else(|_| fs::remove_dir(project.file())).unwrap();
        make(&project.file());
        project.run(&["cache", "path"])
    };
    let fifo = |path: &Path| rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap();
    let runs = [
        (found(&|path| fs::create_dir(path).unwrap()), "directory"),
        (found(&fifo), "not a regular file"),
        (found(&|path| symlink("/dev/zero", path).unwrap()), "symbolic link"),
        (found(&|path| symlink("nowhere", path).unwrap()), "symbolic link"),
        (found(&|path| fs::write(path, [b'a', 0xff, b'\n']).unwrap()), "not UTF-8"),
        (found(&|path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap()), "at most 262144 are read"),
        (project.run(&["cache", "path", "--config", "/dev/zero"]), "not a regular file"),
        (project.run(&["cache", "path", "--config", &place.text("missing.toml")]), "No such file"),
    ];
    for (run, why) in runs {
        assert_eq!((run.code, run.stdout.as_str()), (BAD_INPUT, ""), "{why}: {}", run.stderr);
        assert!(run.fault().contains(why) && run.stderr.lines().count() == 1, "{why}: {}", run.stderr);
    }
    // a variable is named, because the command line does not show it
    let mut of_variable = command(&place.path("cache"));
    let run = ended(of_variable.args(["cache", "path"]).env("AUTOTUNE_LOWERED_CONFIG", place.path("missing.toml")));
    assert!(run.fault().contains(": AUTOTUNE_LOWERED_CONFIG: cannot read the configuration"), "{}", run.stderr);
}

#[test]
fn the_file_gives_what_a_command_would_miss() {
    let registry = example().join("registry").display().to_string();
    let project = Project::new(format!("registry = \"{registry}\"\ntarget = [\"tpu:v5e\"]\n"));
    // a positional argument, also before another one
    let listed = project.run(&["registry", "ls"]);
    assert_eq!(listed.stdout, project.run(&["registry", "ls", &registry, "--no-config"]).stdout);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let shown = project.run(&["registry", "show", "none@v1"]);
    assert!(shown.code == NOTHING_MATCHED && shown.fault().contains(&registry), "{}", shown.stderr);
    // without it, clap names what is missing
    let missing = project.run(&["registry", "ls", "--no-config"]);
    assert!(missing.code == USAGE && missing.stderr.contains("<DIR>"), "{}", missing.stderr);
    let missing = project.run(&["compile", &module(), "-o", "store", "--no-config"]);
    assert!(missing.code == USAGE && missing.stderr.contains("--target <TARGET>"), "{}", missing.stderr);
    // targets in the file do not turn the main job into a forecast
    let replay = project.0.path("replay.json");
    write_replay(Path::new(&registry), &replay);
    let timer = format!("replay:{}", replay.display());
    let run = project.run(&[&module(), "--timer", &timer, "--format", "json", "--no-persist"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.json()["timer"], timer);
}

#[test]
fn tune_is_the_name_of_the_main_job() {
    let place = Place::new();
    let (module, replay) = (module(), place.path("replay.json"));
    write_replay(&example().join("registry"), &replay);
    let timer = format!("replay:{}", replay.display());
    let rest = [module.as_str(), "--timer", &timer, "--dry-run"];
    let named = place.run(&[&["tune"], &rest[..]].concat());
    assert_eq!(named.code, 0, "{}", named.stderr);
    for words in [
        rest.to_vec(),
        [&["-v"], &rest[..]].concat(),
        [&["--no-config", "--verbose"], &rest[..]].concat(),
        ["--timer", &timer, "--dry-run", &module].to_vec(),
        [&["--config", "/dev/null/none", "--no-config"], &rest[..]].concat(),
    ] {
        let run = place.run(&words);
        assert_eq!((run.code, &run.stdout), (0, &named.stdout), "{words:?}: {}", run.stderr);
    }
    assert!(place.run(&["--help"]).stdout.contains("\n  tune "));
    assert!(place.run(&["help", "tune"]).stdout.contains("--min-improvement"));
    let bash = place.run(&["completions", "bash"]).stdout;
    assert!(bash.contains("autotune__lowered,tune)") || bash.contains("autotune__lowered__subcmd__tune"));
    // a mistyped command is not taken for a module
    for (word, meant) in [("tuen", "tune"), ("scna", "scan"), ("profle", "profile")] {
        let wrong = place.run(&["--no-config", word, &module, "--registry", "r"]);
        let expected = format!("autotune-lowered: `{word}` is neither a command nor a file; did you mean `{meant}`?");
        assert_eq!((wrong.code, wrong.fault()), (USAGE, &*expected), "{}", wrong.stderr);
    }
    let wrong = place.run(&[&module, "--nonsense"]);
    assert!(wrong.code == USAGE && wrong.stderr.contains("autotune-lowered tune"), "{}", wrong.stderr);
}

#[test]
fn the_variable_of_the_cache_takes_a_snapshot_and_a_url() {
    let row = r#"{"device":{"platform":"cpu","device_kind":"cpu"},"op_id":"a@v1","call_key":"k","config":{"block":2}}"#;
    let project = Project::new("");
    let (rows, snapshot) = (project.0.file("rows.jsonl", row), project.0.text("best.snapshot"));
    let cache = project.0.text("cache");
    let of = |cache: &str, words: &[&str]| project.run_with(&[("AUTOTUNE_LOWERED_CACHE", cache)], words);
    assert_eq!(of(&cache, &["cache", "import", "--format", "json", &rows]).code, 0);
    assert_eq!(of(&cache, &["cache", "snapshot", &snapshot]).code, 0);
    let url = format!("file://{}", project.0.text("shared"));
    assert_eq!(of(&cache, &["cache", "push", &url]).code, 0);
    let entries = |cache: &str| {
        let run = of(cache, &["cache", "ls", "--format", "json"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let entries = run.json()["entries"].as_array().unwrap().clone();
        entries.into_iter().map(|entry| entry["config"].clone()).collect::<Vec<_>>()
    };
    for cache in [&cache, &snapshot, &url] {
        assert_eq!(entries(cache), [serde_json::json!({"block": 2})], "{cache}");
    }
    // a snapshot is read-only: tuning into it fails with one line, and leaves it unchanged
    let before = fs::read(&snapshot).unwrap();
    let replay = project.0.path("replay.json");
    write_replay(&example().join("registry"), &replay);
    let run = of(&snapshot, &["tune", &module(), "--timer", &format!("replay:{}", replay.display())]);
    assert_eq!(run.code, CACHE_TROUBLE, "{}", run.stderr);
    assert!(run.fault().contains("best.snapshot"), "{}", run.stderr);
    assert_eq!(fs::read(&snapshot).unwrap(), before);
}
