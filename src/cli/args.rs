//! The command line's shape.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::decision::DecisionRules;
use crate::digest::{Digest, ParseDigestError};
use crate::measured_by::CacheState;
use crate::search::{Budget, Kind};
use crate::tune::SearchOptions;

use super::cache::CacheCommand;
use super::candidates::CandidatesCommand;
use super::check::CheckArgs;
use super::device::DeviceArgs;
use super::exit;
use super::measure::MeasureArgs;
use super::plan::PlanArgs;
use super::profile::log_folder::{ExtractArgs, ListArgs};
use super::profile::mosaic::{MosaicArgs, MosaicSizeArgs};
use super::profile::timings::TimingsArgs;
use super::profile::trace::TraceArgs;
use super::profile::{CollectivesArgs, CompileArgs, FlamegraphArgs, ProfileDiffArgs, SummaryArgs, ViewArgs};
use super::registry::RegistryCommand;
use super::report::ReportArgs;
use super::scan::ScanArgs;
use super::selftest::SelftestArgs;
use super::signature::SignerArgs;
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
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub tune: TuneArgs,
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
    /// Read profiles that JAX or XLA wrote (docs/profiles.md)
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Draw a stored run as a page, one HTML file with everything in it (docs/report.md)
    Report(ReportArgs),
    /// Measure cached configs again and fail where one regressed: a gate for CI (docs/fleet.md)
    Check(CheckArgs),
    /// Time one program's kernels under a profiler (docs/profiles.md)
    Measure(MeasureArgs),
    /// Run programs against themselves: what this machine can tell apart (docs/decisions.md)
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

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Table,
    /// For programs; the schemas are in docs/json.md
    Json,
}

/// What of an execution is its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MetricArg {
    /// Launch to completion by the host clock, also where there is a profiler
    Elapsed,
    /// First start to last end
    Span,
    /// The time at which at least one operation was under way
    Busy,
}

/// What every timed run finds in the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CacheStateArg {
    /// What the run before left
    Warm,
    /// Nothing of its own: caches are flushed before every run, which takes tens of milliseconds
    Cold,
}

impl From<CacheStateArg> for CacheState {
    fn from(state: CacheStateArg) -> Self {
        match state {
            CacheStateArg::Warm => Self::Warm,
            CacheStateArg::Cold => Self::Cold,
        }
    }
}

/// What to do with a label that only kept its operation's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ByNameArg {
    /// Up to eight recorded invocations are taken; more are listed and left
    Few,
    /// However many there are
    All,
}

