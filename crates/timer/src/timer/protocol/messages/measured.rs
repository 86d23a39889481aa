//! The answers to `measure` and `measure-round`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::setters;

/// The answer to `measure`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MeasureAnswer {
    /// One duration for each run, or the mean of each batch of them, nanoseconds.
    pub samples_ns: Vec<u64>,
    /// Why the runs of a batch were timed one by one, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_runs: Option<String>,
    /// The GPU's actual clocks, if the worker knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<RunningClocks>,
}

/// A GPU's actual clocks, read right after the requested runs, what limits them, and who else uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningClocks {
    /// Its multiprocessors, in MHz.
    pub sm_mhz: u32,
    /// Why they are not higher, a few words each; empty if they are at their limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<String>,
    /// Per cent of its multiprocessors' time that other processes used lately; absent if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_percent: Option<u32>,
}

impl MeasureAnswer {
    /// The durations of runs, or of batches of them.
    pub fn new(samples_ns: Vec<u64>) -> Self {
        Self { samples_ns, single_runs: None, clocks: None }
    }
}

setters!(MeasureAnswer { single_runs: Option<String>, clocks: Option<RunningClocks> });

/// The answer to `measure-round`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RoundAnswer {
    /// An XSpace with every launch, in the folder of the request.
    pub profile: PathBuf,
    /// The modules' name in it, with `{candidate}` for the candidate's number. Without it executions are distinguished
    /// by the order in which they started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_name: Option<String>,
    /// On how many devices the program of each launch ran: one, by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<u32>>,
    /// The GPU's actual clocks, if the worker knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<RunningClocks>,
}

impl RoundAnswer {
    /// A profile whose executions are distinguished by the order in which they started.
    pub fn new(profile: impl Into<PathBuf>) -> Self {
        Self { profile: profile.into(), module_name: None, devices: None, clocks: None }
    }
}

setters!(RoundAnswer { module_name: Option<String>, devices: Option<Vec<u32>>, clocks: Option<RunningClocks> });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_a_worker_does_not_know_are_absent() {
        let measured: MeasureAnswer = serde_json::from_str(r#"{"samples_ns":[1]}"#).unwrap();
        assert_eq!(serde_json::to_string(&measured).unwrap(), r#"{"samples_ns":[1]}"#);
    }
}
