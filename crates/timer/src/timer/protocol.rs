//! The worker protocol's messages: one JSON object per line. `docs/worker-protocol.md` is the specification.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::job::{InputArray, Job, JobCandidate, Prepared, ProgramFile, is_zero};
use crate::array::{ArraySpec, Finiteness, Reference, Tolerance, element_text, other_class};
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::hlo::Cost;
use crate::measured_by::{CacheState, Clocks, Source};
use crate::printable::printable;
use crate::registry::ProgramFormat;
use crate::setters;

/// Version of the protocol that this program speaks.
pub const PROTOCOL_VERSION: u32 = 1;

/// Maximum length of a line of either side in bytes, including its newline. Larger data is passed as a file.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Maximum number of runs of one `measure`, over all its batches.
pub const MAX_RUNS: u32 = 10_000;

/// A line from the tuner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Request {
    /// Counts the requests of one worker from 1.
    pub id: u64,
    /// The method, with its parameters.
    #[serde(flatten)]
    pub call: Method,
}

/// The methods of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Method {
    /// Introduces the worker: answered by [`Hello`].
    Hello {
        /// The tuner's [`PROTOCOL_VERSION`].
        protocol: u32,
    },
    /// Starts a job: loads the inputs. Answered by an empty object.
    Begin(BeginParams),
    /// Compiles a program into a file without loading it; capability `compile`. Answered by [`Compiled`].
    Compile(CompileParams),
    /// Prepares a candidate to run. Answered by [`Loaded`].
    Load(LoadParams),
    /// Runs a candidate. Answered by [`Measured`].
    Measure {
        /// Index of the candidate.
        candidate: usize,
        /// How often.
        runs: u32,
        /// How many of them are timed together; `runs` is a multiple of it; capability `batches`.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        batch: u32,
    },
    /// Compiles a candidate while others are loaded, for its `load` to come; capability `compile-ahead`. Answered by an
    /// empty object, at once; errors are reported by `load`.
    CompileAhead(LoadParams),
    /// Runs candidates under one profile; capability `profile`, in place of `measure`. Answered by [`Profiled`].
    MeasureRound {
        /// What to launch, in this order.
        launches: Vec<Launch>,
        /// Where to write the profile: a folder of this request's own.
        folder: PathBuf,
    },
    /// Runs a candidate once and writes its outputs. Answered by [`Outputs`].
    Outputs {
        /// Index of the candidate.
        candidate: usize,
        /// Where to write: a folder of this request's own.
        folder: PathBuf,
    },
    /// Runs a candidate once and keeps its outputs in the worker, until the job ends or others are kept; capability
    /// `compare-outputs`. Answered by [`KeptOutputs`].
    KeepOutputs {
        /// Index of the candidate.
        candidate: usize,
        /// They are kept if they take more than this many bytes together.
        above: u64,
    },
    /// Runs a candidate once and compares its outputs with the kept ones; capability `compare-outputs`. Answered by
    /// [`ComparedOutputs`].
    CompareOutputs {
        /// Index of the candidate.
        candidate: usize,
        /// The tolerance for each kept output.
        tolerances: Vec<Tolerance>,
    },
    /// Ends the job. Answered by an empty object.
    End {},
    /// Ends the worker, after an empty object.
    Shutdown {},
}

impl Method {
    /// The method's name on the wire.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Begin(_) => "begin",
            Self::Compile(_) => "compile",
            Self::Load(_) => "load",
            Self::Measure { .. } => "measure",
            Self::CompileAhead(_) => "compile-ahead",
            Self::MeasureRound { .. } => "measure-round",
            Self::Outputs { .. } => "outputs",
            Self::KeepOutputs { .. } => "keep-outputs",
            Self::CompareOutputs { .. } => "compare-outputs",
            Self::End {} => "end",
            Self::Shutdown {} => "shutdown",
        }
    }
}

fn one() -> u32 {
    1
}

// serde passes a reference to the field
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(batch: &u32) -> bool {
    *batch == 1
}

