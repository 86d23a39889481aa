//! Atomic file writes: written under a temporary name, synced, renamed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes the output of `write` to a file, and syncs its folder; missing folders are created.
///
/// # Errors
/// If it cannot be written, or `write` fails; then the old file is intact.
pub(crate) fn write_whole<T>(path: &Path, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    // the umask applies, so that whoever may read the folder's other files may read this one
    write_with_mode(path, 0o666, write)
}

/// The same for a file that only its owner may read.
pub(crate) fn write_private<T>(path: &Path, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    write_with_mode(path, 0o600, write)
}

fn write_with_mode<T>(path: &Path, mode: u32, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // opened here, because the crate's own error would hide the system's error code, which determines what to do
    let open = |path: &Path| File::options().read(true).write(true).create_new(true).mode(mode).open(path);
    let mut temporary = tempfile::Builder::new().prefix(".tmp-").make_in(folder, open)?;
    let result = write(temporary.as_file_mut())?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    match File::open(folder)?.sync_all() {
        // some network file systems have no sync for folders
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        _ => Ok(result),
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
        write_whole(&path, |file| file.write_all(b"one")).unwrap();
        let failed = write_whole(&path, |file| {
            file.write_all(b"two")?;
            Err::<(), _>(io::Error::other("planted"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "planted");
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(write_whole(&path, |file| file.write_all(b"three").map(|()| 3)).unwrap(), 3);
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 1, "nothing else is left");
    }
}
