//! Riegeli's files of records, as far as XLA writes them: simple chunks, compressed with Snappy or not at all.
//!
//! Format: <https://github.com/google/riegeli/blob/master/doc/riegeli_records_file_format.md>, which lacks Snappy, `s`.
//! Hashes are not checked, because the bytes come from a plugin in this process or were compared with their digest.

use std::borrow::Cow;

use super::little_endian::unsigned;
use crate::wire::{WireValue, repeated_varints};

/// A header of `BLOCK_HEADER_BYTES` is inserted at each multiple of this, whatever it interrupts.
const BLOCK_BYTES: usize = 1 << 16;
const BLOCK_HEADER_BYTES: usize = 24;
const CHUNK_HEADER_BYTES: usize = 40;
/// The hash at the start of each file's first chunk header.
const SIGNATURE: &[u8] = b"\x91\xba\xc2\x3c\x92\x87\xe1\xa9";
/// Maximum bytes of a file, and of its expanded records, because a worker has little memory to spare. Larger
/// executables are large because of their constants.
const MAX_BYTES: usize = 64 << 20;
const MAX_RECORDS: usize = 1 << 16;
/// Maximum expansion of a compressed byte: Snappy copies 64 bytes with three.
const MAX_EXPANSION: usize = 22;

/// Whether bytes begin like such a file.
pub(super) fn is_file_of_records(file: &[u8]) -> bool {
    file.get(BLOCK_HEADER_BYTES..).is_some_and(|rest| rest.starts_with(SIGNATURE))
}

/// The records of a file.
pub(super) fn records(file: &[u8]) -> Option<Vec<Vec<u8>>> {
    if !is_file_of_records(file) || file.len() > MAX_BYTES {
        return None;
    }
    let chunks = file.chunks(BLOCK_BYTES).map(|block| block.get(BLOCK_HEADER_BYTES..));
    let chunks = chunks.collect::<Option<Vec<_>>>()?.concat();
    let (mut records, mut left, mut rest) = (Vec::new(), MAX_BYTES, chunks.as_slice());
    while !rest.is_empty() {
        let (header, after) = rest.split_at_checked(CHUNK_HEADER_BYTES)?;
        let (data, after) = after.split_at_checked(usize::try_from(unsigned(header, 8, 8)?).ok()?)?;
        let count = usize::try_from(unsigned(header, 25, 7)?).ok()?;
        // a chunk with more records than bytes has padding, which XLA's few records never need
        if count > MAX_RECORDS.saturating_sub(records.len()) || count > CHUNK_HEADER_BYTES + data.len() {
            return None;
        }
        match unsigned(header, 24, 1)? as u8 {
            // the signature, and padding
            b's' | b'p' if count == 0 => {}
            b'r' => read_chunk(data, count, unsigned(header, 32, 8)?, &mut left, &mut records)?,
            _ => return None,
        }
        rest = after;
    }
    Some(records)
}

/// Adds the records of a simple chunk.
fn read_chunk(data: &[u8], count: usize, bytes: u64, left: &mut usize, records: &mut Vec<Vec<u8>>) -> Option<()> {
    let (&compression, data) = data.split_first()?;
    let (length, data) = varint(data)?;
    let (sizes, values) = data.split_at_checked(usize::try_from(length).ok()?)?;
    // the longest number has ten bytes
    let sizes = expanded(compression, sizes, count.saturating_mul(10))?;
    let mut lengths = Vec::new();
    repeated_varints(WireValue::Bytes(&sizes), &mut lengths).ok()?;
    let values = expanded(compression, values, *left)?;
    *left -= values.len();
    if lengths.len() != count || values.len() as u64 != bytes {
        return None;
    }
    let mut values = &*values;
    for length in lengths {
        let (record, after) = values.split_at_checked(usize::try_from(length).ok()?)?;
        records.push(record.to_vec());
        values = after;
    }
    values.is_empty().then_some(())
}

/// Decompresses bytes to at most `most` bytes.
fn expanded(compression: u8, bytes: &[u8], most: usize) -> Option<Cow<'_, [u8]>> {
    if compression == 0 {
        return (bytes.len() <= most).then_some(Cow::Borrowed(bytes));
    }
    let (size, bytes) = varint(bytes).filter(|_| compression == b's')?;
    let length = snap::raw::decompress_len(bytes).ok()?;
    if length as u64 != size || length > most || length / MAX_EXPANSION > bytes.len() {
        return None;
    }
    snap::raw::Decoder::new().decompress_vec(bytes).ok().map(Cow::Owned)
}

/// The number at the start of the bytes, and the rest.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let last = bytes.iter().take(9).position(|byte| byte & 0x80 == 0)?;
    let (number, rest) = bytes.split_at_checked(last + 1)?;
    Some((number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)), rest))
}
