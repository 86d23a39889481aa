//! A worker's introduction: its clock, its devices, what it can do.

use serde::{Deserialize, Serialize};

use crate::device::DeviceFingerprint;
use crate::digest::Digest;
use crate::measured_by::{Clocks, Source};
use crate::setters;
use crate::timer::protocol::limits::PROTOCOL_VERSION;

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
    /// The process that runs the candidates or starts those that do, if the tuner did not start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
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
            process: None,
        }
    }

    /// Whether the worker has a capability.
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|name| name == capability)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_older_workers_do_not_report_is_absent() {
        let hello = r#"{"protocol":1,"worker":"old","source":"host-wall","devices":[]}"#;
        assert_eq!(serde_json::from_str::<Hello>(hello).unwrap().clock_resolution_ns, None);
    }
}
