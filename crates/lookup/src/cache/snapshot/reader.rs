//! Reads a snapshot in place.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::layout::{
    BLOCK_BYTES, BLOCK_SLOTS, CALL_HEAD_BYTES, CONFIG_HEAD_BYTES, HEADER_BYTES, HeaderError, KNOWN, MAGIC,
    MAX_FILE_BYTES, MAX_SECTIONS, RECORD_HEAD_BYTES, SectionLine, SnapshotHeader, UNIT_BYTES, header_bytes, place_of,
    sealed, u32_at, u64_at, untag,
};
use crate::cache::entry::{Entry, EntryText};
use crate::cache::error::StoreError;
use crate::cache::key::{KeyRef, hash_of_call};
use crate::cache::row::EntryRow;
use crate::call::Direction;
use crate::device::DeviceIdentity;
use crate::digest::Digest;
use crate::mapped_file::{MappedFile, Mapping};

/// An open snapshot. It never changes; a newer one is seen by opening the path again.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    bytes: MappedFile,
    header: SnapshotHeader,
    names: Names,
    records: SectionLine,
    configs: SectionLine,
    calls: SectionLine,
    blocks: SectionLine,
    fences: SectionLine,
}

/// What records refer to by index.
#[derive(Debug, Deserialize)]
struct Names {
    devices: Vec<DeviceIdentity>,
    operations: Vec<String>,
}

/// One entry's key and config, in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRecord<'a> {
    /// Its key.
    pub key: KeyRef<'a>,
    /// The config as canonical JSON.
    pub config: &'a str,
    /// Where the rest of the entry begins among the records; not checked yet.
    record: usize,
}

/// One key, in place.
#[derive(Debug, Clone, Copy)]
struct CallEntry<'a> {
    key: KeyRef<'a>,
    config: usize,
    record: usize,
    /// Its size, with the zeros at its end.
    bytes: usize,
}

impl Snapshot {
    /// The magic bytes of every snapshot.
    pub const MAGIC: [u8; 8] = MAGIC;

    /// Opens a snapshot and checks header, names and fences; the rest is checked on access.
    ///
    /// # Errors
    /// If it cannot be read, is not a snapshot, is of another version, or is damaged.
    pub fn open(path: &Path, mapping: Mapping) -> Result<Self, StoreError> {
        let damaged = |what: &str| StoreError::snapshot(path, what);
        let header_of = |bytes: &[u8], file_bytes| {
            SnapshotHeader::read(bytes, file_bytes).map_err(|error| match error {
                HeaderError::Foreign => StoreError::no_snapshot(path),
                HeaderError::Newer(what) => StoreError::newer_snapshot(path, what),
                HeaderError::Damaged(what) => damaged(&what),
            })
        };
        let open_error = || StoreError::io("open the snapshot", path);
        if mapping == Mapping::Never {
            // avoids reading a large file that is not a snapshot into memory
            let most = header_bytes(MAX_SECTIONS);
            let (start, file_bytes) = MappedFile::start(path, most, MAX_FILE_BYTES).map_err(open_error())?;
            header_of(&start, file_bytes)?;
        }
        let bytes = MappedFile::open(path, mapping, MAX_FILE_BYTES).map_err(open_error())?;
        let header = header_of(&bytes, bytes.len() as u64)?;
        let [names, records, configs, calls, blocks, fences] = KNOWN.map(|kind| header.section(kind));
        let text = sealed(part(&bytes, names)).and_then(|text| text.get(..usize::try_from(names.count).ok()?));
        let names: Names = text
            .and_then(|text| serde_json::from_slice(text).ok())
            .ok_or_else(|| damaged("its list of devices and operations is not what was written"))?;
        if sealed(part(&bytes, fences)).is_none() {
            return Err(damaged("its index is not what was written"));
        }
        Ok(Self { path: path.to_owned(), bytes, header, names, records, configs, calls, blocks, fences })
    }

