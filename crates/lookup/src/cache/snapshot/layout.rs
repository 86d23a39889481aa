//! The fixed parts of a snapshot: header, table of sections, the position of each number, and its bounds.

use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_64;

use crate::call::Direction;

pub(super) const MAGIC: [u8; 8] = *b"\x89ATLSNP\n";
/// The one version that is written and read.
pub(super) const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
/// Sections begin and end at multiples of this.
pub(super) const ALIGNMENT: u64 = 64;
/// Maximum number of sections of a file.
pub(super) const MAX_SECTIONS: usize = 64;
pub(super) const BLOCK_BYTES: usize = 64;
pub(super) const BLOCK_SLOTS: usize = (BLOCK_BYTES - 8) / 8;
/// Sizes of the headers of a call, a config and a record.
pub(super) const CALL_HEAD_BYTES: usize = 24;
pub(super) const CONFIG_HEAD_BYTES: usize = 8;
pub(super) const RECORD_HEAD_BYTES: usize = 16;
/// All three begin at multiples of this, so that four bytes give the position.
pub(super) const UNIT_BYTES: usize = 8;
/// Maximum size of a file; if it cannot be mapped it is read into memory.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 34;
/// Maximum size of a record; a tuner's have some hundred bytes.
pub(super) const MAX_RECORD_BYTES: u64 = 1 << 26;
/// Maximum size of the list of devices and operations, as JSON.
pub(super) const MAX_NAMES_BYTES: u64 = 1 << 26;

/// The kind of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SectionKind {
    /// Devices and operations.
    Names = 1,
    /// What follows the config in each entry.
    Records = 2,
    /// The configs, each once.
    Configs = 3,
    /// The keys.
    Calls = 4,
    /// The index.
    Blocks = 5,
    /// The fences: the beginning of each block of the index.
    Fences = 6,
}

/// Every known kind, in the order of the file.
pub(super) const KNOWN: [SectionKind; 6] = [
    SectionKind::Names,
    SectionKind::Records,
    SectionKind::Configs,
    SectionKind::Calls,
    SectionKind::Blocks,
    SectionKind::Fences,
];
/// The flag of a section that readers must not skip.
const REQUIRED: u32 = 1;

/// One line of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SectionLine {
    kind: u32,
    flags: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Number of items in it.
    pub(super) count: u64,
    /// SHA-256 of its bytes.
    pub(super) digest: [u8; 32],
}

impl SectionLine {
    /// A section that readers must know.
    pub(super) fn required(kind: SectionKind, offset: u64, length: u64, count: u64, digest: [u8; 32]) -> Self {
        Self { kind: kind as u32, flags: REQUIRED, offset, length, count, digest }
    }

    fn to_bytes(self) -> [u8; SECTION_BYTES] {
        let mut bytes = [0; SECTION_BYTES];
        bytes[0..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.count.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.digest);
        bytes
    }

    fn read(bytes: &[u8]) -> Self {
        Self {
            kind: u32_at(bytes, 0),
            flags: u32_at(bytes, 4),
            offset: u64_at(bytes, 8),
            length: u64_at(bytes, 16),
            count: u64_at(bytes, 24),
            digest: bytes.last_chunk().copied().unwrap_or_default(),
        }
    }

    fn is(&self, kind: SectionKind) -> bool {
        self.kind == kind as u32
    }
}

/// Header and table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SnapshotHeader {
    file_length: u64,
    pub(super) sections: Vec<SectionLine>,
    /// The content's digest: SHA-256 of header and table, with checksum and digest as zero; the table has each
    /// section's own.
    pub(super) digest: [u8; 32],
}

/// Total size of header and table.
pub(super) const fn header_bytes(sections: usize) -> usize {
    HEADER_BYTES + sections * SECTION_BYTES
}

impl SnapshotHeader {
    /// The header of these sections.
    pub(super) fn new(file_length: u64, sections: Vec<SectionLine>) -> Self {
        let mut header = Self { file_length, sections, digest: [0; 32] };
        header.digest = Sha256::digest(header.unsealed()).into();
        header
    }

