//! The command line's shape.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::device::MatchMode;
use crate::search::{Budget, Kind};
use crate::timer::CacheState;
use crate::tune::SearchOptions;

use super::bench::BenchCommand;
use super::check::CheckArgs;
use super::coverage::CoverageArgs;
use super::exit;
use super::merge::{DiffArgs, MergeArgs};
use super::plan::PlanArgs;
use super::profile::log_folder::{ExtractArgs, ListArgs};
use super::profile::mosaic::{MosaicArgs, MosaicSizeArgs};
use super::profile::trace::TraceArgs;
use super::profile::{CollectivesArgs, CompileArgs, FlamegraphArgs, ProfileDiffArgs, SummaryArgs, ViewArgs};
use super::prune::PruneArgs;
use super::remote::{PullArgs, PushArgs};
use super::report::ReportArgs;
use super::signature::{KeygenArgs, SignArgs};
use super::verify::VerifyArgs;

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
    /// Make benchmark figures again (docs/search.md)
    #[command(subcommand)]
    Bench(BenchCommand),
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

/// Another tool's cache files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ExchangeArg {
    /// The persistent caches of ejkernel, one file an operation
    Ejkernel,
    /// An `AutotuningResult` of Tokamax in a file whose name ends in `.json`, or its databases, one file an operation
    Tokamax,
    /// Entries as JSON in one object, or one a line where the file's name ends in `.jsonl`
    Json,
    /// Entries as JSON, one a line, whatever the file is called
    Jsonl,
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
    /// Cache folder, or URL of a cache that machines share (docs/remote.md) [default: the platform's cache folder]
    #[arg(long = "cache", value_name = "DIR|URL", env = "AUTOTUNE_LOWERED_CACHE_DIR")]
    pub folder: Option<PathBuf>,
    /// Folder of seed files that go before those shipped: best configs to read, never written
    #[arg(long, value_name = "DIR", env = "AUTOTUNE_LOWERED_SEEDS")]
    pub seeds: Option<PathBuf>,
    /// File of public keys, one of which must have signed what a URL has (docs/trust.md)
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_VERIFY_KEY")]
    pub verify_key: Option<PathBuf>,
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
    /// Private key that signs what is published at a URL (docs/trust.md)
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_SIGN_KEY")]
    pub sign_key: Option<PathBuf>,
    /// Keep results in memory and in the output only
    #[arg(long)]
    pub no_persist: bool,
    /// What times candidates: `pjrt`, `jax` or `jax:PYTHON` (device time from JAX's profiler), `command:CMD` (a worker of
    /// your own), `replay:FILE` (recorded samples), `replay:DIR` (profiles captured earlier)
    #[arg(long, value_name = "TIMER", default_value = "pjrt")]
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
    /// Profile of a step that runs the module: an XSpace, or a log folder. Operations are tuned in order of their share of
    /// its time, and what is gained of the step in all is said (docs/analysis.md)
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
    #[command(flatten)]
    pub format: FormatArg,
}

/// How to search the configs of an operation where there are too many to race them all.
#[derive(Debug, Clone, Args)]
pub(super) struct SearchArgs {
    /// Who says which config to try next where an operation has more than 64: auto, model, genetic, halving, random or
    /// exhaustive (docs/search.md)
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
pub(super) fn strategy(text: &str) -> Result<Kind, String> {
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

/// A time in seconds above zero.
/// A time: seconds, or a number with its unit.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1.0));
    let time = number.trim().parse::<f64>().ok();
    let time = time.and_then(|number| Duration::try_from_secs_f64(number * unit).ok()).filter(|time| !time.is_zero());
    time.ok_or_else(|| "expected seconds above zero, or a time such as `90s`, `30m` or `2h`".to_owned())
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "expected seconds above zero, such as 30 or 0.5".to_owned())
}

#[derive(Debug, Args)]
pub(super) struct ScanArgs {
    /// The module, or `-` for standard input
    pub module: PathBuf,
    #[command(flatten)]
    pub labels: LabelArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Debug, Args)]
pub(super) struct DeviceArgs {
    #[command(flatten)]
    pub plugin: PluginArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Debug, Clone, Args)]
pub(super) struct RegistryArg {
    /// Folder of recorded invocations
    #[arg(value_name = "DIR", env = "AUTOTUNE_LOWERED_REGISTRY")]
    pub registry: PathBuf,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Debug, Subcommand)]
