//! The recording of one call.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::array::{ArraySpec, Fill};
use crate::batch::BatchAxis;
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::device::{DeviceFingerprint, DeviceIdentity};
use crate::digest::Digest;
use crate::setters;

/// The schema that this version reads and writes.
pub const SCHEMA: u32 = 1;

/// Calls at the borders of a bucket that are read.
const MAX_BORDERS: usize = 8;

/// Configs to try first that are read.
const MAX_STARTS: usize = 64;

/// What an invocation was lowered for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedTarget {
    /// One device that was present.
    Device(DeviceIdentity),
    /// A platform whose devices were absent: every device of it matches.
    Platform(String),
}

/// One array argument of the programs, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Argument {
    /// Its name in the call.
    pub name: String,
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// How its values are made.
    pub fill: Fill,
    /// Whether the programs take ownership of it, so that it must be restored before every run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub donated: bool,
}

impl Argument {
    /// An argument that stays the caller's.
    pub fn new(name: impl Into<String>, spec: ArraySpec, fill: Fill) -> Self {
        Self { name: name.into(), spec, fill, donated: false }
    }
}

setters!(Argument { donated: bool });

/// Other values of a call's arguments, such as the batch of another kind of step: it gets them as well, and runs with
/// one config for all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Distribution {
    /// What its users call it.
    pub name: String,
    /// How the values of some arguments are made, by name; those of the others stay.
    pub fills: BTreeMap<String, Fill>,
}

impl Distribution {
    /// A distribution of these arguments.
    pub fn new(name: impl Into<String>, fills: BTreeMap<String, Fill>) -> Self {
        Self { name: name.into(), fills }
    }
}

/// The form of a stored program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramFormat {
    /// StableHLO portable artifact (MLIR bytecode).
    StablehloPortable,
    /// StableHLO text.
    StablehloText,
    /// Serialized `HloModuleProto`.
    HloProto,
}

impl ProgramFormat {
    /// The `format` that `PJRT_Program` takes.
    pub fn pjrt_format(self) -> &'static str {
        match self {
            Self::StablehloPortable | Self::StablehloText => "mlir",
            Self::HloProto => "hlo",
        }
    }

    /// Extension of its file in the store.
    pub fn extension(self) -> &'static str {
        match self {
            Self::StablehloPortable => "mlirbc",
            Self::StablehloText => "mlir",
            Self::HloProto => "hlo.pb",
        }
    }
}

/// A program in the content-addressed store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Program {
    /// Its form.
    pub format: ProgramFormat,
    /// SHA-256 of its bytes, and its name in the store.
    pub digest: Digest,
    /// SHA-256 without locations and module name: equal means the same program.
    pub semantic_digest: Digest,
    /// Custom-call targets it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub custom_calls: Vec<String>,
}

impl Program {
    /// A program that needs no custom call.
    pub fn new(format: ProgramFormat, digest: Digest, semantic_digest: Digest) -> Self {
        Self { format, digest, semantic_digest, custom_calls: Vec::new() }
    }
}

setters!(Program { custom_calls: Vec<String> });

/// One config of an operation, with its program if it could be lowered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The config.
    pub config: Config,
    /// Its program; `None` when a worker must lower it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Why there is no program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_lowered: Option<String>,
}

impl Candidate {
    /// A config without a program: a worker lowers it.
    pub fn new(config: Config) -> Self {
        Self { config, program: None, not_lowered: None }
    }

    /// Whether nobody has tried to lower it yet.
    pub fn is_open(&self) -> bool {
        self.program.is_none() && self.not_lowered.is_none()
    }
}

setters!(Candidate { program: Option<Program>, not_lowered: Option<String> });

