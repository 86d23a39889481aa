//! A line from the tuner: a method with its parameters.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::array::Tolerance;
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::digest::Digest;
use crate::measured_by::CacheState;
use crate::registry::ProgramFormat;
use crate::timer::job::{InputArray, Job, JobCandidate, ProgramFile};

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
    /// Introduces the worker: answered by [`Hello`](super::Hello).
    Hello {
        /// The tuner's [`PROTOCOL_VERSION`](crate::timer::protocol::PROTOCOL_VERSION).
        protocol: u32,
    },
    /// Starts a job: loads the inputs. Answered by an empty object.
    Begin(BeginParams),
    /// Compiles a program into a file without loading it; capability `compile`. Answered by
    /// [`CompileAnswer`](super::CompileAnswer).
    Compile(CompileParams),
    /// Prepares a candidate to run. Answered by [`LoadAnswer`](super::LoadAnswer).
    Load(LoadParams),
    /// Runs a candidate. Answered by [`MeasureAnswer`](super::MeasureAnswer).
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
    /// Runs candidates under one profile; capability `profile`, in place of `measure`. Answered by
    /// [`RoundAnswer`](super::RoundAnswer).
    MeasureRound {
        /// What to launch, in this order.
        launches: Vec<LaunchedRuns>,
        /// Where to write the profile: a folder of this request's own.
        folder: PathBuf,
    },
    /// Runs a candidate once and writes its outputs. Answered by [`OutputsAnswer`](super::OutputsAnswer).
    Outputs {
        /// Index of the candidate.
        candidate: usize,
        /// Where to write: a folder of this request's own.
        folder: PathBuf,
    },
    /// Runs a candidate once and keeps its outputs in the worker, until the job ends or others are kept; capability
    /// `compare-outputs`. Answered by [`KeptOutputs`](super::KeptOutputs).
    KeepOutputs {
        /// Index of the candidate.
        candidate: usize,
        /// They are kept if they take more than this many bytes together.
        above: u64,
    },
    /// Runs a candidate once and compares its outputs with the kept ones; capability `compare-outputs`. Answered by
    /// [`ComparedOutputs`](super::ComparedOutputs).
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
    pub inputs: Vec<InputArray>,
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
            inputs: job.inputs.clone(),
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

/// A program's file on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProgramRef {
    /// Its form.
    pub format: ProgramFormat,
    /// Its file.
    pub path: PathBuf,
    /// File of a `CompileOptionsProto` without devices: the options with which the process that uses the program
    /// compiles it; capability `compile-options`.
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

/// Consecutive runs of one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaunchedRuns {
    /// Index of the candidate.
    pub candidate: usize,
    /// How often.
    pub runs: u32,
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
    fn the_usual_state_of_caches_is_absent() {
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
    }
}