    /// The snapshot that is at the path now; `None` if it is still this one, or was removed.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if the file that this snapshot maps was truncated: then a look-up in it may end the
    /// process. Nothing can prevent that for mapped bytes; replace snapshots by a rename ([`Mapping::WhereLocal`]).
    /// After any other error this snapshot stays valid.
    pub fn refreshed(&self) -> Result<Option<Self>, StoreError> {
        let mapping = if self.is_mapped() { Mapping::WhereLocal } else { Mapping::Never };
        // a pipe must not make the open wait
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        // the mapped header may be gone: copying over a file truncates it first
        let own = self.header.to_bytes();
        let mut start = [0; HEADER_BYTES];
        match File::options().read(true).custom_flags(flags).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // the header holds the digest of everything else
            Ok(file)
                if file.read_exact_at(&mut start, 0).is_ok() && own.starts_with(&start) && self.bytes.is_whole() =>
            {
                return Ok(None);
            }
            _ => {}
        }
        Self::open(&self.path, mapping).map(Some)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content's digest: SHA-256 of header and table, which hold each section's, as the file states it.
    pub fn digest(&self) -> Digest {
        Digest::from_bytes(self.header.digest)
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.records.count
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the file is mapped instead of read into memory.
    pub fn is_mapped(&self) -> bool {
        self.bytes.is_mapped()
    }

    /// The devices of the entries, sorted.
    pub fn devices(&self) -> &[DeviceIdentity] {
        &self.names.devices
    }

    /// A device's index in [`devices`](Self::devices), which [`get`](Self::get) takes.
    pub fn device(&self, identity: &DeviceIdentity) -> Option<u32> {
        self.names.devices.binary_search(identity).ok().map(|place| place as u32)
    }

    /// The config of exactly this key, in place, without an allocation.
    ///
    /// # Errors
    /// If anything on the way is damaged.
    pub fn get(
        &self,
        device: u32,
        op_id: &str,
        call_key: &str,
        direction: Direction,
    ) -> Result<Option<SnapshotRecord<'_>>, StoreError> {
        let device = self.names.devices.get(device as usize);
        let mut found = None;
        self.of_hash(hash_of_call(op_id, call_key), |call_entry| {
            let KeyRef { op_id: op, call_key: call, direction: tuned, device: of } = call_entry.key;
            let is_of = device.is_some_and(|device| std::ptr::eq(device, of));
            let is_wanted = is_of && op == op_id && call == call_key && tuned == direction;
            found = is_wanted.then_some(call_entry);
            !is_wanted
        })?;
        found.map(|call_entry| self.record(call_entry)).transpose()
    }

