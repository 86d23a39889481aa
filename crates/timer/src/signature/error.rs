//! Why a signature or key cannot be used.

use std::io;
use std::path::PathBuf;

use crate::io_hint::io_hint;

/// An error of a key or a signature.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// A file cannot be read or written.
    #[error("cannot {action} `{path}`: {source}{next}", path = path.display(), next = io_hint(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file holds no key.
    #[error("`{path}` is not a {what}; `autotune-lowered cache keygen` makes one", path = path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// The expected kind of key.
        what: &'static str,
    },
    /// A private key that others can read.
    #[error("others can read the private key `{path}` (mode {mode:03o}); make another one, and keep it to yourself \
             with `chmod 600`", path = path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Bytes that are not a signature.
    #[error("the signature of `{file}` is not in this format; sign it again with `autotune-lowered cache sign`")]
    NotASignature {
        /// The file that should be signed.
        file: String,
    },
    /// No signature.
    #[error("`{file}` is not signed; sign it with `autotune-lowered cache sign`, or omit `--verify-key`")]
    Missing {
        /// The file that should be signed.
        file: String,
    },
    /// The published snapshot is signed, and the new one would not be.
    #[error(
        "what is published at `{file}` is signed; name the key with `--sign-key`, because nobody who checks \
         signatures would load it otherwise"
    )]
    KeyNeeded {
        /// Where it is published.
        file: String,
    },
    /// The maximum number of signatures exists.
    #[error("`{file}` already has the maximum of {most} signatures; sign it with fewer keys")]
    Full {
        /// What is signed.
        file: String,
        /// How many signatures are kept.
        most: usize,
    },
    /// A command that does not sign.
    #[error("`--sign-command {command}` does not sign: {what} (docs/trust.md)")]
    Command {
        /// The command.
        command: String,
        /// What is wrong.
        what: String,
    },
    /// Signed, but by no trusted key.
    #[error("`{file}` is signed by {key}, which is not among the keys of `{keys}`", keys = keys.display())]
    UnknownKey {
        /// What is signed.
        file: String,
        /// The public key, in hexadecimal digits.
        key: String,
        /// The file of the trusted keys.
        keys: PathBuf,
    },
    /// The signature of another file.
    #[error("the signature of `{file}` belongs to another snapshot, {digest}")]
    OtherFile {
        /// The file that should be signed.
        file: String,
        /// What is signed.
        digest: String,
    },
    /// The signature of another publication of the same snapshot.
    #[error(
        "`{file}` is published as generation {published} at {published_at}, but signed as generation {signed} at \
         {signed_at} (seconds since 1970): it is not what was published last"
    )]
    OtherGeneration {
        /// What is signed.
        file: String,
        /// The generation that was signed.
        signed: u64,
        /// When it was signed.
        signed_at: u64,
        /// The generation that the URL shows.
        published: u64,
        /// The time that the URL shows.
        published_at: u64,
    },
    /// A signature that the key did not make.
    #[error("the signature of `{file}` was not made by the key that it names: it is forged or damaged")]
    Forged {
        /// The file that should be signed.
        file: String,
    },
}

impl SignatureError {
    /// How close a signature is to the required one: among several wrong ones, the closest is the most informative.
    pub(super) fn nearness(&self) -> u8 {
        match self {
            Self::UnknownKey { .. } => 1,
            Self::OtherFile { .. } => 2,
            Self::OtherGeneration { .. } => 3,
            Self::Forged { .. } => 4,
            _ => 0,
        }
    }
}
