//! The structure of HLO text: module line, computations, instructions with operands, calls and names.
//!
//! As in XLA's parser, white space means nothing: a text may be indented, flat, or wrapped anywhere.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::escape::Escapes;
use super::graph::{Computation, Head, Node, NodeId, NodeKind, Type, Value};
use super::text_cursor::{Cursor, balanced, parts, quoted};

/// Deepest nesting of tuples that is read.
const MAX_TUPLES: usize = 32;
/// The word that begins a module.
const MODULE: &[u8] = b"HloModule";
/// Tables that later versions of XLA print after that line.
const TABLES: [&[u8]; 4] = [b"FileNames", b"FunctionNames", b"FileLocations", b"StackFrames"];
static OP_NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"op_name=\""));
/// Of an instruction's metadata, and at the end of the frontend attribute `xla_metadata_payload`.
static PAYLOAD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"metadata_payload=\""));

/// Reads a whole text; `each` receives its computations in file order.
pub(crate) fn read<'a>(text: &'a [u8], each: &mut dyn FnMut(Computation<'a>)) -> Head {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = Reader { cursor: Cursor::new(text), head: Head::default(), has_sharding: false };
    let has_entry = reader.module(each);
    if reader.head.cut.is_none() && !has_entry && reader.head.module.is_some() {
        reader.head.cut = Some("it has no `ENTRY` computation".to_owned());
    }
    reader.finish()
}

/// The first lines of a module that is too large to be read completely.
pub(crate) fn read_head(head: &[u8]) -> Head {
    let start = memchr::memmem::find(head, MODULE).unwrap_or(head.len());
    let cursor = Cursor::new(head.get(start + MODULE.len()..).unwrap_or_default());
    let mut reader = Reader { cursor, head: Head::default(), has_sharding: false };
    reader.module_line();
    reader.finish()
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    head: Head,
    has_sharding: bool,
}

/// By byte, whether it may be part of a name, a keyword or a number.
const WORD: [bool; 256] = {
    let mut table = [true; 256];
    let ends = b" \t\n\r\x0c=(){}[],\"";
    let mut at = 0;
    while at < ends.len() {
        table[ends[at] as usize] = false;
        at += 1;
    }
    table
};

pub(super) fn is_word(byte: u8) -> bool {
    WORD[usize::from(byte)]
}

pub(super) fn without_sign(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"%").unwrap_or(name)
}

