//! `worker`: the commands that worker processes are started with, and the conformance check.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use crate::timer::exec::{self, ExecOptions};
use crate::timer::pjrt::{PjrtWorkerOptions, worker_main};

use super::args::WorkerCommand;
use super::device::this_program;
use super::exit;

/// Runs a worker command; it owns the process's stdin and stdout.
pub(super) fn run(command: &WorkerCommand) -> ExitCode {
    match command {
        WorkerCommand::Pjrt { plugin, device, client_options } => worker_main(&PjrtWorkerOptions {
            plugin: plugin.clone(),
            device: *device,
            client_options: client_options.clone(),
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
        WorkerCommand::Check { .. } => ExitCode::from(exit::USAGE),
    }
}
