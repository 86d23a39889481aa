//! `HloModuleProto`, alone or inside an `HloProto`, one computation at a time.
//!
//! The outer messages are traversed by `pread` without reading their content; a computation is read completely, within
//! a bound, and through the bounded cursor, which is faster than to decode its messages: `proto/hlo.proto` names the
//! fields.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use prost::Message;

use super::envelope::{OuterField, locate, outer_field};
use super::error::ScanErrorKind;
use super::escape::Escapes;
use super::graph::{Computation, Head, Node, NodeKind, Value};
use super::module::PAYLOAD_ATTRIBUTE;
use super::schema::xla_data::ShapeProto;
use super::sites::Sites;
use super::source::Source;
use super::structure::Structure;
use super::tally::{Tally, Transformations};
use super::user_label::UserLabels;
use crate::wire::{WireCursor, WireError, WireValue, repeated_varints};

/// Maximum size of a computation.
const MAX_COMPUTATION_BYTES: u64 = 1 << 29;
const MAX_TEXT_BYTES: u64 = 1 << 16;
/// Maximum size of all payloads of a module, which are held while it is read.
const MAX_PAYLOAD_BYTES: u64 = 1 << 28;

/// The result of traversing a module.
pub(crate) struct Walk {
    pub(crate) tally: Tally,
    pub(crate) structure: Structure,
}

/// Counts the labels of a module; with `with_sites` also finds their call sites.
pub(crate) fn walk(source: &dyn Source, user: Option<&UserLabels>, with_sites: bool) -> Result<Walk, ScanErrorKind> {
    let module = locate(source)?.module;
    let payloads = payloads(source, &module)?;
    let sites = Sites::new(Escapes::Raw, user);
    let mut walk = Walker { tally: Tally::default(), head: Head::default(), sites, user, with_sites, payloads };
    let mut offset = module.start;
    let mut computations = 0_u64;
    while offset < module.end {
        let field = outer_field(source, offset, module.end)?;
        if field.wire_type == 2 {
            match field.number {
                1 if field.end - field.start <= MAX_TEXT_BYTES => {
                    let name = read(source, &field)?;
                    walk.head.module = Some(String::from_utf8_lossy(&name).into_owned());
                }
                3 => {
                    computations += 1;
                    if field.end - field.start > MAX_COMPUTATION_BYTES {
                        return Err(too_large(
                            format!("computation {computations} at byte {offset}"),
                            MAX_COMPUTATION_BYTES,
                        ));
                    }
                    let bytes = read(source, &field)?;
                    walk.computation(&bytes, field.start).map_err(|error| malformed(&error, field.start))?;
                }
                // a schedule exists only after optimisation
                7 => walk.head.is_optimized = true,
                _ => {}
            }
        }
        offset = field.end;
    }
    if computations == 0 {
        return Err(ScanErrorKind::NotAModule { seen: "a protobuf message without HLO computations".to_owned() });
    }
    Ok(Walk { tally: walk.tally, structure: Structure { head: walk.head, resolved: walk.sites.resolve() } })
}

/// A text of the module's table, and where it is in the file.
type Payload = (Vec<u8>, u64);

/// The table of payloads, which comes after the instructions that refer to it.
fn payloads(source: &dyn Source, module: &Range<u64>) -> Result<Vec<Payload>, ScanErrorKind> {
    let (mut payloads, mut bytes, mut offset) = (Vec::new(), 0_u64, module.start);
    while offset < module.end {
        let field = outer_field(source, offset, module.end)?;
        if (field.number, field.wire_type) == (22, 2) {
            bytes += field.end - field.start;
            if bytes > MAX_PAYLOAD_BYTES {
                return Err(too_large("the table of metadata payloads".to_owned(), MAX_PAYLOAD_BYTES));
            }
            payloads.push((read(source, &field)?, field.start));
        }
        offset = field.end;
    }
    Ok(payloads)
}

fn too_large(what: String, limit: u64) -> ScanErrorKind {
    ScanErrorKind::TooLarge { what, limit, advice: "write the module as text instead" }
}

fn read(source: &dyn Source, field: &OuterField) -> Result<Vec<u8>, ScanErrorKind> {
    let length = usize::try_from(field.end - field.start).unwrap_or(usize::MAX);
    let bytes = source.window(field.start, length).map_err(ScanErrorKind::Unreadable)?;
    if bytes.len() == length {
        Ok(bytes)
    } else {
        let shrunk = io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read");
        Err(ScanErrorKind::Unreadable(shrunk))
    }
}

fn malformed(error: &WireError, base: u64) -> ScanErrorKind {
    ScanErrorKind::Truncated { what: error.what.to_owned(), offset: base + error.offset as u64 }
}

struct Walker<'a> {
    tally: Tally,
    head: Head,
    sites: Sites<'a>,
    user: Option<&'a UserLabels>,
    with_sites: bool,
    payloads: Vec<Payload>,
}

/// An instruction as it is read.
#[derive(Default)]
struct Instruction<'m> {
    node: Node<'m>,
    id: u64,
    operands: Vec<u64>,
    called: Vec<u64>,
    tuple_index: u64,
    /// The place of its payload in the module's table.
    payload: Option<u64>,
}