pub(super) enum RegistryCommand {
    /// List recorded invocations
    Ls(RegistryArg),
    /// Show every invocation of an operation, with its candidates
    Show {
        #[command(flatten)]
        registry: RegistryArg,
        /// `op@vN`, or `op@vN:key`
        name: String,
    },
    /// Check every record, program and array against its digest
    Verify(RegistryArg),
    /// Add an invocation that a JSON file describes (docs/registry.md)
    Add {
        #[command(flatten)]
        registry: RegistryArg,
        /// The description
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum CandidatesCommand {
    /// List the search spaces
    Ls(SpacesArg),
    /// List the configs of an operation's search space
    Show {
        /// The operation
        op: String,
        #[command(flatten)]
        spaces: SpacesArg,
    },
    /// Check a search space's file
    Check {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Clone, Args)]
pub(super) struct SpacesArg {
    /// Folder of search spaces that go before those shipped
    #[arg(long, value_name = "DIR")]
    pub candidates: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Debug, Subcommand)]
pub(super) enum CacheCommand {
    /// Print the best config of a call
    Get {
        /// Operation, `name@vN`
        op: String,
        /// Call key
        key: String,
        /// Whose results may stand for this device's: exact, kind or any
        #[arg(long = "match", value_name = "MODE", default_value = "exact")]
        match_mode: MatchMode,
        #[command(flatten)]
        plugin: PluginArgs,
        #[command(flatten)]
        cache: CacheArgs,
        #[command(flatten)]
        format: FormatArg,
    },
    /// List the configs of the cache folder
    Ls {
        /// Also those that are shipped as seed files
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        cache: CacheArgs,
        #[command(flatten)]
        format: FormatArg,
    },
    /// Remove the entries of an operation, or of one call of it, for every device
    Rm {
        /// Operation, `name@vN`
        op: String,
        /// Call key
        key: Option<String>,
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Print the cache folder
    Path {
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Write cached configs as seed files: one a device and operation, to be reviewed and shipped
    Seed {
        /// Folder to write to
        out: PathBuf,
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Publish the cache as one immutable file that any number of processes read at once; prints its digest
    Snapshot {
        /// File to write
        out: PathBuf,
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Write cached configs as JSON or as another tool's cache files
    Export(ExportArgs),
    /// Take configs over from JSON or from another tool's cache files
    Import {
        /// Whose files
        #[arg(long, value_enum)]
        format: ExchangeArg,
        /// A file, or a folder of them
        path: PathBuf,
        /// Only what is of this device, by Tokamax's name of it; a Tokamax database is then of exactly this kind
        #[arg(long, value_name = "TEXT")]
        fingerprint: Option<String>,
        #[command(flatten)]
        cache: CacheArgs,
    },
    /// Load the snapshot that is published at a URL, unless it is here already; prints its digest and file
    Pull(PullArgs),
    /// Publish the cache at a URL, merged with what is there; prints the digest
    Push(PushArgs),
    /// Make a pair of keys that sign snapshots
    Keygen(KeygenArgs),
    /// Sign a snapshot
    Sign(SignArgs),
    /// Merge caches: of each call the entry with the better evidence, and with it where the others came from
    /// (docs/caches.md)
    Merge(MergeArgs),
    /// List what differs between two caches; exit code 1 where something does
    Diff(DiffArgs),
    /// Check every byte of caches against what was written; exit code 4 where one is damaged
    Verify(VerifyArgs),
    /// Remove entries that are too old, of a device, or of software that is gone
    Prune(PruneArgs),
    /// List which labels of a module have a config for a device; exit code 1 where one has not
    Coverage(CoverageArgs),
    /// Make the sled cache again from the sample log
    Rebuild {
        #[command(flatten)]
        cache: CacheArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// Whose files
    #[arg(long, value_enum)]
    pub format: ExchangeArg,
    /// File (`json`, `tokamax`) or folder to write to; what else another tool's cache files hold stays
    pub out: PathBuf,
    /// Only entries of devices whose name, as `cache ls` prints it, contains this
    #[arg(long = "for", value_name = "TEXT")]
    pub device: Option<String>,
    /// The tool's own name of the device: ejkernel's `device_kind|platform_version`, Tokamax's `device_kind` [default: made from the entry]
    #[arg(long, value_name = "TEXT")]
    pub fingerprint: Option<String>,
    /// Fields of the ejkernel that will read the files, as `python -m autotune_lowered.ejkernel_fields` prints them
    /// [default: those of 0.0.80.3]
    #[arg(long, value_name = "FILE")]
    pub fields: Option<PathBuf>,
    /// Folder of recorded invocations: says how Tokamax calls what was tuned here
    #[arg(long, value_name = "DIR", env = "AUTOTUNE_LOWERED_REGISTRY")]
    pub registry: Option<PathBuf>,
    #[command(flatten)]
    pub cache: CacheArgs,
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

#[derive(Debug, Args)]
pub(super) struct TimingsArgs {
    /// An XSpace (`.xplane.pb`), gzip of one, a log folder of TensorBoard (its newest run, all hosts), or `-`
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Part of a plane's name, whatever the case [default: `/device:` where there is one, else `/host:CPU`]
    #[arg(long, value_name = "NAME")]
    pub plane: Option<String>,
    /// Only names that start so; empty for all
    #[arg(long, value_name = "TEXT", default_value = "jit_")]
    pub prefix: String,
    /// Only time of operations whose names match; with --seed-semantics, of events inside whose names match
    #[arg(long, value_name = "REGEX")]
    pub regex: Option<String>,
    /// Leave out what is shorter
    #[arg(long, value_name = "NS", default_value_t = 1000.0, value_parser = duration_ns)]
    pub min_duration_ns: f64,
    /// Most samples of a plane, or `none` [default: none; with --seed-semantics 10000 events]
    #[arg(long, value_name = "N", value_parser = cap)]
    pub max_events: Option<Cap>,
    /// What ejkernel's profiler would say, faults included; never fit to decide by
    #[arg(long)]
    pub seed_semantics: bool,
    #[command(flatten)]
    pub format: FormatArg,
}

/// At most so many, or no bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cap(pub Option<usize>);

fn cap(text: &str) -> Result<Cap, String> {
    match text {
        "none" => Ok(Cap(None)),
        _ => text.parse().map(|most| Cap(Some(most))).map_err(|_| "expected a whole number or `none`".to_owned()),
    }
}

/// A duration: finite and not below zero.
fn duration_ns(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("expected nanoseconds, zero or more".to_owned()),
    }
}

/// What of a program is measured; the two are not interchangeable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ModeArg {
    /// The sum of the kernels' durations, without the gaps between them
    Kernels,
    /// From the first kernel's start to the last one's end, with the gaps
    Span,
}

#[derive(Debug, Args)]
pub(super) struct MeasureArgs {
    /// The program: StableHLO text or bytecode, or a serialized HloModuleProto
    pub program: PathBuf,
    /// What is measured
    #[arg(long, value_enum, default_value_t = ModeArg::Span)]
    pub mode: ModeArg,
    /// Also the time of each kernel, in launch order; with `--mode kernels`
    #[arg(long)]
    pub per_kernel: bool,
    /// Iterations that count, after one that does not
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..10_000))]
    pub iterations: u32,
    /// What every iteration finds in the caches of the device
    #[arg(long, value_enum, default_value_t = CacheStateArg::Warm)]
    pub cache_state: CacheStateArg,
    /// Folder of inputs, dense little-endian elements in `0.bin`, `1.bin`, … [default: normal values, zeros for integers]
    #[arg(long, value_name = "DIR")]
    pub inputs: Option<PathBuf>,
    /// What runs the program: `jax` or `jax:PYTHON`, `pjrt` where the plugin has a profiler, `command:CMD`
    #[arg(long, value_name = "TIMER", default_value = "jax")]
    pub timer: String,
    #[command(flatten)]
    pub plugin: PluginArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Debug, Args)]
pub(super) struct SelftestArgs {
    /// Programs, StableHLO text or bytecode or a serialized HloModuleProto [default: four of its own]
    #[arg(value_name = "PROGRAM")]
    pub programs: Vec<PathBuf>,
    /// How often each program is loaded
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=16))]
    pub copies: u32,
    /// Interleaved rounds that count; none is spared
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=100))]
    pub rounds: u32,
    #[command(flatten)]
    pub cache: CacheArgs,
    /// What times the programs: `pjrt`, `jax` or `jax:PYTHON`, `command:CMD`; the figures are for tuning with the same
    #[arg(long, value_name = "TIMER", default_value = "pjrt")]
    pub timer: String,
    /// What of an execution is its duration [default: of a profile `span` on a CPU and `busy` elsewhere; else `elapsed`]
    #[arg(long, value_enum)]
    pub metric: Option<MetricArg>,
    /// What every run finds in the caches of the device
    #[arg(long, value_enum, default_value_t = CacheStateArg::Warm)]
    pub cache_state: CacheStateArg,
    #[command(flatten)]
    pub plugin: PluginArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

