//! MLIR bytecode of a portable artifact, as far as its semantic digest needs it.
//!
//! Attributes and types are numbered in one table that locations share, and sorted by how often they are used, so a
//! program recorded at another place differs in nearly every byte. The digest therefore resolves each reference to the
//! content that it stands for and walks the operations without their locations, names of the module and orders of uses.
//!
//! Layout: MLIR's "Bytecode Format" page (mlir.llvm.org/docs/BytecodeFormat), versions 0 to 6; codes of builtin
//! attributes: `mlir/IR/BuiltinDialectBytecode.td`; of VHLO's: `stablehlo/dialect/VhloBytecode.cpp`.

use super::error::ScanErrorKind;
use crate::digest::{Digest, FieldHasher};

const MAX_VERSION: u64 = 6;
const MAX_DEPTH: usize = 128;

/// Versions that added something to the layout.
mod version {
    pub(super) const DIALECT_VERSIONS: u64 = 1;
    pub(super) const LAZY_REGIONS: u64 = 2;
    pub(super) const USE_ORDERS: u64 = 3;
    pub(super) const ELIDED_LOCATIONS: u64 = 4;
    pub(super) const PROPERTIES: u64 = 5;
}

mod section {
    pub(super) const STRING: usize = 0;
    pub(super) const DIALECT: usize = 1;
    pub(super) const ATTR_TYPE: usize = 2;
    pub(super) const ATTR_TYPE_OFFSET: usize = 3;
    pub(super) const IR: usize = 4;
    pub(super) const PROPERTIES: usize = 8;
    pub(super) const COUNT: usize = 9;
}

/// Bits of an operation's mask.
mod has {
    pub(super) const ATTRIBUTES: u8 = 0x01;
    pub(super) const RESULTS: u8 = 0x02;
    pub(super) const OPERANDS: u8 = 0x04;
    pub(super) const SUCCESSORS: u8 = 0x08;
    pub(super) const REGIONS: u8 = 0x10;
    pub(super) const USE_ORDERS: u8 = 0x20;
    pub(super) const PROPERTIES: u8 = 0x40;
}

type Result<T> = std::result::Result<T, ScanErrorKind>;

fn unsupported(what: impl Into<String>) -> ScanErrorKind {
    ScanErrorKind::Unsupported { what: what.into() }
}

/// Reads one section; `base` is where it lies in the file, for errors and alignment.
#[derive(Clone)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    base: usize,
}

