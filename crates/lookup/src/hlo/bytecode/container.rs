//! The container: header, sections, strings, names of dialects and operations, and the table of attributes and types.

use crate::hlo::error::ScanErrorKind;

const MAX_VERSION: u64 = 6;

/// Versions that added something to the layout.
pub(super) mod version {
    pub(crate) const DIALECT_VERSIONS: u64 = 1;
    pub(crate) const LAZY_REGIONS: u64 = 2;
    pub(crate) const USE_ORDERS: u64 = 3;
    pub(crate) const ELIDED_LOCATIONS: u64 = 4;
    pub(crate) const PROPERTIES: u64 = 5;
}

pub(super) mod section {
    pub(crate) const STRING: usize = 0;
    pub(crate) const DIALECT: usize = 1;
    pub(crate) const ATTR_TYPE: usize = 2;
    pub(crate) const ATTR_TYPE_OFFSET: usize = 3;
    pub(crate) const IR: usize = 4;
    pub(crate) const PROPERTIES: usize = 8;
    pub(crate) const COUNT: usize = 9;
}

/// Deepest nesting of regions and of attributes that is read.
pub(super) const MAX_DEPTH: usize = 128;

/// Bits of an operation's mask.
pub(super) mod has {
    pub(crate) const ATTRIBUTES: u8 = 0x01;
    pub(crate) const RESULTS: u8 = 0x02;
    pub(crate) const OPERANDS: u8 = 0x04;
    pub(crate) const SUCCESSORS: u8 = 0x08;
    pub(crate) const REGIONS: u8 = 0x10;
    pub(crate) const USE_ORDERS: u8 = 0x20;
    pub(crate) const PROPERTIES: u8 = 0x40;
}

pub(super) type Result<T> = std::result::Result<T, ScanErrorKind>;

pub(super) fn unsupported(what: impl Into<String>) -> ScanErrorKind {
    ScanErrorKind::Unsupported { what: what.into() }
}

/// Reads one section; `base` is where it is in the file, for errors and alignment.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) base: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn cut(&self, what: &str) -> ScanErrorKind {
        ScanErrorKind::Truncated { what: what.to_owned(), offset: (self.base + self.at) as u64 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let taken =
            end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| self.cut("length beyond the section"))?;
        self.at += taken.len();
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    /// A prefix varint: the zero bits below the lowest one bit of the first byte count the bytes that follow.
    pub(super) fn varint(&mut self) -> Result<u64> {
        let first = self.byte()?;
        let more = first.trailing_zeros();
        let mut word = [0; 8];
        if more >= 8 {
            word.copy_from_slice(self.take(8)?);
            return Ok(u64::from_le_bytes(word));
        }
        let rest = self.take(u64::from(more))?;
        for (to, from) in word.iter_mut().zip(std::iter::once(&first).chain(rest)) {
            *to = *from;
        }
        Ok(u64::from_le_bytes(word) >> (more + 1))
    }

    /// A varint whose lowest bit is the sign.
    pub(super) fn signed(&mut self) -> Result<i64> {
        let zigzag = self.varint()?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    pub(super) fn flagged(&mut self) -> Result<(u64, bool)> {
        let value = self.varint()?;
        Ok((value >> 1, value & 1 == 1))
    }

    pub(super) fn index(&mut self) -> Result<usize> {
        Ok(usize::try_from(self.varint()?).unwrap_or(usize::MAX))
    }

    /// The number of an attribute, if it is there.
    pub(super) fn reference(&mut self, is_optional: bool) -> Result<Option<usize>> {
        let (index, is_there) = if is_optional { self.flagged()? } else { (self.varint()?, true) };
        Ok(is_there.then(|| usize::try_from(index).unwrap_or(usize::MAX)))
    }

    /// How many varints are left, up to a number.
    pub(super) fn count(mut self, most: usize) -> usize {
        std::iter::from_fn(|| if self.is_at_end() { None } else { self.varint().ok() }).take(most).count()
    }

    /// A section: its id and a reader of its bytes.
    pub(super) fn section(&mut self) -> Result<(usize, Reader<'a>)> {
        let id = self.byte()?;
        let length = self.varint()?;
        if id & 0x80 != 0 {
            let alignment = self.index()?;
            if !alignment.is_power_of_two() || alignment > 1 << 20 {
                return Err(self.cut("alignment that is not a power of two"));
            }
            let padding = (self.base + self.at).next_multiple_of(alignment) - (self.base + self.at);
            self.take(padding as u64)?;
        }
        let base = self.base + self.at;
        Ok((usize::from(id & 0x7f), Reader { bytes: self.take(length)?, at: 0, base }))
    }
}

