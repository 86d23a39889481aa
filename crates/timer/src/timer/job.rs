//! A job: everything that a timer needs to know about one invocation, and the cost of preparing a candidate.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::array::ArraySpec;
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::hlo::Cost;
use crate::measured_by::CacheState;
use crate::registry::Program;
use crate::setters;

/// A program's file, its digest already checked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramFile {
    /// Where it is.
    pub path: PathBuf,
    /// Format and digests.
    pub program: Program,
    /// Its compile options besides its code; `None` if unknown.
    pub compile_options: Option<OptionsFile>,
}

impl ProgramFile {
    /// A program with its compiler's default options.
    pub fn new(path: impl Into<PathBuf>, program: Program) -> Self {
        Self { path: path.into(), program, compile_options: None }
    }
}

/// A serialized `CompileOptionsProto` without devices: a second one, which is appended, adds devices and overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionsFile {
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// The options in it that the program's user set, by name, spelled as XLA reads them: for a worker that does not
    /// read the file.
    pub named: BTreeMap<String, String>,
}

impl OptionsFile {
    /// A file with these bytes.
    pub fn new(path: impl Into<PathBuf>, digest: Digest) -> Self {
        Self { path: path.into(), digest, named: BTreeMap::new() }
    }
}

setters!(OptionsFile { named: BTreeMap<String, String> });

/// One input array, written once as dense little-endian bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputArray {
    /// Name of the argument.
    pub name: String,
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// Its file.
    pub path: PathBuf,
    /// Whether it is restored before every run, outside the timed region.
    #[serde(default)]
    pub donated: bool,
}

impl InputArray {
    /// An array that every run can reuse.
    pub fn new(name: impl Into<String>, spec: ArraySpec, path: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), spec, path: path.into(), donated: false }
    }
}

setters!(InputArray { donated: bool });

/// One candidate of a job.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JobCandidate {
    /// The config.
    pub config: Config,
    /// Its program; `None` for a worker that builds programs itself.
    pub program: Option<ProgramFile>,
    /// Its compile options, if they differ from the timer's defaults.
    pub build: Build,
    /// The number of its timer among those [side by side](super::SideBySide); 0 if there is only one.
    pub timer: usize,
}

impl JobCandidate {
    /// A config whose program the worker builds.
    pub fn new(config: Config) -> Self {
        Self { config, program: None, build: Build::default(), timer: 0 }
    }
}

setters!(JobCandidate { program: Option<ProgramFile>, build: Build, timer: usize });

/// How a program is compiled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Build {
    /// Compiler options for this program alone, by name, with values as XLA reads them: `True`, `512`, `0.5`, text.
    pub options: BTreeMap<String, String>,
    /// Options of the compiling process, spelled likewise. The measuring process does not have them, because it loads
    /// the executable compiled with them.
    pub process: BTreeMap<String, String>,
    /// Number of the compilation among those of the same program with the same options: each number is compiled
    /// separately.
    pub copy: u32,
}

impl Build {
    /// The same for a program, with options that replace those that the program brings, but not this build's own.
    #[must_use]
    pub(super) fn over(mut self, program: Option<&ProgramFile>, options: &BTreeMap<String, String>) -> Self {
        if program.is_some_and(|program| program.compile_options.is_some()) {
            let own = std::mem::replace(&mut self.options, options.clone());
            self.options.extend(own);
        }
        self
    }
}

setters!(Build { options: BTreeMap<String, String>, process: BTreeMap<String, String>, copy: u32 });

/// Everything a timer needs to know about one invocation. Candidates are identified by their index.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The call.
    pub call: Call,
    /// What the programs compute.
    pub direction: Direction,
    /// Input arrays, in the programs' order.
    pub inputs: Vec<InputArray>,
    /// The candidates.
    pub candidates: Vec<JobCandidate>,
    /// The names of the programs' results, if known, for messages.
    pub results: Vec<String>,
    /// The recipe by which a worker builds the programs that could not be lowered; its format is defined by recorder
    /// and worker.
    pub recipe: Option<serde_json::Value>,
    /// The state of the caches before every timed run.
    pub cache_state: CacheState,
    /// A private folder for outputs and executables, which exists until the job ends.
    pub scratch: PathBuf,
}

impl Job {
    /// A call without inputs and candidates yet, with warm caches.
    pub fn new(call: Call, scratch: impl Into<PathBuf>) -> Self {
        Self {
            call,
            direction: Direction::Forward,
            inputs: Vec::new(),
            candidates: Vec::new(),
            results: Vec::new(),
            recipe: None,
            cache_state: CacheState::Warm,
            scratch: scratch.into(),
        }
    }
}

setters!(Job {
    direction: Direction,
    inputs: Vec<InputArray>,
    candidates: Vec<JobCandidate>,
    results: Vec<String>,
    recipe: Option<serde_json::Value>,
    cache_state: CacheState,
});

/// The cost of preparing a candidate.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Prepared {
    /// Time of the compilation, nanoseconds; zero if the executable was already stored.
    pub compile_ns: u64,
    /// CPU time of the whole worker in it, nanoseconds; zero if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_ns: u64,
    /// Whether the executable came from the store of executables.
    pub reused: bool,
    /// SHA-256 of the serialized executable, if the timer has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<Digest>,
    /// Peak temporary bytes of a run (neither arguments nor results), if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_bytes: Option<u64>,
    /// The work of a run, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Cost>,
}

impl Prepared {
    /// A program with this compile time.
    pub fn new(compile_ns: u64) -> Self {
        Self { compile_ns, ..Self::default() }
    }
}

setters!(Prepared {
    cpu_ns: u64,
    reused: bool,
    executable: Option<Digest>,
    temporary_bytes: Option<u64>,
    work: Option<Cost>,
});

// serde passes a reference
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A candidate of the current job.
pub(crate) fn find(job: &Option<Job>, candidate: usize) -> Result<&JobCandidate, Failure> {
    let job = job.as_ref().ok_or_else(|| Failure::new(FailureKind::Protocol, "no job was started"))?;
    job.candidates
        .get(candidate)
        .ok_or_else(|| Failure::new(FailureKind::Protocol, format!("the job has no candidate {candidate}")))
}

/// The folder of the current job.
pub(crate) fn scratch(job: &Option<Job>) -> Result<PathBuf, Failure> {
    let job = job.as_ref().ok_or_else(|| Failure::new(FailureKind::Protocol, "no job was started"))?;
    Ok(job.scratch.clone())
}
