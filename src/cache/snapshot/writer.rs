//! Writes a snapshot.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::layout::{
    ALIGNMENT, BLOCK_BYTES, BLOCK_SLOTS, Header, Kind, MAX_NAMES_BYTES, MAX_RECORD_BYTES, RECORD_ALIGNMENT,
    RECORD_HEAD_BYTES, Section, checksum, header_bytes, seal, tag,
};
use crate::cache::entry::{Entry, EntryText};
use crate::cache::error::StoreError;
use crate::cache::key::{CacheKey, KeyRef, hash_of_call};
use crate::cache::row::{Row, Rows};
use crate::device::DeviceIdentity;
use crate::digest::Digest;
use crate::whole_file::write_whole;

/// Publishes entries as the snapshot `path` and gives its digest. Of entries with one key the last one counts.
///
/// # Errors
/// Where the file cannot be written, or an entry is larger than a snapshot can hold; what was there before is there still.
pub fn write_snapshot(path: &Path, entries: &[(CacheKey, Arc<Entry>)]) -> Result<Digest, StoreError> {
    write_rows(path, &Rows::of_entries(entries))
}

/// The same of rows, each key once.
pub(in crate::cache) fn write_rows(path: &Path, rows: &Rows<'_>) -> Result<Digest, StoreError> {
    let write = |file: &mut File| {
        let header = write_sections(file, rows)?;
        file.rewind()?;
        file.write_all(&header.to_bytes())?;
        Ok(Digest::from_bytes(header.digest))
    };
    write_whole(path, write).map_err(StoreError::io("write the snapshot", path))
}

/// What records name by its place.
#[derive(Serialize)]
struct Names<'a> {
    devices: &'a [&'a DeviceIdentity],
    operations: &'a [&'a str],
}

/// The sections of a file, as they are written.
struct Sections<W> {
    out: W,
    hasher: Sha256,
    /// Where the present one began, and how far it is.
    begin: u64,
    offset: u64,
    done: Vec<Section>,
}

impl<W: Write> Sections<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn end(&mut self, kind: Kind, count: usize) -> io::Result<()> {
        let padding = self.offset.next_multiple_of(ALIGNMENT) - self.offset;
        self.put(&[0; ALIGNMENT as usize][..padding as usize])?;
        let digest = std::mem::take(&mut self.hasher).finalize().into();
        self.done.push(Section::required(kind, self.begin, self.offset - self.begin, count as u64, digest));
        self.begin = self.offset;
        Ok(())
    }
}

fn write_sections(file: &mut File, rows: &Rows<'_>) -> io::Result<Header> {
    let begin = header_bytes(4);
    let mut out = BufWriter::with_capacity(1 << 20, file);
    out.write_all(&vec![0; begin])?;
    let begin = begin as u64;
    let mut sections = Sections { out, hasher: Sha256::new(), begin, offset: begin, done: Vec::new() };

    let Rows { rows, operations, devices } = rows;
    let names = Names { devices, operations };
    let text = serde_json::to_vec(&names).map_err(io::Error::from)?;
    bounded(text.len(), MAX_NAMES_BYTES)?;
    sections.put(&sealed_section(&text))?;
    sections.end(Kind::Names, text.len())?;

    let mut slots = write_records(&mut sections, rows, &names)?;
    sections.end(Kind::Records, rows.len())?;

    slots.par_sort_unstable();
    let mut fences = Vec::with_capacity(slots.len().div_ceil(BLOCK_SLOTS) * 4);
    for slots in slots.chunks(BLOCK_SLOTS) {
        fences.extend(slots.first().map_or(0, |slot| (slot >> 32) as u32).to_le_bytes());
        sections.put(&block(slots))?;
    }
    sections.end(Kind::Blocks, fences.len() / 4)?;
    sections.put(&sealed_section(&fences))?;
    sections.end(Kind::Fences, fences.len() / 4)?;
    sections.out.flush()?;
    Ok(Header::new(sections.offset, sections.done))
}

/// The bytes of a section that begins with the checksum of its rest, its padding too.
fn sealed_section(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; (4 + content.len()).next_multiple_of(ALIGNMENT as usize)];
    if let Some(place) = bytes.get_mut(4..4 + content.len()) {
        place.copy_from_slice(content);
    }
    seal(&mut bytes);
    bytes
}

