//! From a program to its figures.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::figures::Figures;
use super::program::SelftestProgram;
use super::store::Point;
use crate::call::Call;
use crate::config::Config;
use crate::decision::{ProcessQuestion, ProcessRatio, ProcessSpread};
use crate::digest::Digest;
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::measure::{InputOptions, MeasureError, make_inputs};
use crate::measured_by::{CacheState, TOOL};
use crate::race::{ProgramRace, RaceError, RaceGoal, RaceOptions, Runner, confirm_programs, race_programs};
use crate::timer::events::{EventKind, Events, Slice};
use crate::timer::{Job, JobCandidate, Timer};

/// The amount of measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct SelftestOptions {
    /// How often each program is loaded, at least twice.
    pub copies: usize,
    /// Rounds that count, at least six.
    pub rounds: u32,
    /// The state of the caches before every run.
    pub cache_state: CacheState,
    /// How many processes tell the spread between them, and what is done about others on the cores.
    pub race: RaceOptions,
}

impl SelftestOptions {
    /// A number of copies and rounds, with a state of the caches.
    pub fn new(copies: usize, rounds: u32, cache_state: CacheState) -> Self {
        Self { copies, rounds, cache_state, race: RaceOptions::default() }
    }
}

/// Why a program has no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelftestError {
    /// The program or its inputs.
    #[error(transparent)]
    Program(#[from] MeasureError),
    /// The copies, or the worker that runs them.
    #[error(transparent)]
    Copies(#[from] RaceError),
    /// One copy failed although the others ran.
    #[error("a copy of the program failed where others ran: {0}")]
    Copy(Failure),
    /// The samples are not times.
    #[error("too few rounds hold usable times of every copy: zero, negative and infinite ones are not usable")]
    NoTimes,
}

/// Measures one program against itself. `index` and `of` number the program, for progress.
///
/// # Errors
/// If the program, its inputs, the worker or a copy fails, or too few rounds hold usable times.
pub fn selftest(
    timer: &mut dyn Timer,
    program: &SelftestProgram,
    (index, of): (usize, usize),
    options: &SelftestOptions,
    scratch: &Path,
    cancel: &AtomicBool,
    events: &Events,
) -> Result<Point, SelftestError> {
    let _program = events.open(Slice::Operation { name: &program.name, index, of });
    events.tell(EventKind::Started { programs: options.copies, rounds_kept: 0 });
    let SelftestOptions { copies, rounds, cache_state, race } = options.clone();
    // nothing is kept in any store
    let ledger = Ledger::in_memory(Vec::new());
    let mut runner = Runner::new(timer, &ledger, cancel, events);
    let job = job_of_copies(&mut runner, program, copies, &cache_state, scratch)?;
    let race = race.rounds(Some(rounds)).cache_state(cache_state);
    let inputs = Digest::of(job.call.call_key.as_bytes());
    let of_copies = ProgramRace { goal: RaceGoal::EveryRound, ..ProgramRace::new(job, inputs, "copies") };
    let raced = race_programs(&mut runner, &of_copies, &race)?;
    if let Some(failure) = raced.failures.into_values().next() {
        return Err(SelftestError::Copy(failure));
    }
    let figures = Figures::of(&raced.rounds, options.copies).ok_or(SelftestError::NoTimes)?;
    let others: Vec<usize> = (1..options.copies).collect();
    // no answer ends it before all processes were measured
    let question = ProcessQuestion::difference(1.0, 0.0, 1);
    let known = confirm_programs(&mut runner, &of_copies, &race, (&others, &question))?;
    let processes: Vec<&[ProcessRatio]> = known.iter().flatten().map(|one| one.processes.as_slice()).collect();
    let figures = Figures { between_processes: ProcessSpread::between(&processes), ..figures };
    let measured_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let digest = program.program.digest();
    Ok(Point { program: program.name.clone(), digest, measured_at, tool: TOOL.to_owned(), figures })
}

/// A job of a program's copies, each loaded separately. The inputs are made from its parameters; if those are unknown,
/// from the timer's report.
fn job_of_copies(
    runner: &mut Runner<'_>,
    program: &SelftestProgram,
    copies: usize,
    cache_state: &CacheState,
    scratch: &Path,
) -> Result<Job, MeasureError> {
    let file = program.program.write(scratch, "program")?;
    let copy = |number: usize| {
        let name = Map::from_iter([("copy".to_owned(), Value::from(number))]);
        JobCandidate::new(Config::new(name)).program(Some(file.clone()))
    };
    let job = Job::new(Call::new("measure@v1", file.program.digest.to_short()), scratch)
        .candidates((0..copies).map(copy).collect())
        .cache_state(cache_state.clone());
    let parameters = match &program.parameters {
        Some(parameters) => parameters.clone(),
        None => {
            let timer = runner.timer.info().name.clone();
            let signature = runner.signature(&job, 0)?;
            signature.ok_or(MeasureError::NoSignature { timer })?.parameters
        }
    };
    let inputs = make_inputs(&program.program, &parameters, &InputOptions::default(), scratch)?;
    Ok(job.inputs(inputs.arrays))
}