impl<'a> Reader<'a> {
    fn cut(&self, what: &str) -> ScanErrorKind {
        ScanErrorKind::Truncated { what: what.to_owned(), offset: (self.base + self.at) as u64 }
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let taken =
            end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| self.cut("length beyond the section"))?;
        self.at += taken.len();
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    /// A prefix varint: the zero bits below the lowest one bit of the first byte count the bytes that follow.
    fn varint(&mut self) -> Result<u64> {
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

    fn flagged(&mut self) -> Result<(u64, bool)> {
        let value = self.varint()?;
        Ok((value >> 1, value & 1 == 1))
    }

    fn index(&mut self) -> Result<usize> {
        Ok(usize::try_from(self.varint()?).unwrap_or(usize::MAX))
    }

    /// A section: its id and a reader of its bytes.
    fn section(&mut self) -> Result<(usize, Reader<'a>)> {
        let id = self.byte()?;
        let length = self.varint()?;
        if id & 0x80 != 0 {
            let alignment = self.index()?;
            if !alignment.is_power_of_two() || alignment > 1 << 20 {
                return Err(self.cut("alignment that is no power of two"));
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
struct Encoded<'a> {
    dialect: &'a [u8],
    bytes: &'a [u8],
    base: usize,
    /// Whether the dialect's own encoding is used, rather than text.
    is_custom: bool,
}

struct Module<'a> {
    version: u64,
    strings: Vec<&'a [u8]>,
    operations: Vec<(&'a [u8], &'a [u8])>,
    attributes: Vec<Encoded<'a>>,
    types: Vec<Encoded<'a>>,
    properties: Vec<Reader<'a>>,
    known: Vec<Option<Digest>>,
}

/// What a reference in an encoding refers to.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Attribute,
    Type,
}

type Sections<'a> = [Option<Reader<'a>>; section::COUNT];

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

/// Why a file is cut short, where it is: a section that ends beyond it, or none with operations.
pub(crate) fn find_cut(bytes: &[u8]) -> Option<ScanErrorKind> {
    match outline(bytes) {
        Err(cut @ ScanErrorKind::Truncated { .. }) => Some(cut),
        Ok((_, sections)) if matches!(sections.get(section::IR), Some(None)) => {
            let what = "no section with operations".to_owned();
            Some(ScanErrorKind::Truncated { what, offset: bytes.len() as u64 })
        }
        // newer versions are searched all the same
        _ => None,
    }
}

/// The semantic digest of a portable artifact.
pub(crate) fn semantic_digest(bytes: &[u8]) -> Result<Digest> {
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
    let known = vec![None; attributes.len() + types.len()];
    let mut module = Module { version, strings, operations, attributes, types, properties, known };
    let mut hasher = FieldHasher::new("semantic digest of MLIR bytecode, 1");
    module.block(&mut section(section::IR)?, false, 0, &mut hasher)?;
    Ok(hasher.finish())
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
        strings.get(index).copied().ok_or_else(|| reader.cut("string that is not there"))
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
        let dialect = dialects.get(dialect).copied().ok_or_else(|| reader.cut("dialect that is not there"))?;
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
        let dialect = dialects.get(dialect).copied().ok_or_else(|| offsets.cut("dialect that is not there"))?;
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

/// How the fields of an encoding follow each other.
#[derive(Clone, Copy)]
enum Field {
    Attribute,
    OptionalAttribute,
    /// A flag, and the attribute where it is set.
    FlaggedAttribute,
    Type,
    Attributes,
    AttributePairs,
    Types,
    /// Index of a string.
    Text,
    /// Varints and values without references, to the end of the encoding.
    Plain,
    /// A counted list of varints.
    Varints,
    Varint,
}

/// The fields of a VHLO attribute.
fn vhlo_attribute(code: u64) -> Option<&'static [Field]> {
    use Field::{
        Attribute, AttributePairs, Attributes, FlaggedAttribute, OptionalAttribute, Plain, Text, Type, Varint,
    };
    Some(match code {
        1 => &[Attributes],
        6 => &[AttributePairs],
        // float, integer and tensor: a type, then their value
        8 | 9 | 15 => &[Type, Plain],
        14 => &[Text],
        17 => &[Type],
        // two doubles and the units in the last place precede the mode
        20 => &[Varint, Varint, Varint, Attribute],
        22 => &[Attribute, FlaggedAttribute],
        23 => &[Attribute, Attribute],
        24 => &[Attribute, Varint],
        25 => &[Attribute, OptionalAttribute],
        // booleans, enumerations and lists of numbers
        2..=5 | 7 | 10..=13 | 16 | 18 | 19 | 21 => &[Plain],
        _ => return None,
    })
}

/// The fields of a VHLO type.
fn vhlo_type(code: u64) -> Option<&'static [Field]> {
    use Field::{Attribute, Plain, Type, Types, Varint, Varints};
    Some(match code {
        1 | 25 => &[Type],
        8 => &[Types, Types],
        20 | 41 => &[Varints, Type],
        21 => &[Attribute, Varints, Type],
        23 | 42 => &[Types],
        24 | 30 => &[Varint, Type, Type, Plain],
        0 | 2..=7 | 9..=19 | 22 | 26..=29 | 31..=40 => &[],
        _ => return None,
    })
}

/// The fields of a builtin attribute; `None` inside for a location, which counts as nothing.
fn builtin_attribute(code: u64) -> Option<Option<&'static [Field]>> {
    use Field::{Attribute, AttributePairs, Attributes, Plain, Text, Type};
    Some(Some(match code {
        0 => &[Attributes],
        1 => &[AttributePairs],
        2 => &[Text],
        3 => &[Text, Type],
        4 => &[Attribute],
        5 => &[Attribute, Attributes],
        6 => &[Type],
        7 => &[],
        8 | 9 | 18 => &[Type, Plain],
        10..=15 | 22 => return Some(None),
        _ => return None,
    }))
}

/// The fields of a builtin type, such as that of `mhlo.num_partitions`.
fn builtin_type(code: u64) -> Option<&'static [Field]> {
    use Field::{Attribute, Plain, Type, Types, Varints};
    Some(match code {
        0 => &[Plain],
        2 => &[Types, Types],
        1 | 3..=8 | 12 => &[],
        9 => &[Type],
        14 => &[Varints, Type],
        15 => &[Attribute, Varints, Type],
        16 => &[Types],
        _ => return None,
    })
}

