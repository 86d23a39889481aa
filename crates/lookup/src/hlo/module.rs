//! `HloModuleProto` as instructions, in which a profile's operations are looked up.
//!
//! Texts are borrowed from the message. Field numbers: `xla/service/hlo.proto` and `xla/xla_data.proto`.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::wire::{WireCursor, WireError, WireValue, repeated_varints};

use super::error::{ScanError, ScanErrorKind};
use super::frames::{Frame, Frames};
use super::placement::Placement;
use super::proto::{dtype, module_range};

/// Maximum number of shapes examined within one shape, which bounds nested tuples.
const MAX_SHAPES: usize = 1 << 16;

/// A module's computations and instructions, borrowed from its bytes.
#[derive(Debug, Default)]
pub struct HloModule<'a> {
    /// Its name, such as `jit_step`.
    pub name: Cow<'a, str>,
    /// Its number in the process that compiled it.
    pub id: i64,
    /// The id of the computation that runs first.
    pub entry: i64,
    /// Every computation, in file order.
    pub computations: Vec<HloComputation<'a>>,
    /// Every instruction, computation by computation.
    pub instructions: Vec<HloInstruction<'a>>,
    /// Its device placement.
    pub placement: Placement,
    /// The `BufferAssignmentProto` of an `HloProto` around it.
    pub(super) buffer_assignment: Option<&'a [u8]>,
    frames: Frames<'a>,
    computation_of_id: HashMap<i64, usize>,
    instruction_of_name: HashMap<Cow<'a, str>, usize>,
    /// By computation, the first instruction that calls it.
    caller_of: HashMap<usize, usize>,
}

/// A computation: the entry, a body, a fusion.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct HloComputation<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its id, which [`HloInstruction::called`] refers to.
    pub id: i64,
    /// The id of the instruction whose value is its result.
    pub root: i64,
    /// The range of its instructions in [`HloModule::instructions`].
    pub instructions: std::ops::Range<usize>,
}

/// An instruction.
#[derive(Debug, Default)]
pub struct HloInstruction<'a> {
    /// Its name, unique in the module: a profile's `hlo_op`.
    pub name: Cow<'a, str>,
    /// Its opcode as the file has it, such as `dot`, `fusion`, `all-reduce`.
    pub opcode: Cow<'a, str>,
    /// Its id, which [`HloInstruction::operands`] refer to.
    pub id: i64,
    /// `metadata.op_name`: the scopes that it came from; empty if there is none.
    pub op_name: Cow<'a, str>,
    /// Ids of its operands, all in its own computation.
    pub operands: Vec<i64>,
    /// Ids of the computations that it calls.
    pub called: Vec<i64>,
    /// Bytes of its result, tuples added up. Shapes of unknown types count as zero.
    pub bytes: u64,
    /// The index of its computation in [`HloModule::computations`].
    pub computation: usize,
    /// The whole `HloInstructionProto`.
    pub message: &'a [u8],
    source_file: Cow<'a, str>,
    source_line: u64,
    stack_frame: u64,
}

impl<'a> HloModule<'a> {
    /// Reads an `HloModuleProto`, or an `HloProto` around one; `place` names it in errors.
    ///
    /// # Errors
    ///
    /// If the bytes are not such a message.
    pub fn read(bytes: &'a [u8], place: &str) -> Result<Self, ScanError> {
        let read = || {
            if bytes.is_empty() {
                return Err(ScanErrorKind::Empty);
            }
            let (start, end) = module_range(&bytes)?;
            let range = usize::try_from(start).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
            let around = bytes.get(range.end..).filter(|_| start > 0).unwrap_or_default();
            let module = Self::decode(bytes.get(range).unwrap_or_default());
            let mut module = module.map_err(|error| ScanErrorKind::Truncated {
                what: error.what.to_owned(),
                offset: start + error.offset as u64,
            })?;
            if module.computations.is_empty() {
                let seen = "a protobuf message without HLO computations".to_owned();
                return Err(ScanErrorKind::NotAModule { seen });
            }
            module.buffer_assignment = WireCursor::new(around).map_while(Result::ok).find_map(|field| match field {
                (3, WireValue::Bytes(assignment)) => Some(assignment),
                _ => None,
            });
            Ok(module)
        };
        read().map_err(|kind| kind.at(place))
    }

