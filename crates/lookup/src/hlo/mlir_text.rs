//! The structure of StableHLO text: module line, functions, operations with operands, calls and locations.
//!
//! Locations are aliases (`#loc12 = loc(…)`) that the printer may put before or after their use, so they are read
//! first.

use std::collections::HashMap;

use super::escape::Escapes;
use super::graph::{Computation, Head, Node, NodeKind, Type, Value as Operand};
use super::text_cursor::quoted;
use crate::array::{ArraySpec, DType};

/// Locations nest; deeper chains are cut.
const MAX_LOCATION_DEPTH: usize = 16;
/// Locations followed for one name: each of a chain of aliases may name the next one many times.
const MAX_LOCATIONS: usize = 1024;
const MAX_NAME_BYTES: usize = 1 << 16;
/// Bytes of names assembled from locations, per byte of the text: real modules need a few, while a line of a hostile
/// one names thousands.
const MAX_NAMES_PER_BYTE: usize = 64;

#[derive(Debug, Default)]
struct Instruction {
    name: String,
    shape: Option<ArraySpec>,
    is_constant: bool,
    operands: Vec<usize>,
    scope: Vec<u8>,
    called: Vec<Vec<u8>>,
    line: Option<u64>,
}

/// Reads a whole text; `each` receives its functions in file order.
pub(crate) fn read<'a>(text: &'a [u8], each: &mut dyn FnMut(Computation<'a>)) -> Head {
    let mut structure = Head::default();
    let mut locations: HashMap<&[u8], &[u8]> = HashMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        // MLIR's printer calls them `#loc12`; a hand-written text may use any name
        if line.starts_with(b"#")
            && let Some(at) = memchr::memmem::find(line, b" = loc(")
        {
            let body = line.get(at + 7..).unwrap_or_default();
            if let [b'"', name @ ..] = body
                && !is_file_location(body)
            {
                structure.census.name(quoted(name), Escapes::Mlir);
            }
            locations.insert(line.get(..at).unwrap_or_default(), body);
        }
    }
    let names_left = text.len().saturating_mul(MAX_NAMES_PER_BYTE).saturating_add(1 << 20);
    let mut reader = Reader { each, locations, function: None, missing: None, names_left };
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.starts_with(b"module ") || line == b"module{" {
            read_module(line, &mut structure);
        } else if line.starts_with(b"func.func ") {
            reader.begin(line);
        } else if !line.starts_with(b"#") {
            reader.line(line, index as u64 + 1);
        }
    }
    if reader.function.is_some() {
        structure.cut = Some("its last function is not closed".to_owned());
    } else if let Some(missing) = reader.missing {
        structure.cut = Some(format!("location `{missing}` is used and not defined"));
    }
    structure
}

/// The first lines of a module that is too large to be read completely.
pub(crate) fn read_head(head: &[u8]) -> Head {
    let mut structure = Head::default();
    if let Some(line) = head.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"module ")) {
        read_module(line, &mut structure);
    }
    structure
}

fn read_module(line: &[u8], structure: &mut Head) {
    let line = String::from_utf8_lossy(line);
    structure.module = line
        .strip_prefix("module @")
        .map(|rest| rest.split([' ', '{']).next().unwrap_or_default().trim_matches('"').to_owned())
        .filter(|name| !name.is_empty());
    // JAX writes the attribute during lowering, before any partitioner runs
    structure.partitioned = line.contains("mhlo.num_partitions").then_some(false);
}

/// `"file":line:column` is a place in a source file, `"name"(…)` or `"name"` a scope.
fn is_file_location(body: &[u8]) -> bool {
    let name = quoted(body.get(1..).unwrap_or_default());
    body.get(name.len() + 2) == Some(&b':')
}

