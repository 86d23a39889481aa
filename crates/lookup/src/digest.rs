//! SHA-256 over length-prefixed fields, so that `("ab", "c")` and `("a", "bc")` never share a digest.
//!
//! ```
//! use autotune_lowered_lookup::digest::{Digest, FieldHasher};
//!
//! let of = |one: &str, other: &str| {
//!     FieldHasher::new("example").field(one.as_bytes()).field(other.as_bytes()).finish()
//! };
//! assert_ne!(of("ab", "c"), of("a", "bc"));
//! let digest = Digest::of(b"content");
//! assert_eq!(digest.to_string().parse::<Digest>()?, digest);
//! assert!(digest.to_string().starts_with(&digest.to_short()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest; written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Digest of one byte string, unprefixed: what `sha256sum` prints.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Digest of everything that a reader returns, in constant memory.
    ///
    /// # Errors
    ///
    /// If the reader fails.
    pub fn of_reader(mut reader: impl Read) -> io::Result<Self> {
        let mut hasher = Sha256::new();
        let mut block = vec![0_u8; 1 << 16];
        loop {
            match reader.read(&mut block) {
                Ok(0) => return Ok(Self(hasher.finalize().into())),
                Ok(n) => hasher.update(block.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The digest's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A digest from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The first 16 hexadecimal digits: for file names and tables, not for trust.
    pub fn to_short(&self) -> String {
        self.to_string().chars().take(16).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // formatted in one step, because every record has digests
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
        }
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// A text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a SHA-256 digest: 64 hexadecimal digits expected")]
pub struct ParseDigestError(String);

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseDigestError(text.chars().take(80).collect());
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0_u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A [`Digest::of`] a byte string that comes in parts.
#[derive(Clone, Default)]
pub struct DigestWriter(Sha256);

impl DigestWriter {
    /// Adds the next part.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all of them.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Builds a [`Digest`] from fields, each preceded by its length as eight little-endian bytes.
#[derive(Clone, Default)]
pub struct FieldHasher(Sha256);

impl FieldHasher {
    /// A hasher for one purpose; `domain` keeps digests of different purposes apart.
    pub fn new(domain: &str) -> Self {
        let mut hasher = Self(Sha256::new());
        hasher.field(domain.as_bytes());
        hasher
    }

    /// Adds one field.
    pub fn field(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// The digest of all fields so far.
    pub fn finish(&self) -> Digest {
        Digest(self.0.clone().finalize().into())
    }
}

/// Count and order-free digest of a set of `(key, value)` pairs, kept up to date in constant time.
///
/// The digest is the exclusive or of each pair's SHA-256: it detects accidents (a lost, doubled or changed pair), not
/// an adversary who may choose pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDigest {
    /// Number of pairs.
    pub count: u64,
    /// Exclusive or of the pairs' digests.
    pub digest: Digest,
}

impl Default for SetDigest {
    fn default() -> Self {
        Self { count: 0, digest: Digest([0; 32]) }
    }
}

impl SetDigest {
    /// Adds a pair that is not in the set.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) {
        self.toggle(key, value);
        self.count = self.count.saturating_add(1);
    }

    /// Takes out a pair that is in the set.
    pub fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.toggle(key, value);
        self.count = self.count.saturating_sub(1);
    }

    fn toggle(&mut self, key: &[u8], value: &[u8]) {
        let pair = FieldHasher::new("set-digest").field(key).field(value).finish();
        self.digest.0.iter_mut().zip(pair.0).for_each(|(ours, theirs)| *ours ^= theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answer() {
        // FIPS 180-2, appendix B.1
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), abc);
        assert_eq!(Digest::of_reader(&b"abc"[..]).unwrap().to_string(), abc);
        assert_eq!(abc.parse::<Digest>().unwrap(), Digest::of(b"abc"));
        assert!("xyz".parse::<Digest>().is_err());
        assert!("+1".repeat(32).parse::<Digest>().is_err(), "a sign is no digit");
    }

    #[test]
    fn a_set_is_its_members() {
        let (mut a, mut b) = (SetDigest::default(), SetDigest::default());
        a.insert(b"k1", b"v1");
        a.insert(b"k2", b"v2");
        b.insert(b"k2", b"v2");
        assert_ne!(a, b);
        a.remove(b"k1", b"v1");
        assert_eq!(a, b);
        b.remove(b"k2", b"v2");
        assert_eq!(b, SetDigest::default());
    }

    #[test]
    fn fields_do_not_run_together() {
        let digest = |a: &[u8], b: &[u8]| FieldHasher::new("test").field(a).field(b).finish();
        assert_ne!(digest(b"ab", b"c"), digest(b"a", b"bc"));
        assert_ne!(FieldHasher::new("a").finish(), FieldHasher::new("b").finish());
    }
}
