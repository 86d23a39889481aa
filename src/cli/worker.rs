//! `worker`: the commands that worker processes are started with, and the conformance check.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use crate::timer::Limits;
use crate::timer::conformance;
use crate::timer::exec::{self, ExecOptions};
use crate::timer::pjrt::{PjrtWorkerOptions, worker_main};

use super::args::WorkerCommand;
use super::device::this_program;
use super::exit;
use super::fault::Fault;

/// Longest wait for one answer of a worker that is checked.
const CHECK_LIMIT: Duration = Duration::from_secs(60);

/// Runs a worker command; it owns the process's stdin and stdout.
pub(super) fn run(command: &WorkerCommand) -> ExitCode {
    match command {
        WorkerCommand::Pjrt { plugin, device, client_options, no_profiler } => worker_main(&PjrtWorkerOptions {
            plugin: plugin.clone(),
            device: *device,
            client_options: client_options.clone(),
            no_profiler: *no_profiler,
        }),
        WorkerCommand::Exec { memory_bytes, cpu_seconds, grace_ms, inner_of, command } => {
            let options = ExecOptions {
                memory_bytes: *memory_bytes,
                cpu_seconds: *cpu_seconds,
                grace: Duration::from_millis(*grace_ms),
                inner_of: *inner_of,
                command: command.clone(),
            };
            match this_program() {
                Ok(exe) => ExitCode::from(exec::run(&options, &exe)),
                Err(fault) => {
                    let _ = writeln!(std::io::stderr(), "worker exec: {}", fault.message);
                    ExitCode::from(exit::DEVICE_TROUBLE)
                }
            }
        }
        WorkerCommand::Check { command } => match check(command) {
            Ok(code) => ExitCode::from(code),
            Err(fault) => {
                let _ = writeln!(std::io::stderr(), "autotune-lowered: {}", fault.message);
                ExitCode::from(fault.code)
            }
        },
    }
}

/// Prints each step of the conformance check; a step that failed is device trouble.
fn check(command: &str) -> Result<u8, Fault> {
    let folder =
        tempfile::tempdir().map_err(|error| Fault::device(format!("cannot make a scratch folder: {error}")))?;
    let worker = crate::timer::WorkerCommand::shell(this_program()?, command);
    let limits = Limits { compile: CHECK_LIMIT, load: CHECK_LIMIT, measure: CHECK_LIMIT, ..Limits::default() };
    let report = conformance::check(&worker, &limits, folder.path()).map_err(Fault::device)?;
    write!(std::io::stdout().lock(), "{report}")?;
    Ok(if report.passed() { exit::ALL_TUNED } else { exit::DEVICE_TROUBLE })
}
