//! The one function that maps a file: the bytes of an immutable file, mapped where that is safe to rely on.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The bytes of a file, mapped or read.
#[derive(Debug)]
pub struct MappedFile {
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(memmap2::Mmap),
    Read(Vec<u8>),
}

/// How a file's bytes are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mapping {
    /// Mapped on local file systems, read on those of the network, where another machine may change a file in place and
    /// a lost server turns each touch of a page into a fatal signal.
    #[default]
    WhereLocal,
    /// Read into memory.
    Never,
}

/// `statfs` magic numbers of file systems whose bytes another machine holds (Linux, `include/uapi/linux/magic.h` and the
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
    /// The file must not change while it is open: files that this program maps are renamed into place and never written
    /// again.
    ///
    /// # Errors
    /// Where it cannot be read, is no regular file or is longer than `limit`.
    pub fn open(path: &Path, mapping: Mapping, limit: u64) -> io::Result<Self> {
        // a pipe must not make the open wait
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut file = File::options().read(true).custom_flags(flags).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        if metadata.len() > limit {
            let message = format!("{} bytes, where at most {limit} are allowed", metadata.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        // an empty file cannot be mapped
        if mapping == Mapping::WhereLocal && metadata.len() > 0 && is_local(&file) {
            return Ok(Self { bytes: Bytes::Mapped(map(&file)?) });
        }
        let mut bytes = Vec::new();
        (&mut file).take(limit).read_to_end(&mut bytes)?;
        Ok(Self { bytes: Bytes::Read(bytes) })
    }

    /// Whether the bytes are mapped.
    pub fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped(_))
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Read(bytes) => bytes,
        }
    }
}

fn is_local(file: &File) -> bool {
    // the magic number is 32 bits wide, whatever the type of the field is on this machine
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
        let error = MappedFile::open(&path, Mapping::WhereLocal, 9_999).unwrap_err();
        assert!(error.to_string().contains("at most 9999"), "{error}");
        assert!(MappedFile::open(folder.path(), Mapping::WhereLocal, 1).is_err());
    }
}
