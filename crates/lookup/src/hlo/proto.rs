//! `HloModuleProto`, alone or inside an `HloProto`, one computation at a time.
//!
//! The outer messages are traversed by `pread` without reading their content; a computation is read completely, within
//! a bound, through the bounded cursor. Field numbers: `xla/service/hlo.proto` and `xla/xla_data.proto`.

use std::io;

use super::census::Structure;
use super::error::ScanErrorKind;
use super::escape::Escapes;
use super::graph::{Computation, Head, Node, NodeKind, Type, Value};
use super::sites::Sites;
use super::source::Source;
use super::tally::Tally;
use super::user_label::UserLabels;
use crate::array::{ArraySpec, DType};
use crate::wire::{WireCursor, WireError, WireValue, repeated_varints};

/// Maximum size of a computation.
const MAX_COMPUTATION_BYTES: u64 = 1 << 29;
const MAX_TEXT_BYTES: u64 = 1 << 16;

/// One field of an outer message: its number and, if it is length-delimited, the range of its bytes.
pub(crate) struct OuterField {
    pub(crate) number: u64,
    pub(crate) wire_type: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Reads the field that begins at `offset` of a message that ends at `end`, without its content.
pub(crate) fn outer_field(source: &dyn Source, offset: u64, end: u64) -> Result<OuterField, ScanErrorKind> {
    const MAX_HEADER: usize = 20;
    let cut = |what: &str| ScanErrorKind::Truncated { what: what.to_owned(), offset };
    let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
    let header = source.window(offset, MAX_HEADER.min(left)).map_err(ScanErrorKind::Unreadable)?;
    let mut position = 0;
    let mut varint = || -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *header.get(position)?;
            position += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    };
    let tag = varint().ok_or_else(|| cut("a field's tag"))?;
    let (number, wire_type) = (tag >> 3, tag & 7);
    let length = match wire_type {
        0 => varint().map(|_| 0),
        1 => Some(8),
        2 => varint(),
        5 => Some(4),
        _ => {
            return Err(ScanErrorKind::NotAModule {
                seen: format!("unknown protobuf wire type {wire_type} at byte {offset}"),
            });
        }
    }
    .ok_or_else(|| cut("a field's length"))?;
    let start = offset + position as u64;
    let field_end = start.checked_add(length).filter(|&field_end| field_end <= end).ok_or_else(|| {
        cut(&format!("field {number} claims {length} bytes where {} are left", end.saturating_sub(start)))
    })?;
    Ok(OuterField { number, wire_type, start, end: field_end })
}

/// The range of the `HloModuleProto`: the whole file, or field 1 of an `HloProto`.
///
/// Both begin with field 1: a module's is its name, an `HloProto`'s is a message, whose first byte is the tag 0x0a.
pub(crate) fn module_range(source: &dyn Source) -> Result<(u64, u64), ScanErrorKind> {
    let length = source.len();
    let first = outer_field(source, 0, length)?;
    let inner = source.window(first.start, 1).map_err(ScanErrorKind::Unreadable)?;
    let holds_module = first.number == 1 && first.end > first.start && inner.first() == Some(&0x0a);
    Ok(if holds_module { (first.start, first.end) } else { (0, length) })
}

/// Whether the bytes look like a module: first fields of the right kinds, whether or not the file is complete.
pub(crate) fn looks_like_module(head: &[u8]) -> bool {
    let mut fields = WireCursor::new(head);
    let Some(Ok((1, WireValue::Bytes(first)))) = fields.next() else {
        // the only field of an `HloProto` is longer than the available bytes: look into it
        return match head.split_first() {
            Some((0x0a, rest)) => {
                let skip = rest.iter().position(|byte| byte & 0x80 == 0).map_or(rest.len(), |at| at + 1).min(10);
                let inner = rest.get(skip..).unwrap_or_default();
                inner.first() == Some(&0x0a) && looks_like_inner(inner)
            }
            _ => false,
        };
    };
    if first.first() == Some(&0x0a) { looks_like_inner(first) } else { looks_like_inner(head) }
}

