//! The PJRT timer with the options of tests, and plugins of our own.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use autotune_lowered::timer::pjrt::PjrtOptions;
use tempfile::TempDir;

use super::executable::write_executable;
use super::folder::in_memory;
use super::prerequisite::plugin;

/// The first device of a plugin; the folder's `executables` keeps executables.
pub fn options(plugin: &Path, folder: &Path) -> PjrtOptions {
    PjrtOptions::new(env!("CARGO_BIN_EXE_autotune-lowered"), plugin, folder.join("executables"))
}

/// Writes the library that a file of `tests/data/pjrt` gives; each is compiled once.
pub fn build(source: &str, library: &Path) {
    static BUILT: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap();
    if let Some(bytes) = built.get(source) {
        return fs::write(library, bytes).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pjrt").join(source);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(library).arg(path).arg("-ldl");
    let output = compiler.output().expect("a C compiler, which Rust needs for linking too");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    built.insert(source.to_owned(), fs::read(library).unwrap());
}

/// A plugin whose programs run on a real one, and whose times are SIMULATED: the name of a program's module says how
/// many nanoseconds it takes (`takes_80000`).
pub struct NamedTimes {
    folder: TempDir,
    base: PathBuf,
}

impl NamedTimes {
    /// `None`, with the reason printed, if there is no plugin.
    pub fn new() -> Option<Self> {
        let named = Self { folder: in_memory(), base: plugin()? };
        build("profiled_plugin.c", &named.library());
        Some(named)
    }

    pub fn library(&self) -> PathBuf {
        self.folder.path().join("named_times.so")
    }

    /// Writes the library once more under another name, and as another build: what follows a library is not loaded.
    pub fn copy(&self, library: &Path) {
        let mut bytes = fs::read(self.library()).unwrap();
        bytes.extend(library.file_name().unwrap().as_encoded_bytes());
        fs::write(library, bytes).unwrap();
    }

    /// Writes a program that is this one and measures on any library of it.
    pub fn program(&self, path: &Path) {
        let (base, program) = (self.base.display(), env!("CARGO_BIN_EXE_autotune-lowered"));
        let variables = format!("SIMULATED_PROFILER_BASE='{base}' SIMULATED_PROFILER_MODE=named");
        write_executable(path, &format!("#!/bin/sh\n{variables} exec '{program}' \"$@\"\n"));
    }

    /// Lets a command measure on it.
    pub fn measures(&self, command: &mut Command) {
        command.arg("--plugin").arg(self.library());
        self.simulates(command);
    }

    /// Lets a command measure on any library of it that it names.
    pub fn simulates(&self, command: &mut Command) {
        command.env("SIMULATED_PROFILER_BASE", &self.base).env("SIMULATED_PROFILER_MODE", "named");
    }
}
