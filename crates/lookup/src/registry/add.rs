//! An invocation described in a JSON file, with its programs beside it: `registry add`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use super::{
    Argument, Candidate, Distribution, Invocation, MAX_PROGRAM_BYTES, Program, ProgramFormat, RecordedTarget, Registry,
    RegistryError, RegistryWriter, custom_calls, semantic_digest,
};
use crate::array::{ArraySpec, Fill, MAX_ARRAY_BYTES};
use crate::batch::BatchAxis;
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::device::DeviceFingerprint;
use crate::digest::Digest;
use crate::outside_file;

const MAX_DESCRIPTION_BYTES: u64 = 16 << 20;

/// The fields of an [`Invocation`], except that programs and arrays are files, relative to the description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    target: RecordedTarget,
    op_id: String,
    call_key: String,
    #[serde(default)]
    batch: Vec<BatchAxis>,
    #[serde(default = "forward")]
    direction: Direction,
    arguments: Vec<DescribedArgument>,
    distribution: Option<String>,
    #[serde(default)]
    other_distributions: Vec<Distribution>,
    #[serde(default)]
    static_arguments: BTreeMap<String, serde_json::Value>,
    tolerance: Option<f64>,
    baseline: Config,
    candidates: Vec<DescribedCandidate>,
    recorded_on: Option<DeviceFingerprint>,
    recorded_at: Option<u64>,
    recorder: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedArgument {
    name: String,
    spec: ArraySpec,
    fill: Option<Fill>,
    array_file: Option<PathBuf>,
    #[serde(default)]
    donated: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedCandidate {
    config: Config,
    program_file: Option<PathBuf>,
    semantic_digest: Option<Digest>,
    custom_calls: Option<Vec<String>>,
    not_lowered: Option<String>,
}

fn forward() -> Direction {
    Direction::Forward
}

impl Registry {
    /// Adds the invocation that a JSON file describes; returns the path of its record.
    ///
    /// The file has the fields of an [`Invocation`]; a candidate names its program as `program_file`, an argument
    /// with recorded values as `array_file`, both relative to the description. `direction`, `recorded_at` and
    /// `recorder` may be left out. See `docs/registry.md`.
    ///
    /// # Errors
    /// If the description or a file that it names is invalid, with the place; then nothing refers to what was already
    /// stored.
    pub fn add_described(&mut self, file: &Path) -> Result<PathBuf, RegistryError> {
        let wrong = |message: String| RegistryError::Description { path: file.to_owned(), message };
        let bytes = outside_file::bytes(file, MAX_DESCRIPTION_BYTES)
            .map_err(|source| RegistryError::Io { path: file.to_owned(), source })?;
        let described: Description = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let mut arguments = Vec::new();
        for argument in described.arguments {
            let fill = match (argument.fill, argument.array_file) {
                (Some(fill), None) => fill,
                (None, Some(path)) => self.writer().put_array(&read(&folder.join(path), MAX_ARRAY_BYTES)?)?,
                _ => {
                    let name = argument.name;
                    return Err(wrong(format!("argument `{name}`: give one of `fill` and `array_file`")));
                }
            };
            let DescribedArgument { name, spec, donated, .. } = argument;
            arguments.push(Argument { name, spec, fill, donated });
        }
        let mut candidates = Vec::new();
        for candidate in described.candidates {
            let program = match &candidate.program_file {
                Some(path) => Some(self.store_program(&folder.join(path), &candidate)?),
                None => None,
            };
            let DescribedCandidate { config, not_lowered, .. } = candidate;
            candidates.push(Candidate { config, program, not_lowered });
        }
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let version = env!("CARGO_PKG_VERSION");
        let invocation = Invocation {
            target: described.target,
            call: Call::new(described.op_id, described.call_key),
            batch: described.batch,
            direction: described.direction,
            arguments,
            distribution: described.distribution,
            other_distributions: described.other_distributions,
            static_arguments: described.static_arguments,
            tolerance: described.tolerance,
            baseline: described.baseline,
            candidates,
            recorded_on: described.recorded_on,
            recorded_at: described.recorded_at.unwrap_or_else(now),
            recorder: described.recorder.unwrap_or_else(|| format!("autotune-lowered {version} registry add")),
        };
        invocation.check().map_err(|error| wrong(error.to_string()))?;
        self.add(&invocation)
    }

    fn store_program(&self, path: &Path, described: &DescribedCandidate) -> Result<Program, RegistryError> {
        let bytes = read(path, MAX_PROGRAM_BYTES)?;
        let format = format_of(&bytes)
            .map_err(|message| RegistryError::Description { path: path.to_owned(), message: message.to_owned() })?;
        self.writer().put_program_of(format, &bytes, described.semantic_digest, described.custom_calls.clone())
    }
}

impl RegistryWriter {
    /// Stores a program whose form is recognized by its content; digest and custom calls are computed where they are
    /// not reported.
    ///
    /// # Errors
    /// If the bytes are not a program, or it cannot be written.
    pub fn put_any_program(
        &self,
        bytes: &[u8],
        semantic_digest: Option<Digest>,
        custom_calls: Option<Vec<String>>,
    ) -> Result<Program, RegistryError> {
        let format = format_of(bytes).map_err(|message| RegistryError::Description {
            path: self.root().to_owned(),
            message: format!("a program: {message}"),
        })?;
        self.put_program_of(format, bytes, semantic_digest, custom_calls)
    }

    fn put_program_of(
        &self,
        format: ProgramFormat,
        bytes: &[u8],
        semantic: Option<Digest>,
        calls: Option<Vec<String>>,
    ) -> Result<Program, RegistryError> {
        let semantic = semantic.unwrap_or_else(|| semantic_digest(format, bytes));
        let calls = calls.unwrap_or_else(|| custom_calls(format, bytes));
        self.put_program(format, bytes, semantic, calls)
    }
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, RegistryError> {
    outside_file::bytes(path, limit).map_err(|source| RegistryError::Io { path: path.to_owned(), source })
}

/// The format of a program, from its content.
fn format_of(bytes: &[u8]) -> Result<ProgramFormat, &'static str> {
    // MLIR's bytecode magic
    if bytes.starts_with(b"ML\xefR") {
        return Ok(ProgramFormat::StablehloPortable);
    }
    match std::str::from_utf8(bytes) {
        Ok("") => Err("the file is empty: write the program again"),
        Ok(text) if text.trim_start().starts_with("HloModule") => {
            Err("this is HLO text, which no plugin compiles; give StableHLO or a serialized HloModuleProto")
        }
        Ok(text) if text.contains("module") && text.contains("func") => Ok(ProgramFormat::StablehloText),
        // field 1 of HloModuleProto, its name
        _ if bytes.first() == Some(&0x0a) => Ok(ProgramFormat::HloProto),
        _ => Err("this is neither StableHLO, as text or bytecode, nor a serialized HloModuleProto"),
    }
}
