//! Errors of a registry as a whole, and of one file in it.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::{InvalidInvocation, SCHEMA};
use crate::array::FillError;
use crate::digest::Digest;

/// A registry that cannot be used at all, or a requested file in it that is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// There is no such folder.
    #[error("there is no registry `{0}`; check the path, or record one")]
    NoFolder(PathBuf),
    /// The folder is not a registry.
    #[error("`{0}` is not a registry: it has no `registry.json`; record one, or make it with `registry add`")]
    Missing(PathBuf),
    /// `registry.json` is invalid.
    #[error("`{path}`: {message}")]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A newer version wrote it.
    #[error("`{path}` has schema {schema}, this version reads {SCHEMA}: use a newer autotune-lowered")]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        schema: u64,
    },
    /// The system reported an error.
    #[error("`{path}`: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A stored file's bytes are not those that were recorded.
    #[error("`{path}`: its bytes have the digest `{found}`, not that of its name: damaged; record it again")]
    Digest {
        /// The file.
        path: PathBuf,
        /// Digest of the actual bytes.
        found: Digest,
    },
    /// An array's file has another size than its argument.
    #[error("`{path}`: {found} bytes, where the argument `{name}` takes {expected}")]
    ArraySize {
        /// The file.
        path: PathBuf,
        /// Its actual number of bytes.
        found: u64,
        /// The argument.
        name: String,
        /// The expected number of bytes.
        expected: u64,
    },
    /// An inconsistent invocation.
    #[error(transparent)]
    Invalid(#[from] InvalidInvocation),
    /// An argument that cannot be filled.
    #[error("argument `{name}`: {source}")]
    Fill {
        /// The argument.
        name: String,
        /// Why.
        source: FillError,
    },
    /// The description given to `registry add` is invalid.
    #[error("`{path}`: {message}")]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its place.
        message: String,
    },
}

/// What is wrong with a file of the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// It cannot be read, is not a regular file or too large.
    Unreadable,
    /// Its name is not of the format, or not that of its content.
    Name,
    /// Its bytes do not have the digest in its name: half-written or changed.
    Digest,
    /// A newer version wrote it.
    Schema,
    /// It is not a record.
    Content,
    /// A record names it and it does not exist.
    Missing,
}

/// A file that was skipped, and why. The rest of the registry works.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error)]
#[error("`{path}`: {message}")]
#[non_exhaustive]
pub struct RegistryProblem {
    /// The file, as given or found.
    pub path: PathBuf,
    /// What is wrong.
    pub kind: ProblemKind,
    /// One line, with what to do.
    pub message: String,
}