/// Parameters of `begin`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BeginParams {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// What the programs compute.
    pub direction: Direction,
    /// Input arrays, in the programs' order.
    pub inputs: Vec<Input>,
    /// How programs that could not be lowered are built, as the recorder left it; capability `build-recipes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Value>,
    /// The state of the caches before every timed run; `cold` is for workers with the capability `cold-caches`.
    #[serde(default, deserialize_with = "warm_or_cold", skip_serializing_if = "CacheState::is_warm")]
    pub cache_state: CacheState,
    /// A folder for the worker's own files, and for nothing else, until the job ends.
    pub scratch: PathBuf,
}

impl BeginParams {
    /// A job, with a folder for the worker's own files.
    pub fn new(job: &Job, scratch: impl Into<PathBuf>) -> Self {
        Self {
            call: job.call.clone(),
            direction: job.direction,
            inputs: job.inputs.iter().map(Input::from).collect(),
            recipe: job.recipe.clone(),
            cache_state: job.cache_state.clone(),
            scratch: scratch.into(),
        }
    }
}

/// Rejects an unknown state, because a worker that cannot provide it must not measure in another one.
fn warm_or_cold<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<CacheState, D::Error> {
    match CacheState::deserialize(deserializer)? {
        CacheState::Other(state) => Err(serde::de::Error::unknown_variant(&state, &["warm", "cold"])),
        state => Ok(state),
    }
}

/// One input array on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Input {
    /// Name of the argument.
    pub name: String,
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// File of dense little-endian bytes.
    pub path: PathBuf,
    /// Restored before every run, outside the timed region.
    #[serde(default)]
    pub donated: bool,
}

impl From<&InputArray> for Input {
    fn from(input: &InputArray) -> Self {
        Self { name: input.name.clone(), spec: input.spec.clone(), path: input.path.clone(), donated: input.donated }
    }
}

/// A program's file on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProgramRef {
    /// Its form.
    pub format: ProgramFormat,
    /// Its file.
    pub path: PathBuf,
    /// File of a `CompileOptionsProto` without devices: the options with which the process that uses the program compiles it;
    /// capability `compile-options`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile_options: Option<PathBuf>,
}

impl From<&ProgramFile> for ProgramRef {
    fn from(file: &ProgramFile) -> Self {
        let compile_options = file.compile_options.as_ref().map(|options| options.path.clone());
        Self { format: file.program.format, path: file.path.clone(), compile_options }
    }
}

/// A serialized executable: a part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExecutableRef {
    /// The file.
    pub path: PathBuf,
    /// Where the executable starts in it; it extends to the file's end.
    pub offset: u64,
    /// SHA-256 of the executable, because the file may have been replaced since it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// Parameters of `compile`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompileParams {
    /// Index of the candidate.
    pub candidate: usize,
    /// What to compile.
    pub program: ProgramRef,
    /// File to write the serialized executable to.
    pub executable: PathBuf,
    /// Compiler options for this program alone, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, String>,
}

/// Parameters of `load`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoadParams {
    /// Index of the candidate.
    pub candidate: usize,
    /// Its config.
    pub config: Config,
    /// Its program; absent if the worker builds programs itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramRef>,
    /// The program, already compiled by a worker of the same kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<ExecutableRef>,
    /// Compiler options for this program alone, by name; capability `compiler-options`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, String>,
}

impl LoadParams {
    /// A candidate that no worker has compiled yet.
    pub fn new(index: usize, candidate: &JobCandidate) -> Self {
        let program = candidate.program.as_ref().map(ProgramRef::from);
        // options named for this candidate take precedence
        let mut overrides = candidate.program.iter().filter_map(|file| file.compile_options.as_ref());
        let mut overrides = overrides.next().map(|options| options.named.clone()).unwrap_or_default();
        overrides.extend(candidate.build.options.clone());
        Self { candidate: index, config: candidate.config.clone(), program, executable: None, overrides }
    }
}

