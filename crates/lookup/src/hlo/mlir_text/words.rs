//! The words of MLIR, and what stands behind a name among attributes.

use std::borrow::Cow;

use crate::hlo::escape::{Escapes, Unescaper};
use crate::hlo::text_cursor::{Cursor, balanced, parts, quoted};

/// Whether a byte may be part of a word, such as the name of an operation.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$')
}

/// A name as people write it.
pub(super) fn shown(name: Cow<'_, [u8]>) -> Cow<'_, str> {
    match name {
        Cow::Borrowed(plain) if memchr::memchr(b'\\', plain).is_none() => String::from_utf8_lossy(plain),
        escaped => {
            let name: Vec<u8> = Unescaper::new(&escaped, Escapes::Mlir).collect();
            Cow::Owned(String::from_utf8_lossy(&name).into_owned())
        }
    }
}

/// Whether an operation is a function of any dialect.
pub(super) fn is_function(opcode: &[u8]) -> bool {
    opcode == b"func" || opcode.ends_with(b".func") || opcode.ends_with(b".func_v1")
}

pub(super) fn is_return(opcode: &[u8]) -> bool {
    opcode == b"return" || opcode == b"func.return" || opcode == b"vhlo.return_v1"
}

/// What follows `key =` in the attributes of an operation.
pub(crate) fn attribute<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    memchr::memmem::find_iter(text, key).find_map(|at| {
        let before = at.checked_sub(1).and_then(|at| text.get(at));
        let mut cursor = Cursor::new(text.get(at + key.len()..)?);
        let is_whole = before.is_none_or(|&byte| !is_word(byte)) && cursor.eat(b"=");
        is_whole.then(|| cursor.next()).flatten().map(|_| cursor.rest())
    })
}

/// A symbol without its sign and quotes: `@main`, `@"a b"`, or the string that names it in the generic form.
pub(super) fn symbol(text: &[u8]) -> &[u8] {
    let text = text.strip_prefix(b"@").unwrap_or(text);
    match text.strip_prefix(b"\"") {
        Some(text) => quoted(text),
        None => text.get(..symbol_length(text)).unwrap_or_default(),
    }
}

/// Length of a symbol's name, without its sign.
pub(super) fn symbol_length(text: &[u8]) -> usize {
    match text.strip_prefix(b"\"") {
        Some(text) => quoted(text).len() + 2,
        None => text.iter().take_while(|&&byte| is_word(byte) || byte == b'-').count(),
    }
}

/// The dictionaries of a list such as `arg_attrs = [{}, {jax.buffer_donor = true}]`.
pub(super) fn dictionaries<'a>(text: &'a [u8], key: &[u8]) -> Option<Vec<&'a [u8]>> {
    let list = attribute(text, key).filter(|list| list.starts_with(b"["))?;
    let inner = list.get(1..balanced(list).saturating_sub(1))?;
    Some(parts(inner).collect())
}
