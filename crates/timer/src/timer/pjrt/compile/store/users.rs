//! Which processes have a folder of executables open. Each keeps a file in it whose name contains the host. On its own
//! host the file is locked as long as its process lives; locks across hosts cannot be trusted.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use tempfile::NamedTempFile;

use super::items::{StoreItem, items};

const PREFIX: &str = ".open-";
/// A process of another host whose file is older than this is gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// This process as a user of the folder; its file is removed on drop.
#[derive(Debug)]
pub(super) struct StoreUser {
    _note: NamedTempFile,
}

impl StoreUser {
    /// Creates this process's file.
    pub(super) fn note(folder: &Path) -> io::Result<Self> {
        let note = tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", own_host())).tempfile_in(folder)?;
        flock(note.as_file(), FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { _note: note })
    }
}

/// This machine's name, as far as a file name can hold it.
fn own_host() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
    name.chars().take(64).map(plain).collect()
}

/// Another host that has the folder open. Removes the files of processes that are gone, except in a `dry_run`.
pub(super) fn other_host(folder: &File, dry_run: bool) -> io::Result<Option<String>> {
    let own = own_host();
    for item in items(folder)? {
        let Some(host) = host_of(&item) else { continue };
        let is_gone = if host == own {
            is_unlocked(folder, &item)
        } else {
            SystemTime::now().duration_since(item.modified).is_ok_and(|since| since > FORGOTTEN_AFTER)
        };
        if is_gone && !dry_run {
            // a leftover costs only its name
            let _ = unlinkat(folder, &*item.name, AtFlags::empty());
        } else if !is_gone && host != own {
            return Ok(Some(host.to_owned()));
        }
    }
    Ok(None)
}

/// The host in a file's name, whose last letters are random.
fn host_of(item: &StoreItem) -> Option<&str> {
    let (host, _) = item.name.to_str().ok()?.strip_prefix(PREFIX)?.rsplit_once('-')?;
    item.is_file.then_some(host)
}

fn is_unlocked(folder: &File, item: &StoreItem) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(folder, &*item.name, flags, Mode::empty())
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_note_of_another_host_counts_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let open = || File::open(folder.path()).unwrap();
        let notes = || fs::read_dir(folder.path()).unwrap().count();
        let ours = StoreUser::note(folder.path()).unwrap();
        assert_eq!((other_host(&open(), false).unwrap(), notes()), (None, 1), "this process is alive");
        // a process of this host that was killed
        fs::write(folder.path().join(format!("{PREFIX}{}-Abc123", own_host())), b"").unwrap();
        assert_eq!((other_host(&open(), true).unwrap(), notes()), (None, 2));
        assert_eq!((other_host(&open(), false).unwrap(), notes()), (None, 1), "its note goes");
        let other = folder.path().join(".open-node-17.cluster-Abc123");
        fs::write(&other, b"").unwrap();
        assert_eq!(other_host(&open(), false).unwrap().as_deref(), Some("node-17.cluster"));
        let forgotten = SystemTime::now() - FORGOTTEN_AFTER - Duration::from_secs(60);
        File::open(&other).unwrap().set_modified(forgotten).unwrap();
        assert_eq!((other_host(&open(), false).unwrap(), notes()), (None, 1));
        drop(ours);
        assert_eq!(notes(), 0);
    }
}
