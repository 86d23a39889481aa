//! The figures of compiled programs that are compared between compilers, and how much each may grow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::timer::pjrt::CompileOutcome;
use crate::timer::protocol::KernelUse;

/// A figure of a compiled program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CompiledFigure {
    /// The peak of a run's device memory, bytes.
    Memory,
    /// Temporary arrays of a run, bytes.
    Temporary,
    /// Machine code, bytes.
    Code,
    /// The serialized executable, bytes.
    Executable,
    /// Cycles that a TPU's compiler estimates for its own operations.
    Cycles,
    /// Instruction bundles of a TPU's Pallas kernels.
    Bundles,
    /// Vector memory of the TPU kernel with the most of it, bytes.
    Vmem,
    /// Registers of a thread in the GPU kernel with the most of them.
    Registers,
    /// Stack of a thread in the GPU kernel with the most of it, bytes. Most of it is register spills.
    Stack,
    /// Shared memory of a block in the GPU kernel with the most of it, bytes.
    Shared,
    /// Time of the compilation, seconds.
    Seconds,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureUnit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Things.
    Count,
}

impl CompiledFigure {
    /// All figures with their names, in the order in which they are shown.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::Memory, "memory"),
        (Self::Temporary, "temporary"),
        (Self::Code, "code"),
        (Self::Executable, "executable"),
        (Self::Cycles, "cycles"),
        (Self::Bundles, "bundles"),
        (Self::Vmem, "vmem"),
        (Self::Registers, "registers"),
        (Self::Stack, "stack"),
        (Self::Shared, "shared"),
        (Self::Seconds, "seconds"),
    ];

    /// The figure of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, own)| *own == name).map(|(figure, _)| figure)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(figure, _)| *figure == self).map(|(_, name)| name).unwrap_or_default()
    }

    /// What it counts.
    pub fn unit(self) -> FigureUnit {
        match self {
            Self::Cycles | Self::Bundles | Self::Registers => FigureUnit::Count,
            Self::Seconds => FigureUnit::Seconds,
            _ => FigureUnit::Bytes,
        }
    }

    /// The figure of a program, if it compiled and the compiler reported it. Of several kernels the one with the most
    /// counts, because another compiler may number, merge and split kernels differently.
    pub fn of(self, outcome: &CompileOutcome) -> Option<f64> {
        let CompileOutcome::Compiled { seconds, executable_bytes, memory, kernels, kernels_unknown, cost, .. } =
            outcome
        else {
            return None;
        };
        let most = |of: fn(&KernelUse) -> u64| kernels.iter().map(of).max().map(|most| most as f64);
        let figure = match self {
            Self::Memory => memory.as_ref()?.needed_bytes() as f64,
            Self::Temporary => memory.as_ref()?.temporary_bytes as f64,
            // a GPU's machine code is that of its kernels
            Self::Code if !kernels.is_empty() => kernels.iter().map(|kernel| kernel.code_bytes as f64).sum(),
            Self::Code if kernels_unknown.is_some() => return None,
            Self::Code => memory.as_ref().map(|memory| memory.code_bytes as f64).filter(|bytes| *bytes > 0.0)?,
            Self::Executable => *executable_bytes as f64,
            Self::Cycles => cost.as_ref()?.estimated_cycles?,
            Self::Bundles => cost.as_ref()?.schedule?.bundles?,
            Self::Vmem => cost.as_ref()?.schedule?.vmem_bytes? as f64,
            Self::Registers => most(|kernel| u64::from(kernel.registers))?,
            Self::Stack => most(|kernel| kernel.stack_bytes)?,
            Self::Shared => most(|kernel| kernel.shared_bytes)?,
            Self::Seconds => *seconds,
        };
        // a store's file may contain anything
        (figure.is_finite() && figure >= 0.0).then_some(figure)
    }
}

/// How much each figure may grow before it is a regression, as a part of what it was.
#[derive(Debug, Clone, PartialEq)]
pub struct GrowthLimits(BTreeMap<CompiledFigure, f64>);

impl Default for GrowthLimits {
    /// Memory may grow by a tenth, because compilers rearrange buffers.
    fn default() -> Self {
        Self(BTreeMap::from([(CompiledFigure::Memory, 0.1)]))
    }
}

impl GrowthLimits {
    /// The same with another limit of this figure.
    #[must_use]
    pub fn with(mut self, figure: CompiledFigure, part: f64) -> Self {
        self.0.insert(figure, part);
        self
    }

    /// The limits.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CompiledFigure, f64)> {
        self.0.iter().map(|(figure, part)| (*figure, *part))
    }
}
