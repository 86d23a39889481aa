//! The structure of bytecode: functions, operations with their regions, operands, types, calls and scopes.

use std::borrow::Cow;
use std::collections::HashMap;

use super::container::{MAX_DEPTH, Reader, Result, has, read_tables, skip_use_orders, unsupported, version};
use super::contents::Contents;
use super::properties::property;
use super::spelling;
use crate::hlo::escape::Escapes;
use crate::hlo::graph::{Computation, Head, Node, NodeId, NodeKind, Value};

/// Reads a whole module without attributes, which are not needed to find labels; `each` receives its functions.
pub(crate) fn read<'a>(bytes: &'a [u8], each: &mut dyn FnMut(Computation<'a>)) -> Head {
    let mut head = Head::default();
    let read = walk(bytes, false, &mut head, each);
    // the labels are found all the same
    head.unread.count += u64::from(read.is_err());
    head
}

/// The functions of a whole module, with the attributes that anyone reads; `None` if it is damaged or of an unknown
/// version.
pub(crate) fn functions(bytes: &[u8]) -> Option<Vec<Computation<'_>>> {
    let mut functions = Vec::new();
    walk(bytes, true, &mut Head::default(), &mut |function| functions.push(function)).ok()?;
    Some(functions)
}

fn walk<'a>(
    bytes: &'a [u8],
    spells_attributes: bool,
    head: &mut Head,
    each: &mut dyn FnMut(Computation<'a>),
) -> Result<()> {
    let (tables, mut operations) = read_tables(bytes)?;
    let contents = Contents::new(tables, bytes.len());
    let (function, values) = (Function::default(), Values::default());
    let mut walk = Walk { contents, spells_attributes, each, head, function, values };
    walk.block(&mut operations, false, &mut Place { holder: None, next: 0, depth: 0 })
}

/// A function that is being read.
#[derive(Default)]
struct Function<'a> {
    /// Whether it is more than a declaration.
    has_body: bool,
    nodes: Vec<Node<'a>>,
    returns: Vec<Value>,
}

/// The values that operations refer to by number. Those of a region follow all of the regions around it.
#[derive(Default)]
struct Values {
    known: HashMap<usize, Value>,
    count: usize,
}

impl Values {
    fn define(&mut self, next: &mut usize, value: Value) {
        self.known.insert(*next, value);
        *next = next.saturating_add(1);
    }
}

struct Walk<'a, 'e> {
    contents: Contents<'a>,
    spells_attributes: bool,
    each: &'e mut dyn FnMut(Computation<'a>),
    head: &'e mut Head,
    function: Function<'a>,
    values: Values,
}

/// Where an operation stands.
struct Place {
    holder: Option<NodeId>,
    /// The number of the value that is defined next.
    next: usize,
    depth: usize,
}

/// An operation before its operands and regions.
struct Operation<'a> {
    opcode: String,
    attributes: Option<usize>,
    properties: Option<Reader<'a>>,
    mask: u8,
}

