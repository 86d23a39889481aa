//! The only way to open a file that somebody else named or may have replaced: it must be a regular file, opening it
//! never blocks, and reading it is bounded.
//!
//! Who named the path decides which links are followed. A user's path may lead through links, because build systems and
//! data folders are full of them ([`open`]); a command's input may be a pipe, too ([`open_input`]). A file that this
//! program wrote itself, under a name of its own, is never a link ([`open_own`]). A path that a worker or a file names
//! must be inside a given folder, with no link on the way ([`OutsideFolder::open_file`]).
//!
//! ```
//! use autotune_lowered_lookup::outside_file;
//! use autotune_lowered_lookup::scratch::Scratch;
//!
//! let folder = Scratch::new()?;
//! let path = folder.path().join("input.json");
//! std::fs::write(&path, "{}")?;
//! assert_eq!(outside_file::text(&path, 1 << 20)?, "{}");
//! assert!(outside_file::text(&path, 1).is_err(), "it is longer than the bound");
//! assert!(outside_file::bytes(folder.path(), 1 << 20).is_err(), "a folder is no file");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, fcntl_setfl, openat};

/// Opens a regular file of at most `limit` bytes that the user named; links are followed.
///
/// # Errors
/// If it cannot be opened, is not a regular file, or is larger.
pub fn open(path: &Path, limit: u64) -> io::Result<File> {
    checked(File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?, limit)
}

/// Reads a regular file of at most `limit` bytes that the user named; links are followed.
///
/// # Errors
/// If it cannot be opened or read, is not a regular file, or is larger.
pub fn bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read(open(path, limit)?, limit)
}

/// Reads a regular file of at most `limit` bytes of UTF-8 text that the user named; links are followed.
///
/// # Errors
/// If it cannot be opened or read, is not a regular file, is larger, or is not UTF-8.
pub fn text(path: &Path, limit: u64) -> io::Result<String> {
    read_text(open(path, limit)?, limit)
}

/// A command's input.
pub enum Input {
    /// A regular file.
    File(File),
    /// A pipe with a writer, such as a shell's `<(…)`.
    Pipe(Box<dyn Read>),
}

/// Opens a command's input: a regular file of at most `limit` bytes, or a pipe. A pipe without a writer is an error,
/// since its reader would block forever.
///
/// # Errors
/// If it cannot be opened, is neither, or is larger.
pub fn open_input(path: &Path, limit: u64) -> io::Result<Input> {
    let mut file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if !file.metadata()?.file_type().is_fifo() {
        return checked(file, limit).map(Input::File);
    }
    let mut first = vec![0];
    match file.read(&mut first) {
        Ok(0) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe that nothing writes into")),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => first.clear(),
        Err(error) => return Err(error),
    }
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(Input::Pipe(Box::new(io::Cursor::new(first).chain(file))))
}

/// Reads a command's input, at most `limit` bytes.
///
/// # Errors
/// As [`open_input`], and if it cannot be read.
pub fn input(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    match open_input(path, limit)? {
        Input::File(file) => read(file, limit),
        Input::Pipe(pipe) => read(pipe, limit),
    }
}

/// Opens a regular file of at most `limit` bytes that this program once wrote; a link in its place is an error.
///
/// # Errors
/// If it cannot be opened, is a link or not a regular file, or is larger.
pub fn open_own(path: &Path, limit: u64) -> io::Result<File> {
    checked(open_own_with(File::options().read(true), path)?, limit)
}

/// Opens a regular file of this program's own in any mode; a link in its place is an error.
///
/// # Errors
/// If it cannot be opened, or is a link or not a regular file.
pub fn open_own_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    checked(options.custom_flags(flags.bits() as i32).open(path).map_err(name_link)?, u64::MAX)
}

/// A folder in which another process, or a file, names files. It must stay the one that was first opened: a link or
/// another folder in its place later is an error. No handle of it is kept open, since there may be many.
#[derive(Debug)]
pub struct OutsideFolder {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl OutsideFolder {
    /// Records a folder; links on the way to it are followed.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let identity = identity(&handle(path)?)?;
        Ok(Self { path: path.to_owned(), identity })
    }

