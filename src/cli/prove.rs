//! `prove`: how much tuned calls speed up their step.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::MultiProgress;

use crate::cache::write_snapshot;
use crate::compare::CompareOptions;
use crate::decision::ComparisonRules;
use crate::ledger::Ledger;
use crate::prove::{ProveError, StepVariants, prove, proven_entries};
use crate::report::ProvenStep;
use crate::timer::events::Events;

use super::ending::cancel_flag;
use super::fault::Fault;
use super::input_args::InputArgs;
use super::named_timer::refuse_replay;
use super::options::{CacheArgs, FormatArg, part, time};
use super::output_file::OutputFile;
use super::progress::Progress;
use super::timers::{Executables, TimerArgs, scratch, start_timer};
use super::{cache, compare, executables, exit};

#[derive(Debug, Args)]
pub(super) struct ProveArgs {
    /// Folder that `autotune_lowered.dump(step, DIR, variants=result)` wrote
    #[arg(value_name = "DIR")]
    pub variants: PathBuf,
    /// Write the proven set as a snapshot, for processes to load instead of the shared cache
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Exactly this many rounds in each race [default: as many as distinguish its programs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(6..=100_000))]
    pub rounds: Option<u32>,
    /// Time for all races: seconds, or such as `30m` and `2h`; calls for which no time is left are `not separated`
    /// [default: every call is raced, each race for some seconds of the programs' own time]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub budget: Option<Duration>,
    /// Smallest difference in the step that matters; stop measuring a call once its effect is known to be smaller
    #[arg(long, value_name = "PART", default_value_t = 0.01, value_parser = part)]
    pub min_difference: f64,
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Measure again what the cache folder's sample log holds
    #[arg(long)]
    pub force: bool,
    /// Keep neither samples nor executables
    #[arg(long)]
    pub no_persist: bool,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub timer: TimerArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Races a step's variants, prints each call's contribution, and writes the proven set.
pub(super) fn run(args: &ProveArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    refuse_replay(&args.timer.timer, ": only a device can prove a gain")?;
    // damaged files, and an unwritable output, fail before a device is started
    let step = StepVariants::open(&args.variants).map_err(fault)?;
    let file = args.out.as_deref();
    file.map(|path| OutputFile::at(path, "snapshot")).transpose()?;
    let cancel = cancel_flag()?;
    let scratch = scratch()?;
    let ledger = match args.no_persist {
        true => Ledger::in_memory(Vec::new()),
        false => Ledger::open(&cache::folder(&args.cache)?, Vec::new())?,
    };
    ledger.notes().iter().for_each(|note| tracing::warn!("{note}"));
    let folder = executables::folder_for(&ledger, scratch.path())?;
    let mut timer = start_timer(&args.timer, Executables::kept(&folder))?;
    let options = CompareOptions::default()
        .rounds(args.rounds)
        .budget(args.budget)
        .rules(ComparisonRules::default().min_difference(args.min_difference))
        .inputs(args.inputs.options())
        .cache_state(args.timer.cache_state.clone())
        .force(args.force);
    let events = Events::default().and(Progress::new(bars.clone()));
    let result = prove(&mut *timer, &ledger, &step, &options, scratch.path(), &cancel, &events).map_err(fault)?;
    let entries = proven_entries(&result, &ledger.own_entries()?);
    let snapshot = match file.filter(|_| !entries.is_empty()) {
        Some(path) => Some((path, write_snapshot(path, &entries)?)),
        None => None,
    };
    args.format.write(out, ProvenStep::new(&result, snapshot))?;
    Ok(if result.proven.is_some() { exit::FINE } else { exit::SOME_FAILED })
}

fn fault(error: ProveError) -> Fault {
    match error {
        ProveError::Race(error) => compare::fault(error),
        error if error.is_of_input() => Fault::input(error),
        error => Fault::device(error),
    }
}