/// One attribute or type as the table holds it.
#[derive(Clone, Copy)]
pub(super) struct Encoded<'a> {
    pub(super) dialect: &'a [u8],
    pub(super) bytes: &'a [u8],
    pub(super) base: usize,
    /// Whether the dialect's own encoding is used, rather than text.
    pub(super) is_custom: bool,
}

type Sections<'a> = [Option<Reader<'a>>; section::COUNT];

impl<'a> Encoded<'a> {
    pub(super) fn reader(&self) -> Reader<'a> {
        Reader { bytes: self.bytes, at: 0, base: self.base }
    }
}

/// The version and the sections of a file, none of them read.
fn outline(bytes: &[u8]) -> Result<(u64, Sections<'_>)> {
    let mut file = Reader { bytes, at: 4, base: 0 };
    let version = file.varint()?;
    if version > MAX_VERSION {
        return Err(unsupported(format!("bytecode version {version}, at most {MAX_VERSION} is known")));
    }
    while file.byte()? != 0 {}
    let mut sections = Sections::default();
    while !file.is_at_end() {
        let (id, reader) = file.section()?;
        *sections.get_mut(id).ok_or_else(|| unsupported(format!("bytecode section {id}")))? = Some(reader);
    }
    Ok((version, sections))
}

/// Why a file is truncated, if it is: a section ends beyond it, or none has operations.
pub(crate) fn find_cut(bytes: &[u8]) -> Option<ScanErrorKind> {
    match outline(bytes) {
        Err(cut @ ScanErrorKind::Truncated { .. }) => Some(cut),
        Ok((_, sections)) if matches!(sections.get(section::IR), Some(None)) => {
            let what = "no section with operations".to_owned();
            Some(ScanErrorKind::Truncated { what, offset: bytes.len() as u64 })
        }
        // newer versions are searched as well
        _ => None,
    }
}

fn read_strings(mut reader: Reader<'_>) -> Result<Vec<&[u8]>> {
    let count = reader.varint()?;
    let mut lengths = Vec::new();
    for _ in 0..count {
        // the lengths come last string first
        lengths.push(reader.varint()?);
    }
    lengths
        .into_iter()
        .rev()
        .map(|length| {
            let text = reader.take(length)?;
            Ok(text.strip_suffix(b"\0").unwrap_or(text))
        })
        .collect()
}

fn read_properties(mut reader: Reader<'_>) -> Result<Vec<Reader<'_>>> {
    let count = reader.varint()?;
    let mut all = Vec::new();
    for _ in 0..count {
        let length = reader.varint()?;
        let base = reader.base + reader.at;
        all.push(Reader { bytes: reader.take(length)?, at: 0, base });
    }
    Ok(all)
}

type Dialects<'a> = (Vec<&'a [u8]>, Vec<(&'a [u8], &'a [u8])>);

