//! What stands in brackets of an operation: operands, and arguments of its regions.

use super::state::{Operation, Reader, push};
use super::types::{self, angled, spelling};
use super::values::Results;
use super::words::{is_word, shown};
use crate::hlo::graph::{Node, NodeId, NodeKind, Type};
use crate::hlo::text_cursor::quoted;

fn is_value(byte: u8) -> bool {
    is_word(byte) || byte == b'-'
}

impl<'a> Reader<'a, '_> {
    /// A value's name after its `%`, and the number of the result that is meant.
    pub(super) fn value_name(&mut self) -> (&'a [u8], Option<usize>) {
        self.cursor.take(1);
        let name = self.cursor.word(is_value);
        if self.cursor.rest().first() != Some(&b'#') {
            return (name, None);
        }
        self.cursor.take(1);
        let number = self.cursor.word(|byte| byte.is_ascii_digit());
        // a number too large to be one names no value
        (name, Some(std::str::from_utf8(number).ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX)))
    }

    /// An operand of an operation.
    pub(super) fn operand(&mut self, name: &'a [u8], number: Option<usize>, read: &mut Operation<'a>) {
        match (self.function.values.value(name, number), read.node) {
            (Some(value), Some(node)) => {
                self.function.nodes.get_mut(node).into_iter().for_each(|node| node.operands.push(value));
            }
            (Some(_), None) => {}
            (None, _) => read.is_unread = true,
        }
    }

    /// A new argument of the regions of an operation, or of a function.
    pub(super) fn declare(&mut self, name: &'a [u8], shown: Option<Type>, read: &mut Operation<'a>) -> NodeId {
        let line = Some(self.cursor.line());
        let argument = Node {
            kind: NodeKind::Argument,
            results: shown.into_iter().collect(),
            holder: read.node,
            line,
            ..Node::default()
        };
        let node = push(&mut self.function, argument);
        self.function.values.define(name, Results { node, first: 0, count: 1, is_part: false });
        node
    }

    /// Reads a list in brackets: operands, arguments with their types, arguments with their first values, or anything
    /// else, which is passed.
    pub(super) fn group(&mut self, read: &mut Operation<'a>) {
        let (mut depth, mut last) = (0_usize, None);
        while let Some(byte) = self.cursor.next() {
            match byte {
                b'(' | b'[' => {
                    self.cursor.take(1);
                    depth += 1;
                }
                b')' | b']' => {
                    self.cursor.take(1);
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return;
                    }
                }
                b'}' => return,
                b'%' => last = self.operand_or_argument(read),
                b'{' => {
                    let text = self.dictionary();
                    self.argument(last).into_iter().for_each(|argument| argument.attributes = text.into());
                }
                b'<' => {
                    self.cursor.take(angled(self.cursor.rest()));
                }
                b'"' => {
                    // where a text is printed prettily, the location is a bare string
                    self.name_argument(last);
                    self.cursor.take(quoted(self.cursor.rest().get(1..).unwrap_or_default()).len() + 2);
                }
                _ => {
                    let word = self.cursor.word(is_word);
                    if word == b"loc" && self.cursor.next() == Some(b'(') {
                        let inside = self.cursor.rest().get(1..).unwrap_or_default();
                        self.cursor.bracketed();
                        self.name_argument_at(last, inside);
                    } else if word.is_empty() {
                        self.cursor.take(if self.cursor.rest().starts_with(b"->") { 2 } else { 1 });
                    }
                }
            }
        }
    }

    fn argument(&mut self, argument: Option<NodeId>) -> Option<&mut Node<'a>> {
        self.function.nodes.get_mut(argument?)
    }

    fn name_argument(&mut self, argument: Option<NodeId>) {
        let location = self.cursor.rest();
        self.name_argument_at(argument, location);
    }

    /// The location of an argument says what the program calls it; it is no scope.
    fn name_argument_at(&mut self, argument: Option<NodeId>, location: &'a [u8]) {
        if argument.is_some() {
            let name = shown(self.locations.scope(location.trim_ascii_start()));
            self.argument(argument)
                .into_iter()
                .filter(|node| node.name.is_empty())
                .for_each(|node| node.name = name.clone());
        }
    }

    /// `%a` or `%a: type` for an operand, `%a: type` or `%a = %first` for a new argument, which is returned.
    fn operand_or_argument(&mut self, read: &mut Operation<'a>) -> Option<NodeId> {
        let (name, number) = self.value_name();
        if self.cursor.eat(b"=") {
            return Some(self.argument_with_value(name, read));
        }
        if !self.cursor.eat(b":") {
            self.operand(name, number, read);
            return None;
        }
        let spelled = spelling(&mut self.cursor);
        if self.function.values.is_known(name) || spelled.is_none() {
            self.operand(name, number, read);
            return None;
        }
        let shown = spelled.map(|spelled| types::read(spelled, &self.aliases));
        Some(self.declare(name, shown, read))
    }

    /// An argument of a loop, whose type follows those of the others.
    pub(super) fn argument_with_value(&mut self, name: &'a [u8], read: &mut Operation<'a>) -> NodeId {
        if self.cursor.next() == Some(b'%') {
            let (name, number) = self.value_name();
            self.operand(name, number, read);
        }
        let node = self.declare(name, None, read);
        read.declared.push(node);
        node
    }
}
