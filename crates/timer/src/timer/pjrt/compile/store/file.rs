//! A file of the store: its bytes, read and written.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

use super::entry::EntryHeader;
use super::key::ExecutableKey;
use crate::digest::{Digest, FieldHasher};
use crate::outside_file;

const MAGIC: &[u8; 8] = b"ATLEXE1\n";
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// Largest serialized executable that is read.
pub(crate) const MAX_EXECUTABLE_BYTES: u64 = 4 << 30;
/// A use is recorded at most this often, as the file's time of modification.
pub(super) const NOTED_EVERY: Duration = Duration::from_secs(3600);

/// Whether somebody else may have written a file.
pub(super) fn written_by_others(metadata: &fs::Metadata) -> Option<String> {
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != rustix::process::geteuid().as_raw() {
        Some(format!("it belongs to another user (number {owner})"))
    } else if mode & 0o022 != 0 {
        Some(format!("its mode is {mode:04o}, and others may write it"))
    } else {
        None
    }
}

/// Writes a header and its payload under a temporary name; also the header's digest, and where the payload begins.
pub(super) fn written(
    folder: &Path,
    header: &EntryHeader,
    payload: &mut dyn Read,
) -> io::Result<(NamedTempFile, Digest, u64)> {
    let payload_bytes = header.payload_bytes;
    let header = serde_json::to_vec(header)?;
    let length = u32::try_from(header.len()).ok().filter(|&length| length <= MAX_HEADER_BYTES);
    let length = length.ok_or_else(|| io::Error::other("a signature too long to keep"))?;
    let mut file = temporary(folder)?;
    let digest = Digest::of(&header);
    file.write_all(MAGIC)?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(digest.as_bytes())?;
    file.write_all(&header)?;
    let offset = file.stream_position()?;
    io::copy(&mut payload.take(payload_bytes), &mut file)?;
    Ok((file, digest, offset))
}

/// A file that becomes one of the store's, unless a crash leaves it behind.
pub(super) fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(".new-").tempfile_in(folder)
}

/// Puts a finished file in its place. A folder there is moved aside, because no file can replace it and it is not this
/// program's.
pub(super) fn put(file: NamedTempFile, path: &Path) -> io::Result<()> {
    let refused = match file.persist(path) {
        Ok(_) => return Ok(()),
        Err(refused) => refused,
    };
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return Err(refused.error);
    }
    let moved = fs::remove_dir(path).or_else(|_| fs::rename(path, path.with_extension("exe.aside")));
    moved.map_err(|error| {
        let message = format!("`{}` is a folder that cannot be moved aside: {error}; remove it", path.display());
        io::Error::new(error.kind(), message)
    })?;
    refused.file.persist(path).map(drop).map_err(|error| error.error)
}

/// Why a file is not what was written, in a few words.
pub(super) fn why_damaged(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidData if error.get_ref().is_none() => {
            "its bytes are not those that were written".to_owned()
        }
        io::ErrorKind::UnexpectedEof => "its end is missing".to_owned(),
        _ => error.to_string(),
    }
}

/// The digest that is signed. It differs from the header's own digest, so that a signature of a snapshot cannot be used
/// for a file.
pub(super) fn signed_digest(header: Digest) -> Digest {
    FieldHasher::new("pjrt-executable-file-v1").field(header.as_bytes()).finish()
}

/// A file's header with its digest.
pub(super) struct OpenEntry {
    pub(super) header: EntryHeader,
    /// As in [`ListedExecutable`](super::Listed).
    pub(super) digest: Digest,
    pub(super) file: File,
    /// Where the payload begins.
    offset: u64,
    pub(super) metadata: fs::Metadata,
}

pub(super) fn read_head(path: &Path) -> io::Result<OpenEntry> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let mut file = outside_file::open_own(path, MAX_EXECUTABLE_BYTES.saturating_add(u64::from(MAX_HEADER_BYTES) + 44))?;
    let metadata = file.metadata()?;
    let (mut magic, mut length, mut digest) = ([0_u8; 8], [0_u8; 4], [0_u8; 32]);
    file.read_exact(&mut magic)?;
    file.read_exact(&mut length)?;
    file.read_exact(&mut digest)?;
    let length = u32::from_le_bytes(length);
    if magic != *MAGIC || length > MAX_HEADER_BYTES {
        return Err(wrong());
    }
    let mut header = Vec::new();
    Read::by_ref(&mut file).take(u64::from(length)).read_to_end(&mut header)?;
    if Digest::of(&header).as_bytes() != &digest {
        return Err(wrong());
    }
    let offset = (magic.len() + size_of::<u32>() + digest.len()) as u64 + u64::from(length);
    let digest = signed_digest(Digest::from_bytes(digest));
    let header: EntryHeader = serde_json::from_slice(&header)?;
    if metadata.len() != offset.saturating_add(header.payload_bytes) {
        return Err(wrong());
    }
    Ok(OpenEntry { header, digest, file, offset, metadata })
}

/// The header of this key's file, verified with the whole file, and where its payload begins. Records the use.
pub(super) fn read_whole(path: &Path, key: &ExecutableKey) -> io::Result<(OpenEntry, u64)> {
    let mut head = read_head(path)?;
    let OpenEntry { header, file, offset, metadata, .. } = &mut head;
    let offset = *offset;
    file.seek(SeekFrom::Start(offset))?;
    if header.key != *key || Digest::of_reader(Read::by_ref(file).take(header.payload_bytes))? != header.payload_digest
    {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let now = SystemTime::now();
    if metadata.modified().is_ok_and(|noted| now.duration_since(noted).is_ok_and(|since| since > NOTED_EVERY)) {
        // if the use cannot be recorded, a later run may have to compile again
        let _ = file.set_modified(now);
    }
    Ok((head, offset))
}
