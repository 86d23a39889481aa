//! Atomic file writes: written under a temporary name, synced, renamed.
//!
//! The writer holds an exclusive `flock` on its unfinished file or folder, so one that nobody holds was left by a
//! killed process. Whoever writes large files into a folder of the user removes those first.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use tempfile::NamedTempFile;

use crate::mapped_file::is_local;

/// How the names of unfinished files and folders begin. Readers of folders ignore all that begin with `.tmp`.
const UNFINISHED: &str = ".tmp-locked-";
/// How many letters and digits follow.
const RANDOM: usize = 6;

/// Writes the output of `write` to a file, and syncs its folder; missing folders are created.
///
/// # Errors
/// If it cannot be written, or `write` fails; then the old file is intact.
pub fn write_atomic<T>(path: &Path, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    // the umask applies, so that whoever may read the folder's other files may read this one
    write_with_mode(path, 0o666, write)
}

/// The same for a file that only its owner may read.
pub(crate) fn write_private<T>(path: &Path, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    write_with_mode(path, 0o600, write)
}

fn write_with_mode<T>(path: &Path, mode: u32, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let folder = folder_of(path);
    fs::create_dir_all(folder)?;
    let mut temporary = unfinished_file(folder, mode)?;
    let result = write(temporary.as_file_mut())?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    match File::open(folder)?.sync_all() {
        // some network file systems have no sync for folders
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        _ => Ok(result),
    }
}

/// The folder of a file.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file in a folder, to be renamed when it is written.
///
/// # Errors
/// If it cannot be made.
pub fn unfinished_file(folder: &Path, mode: u32) -> io::Result<NamedTempFile> {
    // opened here, because the crate's own error would hide the system's error code, which determines what to do
    let open = |path: &Path| File::options().read(true).write(true).create_new(true).mode(mode).open(path);
    loop {
        let file = tempfile::Builder::new().prefix(UNFINISHED).rand_bytes(RANDOM).make_in(folder, open)?;
        if hold(file.as_file())? {
            return Ok(file);
        }
    }
}

/// A folder of unfinished files.
///
/// Field order matters: the folder is removed before its lock is released.
#[derive(Debug)]
pub struct UnfinishedFolder {
    folder: tempfile::TempDir,
    _lock: File,
}

impl UnfinishedFolder {
    /// # Errors
    /// If it cannot be made.
    pub fn new_in(folder: &Path) -> io::Result<Self> {
        loop {
            let folder = tempfile::Builder::new().prefix(UNFINISHED).rand_bytes(RANDOM).tempdir_in(folder)?;
            let lock = File::open(folder.path())?;
            if hold(&lock)? {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Locks what was just made, where other processes see the lock; `false` if one of them removed it before.
fn hold(made: &File) -> io::Result<bool> {
    if !is_local(made) {
        return Ok(true);
    }
    flock(made, FlockOperation::LockExclusive)?;
    Ok(made.metadata()?.nlink() > 0)
}

/// Removes what killed processes of this user left unfinished in a folder. One that remains only costs its bytes.
pub fn remove_unfinished(folder: &Path) {
    for item in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = item.file_name();
        let random = name.to_str().and_then(|name| name.strip_prefix(UNFINISHED));
        if random.is_some_and(|random| random.len() == RANDOM && random.bytes().all(|b| b.is_ascii_alphanumeric())) {
            let _ = remove_if_left(&item.path());
        }
    }
}

fn remove_if_left(path: &Path) -> io::Result<()> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let left = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = left.metadata()?;
    if metadata.uid() != rustix::process::geteuid().as_raw() || !is_local(&left) {
        return Ok(());
    }
    flock(&left, FlockOperation::NonBlockingLockExclusive)?;
    match () {
        () if metadata.is_dir() => fs::remove_dir_all(path),
        () if metadata.is_file() => fs::remove_file(path),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file");
        write_atomic(&path, |file| file.write_all(b"one")).unwrap();
        let failed = write_atomic(&path, |file| {
            file.write_all(b"two")?;
            Err::<(), _>(io::Error::other("planted"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "planted");
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(write_atomic(&path, |file| file.write_all(b"three").map(|()| 3)).unwrap(), 3);
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn only_what_nobody_holds_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let file = unfinished_file(folder.path(), 0o666).unwrap();
        // as killed processes leave them
        fs::write(path(".tmp-locked-aB3dE6"), b"half").unwrap();
        fs::create_dir_all(path(".tmp-locked-aB3dE7/inner")).unwrap();
        // others' files, and links
        let others = [".tmp-locked-notes", ".tmp-locked-aB3d.6", ".tmp-aB3dE6", ".tmp", "best.snapshot"];
        others.iter().for_each(|name| fs::write(path(name), b"mine").unwrap());
        std::os::unix::fs::symlink(path("best.snapshot"), path(".tmp-locked-aB3dE8")).unwrap();
        remove_unfinished(folder.path());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected: Vec<String> = others.iter().map(|name| (*name).to_owned()).collect();
        expected.extend([name(file.path()), ".tmp-locked-aB3dE8".to_owned()]);
        expected.sort();
        let mut found: Vec<String> =
            fs::read_dir(folder.path()).unwrap().map(|item| name(&item.unwrap().path())).collect();
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_held_folder_stays() {
        let folder = tempfile::tempdir().unwrap();
        let held = UnfinishedFolder::new_in(folder.path()).unwrap();
        fs::write(held.path().join("inner"), b"half").unwrap();
        remove_unfinished(folder.path());
        assert_eq!(fs::read(held.path().join("inner")).unwrap(), b"half");
        let UnfinishedFolder { folder: left, _lock: lock } = held;
        let left = left.keep();
        drop(lock);
        remove_unfinished(folder.path());
        assert!(!left.exists());
    }

    #[test]
    fn what_was_removed_before_it_was_held_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let made = File::create_new(folder.path().join("made")).unwrap();
        assert!(hold(&made).unwrap());
        fs::remove_file(folder.path().join("made")).unwrap();
        assert!(!hold(&made).unwrap());
    }
}
