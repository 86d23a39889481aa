//! The structure of StableHLO text: functions, operations with their regions, operands, types, calls and locations.
//!
//! As in MLIR's parser, white space means nothing, and no dialect is known by its own syntax: an operation goes on
//! until the next one begins. So its pretty form, the generic one, and the operations of any dialect are read alike.
//! Locations are aliases (`#loc12 = loc(…)`) that the printer may put before or after their use, so they are read
//! first.

mod body;
mod function;
mod group;
mod location;
mod operation;
mod types;
mod values;

use std::collections::HashMap;

use self::function::Function;
pub(crate) use self::function::attribute;
use self::location::Locations;
use self::types::spelling;
use super::graph::{Computation, Head, Type};
use super::text_cursor::Cursor;

/// Deepest nesting of regions that is read.
const MAX_REGIONS: usize = 100;

/// Reads a whole text; `each` receives its functions, each after the functions within it.
pub(crate) fn read<'a>(text: &'a [u8], each: &mut dyn FnMut(Computation<'a>)) -> Head {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut head = Head::default();
    let locations = Locations::defined_in(text, &mut head.census);
    let cursor = Cursor::new(text);
    let function = Function::default();
    let aliases = HashMap::new();
    let mut reader = Reader { cursor, each, head, locations, aliases, function, modules: Vec::new(), depth: 0 };
    reader.text();
    let Reader { mut head, locations, .. } = reader;
    if head.cut.is_none() {
        head.cut = locations.missing.map(|missing| format!("location `{missing}` is used and not defined"));
    }
    head
}

/// The functions of a whole text.
pub(crate) fn functions(text: &[u8]) -> Vec<Computation<'_>> {
    let mut functions = Vec::new();
    read(text, &mut |function| functions.push(function));
    functions
}

/// A type as MLIR spells it.
pub(crate) fn read_type(spelled: &[u8]) -> Type {
    types::read(spelled, &HashMap::new())
}

/// The first lines of a module that is too large to be read completely.
pub(crate) fn read_head(head: &[u8]) -> Head {
    read(head, &mut |_| {})
}

/// A text in the middle of being read.
struct Reader<'a, 'e> {
    cursor: Cursor<'a>,
    each: &'e mut dyn FnMut(Computation<'a>),
    head: Head,
    locations: Locations<'a>,
    /// The spellings behind aliases of types, such as `!t = tensor<2xf32>`.
    aliases: HashMap<&'a [u8], &'a [u8]>,
    /// The function that is being read.
    function: Function<'a>,
    /// The names of the modules around, without that of the outermost one, which no reference names.
    modules: Vec<&'a [u8]>,
    /// How many regions are open.
    depth: usize,
}

/// Whether a byte may be part of a word, such as the name of an operation.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$')
}

impl<'a> Reader<'a, '_> {
    /// Reads modules, functions and aliases; lines of anything else are prose around them.
    fn text(&mut self) {
        while let Some(byte) = self.cursor.next() {
            if byte == b'!' && self.alias_of_type() {
                continue;
            }
            if byte == b'#' {
                self.definition();
            } else if self.module_or_function_begins() {
                self.operation(None);
            } else {
                self.cursor.skip_line();
            }
        }
    }

    /// `!t = tensor<2xf32>`.
    fn alias_of_type(&mut self) -> bool {
        let start = self.cursor.rest();
        self.cursor.take(1);
        let name = start.get(..self.cursor.word(is_word).len() + 1).unwrap_or_default();
        let spelled = if self.cursor.eat(b"=") { spelling(&mut self.cursor) } else { None };
        if let Some(spelled) = spelled {
            self.aliases.insert(name, spelled);
        }
        spelled.is_some()
    }

    fn module_or_function_begins(&self) -> bool {
        let mut ahead = self.cursor.clone();
        if [&b"\"builtin.module\""[..], b"\"func.func\""].iter().any(|name| ahead.eat(name)) {
            return true;
        }
        match ahead.word(is_word) {
            b"module" | b"builtin.module" => {
                matches!(ahead.next(), Some(b'@' | b'{')) || ahead.word(is_word) == b"attributes"
            }
            b"func.func" => ahead.next() == Some(b'@') || !ahead.word(is_word).is_empty(),
            _ => false,
        }
    }
}
