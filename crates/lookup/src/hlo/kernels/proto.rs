//! The kernels of HLO.

use super::call::{Call, METADATA, is_target, metadata};
use super::names::{base, scopes};
use crate::hlo::module::{HloInstruction, HloModule};
use crate::hlo::text_cursor::quoted;

/// Functions that are looked at, the innermost first.
const MAX_FRAMES: usize = 4;

/// Each custom call of a kernel.
pub(super) fn calls(module: &HloModule) -> Vec<Call> {
    module.instructions.iter().filter_map(|instruction| call_of(module, instruction)).collect()
}

/// Gives the calls of a text their lines, unless it spells another number of targets, such as in a comment.
pub(super) fn give_lines(calls: &mut [Call], text: &[u8]) {
    const TARGET: &[u8] = b"custom_call_target=\"";
    let (mut line, mut counted, mut lines) = (1, 0, Vec::new());
    for at in memchr::memmem::find_iter(text, TARGET) {
        if text.get(at + TARGET.len()..).is_some_and(|target| is_target(quoted(target))) {
            line += memchr::memchr_iter(b'\n', text.get(counted..at).unwrap_or_default()).count() as u64;
            counted = at;
            lines.push(line);
        }
    }
    if lines.len() == calls.len() {
        calls.iter_mut().zip(lines).for_each(|(call, line)| call.line = Some(line));
    }
}

/// The custom call of an instruction, if it is one of a kernel.
pub(super) fn call_of(module: &HloModule, instruction: &HloInstruction) -> Option<Call> {
    let message = &instruction.message;
    if instruction.opcode() != "custom-call" || !is_target(&message.custom_call_target) {
        return None;
    }
    let mut names = vec![base(instruction.name()).to_owned()];
    names.extend(scopes(instruction.op_name()));
    let stack = module.stack(instruction);
    let frames = || stack.iter().rev().take(MAX_FRAMES);
    names.extend(frames().map(|frame| frame.function.clone().into_owned()).filter(|name| !name.is_empty()));
    let attributes = message.frontend_attributes.as_deref().map(|all| all.map.as_slice()).unwrap_or_default();
    let said = attributes.iter().find(|entry| entry.key == METADATA).map(|entry| metadata(&entry.value));
    let mut call = Call {
        target: String::from_utf8_lossy(&message.custom_call_target).into_owned(),
        names,
        places: frames().map(|frame| (frame.file.clone().into_owned(), frame.line)).collect(),
        metadata: said.unwrap_or_default(),
        operands: module.operands_of(instruction).filter_map(|operand| operand.shape().array()).collect(),
        scope: instruction.op_name().to_owned(),
        ..Call::default()
    };
    call.read_launch(&message.backend_config);
    Some(call)
}
