//! The lock of a cache folder, which names its holder.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::error::StoreError;
use crate::outside_file;
use crate::printable::printable;

/// Held while a process has a cache folder open. The system releases it with the process, however that ends.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
    folder: PathBuf,
}

/// Longest text read from another process's lock file.
const MAX_HOLDER_BYTES: u64 = 400;

impl FolderLock {
    /// Creates the folder if it is missing and locks it, or says which process holds it.
    ///
    /// # Errors
    /// If another process holds it ([`Locked`](super::StoreErrorKind::Locked)), or it cannot be written.
    pub fn acquire(folder: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(folder).map_err(StoreError::io("make the folder", folder))?;
        let path = folder.join("lock");
        let open_error = StoreError::io("open the lock file", &path);
        // must not write through a link to a file elsewhere
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = outside_file::open_own_with(&mut options, &path).map_err(open_error)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut bytes = Vec::new();
                let _ = file.take(MAX_HOLDER_BYTES).read_to_end(&mut bytes);
                let text = String::from_utf8_lossy(&bytes);
                let holder = text.lines().next().filter(|line| !line.is_empty()).unwrap_or("another process");
                return Err(StoreError::locked(folder, holder));
            }
            Err(error) => return Err(StoreError::io("lock", &path)(error.into())),
        }
        // the name is for people only, so a full disk must not prevent opening the folder
        let holder = format!("process {} (`{}`)\n", std::process::id(), command_line());
        let _ = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
        Ok(Self { file, folder: folder.to_owned() })
    }

    /// The process that has a folder open, as far as the system shows; the lock itself is not tried, because a process
    /// that wants it must not find it taken.
    pub fn holder(folder: &Path) -> Option<String> {
        let path = folder.join("lock");
        let mut text = Vec::new();
        let file = outside_file::open_own(&path, u64::MAX).ok()?;
        let inode = file.metadata().ok()?.ino();
        file.take(MAX_HOLDER_BYTES).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        let holder = text.lines().next()?;
        // `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`; the device's number is not that of the file on every file
        // system
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let is_held = locks.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let of_file = words.get(5).and_then(|place| place.rsplit(':').next()) == Some(inode.to_string().as_str());
            let of_process = words.get(4).is_some_and(|pid| holder.starts_with(&format!("process {pid} ")));
            words.get(1) == Some(&"FLOCK") && of_file && of_process
        });
        is_held.then(|| holder.to_owned())
    }

    /// Removes the unfinished files of a killed process: no other process writes them while the lock is held.
    pub fn remove_unfinished(&self) {
        for item in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let is_file = item.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && item.file_name().as_encoded_bytes().starts_with(b".tmp") {
                // one that remains only costs its bytes
                let _ = fs::remove_file(item.path());
            }
        }
    }

    /// The locked folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for FolderLock {
    /// Releases the lock at once: merely closing the file would leave it with a child that another thread is starting,
    /// until that child runs its own program.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn command_line() -> String {
    let words: Vec<String> = std::env::args_os()
        .enumerate()
        .map(|(index, word)| match (index, Path::new(&word).file_name()) {
            (0, Some(name)) => name.to_string_lossy().into_owned(),
            _ => word.to_string_lossy().into_owned(),
        })
        .collect();
    let line = printable(&words.join(" "));
    line.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_learns_which_process_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let first = FolderLock::acquire(&path).unwrap();
        let error = FolderLock::acquire(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.contains(&FolderLock::holder(&path).unwrap()), "{error}");
        drop(first);
        assert_eq!(FolderLock::holder(&path), None);
        FolderLock::acquire(&path).unwrap();
    }

    #[test]
    fn a_child_that_is_being_started_does_not_keep_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let first = FolderLock::acquire(folder.path()).unwrap();
        // what a child holds between fork and exec
        let inherited = first.file.try_clone().unwrap();
        drop(first);
        FolderLock::acquire(folder.path()).unwrap();
        drop(inherited);
    }
}