    /// Every entry of a call, mapped by `vmap` or not, in the keys' order.
    ///
    /// # Errors
    /// If anything on the way is damaged.
    pub fn of_call(&self, op_id: &str, call_key: &str) -> Result<Vec<SnapshotRecord<'_>>, StoreError> {
        let mut found = Vec::new();
        self.of_hash(hash_of_call(op_id, call_key), |call_entry| {
            if call_entry.key.is_of_call(op_id, call_key) {
                found.push(call_entry);
            }
            true
        })?;
        found.into_iter().map(|call_entry| self.record(call_entry)).collect()
    }

    /// Every entry, in the keys' order; after a damaged one nothing more comes.
    ///
    /// # Errors
    /// An item is an error where an entry is damaged.
    pub fn records(&self) -> impl Iterator<Item = Result<SnapshotRecord<'_>, StoreError>> {
        let mut left = self.calls.count;
        let mut at = 0;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let record = self.call_entry(at).and_then(|call_entry| {
                at += call_entry.bytes;
                self.record(call_entry)
            });
            if record.is_err() {
                left = 0;
            }
            Some(record)
        })
    }

    /// The whole entry.
    ///
    /// # Errors
    /// If what follows its config is damaged.
    pub fn entry(&self, record: &SnapshotRecord<'_>) -> Result<Arc<Entry>, StoreError> {
        self.row(record)?.to_entry()
    }

    /// A record as a row for merging and comparing, fully checked.
    pub(in crate::cache) fn row<'a>(&'a self, record: &SnapshotRecord<'a>) -> Result<EntryRow<'a>, StoreError> {
        let (rest, decided, _) =
            self.rest(record.record).ok_or_else(|| self.not_written("the record", self.records, record.record))?;
        Ok(EntryRow::of_text(record.key, EntryText { config: record.config, rest }, decided, &self.path))
    }

    /// Checks every byte: the digests, each block, call, config and record, and that each is referenced where it is.
    ///
    /// # Errors
    /// If anything is damaged.
    pub fn verify(&self) -> Result<(), StoreError> {
        let mut named: Vec<usize> = Vec::new();
        let mut last = None;
        for block in 0..self.blocks.count as u32 {
            let slots = self.block(block)?;
            if slots.clone().next().map(|slot| (slot >> 32) as u32) != self.fence(block) {
                return Err(self.damaged(format!("index block {block} is not where its fence says")));
            }
            for slot in slots {
                let KeyRef { op_id, call_key, .. } = self.call_entry(place_of(slot as u32))?.key;
                if hash_of_call(op_id, call_key) >> 32 != slot >> 32 || last.is_some_and(|last| last >= slot) {
                    return Err(self.damaged(format!("index block {block} is out of order")));
                }
                last = Some(slot);
                named.push(place_of(slot as u32));
            }
        }
        named.sort_unstable();
        let (mut calls, mut configs) = (Vec::new(), Vec::new());
        let (mut at, mut next_record, mut next_config) = (0, 0, 0);
        for _ in 0..self.calls.count {
            let call_entry = self.call_entry(at)?;
            let record = self.record(call_entry)?;
            self.row(&record)?;
            if call_entry.config == next_config {
                configs.push(next_config);
                next_config += (CONFIG_HEAD_BYTES + record.config.len()).next_multiple_of(UNIT_BYTES);
            }
            if call_entry.record != next_record || configs.binary_search(&call_entry.config).is_err() {
                return Err(self.not_written("the call", self.calls, at));
            }
            next_record += self.rest(call_entry.record).map_or(0, |(.., bytes)| bytes);
            calls.push(at);
            at += call_entry.bytes;
        }
        if named != calls || configs.len() as u64 != self.configs.count {
            return Err(self.damaged("its index does not name its calls".to_owned()));
        }
        // each section's digest is in the table, which the file's digest covers, checked when it was opened
        let is_whole =
            |section: &SectionLine| <[u8; 32]>::from(Sha256::digest(part(&self.bytes, *section))) == section.digest;
        if !self.header.sections.iter().all(is_whole) {
            return Err(self.damaged("its bytes do not have the digest that it states".to_owned()));
        }
        Ok(())
    }

    fn damaged(&self, what: String) -> StoreError {
        StoreError::snapshot(&self.path, what)
    }

    /// The error for damage at a place of a section.
    fn not_written(&self, what: &str, section: SectionLine, at: usize) -> StoreError {
        self.damaged(format!("{what} at byte {} is not what was written", section.offset.saturating_add(at as u64)))
    }

    /// The upper half of the first slot of a block.
    fn fence(&self, block: u32) -> Option<u32> {
        let at = self.fences.offset as usize + 4 + block as usize * 4;
        (u64::from(block) < self.fences.count).then(|| u32_at(&self.bytes, at))
    }

    /// The first fence that is not below a hash. Hashes are spread evenly, so that the position of one is nearly known;
    /// from there the steps double until it is between two of them.
    fn first_fence_from(&self, hash: u32) -> u32 {
        let count = self.fences.count as u32;
        let is_below = |at: u32| self.fence(at).is_some_and(|fence| fence < hash);
        let guess = ((u64::from(hash) * u64::from(count)) >> 32) as u32;
        let mut step: u32 = 1;
        // everything before `low` is below the hash, nothing from `high` on is
        let (mut low, mut high);
        if is_below(guess) {
            low = guess + 1;
            while low < count && is_below(low.saturating_add(step).min(count - 1)) {
                low = low.saturating_add(step).min(count - 1) + 1;
                step = step.saturating_mul(2);
            }
            high = low.saturating_add(step).min(count);
        } else {
            high = count.min(guess);
            while high > 0 && !is_below(high.saturating_sub(step)) {
                high = high.saturating_sub(step);
                step = step.saturating_mul(2);
            }
            low = high.saturating_sub(step);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if is_below(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Passes each key whose call may have a hash to a closure while that asks for more.
    fn of_hash<'a>(&'a self, hash: u64, mut each: impl FnMut(CallEntry<'a>) -> bool) -> Result<(), StoreError> {
        let wanted = (hash >> 32) as u32;
        // the first block whose last slot may have the hash: the one before the first fence that is not below it
        let low = self.first_fence_from(wanted);
        for block in low.saturating_sub(1)..self.fences.count as u32 {
            if self.fence(block).is_some_and(|fence| fence > wanted) {
                break;
            }
            for slot in self.block(block)? {
                let upper = (slot >> 32) as u32;
                if upper > wanted || (upper == wanted && !each(self.call_entry(place_of(slot as u32))?)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The slots of a block, its checksum checked.
    fn block(&self, block: u32) -> Result<impl Iterator<Item = u64> + Clone, StoreError> {
        let at = self.blocks.offset as usize + block as usize * BLOCK_BYTES;
        let bytes = self.bytes.get(at..at + BLOCK_BYTES).and_then(sealed);
        let count = bytes.map_or(0, |bytes| u32_at(bytes, 0) as usize);
        match bytes.and_then(|bytes| bytes.get(4..)) {
            Some(slots) if (1..=BLOCK_SLOTS).contains(&count) => {
                Ok(slots.chunks_exact(8).take(count).map(|slot| u64_at(slot, 0)))
            }
            _ => Err(self.damaged(format!("index block {block} at byte {at} is not what was written"))),
        }
    }

    /// The key at a place in the calls section.
    fn call_entry(&self, at: usize) -> Result<CallEntry<'_>, StoreError> {
        self.parse_call(at).ok_or_else(|| self.not_written("the call", self.calls, at))
    }

    fn parse_call(&self, at: usize) -> Option<CallEntry<'_>> {
        let bytes = part(&self.bytes, self.calls).get(at..)?;
        let head = bytes.first_chunk::<CALL_HEAD_BYTES>()?;
        let end = CALL_HEAD_BYTES + u32_at(head, 4) as usize;
        let bytes = bytes.get(..end)?;
        sealed(bytes)?;
        let call_key = std::str::from_utf8(bytes.get(CALL_HEAD_BYTES..)?).ok()?;
        let (device, direction) = untag(u32_at(head, 20));
        let op_id = self.names.operations.get(u32_at(head, 16) as usize)?;
        Some(CallEntry {
            key: KeyRef { op_id, call_key, direction, device: self.names.devices.get(device)? },
            config: place_of(u32_at(head, 8)),
            record: place_of(u32_at(head, 12)),
            bytes: end.next_multiple_of(UNIT_BYTES),
        })
    }

    /// A key with its config.
    fn record<'a>(&'a self, call_entry: CallEntry<'a>) -> Result<SnapshotRecord<'a>, StoreError> {
        let CallEntry { key, config: at, record, .. } = call_entry;
        let bytes = part(&self.bytes, self.configs).get(at..);
        let (_, config, _) = bytes
            .and_then(sealed_text::<CONFIG_HEAD_BYTES>)
            .ok_or_else(|| self.not_written("the config", self.configs, at))?;
        Ok(SnapshotRecord { key, config, record })
    }

    /// What follows the config of an entry, when it was decided, and how many bytes both take.
    fn rest(&self, at: usize) -> Option<(&str, u64, usize)> {
        let bytes = part(&self.bytes, self.records).get(at..)?;
        let (head, rest, bytes) = sealed_text::<RECORD_HEAD_BYTES>(bytes)?;
        Some((rest, u64_at(head, 8), bytes))
    }
}

/// A head that begins with a checksum and the length of the text behind it, that text, and how many bytes both take
/// with the zeros at their end.
fn sealed_text<const HEAD: usize>(bytes: &[u8]) -> Option<(&[u8; HEAD], &str, usize)> {
    let head = bytes.first_chunk::<HEAD>()?;
    let end = HEAD + u32_at(head, 4) as usize;
    let bytes = bytes.get(..end)?;
    sealed(bytes)?;
    Some((head, std::str::from_utf8(bytes.get(HEAD..)?).ok()?, end.next_multiple_of(UNIT_BYTES)))
}

/// The bytes of a section, which is in the file.
fn part(bytes: &[u8], section: SectionLine) -> &[u8] {
    bytes.get(section.offset as usize..(section.offset + section.length) as usize).unwrap_or_default()
}
