//! Temporary folders of a run, in the system's folder for temporary files; the next run removes those of killed runs.
//!
//! A folder is `autotune-lowered-run-…`, of mode 0700. Its owner holds an exclusive `flock` on it for as long as it is
//! used, and marks it by a file only once that is held: a marked but unlocked folder belongs to a killed run. The lock
//! also protects it from services that clean up old temporary files. The Python package makes and removes the same
//! folders (`python/autotune_lowered/_scratch.py`).
//!
//! Workers write into their tuner's folder and hold no lock. One that outlives a killed tuner does so for the half
//! second that its supervisor grants it, and what it writes then is never read.
//!
//! ```
//! use autotune_lowered_lookup::scratch::Scratch;
//!
//! let folder = Scratch::new()?;
//! let path = folder.path().to_owned();
//! std::fs::write(path.join("input"), b"values")?;
//! drop(folder);
//! assert!(!path.exists(), "it goes with its owner");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::mapped_file::is_local;

const PREFIX: &str = "autotune-lowered-run-";
const MARK: &str = ".autotune-lowered-scratch";

/// A folder that is removed when this is dropped, or by a later run if this process is killed.
///
/// Field order matters: the folder is removed before its lock is released.
#[derive(Debug)]
pub struct Scratch {
    folder: tempfile::TempDir,
    _lock: Option<File>,
}

impl Scratch {
    /// Creates a folder. The first one of a process removes those of killed runs.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new() -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        let base = std::env::temp_dir();
        SWEPT.call_once(|| sweep(&base));
        Self::new_in(&base)
    }

    fn new_in(base: &Path) -> io::Result<Self> {
        let owner_only = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(PREFIX).permissions(owner_only).tempdir_in(base)?;
        // one that cannot be locked is never marked, so no run removes it; it also works without a spare handle
        let lock = lock_and_mark(folder.path()).ok();
        Ok(Self { folder, _lock: lock })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Locks a folder if its lock is visible to all machines, and then marks it.
fn lock_and_mark(folder: &Path) -> io::Result<File> {
    let lock = File::open(folder)?;
    if !is_local(&lock) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    flock(&lock, FlockOperation::LockExclusive)?;
    File::options().write(true).create_new(true).mode(0o600).open(folder.join(MARK))?;
    Ok(lock)
}

/// Removes the folders of runs that were killed. One that cannot be removed is left for the next time and only costs
/// its bytes.
fn sweep(base: &Path) {
    for item in fs::read_dir(base).into_iter().flatten().flatten() {
        if item.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            let _ = remove_orphan(&item.path());
        }
    }
}

/// Removes a folder of this user that is marked and unlocked. Its content is accessed through the open folder, so that
/// it cannot be replaced in the meantime; no link is followed.
fn remove_orphan(path: &Path) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let folder = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = folder.metadata()?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0;
    let inside = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    // one without its mark is being created, or is not ours
    if !is_own || !is_local(&folder) || !fs::symlink_metadata(inside.join(MARK))?.is_file() {
        return Ok(());
    }
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    for item in fs::read_dir(&inside)? {
        let item = item?;
        // the mark is removed last, so that the next run continues a killed sweep
        if item.file_name() == MARK {
            continue;
        }
        if item.file_type()?.is_dir() { fs::remove_dir_all(item.path())? } else { fs::remove_file(item.path())? }
    }
    fs::remove_file(inside.join(MARK))?;
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder as a killed run leaves it: marked, filled, not locked.
    fn orphan(base: &Path, name: &str) -> PathBuf {
        let path = base.join(format!("{PREFIX}{name}"));
        fs::create_dir_all(path.join("sub/folder")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        fs::write(path.join("sub/folder/input-0.bin"), b"bytes").unwrap();
        fs::write(path.join(MARK), b"").unwrap();
        path
    }

    fn names(base: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(base).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_what_a_killed_run_left_is_swept() {
        let (base, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let base = base.path();
        let held = Scratch::new_in(base).unwrap();
        assert_eq!(fs::metadata(held.path()).unwrap().mode() & 0o777, 0o700);
        assert!(held.path().join(MARK).is_file(), "the temporary folder is on a local file system");
        fs::write(outside.path().join("theirs"), b"theirs").unwrap();
        fs::write(outside.path().join(MARK), b"").unwrap();
        let orphan_with_link = orphan(base, "linking");
        symlink(outside.path(), orphan_with_link.join("link")).unwrap();
        symlink(outside.path().join("theirs"), orphan_with_link.join("file-link")).unwrap();
        orphan(base, "plain");

        // the user's own folder of such a name, one that others may write, a link, a file, another prefix
        fs::create_dir(base.join(format!("{PREFIX}notes"))).unwrap();
        fs::write(base.join(format!("{PREFIX}notes/note")), b"mine").unwrap();
        let open_to_others = orphan(base, "shared");
        fs::set_permissions(&open_to_others, Permissions::from_mode(0o770)).unwrap();
        symlink(outside.path(), base.join(format!("{PREFIX}link"))).unwrap();
        fs::write(base.join(format!("{PREFIX}file")), b"mine").unwrap();
        let other = orphan(base, "x");
        fs::rename(&other, base.join("autotune-lowered-x")).unwrap();

        sweep(base);
        let held_name = held.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = ["notes", "shared", "link", "file"].map(|name| format!("{PREFIX}{name}")).to_vec();
        expected.extend([held_name, "autotune-lowered-x".to_owned()]);
        expected.sort();
        assert_eq!(names(base), expected);
        assert_eq!(names(outside.path()), [MARK, "theirs"], "nothing outside changed");
        assert_eq!(names(&base.join(format!("{PREFIX}notes"))), ["note"]);

        // the owner's end frees it
        let path = held.path().to_owned();
        let Scratch { folder, _lock: lock } = held;
        let _ = folder.keep();
        sweep(base);
        assert!(path.is_dir());
        drop(lock);
        sweep(base);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_goes_with_its_owner() {
        let base = tempfile::tempdir().unwrap();
        let scratch = Scratch::new_in(base.path()).unwrap();
        fs::write(scratch.path().join("file"), b"x").unwrap();
        drop(scratch);
        assert!(names(base.path()).is_empty());
        let error = Scratch::new_in(&base.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
