//! `compare`: whole programs, and ways to compile them, side by side.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use indicatif::MultiProgress;

use crate::compare::{CompareError, CompareOptions, Contestant, compare};
use crate::decision::ComparisonRules;
use crate::ledger::Ledger;
use crate::race::{RaceError, RaceOptions, Runner};
use crate::report::ComparedPrograms;
use crate::timer::events::Events;
use crate::timer::{Build, SideBySide, Timer};

use super::confirm_args::ConfirmArgs;
use super::contestants::{ContestantArgs, Contestants};
use super::ending::cancel_flag;
use super::executables::Executables;
use super::fault::Fault;
use super::input_args::InputArgs;
use super::named_timer::refuse_replay;
use super::options::{CacheArgs, FormatArg, part, time};
use super::programs::ProgramReader;
use super::progress::Progress;
use super::timers::{TimerArgs, scratch, start_timer};
use super::tolerance_args::ToleranceArgs;
use super::{cache, executables, exit};

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    pub contestants: Contestants,
    /// Exactly this many rounds [default: as many as distinguish each program from the first]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(6..=100_000))]
    pub rounds: Option<u32>,
    /// Time for the rounds: seconds, or such as `30m` and `2h` [default: some seconds of the programs' own time]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub budget: Option<Duration>,
    /// Smallest difference that matters: stop measuring a program once it is known to differ from the first by less
    #[arg(long, value_name = "PART", default_value_t = 0.01, value_parser = part)]
    pub min_difference: f64,
    #[command(flatten)]
    pub race: ProgramRaceArgs,
}

/// How whole programs are raced, and where their samples are kept.
#[derive(Debug, Args)]
pub(super) struct ProgramRaceArgs {
    #[command(flatten)]
    pub inputs: InputArgs,
    #[command(flatten)]
    pub confirm: ConfirmArgs,
    #[command(flatten)]
    pub tolerance: ToleranceArgs,
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

impl ProgramRaceArgs {
    /// The ledger of the samples.
    pub(super) fn ledger(&self) -> Result<Ledger, Fault> {
        let ledger = match self.no_persist {
            true => Ledger::in_memory(Vec::new()),
            false => Ledger::open(&cache::folder(&self.cache)?, Vec::new())?,
        };
        ledger.notes().iter().for_each(|note| tracing::warn!("{note}"));
        Ok(ledger)
    }

    /// The library's form of it.
    pub(super) fn options(&self, rounds: Option<u32>, budget: Option<Duration>, min_difference: f64) -> CompareOptions {
        let race = self.confirm.apply(RaceOptions::default());
        CompareOptions::default()
            .race(race)
            .rounds(rounds)
            .budget(budget)
            .rules(ComparisonRules::default().min_difference(min_difference))
            .inputs(self.inputs.options())
            .cache_state(self.timer.cache_state.clone())
            .tolerances(self.tolerance.options())
            .force(self.force)
    }
}

/// Compares programs and prints how each compares with the first.
pub(super) fn run(args: &CompareArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    let Contestants(given) = &args.contestants;
    let own = given.iter().filter_map(|contestant| contestant.timer.as_ref());
    for timer in own.chain([&args.race.timer.timer]) {
        refuse_replay(timer, ": only a device can compare them")?;
    }
    // a file that is not a program fails before a device is started
    let programs = ProgramReader::new(&args.race.timer.timer, &args.race.timer.limits);
    let mut contestants = Vec::with_capacity(given.len());
    for ContestantArgs { module, options, .. } in given {
        let program = programs.open(module).map_err(Fault::input)?;
        let contestant = Contestant::new(module.display().to_string(), program);
        contestants.push(contestant.build(Build::default().options(options.clone())));
    }
    let cancel = cancel_flag()?;
    let scratch = scratch()?;
    // the cache comes first: a locked or broken one fails before a device is started
    let ledger = args.race.ledger()?;
    let folder = executables::folder_for(&ledger, scratch.path())?;
    let (timers, owners) = timers(&args.race.timer, given);
    for (contestant, owner) in contestants.iter_mut().zip(owners) {
        contestant.timer = owner;
    }
    let (mut timer, names) = start(&timers, &folder)?;
    let options = args.race.options(args.rounds, args.budget, args.min_difference).copy_timer(copy_timer(&timers));
    let events = Events::default().and(Progress::new(bars.clone()));
    let mut runner = Runner::new(&mut *timer, &ledger, &cancel, &events);
    let result = compare(&mut runner, &contestants, &options, scratch.path()).map_err(fault)?;
    args.race.format.write(out, ComparedPrograms::new(&result, &names))?;
    Ok(if result.all_ran() { exit::FINE } else { exit::SOME_FAILED })
}

/// The timers that the contestants need, the first one's first, and the timer of each contestant.
fn timers(all: &TimerArgs, contestants: &[ContestantArgs]) -> (Vec<TimerArgs>, Vec<usize>) {
    let wanted = |contestant: &ContestantArgs| {
        let mut wanted = all.clone();
        if let Some(plugin) = &contestant.plugin {
            wanted.plugin.plugin = Some(plugin.clone());
            "pjrt".clone_into(&mut wanted.timer);
        }
        if let Some(timer) = &contestant.timer {
            wanted.timer.clone_from(timer);
        }
        wanted
    };
    let (mut timers, mut owners): (Vec<TimerArgs>, Vec<usize>) = Default::default();
    for wanted in contestants.iter().map(wanted) {
        let is_same = |timer: &TimerArgs| timer.timer == wanted.timer && timer.plugin.plugin == wanted.plugin.plugin;
        let place = timers.iter().position(is_same).unwrap_or_else(|| {
            timers.push(wanted);
            timers.len() - 1
        });
        owners.push(place);
    }
    (timers, owners)
}

/// The timer of the first one's copy: its own process, if the others have theirs, because their differences are noise
/// too.
fn copy_timer(timers: &[TimerArgs]) -> usize {
    if timers.len() > 1 { timers.len() } else { 0 }
}

/// The one timer, or several side by side and that of the copy, with their names.
fn start(timers: &[TimerArgs], folder: &Path) -> Result<(Box<dyn Timer>, Vec<String>), Fault> {
    let mut started = Vec::with_capacity(timers.len());
    let mut names = Vec::with_capacity(timers.len());
    for timer in timers {
        let timer = start_timer(timer, &Executables::kept(folder))?;
        let compiler = timer.info().device.environment.compiler();
        names.push(compiler.map_or_else(|| timer.info().name.clone(), |with| format!("{}, {with}", timer.info().name)));
        started.push(timer);
    }
    let mut others = started.into_iter();
    let first = others.next().ok_or_else(|| Fault::new(exit::USAGE, "name two or more modules"))?;
    let mut others: Vec<Box<dyn Timer>> = others.collect();
    let Some(own) = timers.first().filter(|_| !others.is_empty()) else { return Ok((first, names)) };
    others.push(start_timer(own, &Executables::kept(folder))?);
    Ok((Box::new(SideBySide::new(first, others).map_err(Fault::device)?), names))
}

/// The fault of a race that ended without a result.
pub(super) fn fault(error: CompareError) -> Fault {
    match error {
        CompareError::Race(RaceError::Interrupted) => Fault::new(
            exit::INTERRUPTED,
            "ended before it was settled; the same command continues from the samples \
                                           that are kept",
        ),
        CompareError::Race(RaceError::Fatal(error)) => error.into(),
        error if error.is_of_input() => Fault::input(error),
        error => Fault::device(error),
    }
}
