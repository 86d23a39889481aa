//! Files that workers write. Each request that lets a worker write passes a folder of its own, and files in the answer
//! are opened only in that folder. Removing it removes everything that the worker left there; nothing else is removed
//! because a worker says so.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::array::{ArraySpec, MAX_ARRAY_BYTES};
use crate::outside_file::{self, OutsideFolder};

/// A folder for the files of one answer, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct AnswerFolder {
    folder: TempDir,
    opened: OutsideFolder,
}

impl AnswerFolder {
    /// Creates an empty folder that only this user can access.
    pub(crate) fn make(scratch: &Path) -> io::Result<Self> {
        // with no link in its path a worker that resolves it answers the same one
        let scratch = scratch.canonicalize()?;
        let folder = private_folder(&scratch)?;
        let opened = OutsideFolder::open(folder.path())?;
        Ok(Self { folder, opened })
    }

    /// The folder to write to.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Opens a file that a worker says it wrote.
    pub(crate) fn open(&self, answered: &Path, limit: u64) -> io::Result<File> {
        self.opened.open_file(answered, limit).map_err(|error| {
            // a system error is not a fault of the path
            if error.raw_os_error().is_some() {
                return error;
            }
            let message =
                format!("{error}; a worker writes into the folder that the request names, and answers that path");
            io::Error::new(error.kind(), message)
        })
    }

    /// Keeps the folder, which is removed with its parent.
    pub(crate) fn leave(self) {
        let _ = self.folder.keep();
    }
}

/// An empty folder in `scratch` that only this user can access.
pub(crate) fn private_folder(scratch: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("worker-").permissions(Permissions::from_mode(0o700)).tempdir_in(scratch)
}

/// One output array, as a worker left it.
#[derive(Debug, Clone)]
pub struct OutputArray {
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// Its file of dense little-endian bytes, removed when this is dropped.
    pub path: PathBuf,
    folder: Arc<AnswerFolder>,
}

impl OutputArray {
    /// An output that a timer writes itself.
    ///
    /// # Errors
    /// If it cannot be written in `scratch`.
    pub fn write(spec: ArraySpec, bytes: &[u8], scratch: &Path) -> io::Result<Self> {
        let folder = Arc::new(AnswerFolder::make(scratch)?);
        let path = folder.path().join("output.bin");
        fs::write(&path, bytes)?;
        Ok(Self { spec, path, folder })
    }

    /// A file that a worker says it wrote: a regular file in the folder, as large as its array.
    pub(super) fn answered(spec: ArraySpec, path: PathBuf, folder: &Arc<AnswerFolder>) -> io::Result<Self> {
        let output = Self { spec, path, folder: Arc::clone(folder) };
        output.open().map(|_| output)
    }

    /// Its bytes.
    ///
    /// # Errors
    /// If the file no longer exists, or has changed.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let (file, bytes) = self.open()?;
        let read = outside_file::read(file, bytes)?;
        if read.len() as u64 == bytes { Ok(read) } else { Err(self.other_size(read.len() as u64)) }
    }

    /// The file and its size.
    fn open(&self) -> io::Result<(File, u64)> {
        let file = self.folder.open(&self.path, MAX_ARRAY_BYTES)?;
        let bytes = file.metadata()?.len();
        if self.spec.host_bytes() == Some(bytes) { Ok((file, bytes)) } else { Err(self.other_size(bytes)) }
    }

    fn other_size(&self, bytes: u64) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("{bytes} bytes are not an array {}", self.spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn a_folder_is_private_and_goes_with_what_was_left_in_it() {
        let scratch = tempfile::tempdir().unwrap();
        let outside = scratch.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), b"sound").unwrap();
        let through = scratch.path().join("through");
        symlink(".", &through).unwrap();
        let folder = AnswerFolder::make(&through).unwrap();
        let path = folder.path().to_owned();
        assert_eq!(path, path.canonicalize().unwrap());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::create_dir(path.join("deep")).unwrap();
        fs::write(path.join("deep/file"), b"sound").unwrap();
        symlink(&outside, path.join("link")).unwrap();
        assert!(folder.open(Path::new("deep/file"), 5).is_ok());
        let error = folder.open(&outside.join("file"), 5).unwrap_err().to_string();
        assert!(error.contains("outside") && error.contains("a worker writes into the folder"), "{error}");
        assert!(folder.open(Path::new("link/file"), 5).is_err());
        drop(folder);
        assert!(!path.exists());
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"sound");
    }

    #[test]
    fn an_output_is_as_large_as_its_array() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Arc::new(AnswerFolder::make(scratch.path()).unwrap());
        let path = folder.path().join("out.bin");
        fs::write(&path, [1; 8]).unwrap();
        let answered = |spec: &str| OutputArray::answered(spec.parse().unwrap(), path.clone(), &folder);
        let error = answered("f32[3]").unwrap_err().to_string();
        assert_eq!(error, "8 bytes are not an array f32[3]");
        let output = answered("f32[2]").unwrap();
        assert_eq!(output.read().unwrap(), [1; 8]);
        // the file may have changed since it was checked
        fs::write(&path, [1; 9]).unwrap();
        assert_eq!(output.read().unwrap_err().to_string(), "9 bytes are not an array f32[2]");
        fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        assert!(output.read().unwrap_err().to_string().contains("symbolic link"));
    }
}