/// One recorded call of a tunable operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Invocation {
    /// What it was lowered for.
    pub target: RecordedTarget,
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// The `vmap`s around the call, the outermost first. Arguments and programs have their axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batch: Vec<BatchAxis>,
    /// What the programs compute.
    pub direction: Direction,
    /// Array arguments, in the programs' order.
    pub arguments: Vec<Argument>,
    /// What the arguments' own fills are called, if they have other distributions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// Other values that the call gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_distributions: Vec<Distribution>,
    /// The rest of the call's arguments, for people.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub static_arguments: BTreeMap<String, serde_json::Value>,
    /// The relative tolerance of outputs that replaces those of their types, if the caller declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// The config in use without tuning; always one of the candidates.
    pub baseline: Config,
    /// Every config to try, the baseline's among them.
    pub candidates: Vec<Candidate>,
    /// Where it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_on: Option<DeviceFingerprint>,
    /// When, seconds since 1970.
    pub recorded_at: u64,
    /// What recorded it, with versions.
    #[serde(default)]
    pub recorder: String,
}

impl Invocation {
    /// A call without arguments and candidates yet.
    pub fn new(target: RecordedTarget, call: Call, baseline: Config) -> Self {
        Self {
            target,
            call,
            batch: Vec::new(),
            direction: Direction::Forward,
            arguments: Vec::new(),
            distribution: None,
            other_distributions: Vec::new(),
            static_arguments: BTreeMap::new(),
            tolerance: None,
            baseline,
            candidates: Vec::new(),
            recorded_on: None,
            recorded_at: 0,
            recorder: String::new(),
        }
    }

    /// The configs that its recorder names to be tried first, such as rows of the project's own table. Nobody believes
    /// them: they are measured like all others.
    pub fn starts(&self) -> Vec<Config> {
        let starts = self.static_arguments.get("starts").and_then(|starts| starts.as_array());
        let configs = starts.into_iter().flatten().take(MAX_STARTS);
        let mut found: Vec<Config> = Vec::new();
        for config in configs.filter_map(|config| serde_json::from_value(config.clone()).ok()) {
            if !found.contains(&config) {
                found.push(config);
            }
        }
        found
    }

    /// The same call with other values.
    #[must_use]
    pub fn with_values_of(&self, other: &Distribution) -> Self {
        let mut call = Self { distribution: Some(other.name.clone()), other_distributions: Vec::new(), ..self.clone() };
        for argument in &mut call.arguments {
            if let Some(fill) = other.fills.get(&argument.name) {
                argument.fill = fill.clone();
            }
        }
        call
    }

    /// Every rule for the values of an argument, with the argument's name.
    pub(super) fn fills(&self) -> impl Iterator<Item = (&str, &Fill)> {
        let others = self.other_distributions.iter().flat_map(|other| &other.fills);
        let own = self.arguments.iter().map(|argument| (argument.name.as_str(), &argument.fill));
        own.chain(others.map(|(name, fill)| (name.as_str(), fill)))
    }

    /// The keys of the calls at both ends of the bucket with this call for which the project's own table has one row.
    pub fn borders(&self) -> Vec<String> {
        let borders = self.static_arguments.get("borders").and_then(|borders| borders.as_array());
        let keys = borders.into_iter().flatten().filter_map(|key| key.as_str()).take(MAX_BORDERS);
        keys.map(str::to_owned).collect()
    }

    /// Whether its candidates are lowered when they are needed. The record keeps saying so when some of them have been
    /// lowered, so that every run searches the call in the same way.
    pub fn is_lowered_on_demand(&self) -> bool {
        self.static_arguments.get("lowered").is_some_and(|how| how == "on-demand")
    }

    /// Which of its program's recordings on demand lowers them, counted from one.
    pub fn lowering_recording(&self) -> u64 {
        self.static_arguments.get("lowered_by_recording").and_then(serde_json::Value::as_u64).unwrap_or(1)
    }
}

setters!(Invocation {
    batch: Vec<BatchAxis>,
    direction: Direction,
    arguments: Vec<Argument>,
    distribution: Option<String>,
    other_distributions: Vec<Distribution>,
    static_arguments: BTreeMap<String, serde_json::Value>,
    tolerance: Option<f64>,
    candidates: Vec<Candidate>,
    recorded_on: Option<DeviceFingerprint>,
    recorded_at: u64,
    recorder: String,
});
