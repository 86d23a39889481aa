//! The worker protocol's messages: one JSON object a line. `docs/worker-protocol.md` is the specification.

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
use crate::setters::setters;

/// Version of the protocol that this program speaks.
pub const PROTOCOL_VERSION: u32 = 1;

/// Longest line of either side in bytes, its newline included. What is larger travels as a file.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Most runs that one `measure` asks for, over all its batches.
pub const MAX_RUNS: u32 = 10_000;

/// A line from the tuner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Request {
    /// Counts the requests of one worker from 1.
    pub id: u64,
    /// What is asked for, with its parameters.
    #[serde(flatten)]
    pub call: Method,
}

/// The methods of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Method {
    /// Who is there: answered by [`Hello`].
    Hello {
        /// The tuner's [`PROTOCOL_VERSION`].
        protocol: u32,
    },
    /// Starts a job: the inputs are loaded. Answered by an empty object.
    Begin(BeginParams),
    /// Compiles a program into a file without loading it; capability `compile`. Answered by [`Compiled`].
    Compile(CompileParams),
    /// Makes a candidate ready to run. Answered by [`Loaded`].
    Load(LoadParams),
    /// Runs a candidate. Answered by [`Measured`].
    Measure {
        /// Index of the candidate.
        candidate: usize,
        /// How often.
        runs: u32,
        /// How many of them are timed together, of which `runs` is a multiple; capability `batches`.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        batch: u32,
    },
    /// Compiles a candidate while others are loaded, for its `load` to come; capability `compile-ahead`. Answered by an
    /// empty object, at once; what goes wrong is told by `load`.
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
    /// Runs a candidate once and keeps its outputs in the worker, until the job ends or others are kept; capability `compare-outputs`.
    /// Answered by [`KeptOutputs`].
    KeepOutputs {
        /// Index of the candidate.
        candidate: usize,
        /// They are kept where they take more bytes than this together.
        above: u64,
    },
    /// Runs a candidate once and compares its outputs with those that are kept; capability `compare-outputs`. Answered by
    /// [`ComparedOutputs`].
    CompareOutputs {
        /// Index of the candidate.
        candidate: usize,
        /// How far elements may be off, for each output that is kept.
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

// serde hands over a reference to the field
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
    /// What every timed run finds in the caches; `cold` is for workers with the capability `cold-caches`.
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

/// A worker that cannot bring about a state must not measure in another one.
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
    /// Given again before every run, outside the timed region.
    #[serde(default)]
    pub donated: bool,
}

impl From<&InputArray> for Input {
    fn from(input: &InputArray) -> Self {
        Self { name: input.name.clone(), spec: input.spec.clone(), path: input.path.clone(), donated: input.donated }
    }
}

/// A program on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProgramRef {
    /// Its form.
    pub format: ProgramFormat,
    /// Its file.
    pub path: PathBuf,
    /// File of a `CompileOptionsProto` without devices, with which the program is compiled where it is used; capability
    /// `compile-options`.
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
    /// Where the executable starts in it; it goes to the file's end.
    pub offset: u64,
    /// SHA-256 of the executable: what is read now must be what was found then.
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
    /// Options of the compiler for this program alone, by name.
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
    /// The program, compiled already by a worker of the same kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<ExecutableRef>,
    /// Options of the compiler for this program alone, by name; capability `compiler-options`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, String>,
}

impl LoadParams {
    /// A candidate that no worker has compiled yet.
    pub fn new(index: usize, candidate: &JobCandidate) -> Self {
        let program = candidate.program.as_ref().map(ProgramRef::from);
        // what is named for this candidate holds
        let mut overrides = candidate.program.iter().filter_map(|file| file.compile_options.as_ref());
        let mut overrides = overrides.next().map(|told| told.named.clone()).unwrap_or_default();
        overrides.extend(candidate.build.options.clone());
        Self { candidate: index, config: candidate.config.clone(), program, executable: None, overrides }
    }
}

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hello {
    /// The worker's version of the protocol.
    pub protocol: u32,
    /// Name and version of the worker, for the reader.
    pub worker: String,
    /// What it can do beyond the least: see [`capability`].
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The clock of its samples.
    pub source: Source,
    /// Every device that it shows.
    pub devices: Vec<DeviceFingerprint>,
    /// Index of the device that it runs on.
    #[serde(default)]
    pub device: usize,
    /// What its clock can tell, nanoseconds: the larger of the clock's step and of what reading it costs. Absent where it is
    /// not known, or where times come from profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_resolution_ns: Option<u64>,
    /// How fast the GPU that it runs on may run, if it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// Memory of the device that it runs on, if it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<DeviceMemory>,
    /// Things that the user should know, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// SHA-256 of what compiles, where the worker can tell: equal ones refuse the same options.
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
    compiler: Option<Digest>,
});