/// Rows whose records are made at a time, by one thread and by all: few enough that they are still in the processor's cache when
/// they are written.
const SOME: usize = 1 << 9;
const MANY: usize = 64 * SOME;

/// Records that lie together.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    /// Of each the upper half of its call's hash, and where in `bytes` it begins.
    places: Vec<(u32, usize)>,
    scratch: Vec<u8>,
}

/// Writes all records and gives their slots; while some are digested and written the next ones are made.
fn write_records<W: Write + Send>(
    sections: &mut Sections<W>,
    rows: &[Row<'_>],
    names: &Names<'_>,
) -> io::Result<Vec<u64>> {
    let mut slots = Vec::with_capacity(rows.len());
    // made anew in the same memory each time: fresh pages cost more than what is written into them
    let mut made: Vec<Records> = Vec::new();
    let mut next: Vec<Records> = Vec::new();
    // one turn more, which only writes
    for turn in 0..=rows.len().div_ceil(MANY) {
        let rows = rows.get(turn * MANY..).unwrap_or_default();
        let rows = rows.get(..MANY.min(rows.len())).unwrap_or_default();
        next.resize_with(rows.len().div_ceil(SOME), Records::default);
        let write = || {
            made.iter().try_for_each(|records| {
                let begin = (sections.offset - sections.begin) as usize;
                for (upper, place) in &records.places {
                    let place = bounded((begin + place) / RECORD_ALIGNMENT, u64::from(u32::MAX))?;
                    slots.push(u64::from(*upper) << 32 | u64::from(place));
                }
                sections.put(&records.bytes)
            })
        };
        let make =
            || rows.par_chunks(SOME).zip(next.par_iter_mut()).try_for_each(|(rows, records)| records.make(rows, names));
        let (written, more) = rayon::join(write, make);
        written.and(more)?;
        std::mem::swap(&mut made, &mut next);
    }
    Ok(slots)
}

impl Records {
    fn make(&mut self, rows: &[Row<'_>], names: &Names<'_>) -> io::Result<()> {
        let Self { bytes, places, scratch } = self;
        bytes.clear();
        places.clear();
        let mut last = None;
        for row in rows {
            let KeyRef { op_id, call_key, direction, device } = row.key;
            let same = last.filter(|(key, ..): &(KeyRef<'_>, u32, u32)| key.is_named_alike(&row.key));
            let (_, operation, device) = *last.insert(same.unwrap_or_else(|| {
                let operation = names.operations.binary_search(&op_id).unwrap_or_default() as u32;
                (row.key, operation, names.devices.binary_search(&device).unwrap_or_default() as u32)
            }));
            let begin = bytes.len();
            bytes.extend([0; RECORD_HEAD_BYTES]);
            bytes.extend(call_key.as_bytes());
            let text_at = bytes.len();
            let config_bytes = row.put_text(bytes, scratch).map_err(io::Error::from)?;
            let config_end = text_at + EntryText::bytes_with_config(config_bytes);
            bounded(bytes.len() - begin, MAX_RECORD_BYTES)?;
            let lengths = [call_key.len(), config_bytes, bytes.len() - config_end].map(|length| length as u32);
            let rest = checksum(bytes.get(config_end..).unwrap_or_default());
            let record = bytes.get_mut(begin..config_end).unwrap_or_default();
            let numbers = [rest].into_iter().chain(lengths).chain([operation, tag(device, direction)]);
            for (place, number) in record.chunks_exact_mut(4).skip(1).zip(numbers) {
                place.copy_from_slice(&number.to_le_bytes());
            }
            if let Some(place) = record.get_mut(28..RECORD_HEAD_BYTES) {
                place.copy_from_slice(&row.decided().to_le_bytes());
            }
            seal(record);
            bytes.resize(bytes.len().next_multiple_of(RECORD_ALIGNMENT), 0);
            places.push(((hash_of_call(op_id, call_key) >> 32) as u32, begin));
        }
        Ok(())
    }
}

fn block(slots: &[u64]) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let numbers = [(slots.len() as u64) << 32].into_iter().chain(slots.iter().copied());
    for (place, number) in block.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    seal(&mut block);
    block
}

fn bounded(length: usize, limit: u64) -> io::Result<u32> {
    u32::try_from(length).ok().filter(|length| u64::from(*length) <= limit).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{length} are more than the {limit} that a snapshot can hold"),
        )
    })
}
