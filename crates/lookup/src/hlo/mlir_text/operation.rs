//! One operation of any dialect, in its pretty or its generic form.

use std::borrow::Cow;

use super::state::{Kind, Operation, Reader, push};
use super::values::Results;
use super::words::{attribute, is_function, is_return, is_word, shown, symbol};
use crate::hlo::graph::{Node, NodeId, NodeKind};
use crate::hlo::text_cursor::quoted;

/// Deepest nesting of regions that is read.
const MAX_REGIONS: usize = 100;

impl<'a> Reader<'a, '_> {
    /// Reads the region whose `{` comes next.
    pub(super) fn region(&mut self, holder: Option<NodeId>) {
        if self.depth == MAX_REGIONS {
            let line = self.cursor.line();
            self.head.unread.add(line);
            self.cursor.bracketed();
            return;
        }
        self.cursor.take(1);
        self.depth += 1;
        let mark = self.function.values.mark();
        self.operations(holder);
        self.function.values.forget(mark);
        self.depth -= 1;
    }

    fn operations(&mut self, holder: Option<NodeId>) {
        loop {
            match self.cursor.next() {
                None => {
                    self.head.cut.get_or_insert_with(|| "its last function is not closed".to_owned());
                    return;
                }
                Some(b'}') => {
                    self.cursor.take(1);
                    return;
                }
                Some(b'^') => self.block(holder),
                Some(b'%' | b'"') => self.operation(holder),
                Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => self.operation(holder),
                Some(_) => {
                    let line = self.cursor.line();
                    self.head.unread.add(line);
                    self.cursor.skip_line();
                }
            }
        }
    }

    /// `^bb0(%arg0: tensor<2xf32>):`.
    fn block(&mut self, holder: Option<NodeId>) {
        self.cursor.take(1);
        self.cursor.word(is_word);
        if self.cursor.next() == Some(b'(') {
            self.group(&mut Operation::new(Kind::Plain, holder, false));
        }
        self.cursor.eat(b":");
    }

    /// Reads the operation that comes next.
    pub(super) fn operation(&mut self, holder: Option<NodeId>) {
        let line = self.cursor.line();
        let results = self.results();
        let is_generic = self.cursor.next() == Some(b'"');
        let opcode = if is_generic {
            let opcode = quoted(self.cursor.rest().get(1..).unwrap_or_default());
            self.cursor.take(opcode.len() + 2);
            opcode
        } else {
            self.cursor.word(is_word)
        };
        match opcode {
            b"" => {
                self.head.unread.add(line);
                self.cursor.skip_line();
            }
            b"module" | b"builtin.module" => self.module(is_generic),
            _ if is_function(opcode) => self.function(is_generic),
            _ => self.plain(holder, opcode, &results, line, is_generic),
        }
    }

    /// The names before the `=`, each with how many results it stands for.
    fn results(&mut self) -> Vec<(&'a [u8], usize)> {
        let mut results = Vec::new();
        while self.cursor.next() == Some(b'%') {
            let (name, _) = self.value_name();
            let mut count = 1;
            if self.cursor.eat(b":") {
                let digits = self.cursor.word(|byte| byte.is_ascii_digit());
                count = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
            }
            results.push((name, count));
            self.cursor.eat(b",");
        }
        self.cursor.eat(b"=");
        results
    }

    fn plain(
        &mut self,
        holder: Option<NodeId>,
        opcode: &'a [u8],
        results: &[(&'a [u8], usize)],
        line: u64,
        is_generic: bool,
    ) {
        let kind = if opcode.ends_with(b"constant") || opcode.ends_with(b".constant_v1") {
            NodeKind::Constant
        } else {
            NodeKind::Operation
        };
        let opcode_text = String::from_utf8_lossy(opcode);
        let node = Node { kind, opcode: opcode_text, holder, line: Some(line), ..Node::default() };
        let place = push(&mut self.function, node);
        let mut read = Operation::new(Kind::Plain, Some(place), is_generic);
        let mark = self.function.values.mark();
        self.body(&mut read);
        self.function.values.forget(mark);
        for (&argument, shown) in read.declared.iter().zip(&read.types) {
            self.function.nodes.get_mut(argument).into_iter().for_each(|node| node.results.push(shown.clone()));
        }
        if is_return(opcode) && holder.is_none() && place + 1 == self.function.nodes.len() {
            let operands = self.function.nodes.pop().map(|node| node.operands);
            self.function.returns = operands.unwrap_or_default();
        } else {
            self.finish(place, opcode, &mut read);
            self.define(place, results, &mut read);
        }
        // what computes stands in a function
        if read.is_unread || !self.function.is_function && !results.is_empty() {
            self.head.unread.add(line);
        }
    }

    /// What an operation calls, and what it is called.
    fn finish(&mut self, place: NodeId, opcode: &'a [u8], read: &mut Operation<'a>) {
        let called = self.callees(opcode, &read.symbols, read.text);
        let target = if opcode.ends_with(b"custom_call") {
            let target = attribute(read.text, b"call_target_name").or(read.symbols.first().copied());
            target.map(|target| Cow::Borrowed(symbol(target)))
        } else {
            called.first().filter(|_| !opcode.ends_with(b"composite")).cloned()
        };
        if let Some(node) = self.function.nodes.get_mut(place) {
            node.name = target.map_or_else(|| node.opcode.clone(), shown);
            node.called = called;
            node.attributes = read.text.into();
        }
    }

    /// Defines the results of an operation, of which all or only the last have a type that is shown.
    fn define(&mut self, node: NodeId, results: &[(&'a [u8], usize)], read: &mut Operation<'a>) {
        let total = results.iter().fold(0_usize, |sum, (_, count)| sum.saturating_add(*count));
        let mut types = std::mem::take(&mut read.types);
        if total == 1 {
            types.drain(..types.len().saturating_sub(1));
        } else if total != types.len() {
            read.is_unread |= total > 0;
            types.clear();
        }
        self.function.nodes.get_mut(node).into_iter().for_each(|node| node.results = std::mem::take(&mut types));
        let mut first = 0;
        for &(name, count) in results {
            self.function.values.define(name, Results { node, first, count, is_part: count != total });
            first = first.saturating_add(count);
        }
    }
}
