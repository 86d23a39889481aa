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
    ALIGNMENT, BLOCK_BYTES, BLOCK_SLOTS, CALL_HEAD_BYTES, CONFIG_HEAD_BYTES, KNOWN, MAX_NAMES_BYTES, MAX_RECORD_BYTES,
    RECORD_HEAD_BYTES, SectionKind, SectionLine, SnapshotHeader, UNIT_BYTES, header_bytes, place_of, seal, tag, u32_at,
};
use crate::atomic_write::{folder_of, remove_unfinished, write_atomic};
use crate::cache::entry::Entry;
use crate::cache::error::StoreError;
use crate::cache::key::{CacheKey, KeyRef, hash_of_call};
use crate::cache::row::{EntryRow, EntryRows};
use crate::device::DeviceIdentity;
use crate::digest::Digest;

/// Publishes entries as the snapshot `path` and returns its digest. Among entries with the same key the last one
/// counts.
///
/// # Errors
/// If the file cannot be written, or an entry is larger than a snapshot can hold; then the old file is intact.
pub fn write_snapshot(path: &Path, entries: &[(CacheKey, Arc<Entry>)]) -> Result<Digest, StoreError> {
    write_rows(path, &EntryRows::of_entries(entries))
}

/// Writes rows as a snapshot, each key once and in the keys' order.
///
/// # Errors
/// As [`write_snapshot`].
pub fn write_rows(path: &Path, rows: &EntryRows<'_>) -> Result<Digest, StoreError> {
    let write = |file: &mut File| {
        let header = write_sections(file, rows)?;
        file.rewind()?;
        file.write_all(&header.to_bytes())?;
        Ok(Digest::from_bytes(header.digest))
    };
    remove_unfinished(folder_of(path));
    write_atomic(path, write).map_err(StoreError::io("write the snapshot", path))
}

/// What records refer to by index.
#[derive(Serialize)]
struct Names<'a> {
    devices: &'a [&'a DeviceIdentity],
    operations: &'a [&'a str],
}

/// The sections of a file, as they are written.
struct Sections<W> {
    out: W,
    hasher: Sha256,
    /// Where the current one began, and how far it is.
    begin: u64,
    offset: u64,
    done: Vec<SectionLine>,
}

impl<W: Write> Sections<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn end(&mut self, kind: SectionKind, count: usize) -> io::Result<()> {
        let padding = self.offset.next_multiple_of(ALIGNMENT) - self.offset;
        self.put(&[0; ALIGNMENT as usize][..padding as usize])?;
        let digest = std::mem::take(&mut self.hasher).finalize().into();
        self.done.push(SectionLine::required(kind, self.begin, self.offset - self.begin, count as u64, digest));
        self.begin = self.offset;
        Ok(())
    }
}

fn write_sections(file: &mut File, rows: &EntryRows<'_>) -> io::Result<SnapshotHeader> {
    let begin = header_bytes(KNOWN.len());
    let mut out = BufWriter::with_capacity(1 << 20, file);
    out.write_all(&vec![0; begin])?;
    let begin = begin as u64;
    let mut sections = Sections { out, hasher: Sha256::new(), begin, offset: begin, done: Vec::new() };

    let EntryRows { rows, operations, devices } = rows;
    let names = Names { devices, operations };
    let text = serde_json::to_vec(&names).map_err(io::Error::from)?;
    bounded(text.len(), MAX_NAMES_BYTES)?;
    sections.put(&sealed_section(&text))?;
    sections.end(SectionKind::Names, text.len())?;

    let Index { mut slots, calls, configs } = write_records(&mut sections, rows, &names)?;
    sections.end(SectionKind::Records, rows.len())?;
    sections.put(&configs.bytes)?;
    sections.end(SectionKind::Configs, configs.places.len())?;
    sections.put(&calls)?;
    sections.end(SectionKind::Calls, rows.len())?;

    slots.par_sort_unstable();
    let mut fences = Vec::with_capacity(slots.len().div_ceil(BLOCK_SLOTS) * 4);
    for slots in slots.chunks(BLOCK_SLOTS) {
        fences.extend(slots.first().map_or(0, |slot| (slot >> 32) as u32).to_le_bytes());
        sections.put(&block(slots))?;
    }
    sections.end(SectionKind::Blocks, fences.len() / 4)?;
    sections.put(&sealed_section(&fences))?;
    sections.end(SectionKind::Fences, fences.len() / 4)?;
    sections.out.flush()?;
    Ok(SnapshotHeader::new(sections.offset, sections.done))
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

/// Number of rows whose records are encoded at a time, per thread and in total: few enough that they are still in the
/// CPU cache when they are written.
const SOME: usize = 1 << 9;
const MANY: usize = 64 * SOME;

/// The sections that lead to the records.
#[derive(Default)]
struct Index {
    slots: Vec<u64>,
    /// The section of the calls.
    calls: Vec<u8>,
    configs: ConfigSection,
}

/// Configs, each once, as their section has them.
#[derive(Default)]
struct ConfigSection {
    bytes: Vec<u8>,
    /// The hash and the start of each.
    places: Vec<(u64, u32)>,
    /// The number of each by its hash; if two share a hash, the first is here, and the others are stored each time.
    numbers: HashMap<u64, u32>,
}

impl ConfigSection {
    fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.numbers.clear();
    }

    /// The text of a config.
    fn text(&self, (_, place): (u64, u32)) -> &[u8] {
        let config = self.bytes.get(place_of(place)..).unwrap_or_default();
        let length = u32_at(config, 4) as usize;
        config.get(CONFIG_HEAD_BYTES..CONFIG_HEAD_BYTES + length).unwrap_or_default()
    }

    /// The number of a config with this hash, which is added if it is new.
    fn number(&mut self, hash: u64, config: &[u8]) -> io::Result<u32> {
        if let Some(number) = self.numbers.get(&hash)
            && self.places.get(*number as usize).is_some_and(|known| self.text(*known) == config)
        {
            return Ok(*number);
        }
        let (begin, number) = (self.bytes.len(), self.places.len() as u32);
        self.places.push((hash, place_in_units(begin)?));
        self.numbers.entry(hash).or_insert(number);
        self.bytes.extend([0; 4]);
        self.bytes.extend(bounded(config.len(), MAX_RECORD_BYTES)?.to_le_bytes());
        self.bytes.extend(config);
        seal(self.bytes.get_mut(begin..).unwrap_or_default());
        self.bytes.resize(self.bytes.len().next_multiple_of(UNIT_BYTES), 0);
        Ok(number)
    }
}

