//! Numbers in files.

/// The unsigned number of `size` bytes, at most eight, at this place.
pub(super) fn unsigned(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}