    /// Opens a regular file of at most `limit` bytes: `path` is relative to the folder, or begins with its path, and
    /// neither leaves it nor leads through a link.
    ///
    /// # Errors
    /// If the path is outside or leads through a link, or the file cannot be opened, is not a regular file, or is
    /// larger.
    pub fn open_file(&self, path: &Path, limit: u64) -> io::Result<File> {
        let inner = if path.is_absolute() { path.strip_prefix(&self.path).map_err(|_| self.outside())? } else { path };
        let mut names = Vec::new();
        for part in inner.components() {
            match part {
                Component::Normal(name) => names.push(name),
                Component::CurDir => {}
                _ => return Err(self.outside()),
            }
        }
        let (last, folders) = names.split_last().ok_or_else(|| self.outside())?;
        let common = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let open_at = |at: &File, name: &OsStr, flags: OFlags| {
            openat(at, name, common | flags, Mode::empty()).map(File::from).map_err(|error| name_link(error.into()))
        };
        let mut at = handle(&self.path)?;
        if identity(&at)? != self.identity {
            let message = format!("`{}` is another folder than it was", self.path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        for name in folders {
            at = open_at(&at, name, OFlags::DIRECTORY)?;
        }
        checked(open_at(&at, last, OFlags::empty())?, limit)
    }

    fn outside(&self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, format!("it is outside of `{}`", self.path.display()))
    }
}

fn handle(folder: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlags::DIRECTORY.bits() as i32).open(folder)
}

fn identity(folder: &File) -> io::Result<(u64, u64)> {
    let metadata = folder.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Reads an opened file to its end, at most `limit` bytes: it may have grown since its size was checked.
///
/// # Errors
/// If it cannot be read, or is longer.
pub fn read(file: impl Read, limit: u64) -> io::Result<Vec<u8>> {
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
/// If it cannot be read, is longer, or is not UTF-8.
pub fn read_text(file: File, limit: u64) -> io::Result<String> {
    String::from_utf8(read(file, limit)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn checked(file: File, limit: u64) -> io::Result<File> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
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

/// For a link that must not be followed, the system returns `ELOOP`, or `ENOTDIR` if a folder was requested.
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
    use std::io::Write;
    use std::os::unix::fs::symlink;

    /// What stands in for each kind of file that must not be read: its name, and a part of the message.
    const REFUSED: [(&str, &str); 5] = [
        ("fifo", "not a regular file"),
        ("zero", "not a regular file"),
        ("folder", "it is a folder"),
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
        assert_eq!(bytes(&at.join("link"), 10).unwrap(), b"sound", "a user's links are followed");
        assert_eq!(text(&at.join("link"), 10).unwrap(), "sound");
        assert_eq!(input(&at.join("link"), 10).unwrap(), b"sound");
        for (name, why) in REFUSED {
            let error = open(&at.join(name), 10).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn a_pipe_is_read_while_somebody_writes_to_it() {
        let folder = folder();
        let pipe = folder.path().join("fifo");
        assert!(input(&pipe, 10).unwrap_err().to_string().contains("a pipe that nothing writes into"));
        for content in ["sound", "eleven char"] {
            let _reader = File::options().read(true).write(true).open(&pipe).unwrap();
            let mut writer = File::options().write(true).open(&pipe).unwrap();
            let opened = open_input(&pipe, 10).unwrap();
            writer.write_all(content.as_bytes()).unwrap();
            drop((_reader, writer));
            let Input::Pipe(pipe) = opened else { panic!("it is a pipe") };
            let found = read(pipe, 10);
            assert_eq!(found.is_ok(), content.len() <= 10, "{found:?}");
        }
        assert!(input(&folder.path().join("zero"), 10).unwrap_err().to_string().contains("not a regular file"));
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
        let inside = OutsideFolder::open(at).unwrap();
        let paths = ["file", "./file", "folder/file", "folder/./file"];
        for path in paths.iter().map(PathBuf::from).chain([at.join("file"), at.join("folder/file")]) {
            assert_eq!(read(inside.open_file(&path, 10).unwrap(), 10).unwrap().len(), 5, "{}", path.display());
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
            let error = inside.open_file(Path::new(path), 10).unwrap_err().to_string();
            assert!(error.contains(why), "{path}: {error}");
        }
        // a folder that is a link is not entered, whatever error the system returns
        assert!(inside.open_file(Path::new("folder-link/file"), 10).is_err());
        assert!(OutsideFolder::open(&at.join("other")).unwrap().open_file(&at.join("file"), 10).is_err());
        let through = OutsideFolder::open(&at.join("folder-link")).unwrap();
        assert!(through.open_file(Path::new("file"), 10).is_ok(), "the folder itself may be reached by a link");
        // it stays the folder that was opened, whatever replaces it later
        fs::rename(at.join("other"), at.join("moved")).unwrap();
        let other = OutsideFolder::open(&at.join("moved")).unwrap();
        fs::remove_dir(at.join("moved")).unwrap();
        symlink("folder", at.join("moved")).unwrap();
        assert!(other.open_file(&at.join("moved/file"), 10).is_err());
        assert!(OutsideFolder::open(&at.join("fifo")).is_err());
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
