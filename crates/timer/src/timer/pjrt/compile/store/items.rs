//! What is in a folder of executables.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, statat};

/// Something in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoreItem {
    pub(super) name: CString,
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
    /// A folder, link, pipe or device is nothing that a store holds.
    pub(super) is_file: bool,
}

impl StoreItem {
    pub(super) fn is_executable(&self) -> bool {
        self.is_file && self.is_named_executable()
    }

    /// Whether it has the name of a kept executable, whatever it is.
    pub(super) fn is_named_executable(&self) -> bool {
        let name = self.name.to_bytes().strip_suffix(b".exe");
        name.is_some_and(|name| name.len() == 64 && name.iter().all(u8::is_ascii_hexdigit))
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.is_file && self.name.to_bytes().starts_with(b".new-")
    }

    pub(super) fn unused_for(&self) -> Duration {
        SystemTime::now().duration_since(self.modified).unwrap_or_default()
    }
}

/// What an open folder has.
pub(super) fn items(folder: &File) -> io::Result<Vec<StoreItem>> {
    let mut items = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        // it was removed in the meantime
        let Ok(stat) = statat(folder, &*name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let since = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
        let modified = SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH);
        items.push(StoreItem { name, bytes: u64::try_from(stat.st_size).unwrap_or(0), modified, is_file });
    }
    Ok(items)
}
