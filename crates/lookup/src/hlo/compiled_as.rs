//! How the user's program compiles a module, from the side file that `dump` writes: options, flags, devices, arguments.
//!
//! Every member may be absent, because not every version of JAX reports all of them.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::error::{ScanError, ScanErrorKind};
use super::side_file::{self, Refused};
use crate::array::ArraySpec;
use crate::digest::Digest;
use crate::open_enum::open_enum;
use crate::outside_file;

/// Maximum size of a `CompileOptionsProto`; with all debug options it has about 5 KB, with a profile for the compiler
/// more.
const MAX_OPTIONS_BYTES: usize = 1 << 24;
/// Maximum size of an environment variable: Linux's limit.
const MAX_FLAGS_BYTES: usize = 1 << 17;
/// Maximum number of devices of one program.
const MAX_DEVICES: usize = 1 << 20;
/// Maximum number of arguments of one program.
const MAX_ARGUMENTS: usize = 1 << 20;
/// Longest path of an argument in bytes.
const MAX_PATH_BYTES: usize = 1 << 12;

open_enum! {
    /// Which of XLA's partitioners divides a multi-device program.
    pub enum Partitioner {
        /// Shardy, by `sdy` attributes.
        Shardy = "shardy",
        /// GSPMD, by `mhlo.sharding` attributes.
        Gspmd = "gspmd",
    }
}

/// One argument of a module, in the order of its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Argument {
    /// Its place in the tree of arguments, such as `params/w`, as [`ProgramArgument`](super::ProgramArgument) has it.
    pub path: String,
    /// Element type and global dimensions, also if the program is partitioned.
    pub spec: ArraySpec,
    /// Whether the caller donates it, so that a run may destroy it.
    #[serde(default)]
    pub donated: bool,
}

/// How the user's program compiles a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompiledAs {
    /// [`semantic_digest`](super::semantic_digest) of the StableHLO text, even if the module is compiled HLO.
    pub stablehlo_digest: Option<Digest>,
    /// `CompileOptionsProto` as JAX passes it to the compiler, not decoded.
    pub compile_options: Option<Vec<u8>>,
    /// `XLA_FLAGS` of the process.
    pub xla_flags: Option<String>,
    /// `LIBTPU_INIT_ARGS` of the process.
    pub libtpu_init_args: Option<String>,
    /// The partitioner.
    pub partitioner: Option<Partitioner>,
    /// Partitions of the program, each on its own device.
    pub num_partitions: Option<u32>,
    /// Ids of the devices, in the partitions' order; empty if they are not reported.
    pub device_assignment: Vec<i64>,
    /// The module's arguments; `None` if they are not reported.
    pub arguments: Option<Vec<Argument>>,
}

#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    stablehlo_digest: Option<Digest>,
    #[serde(default)]
    compile_options: Option<String>,
    #[serde(default)]
    xla_flags: Option<String>,
    #[serde(default)]
    libtpu_init_args: Option<String>,
    #[serde(default)]
    partitioner: Option<Partitioner>,
    #[serde(default)]
    num_partitions: Option<u32>,
    #[serde(default)]
    device_assignment: Option<Vec<i64>>,
    #[serde(default)]
    arguments: Option<Vec<Argument>>,
}

/// How the program of the module in a file compiles it; `None` without a side file.
///
/// # Errors
///
/// If the side file cannot be read, does not follow its schema, or belongs to another module, or the module cannot be
/// read.
pub fn compiled_as(module: &Path) -> Result<Option<CompiledAs>, ScanError> {
    if module.is_dir() {
        return Ok(None);
    }
    let digest = || Digest::of_reader(outside_file::open(module, u64::MAX)?);
    let side = side_file::of_module::<Stored>(module, digest).and_then(|stored| stored.map(checked).transpose());
    side.map_err(|refused| ScanErrorKind::SideFile(refused.message(module)).at(&module.display().to_string()))
}

