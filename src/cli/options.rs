//! Arguments that several commands share, and the parsers of their values.

use std::io::{self, Write};
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};

use crate::digest::Digest;
use crate::measured_by::{CacheState, LaunchMode, Metric};
use crate::peaks::Peaks;
use crate::report::{Document, write_json};
use crate::timer::TimerName;

use super::fault::Fault;

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Table,
    /// For programs; the schemas are in docs/json.md
    Json,
}

/// Parses a probability of false alarms.
pub(super) fn probability(text: &str) -> Result<f64, String> {
    // below this, rounds could not provide the evidence
    number(text, 1e-9..1.0, "a number of at least 1e-9 and below 1, such as 0.01")
}

/// Parses the metric.
pub(super) fn metric() -> impl TypedValueParser<Value = Metric> {
    let metrics = [
        PossibleValue::new("elapsed").help("Launch to completion by the host clock, even if there is a profiler"),
        PossibleValue::new("span").help("First start to last end"),
        PossibleValue::new("busy").help("The time during which at least one operation was in progress"),
    ];
    PossibleValuesParser::new(metrics).map(|name| Metric::from(name.as_str()))
}

/// Parses the state of the caches before every timed run.
pub(super) fn cache_state() -> impl TypedValueParser<Value = CacheState> {
    let flushed = "Caches are flushed before every run, which takes tens of milliseconds";
    let states =
        [PossibleValue::new("warm").help("What the previous run left"), PossibleValue::new("cold").help(flushed)];
    PossibleValuesParser::new(states).map(|name| CacheState::from(name.as_str()))
}

/// Parses the launch mode of a GPU.
pub(super) fn launch() -> impl TypedValueParser<Value = LaunchMode> {
    let launches = [
        PossibleValue::new("replay").help("As command buffers (CUDA graphs), which is XLA's default"),
        PossibleValue::new("eager").help("One by one; profiles then name each operation"),
    ];
    PossibleValuesParser::new(launches).map(|name| LaunchMode::from(name.as_str()))
}

#[derive(Debug, Clone, Args)]
pub(super) struct FormatArg {
    /// Format of results on stdout
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

impl FormatArg {
    /// Prints a document in the requested format.
    pub(super) fn write(&self, out: &mut dyn Write, document: impl Document) -> io::Result<()> {
        match self.format {
            Format::Table => document.write_table(out),
            Format::Json => write_json(out, &document.into_json()),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct LabelArgs {
    /// Also find your own labels: a regular expression with the groups `op` and `key`
    #[arg(long, value_name = "REGEX")]
    pub label_regex: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(super) struct CacheArgs {
    // first, because the next one takes the value that it looks at
    #[command(flatten)]
    pub is_named: IsCacheNamed,
    /// Cache folder, or URL of a shared cache (docs/remote.md); if nothing is written, also a snapshot [default: the
    /// platform's cache folder]
    #[arg(long = "cache", value_name = "DIR|URL|SNAPSHOT", env = "AUTOTUNE_LOWERED_CACHE")]
    pub folder: Option<PathBuf>,
    /// Folder of shipped configs that override the program's own, as `cache shipped` writes it; never written
    #[arg(long, value_name = "DIR", env = "AUTOTUNE_LOWERED_SHIPPED")]
    pub shipped: Option<PathBuf>,
    /// File of public keys; one of them must have signed the content of a URL (docs/trust.md)
    #[arg(long, value_name = "FILE", env = "AUTOTUNE_LOWERED_VERIFY_KEY")]
    pub verify_key: Option<PathBuf>,
    /// Required digest of the published snapshot, as printed by `cache snapshot` and `cache push` (docs/trust.md)
    #[arg(long, value_name = "DIGEST", env = "AUTOTUNE_LOWERED_PIN")]
    pub pin: Option<Digest>,
}

/// Whether the command line names the cache, and not a variable or a file: then it is there, unless it is mistyped.
#[derive(Debug, Clone, Copy)]
pub(super) struct IsCacheNamed(pub bool);

impl FromArgMatches for IsCacheNamed {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.value_source("folder") == Some(ValueSource::CommandLine)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        Self::from_arg_matches(matches).map(|now| *self = now)
    }
}

impl Args for IsCacheNamed {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct PluginArgs {
    /// PJRT plugin (a shared library) [default: found from PJRT_NAMES_AND_LIBRARY_PATHS,
    /// PJRT_PLUGIN_LIBRARY_PATH, or the active Python environment]
    #[arg(long, value_name = "PATH")]
    pub plugin: Option<PathBuf>,
    /// Number of the plugin's device to use
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
    /// Option for the plugin's client [default: suited to its platform]
    #[arg(long = "client-option", value_name = "NAME=VALUE")]
    pub client_options: Vec<String>,
}

/// How a command that measures nothing finds this machine's device: as the one that tunes.
#[derive(Debug, Clone, Args)]
pub(super) struct HereArgs {
    /// The timer whose device and software count: name it as for tuning (docs/caches.md). `auto`, `pjrt`, `jax`,
    /// `jax:PYTHON`, `command:CMD` or `replay:FILE`
    #[arg(long, value_name = "TIMER", default_value = "auto")]
    pub timer: String,
    #[command(flatten)]
    pub plugin: PluginArgs,
}

impl HereArgs {
    /// Whether the device is a recording's, for which what replayed samples decided counts, too.
    pub(super) fn is_replay(&self) -> bool {
        self.timer.parse::<TimerName>().is_ok_and(|timer| timer.is_replay())
    }
}

/// The device whose roof is used.
#[derive(Debug, Clone, Args)]
pub(super) struct PeaksArg {
    /// Peaks of the device, such as `cuda:h100_sxm` or `tpu:v5e`, or a file of peaks as written by
    /// `device --measure-peaks` (docs/roofline.md) [default: the published ones of the device that ran, if any]
    #[arg(long, value_name = "DEVICE|FILE")]
    peaks: Option<String>,
}

impl PeaksArg {
    /// Reads them.
    pub(super) fn read(&self) -> Result<Option<Peaks>, Fault> {
        self.peaks.as_deref().map(Peaks::named).transpose().map_err(Fault::input)
    }
}

/// A worker's limits of time and memory.
#[derive(Debug, Clone, Args)]
pub(super) struct LimitArgs {
    /// Seconds after which a worker's start, a compilation or another call to a worker counts as hung; starting gets
    /// at least 60 [default: 120, and for a compilation, once five succeeded, twice as long as nine in ten of them
    /// took, at least 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: Option<u64>,
    /// MiB of memory that one worker may use; N workers may use N times as much [default: three quarters of the
    /// machine's]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1 << 30))]
    pub memory_limit: Option<u64>,
    /// Programs that `--timer pjrt` compiles at once, each in its own worker [default: one per core, at most 8 on a CPU
    /// and 16 elsewhere; one at a time of those for which XLA's own autotuning measures on the device]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub compile_jobs: Option<u16>,
}

/// A number in a range; an error says what is `expected`.
pub(super) fn number(text: &str, range: impl RangeBounds<f64>, expected: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("expected {expected}"))
}

/// A part of one: at least zero, below one.
pub(super) fn part(text: &str) -> Result<f64, String> {
    number(text, 0.0..1.0, "a number of at least 0 and below 1, such as 0.02")
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

/// A time, or `0` for none.
pub(super) fn time_or_none(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { time(text) }
}

/// A time in seconds above zero.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "expected seconds above zero, such as 30 or 0.5".to_owned())
}
