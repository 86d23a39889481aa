//! A shared cache and the errors of its store.

use std::path::Path;

use super::address::{Address, StorePlace};
use super::bucket::{Bucket, BucketError, ObjectVersion};
use super::error::RemoteError;
use super::folder::FolderStore;

/// An open remote cache. It blocks on a runtime of its own, so it must not be used in threads that run async tasks.
#[derive(Debug)]
pub struct Remote {
    pub(super) address: Address,
    pub(super) bucket: Box<dyn Bucket>,
}

impl Remote {
    /// Prepares access to the store of an address; makes no request yet.
    ///
    /// # Errors
    /// If this program was built without that kind of store, or its environment variables are invalid.
    pub fn open(address: Address) -> Result<Self, RemoteError> {
        let bucket = open(&address)?;
        Ok(Self { address, bucket })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Stores a file beside the cache, as an object of this name; the last writer wins.
    ///
    /// # Errors
    /// If the store refuses it or does not answer, or the file cannot be read.
    pub fn put_file(&self, name: &str, file: &Path) -> Result<(), RemoteError> {
        if self.address.is_read_only() {
            return Err(RemoteError::ReadOnly { url: self.address.to_string() });
        }
        self.bucket.put(name, file).map_err(self.trouble(name))
    }

    /// A store's error as an error of this cache.
    pub(super) fn trouble(&self, name: &str) -> impl FnOnce(BucketError) -> RemoteError {
        let (url, name) = (self.address.to_string(), name.to_owned());
        move |trouble| match trouble {
            BucketError::Refused(reason) => RemoteError::Refused { url, name, reason },
            BucketError::Unavailable(reason) => RemoteError::Away { url, name, reason },
            BucketError::Damaged(what) => RemoteError::Damaged { url, name, what },
        }
    }

    /// A small object's bytes and version.
    pub(super) fn read_small(&self, name: &str, limit: u64) -> Result<Option<(Vec<u8>, ObjectVersion)>, RemoteError> {
        let mut bytes = Vec::new();
        let version = self.bucket.get(name, limit, &mut bytes).map_err(self.trouble(name))?;
        Ok(version.map(|version| (bytes, version)))
    }
}

fn open(address: &Address) -> Result<Box<dyn Bucket>, RemoteError> {
    match &address.place {
        StorePlace::Folder(folder) => Ok(Box::new(FolderStore::new(folder))),
        #[cfg(feature = "remote")]
        _ => Ok(Box::new(super::objects::Objects::open(address)?)),
        #[cfg(not(feature = "remote"))]
        StorePlace::Bucket { kind, .. } => Err(RemoteError::NotBuilt { scheme: kind.scheme() }),
        #[cfg(not(feature = "remote"))]
        StorePlace::Web { encrypted, .. } => {
            Err(RemoteError::NotBuilt { scheme: if *encrypted { "https" } else { "http" } })
        }
    }
}
