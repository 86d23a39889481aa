//! Shapes with their layouts: `(bf16[8,16]{1,0:T(8,128)(2,1)S(1)}, token[])`.

use crate::hlo::hlo_text::{is_word, number};
use crate::hlo::schema::xla_data::{LayoutProto, PrimitiveType, ShapeProto};
use crate::hlo::text_cursor::{Cursor, parts};

/// Deepest nesting of tuples that is read.
const MAX_TUPLES: usize = 32;
/// A dimension without a bound: `Shape::kUnboundedSize`, the smallest 64-bit integer.
const UNBOUNDED: u64 = 1 << 63;

/// Takes the shape that comes next; `None` if none does.
pub(super) fn shape(cursor: &mut Cursor<'_>) -> Option<ShapeProto> {
    within(cursor, 0)
}

fn within(cursor: &mut Cursor<'_>, depth: usize) -> Option<ShapeProto> {
    if cursor.next()? == b'(' {
        if depth == MAX_TUPLES {
            return None;
        }
        cursor.take(1);
        let element_type = PrimitiveType::Tuple as i32;
        let mut tuple = ShapeProto { element_type, ..ShapeProto::default() };
        while !cursor.eat(b")") {
            tuple.tuple_shapes.push(within(cursor, depth + 1)?);
            cursor.eat(b",");
        }
        return Some(tuple);
    }
    let name = String::from_utf8_lossy(cursor.word(is_word)).to_ascii_uppercase();
    let name = if name == "OPAQUE" { "OPAQUE_TYPE" } else { &name };
    let element_type = PrimitiveType::from_str_name(name).unwrap_or_default() as i32;
    let dimensions: Vec<u64> = parts(cursor.bracketed()?).map(dimension).collect::<Option<_>>()?;
    let has_layout = cursor.next() == Some(b'{') && matches!(cursor.rest().get(1), Some(b'0'..=b'9' | b':' | b'}'));
    let layout = if has_layout { cursor.bracketed().map(layout) } else { None };
    let mut shape = ShapeProto { element_type, dimensions, ..ShapeProto::default() };
    // without one, the last dimension of an array is the fastest
    let minor_to_major = || (0..shape.dimensions.len() as u64).rev().collect();
    let plain = || LayoutProto { minor_to_major: minor_to_major(), ..LayoutProto::default() };
    shape.layout = layout.or_else(|| shape.dtype().map(|_| plain())).map(Box::new);
    Some(shape)
}

/// `8`, `<=8` or `?`.
fn dimension(text: &[u8]) -> Option<u64> {
    if text == b"?" { Some(UNBOUNDED) } else { number(text.strip_prefix(b"<=").unwrap_or(text).trim_ascii()) }
}

/// `1,0:T(8,128)E(4)S(1)`.
fn layout(text: &[u8]) -> LayoutProto {
    let (order, rest) = match memchr::memchr(b':', text) {
        Some(at) => text.split_at(at),
        None => (text, &[][..]),
    };
    let property = |name: &[u8]| {
        let after = memchr::memmem::find(rest, name).and_then(|at| rest.get(at + name.len()..))?;
        number(after.get(..after.iter().position(|byte| !byte.is_ascii_digit())?)?)
    };
    LayoutProto {
        minor_to_major: parts(order).filter_map(number).collect(),
        element_size_in_bits: property(b"E(").unwrap_or_default(),
        memory_space: property(b"S(").unwrap_or_default(),
    }
}
