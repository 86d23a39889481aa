//! Files that hold a module in an envelope.
//!
//! XLA puts an `HloModuleProto` into an `HloProto`, an `HloModuleProtoWithConfig` or an `HloUnoptimizedSnapshot`, and
//! an `HloProto` into an `HloSnapshot`, always as field 1: `xla/service/hlo.proto`. Before an `HloUnoptimizedSnapshot`
//! stands its length. `jax.export` puts bytecode into a flatbuffer: `jax/_src/export/serialization.fbs`.

use std::borrow::Cow;
use std::ops::Range;

use super::error::ScanErrorKind;
use super::source::Source;
use crate::wire::{WireCursor, WireValue};

/// Messages around a module.
const MAX_LEVELS: usize = 2;
/// Bytes in which a length before a message, and the start of its module, are looked for.
const PREFIX_BYTES: usize = 1 << 12;
/// The tag of field 1 with bytes.
const FIRST_FIELD: u8 = 0x0a;
/// The first bytes of MLIR bytecode.
pub(crate) const BYTECODE: &[u8] = b"ML\xefR";

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

/// Where an `HloModuleProto` is in a file.
pub(crate) struct Located {
    pub(crate) module: Range<u64>,
    /// What follows it in the message around it.
    pub(crate) behind: Range<u64>,
}

/// Finds the `HloModuleProto` of a file.
///
/// Each message begins with field 1: a module's is its name, that of the others is a message, whose first byte is the
/// tag of its own field 1.
pub(crate) fn locate(source: &dyn Source) -> Result<Located, ScanErrorKind> {
    let mut module = 0..source.len();
    let begins = outer_field(source, 0, module.end).is_ok_and(|first| (first.number, first.wire_type) == (1, 2));
    if !begins {
        let head = source.window(0, PREFIX_BYTES).map_err(ScanErrorKind::Unreadable)?;
        if let Some((length, prefix)) = length_before(&head) {
            let left = module.end - prefix;
            let what = || format!("a message of {length} bytes where {left} are left");
            let cut = || ScanErrorKind::Truncated { what: what(), offset: prefix };
            module = prefix..prefix + Some(length).filter(|&length| length <= left).ok_or_else(cut)?;
        }
    }
    let mut behind = module.end..module.end;
    for _ in 0..MAX_LEVELS {
        let first = outer_field(source, module.start, module.end)?;
        let inner = source.window(first.start, 1).map_err(ScanErrorKind::Unreadable)?;
        if (first.number, first.wire_type) != (1, 2) || first.start == first.end || inner.first() != Some(&FIRST_FIELD)
        {
            break;
        }
        behind = first.end..module.end;
        module = first.start..first.end;
    }
    Ok(Located { module, behind })
}

/// The `HloModuleProto` in the bytes of a file, and where it begins.
pub(crate) fn module_in(file: &[u8]) -> Result<(u64, &[u8]), ScanErrorKind> {
    let module = locate(&file)?.module;
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    Ok((module.start, file.get(place(module.start)..place(module.end)).unwrap_or_default()))
}

/// Name and id of a module, without reading its instructions.
pub(crate) fn identity(file: &[u8]) -> Option<(Cow<'_, str>, i64)> {
    let (_, module) = module_in(file).ok()?;
    let (mut name, mut id) = (None, 0);
    for field in WireCursor::new(module) {
        match field.ok()? {
            (1, WireValue::Bytes(text)) => name = Some(String::from_utf8_lossy(text)),
            (5, WireValue::Varint(number)) => id = number as i64,
            _ => {}
        }
    }
    Some((name?, id))
}

/// Whether the bytes look like a module, alone or in an envelope: first fields of the right kinds, whether or not the
/// file is complete.
pub(crate) fn looks_like_module(head: &[u8]) -> bool {
    looks_like_messages(head) || length_before(head).is_some()
}

/// The length before a message that holds a module, and the number of its own bytes.
fn length_before(head: &[u8]) -> Option<(u64, u64)> {
    if looks_like_messages(head) {
        return None;
    }
    let (length, message) = varint(head)?;
    let is_message = first_content(message).is_some_and(|module| module.first() == Some(&FIRST_FIELD));
    (is_message && looks_like_messages(message)).then_some((length, (head.len() - message.len()) as u64))
}

