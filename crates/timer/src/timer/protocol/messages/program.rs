//! The answers about programs: compiled, loaded, and their figures.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::array::ArraySpec;
use crate::digest::Digest;
use crate::hlo::Cost;
use crate::setters;
use crate::timer::job::{Prepared, is_zero};

/// Parameters and results of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProgramSignature {
    /// Its arguments, in order.
    pub parameters: Vec<ArraySpec>,
    /// Its results, in order, if the worker reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<ArraySpec>>,
}

setters!(ProgramSignature { results: Option<Vec<ArraySpec>> });

impl ProgramSignature {
    /// A program with these arguments and unknown results.
    pub fn new(parameters: Vec<ArraySpec>) -> Self {
        Self { parameters, results: None }
    }
}

/// The answer to `compile`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompileAnswer {
    /// Time of the compilation, nanoseconds.
    pub compile_ns: u64,
    /// Processor time of the whole worker in it, nanoseconds; zero if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_ns: u64,
    /// `false` if the executable could not be written to a file: `load` then requires the program.
    #[serde(default = "yes")]
    pub serialized: bool,
    /// The program's signature, if the worker knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<ProgramSignature>,
    /// Device memory of a run, if the worker knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStats>,
    /// The GPU resources of its kernels; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelUse>,
    /// Why they are unknown, for a GPU's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels_unknown: Option<String>,
    /// The compiler's counts for a run, if the worker reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostAnalysis>,
}

impl CompileAnswer {
    /// An executable that was written to the file, with this compile time.
    pub fn new(compile_ns: u64) -> Self {
        Self {
            compile_ns,
            cpu_ns: 0,
            serialized: true,
            signature: None,
            memory: None,
            kernels: Vec::new(),
            kernels_unknown: None,
            cost: None,
        }
    }
}

setters!(CompileAnswer {
    cpu_ns: u64,
    serialized: bool,
    signature: Option<ProgramSignature>,
    memory: Option<MemoryStats>,
    kernels: Vec<KernelUse>,
    kernels_unknown: Option<String>,
    cost: Option<CostAnalysis>
});

/// A compiler's counts for one run of a program, by operations and not by time (`PJRT_Executable_GetCostAnalysis`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CostAnalysis {
    /// Floating-point operations; custom calls count as none.
    pub flops: f64,
    /// Bytes that operations read and write.
    pub accessed_bytes: f64,
    /// Cycles that a TPU's compiler estimates for its own operations, each loop counted as often as it runs. Pallas
    /// kernels have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_cycles: Option<f64>,
    /// A TPU compiler's schedule of the program's Pallas kernels, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<KernelSchedule>,
}

/// A TPU compiler's schedule of a program's Pallas kernels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KernelSchedule {
    /// Instruction bundles, each kernel's multiplied by the steps of its grid. A loop's body counts once, and waiting
    /// for memory copies does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundles: Option<f64>,
    /// Vector memory (VMEM) of the kernel with the most of it, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmem_bytes: Option<u64>,
}

impl CostAnalysis {
    /// Adds the figures that a TPU's compiler reports elsewhere, if any.
    pub(in crate::timer) fn with_estimates(
        counted: Option<Self>,
        cycles: Option<f64>,
        schedule: Option<KernelSchedule>,
    ) -> Option<Self> {
        let none = Self { flops: 0.0, accessed_bytes: 0.0, estimated_cycles: None, schedule: None };
        let is_said = cycles.is_some() || schedule.is_some();
        let counted = counted.or_else(|| is_said.then_some(none))?;
        Some(Self { estimated_cycles: cycles, schedule, ..counted })
    }

    /// From the properties with the names of XLA's `HloCostAnalysis`; `None` if neither exists.
    pub(in crate::timer) fn of(properties: &[(String, f64)]) -> Option<Self> {
        let named = |wanted: &str| properties.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
        // negative means that XLA cannot count it
        let count = |wanted: &str| named(wanted).filter(|value| value.is_finite() && *value >= 0.0);
        let (flops, accessed_bytes) = (count("flops"), count("bytes accessed"));
        (flops.is_some() || accessed_bytes.is_some()).then(|| Self {
            flops: flops.unwrap_or(0.0),
            accessed_bytes: accessed_bytes.unwrap_or(0.0),
            estimated_cycles: None,
            schedule: None,
        })
    }
}

