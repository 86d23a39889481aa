//! Arguments of `tune`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::decision::DecisionRules;
use crate::search::{Budget, StrategyKind};
use crate::tune::SearchOptions;

use super::confirm_args::ConfirmArgs;
use super::exit;
use super::fault::Fault;
use super::kept_profiles::KeepArgs;
use super::option_args::OptionArgs;
use super::options::{CacheArgs, FormatArg, PeaksArg, number, part, seconds, time};
use super::plan::PlanArgs;
use super::recorder::RecorderArg;
use super::signature::SignerArgs;
use super::timers::TimerArgs;
use super::tolerance_args::ToleranceArgs;

#[derive(Debug, Clone, Args)]
pub(super) struct TuneArgs {
    /// The lowered module: HLO text, StableHLO text or bytecode, HloModuleProto, an XLA dump folder, gzip or zstd of
    /// these, or `-` for standard input
    #[arg(value_name = "MODULE")]
    pub module: PathBuf,
    #[command(flatten)]
    pub plan: PlanArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub signer: SignerArgs,
    /// Keep results only in memory and in the output
    #[arg(long)]
    pub no_persist: bool,
    #[command(flatten)]
    pub timer: TimerArgs,
    /// Store that `compile` made for this device: refused configs are rejected, and executables are loaded that this
    /// user compiled or that a key of --verify-key signed (docs/targets.md); may be repeated
    #[arg(long, value_name = "STORE")]
    pub compiled: Vec<PathBuf>,
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Tune on several devices of one kind at once, each operation on one of them: `0,1` or `0-7`. Programs of N
    /// partitions take N consecutive devices per operation (docs/registry.md)
    #[arg(long, value_name = "LIST", value_parser = device_list, conflicts_with_all = ["device", "keep_profiles"])]
    pub devices: Option<DeviceList>,
    /// Folder of search spaces that override the shipped ones; used by workers that build programs themselves
    #[arg(long, value_name = "DIR")]
    pub candidates: Option<PathBuf>,
    #[command(flatten)]
    pub recorder: RecorderArg,
    /// Result of `upgrade --format json`: only the calls are tuned whose config is no longer the best, and they are
    /// measured again (docs/upgrade.md)
    #[arg(long, value_name = "UPGRADE.json", conflicts_with = "only")]
    pub from: Option<PathBuf>,
    /// Interleaved rounds of each operation, at least six; an operation that is decided earlier takes fewer [default:
    /// proportional to its compile time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(6..=100_000))]
    pub rounds: Option<u32>,
    /// Time for each operation: a third may be compiling, and the last third is for fresh processes that confirm a
    /// winner; whatever is undecided by then is decided by the samples so far. With --profile, time for the whole run:
    /// no operation is started in its last third. Seconds, or such as `30m` and `2h`
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub budget: Option<Duration>,
    /// Profile of a step that runs the module: an XSpace, a log folder, or a capture of nsys-jax. Operations are tuned
    /// in order of their share of its time, and the result says how much of the step is saved (docs/analysis.md)
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// HLO of what ran in --profile, as HloProto, HloModuleProto or text, or a folder that XLA dumped it to; may be
    /// repeated
    #[arg(long, value_name = "FILE", requires = "profile")]
    pub hlo: Vec<PathBuf>,
    #[command(flatten)]
    pub search: SearchArgs,
    #[command(flatten)]
    pub compiler: OptionArgs,
    /// Part of the baseline's time that a config must save to replace it
    #[arg(long, value_name = "PART", default_value_t = 0.02, value_parser = part)]
    pub min_improvement: f64,
    /// Speed-ups above this are treated as implausible and not cached: such a program most likely computes something
    /// else
    #[arg(long, value_name = "TIMES", default_value_t = DecisionRules::default().max_speed_up, value_parser = times)]
    pub max_speed_up: f64,
    #[command(flatten)]
    pub confirm: ConfirmArgs,
    #[command(flatten)]
    pub tolerance: ToleranceArgs,
    #[command(flatten)]
    pub peaks: PeaksArg,
    /// Measure everything again, including what the cache already holds
    #[arg(long)]
    pub force: bool,
    /// Compile and race every candidate, including those predicted to be slow (docs/decisions.md)
    #[arg(long)]
    pub thorough: bool,
    /// Print what would be tuned, what is cached already, and how much there is to compile; measure nothing
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: an absent device, named as for `compile`; may be repeated
    #[arg(long = "target", value_name = "TARGET", requires = "dry_run")]
    pub targets: Vec<String>,
    /// Also write the run as one self-contained HTML page (docs/report.md)
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Also write a trace of the run for Perfetto (`.pftrace`) or Chrome (`.json`, `.json.gz`): every operation, phase
    /// and candidate (docs/traces.md)
    #[arg(long, value_name = "FILE")]
    pub trace_run: Option<PathBuf>,
    /// Standard input names candidates while they are lowered, a line of JSON each and then an empty one, before the
    /// module: they are compiled meanwhile
    #[arg(long, hide = true, requires = "registry")]
    pub candidates_ahead: bool,
    #[command(flatten)]
    pub format: FormatArg,
}

/// How to search the configs of an operation with too many to race them all.
#[derive(Debug, Clone, Args)]
pub(super) struct SearchArgs {
    /// Strategy that picks the configs to try if an operation has more than 64: auto, model, random or exhaustive
    /// (docs/search.md)
    #[arg(long = "search", value_name = "STRATEGY", default_value = "auto")]
    pub strategy: String,
    /// Maximum number of configs that a search tries per operation; the best of them are raced [default: 128, 64 with
    /// --recorder, unlimited with --search-seconds]
    #[arg(long = "search-evaluations", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub evaluations: Option<u32>,
    /// Maximum time of a search per operation
    #[arg(long = "search-seconds", value_name = "SECONDS", value_parser = seconds)]
    pub time: Option<Duration>,
    /// Random seed of searches and of the order within rounds
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

impl SearchArgs {
    /// The tuner's form of it.
    pub(super) fn options(&self, recorder: &RecorderArg) -> Result<SearchOptions, Fault> {
        let kind = strategy(&self.strategy).map_err(|wrong| Fault::new(exit::USAGE, format!("`--search`: {wrong}")))?;
        let default = SearchOptions::default();
        let evaluations = self.evaluations.map(|evaluations| evaluations as usize);
        // lowering a kernel takes seconds
        let usual = if recorder.recorder.is_some() { Some(64) } else { default.budget.evaluations };
        let evaluations = evaluations.or(usual.filter(|_| self.time.is_none()));
        Ok(SearchOptions { kind, budget: Budget::default().evaluations(evaluations).time(self.time), ..default })
    }
}

/// A search strategy by its name.
pub(super) fn strategy(text: &str) -> Result<StrategyKind, String> {
    StrategyKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
        let known: Vec<&str> = StrategyKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("expected one of {}", known.join(", "))
    })
}

/// Devices by number, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceList(pub Vec<usize>);

fn device_list(text: &str) -> Result<DeviceList, String> {
    let wrong = || format!("`{text}` is not a list of devices such as `0,1` or `0-7`");
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

/// A factor of at least one.
fn times(text: &str) -> Result<f64, String> {
    number(text, 1.0.., "a number of at least 1, such as 1000")
}
