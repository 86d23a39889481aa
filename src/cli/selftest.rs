//! `selftest`: this machine's noise floor, from A/A calibration.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::Args;
use indicatif::MultiProgress;

use crate::cache::FolderLock;
use crate::measured_by::CacheState;
use crate::race::RaceError;
use crate::race::RaceOptions;
use crate::report::{FailedProgram, SelftestResult, resolution_note};
use crate::selftest::{
    FigureKey, KnownNoise, Point, SELFTEST_FILE, SelftestError, SelftestOptions, SelftestProgram, StoredFigures,
    selftest,
};
use crate::timer::Timer;
use crate::timer::events::Events;

use super::confirm_args::ConfirmArgs;
use super::ending::cancel_flag;
use super::executables::Executables;
use super::fault::Fault;
use super::named_timer::refuse_replay;
use super::options::{CacheArgs, FormatArg};
use super::progress::Progress;
use super::say::say;
use super::timers::{TimerArgs, scratch, start_timer};
use super::{cache, executables, exit};

#[derive(Debug, Args)]
pub(super) struct SelftestArgs {
    /// Programs: StableHLO text or bytecode or a serialized HloModuleProto [default: four small built-in ones]
    #[arg(value_name = "PROGRAM")]
    pub programs: Vec<PathBuf>,
    /// How many copies of each program to load
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=16))]
    pub copies: u32,
    /// Interleaved rounds of every copy
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=100))]
    pub rounds: u32,
    #[command(flatten)]
    pub confirm: ConfirmArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub timer: TimerArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Races each program against copies of itself, stores the figures and prints them.
pub(super) fn run(args: &SelftestArgs, bars: &MultiProgress, out: &mut dyn Write) -> Result<u8, Fault> {
    refuse_replay(&args.timer.timer, ": only a device has a noise floor to measure")?;
    let programs = if args.programs.is_empty() {
        SelftestProgram::own()
    } else {
        let opened = args.programs.iter().map(|path| SelftestProgram::open(path));
        opened.collect::<Result<_, _>>().map_err(Fault::input)?
    };
    let cancel = cancel_flag()?;
    let folder = cache::folder(&args.cache)?;
    // held to the end, because a concurrent tuner would disturb the measurement
    let lock = FolderLock::acquire(&folder)?;
    let scratch = scratch()?;
    let folder_of_executables = executables::within_bounds(&folder)?;
    let mut timer = start_timer(&args.timer, &Executables::kept(folder_of_executables))?;
    let options = SelftestOptions {
        copies: args.copies as usize,
        rounds: args.rounds,
        cache_state: args.timer.cache_state.clone(),
        race: args.confirm.apply(RaceOptions::default()),
    };
    let mut document = SelftestResult::new(&*timer, &options);
    let events = Events::default().and(Progress::new(bars.clone()));
    let is_of_user = !args.programs.is_empty();
    let (points, worst) =
        measure(&mut *timer, (&programs, is_of_user), &options, (scratch.path(), &cancel), &events, &mut document)?;
    timer.end();
    if let ([failed], true, false) = (document.failed.as_slice(), points.is_empty(), document.interrupted) {
        return Err(Fault::new(worst, format!("`{}`: {}", failed.program, failed.reason)));
    }
    if !points.is_empty() {
        keep(&mut document, &FigureKey::of(&*timer, &options.cache_state), &points, &lock)?;
    }
    document.programs = points;
    args.format.write(out, &document)?;
    out.flush()?;
    for note in document.notes.iter().filter(|note| note.contains(SELFTEST_FILE)) {
        tracing::warn!("{note}");
    }
    document.lines().iter().for_each(|line| say(line));
    Ok(match (document.interrupted, document.programs.is_empty()) {
        (true, _) => exit::INTERRUPTED,
        (false, true) => worst,
        (false, false) if document.failed.is_empty() => exit::FINE,
        (false, false) => exit::SOME_FAILED,
    })
}

/// Measures each program. The document gets the failures; returned is also the worst one's exit code.
fn measure(
    timer: &mut dyn Timer,
    (programs, is_of_user): (&[SelftestProgram], bool),
    options: &SelftestOptions,
    (scratch, cancel): (&Path, &AtomicBool),
    events: &Events,
    document: &mut SelftestResult,
) -> Result<(Vec<Point>, u8), Fault> {
    let (mut worst, mut points) = (exit::FINE, Vec::new());
    for (index, program) in programs.iter().enumerate() {
        // separates the files of different programs
        let own = scratch.join(index.to_string());
        std::fs::create_dir(&own)
            .map_err(|error| Fault::device(format!("cannot write to `{}`: {error}", own.display())))?;
        match selftest(timer, program, (index, programs.len()), options, &own, cancel, events) {
            Ok(point) => points.push(point),
            Err(SelftestError::Copies(RaceError::Interrupted)) => {
                document.interrupted = true;
                break;
            }
            Err(error) => {
                worst = worst.max(exit_code(&error, is_of_user));
                let reason = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                document.failed.push(FailedProgram { program: program.name.clone(), reason });
            }
        }
    }
    Ok((points, worst))
}

fn exit_code(error: &SelftestError, of_user: bool) -> u8 {
    match error {
        SelftestError::Program(error) if of_user && error.is_of_input() => exit::BAD_INPUT,
        _ => exit::DEVICE_TROUBLE,
    }
}

/// Adds the figures to the folder's.
fn keep(document: &mut SelftestResult, setting: &FigureKey, points: &[Point], lock: &FolderLock) -> Result<(), Fault> {
    let (mut stored, note) = StoredFigures::read(lock.folder());
    document.notes.extend(note);
    stored.add(setting, points.to_vec());
    stored.write(lock)?;
    document.kept_in = Some(lock.folder().join(SELFTEST_FILE));
    Ok(())
}

/// A cache folder's figures for this timer's device and environment, with their source, in one line.
pub(super) fn known_resolution(
    folder: Option<&Path>,
    timer: &dyn Timer,
    state: CacheState,
) -> (KnownNoise, Vec<String>) {
    let known = StoredFigures::known(folder, timer, &state);
    if let Some(note) = &known.damage {
        tracing::warn!("{note}");
    }
    let notes = known.damage.iter().cloned().chain(resolution_note(&known)).collect();
    (known, notes)
}
