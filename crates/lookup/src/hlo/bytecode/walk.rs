//! Traverses the operations, resolving each reference to its content.

use super::container::{MAX_DEPTH, Reader, Result, Tables, has, read_tables, skip_use_orders, unsupported, version};
use super::encoding::{Field, Kind, builtin_attribute, builtin_type, vhlo_attribute, vhlo_type};
use crate::digest::{Digest, FieldHasher};
use crate::hlo::error::ScanErrorKind;

struct Module<'a> {
    tables: Tables<'a>,
    known: Vec<Option<Digest>>,
}

/// The semantic digest of a portable artifact.
pub(crate) fn semantic_digest(bytes: &[u8]) -> Result<Digest> {
    let (tables, mut operations) = read_tables(bytes)?;
    let known = vec![None; tables.attributes.len() + tables.types.len()];
    let mut module = Module { tables, known };
    let mut hasher = FieldHasher::new("semantic digest of MLIR bytecode, 1");
    module.block(&mut operations, false, 0, &mut hasher)?;
    Ok(hasher.finish())
}

impl<'a> Module<'a> {
    fn digest_of(&mut self, kind: Kind, index: usize, depth: usize) -> Result<Digest> {
        let slot = index.saturating_add(if kind == Kind::Type { self.tables.attributes.len() } else { 0 });
        if let Some(Some(known)) = self.known.get(slot) {
            return Ok(*known);
        }
        let table = if kind == Kind::Type { &self.tables.types } else { &self.tables.attributes };
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
            let mut reader = encoded.reader();
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
                let text = self.tables.strings.get(index).ok_or_else(|| reader.cut("string that does not exist"))?;
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
                let (index, has_location) = if self.tables.version >= version::ELIDED_LOCATIONS {
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
            if self.tables.version >= version::USE_ORDERS && reader.byte()? & has::USE_ORDERS != 0 {
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
        let &(dialect, name) =
            self.tables.operations.get(index).ok_or_else(|| reader.cut("operation that does not exist"))?;
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
            let mut section;
            let inner = if is_isolated && self.tables.version >= version::LAZY_REGIONS {
                section = reader.section()?.1;
                &mut section
            } else {
                reader
            };
            for _ in 0..regions {
                self.region(inner, depth + 1, hasher)?;
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
                let found = self.tables.properties.get(index).cloned();
                let mut properties = found.ok_or_else(|| reader.cut("properties that do not exist"))?;
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
