//! The role of an instruction: communication, computation, or neither.

use crate::hlo::{HloInstruction, HloModule};
use crate::wire::{WireCursor, WireError, WireValue, repeated_varints};

use super::kind::CollectiveKind;
use super::model::Communication;
use crate::analysis::event_facts::EventFacts;

/// `Layout::kHostMemorySpace` of XLA.
const HOST_MEMORY: u64 = 5;
/// Maximum nesting of computations that is searched for what a fusion or an `async-start` wraps.
const MAX_DEPTH: usize = 4;
/// Maximum number of devices of a program, a bound for damaged group lists.
const MAX_DEVICES: u64 = 1 << 16;

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
    pub fn of(module: &HloModule<'_>, instruction: &HloInstruction<'_>) -> Self {
        if let Some(communication) = communication(module, instruction, MAX_DEPTH) {
            return Self::Communication(communication);
        }
        Self::of_opcode(&instruction.opcode)
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

fn communication(module: &HloModule<'_>, instruction: &HloInstruction<'_>, depth: usize) -> Option<Communication> {
    match &*instruction.opcode {
        // a wrapper's role is that of its content
        "async-start" | "fusion" if depth > 0 => {
            module.called_by(instruction).find_map(|called| communication(module, called, depth - 1))
        }
        "dynamic-slice" | "dynamic-update-slice" => transfer(module, instruction),
        opcode => CollectiveKind::of_opcode(opcode).map(|kind| collective(module, instruction, kind)),
    }
}

fn collective(module: &HloModule<'_>, instruction: &HloInstruction<'_>, kind: CollectiveKind) -> Communication {
    // where there are replicas and partitions, an id is counted over both only if the instruction says so
    let placement = &module.placement;
    let counts_both = placement.is_plain() || value_of(instruction.message, 71) == Some(WireValue::Varint(1));
    let placed = if counts_both { placement.devices.as_slice() } else { &[] };
    let groups = Groups::read(instruction.message).unwrap_or(Groups::Unknown);
    let (group_size, logical) = match groups {
        // each pair sends and receives
        _ if kind.is_of_pairs() => (Some(2), Vec::new()),
        Groups::All => (u64::try_from(placed.len()).ok().filter(|&count| count > 0), Vec::new()),
        Groups::Sized(size) => (Some(size), Vec::new()),
        Groups::Listed(lists) => {
            let size = lists.first().map(|list| list.len() as u64).unwrap_or(0);
            let alike = size > 0 && lists.iter().all(|list| list.len() as u64 == size);
            (alike.then_some(size), lists)
        }
        Groups::Unknown => (None, Vec::new()),
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
fn transfer(module: &HloModule<'_>, instruction: &HloInstruction<'_>) -> Option<Communication> {
    let mut operands = module.operands_of(instruction);
    let whole = operands.next()?;
    let to_host = is_on_host(instruction);
    let bytes = if instruction.opcode == "dynamic-slice" {
        (to_host != is_on_host(whole)).then_some(instruction.bytes)?
    } else {
        let part = operands.next()?;
        (to_host == is_on_host(whole) && to_host != is_on_host(part)).then_some(part.bytes)?
    };
    let kind = if to_host { CollectiveKind::DeviceToHost } else { CollectiveKind::HostToDevice };
    Some(Communication { kind, group_size: Some(1), message_bytes: Some(bytes), groups: Vec::new() })
}

/// Whether the result is in the host's memory: `shape.layout.memory_space`.
fn is_on_host(instruction: &HloInstruction<'_>) -> bool {
    let shape = value_of(instruction.message, 3).and_then(WireValue::as_bytes);
    let layout = shape.and_then(|shape| value_of(shape, 5)).and_then(WireValue::as_bytes);
    layout.and_then(|layout| value_of(layout, 8)).and_then(WireValue::as_varint) == Some(HOST_MEMORY)
}

fn value_of(message: &[u8], wanted: u32) -> Option<WireValue<'_>> {
    WireCursor::new(message)
        .find_map(|field| field.ok().filter(|(number, _)| *number == wanted).map(|(_, value)| value))
}

/// The participants, as in `HloInstructionProto`.
enum Groups {
    /// No group is named: all take part.
    All,
    /// Groups of this size; their devices are not determined.
    Sized(u64),
    /// Each group's members.
    Listed(Vec<Vec<u64>>),
    /// In an unknown form.
    Unknown,
}

impl Groups {
    /// From `replica_groups` (49) or `collective_device_list` (87). A newer field would be an instruction without both.
    fn read(message: &[u8]) -> Result<Self, WireError> {
        let (mut lists, mut sized, mut newer) = (Vec::new(), None, false);
        for field in WireCursor::new(message) {
            match field? {
                (49, WireValue::Bytes(group)) => lists.push(members(group)?),
                (87, WireValue::Bytes(list)) => {
                    for field in WireCursor::new(list) {
                        match field? {
                            (1, WireValue::Bytes(group)) => lists.push(members(group)?),
                            (2, WireValue::Bytes(iota)) => sized = value_of(iota, 2).and_then(WireValue::as_varint),
                            _ => {}
                        }
                    }
                }
                (number, WireValue::Bytes(_)) => newer |= number > 91,
                _ => {}
            }
        }
        let sized = sized.filter(|&size| (1..=MAX_DEVICES).contains(&size));
        Ok(match (sized, lists.is_empty(), newer) {
            (Some(size), true, _) => Self::Sized(size),
            (_, false, _) => Self::Listed(lists),
            (None, true, true) => Self::Unknown,
            (None, true, false) => Self::All,
        })
    }
}

fn members(group: &[u8]) -> Result<Vec<u64>, WireError> {
    let mut ids = Vec::new();
    for field in WireCursor::new(group) {
        if let (1, value) = field? {
            repeated_varints(value, &mut ids)?;
        }
    }
    Ok(ids)
}
