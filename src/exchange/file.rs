//! Errors of the system at other tools' files.

use std::io;
use std::path::Path;

use super::ExchangeError;

/// Wraps a system error.
pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ExchangeError {
    let path = path.to_owned();
    move |source| ExchangeError::Io { action, path, source }
}
