//! How tables name operations and their modules.

use crate::analysis::OperationSummary;
use crate::cache::COMPILER_OPTIONS;
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::tune::OperationResult;

/// Longest name in the table.
const MAX_NAME: usize = 72;

/// Shortens a name that may be long to its ends, which are the most informative.
pub(super) fn short(name: &str) -> String {
    let length = name.chars().count();
    if length <= MAX_NAME {
        return name.to_owned();
    }
    let (head, tail) = (MAX_NAME / 3, MAX_NAME - 1 - MAX_NAME / 3);
    name.chars().take(head).chain(['…']).chain(name.chars().skip(length - tail)).collect()
}

/// Returns `op@vN:key`, with its direction unless it is forward.
pub(super) fn name_with_direction(operation: &OperationResult) -> String {
    let direction = if operation.direction == Direction::Forward { "" } else { " (with vjp)" };
    format!("{}{direction}", operation.call.to_short())
}

/// Writes a config in one line. Without options a compiler has its own.
pub(super) fn brief_config(call: &Call, config: &Config) -> String {
    match call.op_id == COMPILER_OPTIONS && config.as_map().is_empty() {
        true => "XLA's defaults".to_owned(),
        false => config.to_brief(),
    }
}

/// Returns a module and its program's id.
pub(super) fn program(module: &str, id: Option<i64>) -> String {
    id.map_or_else(|| module.to_owned(), |id| format!("{module}({id})"))
}

/// Returns the operation, with its module if there are several.
pub(super) fn named(operation: &OperationSummary, several: bool) -> String {
    let OperationSummary { operation, module, program_id, .. } = operation;
    short(&if several { format!("{operation} of {}", program(module, *program_id)) } else { operation.clone() })
}
