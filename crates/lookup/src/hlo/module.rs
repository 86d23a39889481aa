//! `HloModuleProto` as instructions, in which a profile's operations are looked up.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use prost::{DecodeError, Message};

use super::detect::HEAD_BYTES;
use super::envelope::{identity, locate};
use super::error::{ScanError, ScanErrorKind};
use super::frames::Frame;
use super::hlo_text;
use super::placement::Placement;
use super::schema::hlo::{HloComputationProto, HloInstructionProto, HloModuleProto};
use super::schema::xla_data::{FrontendAttributes, ShapeProto};
use super::shape::NO_SHAPE;
use super::text_module;
use crate::wire::highest_field;

/// The frontend attribute with the label that a library attached to an instruction.
pub(super) const PAYLOAD_ATTRIBUTE: &[u8] = b"xla_metadata_payload";

/// The last field of `HloInstructionProto` that is known.
const LAST_FIELD: u32 = 93;

/// A module's computations and instructions. Texts and configurations are slices of its bytes.
#[derive(Debug, Default)]
pub struct HloModule {
    /// Its name, such as `jit_step`.
    pub name: String,
    /// Its number in the process that compiled it.
    pub id: i64,
    /// The id of the computation that runs first.
    pub entry: i64,
    /// Every computation, in file order.
    pub computations: Vec<HloComputation>,
    /// Every instruction, computation by computation.
    pub instructions: Vec<HloInstruction>,
    /// Its device placement.
    pub placement: Placement,
    /// What else is read of it; its computations are above.
    pub message: HloModuleProto,
    /// The rest of the `HloProto` around it, with its buffer assignment.
    pub(super) behind: Bytes,
    computation_of_id: HashMap<i64, usize>,
    /// The indices of the instructions, by name.
    by_name: Vec<usize>,
    /// By computation, the first instruction that calls it.
    caller_of: HashMap<usize, usize>,
}

/// A computation: the entry, a body, a fusion.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct HloComputation {
    /// Its id, which [`HloInstruction::called`] refers to.
    pub id: i64,
    /// The id of the instruction whose value is its result.
    pub root: i64,
    /// The range of its instructions in [`HloModule::instructions`].
    pub instructions: Range<usize>,
}

/// An instruction.
#[derive(Debug, Default)]
pub struct HloInstruction {
    /// Its fields. Texts are UTF-8: what was not is replaced.
    pub message: HloInstructionProto,
    /// Bytes of its result, tuples added up. Shapes of unknown types count as zero.
    pub bytes: u64,
    /// The index of its computation in [`HloModule::computations`].
    pub computation: usize,
    /// A collective whose groups are in no known form has fields of a later XLA.
    pub(super) has_later_fields: bool,
    payload: Bytes,
}

impl HloModule {
    /// Reads an `HloModuleProto`, alone or in an envelope such as an `HloProto`, from a copy of the bytes; `place`
    /// names it in errors.
    ///
    /// # Errors
    ///
    /// If the bytes are not such a message.
    pub fn read(bytes: &[u8], place: &str) -> Result<Self, ScanError> {
        Self::of_bytes(&Bytes::copy_from_slice(bytes), place)
    }

    /// The same without a copy: the module keeps the bytes.
    ///
    /// # Errors
    ///
    /// If the bytes are not such a message.
    pub fn of_bytes(bytes: &Bytes, place: &str) -> Result<Self, ScanError> {
        Self::located(bytes).map_err(|kind| kind.at(place))
    }

    /// Reads HLO text, which says all but the id of a module and the memory of its values.
    ///
    /// # Errors
    ///
    /// If the text holds no module, or not all of it.
    pub fn of_text(text: &[u8], id: i64, place: &str) -> Result<Self, ScanError> {
        let proto = text_module::proto_of_text(text, id).map_err(|kind| kind.at(place))?;
        Self::of_bytes(&proto.into(), place)
    }

    /// The name of the module in HLO text, from its first lines.
    pub fn name_in_text(text: &[u8]) -> Option<String> {
        hlo_text::read_head(text.get(..HEAD_BYTES).unwrap_or(text)).module
    }

