//! Limits on the kept executables: the least recently used are removed, beyond a size and an age.
//!
//! Nothing is removed on a network file system, in a folder that another host has open, or in a folder that is a link
//! or belongs to another user: an unknown tuner may be about to load a file that looks unused.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};

use super::items::{StoreItem, items};
use super::users::other_host;
use crate::mapped_file::is_local;

/// The store's folder within the cache folder.
pub(super) const FOLDER: &str = "executables-v1";
/// Minimum age of a file that a killed run left unfinished.
const UNFINISHED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Limits on what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutableBounds {
    /// Bytes of all kept executables together.
    pub bytes: u64,
    /// Maximum time without a use.
    pub unused_for: Duration,
}

impl Default for ExecutableBounds {
    fn default() -> Self {
        Self { bytes: 2 << 30, unused_for: Duration::from_secs(30 * 24 * 3600) }
    }
}

/// The result of applying the limits to a cache folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct BoundExecutables {
    /// Files kept.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Files removed, or that would be.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Why nothing could be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_reason: Option<String>,
}

/// Whether a cache folder has kept executables.
pub fn keeps_executables(cache: &Path) -> bool {
    cache.join(FOLDER).is_dir()
}

/// A cache folder's folder of kept executables and of other data on compilers; created if missing.
///
/// # Errors
/// If it cannot be created.
pub fn executables_folder(cache: &Path) -> io::Result<PathBuf> {
    let folder = cache.join(FOLDER);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Removes executables beyond the limits from a cache folder. With `dry_run` nothing is removed, only counted.
///
/// # Errors
/// If the folder, or a file in it, cannot be read.
pub fn bound_executables(cache: &Path, bounds: &ExecutableBounds, dry_run: bool) -> io::Result<BoundExecutables> {
    let mut found = BoundExecutables::default();
    if let Some(folder) = open_folder(CWD, &cache.join(FOLDER))? {
        bound(&folder, is_local(&folder), bounds, dry_run, &mut found)?;
    }
    Ok(found)
}

/// Opens a folder; `None` if it is now a link.
pub(super) fn open_folder(at: impl rustix::fd::AsFd, path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(at, path, flags, Mode::empty()) {
        Ok(folder) => Ok(Some(File::from(folder))),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn bound(
    folder: &File,
    is_local: bool,
    bounds: &ExecutableBounds,
    dry_run: bool,
    found: &mut BoundExecutables,
) -> io::Result<()> {
    let mut items = items(folder)?;
    items.retain(|item| item.is_executable() || item.is_unfinished());
    // by name if the times are equal, so that the result does not depend on the folder's order
    items.sort_by(|one, other| (one.modified, &one.name).cmp(&(other.modified, &other.name)));
    let mut left = items.iter().fold(0, |sum: u64, item| sum.saturating_add(item.bytes));
    found.kept_reason = match why_not(folder, is_local)? {
        Some(why) => Some(why),
        None => other_host(folder, dry_run)?.map(|host| format!("the host `{host}` has it open")),
    };
    for item in items {
        let goes = if item.is_unfinished() {
            item.unused_for() > UNFINISHED_AFTER
        } else {
            left > bounds.bytes || item.unused_for() > bounds.unused_for
        };
        if found.kept_reason.is_none() && goes {
            left = left.saturating_sub(item.bytes);
            remove(folder, &item, dry_run, found)?;
        } else {
            found.kept += 1;
            found.kept_bytes = found.kept_bytes.saturating_add(item.bytes);
        }
    }
    Ok(())
}

/// Why nothing may be removed from a folder, no matter which host has it open.
fn why_not(folder: &File, is_local: bool) -> io::Result<Option<String>> {
    let owner = rustix::fs::fstat(folder)?.st_uid;
    Ok(if !is_local {
        Some("it is on a network file system".to_owned())
    } else if owner != rustix::process::geteuid().as_raw() {
        Some("it belongs to another user".to_owned())
    } else {
        None
    })
}

fn remove(folder: &File, item: &StoreItem, dry_run: bool, found: &mut BoundExecutables) -> io::Result<()> {
    match if dry_run { Ok(()) } else { unlinkat(folder, &*item.name, AtFlags::empty()) } {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    if !dry_run {
        // signatures without a file; leftovers are harmless
        let _ = unlinkat(folder, [item.name.to_bytes(), b".sig"].concat(), AtFlags::empty());
    }
    found.removed += 1;
    found.removed_bytes = found.removed_bytes.saturating_add(item.bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Creates a kept executable of this size, last used so long ago.
    fn put(folder: &Path, digit: char, bytes: usize, unused_for: Duration) {
        let path = folder.join(format!("{}.exe", digit.to_string().repeat(64)));
        fs::write(&path, vec![0; bytes]).unwrap();
        File::open(&path).unwrap().set_modified(SystemTime::now() - unused_for).unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.iter().map(|name| name.trim_end_matches(".exe").chars().take(8).collect()).collect()
    }

    fn bounds(bytes: u64, hours: u32) -> ExecutableBounds {
        ExecutableBounds { bytes, unused_for: HOUR * hours }
    }

    #[test]
    fn the_least_recently_used_go_first_and_what_is_too_old_goes_in_any_case() {
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join(FOLDER);
        assert_eq!(bound_executables(cache.path(), &bounds(0, 0), false).unwrap(), BoundExecutables::default());
        fs::create_dir(&folder).unwrap();
        for (digit, hours) in [('a', 3), ('b', 1), ('c', 9), ('d', 2)] {
            put(&folder, digit, 100, HOUR * hours);
        }
        fs::write(folder.join("notes.txt"), b"not ours").unwrap();
        symlink("notes.txt", folder.join(format!("{}.exe", "e".repeat(64)))).unwrap();
        let would = bound_executables(cache.path(), &bounds(250, 5), true).unwrap();
        let did = bound_executables(cache.path(), &bounds(250, 5), false).unwrap();
        assert_eq!(would, did);
        assert_eq!((did.removed, did.removed_bytes, did.kept, did.kept_bytes), (2, 200, 2, 200));
        assert_eq!(names(&folder), ["bbbbbbbb", "dddddddd", "eeeeeeee", "notes.tx"]);
        let all = bound_executables(cache.path(), &bounds(0, 100), false).unwrap();
        assert_eq!((all.removed, all.kept), (2, 0));
        assert_eq!(names(&folder), ["eeeeeeee", "notes.tx"], "what is not ours stays, and a link");
    }

    #[test]
    fn what_others_may_be_using_is_left_alone() {
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join(FOLDER);
        fs::create_dir(&folder).unwrap();
        put(&folder, 'a', 100, HOUR * 9);
        let mut found = BoundExecutables::default();
        bound(&File::open(&folder).unwrap(), false, &bounds(0, 0), false, &mut found).unwrap();
        assert!(found.kept_reason.unwrap().contains("network"));
        assert_eq!((found.removed, found.kept), (0, 1));
        let note = folder.join(".open-elsewhere-Abc123");
        fs::write(&note, b"").unwrap();
        let found = bound_executables(cache.path(), &bounds(0, 0), false).unwrap();
        assert!(found.kept_reason.unwrap().contains("`elsewhere`"));
        assert_eq!(found.removed, 0);
        fs::remove_file(note).unwrap();
        // a folder that is a link is not touched
        let moved = cache.path().join("moved");
        fs::rename(&folder, &moved).unwrap();
        symlink(&moved, &folder).unwrap();
        let found = bound_executables(cache.path(), &bounds(0, 0), false).unwrap();
        assert_eq!((found.removed, names(&moved)), (0, vec!["aaaaaaaa".to_owned()]));
    }
}
