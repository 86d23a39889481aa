//! Collectives in any profile: which instruction, on which device, when, and how much of it was hidden.

use std::collections::BTreeSet;
use std::fmt;

use super::kind::CollectiveKind;
use crate::profile::OutsideTime;

/// What an instruction says about its collective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Communication {
    /// What it does.
    pub kind: CollectiveKind,
    /// Devices that take part together; `None` if the module does not say.
    pub group_size: Option<u64>,
    /// Bytes of its operands, for a reduce-scatter divided by the group's size; `None` if the module does not say.
    pub message_bytes: Option<u64>,
    /// The device ids of each group, as the program was placed; empty if they are not known.
    pub groups: Vec<Vec<i64>>,
}

impl Communication {
    /// Of a kind, without a module that says more.
    pub(super) fn of_kind(kind: CollectiveKind) -> Self {
        let group_size = kind.is_of_pairs().then_some(2);
        Self { kind, group_size, message_bytes: None, groups: Vec::new() }
    }
}

/// A device of the profiles.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The host, or the file if it has no name.
    pub host: String,
    /// Its number, global if the profile has it, otherwise within its host.
    pub ordinal: i64,
}

/// An instruction of a program that communicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The module's name.
    pub module: String,
    /// The program's id; in a profile of several processes, of the first that has it.
    pub program_id: Option<i64>,
    /// The instruction's name.
    pub name: String,
    /// What it does.
    pub communication: Communication,
}

/// One collective on one device, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Place in [`Collectives::operations`].
    pub operation: u32,
    /// Place in [`Collectives::devices`].
    pub device: u32,
    /// Which execution of its program; the same number on all devices of one launch.
    pub execution: u64,
    /// Which time in that execution, from zero.
    pub occurrence: u32,
    /// Start, in picoseconds of the host's clock.
    pub start_ps: i64,
    /// End, likewise.
    pub end_ps: i64,
    /// The part of it in which the same device also computed: the union of those times.
    pub hidden_ps: u64,
    /// The same as the sum of the overlaps with each computation, which is more where computations overlap each other.
    pub overlaps_ps: u64,
}

impl Part {
    /// From start to end, hidden or not.
    pub fn duration_ps(&self) -> u64 {
        u64::try_from(self.end_ps.saturating_sub(self.start_ps)).unwrap_or(0)
    }
}

/// Kernels of a communication library that belong to no program, by their name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommunicationKernel {
    /// The kernel's name.
    pub name: String,
    /// What it does, by its name.
    pub kind: CollectiveKind,
    /// Its events on one device.
    pub time: OutsideTime,
}

/// All collectives of one or more profiles.
#[derive(Debug, Default)]
pub struct Collectives<'c> {
    /// The devices.
    pub devices: Vec<Device>,
    /// The instructions.
    pub operations: Vec<Operation>,
    /// What ran.
    pub parts: Parts<'c>,
    /// What ran in no program.
    pub outside: Vec<CommunicationKernel>,
    /// Executions that were left out as warm-up.
    pub skipped: u64,
    /// Caveats on the numbers, in words.
    pub notes: Vec<String>,
}

impl Collectives<'_> {
    /// The number of hosts.
    pub fn hosts(&self) -> usize {
        self.devices.iter().map(|device| &device.host).collect::<BTreeSet<_>>().len()
    }
}

/// Profiles that are read again for each pass, so that their parts need not be held.
pub(super) trait ReadParts {
    /// Passes on the parts of each launch together, those of a program in the order of its launches.
    fn each_launch(&self, give: &mut dyn FnMut(Vec<Part>));
}

/// Parts of collectives: held, or read from profiles for each pass.
#[derive(Default)]
pub struct Parts<'c>(Source<'c>);

enum Source<'c> {
    Held(Vec<Part>),
    Read(Box<dyn ReadParts + 'c>),
}

impl Default for Source<'_> {
    fn default() -> Self {
        Self::Held(Vec::new())
    }
}

impl<'c> Parts<'c> {
    pub(super) fn read(reader: impl ReadParts + 'c) -> Self {
        Self(Source::Read(Box::new(reader)))
    }

    /// Passes on parts, all those of a launch at once.
    pub(super) fn each_launch(&self, give: &mut dyn FnMut(Vec<Part>)) {
        match &self.0 {
            Source::Held(parts) => give(parts.clone()),
            Source::Read(reader) => reader.each_launch(give),
        }
    }

    /// All of them, in memory.
    pub fn to_vec(&self) -> Vec<Part> {
        let mut all = Vec::new();
        self.each_launch(&mut |parts| all.extend(parts));
        all
    }
}

impl From<Vec<Part>> for Parts<'_> {
    fn from(parts: Vec<Part>) -> Self {
        Self(Source::Held(parts))
    }
}

impl fmt::Debug for Parts<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Held(parts) => formatter.debug_list().entries(parts).finish(),
            Source::Read(_) => formatter.write_str("read from profiles"),
        }
    }
}
