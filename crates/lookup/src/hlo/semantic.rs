//! The semantic digest: what a program computes, independent of source locations and the module's name.
//!
//! Two candidates with the same digest are one program and are measured once; a kernel recorded again from another path
//! keeps its digest. Digests of different forms of one program are not comparable: the form is part of what is hashed.
//!
//! - StableHLO text: the SHA-256 of the text without `loc(…)`, the `#loc` lines and the labels in XLA's metadata, the
//!   module's name replaced by `@module`, surrounding white space removed. Text printed with and without debug info has
//!   one digest.
//! - `HloModuleProto`: without names, source metadata and the stack frame table; ids count from the start of each
//!   computation. Instruction names are left out because XLA derives them from scopes.
//! - MLIR bytecode: see the `bytecode` module.

use std::collections::HashMap;

use super::bytecode;
use super::detect::{self, Content, HEAD_BYTES};
use super::envelope;
use super::error::{ScanError, ScanErrorKind};
use super::found::ModuleForm;
use super::plain_text::{with_module_renamed, without_locations, without_payloads};
use crate::digest::{Digest, FieldHasher};
use crate::wire::{Message, WireCursor, WireError, WireValue, repeated_varints};

/// The semantic digest of a program; `place` names it in errors. HLO text has none: write the program as StableHLO.
///
/// # Errors
///
/// If it is HLO text, or the bytes are not a program.
pub fn semantic_digest(bytes: &[u8], place: &str) -> Result<Digest, ScanError> {
    digest(bytes).map_err(|kind| kind.at(place))
}

fn digest(bytes: &[u8]) -> Result<Digest, ScanErrorKind> {
    match detect::detect(bytes.get(..HEAD_BYTES).unwrap_or(bytes))? {
        Content::Module(ModuleForm::StablehloText) => Ok(of_mlir_text(bytes)),
        Content::Module(ModuleForm::HloProto) => of_proto(bytes),
        Content::Module(ModuleForm::StablehloBytecode) => bytecode::semantic_digest(bytes),
        Content::Exported => bytecode::semantic_digest(envelope::exported(bytes)?),
        Content::Module(_) => Err(ScanErrorKind::Unsupported {
            what: "HLO text, whose names cannot be separated from what it computes".to_owned(),
        }),
        Content::Gzip | Content::Zstd => {
            Err(ScanErrorKind::Unsupported { what: "a compressed stream, to be decompressed first".to_owned() })
        }
    }
}

/// The text as MLIR prints it without debug information, for a module named `@module`. A recorder that has the module
/// computes the same digest from the printer's output.
fn of_mlir_text(text: &[u8]) -> Digest {
    match std::str::from_utf8(text) {
        Ok(text) => Digest::of(with_module_renamed(&without_payloads(&without_locations(text))).as_bytes()),
        Err(_) => Digest::of(text),
    }
}

/// Field numbers of `HloModuleProto`: `xla/service/hlo.proto`.
mod module_field {
    pub(super) const NAME: u32 = 1;
    pub(super) const ENTRY_NAME: u32 = 2;
    pub(super) const COMPUTATION: u32 = 3;
    pub(super) const PROGRAM_SHAPE: u32 = 4;
    pub(super) const ID: u32 = 5;
    pub(super) const ENTRY_ID: u32 = 6;
    pub(super) const STACK_FRAMES: u32 = 17;
    pub(super) const PAYLOADS: u32 = 22;
}

fn of_proto(bytes: &[u8]) -> Result<Digest, ScanErrorKind> {
    let (start, module) = envelope::module_in(bytes)?;
    let mut hasher = FieldHasher::new("semantic digest of HloModuleProto, 1");
    hash_module(module, &mut hasher).map_err(|error| ScanErrorKind::Truncated {
        what: error.what.to_owned(),
        offset: start + error.offset as u64,
    })?;
    Ok(hasher.finish())
}

fn hash_module(module: &[u8], hasher: &mut FieldHasher) -> Result<(), WireError> {
    let mut computations: HashMap<u64, u64> = HashMap::new();
    for field in WireCursor::new(module) {
        if let (module_field::COMPUTATION, WireValue::Bytes(computation)) = field? {
            let next = computations.len() as u64;
            computations.insert(id_of(computation, 5)?, next);
        }
    }
    for field in WireCursor::new(module) {
        let (number, value) = field?;
        match (number, value) {
            (module_field::NAME | module_field::ENTRY_NAME | module_field::ID, _) => {}
            // what instructions' metadata refer to
            (module_field::STACK_FRAMES | module_field::PAYLOADS, _) => {}
            (module_field::ENTRY_ID, WireValue::Varint(id)) => {
                hash_value(number, WireValue::Varint(renumbered(&computations, id)), hasher);
            }
            (module_field::PROGRAM_SHAPE, WireValue::Bytes(shape)) => hash_program_shape(number, shape, hasher)?,
            (module_field::COMPUTATION, WireValue::Bytes(computation)) => {
                hasher.field(b"computation");
                hash_computation(computation, &computations, hasher)?;
            }
            _ => hash_value(number, value, hasher),
        }
    }
    Ok(())
}

