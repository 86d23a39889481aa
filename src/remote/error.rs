//! Errors of a remote cache.

use std::io;
use std::path::{Path, PathBuf};

use crate::cache::StoreError;
use crate::digest::Digest;
use crate::io_hint::io_hint;
use crate::signature::SignatureError;

/// Why a remote cache cannot be loaded or published to. URLs are without user, password and query.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// A text that is not an address.
    #[error("`{url}` is not a remote cache: {what}")]
    Address {
        /// The URL.
        url: String,
        /// What is wrong, and what to write.
        what: String,
    },
    /// The environment's settings of a store do not open it.
    #[error("cannot open `{url}`: {what}; set in the environment what it needs (docs/remote.md)")]
    Environment {
        /// The URL.
        url: String,
        /// What is wrong with them.
        what: String,
    },
    /// A store that this program was built without.
    #[error(
        "this program was built without `{scheme}://` caches; build it with `cargo install --features remote`, or use \
         `file://`"
    )]
    NotBuilt {
        /// The URL's scheme.
        scheme: &'static str,
    },
    /// Nothing was published.
    #[error("nothing is published at `{url}`; `autotune-lowered cache push` publishes a cache")]
    Nothing {
        /// The URL.
        url: String,
    },
    /// All that was to be published is what replayed samples decided.
    #[error(
        "nothing is published at `{url}`: replayed samples decided all of it; tune with a timer that runs on the device"
    )]
    Replayed {
        /// The URL.
        url: String,
    },
    /// The store denied access.
    #[error("`{url}` refuses `{name}`: {reason}")]
    Refused {
        /// The URL.
        url: String,
        /// The object.
        name: String,
        /// The store's message, and what to do.
        reason: String,
    },
    /// The store does not answer, or its answer is unusable.
    #[error("cannot reach `{name}` of `{url}`: {reason}; check the address, or try again later")]
    Away {
        /// The URL.
        url: String,
        /// The object.
        name: String,
        /// What happened.
        reason: String,
    },
    /// An object is not the published one.
    #[error(
        "`{name}` of `{url}` cannot be trusted: {what}; publish again with `autotune-lowered cache push --replace`"
    )]
    Damaged {
        /// The URL.
        url: String,
        /// The object.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// A manifest of a later program.
    #[error(
        "`{url}` has a manifest of schema {schema}, which this program does not read; use a newer autotune-lowered"
    )]
    Newer {
        /// The URL.
        url: String,
        /// Its schema.
        schema: u64,
    },
    /// Other publishers always came first.
    #[error("`{url}` was changed by others under each of {attempts} attempts; push again")]
    Busy {
        /// The URL.
        url: String,
        /// Number of attempts.
        attempts: u32,
    },
    /// A read-only location.
    #[error(
        "`{url}` can only be read; publish to the bucket or folder behind it (`s3://`, `gs://`, `az://`, `file://`)"
    )]
    ReadOnly {
        /// The URL.
        url: String,
    },
    /// Plain text over a network.
    #[error(
        "`{url}` is not encrypted, anybody on the network could change it: use `https://`, or name the keys that must \
         have signed with `--verify-key`"
    )]
    Plain {
        /// The URL.
        url: String,
    },
    /// Another digest than the pinned one.
    #[error(
        "the snapshot published at `{url}` is not the pinned one: it is {found}, {pin} is pinned (`--pin`, \
         AUTOTUNE_LOWERED_PIN)"
    )]
    Pinned {
        /// The URL.
        url: String,
        /// The digest of what is in force.
        found: Digest,
        /// The pinned digest.
        pin: Digest,
    },
    /// Older than what was loaded before.
    #[error(
        "`{url}` shows generation {shown}, {what}: generation {seen} was loaded here before; ask who publishes, then \
         `autotune-lowered cache pull '{url}' '{copy}' --allow-rollback` goes back", copy = copy.display()
    )]
    Rollback {
        /// The URL.
        url: String,
        /// This machine's copy.
        copy: PathBuf,
        /// The generation that the URL shows.
        shown: u64,
        /// The generation that was loaded.
        seen: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The system's clock shows a time that no certificate and no signature of a request allow.
    #[error("cannot reach `{url}`: {reason}")]
    Clock {
        /// The URL.
        url: String,
        /// What is wrong with it, and what to do.
        reason: io::Error,
    },
    /// A signature is missing or wrong.
    #[error("{0}")]
    Signature(#[from] SignatureError),
    /// A snapshot of this machine.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The folder that this machine has for a URL.
    #[error("{0}")]
    Ledger(#[from] crate::ledger::LedgerError),
    /// This machine's decisions could not be published.
    #[error(
        "not published: {source}; what was decided is kept here, `autotune-lowered cache push {url} --cache {url}` \
         publishes it"
    )]
    NotPublished {
        /// The URL.
        url: String,
        /// Why.
        source: Box<RemoteError>,
    },
    /// A file of this machine.
    #[error("cannot {action} `{path}`: {source}{next}", path = path.display(), next = io_hint(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl RemoteError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the local copy may be used instead: the store is unreachable, and has not denied access.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Away { .. })
    }
}
