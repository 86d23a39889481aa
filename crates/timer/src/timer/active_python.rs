//! The Python environment in which the user's programs run.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a `python3` to report its package folders.
const PYTHON_LIMIT: Duration = Duration::from_secs(10);

/// A Python and the folders of its packages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActivePython {
    /// The interpreter.
    pub python: PathBuf,
    /// The folders of its packages, including the user's own if they are on its path.
    pub site_packages: Vec<PathBuf>,
}

impl ActivePython {
    /// The one of this process's environment: of `VIRTUAL_ENV`, else `CONDA_PREFIX`, else the `python3` on `PATH`.
    ///
    /// Relative folders in these variables are skipped, since anyone who can write into the current folder could have
    /// their own Python run; so are missing folders.
    pub fn find() -> Option<Self> {
        Self::of(|name| std::env::var_os(name))
    }

    /// The same with other variables.
    pub(super) fn of(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        Self::of_asking(variable, |python| ask(python, PYTHON_LIMIT).unwrap_or_default())
    }

    fn of_asking(variable: impl Fn(&str) -> Option<OsString>, ask: impl Fn(&Path) -> Vec<PathBuf>) -> Option<Self> {
        for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
            let prefix = variable(name).map(PathBuf::from).filter(|prefix| prefix.is_absolute() && prefix.is_dir());
            if let Some(prefix) = prefix {
                let own = Self { python: prefix.join("bin/python"), site_packages: site_packages_under(&prefix) };
                return Some(if own.has_jax() { own } else { own.asked(ask) });
            }
        }
        let python = on_path(&variable("PATH")?, "python3")?;
        Some(Self { python, site_packages: Vec::new() }.asked(ask))
    }

    /// Adds the folders that the interpreter reports: the user's own, and those of the base interpreter of an
    /// environment made with `--system-site-packages`.
    fn asked(mut self, ask: impl Fn(&Path) -> Vec<PathBuf>) -> Self {
        for folder in ask(&self.python) {
            if !self.site_packages.contains(&folder) {
                self.site_packages.push(folder);
            }
        }
        self
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

/// A folder's entries, sorted by name; empty if it cannot be read.
pub(super) fn sorted_entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// Prints the package folders in the order in which a program's imports search them. `-I` isolates this process from
/// the current folder and from Python's variables. It also removes the user's own folder, which is therefore printed
/// separately, if the interpreter's own packages are on the path.
const QUESTION: &str = "
import os, site, sys
base = set(site.getsitepackages([sys.base_prefix])) & set(sys.path)
if not os.environ.get('PYTHONNOUSERSITE') and (base or sys.prefix == sys.base_prefix):
    print(site.getusersitepackages())
print(*(folder for folder in sys.path if folder.endswith('-packages')), sep='\\n')
";

/// Queries a Python for its folders and gives up after `limit`.
fn ask(python: &Path, limit: Duration) -> io::Result<Vec<PathBuf>> {
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
        // a few paths fit into a pipe's buffer, so the process cannot block on our reading
        stdout.take(1 << 16).read_to_string(&mut text)?;
    }
    Ok(folders(&text))
}

/// The existing folders; a relative one would be in the current folder.
fn folders(text: &str) -> Vec<PathBuf> {
    text.lines().map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir()).collect()
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
    fn jax_of_the_users_own_folder_and_of_the_interpreter_below_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (user, prefix) = (folder.path().join("user"), folder.path().join("venv"));
        environment(&user, &["jax", "jaxlib"]);
        environment(&prefix, &["numpy"]);
        let at = |prefix: &Path| prefix.join("lib/python3.11/site-packages");
        // nothing in the current folder is trusted, whatever an interpreter reports
        let answer = format!("{}\n{}\nsrc\n.\n\n", at(&user).display(), at(&prefix).display());
        let of = |prefix: &Path, answer: &str| {
            let variable = |name: &str| (name == "VIRTUAL_ENV").then(|| prefix.into());
            ActivePython::of_asking(variable, |_| folders(answer)).unwrap()
        };
        let found = of(&prefix, &answer);
        assert!(found.has_jax());
        assert_eq!(found.site_packages, [at(&prefix), at(&user)]);
        assert!(!of(&prefix, "").has_jax());
        assert_eq!(of(&user, &answer).site_packages, [at(&user)], "it is not asked where its own files tell");
    }

    #[test]
    fn nothing_of_the_current_folder_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("python3");
        fs::write(&here, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&here, fs::Permissions::from_mode(0o755)).unwrap();
        // empty and relative parts mean the current folder
        for path in ["", ".", "bin:", "::", "./bin:../bin"] {
            assert_eq!(on_path(OsStr::new(path), "python3"), None, "{path}");
        }
        let path = format!(".:{}", folder.path().display());
        assert_eq!(on_path(OsStr::new(&path), "python3"), Some(here));
        let relative = ActivePython::of(|name| (name == "VIRTUAL_ENV").then(|| ".venv".into()));
        assert_eq!(relative, None);
    }
}
