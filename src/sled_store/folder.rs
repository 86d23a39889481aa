//! The folder of a database as it lies on the disk: how it was left, and what sets it aside.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use crate::atomic_write::write_atomic;
use crate::cache::StoreError;
use crate::digest::{Digest, FieldHasher};
use crate::outside_file;

pub(super) const FOLDER: &str = "sled-v1";
pub(super) const STATE_FILE: &str = "sled-v1.state";
pub(super) const SET_ASIDE: &str = "sled-v1.set-aside-";
/// Maximum number of files examined in a sled folder; sled itself creates fewer than ten.
const MAX_FILES: usize = 10_000;
/// How often, and at what interval, the lock of a just closed database is tried.
const RELEASE_TRIES: u32 = 1000;
const RELEASE_WAIT: Duration = Duration::from_millis(2);

pub(super) enum NotedState {
    /// With the recorded length of the log.
    Clean(Option<u64>),
    Unclean,
    Wrong(String),
}

/// The state in which a database was left, judging by its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SledState {
    /// It does not exist.
    Missing,
    /// Its bytes are those that the last close left.
    Closed,
    /// A process has it open, or ended without closing it.
    Open,
    /// What is wrong with it.
    Wrong(String),
}

impl SledState {
    /// Examines the database of a cache folder without changing it.
    pub fn of_folder(root: &Path) -> Self {
        let folder = root.join(FOLDER);
        if fs::symlink_metadata(&folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Self::Missing;
        }
        match check_state(root, &folder) {
            NotedState::Clean(_) => Self::Closed,
            NotedState::Unclean => Self::Open,
            NotedState::Wrong(what) => Self::Wrong(what),
        }
    }

    /// The names of the database's folder and of its state file.
    pub const NAMES: [&str; 2] = [FOLDER, STATE_FILE];

    /// Prefix of the names of databases that were set aside.
    pub const SET_ASIDE: &str = SET_ASIDE;
}

/// More than a state file can hold.
const MAX_STATE_BYTES: u64 = 100;

pub(super) fn check_state(root: &Path, folder: &Path) -> NotedState {
    if folder.is_symlink() {
        return NotedState::Wrong("it is a link".to_owned());
    }
    let path = root.join(STATE_FILE);
    let read = outside_file::open_own(&path, MAX_STATE_BYTES);
    let state = match read.and_then(|file| outside_file::read_text(file, MAX_STATE_BYTES)) {
        Ok(state) => state,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return NotedState::Wrong("not a folder of this program".to_owned());
        }
        Err(error) => return NotedState::Wrong(format!("`{}`: {error}", path.display())),
    };
    if state == "open\n" {
        return NotedState::Unclean;
    }
    let noted = || -> Option<(Digest, Option<u64>)> {
        let rest = state.strip_prefix("clean ")?.strip_suffix('\n')?;
        match rest.split_once(' ') {
            Some((digest, bytes)) => Some((digest.parse().ok()?, Some(bytes.parse().ok()?))),
            None => Some((rest.parse().ok()?, None)),
        }
    };
    let Some((digest, log_bytes)) = noted() else {
        return NotedState::Wrong(format!("`{}` is damaged", path.display()));
    };
    match digest_of_folder(folder, log_bytes) {
        Ok(found) if digest == found => NotedState::Clean(log_bytes),
        Ok(_) => NotedState::Wrong("its bytes are not those that were written".to_owned()),
        Err(error) => NotedState::Wrong(error.to_string()),
    }
}

pub(super) fn write_state(root: &Path, state: &str) -> Result<(), StoreError> {
    let path = root.join(STATE_FILE);
    write_atomic(&path, |file| file.write_all(state.as_bytes())).map_err(StoreError::io("write", &path))
}

/// sled's own threads may hold the database a moment longer than the last handle. Until they release it, its bytes are
/// not final and it cannot be opened again. If they never do, the next open detects it.
pub(super) fn wait_until_released(folder: &Path) {
    let Ok(database) = outside_file::open_own(&folder.join("db"), u64::MAX) else { return };
    for _ in 0..RELEASE_TRIES {
        match flock(&database, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(RELEASE_WAIT),
            _ => {
                // otherwise a child that another thread is starting would keep it
                let _ = flock(&database, FlockOperation::Unlock);
                return;
            }
        }
    }
}

/// Renames a folder out of the way. The one set aside last is kept for inspection; earlier ones are removed.
pub(super) fn set_aside(root: &Path, folder: &Path) -> Result<PathBuf, StoreError> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for attempt in 0..1000 {
        let target = root.join(format!("{SET_ASIDE}{seconds}-{attempt}"));
        if fs::symlink_metadata(&target).is_err() {
            fs::rename(folder, &target).map_err(StoreError::io("set aside", folder))?;
            for item in fs::read_dir(root).into_iter().flatten().flatten() {
                let is_older = is_set_aside(&item.file_name()) && item.path() != target;
                // one that remains only costs its bytes; a link is not followed
                if is_older && item.file_type().is_ok_and(|kind| kind.is_dir()) && is_of_sled(&item.path()) {
                    let _ = fs::remove_dir_all(item.path());
                }
            }
            return Ok(target);
        }
    }
    Err(StoreError::io("set aside", folder)(io::ErrorKind::AlreadyExists.into()))
}

/// Whether a folder holds only what sled creates: a folder that was set aside may contain a user's files.
fn is_of_sled(folder: &Path) -> bool {
    let is_own = |name: &OsStr| {
        matches!(name.as_encoded_bytes(), b"blobs" | b"conf" | b"db") || name.as_encoded_bytes().starts_with(b"snap.")
    };
    let items = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    items.is_ok_and(|items| items.iter().all(|item| is_own(&item.file_name())))
}

/// Whether a name is one that [`set_aside`] creates, and not another with the same prefix.
fn is_set_aside(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix(SET_ASIDE)?.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(seconds, attempt)| is_number(seconds) && is_number(attempt))
}

/// Digest of names and contents of all files below a folder, in the names' order, and of the recorded length; links are
/// an error.
pub(super) fn digest_of_folder(folder: &Path, log_bytes: Option<u64>) -> io::Result<Digest> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for item in fs::read_dir(&next)? {
            let item = item?;
            let kind = item.file_type()?;
            if kind.is_dir() {
                folders.push(item.path());
            } else if kind.is_file() {
                files.push(item.path());
            } else {
                return Err(io::Error::other(format!("`{}` is neither file nor folder", item.path().display())));
            }
            if files.len() + folders.len() > MAX_FILES {
                return Err(io::Error::other(format!("more than {MAX_FILES} files")));
            }
        }
    }
    files.sort_unstable();
    let mut hasher = FieldHasher::new("sled-folder");
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(&path);
        hasher.field(name.as_os_str().as_encoded_bytes());
        hasher.field(Digest::of_reader(outside_file::open_own(&path, u64::MAX)?)?.as_bytes());
    }
    if let Some(bytes) = log_bytes {
        hasher.field(&bytes.to_le_bytes());
    }
    Ok(hasher.finish())
}