/// Memory of one device, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// The most that programs may take.
    pub limit_bytes: u64,
    /// What is taken already.
    pub used_bytes: u64,
}

impl DeviceMemory {
    /// So much that programs may take, of which so much is taken.
    pub fn new(limit_bytes: u64, used_bytes: u64) -> Self {
        Self { limit_bytes, used_bytes }
    }

    /// What programs may still take.
    pub fn free_bytes(self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }
}

impl Hello {
    /// A worker on the first of these devices, which can do the least.
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
    /// `load` works without a program where `begin` came with a recipe.
    pub const BUILD_RECIPES: &str = "build-recipes";
    /// `measure-round` works, in place of `measure`: times come from the device's profile.
    pub const PROFILE: &str = "profile";
    /// `measure` takes `batch`: so many runs are timed together.
    pub const BATCHES: &str = "batches";
    /// `load` and `compile` take `overrides`: options of the compiler.
    pub const COMPILER_OPTIONS: &str = "compiler-options";
    /// A program's `compile_options` are those that it is compiled with.
    pub const COMPILE_OPTIONS: &str = "compile-options";
    /// `keep-outputs` and `compare-outputs` work: outputs are compared where they are, and no file holds them.
    pub const COMPARE_OUTPUTS: &str = "compare-outputs";
    /// `begin` takes `cache_state`: caches are flushed before every timed run.
    pub const COLD_CACHES: &str = "cold-caches";
}

/// Parameters and results of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Signature {
    /// What it takes, in order.
    pub parameters: Vec<ArraySpec>,
    /// What it gives, in order, where the worker can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<ArraySpec>>,
}

setters!(Signature { results: Option<Vec<ArraySpec>> });

impl Signature {
    /// A program that takes these arrays and does not say what it gives.
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
    /// Processor time of the whole worker in it, nanoseconds; zero if the worker does not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_ns: u64,
    /// `false` if the executable cannot be written to a file after all: `load` must be given the program.
    #[serde(default = "yes")]
    pub serialized: bool,
    /// What the program takes, where the worker can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// What a run takes of the device's memory, where the worker can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStats>,
    /// What its kernels take of a GPU; empty if they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelUse>,
    /// What the compiler counts in a run, where the worker can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostAnalysis>,
}

impl Compiled {
    /// An executable that was written to the file after so long.
    pub fn new(compile_ns: u64) -> Self {
        Self { compile_ns, cpu_ns: 0, serialized: true, signature: None, memory: None, kernels: Vec::new(), cost: None }
    }
}

setters!(Compiled {
    cpu_ns: u64,
    serialized: bool,
    signature: Option<Signature>,
    memory: Option<MemoryStats>,
    kernels: Vec<KernelUse>,
    cost: Option<CostAnalysis>
});

/// What a compiler counts in one run of a program, by the operations and not by the time (`PJRT_Executable_GetCostAnalysis`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CostAnalysis {
    /// Floating-point operations; custom calls count as none.
    pub flops: f64,
    /// Bytes that operations read and write.
    pub accessed_bytes: f64,
    /// Cycles that a TPU's compiler estimates for its own operations, each loop as often as it runs. Pallas kernels have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_cycles: Option<f64>,
}

impl CostAnalysis {
    /// The same with the cycles of an optimized program, where its compiler estimated any.
    #[cfg(feature = "pjrt")]
    pub(in crate::timer) fn with_cycles(counted: Option<Self>, cycles: Option<f64>) -> Option<Self> {
        let none = Self { flops: 0.0, accessed_bytes: 0.0, estimated_cycles: None };
        match cycles {
            Some(_) => Some(Self { estimated_cycles: cycles, ..counted.unwrap_or(none) }),
            None => counted,
        }
    }