    /// Name and id of a module without reading its instructions, to choose among many.
    pub fn identity(bytes: &'a [u8]) -> Option<(Cow<'a, str>, i64)> {
        let (start, end) = module_range(&bytes).ok()?;
        let bytes = bytes.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)?;
        let (mut name, mut id) = (None, 0);
        for field in WireCursor::new(bytes) {
            match field.ok()? {
                (1, WireValue::Bytes(text)) => name = Some(String::from_utf8_lossy(text)),
                (5, WireValue::Varint(number)) => id = number as i64,
                _ => {}
            }
        }
        Some((name?, id))
    }

    fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut module = Self::default();
        for field in WireCursor::new(bytes) {
            match field? {
                (1, WireValue::Bytes(name)) => module.name = String::from_utf8_lossy(name),
                (3, WireValue::Bytes(computation)) => module.computation(computation)?,
                (5, WireValue::Varint(id)) => module.id = id as i64,
                (6, WireValue::Varint(id)) => module.entry = id as i64,
                (15, WireValue::Bytes(assignment)) => module.placement = Placement::decode(assignment)?,
                (17, WireValue::Bytes(index)) => module.frames = Frames::decode(index)?,
                _ => {}
            }
        }
        for (place, instruction) in module.instructions.iter().enumerate() {
            module.instruction_of_name.entry(instruction.name.clone()).or_insert(place);
            for called in instruction.called.iter().filter_map(|id| module.computation_of_id.get(id)) {
                module.caller_of.entry(*called).or_insert(place);
            }
        }
        Ok(module)
    }

    fn computation(&mut self, bytes: &'a [u8]) -> Result<(), WireError> {
        let first = self.instructions.len();
        let place = self.computations.len();
        let mut computation = HloComputation::default();
        for field in WireCursor::new(bytes) {
            match field? {
                (1, WireValue::Bytes(name)) => computation.name = String::from_utf8_lossy(name),
                (2, WireValue::Bytes(message)) => self.instructions.push(HloInstruction::decode(message, place)?),
                (5, WireValue::Varint(id)) => computation.id = id as i64,
                (6, WireValue::Varint(id)) => computation.root = id as i64,
                _ => {}
            }
        }
        computation.instructions = first..self.instructions.len();
        self.computation_of_id.entry(computation.id).or_insert(place);
        self.computations.push(computation);
        Ok(())
    }

    /// The instruction of this name.
    pub fn instruction(&self, name: &str) -> Option<&HloInstruction<'a>> {
        self.place_of(name).and_then(|place| self.instructions.get(place))
    }

    /// The index of the instruction with this name in [`HloModule::instructions`].
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.instruction_of_name.get(name).copied()
    }

    /// The instructions of the computations that an instruction calls, without those that these call in turn.
    pub fn called_by<'m>(
        &'m self,
        instruction: &'m HloInstruction<'a>,
    ) -> impl Iterator<Item = &'m HloInstruction<'a>> {
        let computations = instruction.called.iter().filter_map(|id| self.computation_of_id.get(id));
        let ranges = computations.filter_map(|&place| self.computations.get(place)).map(|one| one.instructions.clone());
        ranges.flat_map(|range| self.instructions.get(range).unwrap_or_default())
    }

    /// The instruction that calls the computation of this one; the first if there are several.
    pub fn caller(&self, instruction: &HloInstruction<'a>) -> Option<&HloInstruction<'a>> {
        self.caller_of.get(&instruction.computation).and_then(|&place| self.instructions.get(place))
    }

    /// The instructions whose values are an instruction's operands.
    pub fn operands_of<'m>(
        &'m self,
        instruction: &'m HloInstruction<'a>,
    ) -> impl Iterator<Item = &'m HloInstruction<'a>> {
        let range = self.computations.get(instruction.computation).map(|one| one.instructions.clone());
        let around = range.and_then(|range| self.instructions.get(range)).unwrap_or_default();
        instruction.operands.iter().filter_map(|id| around.iter().find(|one| one.id == *id))
    }

    /// The source lines that an instruction came from, the outermost call first; empty if unknown.
    pub fn stack(&self, instruction: &HloInstruction<'a>) -> Vec<Frame<'a>> {
        let stack = self.frames.stack(instruction.stack_frame);
        if !stack.is_empty() || instruction.source_file.is_empty() {
            return stack;
        }
        let (file, line) = (instruction.source_file.clone(), instruction.source_line);
        vec![Frame { file, function: Cow::Borrowed(""), line, column: 0 }]
    }

    /// The line that an instruction came from: the innermost of its [`HloModule::stack`].
    pub fn source(&self, instruction: &HloInstruction<'a>) -> Option<Frame<'a>> {
        self.stack(instruction).pop()
    }
}

impl<'a> HloInstruction<'a> {
    fn decode(message: &'a [u8], computation: usize) -> Result<Self, WireError> {
        let mut instruction = Self { computation, message, ..Self::default() };
        let (mut operands, mut called) = (Vec::new(), Vec::new());
        for field in WireCursor::new(message) {
            match field? {
                (1, WireValue::Bytes(name)) => instruction.name = String::from_utf8_lossy(name),
                (2, WireValue::Bytes(opcode)) => instruction.opcode = String::from_utf8_lossy(opcode),
                (3, WireValue::Bytes(shape)) => instruction.bytes = shape_bytes(shape)?,
                (7, WireValue::Bytes(metadata)) => instruction.metadata(metadata)?,
                (35, WireValue::Varint(id)) => instruction.id = id as i64,
                (36, value) => repeated_varints(value, &mut operands)?,
                (38, value) => repeated_varints(value, &mut called)?,
                _ => {}
            }
        }
        let ids = |numbers: Vec<u64>| numbers.into_iter().map(|id| id as i64).collect();
        (instruction.operands, instruction.called) = (ids(operands), ids(called));
        Ok(instruction)
    }

    fn metadata(&mut self, metadata: &'a [u8]) -> Result<(), WireError> {
        for field in WireCursor::new(metadata) {
            match field? {
                (2, WireValue::Bytes(name)) => self.op_name = String::from_utf8_lossy(name),
                (3, WireValue::Bytes(file)) => self.source_file = String::from_utf8_lossy(file),
                (4, WireValue::Varint(line)) => self.source_line = line,
                (15, WireValue::Varint(frame)) => self.stack_frame = frame,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Bytes of a `ShapeProto`: each array's elements by the bits of their type, tuples added up.
fn shape_bytes(shape: &[u8]) -> Result<u64, WireError> {
    let (mut open, mut seen, mut bytes) = (vec![shape], 0, 0_u64);
    while let Some(shape) = open.pop() {
        let (mut element, mut dims) = (0, Vec::new());
        for field in WireCursor::new(shape) {
            match field? {
                (2, WireValue::Varint(number)) => element = number,
                (3, value) => repeated_varints(value, &mut dims)?,
                (4, WireValue::Bytes(inner)) if seen < MAX_SHAPES => {
                    seen += 1;
                    open.push(inner);
                }
                _ => {}
            }
        }
        let elements = dims.iter().fold(1_u64, |product, &dim| product.saturating_mul(dim));
        let bits = dtype(element).map_or(0, |dtype| u64::from(dtype.bits()));
        bytes = bytes.saturating_add(elements.saturating_mul(bits).div_ceil(8));
    }
    Ok(bytes)
}