fn looks_like_inner(head: &[u8]) -> bool {
    let mut fields = WireCursor::new(head);
    let is_text = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(|&byte| byte >= 0x20 && byte != 0x7f);
    let name = matches!(fields.next(), Some(Ok((1, WireValue::Bytes(name)))) if is_text(name));
    // entry_computation_name follows the name in every file that XLA writes; it may be truncated
    name && match fields.next() {
        None | Some(Err(_)) => head.len() < 64 || head.get(fields.position()..).is_some(),
        Some(Ok((2, WireValue::Bytes(entry)))) => is_text(entry),
        Some(Ok((3..=6, _))) => true,
        Some(Ok(_)) => false,
    }
}

/// The result of traversing a module.
pub(crate) struct Walk {
    pub(crate) tally: Tally,
    pub(crate) structure: Structure,
}

/// Counts the labels of a module; with `with_sites` also finds their call sites.
pub(crate) fn walk(source: &dyn Source, user: Option<&UserLabels>, with_sites: bool) -> Result<Walk, ScanErrorKind> {
    let (start, end) = module_range(source)?;
    let mut walk = Walker {
        tally: Tally::default(),
        head: Head::default(),
        sites: Sites::new(Escapes::Raw, user),
        user,
        with_sites,
    };
    let mut offset = start;
    let mut computations = 0_u64;
    while offset < end {
        let field = outer_field(source, offset, end)?;
        if field.wire_type == 2 {
            match field.number {
                1 if field.end - field.start <= MAX_TEXT_BYTES => {
                    let name = read(source, &field)?;
                    walk.head.module = Some(String::from_utf8_lossy(&name).into_owned());
                }
                3 => {
                    computations += 1;
                    if field.end - field.start > MAX_COMPUTATION_BYTES {
                        return Err(ScanErrorKind::TooLarge {
                            what: format!("computation {computations} at byte {offset}"),
                            limit: MAX_COMPUTATION_BYTES,
                            advice: "write the module as text instead",
                        });
                    }
                    let bytes = read(source, &field)?;
                    walk.computation(&bytes, field.start).map_err(|error| malformed(&error, field.start))?;
                }
                // a schedule exists only after optimisation
                7 => walk.head.is_optimized = true,
                _ => {}
            }
        }
        offset = field.end;
    }
    if computations == 0 {
        return Err(ScanErrorKind::NotAModule { seen: "a protobuf message without HLO computations".to_owned() });
    }
    Ok(Walk { tally: walk.tally, structure: Structure { head: walk.head, resolved: walk.sites.resolve() } })
}

fn read(source: &dyn Source, field: &OuterField) -> Result<Vec<u8>, ScanErrorKind> {
    let length = usize::try_from(field.end - field.start).unwrap_or(usize::MAX);
    let bytes = source.window(field.start, length).map_err(ScanErrorKind::Unreadable)?;
    if bytes.len() == length {
        Ok(bytes)
    } else {
        let shrunk = io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read");
        Err(ScanErrorKind::Unreadable(shrunk))
    }
}

fn malformed(error: &WireError, base: u64) -> ScanErrorKind {
    ScanErrorKind::Truncated { what: error.what.to_owned(), offset: base + error.offset as u64 }
}

struct Walker<'a> {
    tally: Tally,
    head: Head,
    sites: Sites<'a>,
    user: Option<&'a UserLabels>,
    with_sites: bool,
}

