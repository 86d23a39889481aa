//! A signature beside the file that it vouches for.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature as Ed25519, Signer};

use super::key::{bytes_of, hex, io_error, read_plain};
use super::{PrivateKey, PublicKeys, SignatureError};
use crate::digest::Digest;

const WORD: &str = "autotune-lowered-signature-v1";
const DOMAIN: &[u8] = b"autotune-lowered snapshot v1\0";
/// Length of a signature file.
pub const MAX_SIGNATURE_BYTES: u64 = 289;

/// Who signed what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    key: [u8; 32],
    digest: Digest,
    signature: [u8; 64],
}

/// Where the signature of a file lies: its name with `.sig` behind it.
pub fn signature_path(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".sig");
    PathBuf::from(path)
}

fn message(digest: &Digest) -> Vec<u8> {
    [DOMAIN, digest.as_bytes()].concat()
}

impl Signature {
    /// Signs a snapshot's digest. The same key and digest give the same signature.
    pub fn sign(digest: Digest, key: &PrivateKey) -> Self {
        let signature = key.0.sign(&message(&digest)).to_bytes();
        Self { key: key.0.verifying_key().to_bytes(), digest, signature }
    }

    /// The line of the signature's file.
    pub fn to_text(&self) -> String {
        format!("{WORD} {} {} {}\n", hex(&self.key), self.digest, hex(&self.signature))
    }

    /// Reads a signature's bytes; `file` is what they are to vouch for, for the error.
    ///
    /// # Errors
    /// Where they are anything but one line of the format.
    pub fn from_bytes(bytes: &[u8], file: &str) -> Result<Self, SignatureError> {
        let parse = || {
            let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
            let mut words = line.split(' ');
            if words.next()? != WORD {
                return None;
            }
            let (key, digest, signature) =
                (bytes_of(words.next()?)?, bytes_of(words.next()?)?, bytes_of(words.next()?)?);
            words.next().is_none().then(|| Self { key, digest: Digest::from_bytes(digest), signature })
        };
        parse().ok_or_else(|| SignatureError::NotASignature { file: file.to_owned() })
    }

    /// Writes it beside the file that it vouches for, whole.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write_beside(&self, file: &Path) -> Result<(), SignatureError> {
        let path = signature_path(file);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let write = || -> io::Result<()> {
            // the umask applies: a signature is there to be read by others
            let everyone = fs::Permissions::from_mode(0o666);
            let mut temporary = tempfile::Builder::new().prefix(".tmp-").permissions(everyone).tempfile_in(folder)?;
            temporary.write_all(self.to_text().as_bytes())?;
            temporary.as_file().sync_all()?;
            temporary.persist(&path).map(drop).map_err(|error| error.error)
        };
        write().map_err(io_error("write the signature", &path))
    }

    /// Reads the signature that lies beside a file.
    ///
    /// # Errors
    /// Where there is none, or it is not one.
    pub fn read_beside(file: &Path) -> Result<Self, SignatureError> {
        let path = signature_path(file);
        let name = file.display().to_string();
        let bytes = match read_plain(&path, MAX_SIGNATURE_BYTES) {
            Ok((bytes, _)) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SignatureError::Missing { file: name });
            }
            Err(source) => return Err(SignatureError::Io { action: "read", path, source }),
        };
        Self::from_bytes(&bytes, &name)
    }

    /// Checks that one of the keys signed this digest, and gives the key in hexadecimal digits.
    ///
    /// # Errors
    /// Where another key signed, another digest is signed, or the signature does not hold.
    pub fn check(&self, digest: Digest, keys: &PublicKeys, file: &str) -> Result<String, SignatureError> {
        let Some(key) = keys.keys.iter().find(|key| key.as_bytes() == &self.key) else {
            let (file, key) = (file.to_owned(), hex(&self.key));
            return Err(SignatureError::UnknownKey { file, key, keys: keys.path.clone() });
        };
        if self.digest != digest {
            return Err(SignatureError::OtherFile { file: file.to_owned(), digest: self.digest.to_string() });
        }
        key.verify_strict(&message(&digest), &Ed25519::from_bytes(&self.signature))
            .map_err(|_| SignatureError::Forged { file: file.to_owned() })?;
        Ok(hex(&self.key))
    }
}
