//! Finds PJRT plugins: named by the user or the environment, or installed in the active Python environment.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, FailureKind};
use crate::outside_file;
use crate::timer::active_python::{ActivePython, sorted_entries};

/// Largest plugin that is accepted; vendors' plugins have half a gigabyte.
pub(crate) const MAX_PLUGIN_BYTES: u64 = 8 << 30;

/// Packages in which plugins are registered; JAX searches the same.
const NAMESPACES: [&str; 2] = ["xla_plugins", "jax_plugins"];

/// A plugin that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPlugin {
    /// Its name: the package's, or the one given in `PJRT_NAMES_AND_LIBRARY_PATHS`.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// What named it: `--plugin`, a variable, or a folder.
    pub origin: String,
}

/// Finds plugins in order of preference: `given` (`--plugin`), then `PJRT_NAMES_AND_LIBRARY_PATHS`,
/// `PJRT_PLUGIN_LIBRARY_PATH`, then `xla_plugins` and `jax_plugins` of the active Python environment. `name` keeps
/// those whose name contains it. If there is none, the error says how to get one.
///
/// # Errors
///
/// If there is no plugin, or if a named one does not exist.
pub fn discover(given: Option<&Path>, name: Option<&str>) -> Result<Vec<FoundPlugin>, Failure> {
    discover_in(given, name, |variable| std::env::var_os(variable))
}

/// Why a plugin's path without a regular file is wrong.
fn why_no_file(path: &Path) -> &'static str {
    if path.exists() { "not a regular file, so not a plugin" } else { "no such plugin file" }
}

fn discover_in(
    given: Option<&Path>,
    name: Option<&str>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<FoundPlugin>, Failure> {
    let failure = |message: String| Failure::new(FailureKind::Device, message);
    if let Some(path) = given {
        if !path.is_file() {
            return Err(failure(format!("{}: {}; check the path", path.display(), why_no_file(path))));
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        return Ok(vec![FoundPlugin { name, path: path.to_owned(), origin: "--plugin".to_owned() }]);
    }
    let mut found = Vec::new();
    for (name, path, origin) in named_in_variables(&variable)? {
        if !path.is_file() {
            let (path, why) = (path.display(), why_no_file(&path));
            return Err(failure(format!("{path}: {why}, though {origin} names it; correct it")));
        }
        found.push(FoundPlugin { name, path, origin: origin.to_owned() });
    }
    if let Some(python) = ActivePython::of(&variable) {
        found.extend(installed_in(&python));
    }
    let mut seen = BTreeSet::new();
    found.retain(|plugin| seen.insert(plugin.path.clone()));
    let all: Vec<String> = found.iter().map(|plugin| plugin.name.clone()).collect();
    found.retain(|plugin| name.is_none_or(|name| plugin.name.contains(name)));
    match (found.is_empty(), all.is_empty()) {
        (false, _) => Ok(found),
        (true, true) => Err(failure(
            "no PJRT plugin: name one with `--plugin PATH`, or install one where Python finds it \
             (`pip install xla-cpu-pjrt` for this CPU)"
                .to_owned(),
        )),
        (true, false) => Err(failure(format!(
            "no PJRT plugin with `{}` in its name, only: {}",
            name.unwrap_or_default(),
            all.join(", ")
        ))),
    }
}

/// `PJRT_NAMES_AND_LIBRARY_PATHS=name:path,name:path`, as JAX reads it, and `PJRT_PLUGIN_LIBRARY_PATH=path`.
fn named_in_variables(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(String, PathBuf, &'static str)>, Failure> {
    const NAMED: &str = "PJRT_NAMES_AND_LIBRARY_PATHS";
    const SINGLE: &str = "PJRT_PLUGIN_LIBRARY_PATH";
    let mut found = Vec::new();
    let value = variable(NAMED).unwrap_or_default();
    for entry in value.to_string_lossy().split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, path) = entry.split_once(':').ok_or_else(|| {
            Failure::new(FailureKind::Device, format!("`{entry}` in {NAMED} is not of the form `name:path`"))
        })?;
        found.push((name.to_owned(), PathBuf::from(path), NAMED));
    }
    if let Some(path) = variable(SINGLE).filter(|value| !value.is_empty()).map(PathBuf::from) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        found.push((name, path, SINGLE));
    }
    Ok(found)
}

/// The plugins installed in a Python environment. libtpu comes last, because most machines that have it can only
/// compile with it.
pub(crate) fn installed_in(python: &ActivePython) -> Vec<FoundPlugin> {
    let mut found = Vec::new();
    let announced = python.site_packages.iter().flat_map(|folder| NAMESPACES.map(|namespace| folder.join(namespace)));
    let announced = announced.flat_map(|namespace| sorted_entries(&namespace));
    // a package outside these namespaces
    let libtpu = python.site_packages.iter().map(|folder| folder.join("libtpu"));
    for package in announced.chain(libtpu) {
        let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(path) = library_of(&package) {
            found.push(FoundPlugin { name, path, origin: package.display().to_string() });
        }
    }
    found
}

/// The shared library of a package that exports `GetPjrtApi`, if there is one.
fn library_of(package: &Path) -> Option<PathBuf> {
    let is_library = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "so") && path.is_file();
    sorted_entries(package).into_iter().filter(is_library).find(|path| names_the_entry_point(path))
}

