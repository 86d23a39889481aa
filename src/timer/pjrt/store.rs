//! Serialized executables, kept from run to run: a compilation costs a hundred times a load.
//!
//! A folder `executables-v1` of files named by their key. Format of a file:
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `ATLEXE1\n` |
//! | 4 | length of the header, little endian |
//! | 32 | SHA-256 of the header |
//! | header | JSON: `{"payload_digest": SHA-256, "payload_bytes": n, "signature": …}` |
//! | payload | what the plugin gave, to the file's end |
//!
//! A file is written under another name and renamed. Whatever is not as described, a flipped byte included, is no file: the
//! program is compiled again. Nothing here is worth more than the time to make it, so nothing is synced: what a power cut
//! leaves of a file has not the digest of its header.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, FieldHasher};
use crate::outside_file;
use crate::timer::protocol::{ExecutableRef, Signature};

const MAGIC: &[u8; 8] = b"ATLEXE1\n";
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// Largest serialized executable that is read.
pub(super) const MAX_EXECUTABLE_BYTES: u64 = 4 << 30;

/// What an executable depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExecutableKey {
    pub(super) program: Digest,
    pub(super) format: &'static str,
    pub(super) compile_options: Vec<u8>,
    pub(super) plugin: Digest,
    pub(super) device: String,
    pub(super) device_index: usize,
    pub(super) cpu_features: String,
    pub(super) xla_flags: Vec<String>,
}

impl ExecutableKey {
    fn to_digest(&self) -> Digest {
        let mut hasher = FieldHasher::new("pjrt-executable-v1");
        hasher
            .field(self.program.as_bytes())
            .field(self.format.as_bytes())
            .field(&self.compile_options)
            .field(self.plugin.as_bytes())
            .field(self.device.as_bytes())
            .field(&(self.device_index as u64).to_le_bytes())
            .field(self.cpu_features.as_bytes());
        for flag in &self.xla_flags {
            hasher.field(flag.as_bytes());
        }
        hasher.finish()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Header {
    payload_digest: Digest,
    payload_bytes: u64,
    signature: Option<Signature>,
}

/// An executable as it was found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    pub(super) executable: ExecutableRef,
    pub(super) signature: Option<Signature>,
}

/// The folder.
#[derive(Debug, Clone)]
pub(super) struct ExecutableStore {
    folder: PathBuf,
}

impl ExecutableStore {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let folder = folder.join("executables-v1");
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    fn path(&self, key: &ExecutableKey) -> PathBuf {
        self.folder.join(format!("{}.exe", key.to_digest()))
    }

    /// The executable of a key, its checksum verified; `None` where there is no sound one.
    pub(super) fn find(&self, key: &ExecutableKey) -> Option<Kept> {
        let path = self.path(key);
        let (header, offset) = read_header(&path).ok()?;
        Some(Kept { executable: ExecutableRef { path, offset }, signature: header.signature })
    }

    /// Takes over what a compile worker wrote.
    pub(super) fn keep(
        &self,
        key: &ExecutableKey,
        mut payload: File,
        signature: Option<Signature>,
    ) -> io::Result<Kept> {
        let payload_bytes = payload.metadata()?.len();
        let payload_digest = Digest::of_reader(Read::by_ref(&mut payload).take(payload_bytes))?;
        payload.rewind()?;
        let header = serde_json::to_vec(&Header { payload_digest, payload_bytes, signature: signature.clone() })?;
        let length = u32::try_from(header.len()).ok().filter(|&length| length <= MAX_HEADER_BYTES);
        let length = length.ok_or_else(|| io::Error::other("a signature too long to keep"))?;
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.folder)?;
        file.write_all(MAGIC)?;
        file.write_all(&length.to_le_bytes())?;
        file.write_all(Digest::of(&header).as_bytes())?;
        file.write_all(&header)?;
        let offset = file.stream_position()?;
        io::copy(&mut payload.take(payload_bytes), &mut file)?;
        let path = self.path(key);
        file.persist(&path).map_err(|error| error.error)?;
        Ok(Kept { executable: ExecutableRef { path, offset }, signature })
    }
}

fn read_header(path: &Path) -> io::Result<(Header, u64)> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let mut file = outside_file::open_own(path, MAX_EXECUTABLE_BYTES.saturating_add(u64::from(MAX_HEADER_BYTES) + 44))?;
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
    let header: Header = serde_json::from_slice(&header)?;
    let offset = (magic.len() + size_of::<u32>() + digest.len()) as u64 + u64::from(length);
    if file.metadata()?.len() != offset.saturating_add(header.payload_bytes) {
        return Err(wrong());
    }
    file.seek(SeekFrom::Start(offset))?;
    if Digest::of_reader(file)? != header.payload_digest {
        return Err(wrong());
    }
    Ok((header, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ExecutableKey {
        ExecutableKey {
            program: Digest::of(b"program"),
            format: "mlir",
            compile_options: vec![1, 2],
            plugin: Digest::of(b"plugin"),
            device: "cpu:cpu".into(),
            device_index: 0,
            cpu_features: "avx2 fma".into(),
            xla_flags: Vec::new(),
        }
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let folder = tempfile::tempdir().unwrap();
        let store = ExecutableStore::open(folder.path()).unwrap();
        let payload = folder.path().join("payload");
        fs::write(&payload, b"machine code").unwrap();
        let signature = Some(Signature { parameters: vec!["f32[2]".parse().unwrap()] });
        store.keep(&key(), File::open(&payload).unwrap(), signature.clone()).unwrap();
        let kept = store.find(&key()).unwrap();
        assert_eq!(kept.signature, signature);
        let bytes = fs::read(&kept.executable.path).unwrap();
        assert_eq!(&bytes[usize::try_from(kept.executable.offset).unwrap()..], b"machine code");
        for other in [
            ExecutableKey { program: Digest::of(b"other"), ..key() },
            ExecutableKey { format: "hlo", ..key() },
            ExecutableKey { compile_options: vec![1], ..key() },
            ExecutableKey { plugin: Digest::of(b"other"), ..key() },
            ExecutableKey { device: "cuda:H200".into(), ..key() },
            ExecutableKey { device_index: 1, ..key() },
            ExecutableKey { cpu_features: "avx2".into(), ..key() },
            ExecutableKey { xla_flags: vec!["--a".into()], ..key() },
        ] {
            assert_eq!(store.find(&other), None, "{other:?}");
        }
    }

    #[test]
    fn a_flipped_or_missing_byte_anywhere_is_no_executable() {
        let folder = tempfile::tempdir().unwrap();
        let store = ExecutableStore::open(folder.path()).unwrap();
        let payload = folder.path().join("payload");
        fs::write(&payload, b"machine code").unwrap();
        let kept = store.keep(&key(), File::open(&payload).unwrap(), None).unwrap();
        let sound = fs::read(&kept.executable.path).unwrap();
        for at in 0..sound.len() {
            let mut flipped = sound.clone();
            flipped[at] ^= 0x10;
            fs::write(&kept.executable.path, &flipped).unwrap();
            assert_eq!(store.find(&key()), None, "flipped at {at}");
            fs::write(&kept.executable.path, &sound[..at]).unwrap();
            assert_eq!(store.find(&key()), None, "cut at {at}");
        }
        fs::write(&kept.executable.path, [&sound[..], b"x"].concat()).unwrap();
        assert_eq!(store.find(&key()), None);
        fs::write(&kept.executable.path, &sound).unwrap();
        assert!(store.find(&key()).is_some());
    }
}