fn looks_like_messages(mut head: &[u8]) -> bool {
    for _ in 0..=MAX_LEVELS {
        match first_content(head) {
            Some(content) if content.first() == Some(&FIRST_FIELD) => head = content,
            Some(_) => return begins_as_module(head),
            None => return false,
        }
    }
    false
}

/// The bytes of field 1 at the start of a message, as far as they are there.
fn first_content(message: &[u8]) -> Option<&[u8]> {
    let (length, content) = varint(message.strip_prefix(&[FIRST_FIELD])?)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    Some(content.get(..length).unwrap_or(content))
}

/// A number at the start of bytes, and what follows.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}

fn begins_as_module(head: &[u8]) -> bool {
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

/// Fields of the table `Exported`.
const VERSION: usize = 0;
const MODULE: usize = 13;
/// The program of the derivative, likewise an `Exported`.
const DERIVATIVE: usize = 17;
/// Versions of its schema: eleven by 2026.
const MAX_VERSION: u16 = 99;
/// Derivatives of derivatives.
const MAX_ORDER: usize = 8;

/// Whether the first bytes are those of a file of `jax.export`.
pub(crate) fn looks_exported(head: &[u8]) -> bool {
    exported_vector(head, number(head, 0)).is_some_and(|vector| {
        let start = head.get(vector + 4..).unwrap_or_default();
        start.len() < BYTECODE.len() || start.starts_with(BYTECODE)
    })
}

/// The bytecode of a file of `jax.export`.
pub(crate) fn exported(file: &[u8]) -> Result<&[u8], ScanErrorKind> {
    exported_in(file, number(file, 0))
}

/// The bytecode of its derivatives, the first one first.
pub(crate) fn exported_derivatives(file: &[u8]) -> Result<Vec<&[u8]>, ScanErrorKind> {
    let mut modules = Vec::new();
    let mut table = number(file, 0);
    for _ in 0..MAX_ORDER {
        let field = table.and_then(|table| exported_field(file, table, DERIVATIVE));
        let Some(field) = field else { break };
        table = number(file, field).and_then(|offset| field.checked_add(offset));
        modules.push(exported_in(file, table)?);
    }
    Ok(modules)
}

/// The bytecode of a table.
fn exported_in(file: &[u8], table: Option<usize>) -> Result<&[u8], ScanErrorKind> {
    let cut = |what: &str| ScanErrorKind::Truncated { what: what.to_owned(), offset: file.len() as u64 };
    let vector = exported_vector(file, table).ok_or_else(|| cut("a file of `jax.export` without its module"))?;
    let length = number(file, vector).ok_or_else(|| cut("the length of the module"))?;
    let module = file.get(vector + 4..).and_then(|rest| rest.get(..length));
    module.ok_or_else(|| cut("the module of a file of `jax.export`"))
}

/// Where the vector with the module of a table begins, with its length.
fn exported_vector(head: &[u8], table: Option<usize>) -> Option<usize> {
    let version = short(head, exported_field(head, table?, VERSION)?)?;
    let module = exported_field(head, table?, MODULE)?;
    let vector = module.checked_add(number(head, module)?)?;
    (1..=MAX_VERSION).contains(&version).then_some(vector)
}

/// Where a field of a table is; `None` if the table lacks it.
fn exported_field(head: &[u8], table: usize, field: usize) -> Option<usize> {
    // the list of fields may be before or behind its table
    let back = i32::from_le_bytes(*head.get(table..)?.first_chunk()?);
    let fields = usize::try_from(i64::try_from(table).ok()? - i64::from(back)).ok()?;
    let size = usize::from(short(head, fields)?);
    let at = 4 + 2 * field;
    let offset = (at + 2 <= size).then(|| short(head, fields.checked_add(at)?))?.filter(|&offset| offset > 0);
    table.checked_add(usize::from(offset?))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let number = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    usize::try_from(number).ok()
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|pair| u16::from_le_bytes(*pair))
}