    fn located(bytes: &Bytes) -> Result<Self, ScanErrorKind> {
        if bytes.is_empty() {
            return Err(ScanErrorKind::Empty);
        }
        let located = locate(&&bytes[..])?;
        let slice = |range: Range<u64>| {
            let place = |at: u64| usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
            bytes.slice(place(range.start)..place(range.end).max(place(range.start)))
        };
        // where a part of the file begins
        let offset = |part: &Bytes| (part.as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize) as u64;
        let module = slice(located.module);
        let mut module = Self::decode(&module).map_err(|(error, part)| damaged(&error, offset(&part)))?;
        if module.computations.is_empty() {
            let seen = "a protobuf message without HLO computations".to_owned();
            return Err(ScanErrorKind::NotAModule { seen });
        }
        module.behind = slice(located.behind);
        Ok(module)
    }

    /// Name and id of a module without reading its instructions, to choose among many.
    pub fn identity(bytes: &[u8]) -> Option<(Cow<'_, str>, i64)> {
        identity(bytes)
    }

    /// An error comes with the message that could not be read.
    fn decode(bytes: &Bytes) -> Result<Self, (DecodeError, Bytes)> {
        let mut message: HloModuleProto = decode(bytes)?;
        let mut module = Self {
            name: String::from_utf8_lossy(&message.name).into_owned(),
            id: message.id,
            entry: message.entry_computation_id,
            placement: message.device_assignment.as_ref().map(Placement::of).unwrap_or_default(),
            ..Self::default()
        };
        let computations = std::mem::take(&mut message.computations);
        let computations: Vec<HloComputationProto> = computations.iter().map(decode).collect::<Result<_, _>>()?;
        module.instructions.reserve_exact(computations.iter().map(|one| one.instructions.len()).sum());
        for computation in &computations {
            module.add(computation, &message.payloads)?;
        }
        module.message = message;
        for (place, instruction) in module.instructions.iter().enumerate() {
            for called in instruction.called().iter().filter_map(|id| module.computation_of_id.get(id)) {
                module.caller_of.entry(*called).or_insert(place);
            }
        }
        let mut by_name: Vec<usize> = (0..module.instructions.len()).collect();
        by_name.sort_by_key(|&place| module.name_at(place));
        module.by_name = by_name;
        Ok(module)
    }

    fn add(&mut self, computation: &HloComputationProto, payloads: &[Bytes]) -> Result<(), (DecodeError, Bytes)> {
        let (first, place) = (self.instructions.len(), self.computations.len());
        for instruction in &computation.instructions {
            self.instructions.push(HloInstruction::new(instruction, place, payloads)?);
        }
        self.computation_of_id.entry(computation.id).or_insert(place);
        let instructions = first..self.instructions.len();
        self.computations.push(HloComputation { id: computation.id, root: computation.root_id, instructions });
        Ok(())
    }

    /// The instruction of this name.
    pub fn instruction(&self, name: &str) -> Option<&HloInstruction> {
        self.place_of(name).and_then(|place| self.instructions.get(place))
    }

    /// The index of the instruction with this name in [`HloModule::instructions`].
    pub fn place_of(&self, name: &str) -> Option<usize> {
        let at = self.by_name.partition_point(|&place| self.name_at(place) < name.as_bytes());
        self.by_name.get(at).copied().filter(|&place| self.name_at(place) == name.as_bytes())
    }

    fn name_at(&self, place: usize) -> &[u8] {
        self.instructions.get(place).map(|one| &one.message.name[..]).unwrap_or_default()
    }

    /// The instructions of the computations that an instruction calls, without those that these call in turn.
    pub fn called_by<'m>(&'m self, instruction: &'m HloInstruction) -> impl Iterator<Item = &'m HloInstruction> {
        let computations = instruction.called().iter().filter_map(|id| self.computation_of_id.get(id));
        let ranges = computations.filter_map(|&place| self.computations.get(place)).map(|one| one.instructions.clone());
        ranges.flat_map(|range| self.instructions.get(range).unwrap_or_default())
    }

    /// The instruction that calls the computation of this one; the first if there are several.
    pub fn caller(&self, instruction: &HloInstruction) -> Option<&HloInstruction> {
        self.caller_of.get(&instruction.computation).and_then(|&place| self.instructions.get(place))
    }

    /// The instructions whose values are an instruction's operands.
    pub fn operands_of<'m>(&'m self, instruction: &'m HloInstruction) -> impl Iterator<Item = &'m HloInstruction> {
        let range = self.computations.get(instruction.computation).map(|one| one.instructions.clone());
        let around = range.and_then(|range| self.instructions.get(range)).unwrap_or_default();
        instruction.operands().iter().filter_map(|&id| around.iter().find(|one| one.id() == id))
    }