/// Field of `HloInstructionProto`.
const FRONTEND_ATTRIBUTES: u32 = 68;
/// The attribute that labels a call, which newer versions of XLA keep in the metadata.
const PAYLOAD: &[u8] = b"xla_metadata_payload";

/// Ids that name nothing in the module remain distinct from those that do.
fn renumbered(index: &HashMap<u64, u64>, id: u64) -> u64 {
    index.get(&id).copied().unwrap_or(u64::MAX)
}

fn id_of(message: &[u8], number: u32) -> Result<u64, WireError> {
    let mut id = 0;
    for field in WireCursor::new(message) {
        match field? {
            (found, WireValue::Varint(value)) if found == number => id = value,
            _ => {}
        }
    }
    Ok(id)
}

/// A `ProgramShapeProto` without its parameters' names.
fn hash_program_shape(number: u32, shape: &[u8], hasher: &mut FieldHasher) -> Result<(), WireError> {
    hasher.field(&number.to_le_bytes());
    for field in WireCursor::new(shape) {
        match field? {
            (3, _) => {}
            (number, value) => hash_value(number, value, hasher),
        }
    }
    Ok(())
}

fn hash_computation(
    computation: &[u8],
    computations: &HashMap<u64, u64>,
    hasher: &mut FieldHasher,
) -> Result<(), WireError> {
    let mut instructions: HashMap<u64, u64> = HashMap::new();
    for field in WireCursor::new(computation) {
        if let (2, WireValue::Bytes(instruction)) = field? {
            let next = instructions.len() as u64;
            instructions.insert(id_of(instruction, 35)?, next);
        }
    }
    for field in WireCursor::new(computation) {
        match field? {
            (1 | 5, _) => {}
            (2, WireValue::Bytes(instruction)) => {
                hasher.field(b"instruction");
                hash_instruction(instruction, &instructions, computations, hasher)?;
            }
            (4, WireValue::Bytes(shape)) => hash_program_shape(4, shape, hasher)?,
            (6, WireValue::Varint(root)) => {
                hash_value(6, WireValue::Varint(renumbered(&instructions, root)), hasher);
            }
            (number, value) => hash_value(number, value, hasher),
        }
    }
    Ok(())
}

fn hash_instruction(
    instruction: &[u8],
    instructions: &HashMap<u64, u64>,
    computations: &HashMap<u64, u64>,
    hasher: &mut FieldHasher,
) -> Result<(), WireError> {
    // name, metadata, id, and the record of what an instruction was before it was rewritten
    const LEFT_OUT: [u32; 4] = [1, 7, 35, 88];
    for field in WireCursor::new(instruction) {
        let (number, value) = field?;
        let index = match number {
            _ if LEFT_OUT.contains(&number) => continue,
            FRONTEND_ATTRIBUTES => {
                hash_frontend_attributes(value, hasher)?;
                continue;
            }
            36 | 37 => instructions,
            38 => computations,
            _ => {
                hash_value(number, value, hasher);
                continue;
            }
        };
        let mut ids = Vec::new();
        repeated_varints(value, &mut ids)?;
        hasher.field(&number.to_le_bytes());
        for id in ids {
            hasher.field(&renumbered(index, id).to_le_bytes());
        }
    }
    Ok(())
}

/// What the frontend attached to an instruction, without the label of its call.
fn hash_frontend_attributes(value: WireValue<'_>, hasher: &mut FieldHasher) -> Result<(), WireError> {
    let (mut others, mut labels) = (Message::default(), 0);
    for entry in WireCursor::new(value.as_bytes().unwrap_or_default()) {
        let (number, entry) = entry?;
        let mut fields = WireCursor::new(entry.as_bytes().unwrap_or_default());
        match fields.any(|field| matches!(field, Ok((1, WireValue::Bytes(PAYLOAD))))) {
            true => labels += 1,
            false => others.field(number, entry),
        }
    }
    // XLA writes the field of an instruction without attributes, too
    let value = if labels == 0 { value } else { WireValue::Bytes(&others.0) };
    hash_value(FRONTEND_ATTRIBUTES, value, hasher);
    Ok(())
}

fn hash_value(number: u32, value: WireValue<'_>, hasher: &mut FieldHasher) {
    hasher.field(&number.to_le_bytes());
    match value {
        WireValue::Varint(number) => hasher.field(&number.to_le_bytes()),
        WireValue::Fixed64(number) => hasher.field(&number.to_le_bytes()),
        WireValue::Fixed32(number) => hasher.field(&number.to_le_bytes()),
        WireValue::Bytes(bytes) => hasher.field(bytes),
    };
}
