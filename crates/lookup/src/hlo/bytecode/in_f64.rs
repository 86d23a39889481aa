//! A copy of a portable artifact that computes in `f64`.
//!
//! Types and constants are entries of one table, so that only these change: an element type becomes `f64`, and the
//! bytes of a constant are widened. The operations stay as they are. They are looked at by name alone, which is why
//! some that the text's reader allows for integers have no copy here.

use super::container::{Encoded, Reader, Result, read_tables, section};
use super::contents::{Contents, vhlo_element};
use crate::array::widened;
use crate::hlo::error::ScanErrorKind;
use crate::hlo::graph::Type;
use crate::hlo::in_f64::{NotInF64, depends_on_width, shown};

/// Codes of VHLO's attributes and types (`stablehlo/dialect/VhloBytecode.cpp`).
mod vhlo {
    pub(super) const FLOAT_ATTRIBUTE: u64 = 8;
    pub(super) const TENSOR_ATTRIBUTE: u64 = 15;
    pub(super) const F64: u64 = 5;
    /// `tf32`, and the floats that no array type has.
    pub(super) const OTHER_FLOATS: [u64; 3] = [34, 38, 39];
    pub(super) const QUANTIZED: [u64; 2] = [24, 30];
}

/// Codes of builtin attributes and types (`mlir/IR/BuiltinDialectBytecode.td`).
mod builtin {
    /// Numbers with their type, in the file or outside it.
    pub(super) const NUMBERS: [u64; 4] = [9, 18, 20, 21];
    pub(super) const NARROW_FLOATS: [u64; 3] = [3, 4, 5];
    pub(super) const F64: u64 = 6;
}

/// Largest alignment of a section that is read.
const MAX_ALIGNMENT: usize = 1 << 20;
/// Fills the space before an aligned section.
const PADDING: u8 = 0xcb;

/// The artifact with every floating-point tensor in `f64`.
///
/// # Errors
/// If it would not compute the same function, no tensor changes, or it cannot be read.
pub(crate) fn in_f64(bytes: &[u8]) -> std::result::Result<Vec<u8>, NotInF64> {
    let unreadable = |error: ScanErrorKind| NotInF64::Unreadable(error.to_string());
    let (tables, _) = read_tables(bytes).map_err(unreadable)?;
    for &(dialect, name) in &tables.operations {
        check_operation(&String::from_utf8_lossy(dialect), &String::from_utf8_lossy(name))?;
    }
    let (attributes, types) = (tables.attributes.clone(), tables.types.clone());
    let mut copier = Copier { contents: Contents::new(tables, bytes.len()), has_changed: false };
    let mut entries = Vec::with_capacity(attributes.len() + types.len());
    for attribute in &attributes {
        entries.push(copier.attribute(attribute)?);
    }
    for of in &types {
        entries.push(copier.element_type(of)?);
    }
    if !copier.has_changed {
        return Err(NotInF64::Nothing);
    }
    reassembled(bytes, &entries).map_err(unreadable)
}

/// Whether an operation computes in `f64` what it does in narrower types.
fn check_operation(dialect: &str, name: &str) -> std::result::Result<(), NotInF64> {
    let is_version = |version: &str| version.bytes().all(|byte| byte.is_ascii_digit());
    let plain = name.rsplit_once("_v").filter(|(_, version)| is_version(version)).map_or(name, |(name, _)| name);
    match dialect {
        "builtin" | "func" => Ok(()),
        "vhlo" if !depends_on_width(plain) => Ok(()),
        "vhlo" => Err(NotInF64::Operation(shown(&format!("stablehlo.{plain}")))),
        _ => Err(NotInF64::Operation(shown(&format!("{dialect}.{name}")))),
    }
}

struct Copier<'a> {
    contents: Contents<'a>,
    has_changed: bool,
}

