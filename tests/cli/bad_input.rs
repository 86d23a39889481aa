//! Bad input gives one clear line and a documented exit code, and loses nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::prerequisite::{Mount, python_with};
use crate::support::program::*;
use autotune_lowered::call::Direction;
use autotune_lowered::cli::exit;
use autotune_lowered::ledger::Ledger;

impl Place {
    fn replay(&self) -> String {
        let path = self.path("replay.json");
        write_replay(&example().join("registry"), &path);
        format!("replay:{}", path.display())
    }

    /// The same for the small module, which many runs of a test tune.
    fn small_replay(&self) -> String {
        let path = self.path("replay.json");
        write_replay(&Path::new(&small_module()).with_file_name("registry"), &path);
        format!("replay:{}", path.display())
    }

    /// The same as [`replay`](Self::replay), with times that scatter so much, and differ so little, that no number of
    /// rounds settles anything.
    fn restless_replay(&self) -> String {
        let path = self.path("restless.json");
        write_replay(&example().join("registry"), &path);
        let mut recording: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for invocation in recording["invocations"].as_array_mut().unwrap() {
            for (n, candidate) in invocation["candidates"].as_array_mut().unwrap().iter_mut().enumerate() {
                // a multiplicative generator: 7 is a primitive root of 1009
                let times = (0..504_u64).scan(n as u64 + 1, |state, _| {
                    *state = *state * 7 % 1009;
                    Some(10_000_000 + *state * 10_000)
                });
                candidate["epochs"] = serde_json::json!([times.collect::<Vec<_>>()]);
            }
        }
        fs::write(&path, recording.to_string()).unwrap();
        format!("replay:{}", path.display())
    }
}

/// Expects the code, and one line that names the file.
fn expect(run: &Run, code: i32, words: &[&str]) {
    assert_eq!(run.code, code, "{}\n{}", run.stdout, run.stderr);
    for word in words {
        assert!(run.fault().contains(word), "`{word}` is missing: {}", run.fault());
    }
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
}

/// A JAX of `pip install --user`: an empty package, so the worker fails, but the program selects it.
#[test]
fn jax_in_the_users_own_folder_is_the_one_that_is_taken() {
    let Some(python) = python_with("site") else { return };
    // in a virtual environment, Python ignores the user's own folder
    let mut asked = Command::new(python);
    asked.args(["-c", "import sys; print(sys.base_prefix); print(*sys.version_info[:2])"]);
    let text = String::from_utf8(asked.output().unwrap().stdout).unwrap();
    let (prefix, version) = text.trim().split_once('\n').unwrap();
    let place = Place::new();
    for package in ["jax", "jaxlib"] {
        let package =
            place.path("user/lib").join(format!("python{}/site-packages", version.replace(' ', "."))).join(package);
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("__init__.py"), "").unwrap();
    }
    let mut command = command(&place.path("cache"));
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONNOUSERSITE", "PJRT_NAMES_AND_LIBRARY_PATHS"] {
        command.env_remove(variable);
    }
    command.env("PATH", Path::new(prefix).join("bin")).env("PYTHONUSERBASE", place.path("user"));
    let output = command.args([&module(), "--no-persist"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("the JAX of `{prefix}/bin/python3` compiles the programs")), "{said}");
    assert_eq!(output.status.code(), Some(DEVICE_TROUBLE), "{said}");
}

#[test]
fn a_program_that_was_changed_costs_its_candidate_alone() {
    let place = Place::new();
    let registry = place.path("registry");
    copy_folder(&example().join("registry"), &registry);
    let opened = autotune_lowered::registry::Registry::open(&registry).unwrap();
    let flash = opened
        .invocations()
        .iter()
        .find(|i| i.call.op_id == "flash_attention@v2" && i.direction == Direction::ForwardVjp)
        .unwrap();
    let victim = flash.candidates.iter().find(|c| c.config != flash.baseline).unwrap();
    let path = opened.program_path(victim.program.as_ref().unwrap());
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&path, bytes).unwrap();
    let name = registry.to_str().unwrap();
    let run = place.run(&[&module(), "--timer", &place.replay(), "--registry", name]);
    assert!(run.stdout.contains("no-program"), "{}\n{}", run.stdout, run.stderr);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn a_second_process_is_told_who_has_the_cache() {
    let place = Place::new();
    let ledger = Ledger::open(&place.path("cache"), vec![]).unwrap();
    let run = place.run(&[&module(), "--timer", &place.replay()]);
    expect(&run, CACHE_TROUBLE, &[&format!("process {}", std::process::id()), "--cache"]);
    drop(ledger);
    assert_eq!(place.run(&[&module(), "--timer", &place.replay()]).code, 0);
}