impl Walker<'_> {
    fn computation(&mut self, bytes: &[u8], base: u64) -> Result<(), WireError> {
        let mut instructions: Vec<Node<'_>> = Vec::new();
        let mut index_of_id = std::collections::HashMap::new();
        let mut operand_ids: Vec<Vec<u64>> = Vec::new();
        let mut id = 0;
        for field in WireCursor::new(bytes) {
            match field? {
                (2, WireValue::Bytes(instruction)) => {
                    let offset = base + offset_within(bytes, instruction);
                    let (instruction, own_id, operands) = self.instruction(instruction, offset)?;
                    if self.with_sites {
                        index_of_id.insert(own_id, instructions.len());
                        instructions.push(instruction);
                        operand_ids.push(operands);
                    }
                }
                (5, WireValue::Varint(number)) => id = number,
                _ => {}
            }
        }
        if self.with_sites {
            for (instruction, ids) in instructions.iter_mut().zip(&operand_ids) {
                let places = ids.iter().filter_map(|id| index_of_id.get(id).copied());
                instruction.operands = places.map(Value::whole).collect();
            }
            let name = id.to_le_bytes().to_vec().into();
            self.sites.add(&Computation { name, nodes: instructions, ..Computation::default() });
        }
        Ok(())
    }

    fn instruction<'m>(&mut self, bytes: &'m [u8], base: u64) -> Result<(Node<'m>, u64, Vec<u64>), WireError> {
        let mut instruction = Node::default();
        let (mut id, mut operands, mut called) = (0, Vec::new(), Vec::new());
        for field in WireCursor::new(bytes) {
            match field? {
                (1, WireValue::Bytes(name)) => {
                    instruction.name = String::from_utf8_lossy(name);
                    self.head.census.instruction(&instruction.name);
                }
                (2, WireValue::Bytes(opcode)) if opcode == b"constant" => instruction.kind = NodeKind::Constant,
                (3, WireValue::Bytes(shape)) if self.with_sites => {
                    instruction.results = array_shape(shape)?.map(Type::Array).into_iter().collect();
                }
                (7, WireValue::Bytes(metadata)) => {
                    for field in WireCursor::new(metadata) {
                        if let (2, WireValue::Bytes(name)) = field? {
                            self.head.census.name(name, Escapes::Raw);
                            let offset = base + offset_within(bytes, name);
                            self.tally.add_name(name, Escapes::Raw, offset);
                            if let Some(user) = self.user {
                                user.count(name, Escapes::Raw, offset, &mut self.tally);
                            }
                            instruction.scope = name.into();
                        }
                    }
                }
                (35, WireValue::Varint(number)) => id = number,
                (36, value) => repeated_varints(value, &mut operands)?,
                (38, value) => repeated_varints(value, &mut called)?,
                _ => {}
            }
        }
        for number in called {
            instruction.called.push(number.to_le_bytes().to_vec().into());
        }
        Ok((instruction, id, operands))
    }
}

/// The offset of the slice `inner` in `outer`.
fn offset_within(outer: &[u8], inner: &[u8]) -> u64 {
    (inner.as_ptr() as usize).saturating_sub(outer.as_ptr() as usize) as u64
}

/// The array of a `ShapeProto`; `None` for tuples, tokens and types unknown here.
fn array_shape(bytes: &[u8]) -> Result<Option<ArraySpec>, WireError> {
    let (mut element, mut dims) = (0, Vec::new());
    for field in WireCursor::new(bytes) {
        match field? {
            (2, WireValue::Varint(number)) => element = number,
            (3, value) => repeated_varints(value, &mut dims)?,
            _ => {}
        }
    }
    Ok(dtype(element).map(|dtype| ArraySpec::new(dtype, dims)))
}

/// `PrimitiveType` numbers: `xla/xla_data.proto`.
pub(crate) fn dtype(number: u64) -> Option<DType> {
    Some(match number {
        1 => DType::Pred,
        26 => DType::S2,
        21 => DType::S4,
        2 => DType::S8,
        3 => DType::S16,
        4 => DType::S32,
        5 => DType::S64,
        27 => DType::U2,
        22 => DType::U4,
        6 => DType::U8,
        7 => DType::U16,
        8 => DType::U32,
        9 => DType::U64,
        10 => DType::F16,
        11 => DType::F32,
        12 => DType::F64,
        16 => DType::Bf16,
        15 => DType::C64,
        18 => DType::C128,
        19 => DType::F8E5M2,
        28 => DType::F8E4M3,
        20 => DType::F8E4M3Fn,
        23 => DType::F8E4M3B11Fnuz,
        29 => DType::F8E3M4,
        24 => DType::F8E5M2Fnuz,
        25 => DType::F8E4M3Fnuz,
        32 => DType::F4E2M1Fn,
        33 => DType::F8E8M0Fnu,
        _ => return None,
    })
}
