//! The role of an instruction: communication, computation, or neither.

use crate::hlo::{HloInstruction, HloModule, ReplicaGroups};

use super::kind::CollectiveKind;
use super::model::Communication;
use crate::analysis::event_facts::EventFacts;

/// `Layout::kHostMemorySpace` of XLA.
const HOST_MEMORY: u64 = 5;
/// Maximum nesting of computations that is searched for what a fusion or an `async-start` wraps.
const MAX_DEPTH: usize = 4;

/// The role of an instruction's time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// A collective, or a transfer between host and device.
    Communication(Communication),
    /// Waiting for an earlier start (`all-gather-done`, `async-done`, …).
    Wait,
    /// `while`, `conditional`, `call`: the operations that they launch have times of their own.
    Control,
    /// Anything else.
    Compute,
}

impl Role {
    /// The role of an instruction of a module.
    pub fn of(module: &HloModule, instruction: &HloInstruction) -> Self {
        if let Some(communication) = communication(module, instruction, MAX_DEPTH) {
            return Self::Communication(communication);
        }
        Self::of_opcode(instruction.opcode())
    }

    /// The role by an operation's name if its program is unknown: `all-reduce-start.3`, or a kernel's own name.
    pub fn of_name(name: &str) -> Self {
        let opcode = name.split('.').next().unwrap_or_default();
        let kind = CollectiveKind::of_opcode(opcode).or_else(|| CollectiveKind::of_kernel(name));
        kind.map_or_else(|| Self::of_opcode(opcode), |kind| Self::Communication(Communication::of_kind(kind)))
    }

    /// The role by what the operation's events say, if its program is unknown.
    pub(in crate::analysis) fn of_event(name: &str, facts: Option<&EventFacts>) -> Self {
        let Some(EventFacts { opcode, category, .. }) = facts.filter(|facts| !facts.opcode.is_empty()) else {
            return Self::of_name(name);
        };
        let kind = match opcode.as_str() {
            // what a wrapper holds gives it its name or its category
            "async-start" | "fusion" | "custom-call" => {
                CollectiveKind::in_words(category).or_else(|| CollectiveKind::in_words(name))
            }
            opcode => CollectiveKind::of_opcode(opcode),
        };
        let role =
            kind.map_or_else(|| Self::of_opcode(opcode), |kind| Self::Communication(Communication::of_kind(kind)));
        match (&role, Self::of_name(name)) {
            (Self::Compute, named @ (Self::Communication(_) | Self::Wait)) => named,
            _ => role,
        }
    }

    fn of_opcode(opcode: &str) -> Self {
        match opcode {
            "while" | "conditional" | "call" => Self::Control,
            _ if opcode.ends_with("-done") => Self::Wait,
            _ => Self::Compute,
        }
    }
}

fn communication(module: &HloModule, instruction: &HloInstruction, depth: usize) -> Option<Communication> {
    match instruction.opcode() {
        // a wrapper's role is that of its content
        "async-start" | "fusion" if depth > 0 => {
            module.called_by(instruction).find_map(|called| communication(module, called, depth - 1))
        }
        "dynamic-slice" | "dynamic-update-slice" => transfer(module, instruction),
        opcode => CollectiveKind::of_opcode(opcode).map(|kind| collective(module, instruction, kind)),
    }
}

fn collective(module: &HloModule, instruction: &HloInstruction, kind: CollectiveKind) -> Communication {
    // where there are replicas and partitions, an id is counted over both only if the instruction says so
    let placement = &module.placement;
    let counts_both = placement.is_plain() || instruction.message.use_global_device_ids;
    let placed = if counts_both { placement.devices.as_slice() } else { &[] };
    let (group_size, logical) = match instruction.replica_groups() {
        // each pair sends and receives
        _ if kind.is_of_pairs() => (Some(2), Vec::new()),
        ReplicaGroups::All => (u64::try_from(placed.len()).ok().filter(|&count| count > 0), Vec::new()),
        ReplicaGroups::Listed(lists) => {
            let size = lists.first().map(|list| list.len() as u64).unwrap_or(0);
            let alike = size > 0 && lists.iter().all(|list| list.len() as u64 == size);
            (alike.then_some(size), lists)
        }
        _ => (None, Vec::new()),
    };
    let device = |id: &u64| placed.get(usize::try_from(*id).ok()?).copied();
    let groups: Option<Vec<Vec<i64>>> =
        logical.iter().map(|list| list.iter().map(device).collect::<Option<Vec<i64>>>()).collect();
    let operands: u64 = module.operands_of(instruction).map(|operand| operand.bytes).sum();
    let message_bytes = match (kind, group_size) {
        (CollectiveKind::ReduceScatter, Some(size)) => Some(operands / size.max(1)),
        (CollectiveKind::ReduceScatter, None) => None,
        // beside what it receives its result has a number of four bytes and a token
        (CollectiveKind::Recv, _) => Some(instruction.bytes.saturating_sub(4)),
        _ => Some(operands),
    };
    Communication { kind, group_size, message_bytes, groups: groups.unwrap_or_default() }
}

/// A slice read from, or written into, an array on the other side, by which memory is offloaded to the host.
fn transfer(module: &HloModule, instruction: &HloInstruction) -> Option<Communication> {
    let mut operands = module.operands_of(instruction);
    let whole = operands.next()?;
    let to_host = is_on_host(instruction);
    let bytes = if instruction.opcode() == "dynamic-slice" {
        (to_host != is_on_host(whole)).then_some(instruction.bytes)?
    } else {
        let part = operands.next()?;
        (to_host == is_on_host(whole) && to_host != is_on_host(part)).then_some(part.bytes)?
    };
    let kind = if to_host { CollectiveKind::DeviceToHost } else { CollectiveKind::HostToDevice };
    Some(Communication { kind, group_size: Some(1), message_bytes: Some(bytes), groups: Vec::new() })
}

/// Whether the result is in the host's memory: `shape.layout.memory_space`.
fn is_on_host(instruction: &HloInstruction) -> bool {
    instruction.shape().layout.as_ref().is_some_and(|layout| layout.memory_space == HOST_MEMORY)
}
