//! What entries of the table of attributes and types hold: strings, dictionaries, scopes, shapes.

use std::borrow::Cow;
use std::collections::HashMap;

use super::container::{Encoded, MAX_DEPTH, Reader, Result, Tables};
use crate::array::{ArraySpec, DType};
use crate::hlo::graph::{Type, join_scopes};
use crate::hlo::mlir_text::read_type;
use crate::hlo::triton_call::{self, TritonLaunch};

/// Codes of builtin attributes (`mlir/IR/BuiltinDialectBytecode.td`) and of VHLO's
/// (`stablehlo/dialect/VhloBytecode.cpp`).
mod code {
    pub(super) const ARRAY: u64 = 0;
    pub(super) const DICTIONARY: u64 = 1;
    pub(super) const STRING: u64 = 2;
    pub(super) const STRING_WITH_TYPE: u64 = 3;
    pub(super) const SYMBOL: u64 = 4;
    pub(super) const INTEGER: u64 = 8;
    pub(super) const CALL_SITE: u64 = 10;
    pub(super) const FILE_LINE: u64 = 11;
    pub(super) const FUSED: u64 = 12;
    pub(super) const FUSED_WITH_METADATA: u64 = 13;
    pub(super) const NAME: u64 = 14;
    pub(super) const FILE_RANGE: u64 = 22;

    pub(super) const VHLO_ARRAY: u64 = 1;
    pub(super) const VHLO_DICTIONARY: u64 = 6;
    pub(super) const VHLO_INTEGER: u64 = 9;
    pub(super) const VHLO_STRING: u64 = 14;
    pub(super) const VHLO_TYPE_EXTENSIONS: u64 = 18;
}

/// Bytes of names and types that are assembled from others, per byte of the module.
const MAX_COPIES_PER_BYTE: usize = 64;
const MAX_NAME_BYTES: usize = 1 << 16;
/// Most members of a dictionary or an array that are examined: many operations may share a large one.
const MAX_MEMBERS: usize = 1 << 10;

/// The file and line of a place in the source.
type FileLine<'a> = (&'a [u8], u64);

/// The tables of a module with what was found in them.
pub(super) struct Contents<'a> {
    pub(super) tables: Tables<'a>,
    /// By attribute, the scope that it names as a location.
    scopes: Vec<Option<Cow<'a, [u8]>>>,
    types: Vec<Option<Type>>,
    /// By attribute, the launch in it: many operations may share one.
    launches: HashMap<usize, Option<TritonLaunch>>,
    /// Remaining bytes that may be assembled.
    copies_left: usize,
}

impl<'a> Contents<'a> {
    pub(super) fn new(tables: Tables<'a>, length: usize) -> Self {
        let (scopes, types) = (vec![None; tables.attributes.len()], vec![None; tables.types.len()]);
        let copies_left = length.saturating_mul(MAX_COPIES_PER_BYTE).saturating_add(1 << 20);
        Self { tables, scopes, types, launches: HashMap::new(), copies_left }
    }

    /// The code of an attribute in its dialect's own encoding, and its fields.
    pub(super) fn fields(&self, attribute: usize) -> Option<(&'a [u8], u64, Reader<'a>)> {
        let encoded = self.tables.attributes.get(attribute).filter(|encoded| encoded.is_custom)?;
        let mut reader = encoded.reader();
        let code = reader.varint().ok()?;
        Some((encoded.dialect, code, reader))
    }

