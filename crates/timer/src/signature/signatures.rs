//! The signatures of one file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::detached::MAX_LINE_BYTES;
use super::key::{hex, io_error, read_plain};
use super::{PublicKeys, Signature, SignatureError, Statement};
use crate::atomic_write::write_atomic;
use crate::digest::Digest;

/// Maximum number of signatures of one file.
pub const MAX_SIGNATURES: usize = 16;
/// Length of the longest signature file.
pub const MAX_SIGNATURE_BYTES: u64 = (MAX_SIGNATURES * MAX_LINE_BYTES) as u64;

/// The signatures of a file: any accepted one will do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signatures(Vec<Signature>);

/// The path of a file's signatures: its name with `.sig` appended.
pub fn signature_path(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".sig");
    PathBuf::from(path)
}

impl From<Signature> for Signatures {
    fn from(signature: Signature) -> Self {
        Self(vec![signature])
    }
}

impl Signatures {
    /// The text of the file.
    pub fn to_text(&self) -> String {
        self.0.iter().map(Signature::to_line).collect()
    }

    /// Reads the bytes of such a file; `file` is the signed file, for the error.
    ///
    /// # Errors
    /// If they are anything but lines of the format, or too many of them.
    pub fn from_bytes(bytes: &[u8], file: &str) -> Result<Self, SignatureError> {
        let wrong = || SignatureError::NotASignature { file: file.to_owned() };
        let text = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_suffix('\n')).ok_or_else(wrong)?;
        let lines = text.split('\n').take(MAX_SIGNATURES + 1);
        let signatures = lines.map(|line| Signature::of_line(line, file)).collect::<Result<Vec<_>, _>>()?;
        if signatures.len() > MAX_SIGNATURES { Err(wrong()) } else { Ok(Self(signatures)) }
    }

    /// Writes them beside the signed file, atomically.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write_beside(&self, file: &Path) -> Result<(), SignatureError> {
        let path = signature_path(file);
        let written = write_atomic(&path, |file| file.write_all(self.to_text().as_bytes()));
        written.map_err(io_error("write the signature", &path))
    }

    /// Reads the signatures beside a file.
    ///
    /// # Errors
    /// If there are none, or they are not of the format.
    pub fn read_beside(file: &Path) -> Result<Self, SignatureError> {
        let path = signature_path(file);
        let name = file.display().to_string();
        match read_plain(&path, MAX_SIGNATURE_BYTES) {
            Ok((bytes, _)) => Self::from_bytes(&bytes, &name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SignatureError::Missing { file: name }),
            Err(source) => Err(SignatureError::Io { action: "read", path, source }),
        }
    }

    /// Adds a signature to those of the same digest; `false` if it already exists. If there are too many, one of the
    /// lowest generation is replaced by a later one.
    ///
    /// # Errors
    /// If there are too many, and none is of a lower generation.
    pub fn add(&mut self, signature: Signature, file: &str) -> Result<bool, SignatureError> {
        self.0.retain(|other| other.statement.digest == signature.statement.digest);
        if self.0.iter().any(|other| (other.key, other.statement) == (signature.key, signature.statement)) {
            return Ok(false);
        }
        if self.0.len() >= MAX_SIGNATURES {
            let generations = self.0.iter().map(|other| other.statement.generation);
            match generations.enumerate().min_by_key(|(_, generation)| *generation) {
                Some((at, lowest)) if lowest < signature.statement.generation => drop(self.0.remove(at)),
                _ => return Err(SignatureError::Full { file: file.to_owned(), most: MAX_SIGNATURES }),
            }
        }
        self.0.push(signature);
        Ok(true)
    }

    /// Replaces an earlier signature of a file by the same key.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
    pub fn renew(&mut self, signature: Signature, file: &str) -> Result<(), SignatureError> {
        let of_file = |other: &Signature| other.statement.generation == 0 && other.key == signature.key;
        self.0.retain(|other| !of_file(other));
        self.add(signature, file).map(drop)
    }

    /// Those of exactly this statement.
    pub fn of_statement(&self, statement: &Statement) -> Self {
        Self(self.0.iter().filter(|signature| signature.statement == *statement).cloned().collect())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The latest signed generation: by one of the keys, or by any key if none are given.
    pub fn latest(&self, keys: Option<&PublicKeys>) -> Option<Statement> {
        let published = self.0.iter().filter(|signature| signature.statement.generation > 0);
        let believed = published.filter(|signature| keys.is_none_or(|keys| signature.is_by(keys)));
        believed.map(|signature| signature.statement).max_by_key(|statement| (statement.generation, statement.time))
    }

    /// Checks that one of the keys signed this digest, and returns the key in hexadecimal digits.
    ///
    /// # Errors
    /// If other keys signed, another digest is signed, or the signature is invalid.
    pub fn check(&self, digest: Digest, keys: &PublicKeys, file: &str) -> Result<String, SignatureError> {
        self.check_each(digest, None, keys, file)
    }

    /// Checks that one of the keys signed a URL's statement about its snapshot: digest, generation and time.
    ///
    /// # Errors
    /// Those of [`check`](Self::check), and if another generation or time was signed.
    pub fn check_statement(
        &self,
        statement: &Statement,
        keys: &PublicKeys,
        file: &str,
    ) -> Result<String, SignatureError> {
        self.check_each(statement.digest, Some(statement), keys, file)
    }

    fn check_each(
        &self,
        digest: Digest,
        statement: Option<&Statement>,
        keys: &PublicKeys,
        file: &str,
    ) -> Result<String, SignatureError> {
        let mut telling = SignatureError::Missing { file: file.to_owned() };
        for signature in &self.0 {
            match signature.check(digest, statement, keys, file) {
                Ok(()) => return Ok(hex(&signature.key)),
                Err(error) if error.nearness() > telling.nearness() => telling = error,
                Err(_) => {}
            }
        }
        Err(telling)
    }
}
