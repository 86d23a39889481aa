//! Types as MLIR spells them.

use std::collections::HashMap;

use super::words::is_word;
use crate::array::ArraySpec;
use crate::hlo::graph::Type;
use crate::hlo::text_cursor::{Cursor, quoted};

/// Deepest nesting of tuples and of function types that is read.
const MAX_TYPES: usize = 32;
const MAX_ALIAS_BYTES: usize = 512;

/// Length of the text up to the `>` that closes the `<` at its start; those in strings and arrows do not count.
pub(super) fn angled(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(hit) = text.get(at..).and_then(|rest| memchr::memchr3(b'<', b'>', b'"', rest)) {
        at += hit + 1;
        let (before, after) = (at.checked_sub(2).and_then(|at| text.get(at)), text.get(at));
        match text.get(at - 1) {
            Some(b'"') => at += quoted(text.get(at..).unwrap_or_default()).len() + 1,
            // an arrow, and the comparisons of affine sets
            Some(b'>') if before == Some(&b'-') || after == Some(&b'=') => {}
            Some(b'<') if after == Some(&b'=') => {}
            Some(b'<') => depth += 1,
            _ => depth = depth.saturating_sub(1),
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Takes one type; `None` if none comes next.
pub(super) fn spelling<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    cursor.next();
    let start = cursor.rest();
    for _ in 0..MAX_TYPES {
        if cursor.next() == Some(b'(') {
            cursor.bracketed();
            if !cursor.eat(b"->") {
                break;
            }
            continue;
        }
        if cursor.rest().first() == Some(&b'!') {
            cursor.take(1);
        } else if !cursor.rest().first().is_some_and(u8::is_ascii_alphabetic) {
            return None;
        }
        let word = cursor.rest().iter().take_while(|&&byte| is_word(byte)).count();
        cursor.take(word);
        if cursor.rest().first() == Some(&b'<') {
            cursor.take(angled(cursor.rest()));
        }
        break;
    }
    start.get(..start.len() - cursor.rest().len())
}

/// The type of a spelling. An alias within another type stays one, as does one for a type that is longer than any real
/// one, because a hostile text may name it many times.
pub(super) fn read(spelled: &[u8], aliases: &HashMap<&[u8], &[u8]>) -> Type {
    let meant = aliases.get(spelled).filter(|meant| meant.len() <= MAX_ALIAS_BYTES);
    nested(meant.copied().unwrap_or(spelled), 0)
}

fn nested(spelled: &[u8], depth: usize) -> Type {
    if let Some(array) = array(spelled) {
        return Type::Array(array);
    }
    let inner = spelled.strip_prefix(b"tuple<").and_then(|inner| inner.strip_suffix(b">"));
    match inner.filter(|_| depth < MAX_TYPES) {
        Some(inner) => {
            let mut cursor = Cursor::new(inner);
            let mut elements = Vec::new();
            while let Some(element) = spelling(&mut cursor) {
                elements.push(nested(element, depth + 1));
                cursor.eat(b",");
            }
            Type::Tuple(elements)
        }
        None => Type::Other(String::from_utf8_lossy(spelled).into()),
    }
}

/// `tensor<2x128xf32>` as an array; `None` for dynamic dimensions without a bound and other elements.
fn array(spelled: &[u8]) -> Option<ArraySpec> {
    let mut rest = spelled.strip_prefix(b"tensor<")?.strip_suffix(b">")?;
    let mut dims: Vec<Option<u64>> = Vec::new();
    while rest.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'?') {
        let (dim, after) = rest.split_at_checked(rest.iter().position(|&byte| byte == b'x')?)?;
        dims.push(length(dim)?);
        rest = after.get(1..)?;
    }
    let word = rest.iter().take_while(|&&byte| is_word(byte)).count();
    let end = word + rest.get(word..).filter(|after| after.starts_with(b"<")).map_or(0, angled);
    let (element, encoding) = rest.split_at_checked(end)?;
    let is_whole = encoding.is_empty() || encoding.trim_ascii_start().starts_with(b",");
    let dtype = std::str::from_utf8(element).ok().filter(|_| is_whole)?.parse().ok()?;
    // a dimension of at most some length counts with that length, as in HLO
    let bounds = bounds(encoding);
    let known = |(at, dim): (usize, &Option<u64>)| dim.or_else(|| *bounds.get(at)?);
    Some(ArraySpec::new(dtype, dims.iter().enumerate().map(known).collect::<Option<Vec<u64>>>()?))
}

/// A length, or `None` for one that is known only at run time.
fn length(text: &[u8]) -> Option<Option<u64>> {
    if text == b"?" { Some(None) } else { std::str::from_utf8(text).ok()?.parse().ok().map(Some) }
}

/// The bounds of an encoding: `#stablehlo.bounds<8, ?>` or `#stablehlo.type_extensions<bounds = [8, ?]>`.
fn bounds(encoding: &[u8]) -> Vec<Option<u64>> {
    let list = memchr::memmem::find(encoding, b"bounds").and_then(|at| encoding.get(at + b"bounds".len()..));
    let is_other = |byte: &u8| !(byte.is_ascii_digit() || b"?, ".contains(byte));
    let begins = |byte: &u8| byte.is_ascii_digit() || *byte == b'?';
    let list = list.and_then(|list| list.get(list.iter().position(begins)?..)).unwrap_or_default();
    let list = list.get(..list.iter().position(is_other).unwrap_or(list.len())).unwrap_or_default();
    list.split(|&byte| byte == b',').map_while(|one| length(one.trim_ascii())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_told_from_what_is_none() {
        let aliases = HashMap::from([(&b"!t"[..], &b"tensor<7xi8>"[..])]);
        for (text, shown) in [
            ("tensor<f32>", "f32[]"),
            ("tensor<2x128xbf16>, next", "bf16[2,128]"),
            ("tensor<4x8xcomplex<f32>> loc(#a)", "c64[4,8]"),
            ("tensor<4xi1, #stablehlo.type_extensions<bounds = [?]>>", "pred[4]"),
            ("tensor<0x3xui8>)", "u8[0,3]"),
            ("tensor<?x4xf32, #stablehlo.bounds<8, ?>>", "f32[8,4]"),
            ("tensor<2x?xf32, #stablehlo.type_extensions<bounds = [?, 16]>>", "f32[2,16]"),
            ("!t {x = 1}", "s8[7]"),
        ] {
            let spelled = spelling(&mut Cursor::new(text.as_bytes())).unwrap();
            assert_eq!(read(spelled, &aliases), Type::Array(shown.parse().unwrap()), "{text}");
        }
        for (text, spelled) in [
            ("tensor<?x8xf32>,", "tensor<?x8xf32>"),
            ("tensor<*xf32>", "tensor<*xf32>"),
            ("tensor<4x!quant.uniform<i8:f32, 0.25:3>> x", "tensor<4x!quant.uniform<i8:f32, 0.25:3>>"),
            ("!stablehlo.token loc", "!stablehlo.token"),
            ("(f32, i32) -> tensor<2xf32> {", "(f32, i32) -> tensor<2xf32>"),
            ("memref<2xf32, affine_map<(d0) -> (d0)>>", "memref<2xf32, affine_map<(d0) -> (d0)>>"),
        ] {
            let found = spelling(&mut Cursor::new(text.as_bytes())).unwrap();
            assert_eq!(read(found, &aliases), Type::Other(spelled.into()), "{text}");
        }
        let tuple = read(b"tuple<tensor<2xf32>, tuple<tensor<7xi8>, !stablehlo.token>>", &aliases);
        let inner = Type::Tuple(vec![Type::Array("s8[7]".parse().unwrap()), Type::Other("!stablehlo.token".into())]);
        assert_eq!(tuple, Type::Tuple(vec![Type::Array("f32[2]".parse().unwrap()), inner]));
        assert_eq!(spelling(&mut Cursor::new(b"%x")), None);
        for depth in [10, 100_000] {
            let text = "tuple<".repeat(depth) + "f32" + &">".repeat(depth);
            let found = read(text.as_bytes(), &aliases);
            assert!(matches!(found, Type::Tuple(_)));
        }
    }
}
