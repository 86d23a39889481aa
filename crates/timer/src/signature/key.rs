//! Key files.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ed25519_dalek::{SigningKey, VerifyingKey};

use super::SignatureError;
use crate::outside_file;

const PRIVATE: &str = "autotune-lowered-private-key-v1";
const PUBLIC: &str = "autotune-lowered-public-key-v1";
/// Largest key file that is read: some hundred public keys.
const MAX_KEY_FILE_BYTES: u64 = 1 << 16;

/// A private key. Its bytes are never printed.
pub struct PrivateKey(pub(super) SigningKey);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(of {})", self.to_public())
    }
}

impl PrivateKey {
    /// Creates a key from the system's random numbers, and writes it as `path`, which only its owner may read, and its
    /// public part as `path.pub`. Returns the latter's path.
    ///
    /// # Errors
    /// If one of the files already exists, or cannot be written.
    pub fn generate(path: &Path) -> Result<(Self, PathBuf), SignatureError> {
        let mut seed = [0_u8; 32];
        let mut filled = 0;
        while let Some(rest) = seed.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io_error("take random numbers for", path)(error.into())),
            }
        }
        let key = Self(SigningKey::from_bytes(&seed));
        let mut public = path.as_os_str().to_owned();
        public.push(".pub");
        let public = PathBuf::from(public);
        write_new(path, 0o600, &format!("{PRIVATE} {}\n", hex(&seed)))?;
        write_new(&public, 0o644, &format!("{PUBLIC} {}\n", key.to_public()))?;
        Ok((key, public))
    }

    /// Reads a private key.
    ///
    /// # Errors
    /// If the file cannot be read, holds something else, or may be read by others than its owner.
    pub fn read(path: &Path) -> Result<Self, SignatureError> {
        let (text, mode) = read_text(path)?;
        let seed =
            text.strip_suffix('\n').and_then(|line| bytes_of::<32>(line.strip_prefix(PRIVATE)?.strip_prefix(' ')?));
        let Some(seed) = seed else {
            return Err(SignatureError::NotAKey { path: path.to_owned(), what: "private key" });
        };
        if mode & 0o077 != 0 {
            return Err(SignatureError::Exposed { path: path.to_owned(), mode: mode & 0o777 });
        }
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// The public key in hexadecimal digits.
    pub fn to_public(&self) -> String {
        hex(self.0.verifying_key().as_bytes())
    }

    /// The public key, as the only one that is trusted.
    pub fn to_public_keys(&self) -> PublicKeys {
        PublicKeys { path: PathBuf::from("the key that signs"), keys: vec![self.0.verifying_key()] }
    }
}

/// Trusted keys: any of the keys of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKeys {
    pub(super) path: PathBuf,
    pub(super) keys: Vec<VerifyingKey>,
}

impl PublicKeys {
    /// Reads a file of public keys.
    ///
    /// # Errors
    /// If the file cannot be read, a line is not a public key, or there is none.
    pub fn read(path: &Path) -> Result<Self, SignatureError> {
        let wrong = || SignatureError::NotAKey { path: path.to_owned(), what: "file of public keys" };
        let (text, _) = read_text(path)?;
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys = lines
            .map(|line| {
                let bytes = line.strip_prefix(PUBLIC).and_then(|rest| bytes_of::<32>(rest.strip_prefix(' ')?));
                let key = bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
                key.filter(|key| !key.is_weak()).ok_or_else(wrong)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(wrong()) } else { Ok(Self { path: path.to_owned(), keys }) }
    }
}

pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SignatureError {
    let path = path.to_owned();
    move |source| SignatureError::Io { action, path, source }
}

/// The text of a key file and its mode.
fn read_text(path: &Path) -> Result<(String, u32), SignatureError> {
    let (bytes, mode) = read_plain(path, MAX_KEY_FILE_BYTES).map_err(io_error("read", path))?;
    let text = String::from_utf8(bytes);
    text.map(|text| (text, mode)).map_err(|_| SignatureError::NotAKey { path: path.to_owned(), what: "key file" })
}

/// The bytes of a regular file of at most `limit` bytes, and its mode.
pub(super) fn read_plain(path: &Path, limit: u64) -> io::Result<(Vec<u8>, u32)> {
    let file = outside_file::open(path, limit)?;
    let mode = file.metadata()?.permissions().mode();
    Ok((outside_file::read(file, limit)?, mode))
}

/// Writes a file that does not exist yet, atomically.
fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), SignatureError> {
    let write = || -> io::Result<()> {
        // not by a temporary file and a rename, because an existing key must never be replaced
        let mut file = File::options().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| {
            let _ = fs::remove_file(path);
        })
    };
    write().map_err(io_error("write the key", path))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exactly this many bytes in lower-case hexadecimal digits, so that there is only one spelling.
pub(super) fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}
