//! The contract of a store: objects by name, one of them changed by compare-and-swap.

use std::fmt;
use std::io::Write;
use std::path::Path;

use super::address::Place;
use super::folder::Folder;
use super::{Address, Remote, RemoteError};

/// A state of an object, as its store tells it from others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) e_tag: Option<String>,
    pub(super) version: Option<String>,
}

/// What a store says instead of what was asked for.
#[derive(Debug)]
pub(super) enum Trouble {
    /// No, and it will be no again.
    Refused(String),
    /// Nothing that can be used.
    Away(String),
    /// An object that cannot be what was published.
    Damaged(String),
}

/// One store.
pub(super) trait Bucket: fmt::Debug + Send + Sync {
    /// Writes an object of at most `limit` bytes to `out`; `None` where there is none.
    fn get(&self, name: &str, limit: u64, out: &mut (dyn Write + Send)) -> Result<Option<Version>, Trouble>;

    /// Stores a file as an object that is named by its content.
    fn put(&self, name: &str, file: &Path) -> Result<(), Trouble>;

    /// Whether there is an object of this name.
    fn has(&self, name: &str) -> Result<bool, Trouble>;

    /// Removes an object, if it is there.
    fn remove(&self, name: &str) -> Result<(), Trouble>;

    /// Stores an object where its version is still the expected one, `None` for no object; `false` where it is not.
    fn swap(&self, name: &str, expected: Option<&Version>, bytes: &[u8]) -> Result<bool, Trouble>;
}

pub(super) fn open(address: &Address) -> Result<Box<dyn Bucket>, RemoteError> {
    match &address.place {
        Place::Folder(folder) => Ok(Box::new(Folder::new(folder))),
        #[cfg(feature = "remote")]
        _ => Ok(Box::new(super::objects::Objects::open(address)?)),
        #[cfg(not(feature = "remote"))]
        Place::Bucket { kind, .. } => Err(RemoteError::NotBuilt { scheme: kind.scheme() }),
        #[cfg(not(feature = "remote"))]
        Place::Web { encrypted, .. } => {
            Err(RemoteError::NotBuilt { scheme: if *encrypted { "https" } else { "http" } })
        }
    }
}

impl Remote {
    /// An answer of the store as an error of this cache.
    pub(super) fn trouble(&self, name: &str) -> impl FnOnce(Trouble) -> RemoteError {
        let (url, name) = (self.address.to_string(), name.to_owned());
        move |trouble| match trouble {
            Trouble::Refused(reason) => RemoteError::Refused { url, name, reason },
            Trouble::Away(reason) => RemoteError::Away { url, name, reason },
            Trouble::Damaged(what) => RemoteError::Damaged { url, name, what },
        }
    }

    /// A small object's bytes and version.
    pub(super) fn read_small(&self, name: &str, limit: u64) -> Result<Option<(Vec<u8>, Version)>, RemoteError> {
        let mut bytes = Vec::new();
        let version = self.bucket.get(name, limit, &mut bytes).map_err(self.trouble(name))?;
        Ok(version.map(|version| (bytes, version)))
    }
}
