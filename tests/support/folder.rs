//! Folders for the files of tests.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::ffi::CStr;
use std::path::Path;
use std::sync::LazyLock;

use rustix::fs::{StatVfsMountFlags, statfs, statvfs};
use tempfile::TempDir;

/// Where Linux mounts a file system in memory.
const IN_MEMORY: &CStr = c"/dev/shm";
/// A container may have 64 MiB there, which several tests at once could fill.
const ENOUGH_BYTES: u64 = 1 << 30;
const TMPFS: i64 = 0x0102_1994;

/// A folder in memory if there is one, else one for temporary files. Caches sync each decision: on a disk that others
/// use, tests wait longer for that than for everything else. What is written is the same.
pub fn in_memory() -> TempDir {
    static IS_USABLE: LazyLock<bool> = LazyLock::new(|| is_usable().unwrap_or(false));
    let in_memory = Path::new(IN_MEMORY.to_str().unwrap());
    let made = IS_USABLE.then(|| tempfile::tempdir_in(in_memory).ok()).flatten();
    made.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

fn is_usable() -> rustix::io::Result<bool> {
    let found = statvfs(IN_MEMORY)?;
    // tests also start programs that they wrote
    let refused = StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY;
    let has_room = found.f_bavail * found.f_frsize >= ENOUGH_BYTES;
    Ok(has_room && !found.f_flag.intersects(refused) && statfs(IN_MEMORY)?.f_type == TMPFS)
}
