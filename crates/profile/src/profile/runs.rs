//! The runs of a log folder, at any depth.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use super::error::{ProfileError, ProfileErrorKind};
use super::run_order::newest_last;

/// Maximum nesting of folders.
const MAX_DEPTH: usize = 12;

/// Maximum number of folders examined, more than in any log folder.
const MAX_FOLDERS: usize = 100_000;

/// A run: a folder of captures.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaptureRun {
    /// Its folder below the log folder, without `plugins/profile`; `.` for the log folder itself.
    pub name: String,
    /// One capture per host, by name.
    pub files: Vec<CaptureFile>,
}

/// A capture that is not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaptureFile {
    /// The host, by the file's name: `<host>.xplane.pb`.
    pub host: String,
    /// Its path.
    pub path: PathBuf,
    /// Its size, compressed or not.
    pub bytes: u64,
    /// When it was last written, if the file system reports it.
    pub written_at: Option<SystemTime>,
}

impl CaptureRun {
    /// When its last capture was written.
    pub(super) fn written_at(&self) -> Option<SystemTime> {
        self.files.iter().filter_map(|file| file.written_at).max()
    }

    /// Its folder; empty if it has no capture.
    pub(super) fn folder(&self) -> &Path {
        self.files.first().and_then(|file| file.path.parent()).unwrap_or(Path::new(""))
    }

    #[cfg(test)]
    pub(super) fn of_hosts(name: &str, hosts: &[&str]) -> Self {
        let file = |host: &&str| capture_file(Path::new(name).join(format!("{host}.xplane.pb")));
        Self { name: name.to_owned(), files: hosts.iter().map(file).collect() }
    }
}

/// The runs below a log folder, the newest last: by the time or the numbers in their names, or where names differ in
/// form, by when they were written. Hidden folders, and those that cannot be read, are left out.
///
/// # Errors
/// If the folder cannot be read, or holds no capture.
pub fn capture_runs(folder: &Path) -> Result<Vec<CaptureRun>, ProfileError> {
    let error = |kind| ProfileError::new(folder.display().to_string(), kind);
    fs::read_dir(folder).map_err(|io| error(io.into()))?;
    let mut runs = Vec::new();
    let (mut open, mut seen) = (vec![(folder.to_owned(), 0)], HashSet::new());
    while let Some((inside, depth)) = open.pop() {
        if seen.len() >= MAX_FOLDERS {
            return Err(error(ProfileErrorKind::TooManyFolders { limit: MAX_FOLDERS }));
        }
        // links may lead in circles
        if !seen.insert(fs::canonicalize(&inside).unwrap_or_else(|_| inside.clone())) {
            continue;
        }
        let paths = captures_in(&inside).unwrap_or_default();
        if !paths.is_empty() {
            let name = run_name(inside.strip_prefix(folder).unwrap_or(&inside));
            runs.push(CaptureRun { name, files: paths.into_iter().map(capture_file).collect() });
        }
        if depth < MAX_DEPTH {
            let items = fs::read_dir(&inside).into_iter().flatten().flatten();
            // a capture in progress is in a hidden folder
            let folders = items.filter(|item| {
                let is_hidden = item.file_name().as_encoded_bytes().starts_with(b".");
                !is_hidden && item.path().is_dir()
            });
            open.extend(folders.map(|item| (item.path(), depth + 1)));
        }
    }
    if runs.is_empty() {
        return Err(error(ProfileErrorKind::NoCapture));
    }
    Ok(newest_last(runs, |run| &run.name, CaptureRun::written_at))
}

/// The host of a capture, by the file's name.
pub(super) fn host_of(file: &Path) -> String {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.strip_suffix(".xplane.pb").unwrap_or(name).to_owned()
}

/// The captures in a folder, by name.
pub(super) fn captures_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?
        .filter_map(|item| Some(item.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            (name.ends_with(".xplane.pb") || name.ends_with(".xplane.pb.gz")) && path.is_file()
        })
        .collect();
    files.sort();
    Ok(files)
}

fn run_name(below: &Path) -> String {
    let mut parts: Vec<String> = below
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if let Some(place) = parts.windows(2).position(|pair| pair == ["plugins", "profile"]) {
        parts.drain(place..place + 2);
    }
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

fn capture_file(path: PathBuf) -> CaptureFile {
    let metadata = fs::metadata(&path).ok();
    CaptureFile {
        host: host_of(&path),
        bytes: metadata.as_ref().map_or(0, fs::Metadata::len),
        written_at: metadata.and_then(|metadata| metadata.modified().ok()),
        path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_wherever_they_are_and_the_newest_is_last() {
        let folder = tempfile::tempdir().unwrap();
        for (run, file, written) in [
            ("plugins/profile/step_10", "a.xplane.pb", 1),
            ("plugins/profile/step_10", "b.xplane.pb.gz", 7),
            ("plugins/profile/step_9", "a.xplane.pb", 6),
            ("train/plugins/profile/2025_02", "c.xplane.pb", 5),
            ("2025_01/deep", "d.xplane.pb", 8),
            (".", "own.xplane.pb", 5),
            ("plugins/profile/2025_04", "trace.json.gz", 9),
            (".capturing", "half.xplane.pb", 9),
        ] {
            fs::create_dir_all(folder.path().join(run)).unwrap();
            let path = folder.path().join(run).join(file);
            fs::write(&path, [1, 2, 3]).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(written);
            fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        }
        std::os::unix::fs::symlink(folder.path(), folder.path().join("loop")).unwrap();
        let runs = capture_runs(folder.path()).unwrap();
        let shown: Vec<_> = runs
            .iter()
            .map(|run| (run.name.as_str(), run.files.iter().map(|file| file.host.as_str()).collect::<Vec<_>>()))
            .collect();
        let expected = [
            (".", vec!["own"]),
            ("train/2025_02", vec!["c"]),
            ("step_9", vec!["a"]),
            ("step_10", vec!["a", "b"]),
            ("2025_01/deep", vec!["d"]),
        ];
        assert_eq!(shown, expected);
        assert!(runs.iter().flat_map(|run| &run.files).all(|file| file.bytes == 3 && file.written_at.is_some()));
    }

    #[test]
    fn a_folder_without_captures_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(capture_runs(folder.path()).unwrap_err().kind, ProfileErrorKind::NoCapture));
        let none = capture_runs(&folder.path().join("none")).unwrap_err();
        assert!(matches!(none.kind, ProfileErrorKind::Unreadable(_)));
    }
}