/// A worker's introduction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hello {
    /// The worker's version of the protocol.
    pub protocol: u32,
    /// Name and version of the worker, for people.
    pub worker: String,
    /// Its optional capabilities: see [`capability`].
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The clock of its samples.
    pub source: Source,
    /// Every device that it has.
    pub devices: Vec<DeviceFingerprint>,
    /// Index of the device that it runs on.
    #[serde(default)]
    pub device: usize,
    /// The resolution of its clock, nanoseconds: the larger of the clock's step and the cost of reading it. Absent if
    /// unknown, or if times come from profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_resolution_ns: Option<u64>,
    /// The clock limits of its GPU, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// Memory of the device that it runs on, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<DeviceMemory>,
    /// Notes for the user, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The description of its devices in base64, in the plugin's own format, with which `worker pjrt` compiles for them
    /// without opening them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// SHA-256 of its compiler, if known: equal ones refuse the same options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiler: Option<Digest>,
}

setters!(Hello {
    capabilities: Vec<String>,
    device: usize,
    clock_resolution_ns: Option<u64>,
    clocks: Option<Clocks>,
    memory: Option<DeviceMemory>,
    notes: Vec<String>,
    topology: Option<String>,
    compiler: Option<Digest>,
});

/// Memory of one device, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// Maximum for programs.
    pub limit_bytes: u64,
    /// Bytes already in use.
    pub used_bytes: u64,
}

impl DeviceMemory {
    /// Memory with this limit and these bytes in use.
    pub fn new(limit_bytes: u64, used_bytes: u64) -> Self {
        Self { limit_bytes, used_bytes }
    }

    /// Bytes still available to programs.
    pub fn free_bytes(self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }
}

impl Hello {
    /// A worker on the first of these devices, without capabilities.
    pub fn new(worker: impl Into<String>, source: Source, devices: Vec<DeviceFingerprint>) -> Self {
        Self {
            protocol: PROTOCOL_VERSION,
            worker: worker.into(),
            capabilities: Vec::new(),
            source,
            devices,
            device: 0,
            clock_resolution_ns: None,
            clocks: None,
            memory: None,
            notes: Vec::new(),
            topology: None,
            compiler: None,
        }
    }

    /// Whether the worker has a capability.
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|name| name == capability)
    }
}

/// Names of capabilities.
pub mod capability {
    /// `compile` works, and `load` takes its `executable`.
    pub const COMPILE: &str = "compile";
    /// `compile-ahead` works: candidates are compiled side by side.
    pub const COMPILE_AHEAD: &str = "compile-ahead";
    /// `load` works without a program: the worker builds it from the config.
    pub const BUILD_PROGRAMS: &str = "build-programs";
    /// `load` works without a program if `begin` had a recipe.
    pub const BUILD_RECIPES: &str = "build-recipes";
    /// `measure-round` works, in place of `measure`: times come from the device's profile.
    pub const PROFILE: &str = "profile";
    /// `measure` takes `batch`: that many runs are timed together.
    pub const BATCHES: &str = "batches";
    /// `load` and `compile` take `overrides`: compiler options.
    pub const COMPILER_OPTIONS: &str = "compiler-options";
    /// A program's `compile_options` are honoured.
    pub const COMPILE_OPTIONS: &str = "compile-options";
    /// `keep-outputs` and `compare-outputs` work: outputs are compared inside the worker, without files.
    pub const COMPARE_OUTPUTS: &str = "compare-outputs";
    /// `begin` takes `cache_state`: caches are flushed before every timed run.
    pub const COLD_CACHES: &str = "cold-caches";
}

/// Parameters and results of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Signature {
    /// Its arguments, in order.
    pub parameters: Vec<ArraySpec>,
    /// Its results, in order, if the worker reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<ArraySpec>>,
}

setters!(Signature { results: Option<Vec<ArraySpec>> });

impl Signature {
    /// A program with these arguments and unknown results.
    pub fn new(parameters: Vec<ArraySpec>) -> Self {
        Self { parameters, results: None }
    }
}

/// The answer to `compile`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Compiled {
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
    pub signature: Option<Signature>,
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