#[derive(Debug, Subcommand)]
pub(super) enum WorkerCommand {
    /// Serve the worker protocol with a PJRT plugin
    Pjrt {
        /// The plugin
        #[arg(long, value_name = "PATH")]
        plugin: PathBuf,
        /// Which of its devices, by number
        #[arg(long, value_name = "N", default_value_t = 0)]
        device: usize,
        /// Option for the plugin's client [default: what suits its platform]
        #[arg(long = "client-option", value_name = "NAME=VALUE")]
        client_options: Vec<String>,
        /// Time by the host clock, also where the plugin has a profiler
        #[arg(long)]
        no_profiler: bool,
    },
    /// Run a worker in a process group of its own, with limits; ends with its stdin and with its parent
    Exec {
        /// Bytes of memory that the worker may use
        #[arg(long, value_name = "BYTES")]
        memory_bytes: Option<u64>,
        /// Seconds of processor time that the worker may use
        #[arg(long, value_name = "SECONDS")]
        cpu_seconds: Option<u64>,
        /// Milliseconds that the worker may go on after its stdin was closed
        #[arg(long, value_name = "MS", default_value_t = 500)]
        grace_ms: u64,
        /// Set by the outer stage for the inner one
        #[arg(long, hide = true)]
        inner_of: Option<u32>,
        /// The worker and its arguments
        #[arg(last = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Check that a worker keeps to the protocol
    Check {
        /// The worker's command line, as one word for the shell
        command: String,
    },
}
