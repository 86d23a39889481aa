//! The contract of a store: objects by name, one of them changed by compare-and-swap.

use std::fmt;
use std::io::Write;
use std::path::Path;

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
    /// Writes an object of at most `limit` bytes to `out`; `None` if there is none.
    fn get(&self, name: &str, limit: u64, out: &mut (dyn Write + Send)) -> Result<Option<Version>, Trouble>;

    /// Stores a file as an object that is named by its content.
    fn put(&self, name: &str, file: &Path) -> Result<(), Trouble>;

    /// Whether there is an object of this name.
    fn has(&self, name: &str) -> Result<bool, Trouble>;

    /// Removes an object, if it is there.
    fn remove(&self, name: &str) -> Result<(), Trouble>;

    /// Stores an object where its version is still the expected one, `None` for no object; `false` if it is not.
    fn swap(&self, name: &str, expected: Option<&Version>, bytes: &[u8]) -> Result<bool, Trouble>;
}

/// That an object is larger than any that was published.
pub(super) fn too_large(size: u64, limit: u64) -> Trouble {
    Trouble::Damaged(format!("it has {size} bytes, at most {limit} are read"))
}
