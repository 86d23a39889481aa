//! What is known about a profile's operation: opcode, source line, `op_name`, label. Its HLO instruction says it, or
//! else its events, or the name of its kernel.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::hlo::{Cost, Costs, Evidence, FlopUnit, Flops, Label};
use crate::hlo::{HloInstruction, HloModule, KernelTemplates, KnownKernel, UserLabels, labels_in};

use super::collectives::{CollectiveKind, Role};
use super::event_facts::EventFacts;
use super::host_work::runtime_work;

/// The name of an unknown opcode, source line or `op_name`.
pub const UNKNOWN: &str = "unknown";

/// Maximum number of enclosing computations that are searched for a label.
const MAX_CALLERS: usize = 64;

/// The names that a user declared.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct UserNames<'a> {
    /// Labels.
    pub labels: Option<&'a UserLabels>,
    /// Kernels, with the built-in ones behind them.
    pub kernels: Option<&'a KernelTemplates>,
}

static BUILT_IN: LazyLock<KernelTemplates> = LazyLock::new(KernelTemplates::default);

impl<'a> UserNames<'a> {
    /// These labels and kernels.
    pub fn new(labels: Option<&'a UserLabels>, kernels: Option<&'a KernelTemplates>) -> Self {
        Self { labels, kernels }
    }

    fn kernels(&self) -> &'a KernelTemplates {
        self.kernels.unwrap_or(&BUILT_IN)
    }
}

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
    /// The kernel that it is, if a template knows it.
    pub kernel: Option<KnownKernel>,
    /// Bytes of its result.
    pub bytes: u64,
    /// The work of one run, if known and its own: not for control flow, nor for communication between devices.
    pub cost: Option<Cost>,
    /// Whether it moves data between devices.
    pub communication: bool,
    /// Where this is known from.
    pub known_by: KnownBy,
}

/// Where what is known about an operation comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnownBy {
    /// Its HLO instruction.
    #[default]
    Hlo,
    /// Its events.
    Events,
    /// The name of its kernel.
    Kernel,
    /// The instruction that its kernel is named after: XLA runs one kernel for equal fusions.
    NamedKernel,
    /// The custom call of which it is a region.
    Region,
}

impl Attribution {
    /// Looks an operation up by its instruction's name; `costs` are those of the module.
    pub fn find(module: &HloModule, costs: &Costs, operation: &str, user: UserNames<'_>) -> Option<Self> {
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
            label: label(module, instruction, user.labels),
            kernel: user.kernels().of_instruction(module, instruction),
            bytes: instruction.bytes,
            cost: costs.instruction(place).filter(|cost| cost.is_known() && works(instruction.opcode())).cloned(),
            communication: communicates(module, instruction),
            known_by: KnownBy::Hlo,
        })
    }

    /// Of a kernel with an instruction's name. If it runs several times in an execution, other instructions run it,
    /// too.
    pub(super) fn of_named_kernel(self, is_single: bool) -> Self {
        let known = Self { known_by: KnownBy::NamedKernel, ..self };
        match is_single {
            true => known,
            false => Self { op_name: String::new(), source: None, label: None, kernel: None, ..known },
        }
    }

    /// What its events say.
    pub(super) fn of_events(operation: &str, facts: &EventFacts, user: UserNames<'_>) -> Self {
        let is_collective = matches!(
            Role::of_event(operation, Some(facts)),
            Role::Communication(communication) if communication.kind.is_between_devices()
        );
        let communication = is_collective || is_communication(&facts.opcode);
        let opcode = if facts.opcode.is_empty() { UNKNOWN } else { &facts.opcode };
        Self {
            opcode: opcode.to_owned(),
            op_name: facts.op_name.clone(),
            source: facts.source.clone(),
            label: labels_in(&facts.op_name, "", user.labels).pop(),
            kernel: user.kernels().of_event(operation, &facts.op_name, facts.source.as_ref()),
            bytes: 0,
            cost: cost_of(facts).filter(|_| !communication && works(opcode)),
            communication,
            known_by: KnownBy::Events,
        }
    }

    /// What a kernel's own name says: whether it is one of a communication library, or a copy or fill of the runtime.
    pub(super) fn of_kernel(name: &str, user: UserNames<'_>) -> Option<Self> {
        let known = |opcode: &str, communication| {
            let opcode = opcode.to_owned();
            Some(Self { opcode, communication, known_by: KnownBy::Kernel, ..Self::default() })
        };
        match (CollectiveKind::of_kernel(name), runtime_work(name)) {
            (Some(kind), _) => known(kind.name(), true),
            (None, Some(opcode)) => known(opcode, false),
            (None, None) => {
                let kernel = user.kernels().of_event(name, "", None)?;
                let opcode = "custom-call".to_owned();
                Some(Self { opcode, kernel: Some(kernel), known_by: KnownBy::Kernel, ..Self::default() })
            }
        }
    }

    /// Of a region of a custom call, which XLA does not know as an instruction.
    pub(super) fn of_region(&self, region: &str) -> Option<Self> {
        let op_name = match self.op_name.as_str() {
            "" => region.to_owned(),
            op_name => format!("{op_name}/{region}"),
        };
        let region = Self { op_name, bytes: 0, cost: None, known_by: KnownBy::Region, ..self.clone() };
        (self.opcode == "custom-call").then_some(region)
    }
}

/// The cost that events state. They do not say which type was computed with.
fn cost_of(facts: &EventFacts) -> Option<Cost> {
    let is_of_matrices = ["convolution", "dot"]
        .iter()
        .any(|part| [&facts.opcode, &facts.category].iter().any(|text| text.contains(part)));
    let unit = if is_of_matrices { FlopUnit::Matrix } else { FlopUnit::Vector };
    let flops = (facts.flops > 0.0).then_some(Flops { unit, dtype: None, count: facts.flops });
    let cost = Cost { flops: flops.into_iter().collect(), bytes: facts.bytes, ..Cost::default() };
    (facts.flops > 0.0 || facts.bytes > 0.0).then_some(cost)
}

/// Whether an instruction, or what it wraps or waits for, moves data between devices.
fn communicates(module: &HloModule, instruction: &HloInstruction) -> bool {
    let of = |instruction| match Role::of(module, instruction) {
        Role::Communication(communication) => communication.kind.is_between_devices(),
        _ => is_communication(instruction.opcode()),
    };
    let waits = matches!(instruction.opcode(), "async-done" | "async-update");
    of(instruction) || (waits && module.operands_of(instruction).next().is_some_and(of))
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
fn is_communication(opcode: &str) -> bool {
    CollectiveKind::of_opcode(opcode.strip_suffix("-done").unwrap_or(opcode)).is_some()
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