impl Compiled {
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

setters!(Compiled {
    cpu_ns: u64,
    serialized: bool,
    signature: Option<Signature>,
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
    /// Cycles that a TPU's compiler estimates for its own operations, each loop counted as often as it runs. Pallas kernels
    /// have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_cycles: Option<f64>,
    /// A TPU compiler's schedule of the program's Pallas kernels, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<KernelSchedule>,
}

/// A TPU compiler's schedule of a program's Pallas kernels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KernelSchedule {
    /// Instruction bundles, each kernel's multiplied by the steps of its grid. A loop's body counts once, and waiting for
    /// memory copies does not count.
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

    /// Bytes that are allocated for a run. XLA's peak counts only bytes in use, but temporary arrays are allocated as one
    /// block, whose gaps the peak excludes.
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
pub struct Loaded {
    /// Time of the compilation, nanoseconds; zero if there was none.
    #[serde(default)]
    pub compile_ns: u64,
    /// Processor time of the whole worker in it, nanoseconds; zero if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_ns: u64,
    /// The program's signature, if the worker knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
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

setters!(Loaded {
    compile_ns: u64,
    cpu_ns: u64,
    signature: Option<Signature>,
    executable: Option<Digest>,
    restored_bytes: u64,
    from_host: Option<String>,
    memory: Option<MemoryStats>,
    work: Option<Cost>,
    optimized: Option<PathBuf>,
});

impl Prepared {
    /// A worker's report on loading a program.
    pub(crate) fn of(loaded: &Loaded) -> Self {
        let temporary_bytes = loaded.memory.map(|memory| memory.temporary_bytes);
        Self::new(loaded.compile_ns).cpu_ns(loaded.cpu_ns).temporary_bytes(temporary_bytes).work(loaded.work.clone())
    }
}

/// The answer to `measure`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Measured {
    /// One duration for each run, or the mean of each batch of them, nanoseconds.
    pub samples_ns: Vec<u64>,
    /// Why the runs of a batch were timed one by one, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_runs: Option<String>,
    /// The GPU's actual clocks, if the worker knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<RunningClocks>,
}

/// A GPU's actual clocks, read right after the requested runs, and what limits them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningClocks {
    /// Its multiprocessors, in MHz.
    pub sm_mhz: u32,
    /// Why they are not higher, a few words each; empty if they are at their limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
}

impl Measured {
    /// The durations of runs, or of batches of them.
    pub fn new(samples_ns: Vec<u64>) -> Self {
        Self { samples_ns, single_runs: None, clocks: None }
    }
}

setters!(Measured { single_runs: Option<String>, clocks: Option<RunningClocks> });

/// Consecutive runs of one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Launch {
    /// Index of the candidate.
    pub candidate: usize,
    /// How often.
    pub runs: u32,
}

/// The answer to `measure-round`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Profiled {
    /// An XSpace with every launch, in the folder of the request.
    pub profile: PathBuf,
    /// The modules' name in it, with `{candidate}` for the candidate's number. Without it executions are distinguished by
    /// the order in which they started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_name: Option<String>,
    /// On how many devices the program of each launch ran: one, by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<u32>>,
    /// The GPU's actual clocks, if the worker knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<RunningClocks>,
}

impl Profiled {
    /// A profile whose executions are distinguished by the order in which they started.
    pub fn new(profile: impl Into<PathBuf>) -> Self {
        Self { profile: profile.into(), module_name: None, devices: None, clocks: None }
    }
}

setters!(Profiled { module_name: Option<String>, devices: Option<Vec<u32>>, clocks: Option<RunningClocks> });

/// The answer to `outputs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outputs {
    /// The arrays, in the program's order.
    pub outputs: Vec<OutputRef>,
}

impl Outputs {
    /// The outputs of a program.
    pub fn new(outputs: Vec<OutputRef>) -> Self {
        Self { outputs }
    }
}

/// One output array on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRef {
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// File of dense little-endian bytes, in the folder of the request.
    pub path: PathBuf,
}

/// Maximum number of outputs that a worker keeps, because each answer about them is a single line.
pub const MAX_KEPT_OUTPUTS: usize = 2000;

/// The answer to `keep-outputs`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeptOutputs {
    /// The kept outputs, in the program's order; absent if nothing is kept, because they are not larger than `above`, or
    /// because there are more than [`MAX_KEPT_OUTPUTS`] arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Vec<KeptOutput>>,
}

impl KeptOutputs {
    /// The kept outputs of a program.
    pub fn new(outputs: Option<Vec<KeptOutput>>) -> Self {
        Self { outputs }
    }
}

