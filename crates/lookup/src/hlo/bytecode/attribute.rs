//! Attributes by their name, in any dictionary of a module.

use super::container::{Encoded, Reader, Result, Tables, read_tables};

/// Codes of builtin attributes: `mlir/IR/BuiltinDialectBytecode.td`.
mod code {
    pub(super) const DICTIONARY: u64 = 1;
    pub(super) const STRING: u64 = 2;
    pub(super) const INTEGER: u64 = 8;
    pub(super) const DENSE_ARRAY: u64 = 17;
}

/// Largest number of elements of an array that is read.
const MAX_ELEMENTS: usize = 1 << 10;

/// The integer with this name in any dictionary; only the module's has `mhlo.num_partitions`.
pub(crate) fn integer_attribute(bytes: &[u8], name: &[u8]) -> Result<Option<u64>> {
    first_named(bytes, name, |attribute| {
        let Some(mut integer) = fields(attribute, code::INTEGER)? else { return Ok(None) };
        let _its_type = integer.varint()?;
        // the sign is the lowest bit
        Ok(Some(integer.varint()? >> 1))
    })
}

/// The array of 64-bit integers with this name in any dictionary.
pub(crate) fn integers_attribute(bytes: &[u8], name: &[u8]) -> Result<Option<Vec<i64>>> {
    first_named(bytes, name, |attribute| {
        let Some(mut array) = fields(attribute, code::DENSE_ARRAY)? else { return Ok(None) };
        let _type_of_elements = array.varint()?;
        let (elements, length) = (array.index()?, array.varint()?);
        let bytes = array.take(length)?;
        if elements > MAX_ELEMENTS || bytes.len() != elements * size_of::<i64>() {
            return Ok(None);
        }
        let (words, _) = bytes.as_chunks::<{ size_of::<i64>() }>();
        Ok(Some(words.iter().map(|word| i64::from_le_bytes(*word)).collect()))
    })
}

/// The value that `read` returns for the first attribute of this name that it accepts.
fn first_named<T>(bytes: &[u8], name: &[u8], read: impl Fn(&Encoded<'_>) -> Result<Option<T>>) -> Result<Option<T>> {
    // most modules lack the name and need not be parsed
    if memchr::memmem::find(bytes, name).is_none() {
        return Ok(None);
    }
    let (Tables { strings, attributes, .. }, _) = read_tables(bytes)?;
    for dictionary in &attributes {
        let Some(mut pairs) = fields(dictionary, code::DICTIONARY)? else { continue };
        for _ in 0..pairs.varint()? {
            let (key, value) = (pairs.index()?, pairs.index()?);
            let key = attributes.get(key).map_or(Ok(None), |key| fields(key, code::STRING))?;
            let is_named = match key {
                Some(mut key) => strings.get(key.index()?).is_some_and(|text| *text == name),
                None => false,
            };
            let value = attributes.get(value).filter(|_| is_named);
            if let Some(found) = value.map_or(Ok(None), &read)? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// The data after the code of a builtin attribute, if it is this one.
fn fields<'a>(attribute: &Encoded<'a>, code: u64) -> Result<Option<Reader<'a>>> {
    if attribute.dialect != b"builtin" || !attribute.is_custom {
        return Ok(None);
    }
    let mut reader = attribute.reader();
    Ok((reader.varint()? == code).then_some(reader))
}
