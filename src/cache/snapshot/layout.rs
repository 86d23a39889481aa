//! The fixed parts of a snapshot: where each number stands, and its bounds.

use crate::call::Direction;

pub(super) const MAGIC: [u8; 8] = *b"\x89ATLSNP\n";
/// What is written, and the newest version that is read.
pub(super) const VERSION: u32 = 3;
/// The first version; its entries supersede none.
pub(super) const FIRST_VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 128;
/// The header's part that its digest covers.
pub(super) const DIGESTED_BYTES: usize = 96;
pub(super) const BLOCK_BYTES: usize = 512;
pub(super) const SLOT_BYTES: usize = 24;
pub(super) const BLOCK_SLOTS: usize = (BLOCK_BYTES - 8) / SLOT_BYTES;
/// What comes before a record's texts; since version 3 the CRC of its origin too.
pub(super) const RECORD_HEAD_BYTES: usize = 28;
pub(super) const OLD_RECORD_HEAD_BYTES: usize = 24;
/// A flag of the header: some entry supersedes other decisions.
const SUPERSEDES: u64 = 1;
/// Longest file; where it cannot be mapped it is read into memory.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 34;
/// Longest record; what a tuner writes has some hundred bytes.
pub(super) const MAX_RECORD_BYTES: u64 = 1 << 26;
/// Longest list of devices, as JSON.
pub(super) const MAX_DEVICES_BYTES: u64 = 1 << 26;

/// The header's numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) file_length: u64,
    pub(super) entries: u64,
    pub(super) devices: (u64, u32, u32),
    pub(super) fences: (u64, u32, u32),
    pub(super) blocks: u64,
    pub(super) records: (u64, u64),
    pub(super) supersedes: bool,
    pub(super) digest: [u8; 32],
}

impl Header {
    /// The header's bytes with the CRC as zero.
    fn unsealed(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, part: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        };
        put(0, &MAGIC);
        put(8, &self.version.to_le_bytes());
        put(16, &self.file_length.to_le_bytes());
        put(24, &self.entries.to_le_bytes());
        for (at, (offset, count, crc)) in [(32, self.devices), (48, self.fences)] {
            put(at, &offset.to_le_bytes());
            put(at + 8, &count.to_le_bytes());
            put(at + 12, &crc.to_le_bytes());
        }
        put(64, &self.blocks.to_le_bytes());
        put(72, &self.records.0.to_le_bytes());
        put(80, &self.records.1.to_le_bytes());
        // version 2 says it by its number
        let flags = if self.supersedes && self.version >= VERSION { SUPERSEDES } else { 0 };
        put(88, &flags.to_le_bytes());
        put(DIGESTED_BYTES, &self.digest);
        bytes
    }

    /// The part that the digest covers.
    pub(super) fn digested(&self) -> [u8; DIGESTED_BYTES] {
        let mut part = [0; DIGESTED_BYTES];
        part.copy_from_slice(self.unsealed().split_at(DIGESTED_BYTES).0);
        part
    }

    /// Length of what comes before a record's texts.
    pub(super) fn record_head_bytes(&self) -> usize {
        if self.version >= VERSION { RECORD_HEAD_BYTES } else { OLD_RECORD_HEAD_BYTES }
    }

    /// The header's bytes.
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = self.unsealed();
        let crc = crc32fast::hash(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header of a file that is this long, or what is wrong with it.
    pub(super) fn read(bytes: &[u8], file_bytes: u64) -> Result<Self, HeaderError> {
        let wrong = |what: &str| HeaderError::Damaged(what.to_owned());
        if bytes.first_chunk() != Some(&MAGIC) {
            return Err(HeaderError::Foreign);
        }
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(wrong("it ends inside its header"));
        };
        let version = u32_at(head, 8);
        if version > VERSION {
            return Err(HeaderError::Newer(version));
        }
        if version < FIRST_VERSION {
            return Err(wrong("its version is none that was written"));
        }
        let header = Self {
            version,
            file_length: u64_at(head, 16),
            entries: u64_at(head, 24),
            devices: (u64_at(head, 32), u32_at(head, 40), u32_at(head, 44)),
            fences: (u64_at(head, 48), u32_at(head, 56), u32_at(head, 60)),
            blocks: u64_at(head, 64),
            records: (u64_at(head, 72), u64_at(head, 80)),
            supersedes: version == 2 || u64_at(head, 88) == SUPERSEDES,
            digest: head.last_chunk().copied().unwrap_or_default(),
        };
        // the same bytes again: checks the checksum and that what is to be zero is
        if header.to_bytes() != *head {
            return Err(wrong("its header is not what was written"));
        }
        if header.file_length != file_bytes {
            let written = header.file_length;
            return Err(HeaderError::Damaged(format!("it has {file_bytes} bytes, {written} were written")));
        }
        let blocks = u64::from(header.fences.1);
        let fits = |offset: u64, length: u64| {
            offset >= HEADER_BYTES as u64 && offset.checked_add(length).is_some_and(|end| end <= header.file_length)
        };
        let whole = header.entries.div_ceil(BLOCK_SLOTS as u64) == blocks
            && u64::from(header.devices.1) <= MAX_DEVICES_BYTES
            && fits(header.devices.0, u64::from(header.devices.1))
            && fits(header.fences.0, blocks * 8)
            && fits(header.blocks, blocks * BLOCK_BYTES as u64)
            && fits(header.records.0, header.records.1);
        if whole { Ok(header) } else { Err(wrong("its parts do not lie inside it")) }
    }
}

/// Why a file is no snapshot of this version.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// It is something else.
    Foreign,
    /// It was written by a later program.
    Newer(u32),
    /// It is not what was written.
    Damaged(String),
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A record's tag.
pub(super) fn tag(device: u32, direction: Direction) -> u32 {
    device << 1 | u32::from(direction == Direction::ForwardVjp)
}

/// The device and direction of a tag.
pub(super) fn untag(tag: u32) -> (usize, Direction) {
    let direction = if tag & 1 == 1 { Direction::ForwardVjp } else { Direction::Forward };
    ((tag >> 1) as usize, direction)
}
