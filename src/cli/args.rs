//! The command line's shape.

use clap::{Parser, Subcommand};

use super::cache_commands::CacheCommand;
use super::candidates::CandidatesCommand;
use super::check::CheckArgs;
use super::compare::CompareArgs;
use super::compile::CompileArgs;
use super::config::ConfigArgs;
use super::config_file::ConfigFileArgs;
use super::device::DeviceArgs;
use super::exit;
use super::measure::MeasureArgs;
use super::profile::ProfileCommand;
use super::prove::ProveArgs;
use super::registry::RegistryCommand;
use super::report::ReportArgs;
use super::scan::ScanArgs;
use super::selftest::SelftestArgs;
use super::tune_args::TuneArgs;
use super::worker::WorkerCommand;

/// An offline autotuner for lowered HLO computations.
#[derive(Debug, Parser)]
#[command(
    name = "autotune-lowered",
    version,
    about = "Tune the labelled kernels of a lowered module and cache the best configs",
    long_about = "Scans a lowered module for the labels of tunable kernels, matches them with recorded invocations of \
                  this device, times every candidate config in worker processes, and writes the best configs to a \
                  persistent cache.",
    after_long_help = exit_codes_help(),
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub file: ConfigFileArgs,
    /// Say more on stderr: `-v` what is done, `-vv` details (`RUST_LOG` overrides)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

fn exit_codes_help() -> String {
    let rows = exit::TABLE.iter().map(|(code, meaning)| format!("  {code:>3}  {meaning}"));
    format!("Exit codes:\n{}", rows.collect::<Vec<_>>().join("\n"))
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Tune the labelled kernels of a lowered module and cache the best configs; `autotune-lowered MODULE` is the same
    Tune(Box<TuneArgs>),
    /// List the labels of a module
    Scan(ScanArgs),
    /// Print the fingerprint of each device that a plugin shows
    Device(DeviceArgs),
    /// Look at recorded invocations, or add one
    #[command(subcommand)]
    Registry(RegistryCommand),
    /// Look at search spaces
    #[command(subcommand)]
    Candidates(CandidatesCommand),
    /// Look at cached configs, or remove them
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Print the settings in force and where each comes from (docs/configuration.md)
    Config(ConfigArgs),
    /// Read profiles that JAX or XLA wrote (docs/profiles.md)
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Draw a stored run as a page, one HTML file with everything in it (docs/report.md)
    Report(ReportArgs),
    /// Compile for devices that need not be here: which configs each takes, and with what memory (docs/targets.md)
    Compile(CompileArgs),
    /// Measure cached configs again and fail where one regressed: a gate for CI (docs/fleet.md)
    Check(CheckArgs),
    /// Race whole programs, or ways to compile one: each one's time over the first one's, and whether that is more than noise
    /// (docs/compare.md)
    Compare(CompareArgs),
    /// Time one program's kernels under a profiler (docs/profiles.md)
    Measure(MeasureArgs),
    /// Race the variants of a step that `dump(…, variants=…)` wrote: what its tuned calls gain in it, together and each
    /// (docs/prove.md)
    Prove(ProveArgs),
    /// Run programs against themselves (A/A calibration): this machine's noise floor, for tuning with the same timer
    /// (docs/decisions.md)
    Selftest(SelftestArgs),
    /// Run, guard or check a worker (docs/worker-protocol.md)
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}
