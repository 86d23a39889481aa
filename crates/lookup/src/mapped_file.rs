//! The only function that maps a file: the bytes of an immutable file, mapped if that is safe.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The bytes of a file, mapped or read.
#[derive(Debug)]
pub(crate) struct MappedFile {
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    /// With the file, to check its length.
    Mapped(memmap2::Mmap, File),
    Read(Vec<u8>),
}

/// How a file's bytes are held. There is no default, because only the caller knows for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Mapped on local file systems, read on network file systems, where another machine may change a file in place and
    /// a lost server turns each page access into a fatal signal.
    ///
    /// For long-lived processes that share the file's pages. Replace such a file only by a rename (`mv`,
    /// `cache snapshot`, `cache pull`), never by a copy over it (`cp`, `rsync --inplace`, `>`): that truncates the file
    /// under its readers, and the system ends a process that touches a missing page (`SIGBUS`).
    WhereLocal,
    /// Read into memory, independent of later changes to the file. For processes that open a file once and end.
    Never,
}

/// `statfs` magic numbers of file systems whose data is on another machine (Linux, `include/uapi/linux/magic.h` and the
/// file systems' own sources): NFS, SMB, SMB2, CIFS, Ceph, AFS, 9P, FUSE, Lustre, GPFS, BeeGFS, OCFS2, GFS2.
const REMOTE: [u32; 13] = [
    0x6969,
    0x517b,
    0xfe53_4d42,
    0xff53_4d42,
    0x00c3_6400,
    0x5346_414f,
    0x0102_1997,
    0x6573_5546,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x7461_636f,
    0x0116_1970,
];

impl MappedFile {
    /// Opens a regular file of at most `limit` bytes.
    ///
    /// A file that is mapped must not change while it is open: those that this program writes are renamed into place
    /// and never written again ([`Mapping::WhereLocal`] says what else is safe).
    ///
    /// # Errors
    /// If it cannot be read, is not a regular file or is longer than `limit`.
    pub(crate) fn open(path: &Path, mapping: Mapping, limit: u64) -> io::Result<Self> {
        let (mut file, metadata) = open(path, limit)?;
        // an empty file cannot be mapped
        if mapping == Mapping::WhereLocal && metadata.len() > 0 && is_local(&file) {
            return Ok(Self { bytes: Bytes::Mapped(map(&file)?, file) });
        }
        // allocated at once: growing would copy a large file several times
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(metadata.len()).unwrap_or(usize::MAX))?;
        (&mut file).take(limit).read_to_end(&mut bytes)?;
        Ok(Self { bytes: Bytes::Read(bytes) })
    }

    /// The first bytes of such a file, up to a limit, and its length.
    pub(crate) fn start(path: &Path, most: usize, limit: u64) -> io::Result<(Vec<u8>, u64)> {
        let (file, metadata) = open(path, limit)?;
        let mut start = Vec::new();
        file.take(most as u64).read_to_end(&mut start)?;
        Ok((start, metadata.len()))
    }

    /// Whether the bytes are mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped(..))
    }

    /// Whether all the bytes are still accessible: `false` if the mapped file was truncated since.
    pub(crate) fn is_whole(&self) -> bool {
        match &self.bytes {
            Bytes::Mapped(map, file) => file.metadata().is_ok_and(|metadata| metadata.len() >= map.len() as u64),
            Bytes::Read(_) => true,
        }
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map, _) => map,
            Bytes::Read(bytes) => bytes,
        }
    }
}

fn open(path: &Path, limit: u64) -> io::Result<(File, Metadata)> {
    // a pipe must not make the open wait
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if metadata.len() > limit {
        let message = format!("{} bytes, where at most {limit} are allowed", metadata.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok((file, metadata))
}

/// Whether the data of an open file or folder is on this machine.
pub fn is_local(file: &File) -> bool {
    // the magic number is 32 bits wide, although the field's type depends on the platform
    rustix::fs::fstatfs(file).is_ok_and(|stat| !REMOTE.contains(&(stat.f_type as u32)))
}

#[allow(unsafe_code)]
fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the mapping is read-only, and the file behind it is immutable by contract (see `MappedFile::open`): a
    // writer makes a new file and renames it over this name, which leaves the mapped one as it is. Nothing but bytes is
    // read from it, and every length in it is checked before it is used.
    unsafe { memmap2::Mmap::map(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_and_read_bytes_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for bytes in [&b""[..], b"x", &[7; 10_000]] {
            std::fs::write(&path, bytes).unwrap();
            let mapped = MappedFile::open(&path, Mapping::WhereLocal, 10_000).unwrap();
            let read = MappedFile::open(&path, Mapping::Never, 10_000).unwrap();
            assert_eq!((&*mapped, &*read, read.is_mapped()), (bytes, bytes, false));
            assert_eq!(mapped.is_mapped(), !bytes.is_empty());
        }
        let (mapped, read) =
            [Mapping::WhereLocal, Mapping::Never].map(|how| MappedFile::open(&path, how, 10_000)).into();
        let (mapped, read) = (mapped.unwrap(), read.unwrap());
        assert!(mapped.is_whole() && read.is_whole());
        File::options().write(true).open(&path).unwrap().set_len(9_999).unwrap();
        assert!(!mapped.is_whole() && read.is_whole());
        assert_eq!(read.len(), 10_000, "what was read stays");
        File::options().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        let error = MappedFile::open(&path, Mapping::WhereLocal, 9_999).unwrap_err();
        assert!(error.to_string().contains("at most 9999"), "{error}");
        assert!(MappedFile::open(folder.path(), Mapping::WhereLocal, 1).is_err());
    }
}