impl<'a> Module<'a> {
    fn digest_of(&mut self, kind: Kind, index: usize, depth: usize) -> Result<Digest> {
        let slot = index.saturating_add(if kind == Kind::Type { self.attributes.len() } else { 0 });
        if let Some(Some(known)) = self.known.get(slot) {
            return Ok(*known);
        }
        let table = if kind == Kind::Type { &self.types } else { &self.attributes };
        let encoded = *table.get(index).ok_or_else(|| ScanErrorKind::Truncated {
            what: format!("reference to entry {index} of a table of {}", table.len()),
            offset: 0,
        })?;
        if depth > MAX_DEPTH {
            return Err(unsupported(format!("attributes nested more than {MAX_DEPTH} deep")));
        }
        let mut hasher = FieldHasher::new(if kind == Kind::Type { "type" } else { "attribute" });
        hasher.field(encoded.dialect);
        if encoded.is_custom {
            let mut reader = Reader { bytes: encoded.bytes, at: 0, base: encoded.base };
            let code = reader.varint()?;
            let fields = match (encoded.dialect, kind) {
                (b"vhlo", Kind::Attribute) => vhlo_attribute(code).map(Some),
                (b"vhlo", Kind::Type) => vhlo_type(code).map(Some),
                (b"builtin", Kind::Attribute) => builtin_attribute(code),
                (b"builtin", Kind::Type) => builtin_type(code).map(Some),
                _ => None,
            };
            let Some(fields) = fields else {
                let dialect = String::from_utf8_lossy(encoded.dialect);
                let kind = if kind == Kind::Type { "type" } else { "attribute" };
                return Err(unsupported(format!(
                    "{dialect} {kind} of code {code}; a portable artifact holds VHLO only"
                )));
            };
            match fields {
                Some(fields) => {
                    hasher.field(&code.to_le_bytes());
                    for field in fields {
                        self.field(*field, &mut reader, depth, &mut hasher)?;
                    }
                }
                None => {
                    hasher.field(b"location");
                }
            }
        } else {
            hasher.field(encoded.bytes);
        }
        let digest = hasher.finish();
        if let Some(slot) = self.known.get_mut(slot) {
            *slot = Some(digest);
        }
        Ok(digest)
    }

    fn reference(&mut self, kind: Kind, reader: &mut Reader<'a>, depth: usize, hasher: &mut FieldHasher) -> Result<()> {
        let index = reader.index()?;
        hasher.field(self.digest_of(kind, index, depth + 1)?.as_bytes());
        Ok(())
    }

