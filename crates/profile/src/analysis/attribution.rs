//! What the HLO instruction of a profile's operation says: opcode, source line, `op_name`, label.

use std::collections::BTreeMap;

use crate::hlo::{Cost, Costs, Evidence, Label};
use crate::hlo::{HloInstruction, HloModule, UserLabels, labels_in};

/// Maximum number of enclosing computations that are searched for a label.
const MAX_CALLERS: usize = 64;

/// What is known about an operation.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Attribution {
    /// Such as `fusion`; whatever the module says.
    pub opcode: String,
    /// The scopes that it came from; empty if there are none.
    pub op_name: String,
    /// File and line, where they are known.
    pub source: Option<(String, u64)>,
    /// The tunable call that it is part of, with how much of its label was kept.
    pub label: Option<(Label, Evidence)>,
    /// Bytes of its result.
    pub bytes: u64,
    /// The work of one run, if known and its own: not for control flow, nor for communication between devices.
    pub cost: Option<Cost>,
}

impl Attribution {
    /// Looks an operation up by its instruction's name; `costs` are those of the module.
    pub fn find(module: &HloModule, costs: &Costs, operation: &str, user: Option<&UserLabels>) -> Option<Self> {
        let place = module.place_of(operation)?;
        let instruction = module.instructions.get(place)?;
        let within = || inner(module, instruction);
        // a fusion has the name of its last instruction, or none
        let named = std::iter::once(instruction).chain(within()).find(|one| !one.op_name().is_empty());
        let placed = std::iter::once(instruction).chain(within()).find_map(|one| module.source(one));
        Some(Self {
            opcode: instruction.opcode().to_owned(),
            op_name: named.map_or_else(String::new, |one| one.op_name().to_owned()),
            source: placed.map(|frame| (frame.file.into_owned(), frame.line)),
            label: label(module, instruction, user),
            bytes: instruction.bytes,
            cost: costs.instruction(place).filter(|cost| cost.is_known() && works(instruction.opcode())).cloned(),
        })
    }

    /// Whether it moves data between devices.
    pub fn is_communication(&self) -> bool {
        is_communication(&self.opcode)
    }
}

/// The instructions that run as part of this one; those called by control flow run as operations of their own.
pub fn inner<'m>(module: &'m HloModule, instruction: &'m HloInstruction) -> impl Iterator<Item = &'m HloInstruction> {
    let is_one = !matches!(instruction.opcode(), "while" | "conditional" | "call");
    is_one.then(|| module.called_by(instruction)).into_iter().flatten()
}

/// Whether an instruction's cost is the work of its own event: control flow runs operations of their own, communication
/// is not work of the device's memory alone, and the end of an asynchronous operation does nothing.
fn works(opcode: &str) -> bool {
    !matches!(opcode, "while" | "conditional" | "call") && !opcode.ends_with("-done") && !is_communication(opcode)
}

/// Whether an opcode moves data between devices or hosts.
pub fn is_communication(opcode: &str) -> bool {
    let base = opcode.strip_suffix("-start").or_else(|| opcode.strip_suffix("-done")).unwrap_or(opcode);
    matches!(
        base,
        "all-gather"
            | "all-reduce"
            | "all-to-all"
            | "ragged-all-to-all"
            | "collective-broadcast"
            | "collective-permute"
            | "reduce-scatter"
            | "send"
            | "recv"
    )
}

/// The innermost label of an instruction's scopes. If it has none, because the compiler created it, that of most
/// instructions that it fuses; if those have none either, that of the instruction whose body contains it.
fn label(module: &HloModule, instruction: &HloInstruction, user: Option<&UserLabels>) -> Option<(Label, Evidence)> {
    let innermost = |one: &HloInstruction| labels_in(one.op_name(), one.payload(), user).pop();
    let is_named = |one: &HloInstruction| !one.op_name().is_empty() || !one.payload().is_empty();
    let mut at = instruction;
    for _ in 0..MAX_CALLERS {
        if is_named(at) {
            return innermost(at);
        }
        let mut votes: BTreeMap<Option<(Label, Evidence)>, usize> = BTreeMap::new();
        for one in inner(module, at).filter(|one| is_named(one)) {
            *votes.entry(innermost(one)).or_default() += 1;
        }
        if let Some((label, _)) = votes.into_iter().max_by_key(|(_, count)| *count) {
            return label;
        }
        at = module.caller(at)?;
    }
    None
}