impl Copier<'_> {
    /// The bytes of an attribute in the copy.
    fn attribute(&mut self, encoded: &Encoded<'_>) -> std::result::Result<Vec<u8>, NotInF64> {
        let mut reader = encoded.reader();
        let code = reader.varint().ok().filter(|_| encoded.is_custom);
        match (encoded.dialect, code) {
            (b"vhlo", Some(vhlo::FLOAT_ATTRIBUTE)) => Err(NotInF64::Attribute("float".to_owned())),
            (b"vhlo", Some(vhlo::TENSOR_ATTRIBUTE)) => {
                let constant = self.constant(reader).ok().flatten();
                let constant = constant.map(|wide| wide.unwrap_or_else(|| encoded.bytes.to_vec()));
                constant.ok_or_else(|| NotInF64::Constant("a constant of an unknown form".to_owned()))
            }
            (b"builtin", Some(code)) if builtin::NUMBERS.contains(&code) => {
                Err(NotInF64::Attribute(format!("builtin attribute {code}")))
            }
            _ => Ok(encoded.bytes.to_vec()),
        }
    }

    /// A constant's bytes after its code: its type, and its values with their length. The inner `None` keeps it as it
    /// is, the outer one is for what cannot be converted.
    fn constant(&mut self, mut fields: Reader<'_>) -> Result<Option<Option<Vec<u8>>>> {
        let of = fields.varint()?;
        let length = fields.varint()?;
        let values = fields.take(length)?;
        let Type::Array(spec) = self.contents.type_of(usize::try_from(of).unwrap_or(usize::MAX))? else {
            return Ok(None);
        };
        let dtype = spec.dtype;
        if dtype.in_f64() == dtype {
            return Ok(Some(None));
        }
        // MLIR's packing of narrower elements is not supported
        if dtype.bits() < 8 || !values.len().is_multiple_of(dtype.host_bytes()) {
            return Ok(None);
        }
        let wide = widened(dtype, values);
        let mut bytes = Vec::with_capacity(wide.len() + 24);
        for number in [vhlo::TENSOR_ATTRIBUTE, of, wide.len() as u64] {
            push_varint(&mut bytes, number);
        }
        bytes.extend_from_slice(&wide);
        Ok(Some(Some(bytes)))
    }

    /// The bytes of a type in the copy.
    fn element_type(&mut self, encoded: &Encoded<'_>) -> std::result::Result<Vec<u8>, NotInF64> {
        let code = encoded.reader().varint().ok().filter(|_| encoded.is_custom);
        let other = |code: &str| NotInF64::Type(shown(&format!("{} {code}", String::from_utf8_lossy(encoded.dialect))));
        let code = code.ok_or_else(|| other("type in text"))?;
        let in_f64 = match encoded.dialect {
            b"vhlo" if vhlo::QUANTIZED.contains(&code) || vhlo::OTHER_FLOATS.contains(&code) => {
                return Err(other(&format!("type {code}")));
            }
            b"vhlo" => vhlo_element(code).filter(|dtype| dtype.in_f64() != *dtype).map(|_| vhlo::F64),
            b"builtin" => builtin::NARROW_FLOATS.contains(&code).then_some(builtin::F64),
            _ => return Err(other(&format!("type {code}"))),
        };
        let Some(in_f64) = in_f64 else { return Ok(encoded.bytes.to_vec()) };
        self.has_changed = true;
        let mut bytes = Vec::new();
        push_varint(&mut bytes, in_f64);
        Ok(bytes)
    }
}

/// The file with other entries in its table of attributes and types.
fn reassembled(bytes: &[u8], entries: &[Vec<u8>]) -> Result<Vec<u8>> {
    let mut file = Reader { bytes, at: 4, base: 0 };
    file.varint()?;
    while file.byte()? != 0 {}
    let mut copy = bytes.get(..file.at).unwrap_or_default().to_vec();
    let mut seen = [false; section::COUNT];
    while !file.is_at_end() {
        let alignment = alignment_of(file.clone())?;
        let (id, content) = file.section()?;
        // otherwise a small file would have a large copy
        if seen.get_mut(id).is_none_or(|seen| std::mem::replace(seen, true)) {
            return Err(file.cut("section that was there before"));
        }
        let content = match id {
            section::ATTR_TYPE => entries.concat(),
            section::ATTR_TYPE_OFFSET => offsets(content, entries)?,
            _ => content.bytes.to_vec(),
        };
        copy.push(u8::try_from(id).unwrap_or_default() | if alignment.is_some() { 0x80 } else { 0 });
        push_varint(&mut copy, content.len() as u64);
        if let Some(alignment) = alignment {
            push_varint(&mut copy, alignment as u64);
            copy.resize(copy.len().next_multiple_of(alignment), PADDING);
        }
        copy.extend_from_slice(&content);
    }
    Ok(copy)
}