    fn field(&mut self, field: Field, reader: &mut Reader<'a>, depth: usize, hasher: &mut FieldHasher) -> Result<()> {
        let mut counted = |reader: &mut Reader<'a>, kinds: &[Kind]| -> Result<()> {
            let count = reader.varint()?;
            hasher.field(&count.to_le_bytes());
            for _ in 0..count {
                for &kind in kinds {
                    self.reference(kind, reader, depth, hasher)?;
                }
            }
            Ok(())
        };
        match field {
            Field::Attributes => counted(reader, &[Kind::Attribute]),
            Field::AttributePairs => counted(reader, &[Kind::Attribute, Kind::Attribute]),
            Field::Types => counted(reader, &[Kind::Type]),
            Field::Attribute => self.reference(Kind::Attribute, reader, depth, hasher),
            Field::Type => self.reference(Kind::Type, reader, depth, hasher),
            Field::FlaggedAttribute => match reader.varint()? {
                0 => {
                    hasher.field(b"absent");
                    Ok(())
                }
                _ => self.reference(Kind::Attribute, reader, depth, hasher),
            },
            Field::OptionalAttribute => {
                let (index, is_there) = reader.flagged()?;
                if is_there {
                    let index = usize::try_from(index).unwrap_or(usize::MAX);
                    hasher.field(self.digest_of(Kind::Attribute, index, depth + 1)?.as_bytes());
                } else {
                    hasher.field(b"absent");
                }
                Ok(())
            }
            Field::Text => {
                let index = reader.index()?;
                let text = self.strings.get(index).ok_or_else(|| reader.cut("string that is not there"))?;
                hasher.field(text);
                Ok(())
            }
            Field::Plain => {
                let rest = reader.bytes.get(reader.at..).unwrap_or_default();
                reader.at = reader.bytes.len();
                hasher.field(rest);
                Ok(())
            }
            Field::Varint => {
                hasher.field(&reader.varint()?.to_le_bytes());
                Ok(())
            }
            Field::Varints => {
                let count = reader.varint()?;
                hasher.field(&count.to_le_bytes());
                for _ in 0..count {
                    hasher.field(&reader.varint()?.to_le_bytes());
                }
                Ok(())
            }
        }
    }

    /// A block; the top of the module is one whose arguments are never written.
    fn block(&mut self, reader: &mut Reader<'a>, is_inner: bool, depth: usize, hasher: &mut FieldHasher) -> Result<()> {
        let (operations, has_arguments) = reader.flagged()?;
        if has_arguments && is_inner {
            let count = reader.varint()?;
            hasher.field(b"arguments").field(&count.to_le_bytes());
            for _ in 0..count {
                let (index, has_location) = if self.version >= version::ELIDED_LOCATIONS {
                    reader.flagged()?
                } else {
                    (reader.varint()?, true)
                };
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                hasher.field(self.digest_of(Kind::Type, index, 0)?.as_bytes());
                if has_location {
                    reader.varint()?;
                }
            }
            if self.version >= version::USE_ORDERS && reader.byte()? & has::USE_ORDERS != 0 {
                skip_use_orders(reader, count)?;
            }
        }
        for _ in 0..operations {
            self.operation(reader, depth, hasher)?;
        }
        Ok(())
    }

    fn operation(&mut self, reader: &mut Reader<'a>, depth: usize, hasher: &mut FieldHasher) -> Result<()> {
        let index = reader.index()?;
        let &(dialect, name) = self.operations.get(index).ok_or_else(|| reader.cut("operation that is not there"))?;
        let mask = reader.byte()?;
        reader.varint()?; // the location
        hasher.field(dialect).field(name).field(&[mask & !(has::USE_ORDERS | has::PROPERTIES)]);
        if mask & has::ATTRIBUTES != 0 {
            self.reference(Kind::Attribute, reader, 0, hasher)?;
        }
        if mask & has::PROPERTIES != 0 {
            let index = reader.index()?;
            self.native_properties(index, (dialect, name), reader, hasher)?;
        }
        let mut results = 0;
        if mask & has::RESULTS != 0 {
            results = reader.varint()?;
            hasher.field(&results.to_le_bytes());
            for _ in 0..results {
                self.reference(Kind::Type, reader, 0, hasher)?;
            }
        }
        for bit in [has::OPERANDS, has::SUCCESSORS] {
            if mask & bit != 0 {
                self.field(Field::Varints, reader, 0, hasher)?;
            }
        }
        if mask & has::USE_ORDERS != 0 {
            skip_use_orders(reader, results)?;
        }
        if mask & has::REGIONS != 0 {
            let (regions, is_isolated) = reader.flagged()?;
            hasher.field(&regions.to_le_bytes());
            if depth >= MAX_DEPTH {
                return Err(unsupported(format!("regions nested more than {MAX_DEPTH} deep")));
            }
            for _ in 0..regions {
                if is_isolated && self.version >= version::LAZY_REGIONS {
                    let (_, mut region) = reader.section()?;
                    self.region(&mut region, depth + 1, hasher)?;
                } else {
                    self.region(reader, depth + 1, hasher)?;
                }
            }
        }
        Ok(())
    }

    /// The attributes that an operation declares. Each of VHLO's is required (`stablehlo/dialect/VhloOps.td`), so they
    /// are references one after the other. Those of a module are its name and visibility, which are left out.
    fn native_properties(
        &mut self,
        index: usize,
        operation: (&[u8], &[u8]),
        reader: &Reader<'a>,
        hasher: &mut FieldHasher,
    ) -> Result<()> {
        match operation {
            (b"builtin", b"module") => Ok(()),
            (b"vhlo", _) => {
                let found = self.properties.get(index).cloned();
                let mut properties = found.ok_or_else(|| reader.cut("properties that are not there"))?;
                hasher.field(b"properties");
                while !properties.is_at_end() {
                    self.reference(Kind::Attribute, &mut properties, 0, hasher)?;
                }
                Ok(())
            }
            (dialect, name) => {
                let (dialect, name) = (String::from_utf8_lossy(dialect), String::from_utf8_lossy(name));
                Err(unsupported(format!("the properties of `{dialect}.{name}`; a portable artifact holds VHLO only")))
            }
        }
    }

    fn region(&mut self, reader: &mut Reader<'a>, depth: usize, hasher: &mut FieldHasher) -> Result<()> {
        let blocks = reader.varint()?;
        hasher.field(b"region").field(&blocks.to_le_bytes());
        if blocks > 0 {
            reader.varint()?; // the number of values, which follows from the operations
        }
        for _ in 0..blocks {
            self.block(reader, true, depth, hasher)?;
        }
        Ok(())
    }
}

/// The order in which uses of values are listed in memory computes nothing.
fn skip_use_orders(reader: &mut Reader<'_>, values: u64) -> Result<()> {
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
