//! Writes a snapshot.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::layout::{
    BLOCK_BYTES, BLOCK_SLOTS, HEADER_BYTES, Header, MAX_DEVICES_BYTES, MAX_RECORD_BYTES, RECORD_HEAD_BYTES, VERSION,
    tag,
};
use crate::cache::key::{hash_of_call, head};
use crate::cache::{CacheKey, Entry, Peer, Provenance, StoreError, Superseded};
use crate::call::Direction;
use crate::device::DeviceIdentity;
use crate::digest::Digest;
use crate::whole_file::write_whole;

/// Publishes entries as the snapshot `path` and gives its digest. Of entries with one key the last one counts.
///
/// # Errors
/// Where the file cannot be written, or an entry is larger than a snapshot can hold; what was there before is there still.
pub fn write_snapshot(path: &Path, entries: &[(CacheKey, Arc<Entry>)]) -> Result<Digest, StoreError> {
    let mut sorted: Vec<&(CacheKey, Arc<Entry>)> = entries.iter().collect();
    if !sorted.is_sorted_by(|a, b| a.0 < b.0) {
        sort_by_key(&mut sorted);
        // of equal keys the last one stays
        sorted.reverse();
        sorted.dedup_by(|a, b| a.0 == b.0);
        sorted.reverse();
    }
    write_sorted(path, &sorted)
}

/// Sorts by key, stably. What mostly decides stands beside each entry: keys of a large cache lie all over the memory.
fn sort_by_key(entries: &mut [&(CacheKey, Arc<Entry>)]) {
    let mut operations: Vec<&str> = entries.iter().map(|entry| entry.0.op_id.as_str()).collect();
    operations.par_sort_unstable();
    operations.dedup();
    let mut headed: Vec<_> = entries
        .par_iter()
        .map(|entry| (operations.binary_search(&entry.0.op_id.as_str()), head(&entry.0.call_key), *entry))
        .collect();
    headed.par_sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| a.2.0.cmp(&b.2.0)));
    for (place, (_, _, entry)) in entries.iter_mut().zip(headed) {
        *place = entry;
    }
}

/// The same of what is in the keys' order already, each key once.
pub(in crate::cache) fn write_sorted(path: &Path, entries: &[impl Recorded]) -> Result<Digest, StoreError> {
    write(path, entries).map_err(StoreError::io("write the snapshot", path))
}

/// What a record is made of.
pub(in crate::cache) trait Recorded: Sync {
    /// Operation.
    fn op_id(&self) -> &str;
    /// Call key.
    fn call_key(&self) -> &str;
    /// Device.
    fn device(&self) -> &DeviceIdentity;
    /// Direction.
    fn direction(&self) -> Direction;
    /// Config as canonical JSON.
    fn config(&self) -> &str;
    /// Appends the origin; nothing where there is none. Whether it supersedes other decisions.
    fn put_origin(&self, out: &mut Vec<u8>) -> io::Result<bool>;
}

impl Recorded for &(CacheKey, Arc<Entry>) {
    fn op_id(&self) -> &str {
        &self.0.op_id
    }

    fn call_key(&self) -> &str {
        &self.0.call_key
    }

    fn device(&self) -> &DeviceIdentity {
        &self.0.device
    }

    fn direction(&self) -> Direction {
        self.0.direction
    }

    fn config(&self) -> &str {
        self.1.config.as_str()
    }

    fn put_origin(&self, out: &mut Vec<u8>) -> io::Result<bool> {
        put_origin(&self.1, out)?;
        Ok(!self.1.superseded.is_empty())
    }
}

/// Appends all of an entry but its config, as records have it.
pub(in crate::cache) fn put_origin(entry: &Entry, out: &mut Vec<u8>) -> io::Result<()> {
    let Entry { config: _, provenance, peer, superseded } = entry;
    if provenance.is_some() || peer.is_some() || !superseded.is_empty() {
        let origin = Origin { provenance: provenance.as_ref(), peer: peer.as_ref(), superseded };
        serde_json::to_writer(out, &origin).map_err(io::Error::from)?;
    }
    Ok(())
}

/// All of an entry but its config.
#[derive(Serialize)]
struct Origin<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    provenance: Option<&'a Provenance>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a Peer>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    superseded: &'a [Superseded],
}

struct Slot {
    hash: u64,
    tag: u32,
    length: u32,
    offset: u64,
}

fn write(path: &Path, entries: &[impl Recorded]) -> io::Result<Digest> {
    write_whole(path, |file| {
        let header = write_parts(file, entries)?;
        file.rewind()?;
        file.write_all(&header.to_bytes())?;
        Ok(Digest::from_bytes(header.digest))
    })
}

/// Counts and digests what goes by.
struct Counted<W> {
    inner: W,
    hasher: Sha256,
    offset: u64,
}

impl<W: Write> Counted<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        self.inner.write_all(bytes)
    }
}

