//! Why a call to a plugin failed, or the reading of a file for it.

use std::ffi::c_int;
use std::path::Path;

use crate::outside_file;

/// Why a call to a plugin failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct PjrtError {
    /// `PJRT_Error_Code`, or [`PjrtError::LOCAL`] if the error does not come from a plugin.
    pub(crate) code: c_int,
    /// The plugin's message.
    pub(crate) message: String,
}

impl PjrtError {
    /// The error does not come from a plugin.
    pub(crate) const LOCAL: c_int = -1;
    const UNIMPLEMENTED: c_int = 12;

    pub(crate) fn local(message: impl Into<String>) -> Self {
        Self { code: Self::LOCAL, message: message.into() }
    }

    pub(super) fn absent(function: &str, version: &str) -> Self {
        Self {
            code: Self::UNIMPLEMENTED,
            message: format!(
                "plugin of an older API: its version {version} has no function `{function}`; give a newer plugin"
            ),
        }
    }

    /// Whether the plugin lacks the function, as opposed to having failed in it.
    pub(crate) fn is_unimplemented(&self) -> bool {
        self.code == Self::UNIMPLEMENTED
    }
}

/// A plugin's text as one line.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads a whole file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, PjrtError> {
    let read = outside_file::open(path, limit).and_then(|file| outside_file::read(file, limit));
    read.map_err(|error| PjrtError::local(format!("{}: cannot be read: {error}", path.display())))
}