/// `tensor<2x128xf32>` as an array.
fn tensor(text: &str) -> Option<ArraySpec> {
    let inner = text.trim().strip_prefix("tensor<")?;
    let inner = inner.get(..inner.rfind('>')?)?;
    let inner = inner.split(',').next()?.trim();
    let mut dims = Vec::new();
    let mut rest = inner;
    while let Some((dim, after)) = rest.split_once('x') {
        let Ok(dim) = dim.parse() else { break };
        dims.push(dim);
        rest = after;
    }
    Some(ArraySpec::new(rest.parse::<DType>().ok()?, dims))
}

/// Types between top-level commas.
fn tensors(text: &str) -> Vec<Option<ArraySpec>> {
    let text = text.trim();
    let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    let mut types = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            // the `>` of an arrow closes nothing
            b'>' if at > 0 && text.as_bytes().get(at - 1) == Some(&b'-') => {}
            b'>' | b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                types.push(tensor(text.get(start..at).unwrap_or_default()));
                start = at + 1;
            }
            _ => {}
        }
    }
    types.push(tensor(text.get(start..).unwrap_or_default()));
    types
}

struct Function {
    name: Vec<u8>,
    depth: usize,
    instructions: Vec<Instruction>,
    values: HashMap<String, Value>,
    /// Operations whose regions are open or whose location is still to come, with all their instructions.
    pending: Vec<(usize, std::ops::Range<usize>)>,
}

/// A value: the instruction of its first result, and how many results there are.
#[derive(Clone, Copy)]
struct Value {
    first: usize,
    results: usize,
}

struct Reader<'a, 'e> {
    each: &'e mut dyn FnMut(Computation<'a>),
    locations: HashMap<&'a [u8], &'a [u8]>,
    function: Option<Function>,
    /// An alias that is used and never defined.
    missing: Option<String>,
    /// Remaining bytes of names that may be assembled.
    names_left: usize,
}

