//! Detached ed25519 signatures of snapshots.
//!
//! All three files are lines of text. Hexadecimal digits are lower case, words are separated by one blank, a line feed
//! ends each line, and nothing follows the last.
//!
//! | file | bytes | line |
//! | --- | --- | --- |
//! | private key, mode 0600 | 97 | `autotune-lowered-private-key-v1 ` and the 32 bytes of the seed (RFC 8032, 5.1.5) |
//! | public key | 96 | `autotune-lowered-public-key-v1 ` and the 32 bytes of the key |
//! | `X.snapshot.sig` | at most 331 a line | `autotune-lowered-signature-v1 `, key, digest, generation, time, bytes |
//!
//! Blanks separate the parts of a signature. The key is the public one, the digest the snapshot's; the signature has
//! 64 bytes.
//!
//! A file of public keys may hold several such lines, and lines that are empty or begin with `#`: any of the keys will
//! do, so that a key can be replaced by another one.
//!
//! A signature file holds up to 16 such lines, of several keys and generations, and any accepted one will do.
//! Generation and time (seconds since 1970) are decimal numbers without leading zeros: those of the manifest that shows
//! the snapshot, or zero and the time of signing for a file that is published nowhere.
//!
//! What is signed is the text `autotune-lowered snapshot v1`, a zero byte, the 32 bytes of the snapshot's digest, which
//! covers every byte of the file but its checksums, and generation and time as eight bytes each, the highest first.
//! Verification is the strict one: a signature has one form, and keys of small order are refused.
//!
//! ```
//! use autotune_lowered_lookup::digest::Digest;
//! use autotune_lowered_timer::signature::{PrivateKey, PublicKeys, Signature, Signatures, Statement};
//!
//! let folder = tempfile::tempdir()?;
//! let (key, public) = PrivateKey::generate(&folder.path().join("key"))?;
//! let digest = Digest::of(b"a snapshot");
//! let signatures = Signatures::from(Signature::sign(Statement::new(digest, 7, 1_767_225_600), &key));
//!
//! let trusted = PublicKeys::read(&public)?;
//! assert_eq!(signatures.check(digest, &trusted, "best.snapshot")?, key.to_public());
//! assert!(signatures.check(Digest::of(b"another one"), &trusted, "best.snapshot").is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod command;
mod detached;
mod error;
mod key;
mod signatures;
mod signer;
mod statement;

pub use detached::Signature;
pub use error::SignatureError;
pub use key::{PrivateKey, PublicKeys};
pub use signatures::{MAX_SIGNATURE_BYTES, MAX_SIGNATURES, Signatures, signature_path};
pub use signer::Signer;
pub use statement::Statement;
