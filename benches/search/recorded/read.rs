//! Reads a recorded space from a file's bytes, within bounds.

use std::io::{self, Read};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Recorded, kernel_tuner, t4};
use autotune_lowered::search::NoSpace;

/// Maximum size of a file, decompressed.
const MAX_BYTES: u64 = 1 << 30;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Why a file is not a recorded space; completes "cannot read FILE:".
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordedError {
    /// Reading failed, for example in a truncated gzip file.
    #[error("{0}; fetch the file again")]
    Io(#[from] io::Error),
    /// Too many bytes.
    #[error("more than {MAX_BYTES} bytes, decompressed; no recorded space is that large")]
    TooLarge,
    /// gzip within gzip.
    #[error("compressed twice; decompress it once")]
    CompressedTwice,
    /// Not JSON, or truncated.
    #[error("not the JSON of a recorded space: {0}; a cache that Kernel Tuner has not closed lacks its last braces")]
    Json(#[from] serde_json::Error),
    /// JSON of another kind.
    #[error("neither `results` (T4) nor `tune_params_keys` and `cache` (Kernel Tuner) are in it")]
    Foreign,
    /// No configs to search.
    #[error(transparent)]
    Space(#[from] NoSpace),
}

#[derive(Deserialize)]
struct Head {
    results: Option<IgnoredAny>,
    tune_params_keys: Option<IgnoredAny>,
    cache: Option<IgnoredAny>,
}

/// Reads a recorded space, gzip or not.
///
/// # Errors
/// If the bytes are not a recorded space, see [`RecordedError`].
pub(crate) fn read(reader: impl Read) -> Result<Recorded, RecordedError> {
    let bytes = bounded(reader)?;
    let bytes = if bytes.starts_with(&GZIP) { bounded(flate2::bufread::MultiGzDecoder::new(&*bytes))? } else { bytes };
    if bytes.starts_with(&GZIP) {
        return Err(RecordedError::CompressedTwice);
    }
    let head: Head = serde_json::from_slice(&bytes)?;
    if head.results.is_some() {
        Ok(t4::recorded(serde_json::from_slice(&bytes)?)?)
    } else if head.tune_params_keys.is_some() && head.cache.is_some() {
        Ok(kernel_tuner::recorded(serde_json::from_slice(&bytes)?)?)
    } else {
        Err(RecordedError::Foreign)
    }
}

fn bounded(reader: impl Read) -> Result<Vec<u8>, RecordedError> {
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES { Err(RecordedError::TooLarge) } else { Ok(bytes) }
}
