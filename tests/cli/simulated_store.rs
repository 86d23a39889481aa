//! What a store of `compile` is believed, and what lies in it that is no file: with the SIMULATED libtpu
//! (`tests/data/targets/simulated_libtpu.c`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use crate::simulated_tpu::{Tpu, registry_of};
use crate::support::compiled_elsewhere::with_header;
use crate::support::prerequisite::plugin;
use crate::support::program::*;

const MODULE: &str = "tests/data/cli/module.mlir";

/// The kept files of a store, or of a cache folder.
fn kept(store: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(store.join("executables-v1")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "exe")).collect();
    files.sort();
    files
}

/// Status, reason and reuse of each of a call's programs.
fn outcomes(run: &Run) -> Vec<(String, String, bool)> {
    let candidates = run.json()["targets"][0]["calls"][0]["candidates"].as_array().unwrap().clone();
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    candidates.iter().map(|one| (text(one, "status"), text(one, "reason"), one["reused"] == true)).collect()
}

/// The notes on refusals.
fn notes(run: &Run) -> String {
    let notes = run.json()["targets"][0]["notes"].as_array().unwrap().clone();
    let notes: Vec<&str> = notes.iter().filter_map(Value::as_str).filter(|note| note.contains("refusal")).collect();
    notes.join("\n")
}

fn is_refusal(path: &Path) -> bool {
    let mut found = false;
    with_header(&fs::read(path).unwrap(), |header| found = header["note"]["refused"].is_string());
    found
}

/// Makes a file a refusal that nobody signed.
fn forge(path: &Path) {
    let forged = with_header(&fs::read(path).unwrap(), |header| {
        header["note"]["refused"] = "forged".into();
        header["payload_bytes"] = 0.into();
    });
    fs::write(path, forged).unwrap();
}

struct Calls {
    tpu: Tpu,
    registry: String,
}

impl Calls {
    /// Two programs that compile and one that is refused.
    fn new() -> Self {
        let tpu = Tpu::new();
        let registry = registry_of(&tpu.place, &["fine", "too large", "fine"]);
        Self { tpu, registry }
    }

    fn compile(&self, arguments: &[&str]) -> Run {
        let fixed = ["--registry", &self.registry, "--format", "json"];
        let run = self.tpu.compile(MODULE, &[&fixed, arguments].concat(), "");
        assert!([0, 7].contains(&run.code), "{} {}", run.stdout, run.stderr);
        run
    }

    fn store(&self) -> PathBuf {
        self.tpu.place.path("store")
    }
}

#[test]
fn refusals_that_no_trusted_key_signed_are_not_believed() {
    let calls = Calls::new();
    let first = calls.compile(&[]);
    let reused = |run: &Run| outcomes(run).into_iter().map(|(.., reused)| reused).collect::<Vec<_>>();
    let statuses = |run: &Run| outcomes(run).into_iter().map(|(status, ..)| status).collect::<Vec<_>>();
    assert_eq!(statuses(&first), ["compiled", "refused", "compiled"]);
    let again = calls.compile(&[]);
    assert_eq!((reused(&again), notes(&again).as_str()), (vec![true; 3], ""));
    // a refusal of an earlier version, which signed none
    let refusal = kept(&calls.store()).into_iter().find(|path| is_refusal(path)).unwrap();
    fs::remove_file(refusal.with_extension("exe.sig")).unwrap();
    let forecast = calls.compile(&["--dry-run"]);
    assert_eq!(forecast.json()["targets"][0]["forecast"]["to_compile"], 1);
    let unsigned = calls.compile(&[]);
    assert_eq!((reused(&unsigned), statuses(&unsigned)), (vec![true, false, true], statuses(&first)));
    let note = format!("1 refusal of `{}` is not believed (not signed), and its program", calls.store().display());
    assert!(notes(&unsigned).contains(&note) && notes(&unsigned).contains("`--verify-key`"), "{}", notes(&unsigned));
    assert_eq!(notes(&calls.compile(&[])), "", "it is signed now");
    // one that was edited, and two that were made of executables
    kept(&calls.store()).iter().for_each(|path| forge(path));
    let baseline = Place::new();
    copy_folder(&calls.store(), &baseline.path("store"));
    let edited = calls.compile(&[]);
    assert_eq!((reused(&edited), statuses(&edited)), (vec![false; 3], statuses(&first)));
    assert!(!edited.stdout.contains("forged"), "{}", edited.stdout);
    assert!(notes(&edited).contains("3 refusals of `") && notes(&edited).contains("(its signature is not valid)"));
    // as a baseline they are unknown, so that nothing counts as refused before
    let compared = calls.compile(&["--baseline", &baseline.text("store")]);
    let comparison = compared.json()["targets"][0]["baseline"].clone();
    assert_eq!((&comparison["compared"], &comparison["unknown"]), (&json!(0), &json!(3)), "{comparison}");
    let line = compared.stderr.lines().filter(|line| line.contains("3 refusals of `")).count();
    assert_eq!(line, 1, "{}", compared.stderr);
}

