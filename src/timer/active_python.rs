//! The Python environment in which the user's programs run.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest that a `python3` may take to say where its packages are.
const PYTHON_LIMIT: Duration = Duration::from_secs(10);

/// A Python and the folders of its packages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActivePython {
    /// The interpreter.
    pub python: PathBuf,
    /// Its `site-packages` folders.
    pub site_packages: Vec<PathBuf>,
}

impl ActivePython {
    /// The one of this process's environment: of `VIRTUAL_ENV`, else `CONDA_PREFIX`, else the `python3` on `PATH`.
    ///
    /// Relative folders in these variables are skipped, since whoever can write into the current folder could have their own
    /// Python run; so are those that are not there.
    pub fn find() -> Option<Self> {
        Self::of(|name| std::env::var_os(name))
    }

    /// The same with other variables.
    pub(super) fn of(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
            let prefix = variable(name).map(PathBuf::from).filter(|prefix| prefix.is_absolute() && prefix.is_dir());
            if let Some(prefix) = prefix {
                return Some(Self { python: prefix.join("bin/python"), site_packages: site_packages_under(&prefix) });
            }
        }
        let python = on_path(&variable("PATH")?, "python3")?;
        let site_packages = ask(&python, PYTHON_LIMIT).unwrap_or_default();
        Some(Self { python, site_packages })
    }

    /// Whether JAX is installed in it.
    pub fn has_jax(&self) -> bool {
        let is_there =
            |package: &str| self.site_packages.iter().any(|folder| folder.join(package).join("__init__.py").is_file());
        self.python.is_file() && is_there("jax") && is_there("jaxlib")
    }
}

/// A program in the absolute folders of `path`.
fn on_path(path: &OsStr, program: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn site_packages_under(prefix: &Path) -> Vec<PathBuf> {
    sorted_entries(&prefix.join("lib"))
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python")))
        .map(|path| path.join("site-packages"))
        .filter(|path| path.is_dir())
        .collect()
}

/// What lies in a folder, by name; nothing where it cannot be read.
pub(super) fn sorted_entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// Asks a Python for its folders and gives up after `limit`.
fn ask(python: &Path, limit: Duration) -> io::Result<Vec<PathBuf>> {
    const QUESTION: &str = "import sysconfig;print(sysconfig.get_path('purelib'));print(sysconfig.get_path('platlib'))";
    let mut child = Command::new(python)
        .args(["-I", "-c", QUESTION])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut text = String::new();
    if let Some(stdout) = child.stdout.take() {
        // two paths fit a pipe's buffer: nothing waited for us to read
        stdout.take(1 << 16).read_to_string(&mut text)?;
    }
    let mut folders: Vec<PathBuf> = text.lines().map(PathBuf::from).filter(|path| path.is_dir()).collect();
    folders.dedup();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::PermissionsExt;

    fn environment(folder: &Path, packages: &[&str]) {
        for package in packages {
            let package = folder.join("lib/python3.11/site-packages").join(package);
            fs::create_dir_all(&package).unwrap();
            fs::write(package.join("__init__.py"), "").unwrap();
        }
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/python"), "").unwrap();
    }

    #[test]
    fn jax_is_there_with_its_library() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, packages: &[&str]| {
            let prefix = folder.path().join(name);
            environment(&prefix, packages);
            ActivePython::of(|variable| (variable == "VIRTUAL_ENV").then(|| prefix.clone().into())).unwrap()
        };
        assert!(of("both", &["jax", "jaxlib"]).has_jax());
        assert!(!of("half", &["jax"]).has_jax());
        assert!(!of("none", &["numpy"]).has_jax());
    }

    #[test]
    fn nothing_of_the_current_folder_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("python3");
        fs::write(&here, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&here, fs::Permissions::from_mode(0o755)).unwrap();
        // empty and relative parts stand for the current folder
        for path in ["", ".", "bin:", "::", "./bin:../bin"] {
            assert_eq!(on_path(OsStr::new(path), "python3"), None, "{path}");
        }
        let path = format!(".:{}", folder.path().display());
        assert_eq!(on_path(OsStr::new(&path), "python3"), Some(here));
        let relative = ActivePython::of(|name| (name == "VIRTUAL_ENV").then(|| ".venv".into()));
        assert_eq!(relative, None);
    }
}
