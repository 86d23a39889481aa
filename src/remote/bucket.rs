//! The interface of a store: objects by name, one of them changed by compare-and-swap.

use std::fmt;
use std::io::Write;
use std::path::Path;

/// A version of an object, as its store identifies it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ObjectVersion {
    pub(super) e_tag: Option<String>,
    pub(super) version: Option<String>,
}

/// Why a store did not do what was requested.
#[derive(Debug)]
pub(super) enum BucketError {
    /// Denied, with what to do; retrying will not help.
    Refused(String),
    /// No usable answer.
    Unavailable(String),
    /// An object that cannot be the published one.
    Damaged(String),
}

/// One store.
pub(super) trait Bucket: fmt::Debug + Send + Sync {
    /// Writes an object of at most `limit` bytes to `out`; `None` if there is none.
    fn get(&self, name: &str, limit: u64, out: &mut (dyn Write + Send)) -> Result<Option<ObjectVersion>, BucketError>;

    /// Stores a file as an object named by its content.
    fn put(&self, name: &str, file: &Path) -> Result<(), BucketError>;

    /// Whether there is an object of this name.
    fn has(&self, name: &str) -> Result<bool, BucketError>;

    /// Removes an object, if it exists.
    fn remove(&self, name: &str) -> Result<(), BucketError>;

    /// Stores an object if its version is still the expected one, `None` for no object; `false` if it is not.
    fn swap(&self, name: &str, expected: Option<&ObjectVersion>, bytes: &[u8]) -> Result<bool, BucketError>;
}

/// The error for an object larger than any that is published.
pub(super) fn too_large(size: u64, limit: u64) -> BucketError {
    BucketError::Damaged(format!("it has {size} bytes, at most {limit} are read"))
}
