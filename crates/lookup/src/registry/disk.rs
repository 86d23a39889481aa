//! Files that are complete and have the digest of their names, or do not exist.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::RegistryError;
use crate::atomic_write;
use crate::digest::Digest;
use crate::outside_file;

/// Largest program that is read.
pub const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// Writes a file so that a reader, or a crash, sees all of it or none: temporary name, sync, rename, sync of the
/// folder.
pub(super) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it has no folder"))?;
    make_folder(folder)?;
    atomic_write::write_atomic(path, |file| file.write_all(bytes))
}

/// The same for a file that its owner alone may read.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it has no folder"))?;
    make_folder(folder)?;
    atomic_write::write_private(path, |file| file.write_all(bytes))
}

/// Creates a folder and its parents, each new one synced into its parent.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new(""));
    make_folder(parent)?;
    match fs::create_dir(folder) {
        Ok(()) => sync_folder(parent),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match File::open(folder)?.sync_all() {
        // some network filesystems have no sync for folders
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

/// The entries of a folder whose names do not start with a point.
pub(super) fn visible_entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The bytes of a file that has a digest.
pub(super) fn read_checked(path: PathBuf, limit: u64, digest: Digest) -> Result<Vec<u8>, RegistryError> {
    let bytes = match outside_file::bytes(&path, limit) {
        Ok(bytes) => bytes,
        Err(source) => return Err(RegistryError::Io { path, source }),
    };
    match Digest::of(&bytes) {
        found if found == digest => Ok(bytes),
        found => Err(RegistryError::Digest { path, found }),
    }
}

/// Whether a file has a digest, in constant memory.
pub(super) fn check_file(path: &Path, limit: u64, digest: Digest) -> Result<(), RegistryError> {
    let io = |source| RegistryError::Io { path: path.to_owned(), source };
    let file = outside_file::open(path, limit).map_err(io)?;
    match Digest::of_reader(file).map_err(io)? {
        found if found == digest => Ok(()),
        found => Err(RegistryError::Digest { path: path.to_owned(), found }),
    }
}