/// A batch of records with their configs and calls, whose final positions are not known yet.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    configs: ConfigSection,
    calls: Vec<u8>,
    places: Vec<EntryPlace>,
}

/// The parts of one entry.
struct EntryPlace {
    call_hash: u64,
    /// The number of its config, and where in the batch its record and its call begin and the call's text ends.
    config: u32,
    record: usize,
    call: usize,
    call_end: usize,
}

/// Writes all records and returns the sections that lead to them; while a batch is digested and written, the next one
/// is encoded.
fn write_records<W: Write + Send>(
    sections: &mut Sections<W>,
    rows: &[EntryRow<'_>],
    names: &Names<'_>,
) -> io::Result<Index> {
    let mut index = Index { slots: Vec::with_capacity(rows.len()), ..Index::default() };
    // reuses the same memory each time, because fresh pages cost more than writing to them
    let mut made: Vec<Records> = Vec::new();
    let mut next: Vec<Records> = Vec::new();
    // one more turn, which only writes
    for turn in 0..=rows.len().div_ceil(MANY) {
        let rows = rows.get(turn * MANY..).unwrap_or_default();
        let rows = rows.get(..MANY.min(rows.len())).unwrap_or_default();
        next.resize_with(rows.len().div_ceil(SOME), Records::default);
        let write = || {
            made.iter().try_for_each(|records| {
                let begin = (sections.offset - sections.begin) as usize;
                index.add(records, begin)?;
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
    /// Adds the calls and configs of records that begin at this place of their section.
    fn add(&mut self, records: &Records, begin: usize) -> io::Result<()> {
        let Records { configs, calls, places, .. } = records;
        let own = |config: &(u64, u32)| {
            let number = self.configs.number(config.0, configs.text(*config))?;
            Ok(self.configs.places.get(number as usize).map_or(0, |(_, place)| *place))
        };
        let configs: Vec<u32> = configs.places.iter().map(own).collect::<io::Result<_>>()?;
        let calls_begin = self.calls.len();
        self.calls.extend(calls);
        for place in places {
            let config = configs.get(place.config as usize).copied().unwrap_or_default();
            let record = place_in_units(begin + place.record)?;
            let call = self.calls.get_mut(calls_begin + place.call..calls_begin + place.call_end).unwrap_or_default();
            if let Some(head) = call.first_chunk_mut::<CALL_HEAD_BYTES>() {
                head[8..12].copy_from_slice(&config.to_le_bytes());
                head[12..16].copy_from_slice(&record.to_le_bytes());
            }
            seal(call);
            let upper = place.call_hash & !u64::from(u32::MAX);
            self.slots.push(upper | u64::from(place_in_units(calls_begin + place.call)?));
        }
        Ok(())
    }
}

impl Records {
    fn make(&mut self, rows: &[EntryRow<'_>], names: &Names<'_>) -> io::Result<()> {
        let Self { bytes, configs, calls, places } = self;
        bytes.clear();
        configs.clear();
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
            row.put_rest(bytes).map_err(io::Error::from)?;
            let length = bounded(bytes.len() - record - RECORD_HEAD_BYTES, MAX_RECORD_BYTES)?;
            let made = bytes.get_mut(record..).unwrap_or_default();
            if let Some(head) = made.first_chunk_mut::<RECORD_HEAD_BYTES>() {
                head[4..8].copy_from_slice(&length.to_le_bytes());
                head[8..16].copy_from_slice(&row.decided().to_le_bytes());
            }
            seal(made);
            bytes.resize(bytes.len().next_multiple_of(UNIT_BYTES), 0);

            let length = bounded(call_key.len(), MAX_RECORD_BYTES)?;
            let mut head = [0; CALL_HEAD_BYTES];
            head[4..8].copy_from_slice(&length.to_le_bytes());
            head[16..20].copy_from_slice(&operation.to_le_bytes());
            head[20..24].copy_from_slice(&tag(device, direction).to_le_bytes());
            calls.extend(head);
            calls.extend(call_key.as_bytes());
            let call_end = calls.len();
            calls.resize(call_end.next_multiple_of(UNIT_BYTES), 0);
            let config = row.config().as_bytes();
            let config = configs.number(XxHash3_64::oneshot(config), config)?;
            places.push(EntryPlace { call_hash: hash_of_call(op_id, call_key), config, record, call, call_end });
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

/// An offset in the units of places.
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
