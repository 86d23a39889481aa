//! A job: what a timer has to know of one invocation, and what preparing a candidate cost.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::array::ArraySpec;
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::measured_by::CacheState;
use crate::registry::Program;

/// A program's file, its digest already checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    /// Where it is.
    pub path: PathBuf,
    /// Format and digests.
    pub program: Program,
}

/// One input array, written once as dense little-endian bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputArray {
    /// Name of the argument.
    pub name: String,
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// Its file.
    pub path: PathBuf,
    /// Given anew before every run, outside the timed region.
    pub donated: bool,
}

/// One candidate of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobCandidate {
    /// The config.
    pub config: Config,
    /// Its program; `None` for a worker that builds programs itself.
    pub program: Option<ProgramFile>,
}

/// Everything a timer needs to know of one invocation. Candidates are named by their index.
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
    /// How a worker builds the programs that could not be lowered; a recorder's and a worker's own affair.
    pub recipe: Option<serde_json::Value>,
    /// What every run that is timed finds in the caches.
    pub cache_state: CacheState,
    /// A private folder for outputs and executables, there until the job ends.
    pub scratch: PathBuf,
}

/// What preparing a candidate cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Prepared {
    /// Time of the compilation, nanoseconds; zero when the executable was kept from before.
    pub compile_ns: u64,
    /// Processor time of the whole worker in it, nanoseconds; zero where the timer cannot tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_ns: u64,
    /// Whether the executable came from the store of executables.
    pub reused: bool,
}

// serde hands over a reference
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}
