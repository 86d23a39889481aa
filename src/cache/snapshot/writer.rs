//! Writes a snapshot.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_64;

use super::layout::{
    ALIGNMENT, BLOCK_BYTES, BLOCK_SLOTS, CALL_HEAD_BYTES, CONFIG_HEAD_BYTES, Header, KNOWN, Kind, MAX_NAMES_BYTES,
    MAX_RECORD_BYTES, RECORD_HEAD_BYTES, Section, UNIT_BYTES, header_bytes, place_of, seal, tag,
};
use crate::cache::entry::Entry;
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

/// The same of rows, each key once and in the keys' order.
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
    let begin = header_bytes(KNOWN.len());
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

    let Index { mut slots, calls, configs } = write_records(&mut sections, rows, &names)?;
    sections.end(Kind::Records, rows.len())?;
    sections.put(&configs.bytes)?;
    sections.end(Kind::Configs, configs.count)?;
    sections.put(&calls)?;
    sections.end(Kind::Calls, rows.len())?;

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

/// What leads to the records.
#[derive(Default)]
struct Index {
    slots: Vec<u64>,
    /// The section of the calls, and of the configs.
    calls: Vec<u8>,
    configs: Configs,
}

/// Configs, each once.
#[derive(Default)]
struct Configs {
    bytes: Vec<u8>,
    count: usize,
    /// Where each begins, by its hash; of two that have one hash the first is here, and the others are kept as often as they come.
    places: HashMap<u64, u32>,
}

impl Configs {
    /// Where a config of this hash is, put there if need be.
    fn place(&mut self, hash: u64, config: &str) -> io::Result<u32> {
        let known = self.places.get(&hash).copied();
        if let Some(place) = known {
            let text = self.bytes.get(place_of(place) + CONFIG_HEAD_BYTES..).unwrap_or_default();
            let length = self.bytes.get(place_of(place) + 4..).and_then(|bytes| bytes.first_chunk());
            let is_same = length == Some(&(config.len() as u32).to_le_bytes()) && text.starts_with(config.as_bytes());
            if is_same {
                return Ok(place);
            }
        }
        let begin = self.bytes.len();
        let place = place_in_units(begin)?;
        self.bytes.extend([0; 4]);
        self.bytes.extend(bounded(config.len(), MAX_RECORD_BYTES)?.to_le_bytes());
        self.bytes.extend(config.as_bytes());
        seal(self.bytes.get_mut(begin..).unwrap_or_default());
        self.bytes.resize(self.bytes.len().next_multiple_of(UNIT_BYTES), 0);
        self.places.entry(hash).or_insert(place);
        self.count += 1;
        Ok(place)
    }
}

/// Records that lie together, and their calls, which do not know yet where these and their configs will be.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    calls: Vec<u8>,
    places: Vec<Place>,
    scratch: Vec<u8>,
}

/// Of one entry.
struct Place {
    call_hash: u64,
    config_hash: u64,
    /// Where its record and its call begin among those that were made together, and where the call's text ends.
    record: usize,
    call: usize,
    call_end: usize,
}

/// Writes all records and gives what leads to them; while some are digested and written the next ones are made.
fn write_records<W: Write + Send>(
    sections: &mut Sections<W>,
    rows: &[Row<'_>],
    names: &Names<'_>,
) -> io::Result<Index> {
    let mut index = Index::default();
    let mut rows_left = rows.iter();
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
                index.add(records, begin, &mut rows_left)?;
                sections.put(&records.bytes)
            })
        };
        let make =
            || rows.par_chunks(SOME).zip(next.par_iter_mut()).try_for_each(|(rows, records)| records.make(rows, names));
        let (written, more) = rayon::join(write, make);
        written.and(more)?;
        std::mem::swap(&mut made, &mut next);
    }
    Ok(index)
}

impl Index {
    /// Adds the calls of records of the next rows, whose section they go on from `begin`.
    fn add(&mut self, records: &Records, begin: usize, rows: &mut std::slice::Iter<'_, Row<'_>>) -> io::Result<()> {
        let calls_begin = self.calls.len();
        self.calls.extend(&records.calls);
        for (place, row) in records.places.iter().zip(rows) {
            let config = self.configs.place(place.config_hash, row.config())?;
            let record = place_in_units(begin + place.record)?;
            let call = self.calls.get_mut(calls_begin + place.call..calls_begin + place.call_end).unwrap_or_default();
            for (place, number) in call.chunks_exact_mut(4).skip(2).zip([config, record]) {
                place.copy_from_slice(&number.to_le_bytes());
            }
            seal(call);
            let upper = place.call_hash & !u64::from(u32::MAX);
            self.slots.push(upper | u64::from(place_in_units(calls_begin + place.call)?));
        }
        Ok(())
    }
}

impl Records {
    fn make(&mut self, rows: &[Row<'_>], names: &Names<'_>) -> io::Result<()> {
        let Self { bytes, calls, places, scratch } = self;
        bytes.clear();
        calls.clear();
        places.clear();
        let mut last = None;
        for row in rows {
            let KeyRef { op_id, call_key, direction, device } = row.key;
            let same = last.filter(|(key, ..): &(KeyRef<'_>, u32, u32)| key.is_named_alike(&row.key));
            let (_, operation, device) = *last.insert(same.unwrap_or_else(|| {
                let operation = names.operations.binary_search(&op_id).unwrap_or_default() as u32;
                (row.key, operation, names.devices.binary_search(&device).unwrap_or_default() as u32)
            }));
            let (record, call) = (bytes.len(), calls.len());
            bytes.extend([0; RECORD_HEAD_BYTES]);
            row.put_rest(bytes, scratch).map_err(io::Error::from)?;
            let length = bounded(bytes.len() - record - RECORD_HEAD_BYTES, MAX_RECORD_BYTES)?;
            let made = bytes.get_mut(record..).unwrap_or_default();
            let head = length.to_le_bytes().into_iter().chain(row.decided().to_le_bytes());
            made.iter_mut().skip(4).zip(head).for_each(|(place, byte)| *place = byte);
            seal(made);
            bytes.resize(bytes.len().next_multiple_of(UNIT_BYTES), 0);

            let length = bounded(call_key.len(), MAX_RECORD_BYTES)?;
            let head: [u32; CALL_HEAD_BYTES / 4] = [0, length, 0, 0, operation, tag(device, direction)];
            calls.extend(head.iter().flat_map(|number| number.to_le_bytes()));
            calls.extend(call_key.as_bytes());
            let call_end = calls.len();
            calls.resize(call_end.next_multiple_of(UNIT_BYTES), 0);
            let config_hash = XxHash3_64::oneshot(row.config().as_bytes());
            places.push(Place { call_hash: hash_of_call(op_id, call_key), config_hash, record, call, call_end });
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

/// Where something begins, in the units that numbers of places have.
fn place_in_units(at: usize) -> io::Result<u32> {
    bounded(at / UNIT_BYTES, u64::from(u32::MAX))
}

fn bounded(length: usize, limit: u64) -> io::Result<u32> {
    u32::try_from(length).ok().filter(|length| u64::from(*length) <= limit).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{length} are more than the {limit} that a snapshot can hold"),
        )
    })
}
