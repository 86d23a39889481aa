//! The size of a buffer, as `ProfilerSpec` counts it, and the table of names.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::error::MosaicError;
use crate::outside_file;

/// Words of a trace's header.
pub(super) const HEADER: u64 = 3;

/// Maximum number of traces in a buffer.
const MAX_TRACES: u64 = 1 << 32;

const MAX_NAMES_BYTES: u64 = 64 << 20;

/// The scope of one trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// 128 threads.
    Warpgroup,
    /// 32 threads.
    Warp,
}

impl Scope {
    /// Threads of one.
    pub fn threads(self) -> u64 {
        match self {
            Self::Warpgroup => 128,
            Self::Warp => 32,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warpgroup => "warpgroup",
            Self::Warp => "warp",
        }
    }
}

/// Up to three sizes, of a grid or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent(pub [u32; 3]);

impl Extent {
    /// The product, which may overflow 64 bits.
    fn product(self) -> Option<u64> {
        self.0.iter().try_fold(1_u64, |product, size| product.checked_mul(u64::from(*size)))
    }
}

/// The parameters of JAX's `ProfilerSpec`.
#[derive(Debug, Clone, Copy)]
pub struct ProfilerSpec {
    /// Words a trace, header included.
    pub entries: u64,
    /// The scope of one trace.
    pub scope: Scope,
}

impl ProfilerSpec {
    /// A spec with this many words per trace.
    pub fn new(entries: u64, scope: Scope) -> Self {
        Self { entries, scope }
    }

    /// The entries for this many ranges (`record` blocks) per trace: a beginning and an end of two words each.
    pub fn entries_for(ranges: u64) -> u64 {
        ranges.saturating_mul(4).saturating_add(HEADER)
    }

    /// Ranges that fit into a trace.
    pub fn ranges(&self) -> u64 {
        self.entries.saturating_sub(HEADER) / 4
    }

    /// Traces of a block.
    ///
    /// # Errors
    /// If the block is not made of whole warpgroups, or warps.
    pub fn traces_per_block(&self, block: Extent) -> Result<u64, MosaicError> {
        let threads = block.product().filter(|threads| *threads <= MAX_TRACES);
        let threads = threads.ok_or(MosaicError::TooMany { limit: MAX_TRACES })?;
        let size = self.scope.threads();
        match threads {
            1.. if threads.is_multiple_of(size) => Ok(threads / size),
            _ => Err(MosaicError::Block { threads, unit: self.scope.name(), size }),
        }
    }

    /// Traces of a launch.
    ///
    /// # Errors
    /// If the block is not made of whole warpgroups, or warps, or there are too many.
    pub fn traces(&self, grid: Extent, block: Extent) -> Result<u64, MosaicError> {
        let per_block = self.traces_per_block(block)?;
        let all = grid.product().and_then(|blocks| blocks.checked_mul(per_block));
        all.filter(|all| (1..=MAX_TRACES).contains(all)).ok_or(MosaicError::TooMany { limit: MAX_TRACES })
    }

    /// Words of the buffer in global memory.
    ///
    /// # Errors
    /// As [`ProfilerSpec::traces`].
    pub fn buffer_words(&self, grid: Extent, block: Extent) -> Result<u64, MosaicError> {
        let words = self.traces(grid, block)?.checked_mul(self.entries);
        words.ok_or(MosaicError::TooMany { limit: MAX_TRACES })
    }

    /// Bytes that each block takes of its shared memory.
    ///
    /// # Errors
    /// As [`ProfilerSpec::traces_per_block`].
    pub fn shared_bytes(&self, block: Extent) -> Result<u64, MosaicError> {
        let bytes = self.traces_per_block(block)?.checked_mul(self.entries).and_then(|words| words.checked_mul(4));
        bytes.ok_or(MosaicError::TooMany { limit: MAX_TRACES })
    }
}

/// Reads a file to its end, up to a limit.
pub(super) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, MosaicError> {
    outside_file::input(path, limit).map_err(|source| MosaicError::Unreadable { path: path.to_owned(), source })
}

/// Reads names: `spec.interned_names` as JSON (names to numbers), or a list of the names by number.
///
/// # Errors
/// If the file cannot be read, or holds something else.
pub fn read_names(path: &Path) -> Result<HashMap<u32, String>, MosaicError> {
    let bytes = read_bounded(path, MAX_NAMES_BYTES)?;
    let wrong = |what: String| MosaicError::NotNames { path: path.to_owned(), what };
    let number = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| *id < 1 << 31);
    let mut names = HashMap::new();
    match serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))? {
        Value::Object(members) => {
            for (name, value) in members {
                let id = number(&value).ok_or_else(|| wrong(format!("`{name}` has the number {value}")))?;
                if let Some(other) = names.insert(id, name) {
                    return Err(wrong(format!("`{other}` and another name have the number {id}")));
                }
            }
        }
        Value::Array(items) => {
            for (id, item) in (0..).zip(items) {
                let name = item.as_str().ok_or_else(|| wrong(format!("{item} is not text")))?;
                names.insert(id, name.to_owned());
            }
        }
        _ => return Err(wrong("neither an object nor a list".to_owned())),
    }
    Ok(names)
}
