//! `cache coverage`: which labels of a module have a config for a device.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::cache::{Cached, TieredCache};
use crate::device::MatchMode;
use crate::gate::{CoverageOf, device_named};
use crate::hlo::ScanOptions;
use crate::matching::{ByName, Matching, match_labels};
use crate::report::CoverageResult;

use super::fault::Fault;
use super::options::{CacheArgs, FormatArg, HereArgs, LabelArgs};
use super::scan::{NoLabels, scan_whole, user_labels};
use super::{cache, device, exit, merge, option_modules, registry};

/// Arguments of `cache coverage`.
#[derive(Debug, Args)]
pub(super) struct CoverageArgs {
    /// The module, or `-` for standard input
    pub module: PathBuf,
    /// Folder of recorded invocations, which completes labels that lost their key or version [default: `registry`
    /// beside the module, if there is one]
    #[arg(long, value_name = "DIR", env = "AUTOTUNE_LOWERED_REGISTRY")]
    pub registry: Option<PathBuf>,
    /// Look only in this cache folder, snapshot or JSON file, whatever `--cache` says
    #[arg(long, value_name = "CACHE")]
    pub of: Option<PathBuf>,
    /// A device of the cache, by a part of its name in `cache ls` [default: this machine's]
    #[arg(long = "for", value_name = "TEXT", conflicts_with_all = ["timer", "plugin", "device", "client_options"])]
    pub only_for: Option<String>,
    /// Which devices' results may apply to the device: exact, kind or any
    #[arg(long = "match", value_name = "MODE", default_value = "exact")]
    pub match_mode: MatchMode,
    /// How many of the calls must have a config: `all`, or a part such as `90%`
    #[arg(long, value_name = "PART", default_value = "all", value_parser = part)]
    pub require: f64,
    #[command(flatten)]
    pub labels: LabelArgs,
    #[command(flatten)]
    pub here: HereArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

/// A part of one.
fn part(text: &str) -> Result<f64, String> {
    let percent = match text {
        "all" => Some(100.0),
        _ => text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok()),
    };
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "expected `all` or a part such as `90%`".to_owned())
}

/// Prints which calls of a module have a config; exit code 1 if too few have.
pub(super) fn run(args: &CoverageArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let scan =
        scan_whole(&args.module, &ScanOptions::default().user_labels(user_labels(&args.labels)?), NoLabels::Explained)?;
    let mut ledger;
    let mut alone;
    let cache = match &args.of {
        Some(path) => {
            alone = alone_in(merge::open(path)?.cached)?;
            &mut alone
        }
        None => {
            ledger = cache::open_for_reading(&args.cache)?;
            ledger.cache_mut()
        }
    };
    cache.set_finds_replayed(args.here.is_replay());
    let cache = &*cache;
    let (device, is_here) = match &args.only_for {
        Some(text) => (device_named(cache, text)?, false),
        None => (device::chosen(&args.here)?, true),
    };
    let matching = match registry::folder_for(&args.module, args.registry.as_deref()) {
        Ok(folder) => match_labels(&scan, &registry::open(&folder)?, &device.identity, args.match_mode, ByName::All),
        Err(_) => Matching::default(),
    };
    let asked = CoverageOf { cache, device: &device, is_here, match_mode: args.match_mode };
    let mut coverage = asked.coverage(&scan, &matching)?;
    if let Some(digest) = option_modules::key_of(&args.module) {
        coverage.calls.extend(asked.compiler_options(&digest)?);
    }
    args.format.write(out, CoverageResult::new(&device.identity, &coverage, args.require))?;
    Ok(match coverage.has(args.require) {
        _ if coverage.calls.is_empty() => exit::NOTHING_MATCHED,
        true => exit::FINE,
        false => exit::SOME_FAILED,
    })
}

/// One cache as the only tier.
fn alone_in(cached: Cached) -> Result<TieredCache, Fault> {
    Ok(match cached {
        Cached::Snapshot(store) => TieredCache::new(vec![store]),
        Cached::Entries(entries) => {
            let cache = TieredCache::new(Vec::new());
            cache.put_all(&entries)?;
            cache
        }
    })
}
