//! Reads a snapshot in place.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::layout::{
    BLOCK_BYTES, BLOCK_SLOTS, HEADER_BYTES, Header, HeaderError, MAGIC, MAX_FILE_BYTES, SLOT_BYTES, VERSION, tag,
    u32_at, u64_at, untag,
};
use crate::batch::is_same_call;
use crate::cache::key::hash_of_call;
use crate::cache::{CacheKey, Entry, Peer, Provenance, StoreError, Superseded};
use crate::call::Direction;
use crate::config::Config;
use crate::device::DeviceIdentity;
use crate::digest::Digest;
use crate::mapped_file::{MappedFile, Mapping};

/// An open snapshot. It never changes; a newer one is seen by opening the path again.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    bytes: MappedFile,
    header: Header,
    devices: Vec<DeviceIdentity>,
}

/// One record, where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRecord<'a> {
    /// Operation.
    pub op_id: &'a str,
    /// Call key.
    pub call_key: &'a str,
    /// The device that it was tuned on.
    pub device: &'a DeviceIdentity,
    /// What was tuned.
    pub direction: Direction,
    /// The config as canonical JSON.
    pub config: &'a str,
    offset: u64,
    origin: &'a [u8],
    /// Where nobody checked the origin yet.
    origin_crc: Option<u32>,
}

#[derive(Clone, Copy)]
struct Slot {
    hash: u64,
    offset: u64,
    length: u32,
    tag: u32,
}

impl Snapshot {
    /// What every snapshot begins with.
    pub const MAGIC: [u8; 8] = MAGIC;

    /// Opens a snapshot and checks all but its blocks and records, which are checked when they are touched.
    ///
    /// # Errors
    /// Where it cannot be read, is no snapshot, is of a later version, or is damaged.
    pub fn open(path: &Path, mapping: Mapping) -> Result<Self, StoreError> {
        let damaged = |what: &str| StoreError::Snapshot { path: path.to_owned(), what: what.to_owned() };
        let header_of = |bytes: &[u8], file_bytes| {
            Header::read(bytes, file_bytes).map_err(|error| match error {
                HeaderError::Foreign => damaged("it is no snapshot"),
                HeaderError::Newer(version) => StoreError::NewerSnapshot { path: path.to_owned(), version },
                HeaderError::Damaged(what) => damaged(&what),
            })
        };
        let open_error = || StoreError::io("open the snapshot", path);
        if mapping == Mapping::Never {
            // a large file that is no snapshot is not read into memory for that
            let (start, file_bytes) = MappedFile::start(path, HEADER_BYTES, MAX_FILE_BYTES).map_err(open_error())?;
            header_of(&start, file_bytes)?;
        }
        let bytes = MappedFile::open(path, mapping, MAX_FILE_BYTES).map_err(open_error())?;
        let header = header_of(&bytes, bytes.len() as u64)?;
        let (offset, length, crc) = header.devices;
        let text = part(&bytes, offset, u64::from(length)).filter(|text| crc32fast::hash(text) == crc);
        let devices: Vec<DeviceIdentity> = text
            .and_then(|text| serde_json::from_slice(text).ok())
            .ok_or_else(|| damaged("its list of devices is not what was written"))?;
        let (offset, count, crc) = header.fences;
        if part(&bytes, offset, u64::from(count) * 8).is_none_or(|fences| crc32fast::hash(fences) != crc) {
            return Err(damaged("its index is not what was written"));
        }
        Ok(Self { path: path.to_owned(), bytes, header, devices })
    }

