//! `prove`: how much tuned calls speed up their step.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::MultiProgress;

use crate::cache::write_snapshot;
use crate::prove::{ProveError, StepVariants, prove, proven_entries};
use crate::race::Runner;
use crate::report::ProvenStep;
use crate::timer::events::Events;

use super::compare::ProgramRaceArgs;
use super::ending::cancel_flag;
use super::executables::Executables;
use super::fault::Fault;
use super::named_timer::refuse_replay;
use super::options::{part, time};
use super::output_file::OutputFile;
use super::progress::Progress;
use super::timers::{scratch, start_timer};
use super::{compare, executables, exit};

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
    pub race: ProgramRaceArgs,
}

/// Races a step's variants, prints each call's contribution, and writes the proven set.
pub(super) fn run(args: &ProveArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    refuse_replay(&args.race.timer.timer, ": only a device can prove a gain")?;
    // damaged files, and an unwritable output, fail before a device is started
    let step = StepVariants::open(&args.variants).map_err(fault)?;
    let file = args.out.as_deref();
    file.map(|path| OutputFile::at(path, "snapshot")).transpose()?;
    let cancel = cancel_flag()?;
    let scratch = scratch()?;
    let ledger = args.race.ledger()?;
    let folder = executables::folder_for(&ledger, scratch.path())?;
    let mut timer = start_timer(&args.race.timer, &Executables::kept(folder))?;
    let options = args.race.options(args.rounds, args.budget, args.min_difference);
    let events = Events::default().and(Progress::new(bars.clone()));
    let mut runner = Runner::new(&mut *timer, &ledger, &cancel, &events);
    let result = prove(&mut runner, &step, &options, scratch.path()).map_err(fault)?;
    let entries = proven_entries(&result, &ledger.own_entries()?);
    let snapshot = match file.filter(|_| !entries.is_empty()) {
        Some(path) => Some((path, write_snapshot(path, &entries)?)),
        None => None,
    };
    args.race.format.write(out, ProvenStep::new(&result, snapshot))?;
    Ok(if result.proven.is_some() { exit::FINE } else { exit::SOME_FAILED })
}

fn fault(error: ProveError) -> Fault {
    match error {
        ProveError::Race(error) => compare::fault(error),
        error if error.is_of_input() => Fault::input(error),
        error => Fault::device(error),
    }
}