fn checked(stored: Stored) -> Result<CompiledAs, Refused> {
    let too_large = |member: &str, limit: usize| Refused::unreadable(format!("has more in `{member}` than {limit}"));
    for (member, text) in [("xla_flags", &stored.xla_flags), ("libtpu_init_args", &stored.libtpu_init_args)] {
        if text.as_ref().is_some_and(|text| text.len() > MAX_FLAGS_BYTES) {
            return Err(too_large(member, MAX_FLAGS_BYTES));
        }
    }
    let compile_options = stored.compile_options.map(|text| {
        if text.len() / 4 * 3 > MAX_OPTIONS_BYTES {
            return Err(too_large("compile_options", MAX_OPTIONS_BYTES));
        }
        STANDARD
            .decode(text)
            .map_err(|error| Refused::unreadable(format!("has `compile_options` that are not base64 ({error})")))
    });
    let device_assignment = stored.device_assignment.unwrap_or_default();
    if device_assignment.len() > MAX_DEVICES {
        return Err(too_large("device_assignment", MAX_DEVICES));
    }
    let arguments = stored.arguments;
    if let Some(arguments) = &arguments {
        if arguments.len() > MAX_ARGUMENTS {
            return Err(too_large("arguments", MAX_ARGUMENTS));
        }
        if arguments.iter().any(|argument| argument.path.len() > MAX_PATH_BYTES) {
            return Err(too_large("path", MAX_PATH_BYTES));
        }
    }
    Ok(CompiledAs {
        stablehlo_digest: stored.stablehlo_digest,
        compile_options: compile_options.transpose()?,
        xla_flags: stored.xla_flags,
        libtpu_init_args: stored.libtpu_init_args,
        partitioner: stored.partitioner,
        num_partitions: stored.num_partitions,
        device_assignment,
        arguments,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What `compiled_as` returns for a side file with these members.
    fn read_members(members: &Value) -> Result<Option<CompiledAs>, String> {
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("m.mlir");
        std::fs::write(&module, "module @m {}").unwrap();
        let mut side = json!({"schema": 1, "module_digest": Digest::of(b"module @m {}")});
        side.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        std::fs::write(folder.path().join("m.mlir.labels.json"), side.to_string()).unwrap();
        compiled_as(&module).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_kept_is_read_and_what_is_not_is_absent() {
        let found = read_members(&json!({
            "labels": [], "stablehlo_digest": "0f".repeat(32), "compile_options": "GgQgASgB", "xla_flags": "--a=1",
            "libtpu_init_args": null, "partitioner": "shardy", "num_partitions": 2, "device_assignment": [3, 1],
            "arguments": [{"path": "params/w", "spec": "bf16[2,128]", "donated": true}, {"path": "1", "spec": "s32[]"}],
        }));
        let found = found.unwrap().unwrap();
        assert_eq!(found.stablehlo_digest, "0f".repeat(32).parse().ok());
        // one replica and one partition, which every compiler accepts
        assert_eq!(found.compile_options.unwrap(), [0x1a, 0x04, 0x20, 0x01, 0x28, 0x01]);
        assert_eq!((found.xla_flags.as_deref(), found.libtpu_init_args), (Some("--a=1"), None));
        assert_eq!((found.partitioner, found.num_partitions), (Some(Partitioner::Shardy), Some(2)));
        assert_eq!(found.device_assignment, [3, 1]);
        let [weights, step] = &found.arguments.unwrap()[..] else { panic!("two arguments") };
        assert_eq!((weights.path.as_str(), weights.spec.to_string().as_str()), ("params/w", "bf16[2,128]"));
        assert_eq!((weights.donated, step.donated), (true, false));
        assert_eq!(read_members(&json!({"labels": []})), Ok(Some(CompiledAs::default())), "no member");
    }

    #[test]
    fn what_cannot_be_used_is_an_error_that_names_the_side_file() {
        for (members, expected) in [
            (json!({"schema": 2}), "of schema 2"),
            (json!({"module_digest": "0".repeat(64)}), "belongs to another module"),
            (json!({"stablehlo_digest": "0f"}), "does not follow schema 1"),
            (json!({"compile_options": "%"}), "not base64"),
            (json!({"compile_options": "A".repeat(MAX_OPTIONS_BYTES / 3 * 4 + 8)}), "more in `compile_options`"),
            (json!({"xla_flags": "-".repeat(MAX_FLAGS_BYTES + 1)}), "more in `xla_flags`"),
            (json!({"arguments": [{"path": "a", "spec": "f32"}]}), "does not follow schema 1"),
            (json!({"arguments": [{"path": "a".repeat(MAX_PATH_BYTES + 1), "spec": "f32[]"}]}), "more in `path`"),
            (json!({"device_assignment": vec![0; MAX_DEVICES + 1]}), "more in `device_assignment`"),
        ] {
            let message = read_members(&members).unwrap_err();
            assert!(message.contains("m.mlir.labels.json` ") && message.contains(expected), "{message:.300}");
        }
    }

    #[test]
    fn without_a_side_file_there_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(compiled_as(folder.path()).unwrap(), None);
        assert_eq!(compiled_as(&folder.path().join("none.mlir")).unwrap(), None);
    }
}
