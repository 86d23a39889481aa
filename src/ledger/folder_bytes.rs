//! A cache folder's size on disk, by purpose.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::cache::SNAPSHOT_FILE;
use crate::sled_store::SledState;

use super::repair::LOG_FILE;

/// Bytes of the files of a cache folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct FolderBytes {
    /// The sample log.
    pub log: u64,
    /// The sled database and its state file.
    pub sled: u64,
    /// The published snapshot.
    pub snapshot: u64,
    /// Compiled programs.
    pub executables: u64,
    /// Databases that were set aside.
    pub set_aside: u64,
    /// Everything else.
    pub other: u64,
}

impl FolderBytes {
    /// The sizes of a folder; files that cannot be read, and links, are not counted.
    pub fn of(folder: &Path) -> Self {
        let mut taken = Self::default();
        for item in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = item.file_name();
            let name = name.as_bytes();
            let is = |text: &str| name == text.as_bytes();
            let kind = match name {
                _ if is(LOG_FILE) => &mut taken.log,
                _ if is(SNAPSHOT_FILE) => &mut taken.snapshot,
                _ if SledState::NAMES.into_iter().any(is) => &mut taken.sled,
                _ if name.starts_with(SledState::SET_ASIDE.as_bytes()) => &mut taken.set_aside,
                _ if is("executables-v1") => &mut taken.executables,
                _ => &mut taken.other,
            };
            *kind += bytes_below(&item.path());
        }
        taken
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_kind().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Each kind by its name for people.
    pub fn by_kind(&self) -> [(&'static str, u64); 6] {
        [
            ("sample log", self.log),
            ("sled", self.sled),
            ("snapshot", self.snapshot),
            ("executables", self.executables),
            ("set aside", self.set_aside),
            ("other files", self.other),
        ]
    }
}

fn bytes_below(path: &Path) -> u64 {
    let mut open = vec![path.to_owned()];
    let mut bytes = 0;
    while let Some(next) = open.pop() {
        let Ok(metadata) = fs::symlink_metadata(&next) else { continue };
        if metadata.is_dir() {
            open.extend(fs::read_dir(&next).into_iter().flatten().flatten().map(|item| item.path()));
        } else if metadata.is_file() {
            bytes += metadata.len();
        }
    }
    bytes
}