/// A program's use of device memory, as reported by its compiler (`PJRT_Executable_GetCompiledMemoryStats`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryStats {
    /// Bytes of the arguments.
    pub argument_bytes: u64,
    /// Bytes of the outputs.
    pub output_bytes: u64,
    /// Peak bytes of temporaries.
    pub temporary_bytes: u64,
    /// Bytes of arguments that outputs alias.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alias_bytes: u64,
    /// Bytes of machine code; zero if not reported.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub code_bytes: u64,
    /// Peak bytes in use; zero if not reported.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub peak_bytes: u64,
}

impl MemoryStats {
    /// The maximum number of bytes that a run needs: the peak, or, if not reported, the sum of everything.
    pub fn needed_bytes(&self) -> u64 {
        if self.peak_bytes > 0 { self.peak_bytes } else { self.allocated_bytes() }
    }

    /// Bytes that are allocated for a run. XLA's peak counts only bytes in use, but temporary arrays are allocated as
    /// one block, whose gaps the peak excludes.
    pub fn allocated_bytes(&self) -> u64 {
        let parts = [self.argument_bytes, self.output_bytes, self.temporary_bytes];
        let all = parts.into_iter().fold(0, u64::saturating_add).saturating_sub(self.alias_bytes);
        all.max(self.peak_bytes)
    }
}

impl MemoryStats {
    /// A program with these bytes of arguments, outputs and temporary arrays.
    pub fn new(argument_bytes: u64, output_bytes: u64, temporary_bytes: u64) -> Self {
        Self { argument_bytes, output_bytes, temporary_bytes, ..Self::default() }
    }
}

setters!(MemoryStats { alias_bytes: u64, code_bytes: u64, peak_bytes: u64 });

/// The GPU resources of one kernel, from its machine code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KernelUse {
    /// Its name in the machine code.
    pub name: String,
    /// Bytes of its machine code, including functions that the assembler appended.
    pub code_bytes: u64,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's stack in local memory, for spilled registers and its own arrays.
    pub stack_bytes: u64,
    /// Bytes of a block's shared memory, static and dynamic together, without the driver's reserve.
    pub shared_bytes: u64,
}

impl KernelUse {
    /// A kernel with these resources.
    pub fn new(name: impl Into<String>, code_bytes: u64, registers: u32, stack_bytes: u64, shared_bytes: u64) -> Self {
        Self { name: name.into(), code_bytes, registers, stack_bytes, shared_bytes }
    }
}

fn yes() -> bool {
    true
}

/// The answer to `load`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoadAnswer {
    /// Time of the compilation, nanoseconds; zero if there was none.
    #[serde(default)]
    pub compile_ns: u64,
    /// Processor time of the whole worker in it, nanoseconds; zero if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_ns: u64,
    /// The program's signature, if the worker knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<ProgramSignature>,
    /// SHA-256 of the serialized executable, if the worker has it: equal digests are the same program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<Digest>,
    /// Bytes of donated inputs that the device copies before every run; zero if there are few, or they are copied from
    /// the host.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restored_bytes: u64,
    /// Why large donated inputs are copied from the host before every run, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_host: Option<String>,
    /// Device memory of a run, if the worker knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStats>,
    /// The work of a run, if the worker counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Cost>,
    /// The optimized program, an `HloModuleProto` in a file of the job's scratch folder: the work of a run is counted
    /// from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimized: Option<PathBuf>,
}

setters!(LoadAnswer {
    compile_ns: u64,
    cpu_ns: u64,
    signature: Option<ProgramSignature>,
    executable: Option<Digest>,
    restored_bytes: u64,
    from_host: Option<String>,
    memory: Option<MemoryStats>,
    work: Option<Cost>,
    optimized: Option<PathBuf>,
});

impl Prepared {
    /// A worker's report on loading a program.
    pub(crate) fn of(loaded: &LoadAnswer) -> Self {
        let temporary_bytes = loaded.memory.map(|memory| memory.temporary_bytes);
        Self::new(loaded.compile_ns).cpu_ns(loaded.cpu_ns).temporary_bytes(temporary_bytes).work(loaded.work.clone())
    }
}
