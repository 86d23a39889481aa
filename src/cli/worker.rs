//! `worker`: the commands that worker processes are started with, and the conformance check.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;

use crate::timer::WorkerLimits;
use crate::timer::conformance;
use crate::timer::exec::{self, ExecOptions};
use crate::timer::pjrt::{PjrtWorkerOptions, worker_main};

use super::exit;
use super::fault::Fault;
use super::timers::{scratch, this_program};

#[derive(Debug, Subcommand)]
pub(super) enum WorkerCommand {
    /// Serve the worker protocol with a PJRT plugin
    Pjrt {
        /// The plugin
        #[arg(long, value_name = "PATH")]
        plugin: PathBuf,
        /// Number of the device to use
        #[arg(long, value_name = "N", default_value_t = 0)]
        device: usize,
        /// Option for the plugin's client [default: suited to its platform]
        #[arg(long = "client-option", value_name = "NAME=VALUE")]
        client_options: Vec<String>,
        /// Compile for the devices of this topology, which may be absent, and run nothing
        #[arg(long, value_name = "NAME")]
        topology: Option<String>,
        /// Option for that topology
        #[arg(long = "topology-option", value_name = "NAME=VALUE", requires = "topology")]
        topology_options: Vec<String>,
        /// Compile for the devices of this description, which another worker gave, and run nothing
        #[arg(long, value_name = "BASE64", conflicts_with = "topology", hide = true)]
        topology_description: Option<String>,
        /// Folder into which libtpu dumps what it schedules
        #[arg(long, value_name = "DIR", requires = "topology", hide = true)]
        llo_dump: Option<PathBuf>,
        /// Time by the host clock even if the plugin has a profiler
        #[arg(long)]
        no_profiler: bool,
        /// The most bytes of a large output that are on the host at a time to be compared [default: 64 MiB]
        #[arg(long, value_name = "BYTES", hide = true)]
        output_block_bytes: Option<u64>,
    },
    /// Run a worker in its own process group, with limits; ends with its stdin and with its parent
    Exec {
        /// Bytes of memory that the worker may use
        #[arg(long, value_name = "BYTES")]
        memory_bytes: Option<u64>,
        /// Allow three quarters of the machine's memory if that is more, however it grows
        #[arg(long)]
        memory_may_grow: bool,
        /// Seconds of processor time that the worker may use
        #[arg(long, value_name = "SECONDS")]
        cpu_seconds: Option<u64>,
        /// Milliseconds that the worker may continue after its stdin was closed
        #[arg(long, value_name = "MS", default_value_t = 500)]
        grace_ms: u64,
        /// Set by the outer stage for the inner one
        #[arg(long, hide = true)]
        inner_of: Option<u32>,
        /// Socket of a process that forks the worker, if it is there
        #[arg(long, value_name = "SOCKET", hide = true)]
        template: Option<PathBuf>,
        /// The worker and its arguments
        #[arg(last = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Check that a worker follows the protocol
    Check {
        /// The worker's command line, as one word for the shell
        command: String,
    },
}

/// Maximum wait for one answer of a checked worker.
const CHECK_LIMIT: Duration = Duration::from_secs(60);

/// Runs a worker command; it owns the process's stdin and stdout.
pub(super) fn run(command: &WorkerCommand) -> Result<ExitCode, Fault> {
    Ok(match command {
        WorkerCommand::Pjrt {
            plugin,
            device,
            client_options,
            topology,
            topology_options,
            topology_description,
            llo_dump,
            no_profiler,
            output_block_bytes,
        } => worker_main(&PjrtWorkerOptions {
            plugin: plugin.clone(),
            device: *device,
            client_options: client_options.clone(),
            topology: topology.clone(),
            topology_options: topology_options.clone(),
            topology_description: topology_description.clone(),
            llo_dump: llo_dump.clone(),
            no_profiler: *no_profiler,
            output_block_bytes: *output_block_bytes,
        }),
        WorkerCommand::Exec { memory_bytes, memory_may_grow, cpu_seconds, grace_ms, inner_of, template, command } => {
            let options = ExecOptions {
                memory_bytes: *memory_bytes,
                memory_may_grow: *memory_may_grow,
                cpu_seconds: *cpu_seconds,
                grace: Duration::from_millis(*grace_ms),
                inner_of: *inner_of,
                template: template.clone(),
                command: command.clone(),
            };
            ExitCode::from(exec::run(&options, &this_program()?))
        }
        WorkerCommand::Check { command } => ExitCode::from(check(command)?),
    })
}

/// Prints each step of the conformance check; a failed step is a device fault.
fn check(command: &str) -> Result<u8, Fault> {
    let folder = scratch()?;
    let worker = crate::timer::WorkerCommand::shell(this_program()?, command);
    let limits =
        WorkerLimits { compile: CHECK_LIMIT, load: CHECK_LIMIT, measure: CHECK_LIMIT, ..WorkerLimits::default() };
    let report = conformance::check(&worker, &limits, folder.path()).map_err(Fault::device)?;
    write!(std::io::stdout().lock(), "{report}")?;
    Ok(if report.passed() { exit::ALL_TUNED } else { exit::DEVICE_TROUBLE })
}