fn read_dialects<'a>(mut reader: Reader<'a>, version: u64, strings: &[&'a [u8]]) -> Result<Dialects<'a>> {
    let string = |reader: &Reader<'_>, index: u64| {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        strings.get(index).copied().ok_or_else(|| reader.cut("string that does not exist"))
    };
    let mut dialects = Vec::new();
    for _ in 0..reader.varint()? {
        let (name, has_version) =
            if version >= version::DIALECT_VERSIONS { reader.flagged()? } else { (reader.varint()?, false) };
        dialects.push(string(&reader, name)?);
        if has_version {
            reader.section()?;
        }
    }
    if version >= version::ELIDED_LOCATIONS {
        reader.varint()?; // the number of operations, which the groups give as well
    }
    let mut operations = Vec::new();
    while !reader.is_at_end() {
        let dialect = reader.index()?;
        let dialect = dialects.get(dialect).copied().ok_or_else(|| reader.cut("dialect that does not exist"))?;
        for _ in 0..reader.varint()? {
            let name = if version >= version::PROPERTIES { reader.flagged()?.0 } else { reader.varint()? };
            operations.push((dialect, string(&reader, name)?));
        }
    }
    Ok((dialects, operations))
}

type Table<'a> = (Vec<Encoded<'a>>, Vec<Encoded<'a>>);

fn read_table<'a>(mut offsets: Reader<'a>, table: &Reader<'a>, dialects: &[&'a [u8]]) -> Result<Table<'a>> {
    let attributes = offsets.index()?;
    let types = offsets.index()?;
    let mut table = table.clone();
    let mut all = Vec::new();
    while !offsets.is_at_end() {
        let dialect = offsets.index()?;
        let dialect = dialects.get(dialect).copied().ok_or_else(|| offsets.cut("dialect that does not exist"))?;
        for _ in 0..offsets.varint()? {
            let (length, is_custom) = offsets.flagged()?;
            let base = table.base + table.at;
            all.push(Encoded { dialect, bytes: table.take(length)?, base, is_custom });
        }
    }
    if attributes.checked_add(types) != Some(all.len()) {
        return Err(offsets.cut("table of another length than it claims"));
    }
    let types = all.split_off(attributes);
    Ok((all, types))
}

/// What the sections of a file hold besides its operations.
pub(super) struct Tables<'a> {
    pub(super) version: u64,
    pub(super) strings: Vec<&'a [u8]>,
    /// Dialects and names of operations.
    pub(super) operations: Vec<(&'a [u8], &'a [u8])>,
    pub(super) attributes: Vec<Encoded<'a>>,
    pub(super) types: Vec<Encoded<'a>>,
    pub(super) properties: Vec<Reader<'a>>,
}

/// The tables of a file, and a reader of its operations.
pub(super) fn read_tables(bytes: &[u8]) -> Result<(Tables<'_>, Reader<'_>)> {
    let (version, mut sections) = outline(bytes)?;
    let properties = match sections.get_mut(section::PROPERTIES).and_then(Option::take) {
        Some(reader) => read_properties(reader)?,
        None => Vec::new(),
    };
    let mut section = |id: usize| {
        let found = sections.get_mut(id).and_then(Option::take);
        found.ok_or_else(|| ScanErrorKind::Truncated { what: format!("no section {id}"), offset: bytes.len() as u64 })
    };
    let strings = read_strings(section(section::STRING)?)?;
    let (dialects, operations) = read_dialects(section(section::DIALECT)?, version, &strings)?;
    let (attributes, types) =
        read_table(section(section::ATTR_TYPE_OFFSET)?, &section(section::ATTR_TYPE)?, &dialects)?;
    Ok((Tables { version, strings, operations, attributes, types, properties }, section(section::IR)?))
}

/// The order in which uses of values are listed in memory has no effect on the computation.
pub(super) fn skip_use_orders(reader: &mut Reader<'_>, values: u64) -> Result<()> {
    let count = if values > 1 { reader.varint()? } else { 1 };
    for _ in 0..count {
        if values > 1 {
            reader.varint()?;
        }
        let (uses, _) = reader.flagged()?;
        for _ in 0..uses {
            reader.varint()?;
        }
    }
    Ok(())
}
