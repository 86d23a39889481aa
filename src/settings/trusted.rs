//! What the user has accepted: one record per file, named by the digest of the file's path.
//!
//! A record is one line, as `sha256sum` writes and checks it: the digest of the file's bytes, two blanks, its path. It has
//! mode 0600. A file that was changed, moved or copied has no record; accepting it again replaces the one of its path.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::outside_file;
use crate::whole_file::write_private;

use super::file::this_user;
use super::{SettingsError, SettingsFile};

/// Maximum size of a record: more than the longest path.
const MAX_RECORD_BYTES: u64 = 1 << 14;

/// A user's folder of records.
#[derive(Debug, Clone)]
pub struct Trusted {
    folder: PathBuf,
}

impl Trusted {
    /// The records in a folder, which need not exist.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Whether a file is as it was accepted.
    ///
    /// # Errors
    /// In words, why a record is ignored.
    pub fn has(&self, file: &SettingsFile) -> Result<bool, String> {
        let path = self.record(file);
        let read = || -> io::Result<_> {
            let opened = outside_file::open_own(&path, MAX_RECORD_BYTES)?;
            let metadata = opened.metadata()?;
            Ok((outside_file::read(opened, MAX_RECORD_BYTES)?, metadata.uid(), metadata.mode()))
        };
        let wrong = |why: String| Err(format!("the record `{}` does not count: {why}", path.display()));
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => wrong(error.to_string()),
            Ok((_, owner, _)) if owner != this_user() => wrong("it is another user's".to_owned()),
            Ok((_, _, mode)) if mode & 0o077 != 0 => wrong(format!("its mode is {:04o}: make it 0600", mode & 0o7777)),
            Ok((bytes, ..)) => Ok(bytes == line(file)),
        }
    }

    /// Accepts a file as it was read, and gives the record's path.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn accept(&self, file: &SettingsFile) -> Result<PathBuf, SettingsError> {
        let path = self.record(file);
        let written = write_private(&path, |record| record.write_all(&line(file)));
        written.map_err(|source| SettingsError::NotKept { path: path.clone(), source })?;
        Ok(path)
    }

    fn record(&self, file: &SettingsFile) -> PathBuf {
        self.folder.join(Digest::of(file.path().as_os_str().as_bytes()).to_string())
    }
}

/// A record's bytes.
fn line(file: &SettingsFile) -> Vec<u8> {
    let path: &Path = file.path();
    [file.digest().to_string().as_bytes(), b"  ", path.as_os_str().as_bytes(), b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Found;
    use super::*;

    #[test]
    fn what_was_read_is_what_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("autotune.toml");
        let trusted = Trusted::in_folder(folder.path().join("records"));
        let now = || match SettingsFile::found(&path).unwrap() {
            Found::Own(file) => file,
            Found::Foreign { .. } => panic!("it is this user's"),
        };
        fs::write(&path, "timer = \"command:a\"\n").unwrap();
        let read = SettingsFile::to_trust(&path).unwrap();
        // between the check and the acceptance
        fs::write(&path, "timer = \"command:b\"\n").unwrap();
        trusted.accept(&read).unwrap();
        assert_eq!(trusted.has(&now()), Ok(false));
        fs::write(&path, "timer = \"command:a\"\n").unwrap();
        assert_eq!(trusted.has(&now()), Ok(true));
    }
}
