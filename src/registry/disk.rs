//! Writes that are whole or not there.

use crate::whole_file;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Largest program that is read.
pub const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// Writes a file so that a reader, or a crash, sees all of it or none: temporary name, sync, rename, sync of the folder.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it has no folder"))?;
    make_folder(folder)?;
    whole_file::write_whole(path, |file| file.write_all(bytes))
}

/// The same for a file that its owner alone may read.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it has no folder"))?;
    make_folder(folder)?;
    whole_file::write_private(path, |file| file.write_all(bytes))
}

/// Makes a folder and its parents, each new one synced into its parent.
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
