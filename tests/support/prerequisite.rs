//! Prerequisites of tests outside this repository. If one is missing, the test prints that and asserts nothing; if CI
//! promised it (`AUTOTUNE_LOWERED_TESTS=all`), the test fails.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Who provides a prerequisite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promised {
    /// `.ci/run` installs it.
    ByCi,
    /// Data that is not committed, or hardware.
    ByNobody,
}

/// The prerequisite; `None`, with the reason printed, if it is missing.
///
/// # Panics
/// If CI promised it, and `AUTOTUNE_LOWERED_TESTS=all` says that such prerequisites are present.
pub fn present<T>(found: Result<T, impl Display>, promised: Promised) -> Option<T> {
    let reason = match found {
        Ok(found) => return Some(found),
        Err(reason) => reason,
    };
    let is_all_here = std::env::var_os("AUTOTUNE_LOWERED_TESTS").is_some_and(|tests| tests == "all");
    if is_all_here && promised == Promised::ByCi {
        panic!("AUTOTUNE_LOWERED_TESTS=all, and a prerequisite is missing: {reason}");
    }
    // bypasses the harness, which hides the output of passing tests
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", std::thread::current().name().unwrap_or("a test"));
    None
}

/// The plugins for tests: those of `AUTOTUNE_LOWERED_TEST_PLUGIN`, else the one of the active Python environment.
pub fn plugins() -> Vec<PathBuf> {
    let named = std::env::var_os("AUTOTUNE_LOWERED_TEST_PLUGIN").filter(|paths| !paths.is_empty());
    let found = match named {
        Some(paths) => Ok(std::env::split_paths(&paths).collect()),
        None => autotune_lowered::timer::pjrt::discover(None, None)
            .map(|found| found.into_iter().take(1).map(|plugin| plugin.path).collect()),
    };
    present(found, Promised::ByCi).unwrap_or_default()
}

pub fn plugin() -> Option<PathBuf> {
    plugins().into_iter().next()
}

/// The Python interpreter for workers that need no packages: what PATH has may be a script that looks for it, which
/// takes longer than the interpreter's own start.
pub fn python3() -> &'static str {
    static FOUND: LazyLock<String> = LazyLock::new(|| {
        let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        String::from_utf8(asked.expect("python3 is needed").stdout).unwrap().trim_end().to_owned()
    });
    &FOUND
}

/// The Python of the active environment, if it has these modules: as its package finder says, without an import.
pub fn python_with(modules: &str) -> Option<PathBuf> {
    let python = std::env::var_os("VIRTUAL_ENV").map(|folder| PathBuf::from(folder).join("bin/python"));
    let python = python.filter(|python| python.exists()).unwrap_or_else(|| PathBuf::from("python3"));
    let find = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))";
    let asked = Command::new(&python).args(["-c", find]).args(modules.split(", ")).output();
    let found = match asked {
        Ok(output) if output.status.success() => Ok(python),
        _ => Err(format!("`{}` has no {modules}", python.display())),
    };
    present(found, Promised::ByCi)
}

/// A file or folder of the data beside a checkout, if present.
pub fn shared_data(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(name);
    let found = path.exists().then_some(path).ok_or_else(|| format!("no `../shared/data/{name}`"));
    present(found, Promised::ByNobody)
}

/// A mounted file system, unmounted on drop.
pub struct Mount(tempfile::TempDir);

impl Mount {
    pub fn new(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["-t", "tmpfs", "-o", options, "tmpfs"];
        let mounted = Command::new("mount").args(arguments).arg(folder.path()).output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        present(is_mounted.then_some(Self(folder)).ok_or("mounting a tmpfs needs root"), Promised::ByCi)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn remount(&self, options: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.0.path()).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}