#[derive(Debug, Clone, Args)]
pub(super) struct FormatArg {
    /// How results are printed on stdout
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

#[derive(Debug, Clone, Args)]
pub(super) struct LabelArgs {
    /// Also find labels of your own: a regular expression with the groups `op` and `key`
    #[arg(long, value_name = "REGEX")]
    pub label_regex: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(super) struct CacheArgs {
    /// Cache folder, or URL of a cache that machines share (docs/remote.md); where nothing is written, a snapshot too
    /// [default: the platform's cache folder]
    #[arg(long = "cache", value_name = "DIR|URL", env = "AUTOTUNE_LOWERED_CACHE_DIR")]
    pub folder: Option<PathBuf>,
    /// Folder of seed files that go before those shipped: best configs to read, never written
    #[arg(long, value_name = "DIR", env = "AUTOTUNE_LOWERED_SEEDS")]
    pub seeds: Option<PathBuf>,
    /// File of public keys, one of which must have signed what a URL has (docs/trust.md)
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_VERIFY_KEY")]
    pub verify_key: Option<PathBuf>,
    /// Digest that the published snapshot must have, which `cache snapshot` and `cache push` print (docs/trust.md)
    #[arg(long, value_name = "DIGEST", env = "AUTOTUNE_LOWERED_PIN")]
    pub pin: Option<Pin>,
}

/// A digest that is asked for; an empty variable asks for none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pin(pub Option<Digest>);

impl FromStr for Pin {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(if text.is_empty() { None } else { Some(text.parse()?) }))
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct PluginArgs {
    /// PJRT plugin (a shared library) [default: found from PJRT_NAMES_AND_LIBRARY_PATHS,
    /// PJRT_PLUGIN_LIBRARY_PATH, or the active Python environment]
    #[arg(long, value_name = "PATH")]
    pub plugin: Option<PathBuf>,
    /// Which of the plugin's devices, by number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
    /// Option for the plugin's client [default: what suits its platform]
    #[arg(long = "client-option", value_name = "NAME=VALUE")]
    pub client_options: Vec<String>,
}

/// How long a worker may take, and how much memory.
#[derive(Debug, Clone, Args)]
pub(super) struct LimitArgs {
    /// Seconds after which a call to a worker counts as hung
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// MiB of memory that a worker may use, each on its own [default: three quarters of the machine's]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1 << 30))]
    pub memory_limit: Option<u64>,
    /// Programs that `--timer pjrt` compiles at once, each in a worker of its own [default: one a core, at most 8; 1 where
    /// XLA's own autotuning measures on the device as it compiles]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub compile_jobs: Option<u16>,
}

#[derive(Debug, Clone, Args)]
pub(super) struct TuneArgs {
    /// The lowered module: HLO text, StableHLO text or bytecode, HloModuleProto, an XLA dump folder, gzip or zstd of
    /// these, or `-` for standard input
    #[arg(value_name = "MODULE")]
    pub module: Option<PathBuf>,
    #[command(flatten)]
    pub plan: PlanArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub signer: SignerArgs,
    /// Keep results in memory and in the output only
    #[arg(long)]
    pub no_persist: bool,
    /// What times candidates: `auto` (the compiler that your JAX programs run with), `pjrt` (a plugin), `jax` or `jax:PYTHON`
    /// (device time from JAX's profiler), `command:CMD` (a worker of your own), `replay:FILE` (recorded samples),
    /// `replay:DIR` (profiles captured earlier)
    #[arg(long, value_name = "TIMER", default_value = "auto")]
    pub timer: String,
    /// What of an execution decides [default: of a profile `span` on a CPU and `busy` elsewhere; else `elapsed`]
    #[arg(long, value_enum)]
    pub metric: Option<MetricArg>,
    /// What every timed run finds in the caches of the device
    #[arg(long, value_enum, default_value_t = CacheStateArg::Warm)]
    pub cache_state: CacheStateArg,
    /// Keep the profile of every round in this folder, for `--timer replay:DIR` to decide from again
    #[arg(long, value_name = "DIR")]
    pub keep_profiles: Option<PathBuf>,
    /// Of the profiles keep those of the first candidate that runs and of every N-th after it, as runs of a log folder to
    /// look at (docs/profiles.md); nothing is decided from them again
    #[arg(long, value_name = "N", requires = "keep_profiles", value_parser = clap::value_parser!(u64).range(1..))]
    pub profile_every: Option<u64>,
    /// The most of these that are kept: the newest ones
    #[arg(long, value_name = "K", requires = "profile_every", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub profiles_kept: u32,
    #[command(flatten)]
    pub plugin: PluginArgs,
    /// Tune on several devices of one kind at once, each operation on one of them: `0,1` or `0-7`
    #[arg(long, value_name = "LIST", value_parser = device_list, conflicts_with_all = ["device", "keep_profiles"])]
    pub devices: Option<DeviceList>,
    /// Folder of search spaces that go before those shipped; they feed workers that build programs themselves
    #[arg(long, value_name = "DIR")]
    pub candidates: Option<PathBuf>,
    /// The most interleaved rounds of each operation, six at least; what is settled before takes fewer
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=100_000))]
    pub rounds: u32,
    /// Time for the rounds of each operation; what is not settled by then is decided by what was measured. With --profile,
    /// time for the whole run: no operation is begun afterwards. Seconds, or such as `30m` and `2h`
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub budget: Option<Duration>,
    /// Profile of a step that runs the module: an XSpace, a log folder, or a capture of nsys-jax. Operations are tuned in
    /// order of their share of its time, and what is gained of the step in all is said (docs/analysis.md)
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// HloProto or HloModuleProto of what ran in --profile, or a folder that XLA dumped them to; may be given again
    #[arg(long, value_name = "FILE", requires = "profile")]
    pub hlo: Vec<PathBuf>,
    #[command(flatten)]
    pub search: SearchArgs,
    /// Part of the baseline's time that a config must save to replace it
    #[arg(long, value_name = "PART", default_value_t = 0.02, value_parser = part)]
    pub min_improvement: f64,
    /// A speed-up above this is not believed and nothing is cached: most likely such a program computes something else
    #[arg(long, value_name = "TIMES", default_value_t = DecisionRules::default().max_speed_up, value_parser = times)]
    pub max_speed_up: f64,
    /// Measure again what is already known
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Say what would be tuned, and measure nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Also write the run as a page to look at, one HTML file with everything in it (docs/report.md)
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Also write what was done when, as a trace for Perfetto (`.pftrace`) or Chrome (`.json`, `.json.gz`): every operation,
    /// phase and candidate of the run (docs/traces.md)
    #[arg(long, value_name = "FILE")]
    pub trace_run: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// How to search the configs of an operation where there are too many to race them all.