/// The alignment of the section that comes next, if it has one.
fn alignment_of(mut file: Reader<'_>) -> Result<Option<usize>> {
    let is_aligned = file.byte()? & 0x80 != 0;
    file.varint()?;
    let alignment = if is_aligned { Some(file.index()?) } else { None };
    match alignment {
        Some(alignment) if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT => {
            Err(file.cut("alignment that is not a power of two"))
        }
        alignment => Ok(alignment),
    }
}

/// The section of offsets with the lengths of other entries.
fn offsets(mut section: Reader<'_>, entries: &[Vec<u8>]) -> Result<Vec<u8>> {
    let mut copy = Vec::with_capacity(section.bytes.len() + entries.len());
    for _ in 0..2 {
        push_varint(&mut copy, section.varint()?);
    }
    let mut entries = entries.iter();
    while !section.is_at_end() {
        push_varint(&mut copy, section.varint()?);
        let count = section.varint()?;
        push_varint(&mut copy, count);
        for _ in 0..count {
            let (_, is_custom) = section.flagged()?;
            let entry = entries.next().ok_or_else(|| section.cut("more entries than the table has"))?;
            push_varint(&mut copy, (entry.len() as u64) << 1 | u64::from(is_custom));
        }
    }
    Ok(copy)
}

/// Appends a prefix varint, as [`Reader::varint`] reads it.
fn push_varint(bytes: &mut Vec<u8>, value: u64) {
    let length = (64 - value.leading_zeros()).div_ceil(7).max(1);
    if length > 8 {
        bytes.push(0);
        bytes.extend_from_slice(&value.to_le_bytes());
        return;
    }
    let word = (value << 1 | 1) << (length - 1);
    bytes.extend(word.to_le_bytes().iter().take(length as usize));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hlo::{bytecode_in_f64, semantic_digest};

    fn file(name: &str) -> Vec<u8> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
        std::fs::read(folder.join(name)).unwrap()
    }

    /// MLIR wrote the expected one, from the text of the other with each float type replaced.
    #[test]
    fn the_copy_is_what_mlir_writes_of_the_text_in_f64() {
        let copy = bytecode_in_f64(&file("hlo/in_f64/narrow.mlirbc")).unwrap();
        let expected = file("hlo/in_f64/wide.mlirbc");
        assert_eq!(semantic_digest(&copy, "").unwrap(), semantic_digest(&expected, "").unwrap());
        assert_eq!(bytecode_in_f64(&copy), Err(NotInF64::Nothing));
    }

    #[test]
    fn an_operation_of_one_type_has_no_copy() {
        for (name, is_refused) in [
            ("custom_call_v1", true),
            ("bitcast_convert_v1", true),
            ("batch_norm_training_v2", true),
            ("add_v1", false),
        ] {
            assert_eq!(check_operation("vhlo", name).is_err(), is_refused, "{name}");
        }
        assert_eq!(
            check_operation("vhlo", "custom_call_v1").unwrap_err().to_string(),
            "`stablehlo.custom_call` depends on the width of its type"
        );
        assert!(check_operation("triton", "dot").is_err());
    }

    #[test]
    fn damaged_bytecode_is_refused_or_copied() {
        let whole = file("hlo/in_f64/narrow.mlirbc");
        for at in 0..whole.len() {
            let _ = bytecode_in_f64(&whole[..at]);
            for byte in [0, 1, 0x7f, 0xff, whole[at] ^ 2, whole[at] ^ 0x10] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                let _ = bytecode_in_f64(&damaged);
            }
        }
    }

    #[test]
    fn varints_are_what_the_reader_reads() {
        for value in [0, 1, 127, 128, 16_383, 16_384, (1 << 49) - 1, 1 << 49, (1 << 56) - 1, 1 << 56, u64::MAX] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            let mut reader = Reader { bytes: &bytes, at: 0, base: 0 };
            assert_eq!((reader.varint().unwrap(), reader.is_at_end()), (value, true));
        }
    }
}
