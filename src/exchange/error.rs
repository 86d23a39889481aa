//! Why an exchange with another tool fails.

use std::io;
use std::path::PathBuf;

use crate::call::Call;
use crate::device::DeviceIdentity;
use crate::io_hint::io_hint;

/// Why entries cannot be exchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
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
    /// A file's content does not match its name.
    #[error("`{path}` is not a cache of {peer}: {what}; remove or repair it", path = path.display())]
    Foreign {
        /// The tool.
        peer: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file does not list ejkernel's fields.
    #[error("`{path}` does not list ejkernel's fields: {what}; `python -m autotune_lowered.ejkernel_fields` prints \
             them", path = path.display())]
    NotFields {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file does not list Tokamax's operations.
    #[error("`{path}` does not list Tokamax's operations: {what}; `python -m autotune_lowered.tokamax_operations` \
             prints them", path = path.display())]
    NotOperations {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A file holds no entries.
    #[error("`{path}` holds no cache entries: {what}", path = path.display())]
    NotEntries {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// Several entries of which a process can have only one.
    #[error(
        "{count} entries have different compiler options, and a process has one `{variable}`: choose one with `--key` \
         or `--for`"
    )]
    Disagree {
        /// The variable of the environment.
        variable: &'static str,
        /// How many differ.
        count: usize,
    },
    /// Entries of one program that hold different options.
    #[error(
        "entries of `{digest}` have different compiler options, such as those of several devices: choose one with \
             `--for`"
    )]
    TwoOptions {
        /// The program's digest.
        digest: String,
    },
    /// A config that the peer cannot represent.
    #[error("`{call}` cannot be written for {peer}: {what}")]
    Refused {
        /// The call.
        call: Call,
        /// Tool and version.
        peer: String,
        /// The field and what is wrong with it.
        what: String,
    },
    /// Two devices that the peer cannot distinguish.
    #[error("`{call}` is cached for {one} and for {other}, which {peer} both calls `{fingerprint}`; choose one with \
             `--for`", fingerprint = fingerprint.escape_debug())]
    Ambiguous {
        /// The tool.
        peer: &'static str,
        /// The call.
        call: Call,
        /// One device.
        one: Box<DeviceIdentity>,
        /// The other device.
        other: Box<DeviceIdentity>,
        /// The tool's name of both.
        fingerprint: String,
    },
    /// One file for several devices, although it can hold only one.
    #[error("`{path}` can hold configs of one device kind, the cache has some of {kinds}; choose one with `--for`, or \
             name a folder", path = path.display())]
    SeveralKinds {
        /// The file.
        path: PathBuf,
        /// The kinds, in words.
        kinds: String,
    },
}