impl<'a> Reader<'a> {
    /// Reads everything; returns whether there is an entry computation.
    fn module(&mut self, each: &mut dyn FnMut(Computation<'a>)) -> bool {
        let mut has_entry = false;
        while self.cursor.next().is_some() {
            let start = self.cursor.clone();
            let word = self.cursor.word(is_word);
            if word == MODULE && self.head.module.is_none() {
                self.module_line();
                continue;
            }
            let is_entry = word == b"ENTRY";
            let name = if is_entry { self.cursor.word(is_word) } else { word };
            if !name.is_empty() && name.iter().all(u8::is_ascii_digit) {
                // a row of a table of files, functions or frames
                value(&mut self.cursor);
            } else if !name.is_empty() && self.computation_begins() {
                has_entry |= is_entry;
                each(Computation { is_entry, ..self.computation(without_sign(name)) });
            } else if !TABLES.contains(&word) {
                self.cursor = start;
                self.stray_line();
            }
        }
        has_entry
    }

    /// Passes a line that belongs to no computation: prose around the module, or a piece of one.
    fn stray_line(&mut self) {
        let (start, line) = (self.cursor.clone(), self.cursor.line());
        let name = self.cursor.word(is_word);
        if !name.is_empty() && self.cursor.eat(b"=") && self.shape().is_some() {
            self.head.unread.add(line);
        }
        self.cursor = start;
        self.cursor.skip_line();
    }

    /// The module's name and attributes.
    fn module_line(&mut self) {
        let name = without_sign(self.cursor.word(is_word));
        self.head.module = Some(String::from_utf8_lossy(name).into_owned()).filter(|name| !name.is_empty());
        while let Some((key, value)) = attribute(&mut self.cursor) {
            match key {
                b"is_scheduled" => self.head.is_optimized = value == b"true",
                b"num_partitions" => self.head.partitions = number(value),
                _ => {}
            }
        }
    }

    fn finish(self) -> Head {
        let mut head = self.head;
        head.partitioned = match (head.is_optimized, head.partitions.is_some_and(|count| count > 1)) {
            _ if head.module.is_none() => None,
            // the scheduler runs long after the partitioner
            (true, many) => Some(many),
            (false, false) => Some(false),
            // shardings are gone once the partitioner has acted on them
            (false, true) if self.has_sharding => Some(false),
            (false, true) => None,
        };
        head
    }

    /// Passes what stands between a computation's name and its first instruction.
    fn computation_begins(&mut self) -> bool {
        if self.cursor.next() == Some(b'(') {
            self.cursor.bracketed();
            if !self.cursor.eat(b"->") || self.shape().is_none() {
                return false;
            }
        }
        self.cursor.eat(b"{")
    }

    fn computation(&mut self, name: &'a [u8]) -> Computation<'a> {
        let mut nodes = Vec::new();
        let mut places = HashMap::new();
        let mut returns = Vec::new();
        loop {
            match self.cursor.next() {
                None => {
                    self.head.cut = Some("its last computation is not closed".to_owned());
                    break;
                }
                Some(b'}') => {
                    self.cursor.take(1);
                    // the thread that executes it
                    while attribute(&mut self.cursor).is_some() {}
                    break;
                }
                Some(_) => {
                    let (start, line) = (self.cursor.clone(), self.cursor.line());
                    match self.instruction(line, &mut nodes, &mut places) {
                        Some(true) => returns = vec![Value::whole(nodes.len().saturating_sub(1))],
                        Some(false) => {}
                        None => {
                            self.cursor = start;
                            self.cursor.skip_line();
                            self.head.unread.add(line);
                        }
                    }
                }
            }
        }
        Computation { name: Cow::Borrowed(name), nodes, returns, ..Computation::default() }
    }

    /// Reads an instruction; true if it is the root. `None` if none comes next.
    fn instruction(
        &mut self,
        line: u64,
        nodes: &mut Vec<Node<'a>>,
        places: &mut HashMap<&'a [u8], NodeId>,
    ) -> Option<bool> {
        let mut name = self.cursor.word(is_word);
        let is_root = name == b"ROOT";
        if is_root {
            name = self.cursor.word(is_word);
        }
        let name = without_sign(name);
        if name.is_empty() || !self.cursor.eat(b"=") {
            return None;
        }
        let start = self.cursor.rest();
        let results = vec![self.shape()?];
        let opcode = self.cursor.word(is_word);
        let given = if self.cursor.next() == Some(b'(') { self.cursor.bracketed()? } else { return None };
        let kind = match opcode {
            b"constant" => NodeKind::Constant,
            b"parameter" => NodeKind::Argument,
            _ => NodeKind::Operation,
        };
        let (name_text, opcode_text) = (String::from_utf8_lossy(name), String::from_utf8_lossy(opcode));
        let mut node =
            Node { kind, name: name_text, opcode: opcode_text, results, line: Some(line), ..Node::default() };
        if kind == NodeKind::Operation {
            let operands = parts(given).filter_map(|part| places.get(operand_name(part)));
            node.operands = operands.map(|&place| Value::whole(place)).collect();
        }
        self.head.census.instruction(&node.name);
        while let Some((key, value)) = attribute(&mut self.cursor) {
            self.describe(key, value, &mut node);
        }
        let length = start.len() - self.cursor.rest().len();
        node.attributes = start.get(..length).unwrap_or_default().into();
        places.insert(name, nodes.len());
        nodes.push(node);
        Some(is_root)
    }

    fn describe(&mut self, key: &[u8], value: &'a [u8], node: &mut Node<'a>) {
        match key {
            b"to_apply" | b"calls" | b"body" | b"condition" | b"true_computation" | b"false_computation"
            | b"select" | b"scatter" => {
                node.called.push(Cow::Borrowed(without_sign(value)));
            }
            b"branch_computations" | b"called_computations" => {
                let inner = value.strip_prefix(b"{").and_then(|inner| inner.strip_suffix(b"}")).unwrap_or(value);
                node.called.extend(parts(inner).map(|callee| Cow::Borrowed(without_sign(callee))));
            }
            b"index" if &*node.opcode == "get-tuple-element" => {
                let index = number(value).and_then(|index| usize::try_from(index).ok());
                node.operands.iter_mut().for_each(|operand| operand.part = index);
            }
            b"sharding" => self.has_sharding = true,
            b"metadata" | b"frontend_attributes" => {
                if let Some(name) = string_after(value, &OP_NAME) {
                    self.head.census.name(name, Escapes::C);
                    node.scope = Cow::Borrowed(name);
                }
                if let Some(payload) = string_after(value, &PAYLOAD) {
                    node.payload = Cow::Borrowed(payload);
                }
            }
            _ => {}
        }
    }

    /// `f32[2,128]{1,0}`, or a tuple of such in parentheses.
    fn shape(&mut self) -> Option<Type> {
        shape(&mut self.cursor, 0)
    }
}

/// One attribute: a comma, its name, and its value if it has one.
pub(super) fn attribute<'a>(cursor: &mut Cursor<'a>) -> Option<(&'a [u8], &'a [u8])> {
    if !cursor.eat(b",") {
        return None;
    }
    let key = cursor.word(is_word);
    let value = if cursor.eat(b"=") { value(cursor) } else { &[] };
    Some((key, value))
}

/// A value, up to the comma, the closing bracket or the name that follows it.
fn value<'a>(cursor: &mut Cursor<'a>) -> &'a [u8] {
    cursor.next();
    let start = cursor.rest();
    loop {
        match cursor.rest().first() {
            Some(b'(' | b'[' | b'{') => {
                let length = balanced(cursor.rest());
                cursor.take(length);
            }
            Some(b'"') => {
                let length = quoted(cursor.rest().get(1..).unwrap_or_default()).len() + 2;
                cursor.take(length);
            }
            Some(&byte) if is_word(byte) => {
                cursor.word(is_word);
            }
            // `mesh['x'=2] {'x'}` holds a blank; nothing but a value goes on with a bracket
            Some(byte) if byte.is_ascii_whitespace() => {
                let before = cursor.clone();
                if !matches!(cursor.next(), Some(b'(' | b'[' | b'{')) {
                    *cursor = before;
                    break;
                }
            }
            Some(b'=') => {
                cursor.take(1);
            }
            _ => break,
        }
    }
    let length = start.len() - cursor.rest().len();
    start.get(..length).unwrap_or_default()
}

