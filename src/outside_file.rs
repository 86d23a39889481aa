//! The one way to open a file that somebody else named or may have replaced: it must be a regular file, opening it never
//! waits, and no more than a bound is read of it.
//!
//! Who named the path decides which links are followed. A user's path may lead through links, because build systems and
//! data folders are full of them ([`open`]). A file that this program put there itself, under a name of its own, is never
//! a link ([`open_own`]). A path that a worker or a file names must lie inside a given folder, with no link on the way
//! ([`open_inside`]).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, openat};

/// Opens a regular file of at most `limit` bytes that the user named; links are followed.
///
/// # Errors
/// Where it cannot be opened, is not a regular file, or is larger.
pub(crate) fn open(path: &Path, limit: u64) -> io::Result<File> {
    checked(File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?, limit)
}

/// Opens a regular file of at most `limit` bytes that this program once wrote; a link in its place is an error.
///
/// # Errors
/// Where it cannot be opened, is a link or no regular file, or is larger.
pub(crate) fn open_own(path: &Path, limit: u64) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let opened = File::options().read(true).custom_flags(flags.bits() as i32).open(path);
    checked(opened.map_err(name_link)?, limit)
}

/// Opens a regular file of at most `limit` bytes that another process, or a file, named: `path` is relative to `folder`, or
/// begins with it, and neither leaves it nor leads through a link. Links on the way to `folder` itself are followed.
///
/// # Errors
/// Where the path lies outside or leads through a link, or the file cannot be opened, is not a regular file, or is larger.
pub(crate) fn open_inside(folder: &Path, path: &Path, limit: u64) -> io::Result<File> {
    let inner = if path.is_absolute() { path.strip_prefix(folder).map_err(|_| outside(folder))? } else { path };
    let names: Vec<&OsStr> = inner
        .components()
        .map(|part| if let Component::Normal(name) = part { Ok(name) } else { Err(outside(folder)) })
        .collect::<io::Result<_>>()?;
    let (last, folders) = names.split_last().ok_or_else(|| outside(folder))?;
    let common = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let open_at = |at: &File, name: &OsStr, flags: OFlags| {
        openat(at, name, common | flags, Mode::empty()).map(File::from).map_err(|error| name_link(error.into()))
    };
    let mut at = File::open(folder)?;
    for name in folders {
        at = open_at(&at, name, OFlags::DIRECTORY)?;
    }
    checked(open_at(&at, last, OFlags::empty())?, limit)
}

/// Reads an opened file to its end, at most `limit` bytes: it may have grown since its size was asked.
///
/// # Errors
/// Where it cannot be read, or is longer.
pub(crate) fn read(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64, limit));
    }
    Ok(bytes)
}

/// Reads an opened file of UTF-8 text to its end, at most `limit` bytes.
///
/// # Errors
/// Where it cannot be read, is longer, or is not UTF-8.
pub(crate) fn read_text(file: File, limit: u64) -> io::Result<String> {
    String::from_utf8(read(file, limit)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn checked(file: File, limit: u64) -> io::Result<File> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if metadata.len() > limit {
        return Err(too_large(metadata.len(), limit));
    }
    Ok(file)
}

fn too_large(bytes: u64, limit: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it has {bytes} bytes or more, and at most {limit} are read"))
}

fn outside(folder: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it lies outside of `{}`", folder.display()))
}

/// The system says `ELOOP`, or `ENOTDIR` where a folder was asked for, to a link that it was told not to follow.
fn name_link(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// What stands in for each kind of file that must not be read: its name, and a part of the message.
    const REFUSED: [(&str, &str); 5] = [
        ("fifo", "not a regular file"),
        ("zero", "not a regular file"),
        ("folder", "directory"),
        ("missing", "No such file"),
        ("large", "at most 10 are read"),
    ];

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::create_dir(at.join("folder")).unwrap();
        fs::write(at.join("file"), b"sound").unwrap();
        fs::write(at.join("folder/file"), b"inner").unwrap();
        fs::write(at.join("large"), b"eleven char").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at.join("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        symlink("/dev/zero", at.join("zero")).unwrap();
        symlink("file", at.join("link")).unwrap();
        symlink("folder", at.join("folder-link")).unwrap();
        folder
    }

    #[test]
    fn only_regular_files_within_the_bound_are_opened() {
        let folder = folder();
        let at = folder.path();
        assert_eq!(read(open(&at.join("file"), 10).unwrap(), 10).unwrap(), b"sound");
        assert_eq!(read(open(&at.join("link"), 10).unwrap(), 10).unwrap(), b"sound", "a user's links are followed");
        for (name, why) in REFUSED {
            let error = open(&at.join(name), 10).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn a_file_of_our_own_is_no_link() {
        let folder = folder();
        let at = folder.path();
        assert_eq!(read_text(open_own(&at.join("file"), 10).unwrap(), 10).unwrap(), "sound");
        for name in ["link", "zero"] {
            let error = open_own(&at.join(name), 10).unwrap_err().to_string();
            assert!(error.contains("symbolic link"), "{name}: {error}");
        }
    }

    #[test]
    fn nothing_outside_of_the_folder_is_opened() {
        let folder = folder();
        let at = folder.path();
        fs::create_dir(at.join("other")).unwrap();
        for path in [Path::new("file"), &at.join("file"), Path::new("folder/file"), &at.join("folder/file")] {
            assert_eq!(read(open_inside(at, path, 10).unwrap(), 10).unwrap().len(), 5, "{}", path.display());
        }
        let others = [
            ("../etc/passwd", "outside"),
            ("folder/../file", "outside"),
            ("/etc/passwd", "outside"),
            ("", "outside"),
            ("/", "outside"),
            ("link", "symbolic link"),
        ];
        for (path, why) in others.into_iter().chain(REFUSED).filter(|(path, _)| *path != "zero") {
            let error = open_inside(at, Path::new(path), 10).unwrap_err().to_string();
            assert!(error.contains(why), "{path}: {error}");
        }
        // a folder that is a link is not gone into, whatever the system calls it
        assert!(open_inside(at, Path::new("folder-link/file"), 10).is_err());
        assert!(open_inside(&at.join("other"), &at.join("file"), 10).is_err());
        let through = at.join("folder-link");
        assert!(open_inside(&through, Path::new("file"), 10).is_ok(), "the folder itself may be reached by a link");
    }

    #[test]
    fn a_file_that_grew_is_read_to_the_bound() {
        let folder = folder();
        let path = folder.path().join("file");
        let file = open(&path, 10).unwrap();
        fs::write(&path, b"much longer than before").unwrap();
        assert!(read(file, 10).unwrap_err().to_string().contains("at most 10"));
    }
}
