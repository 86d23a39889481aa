//! The structure of the command line.

use clap::{Parser, Subcommand};

use super::bisect::BisectArgs;
use super::cache_commands::CacheCommand;
use super::candidates::CandidatesCommand;
use super::check::CheckArgs;
use super::compare::CompareArgs;
use super::compile::CompileArgs;
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
use super::upgrade::UpgradeArgs;
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
    override_usage = "autotune-lowered <MODULE> [OPTIONS]\n       autotune-lowered <COMMAND>",
    after_help = MAIN_JOB,
    after_long_help = format!("{MAIN_JOB}\n\n{}", exit_codes_help()),
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub file: ConfigFileArgs,
    /// Print more on stderr: `-v` each step, `-vv` details (`RUST_LOG` overrides)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// What most runs name, for those who ask for help without a command.
const MAIN_JOB: &str = "\
The main job, `autotune-lowered MODULE` (`autotune-lowered tune --help` has all its options):
      --registry <DIR>           Recorded invocations [default: `registry` beside the module]
      --timer <TIMER>            Who measures: auto, jax, jax:PYTHON, pjrt, command:WORKER
      --cache <DIR>              Where the best configs are kept
      --compiler-options safe    Also tune how the whole module is compiled
      --only-compiler-options    Only that, which needs no label
      --dry-run                  Only say what would be tuned
      --report <FILE>            Draw the run as one page
      --format json              Print the result as JSON";

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
    /// Print the fingerprint of the device that tunes, and of others that plugins show
    Device(DeviceArgs),
    /// List or check recorded invocations, or add one
    #[command(subcommand)]
    Registry(RegistryCommand),
    /// List or check search spaces
    #[command(subcommand)]
    Candidates(CandidatesCommand),
    /// List, look up, share or remove cached configs
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Analyse profiles from JAX or XLA (docs/profiles.md)
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Draw a stored run as one self-contained HTML page (docs/report.md)
    Report(ReportArgs),
    /// Compile for absent devices: which configs each accepts, and how much memory they take (docs/targets.md)
    Compile(CompileArgs),
    /// Measure cached configs again and fail if one regressed: a gate for CI (docs/fleet.md)
    Check(CheckArgs),
    /// Measure cached configs under another compiler before you change to it: which hold, and which to tune again
    /// (docs/upgrade.md)
    Upgrade(UpgradeArgs),
    /// Find the first of several compilers under which cached configs no longer hold (docs/bisect.md)
    Bisect(BisectArgs),
    /// Race whole programs, or several ways to compile one, and report which differences exceed the noise
    /// (docs/compare.md)
    Compare(CompareArgs),
    /// Time one program's kernels under a profiler (docs/profiles.md)
    Measure(MeasureArgs),
    /// Race the variants of a step that `dump(…, variants=…)` wrote: how much tuned calls speed up the step, together
    /// and one by one (docs/prove.md)
    Prove(ProveArgs),
    /// Race programs against copies of themselves (A/A calibration) to measure this machine's noise floor
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
    Man {
        /// All commands and their flags as Markdown instead (docs/cli.md)
        #[arg(long)]
        markdown: bool,
    },
}