#[test]
fn the_refusals_of_others_are_believed_by_the_key_that_signed_them() {
    let calls = Calls::new();
    let place = &calls.tpu.place;
    let key = place.text("key");
    assert_eq!(place.run(&["cache", "keygen", &key]).code, 0);
    let public = format!("{key}.pub");
    calls.compile(&["--sign-key", &key]);
    let theirs = place.text("theirs");
    fs::rename(calls.store(), &theirs).unwrap();
    let reused = |run: &Run| outcomes(run).into_iter().map(|(.., reused)| reused).collect::<Vec<_>>();
    let fresh = || {
        let _ = fs::remove_dir_all(calls.store());
    };
    let unknown = calls.compile(&["--compiled", &theirs]);
    assert_eq!(reused(&unknown), [true, false, true]);
    assert!(notes(&unknown).contains("which is not trusted here"), "{}", notes(&unknown));
    fresh();
    let known = calls.compile(&["--compiled", &theirs, "--verify-key", &public]);
    assert_eq!((reused(&known), notes(&known).as_str()), (vec![true; 3], ""));
    // what was copied keeps its signature, and that of one's own key needs no other name
    assert_eq!(reused(&calls.compile(&[])), [true, false, true]);
    fresh();
    copy_folder(Path::new(&theirs), &calls.store());
    assert_eq!(reused(&calls.compile(&["--sign-key", &key])), [true; 3]);
    let compared = calls.compile(&["--baseline", &theirs, "--verify-key", &public]);
    assert_eq!(compared.json()["targets"][0]["baseline"]["compared"], 3, "{}", compared.stderr);
    let compared = calls.compile(&["--baseline", &theirs]);
    assert_eq!(compared.json()["targets"][0]["baseline"]["compared"], 2, "{}", compared.stderr);
}

/// Puts something in the place of a file.
type Put = fn(&Path, &Path);

const NO_FILES: [(&str, Put); 5] = [
    ("folder", |path, _| fs::create_dir(path).unwrap()),
    ("folder with something in it", |path, _| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("file"), "theirs").unwrap();
    }),
    ("link", |path, elsewhere| symlink(elsewhere, path).unwrap()),
    ("link to a device", |path, _| symlink("/dev/zero", path).unwrap()),
    ("pipe", |path, _| mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap()),
];

#[test]
fn what_is_no_file_in_a_store_is_said_once_and_compiled_again() {
    for (what, put) in NO_FILES {
        let calls = Calls::new();
        let first = calls.compile(&[]);
        let sound = kept(&calls.store());
        assert_eq!(sound.len(), 3);
        let elsewhere = calls.tpu.place.path("elsewhere");
        fs::copy(&sound[0], &elsewhere).unwrap();
        let before = fs::read(&elsewhere).unwrap();
        for path in &sound {
            fs::remove_file(path).unwrap();
            put(path, &elsewhere);
        }
        let again = calls.compile(&[]);
        let all = |run: &Run| outcomes(run).into_iter().map(|(status, reason, _)| (status, reason)).collect::<Vec<_>>();
        assert_eq!((again.code, all(&again)), (0, all(&first)), "{what}: {}", again.stderr);
        assert!(outcomes(&again).iter().all(|(.., reused)| !reused), "{what}");
        for path in &sound {
            let said = again.stderr.lines().filter(|line| line.contains(&*path.display().to_string())).count();
            assert_eq!(said, 1, "{what}: {}", again.stderr);
            assert!(fs::symlink_metadata(path).unwrap().is_file(), "{what}");
        }
        assert_eq!(fs::read(&elsewhere).unwrap(), before, "{what}");
        let third = calls.compile(&[]);
        assert!(outcomes(&third).iter().all(|(.., reused)| *reused) && third.stderr.is_empty(), "{}", third.stderr);
    }
}

#[test]
fn what_is_no_file_among_kept_executables_costs_no_measurement() {
    let Some(plugin) = plugin() else { return };
    let place = Place::new();
    let (module, plugin) = (small_module(), plugin.display().to_string());
    let tune = || {
        let fixed = [&*module, "--plugin", &plugin, "--thorough", "--rounds", "6", "--force", "--format", "json"];
        let run = place.run(&[&fixed, &["--only", SMALL_CALL][..]].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        let candidates = run.json()["operations"][0]["candidates"].as_array().unwrap().clone();
        assert!(candidates.iter().all(|one| one["status"] == "measured"), "{candidates:?}");
        run
    };
    tune();
    let sound = kept(&place.path("cache"));
    let (mut blocked, elsewhere) = (Vec::new(), place.path("elsewhere"));
    for (path, (_, put)) in sound.iter().zip(NO_FILES.iter().cycle()) {
        fs::remove_file(path).unwrap();
        put(path, &elsewhere);
    }
    // a folder whose place cannot be made free
    let last = sound.last().unwrap();
    let _ = fs::remove_file(last).or_else(|_| fs::remove_dir_all(last));
    for path in [last.clone(), last.with_extension("exe.aside")] {
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "theirs").unwrap();
        blocked.push(path);
    }
    let again = tune();
    for path in &sound {
        let said = again.stderr.lines().filter(|line| line.contains(&*path.display().to_string())).count();
        assert!((1..=2).contains(&said), "{}: {}", path.display(), again.stderr);
        assert_eq!(fs::symlink_metadata(path).unwrap().is_file(), path != last, "{}", path.display());
    }
    assert!(again.stderr.contains("was not kept"), "{}", again.stderr);
    assert!(blocked.iter().all(|path| path.join("file").exists()), "what somebody put there stays");
}
