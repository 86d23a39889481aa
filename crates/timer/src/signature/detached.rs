//! One signature: a line.

use ed25519_dalek::{Signature as Ed25519, Signer as _};

use super::key::{bytes_of, hex};
use super::{PrivateKey, PublicKeys, SignatureError, Statement};
use crate::digest::Digest;

const WORD: &str = "autotune-lowered-signature-v1";
/// Longest line: word, key, digest, two numbers of 20 digits, signature, five blanks and the line feed.
pub(super) const MAX_LINE_BYTES: usize = WORD.len() + 64 + 64 + 2 * 20 + 128 + 5 + 1;

/// A signature of a statement by a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub(super) key: [u8; 32],
    pub(super) statement: Statement,
    signature: [u8; 64],
}

impl Signature {
    /// Signs a statement. The same key and statement give the same signature.
    pub fn sign(statement: Statement, key: &PrivateKey) -> Self {
        let signature = key.0.sign(&statement.to_message()).to_bytes();
        Self { key: key.0.verifying_key().to_bytes(), statement, signature }
    }

    /// A signature of this statement from elsewhere; `None` unless one of the keys made it.
    pub(super) fn of_bytes(statement: Statement, signature: [u8; 64], keys: &PublicKeys) -> Option<Self> {
        let mut possible = keys.keys.iter().map(|key| Self { key: key.to_bytes(), statement, signature });
        possible.find(|signature| signature.is_by(keys))
    }

    pub(super) fn to_line(&self) -> String {
        let Statement { digest, generation, time } = self.statement;
        format!("{WORD} {} {digest} {generation} {time} {}\n", hex(&self.key), hex(&self.signature))
    }

    /// Reads a line without its line feed; `file` is the signed file, for the error.
    pub(super) fn of_line(line: &str, file: &str) -> Result<Self, SignatureError> {
        let parse = || {
            let words: Vec<&str> = line.split(' ').collect();
            let [WORD, key, digest, generation, time, signature] = words[..] else { return None };
            let statement = Statement {
                digest: Digest::from_bytes(bytes_of(digest)?),
                generation: number(generation)?,
                time: number(time)?,
            };
            Some(Self { key: bytes_of(key)?, statement, signature: bytes_of(signature)? })
        };
        parse().ok_or_else(|| SignatureError::NotASignature { file: file.to_owned() })
    }

    /// Whether one of the keys made it, regardless of the statement.
    pub(super) fn is_by(&self, keys: &PublicKeys) -> bool {
        let message = self.statement.to_message();
        let mut named = keys.keys.iter().filter(|key| key.as_bytes() == &self.key);
        named.any(|key| key.verify_strict(&message, &Ed25519::from_bytes(&self.signature)).is_ok())
    }

    /// Checks that one of the keys signed this digest and, for a URL, its generation and time.
    pub(super) fn check(
        &self,
        digest: Digest,
        published: Option<&Statement>,
        keys: &PublicKeys,
        file: &str,
    ) -> Result<(), SignatureError> {
        let file = file.to_owned();
        let Statement { generation: signed, time: signed_at, .. } = self.statement;
        if !keys.keys.iter().any(|key| key.as_bytes() == &self.key) {
            return Err(SignatureError::UnknownKey { file, key: hex(&self.key), keys: keys.path.clone() });
        }
        if self.statement.digest != digest {
            return Err(SignatureError::OtherFile { file, digest: self.statement.digest.to_string() });
        }
        if let Some(published) = published.filter(|published| **published != self.statement) {
            let (published, published_at) = (published.generation, published.time);
            return Err(SignatureError::OtherGeneration { file, signed, signed_at, published, published_at });
        }
        if self.is_by(keys) { Ok(()) } else { Err(SignatureError::Forged { file }) }
    }
}

/// A number in canonical spelling.
fn number(text: &str) -> Option<u64> {
    let number = text.parse::<u64>().ok()?;
    (number.to_string() == text).then_some(number)
}