    /// From the properties' names, as XLA's `HloCostAnalysis` has them; `None` if neither is among them.
    #[cfg(feature = "pjrt")]
    pub(in crate::timer) fn of(properties: &[(String, f64)]) -> Option<Self> {
        let named = |wanted: &str| properties.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
        // what XLA cannot count is negative
        let count = |wanted: &str| named(wanted).filter(|value| value.is_finite() && *value >= 0.0);
        let (flops, accessed_bytes) = (count("flops"), count("bytes accessed"));
        (flops.is_some() || accessed_bytes.is_some()).then(|| Self {
            flops: flops.unwrap_or(0.0),
            accessed_bytes: accessed_bytes.unwrap_or(0.0),
            estimated_cycles: None,
        })
    }
}

/// What a program takes of a device's memory, as its compiler says (`PJRT_Executable_GetCompiledMemoryStats`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes of the arguments.
    pub argument_bytes: u64,
    /// Bytes of the outputs.
    pub output_bytes: u64,
    /// Bytes of what is neither, at their most.
    pub temporary_bytes: u64,
    /// Bytes of arguments that outputs take over.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alias_bytes: u64,
    /// Bytes of machine code; zero if the compiler does not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub code_bytes: u64,
    /// The most bytes that are in use at one time; zero if the compiler does not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub peak_bytes: u64,
}

impl MemoryStats {
    /// The most bytes that a run needs at one time: the peak, or where the compiler does not tell it everything together.
    pub fn needed_bytes(&self) -> u64 {
        if self.peak_bytes > 0 { self.peak_bytes } else { self.allocated_bytes() }
    }

    /// Bytes that are allocated for a run. XLA counts as its peak what is in use, and allocates temporary arrays as one block, whose
    /// gaps are not in the peak.
    pub fn allocated_bytes(&self) -> u64 {
        let parts = [self.argument_bytes, self.output_bytes, self.temporary_bytes];
        let all = parts.into_iter().fold(0, u64::saturating_add).saturating_sub(self.alias_bytes);
        all.max(self.peak_bytes)
    }
}

impl MemoryStats {
    /// A program with so many bytes of arguments, outputs and temporary arrays.
    pub fn new(argument_bytes: u64, output_bytes: u64, temporary_bytes: u64) -> Self {
        Self { argument_bytes, output_bytes, temporary_bytes, ..Self::default() }
    }
}

setters!(MemoryStats { alias_bytes: u64, code_bytes: u64, peak_bytes: u64 });

/// What one kernel takes of a GPU, as its machine code says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KernelUse {
    /// Its name in the machine code.
    pub name: String,
    /// Bytes of its machine code, with those functions that the assembler put behind it.
    pub code_bytes: u64,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's stack in local memory, where registers are spilled to and arrays of its own lie.
    pub stack_bytes: u64,
    /// Bytes of a block's shared memory, static and dynamic together, without what the driver keeps for itself.
    pub shared_bytes: u64,
}

impl KernelUse {
    /// A kernel that takes so much.
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
    /// Processor time of the whole worker in it, nanoseconds; zero if the worker does not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_ns: u64,
    /// What the program takes, where the worker can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// SHA-256 of the serialized executable, where the worker has it: equal ones are one program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<Digest>,
    /// Bytes of donated inputs that the device copies before every run; zero if there are few, or they come from the host.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restored_bytes: u64,
    /// Why large donated inputs come from the host before every run, where they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_host: Option<String>,
    /// What a run takes of the device's memory, where the worker can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStats>,
    /// What a run does, where the worker counts that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Cost>,
    /// The optimized program, an `HloModuleProto` in a file of the job's scratch folder: what a run does is counted from it.
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
    /// What a worker told as it loaded a program.
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
    /// Why the runs of a batch were timed one by one after all, where they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_runs: Option<String>,
    /// How fast the GPU ran, where the worker can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<RunningClocks>,
}

/// How fast a GPU runs, read as soon as the runs that were asked for are over, and what holds it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningClocks {
    /// Its multiprocessors, in MHz.
    pub sm_mhz: u32,
    /// Why they do not run faster, a few words each; empty if they run as fast as they may.
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