fn write_parts(file: &mut File, entries: &[impl Recorded]) -> io::Result<Header> {
    let mut out =
        Counted { inner: BufWriter::with_capacity(1 << 20, file), hasher: Sha256::new(), offset: HEADER_BYTES as u64 };
    out.inner.write_all(&[0; HEADER_BYTES])?;
    let mut header = Header { version: VERSION, entries: entries.len() as u64, ..Header::default() };

    let stretches: Vec<_> = entries.par_chunks(SOME).map(stretches).collect();
    let mut devices: Vec<&DeviceIdentity> = stretches.iter().flatten().map(|stretch| stretch.device).collect();
    devices.sort_unstable();
    devices.dedup();
    let text = serde_json::to_vec(&devices).map_err(io::Error::from)?;
    header.devices = (out.offset, bounded(text.len(), MAX_DEVICES_BYTES)?, crc32fast::hash(&text));
    out.put(&text)?;

    header.records.0 = out.offset;
    let mut slots;
    (slots, header.supersedes) = write_records(&mut out, entries, &stretches, &devices)?;
    header.records.1 = out.offset - header.records.0;

    slots.par_sort_unstable_by_key(|slot| (slot.hash, slot.tag, slot.offset));
    header.blocks = out.offset;
    let mut fences = Vec::new();
    for slots in slots.chunks(BLOCK_SLOTS) {
        fences.extend(slots.first().map_or(0, |slot| slot.hash).to_le_bytes());
        out.put(&block(slots))?;
    }
    header.fences = (out.offset, bounded(fences.len() / 8, u64::from(u32::MAX))?, crc32fast::hash(&fences));
    out.put(&fences)?;
    header.file_length = out.offset;
    out.hasher.update(header.digested());
    header.digest = out.hasher.finalize().into();
    out.inner.flush()?;
    Ok(header)
}

/// Entries whose records are made at a time, by one thread and by all: few enough that they are still in the processor's cache when they are written.
const SOME: usize = 1 << 9;
const MANY: usize = 64 * SOME;

/// Neighbours that share their device.
struct Stretch<'a> {
    device: &'a DeviceIdentity,
    entries: usize,
}

fn stretches(entries: &[impl Recorded]) -> Vec<Stretch<'_>> {
    let by_device = entries.chunk_by(|a, b| a.device() == b.device());
    by_device.filter_map(|same| Some(Stretch { device: same.first()?.device(), entries: same.len() })).collect()
}

/// Records that lie together.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    /// Their slots, with offsets in `bytes`.
    slots: Vec<Slot>,
    supersedes: bool,
}

/// Writes all records; while some are digested and written the next ones are made.
fn write_records<W: Write + Send>(
    out: &mut Counted<W>,
    entries: &[impl Recorded],
    stretches: &[Vec<Stretch<'_>>],
    devices: &[&DeviceIdentity],
) -> io::Result<(Vec<Slot>, bool)> {
    let (mut all, mut supersedes) = (Vec::with_capacity(entries.len()), false);
    let mut made: Vec<Records> = Vec::new();
    // one turn more, which only writes
    for turn in 0..=entries.len().div_ceil(MANY) {
        let next = entries.get(turn * MANY..).unwrap_or_default();
        let next = next.get(..MANY.min(next.len())).unwrap_or_default();
        let write = || {
            made.drain(..).try_for_each(|records| {
                let begin = out.offset;
                all.extend(records.slots.into_iter().map(|slot| Slot { offset: begin + slot.offset, ..slot }));
                supersedes |= records.supersedes;
                out.put(&records.bytes)
            })
        };
        let of_next = stretches.get(turn * MANY / SOME..).unwrap_or_default();
        let some = next.par_chunks(SOME).zip(of_next);
        let make = || some.map(|(entries, stretches)| make_records(entries, stretches, devices)).collect();
        let (written, more) = rayon::join(write, make);
        written?;
        let more: io::Result<Vec<Records>> = more;
        made = more?;
    }
    Ok((all, supersedes))
}

fn make_records(
    entries: &[impl Recorded],
    stretches: &[Stretch<'_>],
    devices: &[&DeviceIdentity],
) -> io::Result<Records> {
    let mut records = Records::default();
    let places = stretches.iter().flat_map(|stretch| {
        let place = devices.binary_search(&stretch.device).unwrap_or_default() as u32;
        std::iter::repeat_n(place, stretch.entries)
    });
    for (entry, device) in entries.iter().zip(places) {
        let tag = tag(device, entry.direction());
        let (op_id, call_key, config) = (entry.op_id(), entry.call_key(), entry.config());
        let bytes = &mut records.bytes;
        let begin = bytes.len();
        bytes.extend([0; RECORD_HEAD_BYTES]);
        bytes.extend(op_id.as_bytes());
        bytes.extend(call_key.as_bytes());
        bytes.extend(config.as_bytes());
        let before = bytes.len();
        records.supersedes |= entry.put_origin(bytes)?;
        let length = bounded(bytes.len() - begin, MAX_RECORD_BYTES)?;
        let lengths = [op_id.len(), call_key.len(), config.len(), bytes.len() - before];
        let (record, origin) = bytes.get_mut(begin..).unwrap_or_default().split_at_mut(before - begin);
        let numbers = lengths.map(|length| length as u32).into_iter().chain([tag, crc32fast::hash(origin)]);
        for (place, number) in record.chunks_exact_mut(4).skip(1).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        seal(record);
        records.slots.push(Slot { hash: hash_of_call(op_id, call_key), tag, length, offset: begin as u64 });
    }
    Ok(records)
}

fn block(slots: &[Slot]) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    block.extend([0; 4]);
    block.extend((slots.len() as u32).to_le_bytes());
    for slot in slots {
        block.extend(slot.hash.to_le_bytes());
        block.extend(slot.offset.to_le_bytes());
        block.extend(slot.length.to_le_bytes());
        block.extend(slot.tag.to_le_bytes());
    }
    block.resize(BLOCK_BYTES, 0);
    seal(&mut block);
    block
}

/// Writes the CRC of the rest into the first four bytes.
fn seal(bytes: &mut [u8]) {
    if let Some((crc, rest)) = bytes.split_first_chunk_mut() {
        *crc = crc32fast::hash(rest).to_le_bytes();
    }
}

fn bounded(length: usize, limit: u64) -> io::Result<u32> {
    u32::try_from(length).ok().filter(|length| u64::from(*length) <= limit).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{length} are more than the {limit} that a snapshot can hold"),
        )
    })
}
