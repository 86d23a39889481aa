//! Detached ed25519 signatures of snapshots: who vouches for a file that others load.
//!
//! All three files are one line of text. Hexadecimal digits are lower case, words are parted by one blank, a line feed ends
//! the line, and nothing follows it.
//!
//! | file | bytes | line |
//! | --- | --- | --- |
//! | private key, mode 0600 | 97 | `autotune-lowered-private-key-v1 ` and the 32 bytes of the seed (RFC 8032, 5.1.5) |
//! | public key | 96 | `autotune-lowered-public-key-v1 ` and the 32 bytes of the key |
//! | `X.snapshot.sig` | 289 | `autotune-lowered-signature-v1 `, the public key, a blank, the snapshot's digest, a blank, the 64 bytes of the signature |
//!
//! A file of public keys may hold several such lines, and lines that are empty or begin with `#`: any of the keys will do,
//! so that a key can be replaced by another one.
//!
//! What is signed is the text `autotune-lowered snapshot v1`, a zero byte, and the 32 bytes of the snapshot's digest, which
//! covers every byte of the file but its checksums. Verification is the strict one: a signature has one form, and keys of small order are
//! refused.

mod detached;
mod error;
mod key;

pub use detached::{MAX_SIGNATURE_BYTES, Signature, signature_path};
pub use error::SignatureError;
pub use key::{PrivateKey, PublicKeys};