fn shape(cursor: &mut Cursor<'_>, depth: usize) -> Option<Type> {
    if cursor.next()? == b'(' {
        if depth == MAX_TUPLES {
            return Some(Type::Other(String::from_utf8_lossy(cursor.bracketed()?).into()));
        }
        cursor.take(1);
        let mut elements = Vec::new();
        while !cursor.eat(b")") {
            elements.push(shape(cursor, depth + 1)?);
            cursor.eat(b",");
        }
        return Some(Type::Tuple(elements));
    }
    let start = cursor.rest();
    if cursor.word(is_word).is_empty() || cursor.next() != Some(b'[') {
        return None;
    }
    cursor.bracketed();
    let spelled = start.get(..start.len() - cursor.rest().len()).unwrap_or_default();
    // a computation may begin behind a shape: only numbers and colons begin a layout
    if cursor.next() == Some(b'{') && matches!(cursor.rest().get(1), Some(b'0'..=b'9' | b':' | b'}')) {
        cursor.bracketed();
    }
    let spelled = String::from_utf8_lossy(spelled);
    Some(spelled.parse().map_or_else(|_| unusual(&spelled), Type::Array))
}

/// A shape with blanks in it, with dimensions of at most some length, which count with that length, or of no array.
fn unusual(spelled: &str) -> Type {
    let spelled: String = spelled.split_ascii_whitespace().collect();
    spelled.replace("<=", "").parse().map_or_else(|_| Type::Other(spelled.into()), Type::Array)
}

/// The name of an operand. Older texts print its shape before the name, and comments count the operands.
fn operand_name(operand: &[u8]) -> &[u8] {
    let name = operand.rsplit(|&byte| byte.is_ascii_whitespace() || byte == b'/').next().unwrap_or_default();
    without_sign(name)
}

/// The string that follows a key within `{…}`, still escaped.
fn string_after<'a>(value: &'a [u8], key: &Finder<'_>) -> Option<&'a [u8]> {
    let at = key.find(value)?;
    value.get(at + key.needle().len()..).map(quoted)
}

pub(super) fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
