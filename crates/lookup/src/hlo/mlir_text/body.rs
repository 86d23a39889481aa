//! What follows an operation's name, in the syntax of any dialect.

use super::location::{self, Place, alias};
use super::state::{Kind, Operation, Reader};
use super::types::{self, angled, spelling};
use super::words::{attribute, is_word, shown, symbol_length};
use crate::hlo::escape::Escapes;
use crate::hlo::graph::Type;
use crate::hlo::text_cursor::{Cursor, balanced, quoted};

/// Operations whose names have no dialect.
const BARE: [&[u8]; 3] = [b"call", b"return", b"module"];
/// The name of a label's payload in the attributes of an operation.
const PAYLOAD: &[u8] = b"xla_metadata_payload";
/// The module's attribute that says on how many devices it will run.
const PARTITIONS: &[u8] = b"mhlo.num_partitions";

/// What a word means for the operation before it.
enum Word {
    /// The next operation begins with it.
    Begins,
    /// What follows it belongs to the operation.
    Continues,
    Passed,
}

impl<'a> Reader<'a, '_> {
    /// Reads what follows an operation's name, up to the next operation or the end of its region.
    pub(super) fn body(&mut self, read: &mut Operation<'a>) {
        read.start = self.cursor.rest();
        // an operation does not begin behind a comma or an equal sign
        let mut is_continued = false;
        while let Some(byte) = self.cursor.next() {
            let was_continued = std::mem::take(&mut is_continued);
            match byte {
                b'}' => break,
                b'^' if self.block_begins() => break,
                b'%' if !was_continued && self.results_begin() => break,
                b'"' if !was_continued && self.generic_begins() => break,
                b'#' | b'!' if self.alias_begins() => break,
                // the resources of dialects at the end of a file
                b'{' if self.cursor.rest().starts_with(b"{-#") => break,
                b',' | b'=' => {
                    self.cursor.take(1);
                    is_continued = true;
                }
                _ if self.punctuation(byte, was_continued, read) => {}
                _ => match self.word(was_continued, read) {
                    Word::Begins => break,
                    Word::Continues => is_continued = true,
                    Word::Passed => {}
                },
            }
        }
        self.complete_text(read);
    }

    /// Reads what begins with this byte; false if it begins nothing but a word.
    fn punctuation(&mut self, byte: u8, was_continued: bool, read: &mut Operation<'a>) -> bool {
        match byte {
            b'%' => self.operand_or_counter(read),
            b'"' => self.string(read),
            b'(' if self.regions_begin() => self.regions(read),
            b'[' | b'<' if read.has_types => self.pretty_location(read),
            b'(' | b'[' => self.group(read),
            b'{' if was_continued || self.dictionary_begins(read) => self.attributes(read),
            b'{' => self.enter_region(read),
            b'<' => {
                self.cursor.take(angled(self.cursor.rest()));
            }
            b':' => self.types(read),
            b'-' if self.cursor.eat(b"->") => self.result_types(read),
            b'#' => self.attribute_or_location(read),
            b'!' => {
                self.cursor.take(1);
                self.cursor.word(is_word);
            }
            b'@' => {
                let length = symbol_length(self.cursor.rest().get(1..).unwrap_or_default()) + 1;
                read.symbols.push(self.cursor.take(length));
            }
            // a path where a location is printed prettily
            b'/' => {
                self.cursor.word(|byte| !byte.is_ascii_whitespace());
            }
            _ => return false,
        }
        true
    }

    /// Ends the text of an operation before what comes next.
    fn complete_text(&mut self, read: &mut Operation<'a>) {
        if !read.is_text_complete {
            read.is_text_complete = true;
            let length = read.start.len() - self.cursor.rest().len();
            read.text = read.start.get(..length).unwrap_or_default();
        }
    }

    /// Whether a block begins, rather than the name of one to go to.
    fn block_begins(&self) -> bool {
        let mut ahead = self.cursor.clone();
        ahead.take(1);
        ahead.word(is_word);
        if ahead.next() == Some(b'(') {
            ahead.bracketed();
        }
        ahead.next() == Some(b':')
    }

    /// Whether `%a, %b:2 =` comes next, and an operation after it.
    fn results_begin(&self) -> bool {
        let mut ahead = self.cursor.clone();
        while ahead.eat(b"%") {
            if ahead.word(|byte| is_word(byte) || byte == b'-').is_empty() {
                return false;
            }
            if ahead.eat(b":") && ahead.word(|byte| byte.is_ascii_digit()).is_empty() {
                return false;
            }
            if !ahead.eat(b",") {
                return ahead.eat(b"=") && ahead.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'"');
            }
        }
        false
    }

    /// Whether an operation without results begins in the generic form, `"stablehlo.return"(%0)`.
    fn generic_begins(&self) -> bool {
        let mut ahead = self.cursor.clone();
        ahead.take(quoted(ahead.rest().get(1..).unwrap_or_default()).len() + 2);
        ahead.rest().first() == Some(&b'(') && {
            ahead.take(1);
            matches!(ahead.next(), Some(b')' | b'%'))
        }
    }

    /// Whether an alias is defined outside of all modules.
    fn alias_begins(&self) -> bool {
        self.depth == 0 && {
            let mut ahead = self.cursor.clone();
            ahead.take(1);
            !ahead.word(is_word).is_empty() && ahead.eat(b"=")
        }
    }

    /// Whether `({`, the regions of the generic form, come next.
    fn regions_begin(&self) -> bool {
        let mut ahead = self.cursor.clone();
        ahead.take(1);
        ahead.next() == Some(b'{')
    }

    fn regions(&mut self, read: &mut Operation<'a>) {
        self.cursor.take(1);
        loop {
            match self.cursor.next() {
                Some(b'{') => self.enter_region(read),
                Some(b',') => {
                    self.cursor.take(1);
                }
                end => {
                    self.cursor.take(usize::from(end == Some(b')')));
                    return;
                }
            }
        }
    }

    fn enter_region(&mut self, read: &mut Operation<'a>) {
        self.complete_text(read);
        read.has_region = true;
        let is_inner_module = read.kind == Kind::Module && !read.is_outermost;
        if read.kind == Kind::Module {
            self.enter_module(read);
        }
        self.region(read.node);
        if is_inner_module {
            self.modules.pop();
        }
    }

    /// Whether a `{` begins a dictionary, rather than a region: its first name stands alone or before an equal sign.
    fn dictionary_begins(&self, read: &Operation<'_>) -> bool {
        // after the head of a function or module there is its body, even an empty one
        if !read.is_generic && matches!(read.kind, Kind::Function | Kind::Module) {
            return false;
        }
        let mut ahead = self.cursor.clone();
        ahead.take(1);
        match ahead.next() {
            Some(b'%' | b'^') | None => return false,
            Some(b'"') => {
                ahead.take(quoted(ahead.rest().get(1..).unwrap_or_default()).len() + 2);
            }
            _ => {
                ahead.word(is_word);
            }
        }
        matches!(ahead.next(), Some(b'=' | b',' | b'}'))
    }

    /// Takes the dictionary that comes next, its braces included.
    pub(super) fn dictionary(&mut self) -> &'a [u8] {
        self.cursor.take(balanced(self.cursor.rest()))
    }

    fn attributes(&mut self, read: &mut Operation<'a>) {
        let text = self.dictionary();
        if let Some(node) = read.node.and_then(|node| self.function.nodes.get_mut(node))
            && let Some(payload) = attribute(text, PAYLOAD).and_then(|payload| payload.strip_prefix(b"\""))
        {
            node.payload = quoted(payload).into();
        }
        if read.is_generic && read.has_region && !read.text.contains(&b'{') {
            // before properties, all attributes stood behind the regions
            read.text = text;
        }
        read.partitions |= read.is_outermost && attribute(text, PARTITIONS).is_some();
    }

    fn operand_or_counter(&mut self, read: &mut Operation<'a>) {
        let (name, number) = self.value_name();
        if self.cursor.eat(b"=") {
            self.argument_with_value(name, read);
        } else {
            self.operand(name, number, read);
        }
    }

    /// A name among the attributes, or a location where it is printed prettily.
    fn string(&mut self, read: &mut Operation<'a>) {
        if read.has_types {
            self.locate(self.cursor.rest(), read);
        }
        self.cursor.take(quoted(self.cursor.rest().get(1..).unwrap_or_default()).len() + 2);
        if read.has_types && self.cursor.rest().first() == Some(&b'(') {
            self.cursor.bracketed();
        }
    }

    /// `[unknown]`, or fused locations.
    fn pretty_location(&mut self, read: &mut Operation<'a>) {
        self.locate(self.cursor.rest(), read);
        if self.cursor.next() == Some(b'<') {
            self.cursor.take(angled(self.cursor.rest()));
        }
        self.cursor.bracketed();
    }

    fn attribute_or_location(&mut self, read: &mut Operation<'a>) {
        let rest = self.cursor.rest();
        let alias = alias(rest);
        if read.has_types && self.locations.is_alias(alias) {
            self.locate(rest, read);
        }
        self.cursor.take(alias.len());
        if self.cursor.rest().first() == Some(&b'<') {
            self.cursor.take(angled(self.cursor.rest()));
        }
    }

    /// Gives an operation its scope, from the first location that follows it.
    fn locate(&mut self, location: &'a [u8], read: &mut Operation<'a>) {
        self.complete_text(read);
        let Some(node) = read.node.filter(|_| !std::mem::replace(&mut read.has_location, true)) else { return };
        let location = location.trim_ascii_start();
        location::name(location).into_iter().for_each(|name| self.head.census.name(name, Escapes::Mlir));
        let scope = self.locations.scope(location);
        let Some(node) = self.function.nodes.get_mut(node) else { return };
        node.scope = scope;
        if node.opcode.ends_with("custom_call") {
            let Place { functions, line } = self.locations.place(location);
            node.functions = functions.into_iter().map(|name| shown(name.into())).collect();
            node.place = line.map(|(file, line)| (shown(file.into()), line));
        }
    }

    /// Types after a colon; of a list before an arrow only the results count.
    fn types(&mut self, read: &mut Operation<'a>) {
        self.complete_text(read);
        self.cursor.take(1);
        let types = if self.cursor.next() == Some(b'(') {
            let inner = self.cursor.bracketed().unwrap_or_default();
            if self.cursor.eat(b"->") {
                return self.result_types(read);
            }
            self.typed(inner).into_iter().map(|(shown, _)| shown).collect()
        } else {
            self.types_in_line()
        };
        if !types.is_empty() {
            (read.types, read.has_types) = (types, true);
        }
    }

    /// Types between commas, without brackets around them.
    fn types_in_line(&mut self) -> Vec<Type> {
        let mut types = Vec::new();
        while let Some(spelled) = spelling(&mut self.cursor) {
            types.push(types::read(spelled, &self.aliases));
            let mut ahead = self.cursor.clone();
            if !ahead.eat(b",") || !ahead.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'!') {
                break;
            }
            self.cursor = ahead;
        }
        types
    }

    /// What follows an arrow: one type, or several in brackets, which may have attributes.
    fn result_types(&mut self, read: &mut Operation<'a>) {
        read.has_types = true;
        read.types.clear();
        if self.cursor.next() == Some(b'(') {
            let inner = self.cursor.bracketed().unwrap_or_default();
            for (shown, attributes) in self.typed(inner) {
                read.types.push(shown);
                read.result_attributes.push(attributes);
            }
        } else if let Some(spelled) = spelling(&mut self.cursor) {
            read.types.push(types::read(spelled, &self.aliases));
            read.result_attributes.push(&[]);
        }
    }

    /// The types of a list, each with the dictionary after it.
    fn typed(&self, list: &'a [u8]) -> Vec<(Type, &'a [u8])> {
        let mut cursor = Cursor::new(list);
        let mut found = Vec::new();
        while let Some(spelled) = spelling(&mut cursor) {
            let mut attributes: &[u8] = &[];
            loop {
                match cursor.next() {
                    Some(b',') => {
                        cursor.take(1);
                        break;
                    }
                    Some(b'{') => attributes = cursor.bracketed().unwrap_or_default(),
                    Some(b'(' | b'[') => {
                        cursor.bracketed();
                    }
                    Some(b'"') => {
                        cursor.take(quoted(cursor.rest().get(1..).unwrap_or_default()).len() + 2);
                    }
                    Some(_) => {
                        cursor.take(1);
                    }
                    None => break,
                }
            }
            found.push((types::read(spelled, &self.aliases), attributes));
        }
        found
    }

    fn word(&mut self, was_continued: bool, read: &mut Operation<'a>) -> Word {
        let start = self.cursor.clone();
        let word = self.cursor.word(is_word);
        match word {
            b"loc" if self.cursor.next() == Some(b'(') => {
                self.locate(self.cursor.rest().get(1..).unwrap_or_default(), read);
                self.cursor.bracketed();
            }
            _ if read.is_closed() || !was_continued && self.begins(word) => {
                self.cursor = start;
                return Word::Begins;
            }
            b"" => {
                self.cursor.take(1);
            }
            // `applies stablehlo.add`, `attributes {}`
            b"applies" | b"attributes" => return Word::Continues,
            // `: f32 to bf16`
            b"to" | b"into" if read.has_types => {
                if let Some(spelled) = spelling(&mut self.cursor) {
                    read.types = vec![types::read(spelled, &self.aliases)];
                }
            }
            _ => {}
        }
        Word::Passed
    }

    /// Whether a word that was just passed is the name of an operation, rather than of an attribute or a file.
    fn begins(&mut self, word: &[u8]) -> bool {
        let is_name = word.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
            && (word.contains(&b'.') || BARE.contains(&word));
        let is_file = matches!(self.cursor.rest(), [b':', digit, ..] if digit.is_ascii_digit());
        is_name && !is_file && self.cursor.next() != Some(b'=')
    }

    /// `#loc1 = loc("a")`, which was read before, or the alias of an attribute.
    pub(super) fn definition(&mut self) {
        self.cursor.take(alias(self.cursor.rest()).len());
        if self.cursor.eat(b"=") {
            self.body(&mut Operation::new(Kind::Alias, None, false));
        } else {
            self.cursor.skip_line();
        }
    }
}
