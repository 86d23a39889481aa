//! `cache prune`: removes entries that are too old, of a device, or of outdated software.

use std::io::Write;
use std::time::{Duration, SystemTime};

use clap::{ArgGroup, Args};

use crate::gate::{PruneOptions, prune, to_prune};
use crate::report::{PruneResult, format_bytes};
use crate::timer::pjrt::{BoundExecutables, bound_executables};

use super::fault::Fault;
use super::options::{CacheArgs, FormatArg, HereArgs};
use super::{cache, device, executables, exit};

/// Arguments of `cache prune`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which")
    .args(["older_than", "only_for", "stale", "executables"])
    .required(true)
    .multiple(true))]
pub(super) struct PruneArgs {
    /// Only entries decided longer ago: a number with `m`, `h`, `d` or `w` (minutes to weeks), such as `90d`
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Only entries of devices whose name, as `cache ls` prints it, contains this
    #[arg(long = "for", value_name = "TEXT")]
    pub only_for: Option<String>,
    /// Only entries for this device that were decided under other software than its present one
    #[arg(long)]
    pub stale: bool,
    /// Remove only executables: the least recently used ones above 2 GiB (`AUTOTUNE_LOWERED_EXECUTABLES_MIB`), and
    /// those not used for 30 days. Without this option they are removed along with the entries
    #[arg(long, conflicts_with_all = ["older_than", "only_for", "stale"])]
    pub executables: bool,
    /// Only print what would be removed
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub here: HereArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

const DAY: u64 = 24 * 3600;

fn age(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number with `m`, `h`, `d` or `w`, such as `90d`".to_owned();
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        'm' => 60,
        'h' => 3600,
        'd' => DAY,
        'w' => 7 * DAY,
        _ => return Err(wrong()),
    };
    let number = text.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok());
    number.and_then(|number| number.checked_mul(seconds)).map(Duration::from_secs).ok_or_else(wrong)
}

/// Removes the entries that meet all given conditions.
pub(super) fn run(args: &PruneArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let here = if args.stale { Some(device::chosen(&args.here)?) } else { None };
    let bounds = executables::bounds()?;
    let ledger = if args.dry_run { cache::open_for_reading(&args.cache)? } else { cache::open(&args.cache)? };
    let which = PruneOptions { older_than: args.older_than, of_device: args.only_for.clone(), stale_on: here };
    let entries = if args.executables { Vec::new() } else { ledger.own_entries()? };
    let going = to_prune(entries, &which, SystemTime::now());
    if !args.dry_run {
        let given_back = prune(&ledger, &going)?;
        if given_back > 0 {
            tracing::info!("the sample log released {}", format_bytes(given_back));
        }
    }
    let executables = match ledger.root() {
        Some(root) => bound_executables(root, &bounds, args.dry_run).map_err(|error| {
            Fault::new(exit::CACHE_TROUBLE, format!("`{}`: kept executables: {error}", root.display()))
        })?,
        None => BoundExecutables::default(),
    };
    let (executables_alone, dry_run) = (args.executables, args.dry_run);
    let document = PruneResult::new(&going, &executables).executables_alone(executables_alone).dry_run(dry_run);
    args.format.write(out, document)?;
    // a nightly run often has nothing to prune, which is no failure
    Ok(exit::FINE)
}