    /// The text of a string, or the name of a function that is referred to.
    pub(super) fn string(&self, attribute: usize) -> Option<&'a [u8]> {
        match self.fields(attribute)? {
            (b"builtin", code::STRING | code::STRING_WITH_TYPE, mut fields)
            | (b"vhlo", code::VHLO_STRING, mut fields) => self.tables.strings.get(fields.index().ok()?).copied(),
            (b"builtin", code::SYMBOL, mut fields) => match self.fields(fields.index().ok()?)? {
                (b"builtin", code::STRING, mut fields) => self.tables.strings.get(fields.index().ok()?).copied(),
                _ => None,
            },
            _ => None,
        }
    }

    /// The launch of a Triton kernel that a string holds.
    pub(super) fn launch(&mut self, attribute: usize) -> Option<TritonLaunch> {
        let message = self.string(attribute)?;
        self.launches.entry(attribute).or_insert_with(|| triton_call::launch(message)).clone()
    }

    /// An integer of 9 to 64 bits; shorter ones are written as a byte, and no launch has any.
    pub(super) fn integer(&self, attribute: usize) -> Option<i64> {
        match self.fields(attribute)? {
            (b"builtin", code::INTEGER, mut fields) | (b"vhlo", code::VHLO_INTEGER, mut fields) => {
                let _its_type = fields.index().ok()?;
                fields.signed().ok()
            }
            _ => None,
        }
    }

    /// The attribute with this name in a dictionary.
    pub(super) fn member(&self, dictionary: usize, name: &[u8]) -> Option<usize> {
        let (dialect, code, mut pairs) = self.fields(dictionary)?;
        if !matches!((dialect, code), (b"builtin", code::DICTIONARY) | (b"vhlo", code::VHLO_DICTIONARY)) {
            return None;
        }
        for _ in 0..pairs.index().ok()?.min(MAX_MEMBERS) {
            let (key, value) = (pairs.index().ok()?, pairs.index().ok()?);
            if self.string(key) == Some(name) {
                return Some(value);
            }
        }
        None
    }

    /// The first attributes of an array; `None` if it is none.
    pub(super) fn items(&self, attribute: usize, most: usize) -> Option<Vec<usize>> {
        match self.fields(attribute)? {
            (b"builtin", code::ARRAY, mut items) | (b"vhlo", code::VHLO_ARRAY, mut items) => {
                let count = items.index().unwrap_or_default();
                Some((0..count.min(most)).map_while(|_| items.index().ok()).collect())
            }
            _ => None,
        }
    }

    /// The strings of an array, or the one string that stands alone.
    pub(super) fn strings(&self, attribute: usize) -> Vec<&'a [u8]> {
        let items = self.items(attribute, MAX_MEMBERS).unwrap_or_else(|| vec![attribute]);
        items.into_iter().filter_map(|item| self.string(item)).collect()
    }

    /// A text that was assembled from others, or none if too many were: many operations may share a long one.
    pub(super) fn afford(&mut self, text: Vec<u8>) -> Vec<u8> {
        let left = self.copies_left.checked_sub(text.len());
        self.copies_left = left.unwrap_or_default();
        left.map(|_| text).unwrap_or_default()
    }

    /// The scope that a location names, by the rule of the text's reader.
    pub(super) fn scope(&mut self, location: usize) -> Cow<'a, [u8]> {
        self.scope_within(location, 0).unwrap_or_default()
    }

    /// The functions around a location, the innermost first, and the file and line of the innermost, by the rule of the
    /// text's reader.
    pub(super) fn place(&self, mut location: usize) -> (Vec<&'a [u8]>, Option<FileLine<'a>>) {
        let mut functions = Vec::new();
        for _ in 0..MAX_DEPTH {
            let Some((b"builtin", code, mut fields)) = self.fields(location) else { break };
            let mut field = || fields.index().ok();
            let next = match code {
                code::FILE_LINE | code::FILE_RANGE => {
                    // a range says how many numbers follow, the first of which is the line
                    let file = field().and_then(|file| self.string(file));
                    let counted = if code == code::FILE_RANGE { field() } else { Some(1) };
                    let line = counted.filter(|&numbers| numbers > 0).and_then(|_| field());
                    return (functions, file.zip(line.map(|line| line as u64)));
                }
                code::NAME => {
                    functions.extend(field().and_then(|own| self.string(own)));
                    field()
                }
                code::CALL_SITE => field(),
                code::FUSED | code::FUSED_WITH_METADATA => field().filter(|&count| count > 0).and_then(|_| field()),
                _ => None,
            };
            let Some(next) = next else { break };
            location = next;
        }
        (functions, None)
    }

    fn scope_within(&mut self, location: usize, depth: usize) -> Option<Cow<'a, [u8]>> {
        if let Some(known) = self.scopes.get(location)? {
            return Some(known.clone());
        }
        let (b"builtin", code, mut fields) = self.fields(location)? else { return None };
        if depth == MAX_DEPTH || self.copies_left == 0 {
            return None;
        }
        let scope = match code {
            code::NAME => {
                let own = self.string(fields.index().ok()?)?;
                if own.ends_with(b":") {
                    self.scope_within(fields.index().ok()?, depth + 1).unwrap_or_default()
                } else {
                    Cow::Borrowed(own)
                }
            }
            code::CALL_SITE => self.scope_within(fields.index().ok()?, depth + 1).unwrap_or_default(),
            code::FUSED | code::FUSED_WITH_METADATA => {
                let mut joined = Cow::Borrowed(&[][..]);
                for _ in 0..fields.varint().ok()? {
                    if let Some(one) = self.scope_within(fields.index().ok()?, depth + 1)
                        && joined.len() <= MAX_NAME_BYTES
                    {
                        join_scopes(&mut joined, one);
                    }
                }
                joined
            }
            _ => Cow::default(),
        };
        if let Cow::Owned(owned) = &scope {
            self.copies_left = self.copies_left.saturating_sub(owned.len());
        }
        *self.scopes.get_mut(location)? = Some(scope.clone());
        Some(scope)
    }

    pub(super) fn type_of(&mut self, index: usize) -> Result<Type> {
        let found = self.type_within(index, 0)?;
        self.copies_left = self.copies_left.saturating_sub(size_of_parts(&found));
        Ok(found)
    }

    fn type_within(&mut self, index: usize, depth: usize) -> Result<Type> {
        if let Some(Some(known)) = self.types.get(index).filter(|_| self.copies_left > 0) {
            return Ok(known.clone());
        }
        let encoded = self.tables.types.get(index).filter(|_| depth < MAX_DEPTH && self.copies_left > 0);
        let Some(&encoded) = encoded else {
            return Ok(Type::Other("a type that is not shown".into()));
        };
        let found = if encoded.is_custom {
            self.custom_type(encoded, depth)?
        } else {
            let spelled = encoded.bytes.strip_suffix(b"\0").unwrap_or(encoded.bytes);
            read_type(spelled)
        };
        if let Some(slot) = self.types.get_mut(index) {
            *slot = Some(found.clone());
        }
        Ok(found)
    }

    fn custom_type(&mut self, encoded: Encoded<'a>, depth: usize) -> Result<Type> {
        let mut fields = encoded.reader();
        let code = fields.varint()?;
        let is_vhlo = encoded.dialect == b"vhlo";
        Ok(match (encoded.dialect, code) {
            (b"vhlo", 20) | (b"builtin", 13) => self.tensor(&mut fields, &[], depth)?,
            (b"vhlo", 21) | (b"builtin", 14) => {
                let bounds = self.bounds(fields.index()?);
                self.tensor(&mut fields, &bounds, depth)?
            }
            (b"vhlo", 23) | (b"builtin", 15) => {
                let mut elements = Vec::new();
                for _ in 0..fields.varint()? {
                    let element = self.type_within(fields.index()?, depth + 1)?;
                    self.copies_left = self.copies_left.saturating_sub(size_of_parts(&element));
                    elements.push(element);
                }
                Type::Tuple(elements)
            }
            (b"vhlo", 1) | (b"builtin", 9) => match self.type_within(fields.index()?, depth + 1)? {
                Type::Array(part) if part.dtype == DType::F32 => scalar(DType::C64),
                Type::Array(part) if part.dtype == DType::F64 => scalar(DType::C128),
                _ => Type::Other("complex".into()),
            },
            (b"vhlo", 22) | (b"stablehlo", 0) => Type::Other("!stablehlo.token".into()),
            (b"vhlo", 42) | (b"stablehlo", 1) => Type::Other("!stablehlo.future".into()),
            (b"vhlo", 9) | (b"builtin", 1) => Type::Other("index".into()),
            (b"vhlo", 41) | (b"builtin", 10 | 11) => Type::Other("memref".into()),
            (b"vhlo", 24 | 30) => Type::Other("quantized".into()),
            (b"builtin", 0) => builtin_integer(fields.varint()?),
            _ => match if is_vhlo { vhlo_element(code) } else { builtin_element(encoded.dialect, code) } {
                Some(dtype) => scalar(dtype),
                None => Type::Other(format!("{} type {code}", String::from_utf8_lossy(encoded.dialect)).into()),
            },
        })
    }

    /// The bounds of dimensions that are known only at run time.
    fn bounds(&self, encoding: usize) -> Vec<Option<u64>> {
        match self.fields(encoding) {
            Some((b"vhlo", code::VHLO_TYPE_EXTENSIONS, mut fields)) => lengths(&mut fields).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn tensor(&mut self, fields: &mut Reader<'a>, bounds: &[Option<u64>], depth: usize) -> Result<Type> {
        let mut dims = lengths(fields)?;
        // a dimension of at most some length counts with that length, as in HLO
        dims.iter_mut().zip(bounds).for_each(|(dim, bound)| *dim = dim.or(*bound));
        let element = self.type_within(fields.index()?, depth + 1)?;
        let known: Option<Vec<u64>> = dims.iter().copied().collect();
        Ok(match (known, element) {
            (Some(dims), Type::Array(element)) => Type::Array(ArraySpec::new(element.dtype, dims)),
            (_, element) => {
                let shown = dims.iter().map(|dim| dim.map_or_else(|| "?x".to_owned(), |dim| format!("{dim}x")));
                let element = match element {
                    Type::Array(element) => element.dtype.to_string(),
                    Type::Other(spelled) => spelled.into(),
                    Type::Tuple(_) => "tuple".to_owned(),
                };
                Type::Other(format!("tensor<{}{element}>", shown.collect::<String>()).into())
            }
        })
    }
}

/// Lengths of dimensions; negative ones are known only at run time.
fn lengths(fields: &mut Reader<'_>) -> Result<Vec<Option<u64>>> {
    let mut lengths = Vec::new();
    for _ in 0..fields.varint()? {
        let zigzag = fields.varint()?;
        lengths.push((zigzag & 1 == 0).then_some(zigzag >> 1));
    }
    Ok(lengths)
}

/// Bytes that a copy of a type takes, about.
fn size_of_parts(shown: &Type) -> usize {
    let parts = match shown {
        Type::Array(array) => array.dims.len() * size_of::<u64>(),
        Type::Tuple(elements) => elements.iter().map(size_of_parts).sum(),
        Type::Other(spelled) => spelled.len(),
    };
    parts + size_of::<Type>()
}

/// An element type is a scalar until a tensor holds it.
fn scalar(dtype: DType) -> Type {
    Type::Array(ArraySpec::new(dtype, Vec::new()))
}

/// Two bits of a sign, and the width.
fn builtin_integer(width_and_sign: u64) -> Type {
    let (width, is_unsigned) = (width_and_sign >> 2, width_and_sign & 3 == 2);
    let spelled = format!("{}{width}", if is_unsigned { "ui" } else { "i" });
    spelled.parse().map_or_else(|_| Type::Other(spelled.into()), scalar)
}

fn builtin_element(dialect: &[u8], code: u64) -> Option<DType> {
    match code {
        _ if dialect != b"builtin" => None,
        3 => Some(DType::Bf16),
        4 => Some(DType::F16),
        5 => Some(DType::F32),
        6 => Some(DType::F64),
        _ => None,
    }
}

/// The element type with a code of VHLO.
pub(super) fn vhlo_element(code: u64) -> Option<DType> {
    Some(match code {
        0 => DType::Pred,
        2 => DType::Bf16,
        3 => DType::F16,
        4 => DType::F32,
        5 => DType::F64,
        6 => DType::F8E4M3Fn,
        7 => DType::F8E5M2,
        10 => DType::S4,
        11 => DType::S8,
        12 => DType::S16,
        13 => DType::S32,
        14 => DType::S64,
        15 => DType::U4,
        16 => DType::U8,
        17 => DType::U16,
        18 => DType::U32,
        19 => DType::U64,
        27 => DType::F8E4M3Fnuz,
        28 => DType::F8E5M2Fnuz,
        29 => DType::F8E4M3B11Fnuz,
        31 => DType::S2,
        32 => DType::U2,
        35 => DType::F8E4M3,
        36 => DType::F8E3M4,
        37 => DType::F4E2M1Fn,
        40 => DType::F8E8M0Fnu,
        _ => return None,
    })
}