impl<'a> Walk<'a, '_> {
    /// A block; the top of the module is one without arguments.
    fn block(&mut self, reader: &mut Reader<'a>, is_inner: bool, place: &mut Place) -> Result<()> {
        let (operations, has_arguments) = reader.flagged()?;
        if has_arguments && is_inner {
            self.arguments(reader, place)?;
        }
        for _ in 0..operations {
            self.operation(reader, place)?;
        }
        Ok(())
    }

    fn arguments(&mut self, reader: &mut Reader<'a>, place: &mut Place) -> Result<()> {
        let count = reader.varint()?;
        let version = self.contents.tables.version;
        for _ in 0..count {
            let (index, has_location) =
                if version >= version::ELIDED_LOCATIONS { reader.flagged()? } else { (reader.varint()?, true) };
            let results = vec![self.contents.type_of(usize::try_from(index).unwrap_or(usize::MAX))?];
            let name = if has_location { self.contents.scope(reader.index()?) } else { Cow::default() };
            let name = String::from_utf8_lossy(&name).into_owned().into();
            let node = self.function.nodes.len();
            self.function.nodes.push(Node {
                kind: NodeKind::Argument,
                name,
                results,
                holder: place.holder,
                ..Node::default()
            });
            self.values.define(&mut place.next, Value::whole(node));
        }
        if version >= version::USE_ORDERS && reader.byte()? & has::USE_ORDERS != 0 {
            skip_use_orders(reader, count)?;
        }
        Ok(())
    }

    fn operation(&mut self, reader: &mut Reader<'a>, place: &mut Place) -> Result<()> {
        let index = reader.index()?;
        let tables = &self.contents.tables;
        let &(dialect, name) =
            tables.operations.get(index).ok_or_else(|| reader.cut("operation that does not exist"))?;
        let opcode = [dialect, name].map(String::from_utf8_lossy).join(".");
        let mask = reader.byte()?;
        let location = reader.index()?;
        let attributes = if mask & has::ATTRIBUTES != 0 { Some(reader.index()?) } else { None };
        let properties = match mask & has::PROPERTIES {
            0 => None,
            _ => self.contents.tables.properties.get(reader.index()?).cloned(),
        };
        let operation = Operation { opcode, attributes, properties, mask };
        match &*operation.opcode {
            "builtin.module" => self.module(&operation, reader, place.depth),
            "func.func" | "vhlo.func_v1" => self.function(&operation, reader, place.depth),
            _ => self.plain(&operation, location, reader, place),
        }
    }

    /// The attribute of an operation with this name.
    fn attribute(&self, operation: &Operation<'a>, name: &str) -> Option<usize> {
        let own = operation.attributes.and_then(|own| self.contents.member(own, name.as_bytes()));
        own.or_else(|| property(&operation.opcode, operation.properties.as_ref()?, name))
    }

    fn module(&mut self, operation: &Operation<'a>, reader: &mut Reader<'a>, depth: usize) -> Result<()> {
        if depth == 0 {
            let named = operation.attributes.and_then(|own| self.contents.member(own, b"sym_name"));
            let named = named.or_else(|| operation.properties.clone()?.reference(true).ok().flatten());
            let named = named.and_then(|named| self.contents.string(named));
            self.head.module = named.map(|named| String::from_utf8_lossy(named).into_owned());
            // JAX writes the attribute during lowering, before any partitioner runs
            self.head.partitioned = self.attribute(operation, "mhlo.num_partitions").map(|_| false);
        }
        self.regions(operation, reader, depth)
    }

    fn function(&mut self, operation: &Operation<'a>, reader: &mut Reader<'a>, depth: usize) -> Result<()> {
        let outer = std::mem::take(&mut self.function);
        let read = self.regions(operation, reader, depth);
        let mut function = std::mem::replace(&mut self.function, outer);
        let results = self.spells_attributes.then(|| self.interface(operation, &mut function));
        let Function { has_body, nodes, returns } = function;
        let named = self.attribute(operation, "sym_name").and_then(|named| self.contents.string(named));
        let name = Cow::Borrowed(named.unwrap_or_default());
        if has_body {
            (self.each)(Computation { name, nodes, results, returns, ..Computation::default() });
        }
        read
    }

    /// Gives the arguments of a function their attributes, and returns those of its results.
    fn interface(&mut self, operation: &Operation<'a>, function: &mut Function<'a>) -> Vec<Cow<'a, [u8]>> {
        let mut noted = |list: &str, count: usize| -> Vec<Cow<'a, [u8]>> {
            let list = self.attribute(operation, list).and_then(|list| self.contents.items(list, count));
            let list = list.unwrap_or_default();
            list.into_iter().map(|one| spelling::of_noted(&mut self.contents, one).into()).collect()
        };
        let is_own = |node: &&mut Node<'a>| node.kind == NodeKind::Argument && node.holder.is_none();
        let arguments = noted("arg_attrs", function.nodes.len());
        for (node, text) in function.nodes.iter_mut().take_while(is_own).zip(arguments) {
            node.attributes = text;
        }
        let mut results = noted("res_attrs", function.returns.len());
        results.resize(function.returns.len(), Cow::default());
        results
    }

    /// The attributes of an operation that anyone reads.
    fn spelled(&mut self, operation: &Operation<'a>) -> Cow<'a, [u8]> {
        let is_indexing = || ["gather", "scatter", "dynamic_slice"].iter().any(|one| operation.opcode.contains(one));
        if self.spells_attributes && operation.opcode.contains("custom_call") {
            return self.spelled_kernel(operation);
        }
        if !self.spells_attributes || !is_indexing() {
            return Cow::default();
        }
        let found = |name: &'static str| Some((name, self.attribute(operation, name)?));
        let found: Vec<_> = spelling::INDEXING.into_iter().filter_map(found).collect();
        spelling::of_indexing(&mut self.contents, &found).into()
    }

    /// What a kernel's custom call says of it.
    fn spelled_kernel(&mut self, operation: &Operation<'a>) -> Cow<'a, [u8]> {
        let own = |name: &[u8]| self.contents.member(operation.attributes?, name);
        let config = own(b"mhlo.backend_config").or_else(|| self.attribute(operation, "backend_config"));
        let inside = |dictionary: Option<usize>, name: &[u8]| self.contents.member(dictionary?, name);
        let (name, said) = (own(b"kernel_name"), inside(own(b"mhlo.frontend_attributes"), b"kernel_metadata"));
        let name = name.or_else(|| inside(config, b"name"));
        let number = |name: &'static str| Some((name, self.contents.integer(inside(config, name.as_bytes())?)?));
        let mut launch: Vec<_> = spelling::LAUNCH.into_iter().filter_map(number).collect();
        let message = inside(config, b"opaque").or(config);
        let message = message.and_then(|message| self.contents.launch(message)).unwrap_or_default();
        let sides = spelling::LAUNCH.into_iter().zip(message.grid.iter().chain(&message.num_warps));
        launch.extend(sides.map(|(name, number)| (name, number.cast_signed())));
        let text = |value: Option<usize>| value.and_then(|value| self.contents.string(value));
        let strings = [
            ("kernel_name", text(name).unwrap_or(message.name.as_bytes())),
            ("kernel_metadata", text(said).unwrap_or(message.metadata.as_bytes())),
        ];
        spelling::of_kernel(&mut self.contents, &strings, &launch).into()
    }

    fn plain(
        &mut self,
        operation: &Operation<'a>,
        location: usize,
        reader: &mut Reader<'a>,
        place: &mut Place,
    ) -> Result<()> {
        let scope = self.contents.scope(location);
        if !scope.is_empty() {
            self.head.census.name(&scope, Escapes::Raw);
        }
        if operation.opcode == "builtin.unrealized_conversion_cast" {
            return self.cast(operation, reader, place);
        }
        let attributes = self.spelled(operation);
        let mut node = Node { scope, attributes, holder: place.holder, ..self.described(operation) };
        if self.spells_attributes && node.opcode.ends_with("custom_call") {
            let (functions, line) = self.contents.place(location);
            node.functions = functions.into_iter().map(String::from_utf8_lossy).collect();
            node.place = line.map(|(file, line)| (String::from_utf8_lossy(file), line));
        }
        let mut results = 0;
        if operation.mask & has::RESULTS != 0 {
            results = reader.varint()?;
            for _ in 0..results {
                node.results.push(self.contents.type_of(reader.index()?)?);
            }
        }
        if operation.mask & has::OPERANDS != 0 {
            for _ in 0..reader.varint()? {
                match self.values.known.get(&reader.index()?) {
                    Some(&value) => node.operands.push(value),
                    None => self.head.unread.count += 1,
                }
            }
        }
        if operation.mask & has::SUCCESSORS != 0 {
            for _ in 0..reader.varint()? {
                reader.varint()?;
            }
        }
        if operation.mask & has::USE_ORDERS != 0 {
            skip_use_orders(reader, results)?;
        }
        if place.holder.is_none() && node.opcode.ends_with(".return") {
            self.function.returns = node.operands;
            return Ok(());
        }
        let held = self.function.nodes.len();
        let parts = node.results.len();
        self.function.nodes.push(node);
        for part in 0..parts {
            self.values.define(&mut place.next, Value { node: held, part: (parts > 1).then_some(part) });
        }
        self.regions_of(operation, reader, Some(held), place.depth)
    }

    /// Values of one dialect's type as those of another, which are the same values.
    fn cast(&mut self, operation: &Operation<'a>, reader: &mut Reader<'a>, place: &mut Place) -> Result<()> {
        let mut results = 0;
        if operation.mask & has::RESULTS != 0 {
            results = reader.varint()?;
            (0..results).try_for_each(|_| reader.varint().map(drop))?;
        }
        if operation.mask & has::OPERANDS != 0 {
            for _ in 0..reader.varint()? {
                match self.values.known.get(&reader.index()?) {
                    Some(&value) => self.values.define(&mut place.next, value),
                    None => place.next = place.next.saturating_add(1),
                }
            }
        }
        if operation.mask & has::USE_ORDERS != 0 {
            skip_use_orders(reader, results)?;
        }
        Ok(())
    }

    /// A node with what an operation is and calls, and the payload attached to it.
    fn described(&self, operation: &Operation<'a>) -> Node<'a> {
        let opcode = unversioned(&operation.opcode);
        // most operations call nothing
        let calls = ["call", "composite"].iter().any(|end| opcode.ends_with(end));
        let attribute = |key: &str| if calls { self.attribute(operation, key) } else { None };
        let text = |key: &str| attribute(key).map(|one| self.contents.strings(one)).unwrap_or_default();
        let callees = ["callee", "decomposition", "called_computations"].map(text);
        let target =
            if opcode.ends_with(".call") { callees.first().and_then(|callees| callees.first()).copied() } else { None };
        let target = target.or_else(|| text("call_target_name").first().copied());
        let payload = operation.attributes.and_then(|own| self.contents.member(own, b"mhlo.frontend_attributes"));
        let payload = payload.and_then(|payload| self.contents.member(payload, b"xla_metadata_payload"));
        Node {
            kind: if opcode.ends_with(".constant") { NodeKind::Constant } else { NodeKind::Operation },
            name: target.map_or_else(|| opcode.clone().into(), String::from_utf8_lossy),
            payload: payload.and_then(|payload| self.contents.string(payload)).unwrap_or_default().into(),
            called: callees.concat().into_iter().map(Cow::Borrowed).collect(),
            opcode: opcode.into(),
            ..Node::default()
        }
    }

    /// The regions of a module or a function, whose results and operands are none.
    fn regions(&mut self, operation: &Operation<'a>, reader: &mut Reader<'a>, depth: usize) -> Result<()> {
        for bit in [has::RESULTS, has::OPERANDS, has::SUCCESSORS] {
            if operation.mask & bit != 0 {
                for _ in 0..reader.varint()? {
                    reader.varint()?;
                }
            }
        }
        if operation.mask & has::USE_ORDERS != 0 {
            skip_use_orders(reader, 0)?;
        }
        self.regions_of(operation, reader, None, depth)
    }

    fn regions_of(
        &mut self,
        operation: &Operation<'a>,
        reader: &mut Reader<'a>,
        holder: Option<NodeId>,
        depth: usize,
    ) -> Result<()> {
        if operation.mask & has::REGIONS == 0 {
            return Ok(());
        }
        let (regions, is_isolated) = reader.flagged()?;
        if depth >= MAX_DEPTH {
            return Err(unsupported(format!("regions nested more than {MAX_DEPTH} deep")));
        }
        if !is_isolated {
            return (0..regions).try_for_each(|_| self.region(reader, holder, depth + 1));
        }
        let outer = std::mem::take(&mut self.values);
        let mut section;
        let inner = if self.contents.tables.version >= version::LAZY_REGIONS {
            section = reader.section()?.1;
            &mut section
        } else {
            reader
        };
        let read = (0..regions).try_for_each(|_| self.region(inner, holder, depth + 1));
        self.values = outer;
        read
    }

    fn region(&mut self, reader: &mut Reader<'a>, holder: Option<NodeId>, depth: usize) -> Result<()> {
        let blocks = reader.varint()?;
        if blocks == 0 {
            return Ok(());
        }
        self.function.has_body = true;
        let first = self.values.count;
        self.values.count = first.saturating_add(reader.index()?);
        let mut place = Place { holder, next: first, depth };
        for _ in 0..blocks {
            self.block(reader, true, &mut place)?;
        }
        // the numbers are given again to the next region
        self.values.known.retain(|number, _| *number < first);
        self.values.count = first;
        Ok(())
    }
}

/// `vhlo.dot_general_v2` as `stablehlo.dot_general`, and calls by the names that text has for them.
fn unversioned(opcode: &str) -> String {
    let Some(name) = opcode.strip_prefix("vhlo.") else { return opcode.to_owned() };
    let name = name
        .rsplit_once("_v")
        .filter(|(_, version)| version.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(name, |(name, _)| name);
    let dialect = if matches!(name, "call") { "func" } else { "stablehlo" };
    format!("{dialect}.{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_bytecode_is_read_as_far_as_it_goes() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
        for file in ["hlo/semantic/a.base.mlirbc", "timer/sharded2.mlirbc"] {
            let whole = std::fs::read(folder.join(file)).unwrap();
            let mut functions = 0;
            let head = read(&whole, &mut |_| functions += 1);
            assert_eq!((head.unread.count, functions > 0), (0, true), "{file}");
            assert_eq!(super::functions(&whole).map(|all| all.len()), Some(functions), "{file}");
            for at in 0..whole.len() {
                read(&whole[..at], &mut |_| {});
                for byte in [0, 1, 0x7f, 0xff, whole[at] ^ 2, whole[at] ^ 0x10] {
                    let mut damaged = whole.clone();
                    damaged[at] = byte;
                    read(&damaged, &mut |_| {});
                    super::functions(&damaged);
                }
            }
        }
    }
}