impl<'a> Reader<'a, '_> {
    fn begin(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let name = line.split_once('@').map_or("", |(_, rest)| rest.split('(').next().unwrap_or_default());
        if !line.ends_with('{') {
            return; // a declaration
        }
        let name = name.as_bytes().to_vec();
        let mut function =
            Function { name, depth: 1, instructions: Vec::new(), values: HashMap::new(), pending: Vec::new() };
        function.block_arguments(&line, false);
        self.function = Some(function);
    }

    fn line(&mut self, line: &'a [u8], number: u64) {
        let Some(mut function) = self.function.take() else { return };
        if line.first() == Some(&b'}') {
            function.depth = function.depth.saturating_sub(1);
            if function.depth == 0 {
                (self.each)(function.finish());
                return;
            }
            let scope = self.trailing_scope(line);
            let opens = line.ends_with(b"{");
            if !opens
                && let Some(&(depth, _)) = function.pending.last()
                && depth == function.depth
                && let Some((_, range)) = function.pending.pop()
                && !scope.is_empty()
            {
                for instruction in function.instructions.get_mut(range).unwrap_or_default() {
                    instruction.scope.clone_from(&scope);
                }
            }
            function.depth += usize::from(opens);
        } else if let [b'^', ..] = line {
            function.block_arguments(&String::from_utf8_lossy(line), true);
        } else {
            let opens = line.ends_with(b"{");
            if let Some(at) = operation_start(line) {
                let has_location = trailing_location(line).is_some();
                let scope = self.trailing_scope(line);
                let start = function.instructions.len();
                self.operation(&mut function, line, at, scope, number);
                if !has_location {
                    let end = function.instructions.len();
                    function.pending.push((function.depth, start..end));
                }
            }
            function.depth += usize::from(opens);
        }
        self.function = Some(function);
    }

    fn operation(&mut self, function: &mut Function, line: &[u8], at: usize, scope: Vec<u8>, number: u64) {
        let text = String::from_utf8_lossy(line);
        let (results, rest) = if at > 0 {
            (text.get(..at).unwrap_or_default(), text.get(at..).unwrap_or_default())
        } else {
            ("", &*text)
        };
        let rest = rest.trim_start_matches(" = ");
        let rest = match memchr::memmem::rfind(rest.as_bytes(), b" loc(") {
            Some(location) => rest.get(..location).unwrap_or_default(),
            None => rest,
        };
        let opcode = rest.split([' ', '(']).next().unwrap_or_default().trim_matches('"');
        let (body, types) = rest.rsplit_once(" : ").unwrap_or((rest, ""));
        let types = types.rsplit_once("->").map_or(types, |(_, results)| results);
        let is_call = matches!(opcode, "call" | "func.call" | "stablehlo.custom_call");
        let target = body.split_once('@').map(|(_, rest)| rest.split(['(', ' ', ',', '}']).next().unwrap_or_default());
        let mut instruction = Instruction {
            name: target.filter(|_| is_call).unwrap_or(opcode).to_owned(),
            is_constant: opcode == "stablehlo.constant",
            scope: scope.clone(),
            line: Some(number),
            ..Instruction::default()
        };
        if matches!(opcode, "call" | "func.call" | "stablehlo.composite")
            && let Some(target) = target
        {
            instruction.called.push(target.as_bytes().to_vec());
        }
        let mut aliases = Vec::new();
        for piece in body.split('%').skip(1) {
            let name = value_name(piece);
            let after = piece.get(name.len()..).unwrap_or_default();
            if after == " = " {
                aliases.push(name.to_owned());
                continue;
            }
            if let Some(value) = function.value(name) {
                instruction.operands.push(value);
                if let Some(alias) = aliases.pop() {
                    let shape = function.instructions.get(value).and_then(|value| value.shape.clone());
                    let first = function.instructions.len();
                    let operands = vec![value];
                    let name = opcode.to_owned();
                    let line = Some(number);
                    function.instructions.push(Instruction {
                        name,
                        shape,
                        scope: scope.clone(),
                        operands,
                        line,
                        ..Instruction::default()
                    });
                    function.values.insert(alias, Value { first, results: 1 });
                }
            }
        }
        function.define(results, instruction, tensors(types));
    }

    fn trailing_scope(&mut self, line: &'a [u8]) -> Vec<u8> {
        let Some(body) = trailing_location(line) else { return Vec::new() };
        let mut name = Vec::new();
        let mut left = MAX_LOCATIONS;
        if self.names_left == 0 {
            return name;
        }
        self.append_names(body, MAX_LOCATION_DEPTH, &mut left, &mut name);
        // followed locations count too, because they may lead to nothing
        self.names_left = self.names_left.saturating_sub(name.len() + (MAX_LOCATIONS - left));
        name
    }

    /// Appends the scope names of a location: nested ones after `/`, fused ones after `;`.
    fn append_names(&mut self, body: &'a [u8], depth: usize, left: &mut usize, name: &mut Vec<u8>) {
        if depth == 0 || *left == 0 || name.len() > MAX_NAME_BYTES {
            return;
        }
        *left -= 1;
        match body {
            [b'"', rest @ ..] if !is_file_location(body) => {
                let own = quoted(rest);
                if !name.is_empty() && name.last() != Some(&b';') {
                    name.push(b'/');
                }
                name.extend_from_slice(own);
                if let Some([b'(', child @ ..]) = rest.get(own.len() + 1..) {
                    self.append_names(child, depth - 1, left, name);
                }
            }
            [b'"', ..] => {}
            [b'#', ..] => {
                let alias = alias(body);
                match self.locations.get(alias) {
                    Some(target) => self.append_names(target, depth - 1, left, name),
                    None if self.missing.is_none() => self.missing = Some(String::from_utf8_lossy(alias).into_owned()),
                    None => {}
                }
            }
            _ if body.starts_with(b"fused") => {
                let list = memchr::memchr(b'[', body).and_then(|at| body.get(at + 1..)).unwrap_or_default();
                for part in list.split(|&byte| byte == b',') {
                    if !name.is_empty() {
                        name.push(b';');
                    }
                    self.append_names(part.trim_ascii(), depth - 1, left, name);
                }
            }
            _ if body.starts_with(b"callsite(") => {
                self.append_names(body.get(9..).unwrap_or_default(), depth - 1, left, name)
            }
            _ => {}
        }
    }
}

