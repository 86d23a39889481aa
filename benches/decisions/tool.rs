//! Running the tool, and its workers, as a user would.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use autotune_lowered::timer::WorkerLimits;
use autotune_lowered::timer::pjrt::{PjrtOptions, PjrtTimer};
use serde_json::Value;
use tempfile::TempDir;

use crate::options::Options;
use crate::programs::{Module, Operation};

/// The exit code of a run that leaves a call undecided.
const SOME_FAILED: i32 = 1;

/// One run: its document and its wall time.
pub(crate) struct Run {
    pub(crate) result: Value,
    pub(crate) seconds: f64,
}

pub(crate) fn version(options: &Options) -> String {
    let said = Command::new(&options.exe).arg("--version").output().unwrap();
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

/// The flag for compiling and measuring every candidate; none for a tool without it, which always does that.
pub(crate) fn thorough(options: &Options) -> Vec<&'static str> {
    const FLAG: &str = "--thorough";
    let help = Command::new(&options.exe).arg("--help").output().unwrap();
    if String::from_utf8_lossy(&help.stdout).contains(FLAG) { vec![FLAG] } else { vec![] }
}

/// A new folder, on the disk of the work folder.
pub(crate) fn fresh_folder(options: &Options) -> TempDir {
    tempfile::Builder::new().prefix("run-").tempdir_in(&options.work).unwrap()
}

/// Tunes a module with a cache folder.
pub(crate) fn tune(options: &Options, module: &Module, cache: &Path, more: &[&str]) -> Run {
    tune_with(options, "--plugin".as_ref(), options.plugin.as_os_str(), module, cache, more)
}

/// The same with the JAX of a Python.
pub(crate) fn tune_by_jax(options: &Options, python: &Path, module: &Module, cache: &Path) -> Run {
    let mut timer = OsString::from("jax:");
    timer.push(python);
    tune_with(options, "--timer".as_ref(), &timer, module, cache, &[])
}

fn tune_with(options: &Options, by: &OsStr, what: &OsStr, module: &Module, cache: &Path, more: &[&str]) -> Run {
    let start = Instant::now();
    let mut command = Command::new(&options.exe);
    command.arg(module.path()).arg("--registry").arg(module.registry.root());
    command.arg(by).arg(what).arg("--cache").arg(cache).args(["--format", "json"]);
    let done = command.args(more).args(&options.tune).stdin(Stdio::null()).output().unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let complaint = String::from_utf8_lossy(&done.stderr);
    let has_results = matches!(done.status.code(), Some(0 | SOME_FAILED));
    assert!(has_results, "the tool ended with {}:\n{complaint}", done.status);
    Run { result: serde_json::from_slice(&done.stdout).unwrap(), seconds }
}

/// A run's result for an operation.
pub(crate) fn operation<'a>(result: &'a Value, operation: &Operation) -> &'a Value {
    let said = result["operations"].as_array().unwrap();
    said.iter().find(|said| said["call_key"] == *operation.invocation.call.call_key).unwrap()
}

/// Keeps a run's document for later questions.
pub(crate) fn keep(options: &Options, name: &str, result: &Value) {
    let folder = options.work.join("runs");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{name}.json")), result.to_string()).unwrap();
}

/// Copies another folder's executables into a fresh cache folder: they are kept in folders of that name.
pub(crate) fn copy_executables(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with("executables") {
            copy_folder(&entry.path(), &to.join(entry.file_name()));
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// The same timer as the tool's.
pub(crate) fn timer(options: &Options, executables: &Path) -> PjrtTimer {
    let limits = WorkerLimits::default().compile(Duration::from_secs(120));
    let options = PjrtOptions::new(&options.exe, &options.plugin, executables).compile_jobs(Some(1)).limits(limits);
    PjrtTimer::start(&options).unwrap()
}
