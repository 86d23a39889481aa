//! Other tools' files: reads that are bounded, writes that are whole or not there.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::ExchangeError;

/// Wraps a system error.
pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ExchangeError {
    let path = path.to_owned();
    move |source| ExchangeError::Io { action, path, source }
}

/// The bytes of a regular file of at most `limit` bytes.
pub(super) fn read_bounded(path: &Path, limit: u64, peer: &'static str) -> Result<Vec<u8>, ExchangeError> {
    let foreign = |what: String| ExchangeError::Foreign { peer, path: path.to_owned(), what };
    // a pipe must not make it wait
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(io_error("read", path))?;
    let metadata = file.metadata().map_err(io_error("read", path))?;
    if !metadata.is_file() {
        return Err(foreign("it is not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    // taken, since the file may have grown after its size was asked
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(io_error("read", path))?;
    if bytes.len() as u64 > limit {
        return Err(foreign(format!("{} bytes are more than the {limit} that are read", metadata.len())));
    }
    Ok(bytes)
}