/// Whether a file contains the entry point's name, read in blocks that overlap by the name's length.
fn names_the_entry_point(path: &Path) -> bool {
    const NAME: &[u8] = b"GetPjrtApi\0";
    let Ok(mut file) = outside_file::open(path, MAX_PLUGIN_BYTES) else { return false };
    let finder = memchr::memmem::Finder::new(NAME);
    let mut block = vec![0_u8; 1 << 20];
    let mut kept = 0;
    loop {
        let read = match file.read(block.get_mut(kept..).unwrap_or_default()) {
            Ok(0) => return false,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return false,
        };
        let filled = kept + read;
        if finder.find(block.get(..filled).unwrap_or_default()).is_some() {
            return true;
        }
        kept = filled.min(NAME.len() - 1);
        block.copy_within(filled - kept..filled, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::ffi::OsStr;
    use std::fs;

    fn variables<'a>(pairs: &'a [(&'a str, &'a OsStr)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |wanted| pairs.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
    }

    fn environment() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("lib/python3.11/site-packages");
        for (package, file, bytes) in [
            ("xla_plugins/b_cpu", "b.so", &b"..GetPjrtApi\0.."[..]),
            ("jax_plugins/a_gpu", "a.so", b"\0GetPjrtApi\0"),
            ("jax_plugins/none", "none.so", b"GetPjrtApis"),
            ("libtpu", "libtpu.so", b"GetPjrtApi\0"),
        ] {
            fs::create_dir_all(packages.join(package)).unwrap();
            fs::write(packages.join(package).join(file), bytes).unwrap();
        }
        folder
    }

    #[test]
    fn what_is_there_and_no_file_is_not_reported_as_missing() {
        let folder = environment();
        let missing = folder.path().join("missing.so");
        let zero = folder.path().join("zero.so");
        std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
        let message_of = |given: Option<&Path>, pairs: &[(&str, &OsStr)]| {
            discover_in(given, None, variables(pairs)).unwrap_err().to_string()
        };
        for path in [folder.path(), zero.as_path()] {
            assert!(message_of(Some(path), &[]).contains("not a regular file"), "{path:?}");
            let named = message_of(None, &[("PJRT_PLUGIN_LIBRARY_PATH", path.as_os_str())]);
            assert!(named.contains("not a regular file") && named.contains("PJRT_PLUGIN_LIBRARY_PATH"), "{named}");
        }
        assert!(message_of(Some(&missing), &[]).contains("no such plugin file"));
    }

    #[test]
    fn the_order_of_preference() {
        let folder = environment();
        let (one, two) = (folder.path().join("one.so"), folder.path().join("two.so"));
        fs::write(&one, b"").unwrap();
        fs::write(&two, b"").unwrap();
        let named = format!("first:{}", one.display());
        let pairs = [
            ("PJRT_NAMES_AND_LIBRARY_PATHS", OsStr::new(&named)),
            ("PJRT_PLUGIN_LIBRARY_PATH", two.as_os_str()),
            ("VIRTUAL_ENV", folder.path().as_os_str()),
        ];
        let names = |given, name| {
            let found = discover_in(given, name, variables(&pairs)).unwrap();
            found.into_iter().map(|plugin| plugin.name).collect::<Vec<_>>()
        };
        assert_eq!(names(None, None), ["first", "two", "b_cpu", "a_gpu", "libtpu"]);
        assert_eq!(names(None, Some("tpu")), ["libtpu"]);
        assert_eq!(names(None, Some("gpu")), ["a_gpu"]);
        assert_eq!(names(Some(&two), None), ["two"]);
    }

    #[test]
    fn what_is_missing_is_an_error() {
        let folder = environment();
        let message = |pairs: &[(&str, &OsStr)], name| discover_in(None, name, variables(pairs)).unwrap_err().message;
        assert!(message(&[], None).contains("pip install xla-cpu-pjrt"));
        let pairs = [("VIRTUAL_ENV", folder.path().as_os_str())];
        assert_eq!(message(&pairs, Some("rocm")), "no PJRT plugin with `rocm` in its name, only: b_cpu, a_gpu, libtpu");
        assert!(message(&[("PJRT_NAMES_AND_LIBRARY_PATHS", OsStr::new("x"))], None).contains("name:path"));
        assert!(message(&[("PJRT_PLUGIN_LIBRARY_PATH", OsStr::new("/no/x.so"))], None).contains("/no/x.so"));
        assert!(discover_in(Some(Path::new("/no/y.so")), None, variables(&[])).is_err());
    }

    #[test]
    fn a_name_across_two_blocks_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.so");
        for before in [(1 << 20) - 12, (1 << 20) - 5, (1 << 20) - 1, 1 << 20] {
            let bytes = [vec![b'.'; before], b"GetPjrtApi\0".to_vec(), vec![b'.'; 100]].concat();
            fs::write(&path, &bytes).unwrap();
            assert!(names_the_entry_point(&path), "{before}");
            fs::write(&path, &bytes[..before + 10]).unwrap();
            assert!(!names_the_entry_point(&path), "{before}");
        }
    }
}