/// An output that a worker keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeptOutput {
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// SHA-256 of its dense little-endian bytes.
    pub digest: Digest,
    /// The finiteness of its elements; absent if there are none, and for a type that has only finite values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finiteness: Option<Finiteness>,
}

impl KeptOutput {
    /// The report on an array.
    pub fn of(reference: &Reference) -> Self {
        let digest = Digest::of(reference.bytes());
        Self { spec: reference.spec().clone(), digest, finiteness: reference.finiteness() }
    }

    /// The same for an array that was read block by block.
    pub(super) fn looked_at(spec: ArraySpec, digest: Digest, found: Finiteness) -> Self {
        let is_counted = spec.dtype.has_fractions() && found.elements > 0;
        Self { spec, digest, finiteness: is_counted.then_some(found) }
    }
}

/// The answer to `compare-outputs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ComparedOutputs {
    /// The comparison of each output with the kept one, in the program's order.
    pub outputs: Vec<ComparedOutput>,
}

impl ComparedOutputs {
    /// The result of a comparison.
    pub fn new(outputs: Vec<ComparedOutput>) -> Self {
        Self { outputs }
    }
}

/// The comparison of an output with the kept one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ComparedOutput {
    /// Its own element type and dimensions; if they differ, nothing was compared.
    pub spec: ArraySpec,
    /// Elements beyond the tolerance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mismatches: u64,
    /// Largest absolute difference of finite elements.
    #[serde(default, skip_serializing_if = "is_zero_real")]
    pub max_absolute: f64,
    /// The first element beyond the tolerance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<FirstMismatch>,
    /// Elements of another class: NaN, an infinity by its sign, a denormal, another number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_class: u64,
}

impl ComparedOutput {
    /// An output with its spec alone: either its bytes equal the kept ones, or its spec differs.
    pub(super) fn spec_only(spec: ArraySpec) -> Self {
        Self { spec, mismatches: 0, max_absolute: 0.0, first: None, other_class: 0 }
    }

    /// Compares a dense host array with a kept one; without one, or with one of another spec, only the spec is
    /// reported.
    pub fn of(spec: ArraySpec, bytes: &[u8], kept: Option<&Reference>) -> Self {
        let spec_only = Self::spec_only(spec);
        let Some(kept) = kept.filter(|kept| *kept.spec() == spec_only.spec && kept.bytes() != bytes) else {
            return spec_only;
        };
        let found = kept.compare(bytes);
        let text = |bytes: &[u8], at| element_text(kept.spec(), bytes, at).unwrap_or_else(|| "nothing".to_owned());
        let first = found.first.map(|element| FirstMismatch {
            element,
            own: text(bytes, element),
            kept: text(kept.bytes(), element),
        });
        let other_class = other_class(kept.spec(), bytes, kept.bytes());
        Self { mismatches: found.mismatches, max_absolute: found.max_absolute, first, other_class, ..spec_only }
    }
}

/// The first difference between two arrays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FirstMismatch {
    /// The element, row major.
    pub element: u64,
    /// Its value, as text.
    pub own: String,
    /// The kept one's value, as text.
    pub kept: String,
}

// serde passes a reference to the field
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_real(value: &f64) -> bool {
    *value == 0.0
}

/// A line from a worker: a result or an error, never both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Response {
    /// The request's id; null for a line whose request could not be read.
    pub id: Option<u64>,
    /// The result of the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Why it failed; the worker continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WireFailure>,
}

/// A failure on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WireFailure {
    /// A [`FailureKind`], `protocol` if the request was wrong; an unknown one counts as `protocol`.
    pub kind: String,
    /// One line.
    pub message: String,
}

impl From<WireFailure> for Failure {
    fn from(failure: WireFailure) -> Self {
        let kind = match FailureKind::from(&*failure.kind) {
            FailureKind::Other(_) => FailureKind::Protocol,
            kind => kind,
        };
        Self::new(kind, one_line(&failure.message, 2000))
    }
}

impl From<Failure> for WireFailure {
    fn from(failure: Failure) -> Self {
        Self { kind: failure.kind.to_string(), message: failure.message }
    }
}