#[test]
fn a_full_disk_loses_nothing() {
    let Some(mount) = Mount::new("size=2m") else { return };
    let place = Place::new();
    let cache = mount.path().join("cache");
    let timer = place.replay();
    assert_eq!(run(&cache, &[&module(), "--timer", &timer, "--rounds", "8"]).code, 0);
    // fill the rest; the next run writes more rounds than fit
    let filler = mount.path().join("filler");
    let mut bytes = vec![0_u8; 1 << 22];
    while !bytes.is_empty() && fs::write(&filler, &bytes).is_err() {
        bytes.truncate(bytes.len() - (16 << 10));
    }
    // enough to open everything (sled takes half a MiB), but not for the rounds
    fs::write(&filler, &bytes[..bytes.len() - (700 << 10)]).unwrap();
    let restless = place.restless_replay();
    let full = run(&cache, &[&module(), "--timer", &restless, "--rounds", "2000", "--min-improvement", "0"]);
    expect(&full, CACHE_TROUBLE, &["space"]);
    assert!(full.stdout.contains("not started"), "what was decided before is printed: {}", full.stdout);
    fs::remove_file(&filler).unwrap();
    mount.remount("size=64m");
    let list = run(&cache, &["cache", "ls", "--format", "json"]);
    assert_eq!(list.json()["entries"].as_array().unwrap().len(), 4, "{}", list.stderr);
    let again = run(&cache, &[&module(), "--timer", &timer, "--rounds", "8", "--format", "json"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.json()["operations"].as_array().unwrap().iter().all(|o| o["status"] == "cached"));
}

#[test]
fn a_read_only_disk_is_named() {
    let Some(mount) = Mount::new("size=8m") else { return };
    let place = Place::new();
    mount.remount("ro");
    let run = run(&mount.path().join("cache"), &[&module(), "--timer", &place.replay()]);
    expect(&run, CACHE_TROUBLE, &["Read-only"]);
}

#[test]
fn the_help_lists_every_exit_code_and_the_scripts_are_there() {
    let place = Place::new();
    let help = place.run(&["--help"]).stdout;
    for (code, meaning) in exit::TABLE {
        assert!(help.contains(meaning) && help.contains(&format!("{code}  ")), "{code} {meaning}");
    }
    let bash = place.run(&["completions", "bash"]);
    assert!(bash.code == 0 && bash.stdout.contains("--min-improvement"));
    let man = place.run(&["man"]);
    assert!(man.code == 0 && man.stdout.starts_with(".ie") && man.stdout.contains("autotune\\-lowered"));
}

/// Things in place of a file, each with its name in the test's folder.
const NO_FILES: [&str; 6] = ["zero", "fifo", "growing", "folder", "missing", "large"];

fn no_files(folder: &Path) -> PathBuf {
    let at = folder.join("no-files");
    fs::create_dir_all(at.join("folder")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", at.join("zero")).unwrap();
    assert!(Command::new("mkfifo").arg(at.join("fifo")).status().unwrap().success());
    fs::write(at.join("growing"), [0; 64]).unwrap();
    fs::File::create(at.join("large")).unwrap().set_len(1 << 40).unwrap();
    at
}

/// Runs the program with limits: reading without an end or a bound ends it by a signal. Meanwhile a file grows.
fn run_bounded(place: &Place, growing: &Path, arguments: &[&str]) -> Run {
    let limits = "ulimit -v 6000000; ulimit -t 50; exec timeout -s KILL 100 \"$@\"";
    let command = command(&place.path("cache"));
    let mut bounded = Command::new("sh");
    bounded.args(["-c", limits, "sh"]).arg(command.get_program()).args(arguments).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    bounded.current_dir(env!("CARGO_MANIFEST_DIR"));
    let ended = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            // slower than any reader, and endless
            let mut file = fs::File::options().append(true).open(growing).unwrap();
            while !ended.load(Ordering::Relaxed) {
                file.write_all(&[0; 64]).unwrap();
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let output = bounded.output();
        ended.store(true, Ordering::Relaxed);
        output.unwrap()
    });
    Run::of(output, arguments)
}

#[test]
fn what_is_no_file_is_told_at_once() {
    let place = Place::new();
    let at = no_files(&place.path(""));
    let (module, replay) = (small_module(), place.small_replay());
    let registry = place.path("registry").display().to_string();
    let snapshot = place.path("a.snapshot").display().to_string();
    let made = place.run(&[&module, "--timer", &replay]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert_eq!(place.run(&["cache", "snapshot", &snapshot]).code, 0);
    let capture = "tests/data/xplane/autotune6x5.xplane.pb.gz";
    let (names, dump) = (place.file("names.json", "[]"), place.file("dump.npy", ""));
    fs::create_dir_all(&registry).unwrap();
    let header = "{\"kind\":\"autotune-lowered-registry\",\"schema\":1}\n";
    fs::write(Path::new(&registry).join("registry.json"), header).unwrap();
    // `FILE` stands for one of these
    let commands = [
        (format!("FILE --timer {replay}"), BAD_INPUT),
        ("scan FILE".into(), BAD_INPUT),
        ("profile summary FILE".into(), BAD_INPUT),
        ("profile timings FILE".into(), BAD_INPUT),
        (format!("profile summary {capture} --hlo FILE"), BAD_INPUT),
        (format!("profile mosaic FILE --names {names} --grid 1,1,1 --block 128,1,1"), BAD_INPUT),
        (format!("profile mosaic {dump} --names FILE --grid 1,1,1 --block 128,1,1"), BAD_INPUT),
        ("candidates check FILE".into(), BAD_INPUT),
        ("report FILE --out /dev/null/none.html".into(), BAD_INPUT),
        (format!("cache diff FILE {snapshot}"), BAD_INPUT),
        ("cache verify FILE".into(), BAD_INPUT),
        ("cache import --format json FILE".into(), BAD_INPUT),
        ("cache import --format ejkernel FILE".into(), BAD_INPUT),
        ("cache import --format tokamax FILE".into(), BAD_INPUT),
        (format!("cache sign {snapshot} --key FILE"), BAD_INPUT),
        (format!("cache verify {snapshot} --key FILE"), BAD_INPUT),
        (format!("registry add {registry} FILE"), BAD_INPUT),
        (format!("{module} --timer replay:FILE"), BAD_INPUT),
        ("measure FILE --timer command:false".into(), BAD_INPUT),
        ("measure tests/data/timer/add.mlir --timer pjrt --plugin FILE".into(), DEVICE_TROUBLE),
    ];
    // a folder may be valid here, and empty
    let folders = [("cache import --format ejkernel", NOTHING_MATCHED)];
    let folders = folders.into_iter().chain([("cache import --format tokamax", NOTHING_MATCHED)]);
    let of_folder: Vec<(&str, i32)> = folders.collect();
    let mut wrong = Vec::new();
    for (command, code) in &commands {
        for kind in NO_FILES {
            let words = command.replace("FILE", &at.join(kind).display().to_string());
            let words: Vec<&str> = words.split(' ').collect();
            let run = run_bounded(&place, &at.join("growing"), &words);
            let other = of_folder.iter().find(|(start, _)| kind == "folder" && command.starts_with(start));
            let code = other.map_or(*code, |(_, code)| *code);
            let lines = run.stderr.lines().filter(|line| line.starts_with("autotune-lowered: ")).count();
            if run.code != code || lines != usize::from(code != 0) || run.stderr.contains("panicked") {
                wrong.push(format!("{command} {kind}: {} for {code}: {}{}", run.code, run.stdout, run.stderr));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The files of a cache folder belong to the program: it accepts nothing else in their place, least of all a link.
#[test]
fn what_is_no_file_of_a_cache_is_told_at_once() {
    let place = Place::new();
    let at = no_files(&place.path(""));
    let (module, replay) = (small_module(), place.small_replay());
    let made = place.run(&[&module, "--timer", &replay]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let cache = place.path("cache");
    let folder = cache.display().to_string();
    let through = place.path("through");
    std::os::unix::fs::symlink("cache", &through).unwrap();
    let through = through.display().to_string();
    assert_eq!(place.run(&["cache", "ls", "--cache", &through]).code, 0, "the folder itself may be reached by a link");
    let ls = ["cache", "ls", "--cache", &folder];
    let verify = ["cache", "verify", &folder];
    let mut wrong = Vec::new();
    for name in ["samples-v1.log", "sled-v1.state", "lock", "selftest-v1.json"] {
        let (own, kept) = (cache.join(name), place.path("kept"));
        let was_there = fs::rename(&own, &kept).is_ok();
        let link = was_there.then_some("link");
        for kind in ["zero", "fifo", "growing", "folder", "large"].into_iter().chain(link) {
            // a log may have any size: it is read record by record
            if (name, kind) == ("samples-v1.log", "large") {
                continue;
            }
            let target = if kind == "link" { kept.clone() } else { at.join(kind) };
            let links = ["zero", "growing", "link"].contains(&kind);
            match kind {
                "fifo" => assert!(Command::new("mkfifo").arg(&own).status().unwrap().success()),
                "folder" => fs::create_dir(&own).unwrap(),
                "large" => fs::File::create(&own).unwrap().set_len(1 << 40).unwrap(),
                _ => std::os::unix::fs::symlink(&target, &own).unwrap(),
            }
            for command in [&ls[..], &verify[..], &[&module, "--timer", &replay, "--cache", &folder][..]] {
                let run = run_bounded(&place, &at.join("growing"), command);
                let said = format!("{}{}", run.stdout, run.stderr);
                // the first reader reports it; what can be repaired is, and reading it needs no lock
                let is_due = links && command[1] == "ls" && !name.starts_with("selftest");
                let tells_link = !is_due || said.contains("it is a symbolic link");
                if ![0, 1, BAD_INPUT, CACHE_TROUBLE].contains(&run.code) || said.contains("panicked") || !tells_link {
                    wrong.push(format!("{name} {kind} {}: {}: {said}", command[1], run.code));
                }
            }
            match kind {
                _ if fs::symlink_metadata(&own).is_err() => {}
                "folder" => fs::remove_dir_all(&own).unwrap(),
                _ => fs::remove_file(&own).unwrap(),
            }
        }
        if was_there {
            fs::rename(&kept, &own).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