    /// The bytes of header and table with the checksum as zero.
    fn unsealed(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(header_bytes(self.sections.len()));
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.file_length.to_le_bytes());
        bytes.extend((self.sections.len() as u64).to_le_bytes());
        bytes.extend(self.digest);
        bytes.extend(self.sections.iter().flat_map(|section| section.to_bytes()));
        bytes
    }

    /// The bytes of header and table.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.unsealed();
        let checksum = checksum(&bytes);
        if let Some(place) = bytes.get_mut(12..16) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
        bytes
    }

    /// The section of a kind; a header that was read has exactly one of each.
    pub(super) fn section(&self, kind: SectionKind) -> SectionLine {
        self.sections.iter().find(|section| section.is(kind)).copied().unwrap_or_default()
    }

    /// Parses the header of a file with this beginning and size, or says what is wrong with it.
    pub(super) fn read(start: &[u8], file_bytes: u64) -> Result<Self, HeaderError> {
        let wrong = |what: &str| HeaderError::Damaged(what.to_owned());
        if start.first_chunk() != Some(&MAGIC) {
            return Err(HeaderError::Foreign);
        }
        match u32_at(start, 8) {
            _ if start.len() < HEADER_BYTES => return Err(wrong("it ends inside its header")),
            VERSION => {}
            0 => return Err(wrong("its version was never written")),
            version => return Err(HeaderError::Newer(format!("version {version}"))),
        }
        let count = usize::try_from(u64_at(start, 24)).unwrap_or(usize::MAX);
        if count > MAX_SECTIONS {
            return Err(wrong("its table of sections is too long"));
        }
        let Some(head) = start.get(..header_bytes(count)) else { return Err(wrong("it ends inside its header")) };
        let table = head.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(SECTION_BYTES).map(SectionLine::read);
        let header = Self::new(u64_at(head, 16), table.collect());
        // encodes it again: this checks checksum, digest and the bytes that must be zero
        if header.to_bytes() != *head {
            return Err(wrong("its header is not what was written"));
        }
        if header.file_length != file_bytes {
            let written = header.file_length;
            return Err(HeaderError::Damaged(format!("it has {file_bytes} bytes, {written} were written")));
        }
        header.check_sections(head.len() as u64)?;
        Ok(header)
    }

    /// Whether the sections follow the header and each other to the file's end, and are as long as their counts say.
    fn check_sections(&self, mut end: u64) -> Result<(), HeaderError> {
        let wrong = |what: &str| HeaderError::Damaged(what.to_owned());
        for section in &self.sections {
            if section.flags & !REQUIRED != 0 {
                return Err(HeaderError::Newer(format!("a section with the flags {:#x}", section.flags)));
            }
            let is_known = KNOWN.iter().any(|kind| section.is(*kind));
            if !is_known && section.flags == REQUIRED {
                return Err(HeaderError::Newer(format!("a section of kind {}", section.kind)));
            }
            if section.offset != end || section.length % ALIGNMENT != 0 {
                return Err(wrong("its sections do not follow each other"));
            }
            end = end.checked_add(section.length).ok_or_else(|| wrong("its sections are not inside it"))?;
        }
        let has_each_once =
            KNOWN.iter().all(|kind| self.sections.iter().filter(|section| section.is(*kind)).count() == 1);
        let [names, records, configs, calls, blocks, fences] = KNOWN.map(|kind| self.section(kind));
        let whole = end == self.file_length
            && has_each_once
            && names.count <= MAX_NAMES_BYTES
            && fits(names, 1)
            && fits(fences, 4)
            && fences.count == blocks.count
            && blocks.count.checked_mul(BLOCK_BYTES as u64) == Some(blocks.length)
            && records.count == calls.count
            && configs.count <= calls.count
            && calls.count.div_ceil(BLOCK_SLOTS as u64) == blocks.count
            && u32::try_from(blocks.count).is_ok();
        if whole { Ok(()) } else { Err(wrong("its sections are not inside it")) }
    }
}

/// Whether a number of items of a size fit in a section after its checksum.
fn fits(section: SectionLine, size: u64) -> bool {
    let bytes = section.count.checked_mul(size).and_then(|bytes| bytes.checked_add(4));
    bytes.is_some_and(|bytes| bytes <= section.length)
}

/// Why a file is not a snapshot of this version.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// It is something else.
    Foreign,
    /// It was written by a later program, whose feature this is.
    Newer(String),
    /// It is damaged.
    Damaged(String),
}

/// The checksum of everything that is checked on access: the lower half of XXH3-64, which costs a look-up less than a
/// CRC.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    XxHash3_64::oneshot(bytes) as u32
}

/// The bytes after a checksum, if it is right.
pub(super) fn sealed(bytes: &[u8]) -> Option<&[u8]> {
    let (sum, rest) = bytes.split_first_chunk()?;
    (checksum(rest) == u32::from_le_bytes(*sum)).then_some(rest)
}

/// Writes the checksum of the rest into the first four bytes.
pub(super) fn seal(bytes: &mut [u8]) {
    if let Some((sum, rest)) = bytes.split_first_chunk_mut() {
        *sum = checksum(rest).to_le_bytes();
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The byte offset in a section of a place.
pub(super) fn place_of(units: u32) -> usize {
    units as usize * UNIT_BYTES
}

/// A call's tag.
pub(super) fn tag(device: u32, direction: Direction) -> u32 {
    device << 1 | u32::from(direction == Direction::ForwardVjp)
}

/// The device and direction of a tag.
pub(super) fn untag(tag: u32) -> (usize, Direction) {
    let direction = if tag & 1 == 1 { Direction::ForwardVjp } else { Direction::Forward };
    ((tag >> 1) as usize, direction)
}