    /// The snapshot that stands at the path now; `None` where it is this one still, or where it was taken away.
    ///
    /// # Errors
    /// As [`open`](Self::open), and where the file that this snapshot maps was cut: by then a look-up in it may end the
    /// process. Nothing can make mapped bytes stay; replace snapshots by a rename ([`Mapping::WhereLocal`]). Otherwise this
    /// snapshot stays what it is.
    pub fn refreshed(&self) -> Result<Option<Self>, StoreError> {
        let mapping = if self.is_mapped() { Mapping::WhereLocal } else { Mapping::Never };
        // a pipe must not make the open wait
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        // the mapped header may be gone: a file that was copied over is cut first
        let own_start = self.header.to_bytes();
        let mut start = [0; HEADER_BYTES];
        match File::options().read(true).custom_flags(flags).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // the header holds the digest of everything else
            Ok(file) if file.read_exact_at(&mut start, 0).is_ok() && start == own_start && self.bytes.is_whole() => {
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

    /// What names the content: SHA-256 of the file but for its own place, as the file states it.
    pub fn digest(&self) -> Digest {
        Digest::from_bytes(self.header.digest)
    }

    /// Whether an entry may supersede other decisions.
    pub(in crate::cache) fn supersedes(&self) -> bool {
        self.header.supersedes
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.header.entries
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the file is mapped, and not read into memory.
    pub fn is_mapped(&self) -> bool {
        self.bytes.is_mapped()
    }

    /// The devices that entries are for, sorted.
    pub fn devices(&self) -> &[DeviceIdentity] {
        &self.devices
    }

    /// A device's place in [`devices`](Self::devices), which [`get`](Self::get) takes.
    pub fn device(&self, identity: &DeviceIdentity) -> Option<u32> {
        self.devices.binary_search(identity).ok().map(|place| place as u32)
    }

    /// The entry of exactly this key.
    ///
    /// # Errors
    /// Where a block or record on the way is damaged.
    pub fn get(
        &self,
        device: u32,
        op_id: &str,
        call_key: &str,
        direction: Direction,
    ) -> Result<Option<SnapshotRecord<'_>>, StoreError> {
        let wanted = tag(device, direction);
        let mut found = None;
        self.of_hash(hash_of_call(op_id, call_key), |slot| {
            if slot.tag == wanted {
                let record = self.record(slot)?;
                if record.op_id == op_id && record.call_key == call_key {
                    found = Some(record);
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// Every entry of a call, mapped by `vmap` or not, by device and direction.
    ///
    /// # Errors
    /// Where a block or record on the way is damaged.
    pub fn of_call(&self, op_id: &str, call_key: &str) -> Result<Vec<SnapshotRecord<'_>>, StoreError> {
        let mut found = Vec::new();
        self.of_hash(hash_of_call(op_id, call_key), |slot| {
            let record = self.record(slot)?;
            if record.op_id == op_id && is_same_call(record.call_key, call_key) {
                found.push(record);
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// Every entry, in the keys' order; after a damaged record nothing more comes.
    pub fn records(&self) -> impl Iterator<Item = Result<SnapshotRecord<'_>, StoreError>> {
        let (start, length) = self.header.records;
        let mut offset = start;
        let mut failed = false;
        std::iter::from_fn(move || {
            if failed || offset >= start + length {
                return None;
            }
            let record = self.record_length(offset).and_then(|length| {
                let record = self.record_at(offset, length, None)?;
                offset += u64::from(length);
                Ok(record)
            });
            failed = record.is_err();
            Some(record)
        })
    }

    /// Checks every byte: the digest, each block and each record, and that the index names exactly the records.
    ///
    /// # Errors
    /// Where something is not what was written.
    pub fn verify(&self) -> Result<(), StoreError> {
        let mut hasher = Sha256::new();
        hasher.update(self.bytes.get(HEADER_BYTES..).unwrap_or_default());
        hasher.update(self.header.digested());
        let mut named: Vec<(u64, u32)> = Vec::new();
        let mut last = None;
        for block in 0..self.header.fences.1 {
            let slots = self.block(block)?;
            if slots.clone().next().map(|slot| slot.hash) != self.fence(block) {
                return Err(self.damaged(format!("index block {block} is not where its fence says")));
            }
            for slot in slots {
                let record = self.record(slot)?;
                let place = (slot.hash, slot.tag);
                if hash_of_call(record.op_id, record.call_key) != slot.hash || last.is_some_and(|last| last > place) {
                    return Err(self.damaged(format!("index block {block} is out of order")));
                }
                last = Some(place);
                named.push((slot.offset, slot.length));
            }
        }
        named.sort_unstable();
        let mut records = Vec::new();
        let mut offset = self.header.records.0;
        for record in self.records() {
            self.origin(&record?)?;
            let length = self.record_length(offset)?;
            records.push((offset, length));
            offset += u64::from(length);
        }
        if named != records || records.len() as u64 != self.header.entries {
            return Err(self.damaged("its index does not name its records".to_owned()));
        }
        if <[u8; 32]>::from(hasher.finalize()) != self.header.digest {
            return Err(self.damaged("its bytes do not have the digest that it states".to_owned()));
        }
        Ok(())
    }

    fn damaged(&self, what: String) -> StoreError {
        StoreError::Snapshot { path: self.path.clone(), what }
    }

    fn fence(&self, block: u32) -> Option<u64> {
        let at = self.header.fences.0 + u64::from(block) * 8;
        (block < self.header.fences.1).then(|| u64_at(&self.bytes, at as usize))
    }

    /// The first fence that is not below a hash. Hashes are spread evenly, so that the place of one is nearly known; from there the
    /// steps double until it lies between two of them, wherever it is.
    fn first_fence_from(&self, hash: u64) -> u32 {
        let count = self.header.fences.1;
        let is_below = |at: u32| self.fence(at).is_some_and(|fence| fence < hash);
        let guess = ((u128::from(hash) * u128::from(count)) >> 64) as u32;
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

    /// Gives each slot of a hash to a closure until that says to stop.
    fn of_hash(&self, hash: u64, mut each: impl FnMut(Slot) -> Result<bool, StoreError>) -> Result<(), StoreError> {
        // the first block whose last slot may have the hash: the one before the first fence that is not below it
        let low = self.first_fence_from(hash);
        for block in low.saturating_sub(1)..self.header.fences.1 {
            if self.fence(block).is_some_and(|fence| fence > hash) {
                break;
            }
            for slot in self.block(block)? {
                if slot.hash > hash || (slot.hash == hash && !each(slot)?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The slots of a block, its checksum checked.
    fn block(&self, block: u32) -> Result<impl Iterator<Item = Slot> + Clone, StoreError> {
        let offset = self.header.blocks + u64::from(block) * BLOCK_BYTES as u64;
        let bytes = part(&self.bytes, offset, BLOCK_BYTES as u64).and_then(sealed);
        let count = bytes.map_or(0, |bytes| u32_at(bytes, 0) as usize);
        match bytes.and_then(|bytes| bytes.get(4..)) {
            Some(slots) if (1..=BLOCK_SLOTS).contains(&count) => {
                Ok(slots.chunks_exact(SLOT_BYTES).take(count).map(|slot| Slot {
                    hash: u64_at(slot, 0),
                    offset: u64_at(slot, 8),
                    length: u32_at(slot, 16),
                    tag: u32_at(slot, 20),
                }))
            }
            _ => Err(self.damaged(format!("index block {block} at byte {offset} is not what was written"))),
        }
    }

    fn record(&self, slot: Slot) -> Result<SnapshotRecord<'_>, StoreError> {
        self.record_at(slot.offset, slot.length, Some(slot.tag))
    }

    fn record_length(&self, offset: u64) -> Result<u32, StoreError> {
        let head_bytes = self.header.record_head_bytes() as u64;
        let length = part(&self.bytes, offset, head_bytes).map(|head| {
            let parts: u64 = [4, 8, 12, 16].map(|at| u64::from(u32_at(head, at))).iter().sum();
            head_bytes + parts
        });
        length.and_then(|length| u32::try_from(length).ok()).ok_or_else(|| self.not_written(offset))
    }

    /// A record's origin, checked.
    pub(in crate::cache) fn origin<'a>(&self, record: &SnapshotRecord<'a>) -> Result<&'a str, StoreError> {
        record.origin().ok_or_else(|| self.not_written(record.offset))
    }

    fn not_written(&self, offset: u64) -> StoreError {
        self.damaged(format!("the record at byte {offset} is not what was written"))
    }

    fn record_at(&self, offset: u64, length: u32, tag: Option<u32>) -> Result<SnapshotRecord<'_>, StoreError> {
        self.parse(offset, length, tag).ok_or_else(|| self.not_written(offset))
    }

    fn parse(&self, offset: u64, length: u32, expected: Option<u32>) -> Option<SnapshotRecord<'_>> {
        let (start, all) = self.header.records;
        let end = offset.checked_add(u64::from(length))?;
        if offset < start || end > start + all {
            return None;
        }
        let bytes = part(&self.bytes, offset, u64::from(length))?;
        let has_own_crc = self.header.version >= VERSION;
        let (record, origin) = bytes.split_at_checked(bytes.len().checked_sub(u32_at(bytes, 16) as usize)?)?;
        let mut rest = sealed(if has_own_crc { record } else { bytes })?;
        let mut number = || {
            let (bytes, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u32::from_le_bytes(*bytes))
        };
        let lengths = [number()?, number()?, number()?, number()?];
        let tag = number()?;
        let origin_crc = if has_own_crc { Some(number()?) } else { None };
        let mut text = |length: u32| {
            let (text, after) = rest.split_at_checked(length as usize)?;
            rest = after;
            std::str::from_utf8(text).ok()
        };
        let [op_id, call_key, config] = [text(lengths[0])?, text(lengths[1])?, text(lengths[2])?];
        let left = if has_own_crc { 0 } else { origin.len() };
        let (device, direction) = untag(tag);
        let device = self.devices.get(device)?;
        let whole = rest.len() == left && expected.is_none_or(|expected| expected == tag);
        whole.then_some(SnapshotRecord { op_id, call_key, device, direction, config, offset, origin, origin_crc })
    }
}

impl<'a> SnapshotRecord<'a> {
    /// Its key.
    pub fn to_key(&self) -> CacheKey {
        CacheKey {
            op_id: self.op_id.to_owned(),
            call_key: self.call_key.to_owned(),
            direction: self.direction,
            device: self.device.clone(),
        }
    }

    /// Its provenance and what another tool's file said of it, as the members of a JSON object; empty where there is
    /// neither, `None` where it is not what was written.
    pub fn origin(&self) -> Option<&'a str> {
        let is_whole = self.origin_crc.is_none_or(|crc| crc32fast::hash(self.origin) == crc);
        std::str::from_utf8(self.origin).ok().filter(|_| is_whole)
    }

    /// Config and origin, parsed; `None` where they are not what a tuner writes.
    pub fn to_entry(&self) -> Option<Entry> {
        entry_of(self.config, self.origin()?)
    }
}

/// The entry of a record's texts.
pub(in crate::cache) fn entry_of(config: &str, origin: &str) -> Option<Entry> {
    let config: Config = serde_json::from_str(config).ok()?;
    let origin: Origin = if origin.is_empty() { Origin::default() } else { serde_json::from_str(origin).ok()? };
    let Origin { provenance, peer, superseded } = origin;
    Some(Entry { config, provenance, peer, superseded })
}

// another member is another format's: what it says must not be lost without a word
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Origin {
    provenance: Option<Provenance>,
    peer: Option<Peer>,
    #[serde(default)]
    superseded: Vec<Superseded>,
}

/// Bytes of a file, if it has them.
fn part(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

/// What follows a CRC, if it is right.
fn sealed(bytes: &[u8]) -> Option<&[u8]> {
    let (crc, rest) = bytes.split_first_chunk()?;
    (crc32fast::hash(rest) == u32::from_le_bytes(*crc)).then_some(rest)
}
