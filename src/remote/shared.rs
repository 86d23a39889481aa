//! A cache that machines share, and what its store answers.

use super::address::{Address, Place};
use super::bucket::{Bucket, Trouble, Version};
use super::error::RemoteError;
use super::folder::Folder;

/// An open remote cache. It waits for its answers on a runtime of its own, so it is not for threads that run async tasks.
#[derive(Debug)]
pub struct Remote {
    pub(super) address: Address,
    pub(super) bucket: Box<dyn Bucket>,
}

impl Remote {
    /// Makes ready to talk with the store of an address; nothing is asked of it yet.
    ///
    /// # Errors
    /// If this program was built without that kind of store, or the environment says nonsense of it.
    pub fn open(address: Address) -> Result<Self, RemoteError> {
        let bucket = open(&address)?;
        Ok(Self { address, bucket })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

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

fn open(address: &Address) -> Result<Box<dyn Bucket>, RemoteError> {
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