/// One line, with whitespace collapsed, control characters escaped, truncated at `limit` characters.
pub fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&printable(word));
        if line.len() > limit {
            break;
        }
    }
    match line.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// The result of [`read_line`].
#[derive(Debug, PartialEq, Eq)]
pub enum LineRead {
    /// A line, without its newline.
    Line,
    /// A line longer than [`MAX_LINE_BYTES`]: skipped to its end.
    TooLong,
    /// The end of the stream.
    End,
}

/// Reads one line into `line` in bounded memory.
///
/// # Errors
///
/// If the reader fails.
pub fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<LineRead> {
    line.clear();
    let read = reader.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(LineRead::Line);
    }
    if read < MAX_LINE_BYTES {
        // a last line without a newline is truncated and not a message
        return Ok(LineRead::End);
    }
    line.clear();
    reader.skip_until(b'\n')?;
    Ok(LineRead::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spelled_as_documented() {
        let request = Request { id: 3, call: Method::Measure { candidate: 2, runs: 5, batch: 1 } };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, r#"{"id":3,"method":"measure","params":{"candidate":2,"runs":5}}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        let batches = Request { id: 3, call: Method::Measure { candidate: 2, runs: 6, batch: 3 } };
        let text = serde_json::to_string(&batches).unwrap();
        assert_eq!(text, r#"{"id":3,"method":"measure","params":{"candidate":2,"runs":6,"batch":3}}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), batches);
        let end = serde_json::to_string(&Request { id: 4, call: Method::End {} }).unwrap();
        assert_eq!(end, r#"{"id":4,"method":"end","params":{}}"#);
    }

    #[test]
    fn what_older_sides_do_not_know_is_absent_where_it_is_usual() {
        let begin = |cache_state| BeginParams {
            call: Call::new("op@v1", "k"),
            direction: Direction::Forward,
            inputs: Vec::new(),
            recipe: None,
            cache_state,
            scratch: "/s".into(),
        };
        let warm = serde_json::to_value(begin(CacheState::Warm)).unwrap();
        assert_eq!(warm.get("cache_state"), None);
        assert_eq!(serde_json::from_value::<BeginParams>(warm.clone()).unwrap(), begin(CacheState::Warm));
        let mut cold = serde_json::to_value(begin(CacheState::Cold)).unwrap();
        assert_eq!(cold["cache_state"], "cold");
        assert_eq!(serde_json::from_value::<BeginParams>(cold.clone()).unwrap(), begin(CacheState::Cold));
        cold["cache_state"] = "lukewarm".into();
        assert!(serde_json::from_value::<BeginParams>(cold).is_err());
        let measured: Measured = serde_json::from_str(r#"{"samples_ns":[1]}"#).unwrap();
        assert_eq!(serde_json::to_string(&measured).unwrap(), r#"{"samples_ns":[1]}"#);
        let hello = r#"{"protocol":1,"worker":"old","source":"host-wall","devices":[]}"#;
        assert_eq!(serde_json::from_str::<Hello>(hello).unwrap().clock_resolution_ns, None);
    }

    #[test]
    fn a_line_beyond_the_limit_is_skipped_and_the_next_is_read() {
        let mut bytes = vec![b'x'; MAX_LINE_BYTES];
        bytes.extend_from_slice(b"yy\nnext\ncut");
        let mut reader = io::BufReader::new(&bytes[..]);
        let mut line = Vec::new();
        assert_eq!(read_line(&mut reader, &mut line).unwrap(), LineRead::TooLong);
        assert!(line.is_empty());
        assert_eq!(read_line(&mut reader, &mut line).unwrap(), LineRead::Line);
        assert_eq!(line, b"next");
        assert_eq!(read_line(&mut reader, &mut line).unwrap(), LineRead::End);
        let exact = [vec![b'x'; MAX_LINE_BYTES - 1], b"\n".to_vec()].concat();
        assert_eq!(read_line(&mut &exact[..], &mut line).unwrap(), LineRead::Line);
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line("a\n\tb\u{1b}[0m  c\u{202e}", 80), "a b\\u{1b}[0m c\\u{202e}");
        assert_eq!(one_line("äöü", 2), "äö…");
    }
}