#[derive(Debug, Clone, Args)]
pub(super) struct SearchArgs {
    /// Who says which config to try next where an operation has more than 64: auto, model, random or exhaustive
    /// (docs/search.md)
    #[arg(long = "search", value_name = "STRATEGY", default_value = "auto", value_parser = strategy)]
    pub strategy: Kind,
    /// The most configs of each operation that a search tries; the best of them are raced [default: 128, or any number
    /// with --search-seconds]
    #[arg(long = "search-evaluations", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub evaluations: Option<u32>,
    /// The most time that a search of one operation takes
    #[arg(long = "search-seconds", value_name = "SECONDS", value_parser = seconds)]
    pub time: Option<Duration>,
    /// Seed of searches and of the order inside rounds
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

impl SearchArgs {
    /// As the tuner takes it.
    pub(super) fn options(&self) -> SearchOptions {
        let default = SearchOptions::default();
        let evaluations = self.evaluations.map(|evaluations| evaluations as usize);
        let evaluations = evaluations.or(default.budget.evaluations.filter(|_| self.time.is_none()));
        SearchOptions { kind: self.strategy, budget: Budget { evaluations, time: self.time }, ..default }
    }
}

/// A search strategy by its name.
fn strategy(text: &str) -> Result<Kind, String> {
    if ["halving", "genetic"].contains(&text) {
        return Err(format!(
            "`{text}` is gone, since `auto` found better configs in every space that was tried; use `auto`"
        ));
    }
    Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        format!("expected one of {}", known.join(", "))
    })
}

/// Devices by number, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceList(pub Vec<usize>);

fn device_list(text: &str) -> Result<DeviceList, String> {
    let wrong = || format!("`{text}` is no list of devices such as `0,1` or `0-7`");
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number < 4096);
    let mut devices = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
        if first > last || (first..=last).any(|device| devices.contains(&device)) {
            return Err(wrong());
        }
        devices.extend(first..=last);
    }
    Ok(DeviceList(devices))
}

/// A part of one: at least zero, below one.
pub(super) fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..1.0).contains(&value) => Ok(value),
        _ => Err("expected a number of at least 0 and below 1, such as 0.02".to_owned()),
    }
}

/// A factor of at least one.
fn times(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 1.0 => Ok(value),
        _ => Err("expected a number of at least 1, such as 1000".to_owned()),
    }
}

/// A time: seconds, or a number with its unit.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1.0));
    let time = number.trim().parse::<f64>().ok();
    let time = time.and_then(|number| Duration::try_from_secs_f64(number * unit).ok()).filter(|time| !time.is_zero());
    time.ok_or_else(|| "expected seconds above zero, or a time such as `90s`, `30m` or `2h`".to_owned())
}

/// A time in seconds above zero.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "expected seconds above zero, such as 30 or 0.5".to_owned())
}

#[derive(Debug, Subcommand)]
pub(super) enum ProfileCommand {
    /// Where the time went: modules, operations, source lines, labels, idle time (docs/analysis.md)
    Summary(SummaryArgs),
    /// Open a profile as a page: summary, timeline, flame graphs (docs/view.md)
    View(ViewArgs),
    /// The same time as a flame graph by source line or op_name (docs/analysis.md)
    Flamegraph(FlamegraphArgs),
    /// Seconds by event name, and mean and deviation by function id over several profiles
    Timings(TimingsArgs),
    /// Bandwidth, hidden part and straggler wait of collectives (docs/collectives.md)
    Collectives(CollectivesArgs),
    /// Compilation by phase, worker threads counted once (docs/compile.md)
    Compile(CompileArgs),
    /// What became faster between two profiles, and whether it is more than chance (docs/analysis.md)
    Diff(ProfileDiffArgs),
    /// Write a capture as a trace for Perfetto's and Chrome's viewers (docs/traces.md)
    Trace(TraceArgs),
    /// Draw the on-device profile of a Mosaic GPU kernel as a trace (docs/mosaic.md)
    Mosaic(MosaicArgs),
    /// Say how large the on-device profiler's buffers are (docs/mosaic.md)
    MosaicSize(MosaicSizeArgs),
    /// List the runs of a log folder (docs/traces.md)
    List(ListArgs),
    /// Take a run out of a log folder: its capture, or a trace of it (docs/traces.md)
    Extract(ExtractArgs),
}