impl Walker<'_> {
    fn computation(&mut self, bytes: &[u8], base: u64) -> Result<(), WireError> {
        let mut instructions: Vec<Instruction<'_>> = Vec::new();
        let mut id = 0;
        for field in WireCursor::new(bytes) {
            match field? {
                (2, WireValue::Bytes(message)) => {
                    let instruction = Instruction::read(message, self.with_sites)?;
                    self.count(&instruction, |part| base + offset_within(bytes, part));
                    if self.with_sites {
                        instructions.push(instruction);
                    }
                }
                (5, WireValue::Varint(number)) => id = number,
                _ => {}
            }
        }
        if self.with_sites {
            let nodes = nodes(instructions, &self.payloads);
            self.sites.add(&Computation { name: id.to_le_bytes().to_vec().into(), nodes, ..Computation::default() });
        }
        Ok(())
    }

    /// Counts the labels of an instruction; `offset` says where a part of the computation is in the file.
    fn count(&mut self, instruction: &Instruction<'_>, offset: impl Fn(&[u8]) -> u64) {
        let Node { name, scope, .. } = &instruction.node;
        self.head.census.instruction(name);
        let of_table = instruction.payload.and_then(|place| self.payloads.get(usize::try_from(place).ok()?));
        let own = || (&instruction.node.payload[..], offset(&instruction.node.payload));
        let payload = of_table.map_or_else(own, |(text, offset)| (text.as_slice(), *offset));
        if !scope.is_empty() {
            self.head.census.name(scope, Escapes::Raw);
            count_name(&mut self.tally, self.user, (scope, offset(scope)), Transformations::default());
        }
        if payload.0.is_empty() {
            return;
        }
        // what the scope says of the instruction already counts once
        let (mut of_scope, mut of_payload) = (Tally::default(), Tally::default());
        count_name(&mut of_scope, self.user, (scope, 0), Transformations::default());
        count_name(&mut of_payload, self.user, payload, Transformations::of(scope, Escapes::Raw));
        self.tally.merge(of_payload.without(&of_scope));
    }
}

/// Counts the labels of a name that is at an offset of the file.
fn count_name(tally: &mut Tally, user: Option<&UserLabels>, name: (&[u8], u64), around: Transformations) {
    tally.add_within(name.0, around, Escapes::Raw, name.1);
    user.into_iter().for_each(|user| user.count(name.0, Escapes::Raw, name.1, tally));
}

/// The nodes of a computation's instructions.
fn nodes<'m>(instructions: Vec<Instruction<'m>>, payloads: &'m [Payload]) -> Vec<Node<'m>> {
    let places: HashMap<u64, usize> = instructions.iter().enumerate().map(|(place, one)| (one.id, place)).collect();
    let node = |instruction: Instruction<'m>| {
        let Instruction { mut node, operands, called, tuple_index, payload, .. } = instruction;
        let part = (node.opcode == "get-tuple-element").then(|| usize::try_from(tuple_index).unwrap_or(usize::MAX));
        let operands = operands.iter().filter_map(|id| places.get(id).copied());
        node.operands = operands.map(|place| Value { node: place, part }).collect();
        node.called = called.iter().map(|id| id.to_le_bytes().to_vec().into()).collect();
        if let Some((text, _)) = payload.and_then(|place| payloads.get(usize::try_from(place).ok()?)) {
            node.payload = text.into();
        }
        node
    };
    instructions.into_iter().map(node).collect()
}

impl<'m> Instruction<'m> {
    fn read(message: &'m [u8], with_shape: bool) -> Result<Self, WireError> {
        let mut read = Self::default();
        for field in WireCursor::new(message) {
            match field? {
                (1, WireValue::Bytes(name)) => read.node.name = String::from_utf8_lossy(name),
                (2, WireValue::Bytes(opcode)) => read.opcode(opcode),
                (3, WireValue::Bytes(shape)) if with_shape => {
                    let error = |_| WireError { what: "damaged shape", offset: offset_within(message, shape) as usize };
                    read.node.results = vec![ShapeProto::decode(shape).map_err(error)?.to_type()];
                }
                (7, WireValue::Bytes(metadata)) => read.metadata(metadata)?,
                (13, WireValue::Varint(index)) => read.tuple_index = index,
                (35, WireValue::Varint(id)) => read.id = id,
                (36, value) => repeated_varints(value, &mut read.operands)?,
                (38, value) => repeated_varints(value, &mut read.called)?,
                (68, WireValue::Bytes(attributes)) => read.attributes(attributes)?,
                _ => {}
            }
        }
        Ok(read)
    }

    fn opcode(&mut self, opcode: &'m [u8]) {
        self.node.opcode = String::from_utf8_lossy(opcode);
        self.node.kind = match opcode {
            b"constant" => NodeKind::Constant,
            b"parameter" => NodeKind::Argument,
            _ => NodeKind::Operation,
        };
    }

    fn metadata(&mut self, metadata: &'m [u8]) -> Result<(), WireError> {
        for field in WireCursor::new(metadata) {
            match field? {
                (2, WireValue::Bytes(name)) => self.node.scope = name.into(),
                (20, WireValue::Bytes(payload)) => {
                    for field in WireCursor::new(payload) {
                        if let (2, WireValue::Varint(place)) = field? {
                            self.payload = Some(place);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the entries of a map.
    fn attributes(&mut self, attributes: &'m [u8]) -> Result<(), WireError> {
        for entry in WireCursor::new(attributes) {
            let (1, WireValue::Bytes(entry)) = entry? else { continue };
            let (mut key, mut value) = (&b""[..], &b""[..]);
            for field in WireCursor::new(entry) {
                match field? {
                    (1, WireValue::Bytes(bytes)) => key = bytes,
                    (2, WireValue::Bytes(bytes)) => value = bytes,
                    _ => {}
                }
            }
            if key == PAYLOAD_ATTRIBUTE {
                self.node.payload = value.into();
            }
        }
        Ok(())
    }
}

/// The offset of the slice `inner` in `outer`.
fn offset_within(outer: &[u8], inner: &[u8]) -> u64 {
    (inner.as_ptr() as usize).saturating_sub(outer.as_ptr() as usize) as u64
}
