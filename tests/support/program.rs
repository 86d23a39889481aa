//! Runs the program as a user does.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use autotune_lowered::call::Direction;
use autotune_lowered::cli::exit;
use autotune_lowered::registry::Registry;
use serde_json::{Value, json};

use super::folder::in_memory;
use super::prerequisite::python3;
use super::schemas;

pub const SOME_FAILED: i32 = exit::SOME_FAILED as i32;
pub const USAGE: i32 = exit::USAGE as i32;
pub const NOTHING_MATCHED: i32 = exit::NOTHING_MATCHED as i32;
pub const BAD_INPUT: i32 = exit::BAD_INPUT as i32;
pub const DEVICE_TROUBLE: i32 = exit::DEVICE_TROUBLE as i32;
pub const CACHE_TROUBLE: i32 = exit::CACHE_TROUBLE as i32;

pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    /// The schema of its output, if the arguments are known and ask for JSON.
    schema: Option<String>,
}

impl Run {
    /// The result of a process; without arguments, its JSON is validated against no schema.
    pub fn of(output: Output, arguments: &[&str]) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            schema: schemas::of_command(arguments),
        }
    }

    /// Its output as JSON, validated against its schema.
    pub fn json(&self) -> Value {
        let document = serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.stdout, self.stderr));
        if let Some(wrong) = self.schema.as_ref().and_then(|name| schemas::wrong(name, &document)) {
            panic!("{wrong}\n{}", self.stdout);
        }
        document
    }

    /// The single line that states the error.
    pub fn fault(&self) -> &str {
        let lines: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("autotune-lowered: ")).collect();
        assert_eq!(lines.len(), 1, "one line is to say what is wrong:\n{}", self.stderr);
        lines[0]
    }
}

/// A test's own folder, with a cache in it; each file of tests adds what else it needs.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        Self(in_memory())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).unwrap();
        self.text(name)
    }

    pub fn run(&self, arguments: &[&str]) -> Run {
        run(&self.path("cache"), arguments)
    }
}

pub fn command(cache: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_autotune-lowered"));
    command.env("AUTOTUNE_LOWERED_CACHE", cache).env_remove("AUTOTUNE_LOWERED_REGISTRY").env_remove("RUST_LOG");
    command.env_remove("AUTOTUNE_LOWERED_CONFIG");
    // the tests run beside each other
    command.env("AUTOTUNE_LOWERED_IGNORE_LOAD", "1");
    // where the user's own key is kept, and the user's own configuration
    command.env("XDG_DATA_HOME", cache.with_file_name("data")).env("XDG_CONFIG_HOME", cache.with_file_name("config"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    command
}

pub fn run(cache: &Path, arguments: &[&str]) -> Run {
    ended(command(cache).args(arguments))
}

/// Runs a command to its end.
pub fn ended(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    Run::of(output, &arguments.iter().map(|word| &**word).collect::<Vec<_>>())
}

pub fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/transformer")
}

pub fn module() -> String {
    example().join("module.hlo.txt").display().to_string()
}

/// A module with four calls, beside its registry: a real runtime tunes it in two seconds, the example in a minute.
pub fn small_module() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/small/module.mlir").display().to_string()
}

/// The call of the small module that has six configs.
pub const SMALL_CALL: &str = "split_matmul@v1:75674f6951a28614";

/// Simulated samples for every candidate of a registry: the n-th candidate takes 10 − n ms.
pub fn write_replay(registry: &Path, file: &Path) {
    let registry = Registry::open(registry).unwrap();
    let invocations: Vec<Value> = registry
        .invocations()
        .iter()
        .map(|invocation| {
            let candidates: Vec<Value> = invocation
                .candidates
                .iter()
                .enumerate()
                .map(|(n, candidate)| {
                    let ns = 10_000_000 - 1_000_000 * n as u64;
                    json!({"config": candidate.config, "epochs": [[ns, ns + 1000, ns - 1000, ns + 500]],
                           "outputs": [{"spec": "f32[1]", "hex": "0000803f"}]})
                })
                .collect();
            let direction = if invocation.direction == Direction::Forward { "forward" } else { "forward-vjp" };
            json!({"op_id": invocation.call.op_id, "call_key": invocation.call.call_key, "direction": direction,
                   "candidates": candidates})
        })
        .collect();
    let device = json!({"identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {"cpu_model": "simulated"}},
                        "environment": {"platform_version": "cpu"}});
    let recording = json!({"schema": 1, "device": device, "invocations": invocations});
    fs::write(file, recording.to_string()).unwrap();
}

/// A timer whose worker says that it measured those samples: what it decides is not marked as replayed.
pub fn measured_as_in(replay: &Path) -> String {
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/recorded_worker.py");
    format!("command:exec {} {} {}", python3(), worker.display(), replay.display())
}

pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for item in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(item.file_name());
        if item.path().is_dir() {
            copy_folder(&item.path(), &target);
        } else {
            fs::copy(item.path(), target).unwrap();
        }
    }
}
