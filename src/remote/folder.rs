//! `file://`: a shared folder.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::bucket::{Bucket, BucketError, ObjectVersion, too_large};
use super::manifest::MAX_MANIFEST_BYTES;
use super::pause::random_below;
use crate::atomic_write::{folder_of, remove_unfinished, write_atomic};
use crate::cache::{FolderLock, StoreErrorKind};
use crate::digest::Digest;
use crate::io_hint::io_hint;
use crate::outside_file;

/// How long to wait for the folder's lock; each holder writes one small file.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct FolderStore {
    root: PathBuf,
}

impl FolderStore {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The path of an object; it never leaves the folder.
    fn path(&self, name: &str) -> Result<PathBuf, BucketError> {
        let path = self.root.join(name);
        if let Some(folder) = path.parent().filter(|folder| *folder != self.root)
            && fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_symlink())
        {
            return Err(BucketError::Refused(format!("`{}` is a link; publish in a folder", folder.display())));
        }
        Ok(path)
    }

    fn read(&self, name: &str, limit: u64, out: &mut (dyn Write + Send)) -> Result<Option<ObjectVersion>, BucketError> {
        let file = match outside_file::open_own(&self.path(name)?, limit) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(trouble)?,
        };
        let copied = io::copy(&mut file.take(limit + 1), out).map_err(trouble)?;
        if copied > limit { Err(too_large(copied, limit)) } else { Ok(Some(ObjectVersion::default())) }
    }

    fn write(&self, name: &str, from: &mut dyn Read) -> Result<(), BucketError> {
        let path = self.path(name)?;
        write_atomic(&path, |file| io::copy(from, file).map(drop)).map_err(trouble)
    }

    fn lock(&self) -> Result<FolderLock, BucketError> {
        let start = Instant::now();
        loop {
            match FolderLock::acquire(&self.root) {
                Ok(lock) => return Ok(lock),
                Err(error) if error.kind() == StoreErrorKind::Locked && start.elapsed() <= LOCK_PATIENCE => {
                    std::thread::sleep(Duration::from_micros(500 + random_below(20_000)));
                }
                Err(error) => {
                    return Err(error
                        .io_error()
                        .map_or_else(|| BucketError::Unavailable(error.to_string()), trouble_of));
                }
            }
        }
    }
}

impl Bucket for FolderStore {
    fn get(&self, name: &str, limit: u64, out: &mut (dyn Write + Send)) -> Result<Option<ObjectVersion>, BucketError> {
        if limit > MAX_MANIFEST_BYTES {
            return self.read(name, limit, out);
        }
        let mut bytes = Vec::new();
        let found = self.read(name, limit, &mut bytes)?;
        out.write_all(&bytes).map_err(trouble)?;
        Ok(found.map(|_| version_of(&bytes)))
    }

    fn put(&self, name: &str, file: &Path) -> Result<(), BucketError> {
        remove_unfinished(folder_of(&self.path(name)?));
        self.write(name, &mut outside_file::open(file, u64::MAX).map_err(trouble)?)
    }

    fn has(&self, name: &str) -> Result<bool, BucketError> {
        match fs::symlink_metadata(self.path(name)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.map(|_| true).map_err(trouble),
        }
    }

    fn remove(&self, name: &str) -> Result<(), BucketError> {
        match fs::remove_file(self.path(name)?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(trouble(error)),
            _ => Ok(()),
        }
    }

    fn swap(&self, name: &str, expected: Option<&ObjectVersion>, bytes: &[u8]) -> Result<bool, BucketError> {
        let _lock = self.lock()?;
        let found = self.get(name, MAX_MANIFEST_BYTES, &mut io::sink())?;
        if found.as_ref() != expected {
            return Ok(false);
        }
        self.write(name, &mut &bytes[..])?;
        Ok(true)
    }
}

fn version_of(bytes: &[u8]) -> ObjectVersion {
    ObjectVersion { e_tag: Some(Digest::of(bytes).to_string()), version: None }
}

fn trouble(error: io::Error) -> BucketError {
    trouble_of(&error)
}

fn trouble_of(error: &io::Error) -> BucketError {
    match error.kind() {
        // the last is a link, or anything else but a regular file
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::InvalidInput => {
            BucketError::Refused(format!("{error}{}", io_hint(error)))
        }
        io::ErrorKind::InvalidData | io::ErrorKind::IsADirectory => BucketError::Damaged(error.to_string()),
        _ => BucketError::Unavailable(error.to_string()),
    }
}