impl Function {
    fn finish<'a>(self) -> Computation<'a> {
        let node = |one: Instruction| Node {
            kind: if one.is_constant { NodeKind::Constant } else { NodeKind::Operation },
            name: one.name.into(),
            operands: one.operands.into_iter().map(Operand::whole).collect(),
            results: one.shape.map(Type::Array).into_iter().collect(),
            scope: one.scope.into(),
            called: one.called.into_iter().map(Into::into).collect(),
            line: one.line,
            ..Node::default()
        };
        Computation { name: self.name.into(), nodes: self.instructions.into_iter().map(node).collect() }
    }

    fn value(&self, name: &str) -> Option<usize> {
        let (base, result) = name.split_once('#').unwrap_or((name, "0"));
        let value = self.values.get(base)?;
        let result: usize = result.parse().ok()?;
        // instruction `first` is the operation itself; the results of several follow it
        match value.results {
            0 | 1 => Some(value.first),
            results => (result < results).then_some(value.first + 1 + result),
        }
    }

    fn define(&mut self, results: &str, mut instruction: Instruction, mut shapes: Vec<Option<ArraySpec>>) {
        let first = self.instructions.len();
        let Some(name) = results.trim().strip_prefix('%') else {
            self.instructions.push(instruction);
            return;
        };
        let (name, count) = name.split_once(':').unwrap_or((name, "1"));
        let results = count.trim().parse::<usize>().unwrap_or(1).min(shapes.len().max(1));
        if results == 1 {
            instruction.shape = shapes.pop().flatten();
            self.instructions.push(instruction);
        } else {
            let (name, scope, line) = (instruction.name.clone(), instruction.scope.clone(), instruction.line);
            self.instructions.push(instruction);
            for shape in shapes.into_iter().take(results) {
                let (name, operands, scope) = (name.clone(), vec![first], scope.clone());
                self.instructions.push(Instruction { name, shape, scope, operands, line, ..Instruction::default() });
            }
        }
        self.values.insert(name.trim().to_owned(), Value { first, results });
    }

    /// Defines `%name: tensor<…>` of a function or a block. A block's arguments are not operands of a call site.
    fn block_arguments(&mut self, line: &str, is_inner: bool) {
        for piece in line.split('%').skip(1) {
            let name = value_name(piece);
            let Some(rest) = piece.get(name.len()..).and_then(|rest| rest.strip_prefix(": ")) else { continue };
            let end = rest.find('>').map_or(0, |at| at + 1);
            let shape = tensor(rest.get(..end).unwrap_or_default());
            let first = self.instructions.len();
            self.instructions.push(Instruction {
                name: name.to_owned(),
                shape,
                is_constant: is_inner,
                ..Instruction::default()
            });
            self.values.insert(name.to_owned(), Value { first, results: 1 });
        }
    }
}

fn value_name(text: &str) -> &str {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '#' | '$' | '.' | '-')))
        .unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

fn alias(body: &[u8]) -> &[u8] {
    let end = body
        .iter()
        .skip(1)
        .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
        .map_or(body.len(), |at| at + 1);
    body.get(..end).unwrap_or_default()
}

/// The body of the location at the end of a line: the text after `loc(`.
fn trailing_location(line: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::rfind(line, b" loc(")?;
    // a brace after it is the start of a region: the location belongs to a block's argument
    if line.ends_with(b"{") { None } else { line.get(at + 5..) }
}

/// Where an operation's name begins: after ` = ` of its results, or at the start for one without results.
fn operation_start(line: &[u8]) -> Option<usize> {
    if line.first() == Some(&b'%') {
        return memchr::memmem::find(line, b" = ");
    }
    let word = line.split(|&byte| byte == b' ' || byte == b'(').next().unwrap_or_default();
    (word.contains(&b'.') || word == b"call").then_some(0)
}