/// Some runs of one candidate, one after the other.
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
    /// An XSpace that holds every launch, in the folder that was handed out.
    pub profile: PathBuf,
    /// The modules' name in it, with `{candidate}` for the candidate's number. Without it executions are distinguished by
    /// the order in which they started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_name: Option<String>,
    /// On how many devices the program of each launch ran: one, by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<u32>>,
    /// How fast the GPU ran, where the worker can tell.
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
    /// What a program gave.
    pub fn new(outputs: Vec<OutputRef>) -> Self {
        Self { outputs }
    }
}

/// One output array on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRef {
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// File of dense little-endian bytes, in the folder that was handed out.
    pub path: PathBuf,
}

/// Most outputs that a worker keeps: the answers that say about them are one line each.
pub const MAX_KEPT_OUTPUTS: usize = 2000;

/// The answer to `keep-outputs`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeptOutputs {
    /// What is kept, in the program's order; absent if nothing is, since it takes no more than that, or is more than
    /// [`MAX_KEPT_OUTPUTS`] arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Vec<KeptOutput>>,
}

impl KeptOutputs {
    /// What a program gave.
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
    /// What its elements are like; absent if there are none, and of a type that has only finite values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finiteness: Option<Finiteness>,
}

impl KeptOutput {
    /// What is told of an array.
    pub fn of(reference: &Reference) -> Self {
        let digest = Digest::of(reference.bytes());
        Self { spec: reference.spec().clone(), digest, finiteness: reference.finiteness() }
    }

    /// The same of one that was looked at block by block.
    #[cfg(feature = "pjrt")]
    pub(super) fn looked_at(spec: ArraySpec, digest: Digest, found: Finiteness) -> Self {
        let is_told = spec.dtype.has_fractions() && found.elements > 0;
        Self { spec, digest, finiteness: is_told.then_some(found) }
    }
}

/// The answer to `compare-outputs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ComparedOutputs {
    /// How each output is beside the one that is kept, in the program's order.
    pub outputs: Vec<ComparedOutput>,
}

impl ComparedOutputs {
    /// What a comparison found.
    pub fn new(outputs: Vec<ComparedOutput>) -> Self {
        Self { outputs }
    }
}

/// How an output is beside the one that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ComparedOutput {
    /// Its own element type and dimensions: where they are others, nothing was compared.
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
    /// An output of which nothing but its spec is told: its bytes are those that are kept, or its spec is another one.
    pub(super) fn untold(spec: ArraySpec) -> Self {
        Self { spec, mismatches: 0, max_absolute: 0.0, first: None, other_class: 0 }
    }

    /// Compares a dense host array with one that is kept; without one, or with one of another spec, only the spec is told.
    pub fn of(spec: ArraySpec, bytes: &[u8], kept: Option<&Reference>) -> Self {
        let untold = Self::untold(spec);
        let Some(kept) = kept.filter(|kept| *kept.spec() == untold.spec && kept.bytes() != bytes) else {
            return untold;
        };
        let found = kept.compare(bytes);
        let text = |bytes: &[u8], at| element_text(kept.spec(), bytes, at).unwrap_or_else(|| "nothing".to_owned());
        let first = found.first.map(|element| FirstMismatch {
            element,
            own: text(bytes, element),
            kept: text(kept.bytes(), element),
        });
        let other_class = other_class(kept.spec(), bytes, kept.bytes());
        Self { mismatches: found.mismatches, max_absolute: found.max_absolute, first, other_class, ..untold }
    }
}

/// Where two arrays differ first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FirstMismatch {
    /// The element, row major.
    pub element: u64,
    /// What it is, as a text.
    pub own: String,
    /// What the one that is kept is.
    pub kept: String,
}

// serde hands over a reference to the field
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_real(value: &f64) -> bool {
    *value == 0.0
}

/// A line from a worker: a result or an error, never both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Response {
    /// The request's; null for a line whose request could not be read.
    pub id: Option<u64>,
    /// What the method gives.
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
    /// A [`FailureKind`], `protocol` where the request was wrong; an unknown one is taken for `protocol`.
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

/// One line, blanks squeezed, what steers a terminal as escapes, cut at `limit` characters.
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

/// What [`read_line`] met.
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
        // a last line without a newline was cut off: not a message
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