    /// The source lines that an instruction came from, the outermost call first; empty if unknown.
    pub fn stack<'m>(&'m self, instruction: &'m HloInstruction) -> Vec<Frame<'m>> {
        let Some(metadata) = &instruction.message.metadata else { return Vec::new() };
        let frames = self.message.stack_frame_index.as_ref();
        let stack = frames.map(|frames| frames.stack(metadata.stack_frame_id)).unwrap_or_default();
        if !stack.is_empty() || metadata.source_file.is_empty() {
            return stack;
        }
        let file = String::from_utf8_lossy(&metadata.source_file);
        vec![Frame { file, function: Cow::Borrowed(""), line: metadata.source_line, column: 0 }]
    }

    /// The line that an instruction came from: the innermost of its [`HloModule::stack`].
    pub fn source<'m>(&'m self, instruction: &'m HloInstruction) -> Option<Frame<'m>> {
        self.stack(instruction).pop()
    }
}

impl HloInstruction {
    fn new(encoded: &Bytes, computation: usize, payloads: &[Bytes]) -> Result<Self, (DecodeError, Bytes)> {
        let mut message: HloInstructionProto = decode(encoded)?;
        make_text(&mut message.name);
        make_text(&mut message.opcode);
        let attached = message.frontend_attributes.as_deref().and_then(FrontendAttributes::payload);
        let mut payload = attached.cloned().unwrap_or_default();
        if let Some(metadata) = &mut message.metadata {
            make_text(&mut metadata.op_name);
            let index = metadata.payload.as_ref().and_then(|payload| usize::try_from(payload.index?).ok());
            payload = index.and_then(|index| payloads.get(index)).cloned().unwrap_or(payload);
        }
        make_text(&mut payload);
        let bytes = message.shape.as_ref().map_or(0, ShapeProto::packed_bytes);
        let has_later_fields =
            is_collective(text(&message.opcode)) && !message.names_groups() && highest_field(encoded) > LAST_FIELD;
        Ok(Self { message, bytes, computation, has_later_fields, payload })
    }

    /// Its name, unique in the module: a profile's `hlo_op`.
    pub fn name(&self) -> &str {
        text(&self.message.name)
    }

    /// Its opcode as the file has it, such as `dot`, `fusion`, `all-reduce`.
    pub fn opcode(&self) -> &str {
        text(&self.message.opcode)
    }

    /// Its id, which [`HloInstruction::operands`] refer to.
    pub fn id(&self) -> i64 {
        self.message.id
    }

    /// `metadata.op_name`: the scopes that it came from; empty if there is none.
    pub fn op_name(&self) -> &str {
        self.message.metadata.as_ref().map_or("", |metadata| text(&metadata.op_name))
    }

    /// The label that a library attached to it apart from its scopes, `xla_metadata_payload`; empty if there is none.
    pub fn payload(&self) -> &str {
        text(&self.payload)
    }

    /// Ids of its operands, all in its own computation.
    pub fn operands(&self) -> &[i64] {
        &self.message.operand_ids
    }

    /// Ids of the computations that it calls.
    pub fn called(&self) -> &[i64] {
        &self.message.called_computation_ids
    }

    /// The shape of its result.
    pub fn shape(&self) -> &ShapeProto {
        self.message.shape.as_ref().unwrap_or(&NO_SHAPE)
    }
}

impl FrontendAttributes {
    /// The label that a library attached.
    fn payload(&self) -> Option<&Bytes> {
        self.map.iter().find(|entry| entry.key == PAYLOAD_ATTRIBUTE).map(|entry| &entry.value)
    }
}

/// Whether an instruction may name groups of devices.
fn is_collective(opcode: &str) -> bool {
    ["all-", "collective-", "reduce-scatter"].iter().any(|part| opcode.contains(part))
}

fn decode<M: Message + Default>(bytes: &Bytes) -> Result<M, (DecodeError, Bytes)> {
    M::decode(bytes.clone()).map_err(|error| (error, bytes.clone()))
}

/// What a message that cannot be read says about its file; the message begins at `offset`.
pub(super) fn damaged(error: &DecodeError, offset: u64) -> ScanErrorKind {
    ScanErrorKind::Truncated { what: format!("{error}, in the message"), offset }
}

/// Replaces what is not UTF-8.
fn make_text(bytes: &mut Bytes) {
    if let Cow::Owned(text) = String::from_utf8_lossy(bytes) {
        *bytes = Bytes::from(text);
    }
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
