//! Measures the compiler options of a whole module again beside their baseline.

use std::path::Path;

use super::check::{CheckOptions, draft_of, e_value_needed};
use super::expected::{ExpectedEntry, measured_otherwise};
use super::series::{EntryQuestion, take_end};
use super::{CheckVerdict, OperationCheck};
use crate::cache::{COMPILER_OPTIONS, Hit, Lookup, StoreErrorKind, why_refused};
use crate::call::{Call, Direction};
use crate::candidates::OptionSet;
use crate::config::Config;
use crate::decision::Round;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::measure::{InputOptions, MeasureError, MeasuredProgram, make_inputs};
use crate::race::{ProgramRace, RaceError, RaceOptions, Runner, no_signature, race_programs};
use crate::timer::events::Slice;
use crate::timer::{Build, Job, JobCandidate, ProgramFile, Timer};
use crate::tune::{Tally, TuneError, time_breakdown};

/// Samples of a check are its own.
const STAGE: &str = "check of compiler options";

/// A module, and the key of its options.
#[derive(Debug, Clone)]
pub struct CheckedModule {
    /// The module.
    pub program: MeasuredProgram,
    /// Digest of its StableHLO text.
    pub digest: Digest,
    /// How its inputs are made.
    pub inputs: InputOptions,
}

impl CheckedModule {
    /// A module with default inputs.
    pub fn new(program: MeasuredProgram, digest: Digest) -> Self {
        Self { program, digest, inputs: InputOptions::default() }
    }
}

/// Checks the compiler options that are cached for a module, as [`check`](super::check()) does calls; `None` if none
/// are for this device. `compared` is the number of comparisons with these included: the required e-value follows from
/// it.
///
/// # Errors
/// If the ledger, a cache tier or the scratch folder fails.
pub fn check_compiler_options(
    runner: &mut Runner<'_>,
    module: &CheckedModule,
    (options, asked): (&RaceOptions, CheckOptions),
    compared: usize,
) -> Result<Option<OperationCheck>, TuneError> {
    let call = Call::new(COMPILER_OPTIONS, module.digest.to_string());
    let direction = Some(Direction::Forward);
    let found = runner.ledger.cache().lookup(
        &runner.timer.info().device,
        &call.op_id,
        &call.call_key,
        direction,
        asked.match_mode,
    );
    let mut operation = OperationCheck { occurrences: 1, ..draft_of(call.clone(), Direction::Forward) };
    let found = match found {
        Err(error) if error.kind() == StoreErrorKind::Refused => {
            operation.verdict = CheckVerdict::Broken;
            operation.reason = error.to_string();
            return Ok(Some(operation));
        }
        found => found?,
    };
    let Lookup::Hit(hit) = found else { return Ok(None) };
    let Some((baseline, expected)) = to_measure(hit, &*runner.timer, module, options, &mut operation) else {
        return Ok(Some(operation));
    };
    let (events, tally) = Tally::of(runner.events);
    let name = operation.call.to_string();
    let slice = events.open(Slice::Operation { name: &name, index: 0, of: 1 });
    let e_value_needed = e_value_needed(compared, asked);
    let too_few = "count: allow more time";
    let question = EntryQuestion { options, expected: &expected, compared, e_value_needed, too_few };
    let measured = measure(&mut runner.telling(&events), module, &baseline, &question, &mut operation);
    drop(slice);
    operation.time_breakdown = time_breakdown(&tally);
    take_end(measured, &mut operation).map_or(Ok(Some(operation)), Err)
}

/// The baseline's config and the entry; `None` if nothing is to be measured, as the operation then says.
fn to_measure(
    hit: Hit<'_>,
    timer: &dyn Timer,
    module: &CheckedModule,
    options: &RaceOptions,
    operation: &mut OperationCheck,
) -> Option<(Config, ExpectedEntry)> {
    let baseline =
        hit.entry.provenance.as_ref().map_or_else(|| Config::new(serde_json::Map::new()), |from| from.baseline.clone());
    let program = module.program.meaning();
    let expected = ExpectedEntry::with(hit, |then, _| {
        let mut others = measured_otherwise(then, timer, &options.cache_state);
        if then.semantic_digest.is_some_and(|then| then != program) {
            others.push("the options were found with another program of the same StableHLO digest".to_owned());
        }
        others
    });
    operation.stale.clone_from(&expected.stale);
    operation.entry = Some(expected.entry.clone());
    if let Some(why) = why_refused(&baseline) {
        operation.verdict = CheckVerdict::Broken;
        operation.reason = format!("the baseline of the entry {why}");
        return None;
    }
    if expected.entry.config == baseline {
        operation.verdict = if expected.stale.is_empty() { CheckVerdict::Holds } else { CheckVerdict::Stale };
        "it is the baseline's config: it has nothing to lose, so nothing was measured"
            .clone_into(&mut operation.reason);
        return None;
    }
    Some((baseline, expected))
}

/// Measures the options of the entry beside the baseline until the verdict is clear.
fn measure(
    runner: &mut Runner<'_>,
    module: &CheckedModule,
    baseline: &Config,
    question: &EntryQuestion<'_>,
    operation: &mut OperationCheck,
) -> Result<(), RaceError> {
    let scratch = tempfile::tempdir().map_err(|source| TuneError::Scratch { path: std::env::temp_dir(), source })?;
    let race = race(runner, module, [baseline, &question.expected.entry.config], question, scratch.path())?;
    let rounds_of_series = Some(question.options.usual_rounds());
    let options = question.options.clone().rounds(rounds_of_series).force(true).without_verdict();
    let mut rounds: Vec<Round> = Vec::new();
    question.answer(operation, |series| {
        if series > 0 {
            runner.start_fresh_process()?;
        }
        let raced = race_programs(runner, &race, &options)?;
        if let Some(failure) = raced.failures.get(&1) {
            return Ok(Err(failure.clone()));
        }
        // each series has processes of its own
        let earlier = rounds.iter().map(|round| round.epoch + 1).max().unwrap_or(0);
        rounds.extend(raced.rounds.into_iter().map(|round| round.epoch_after(earlier)));
        Ok(Ok(rounds.clone()))
    })
}

/// The race of two sets of options.
fn race(
    runner: &mut Runner<'_>,
    module: &CheckedModule,
    configs: [&Config; 2],
    question: &EntryQuestion<'_>,
    scratch: &Path,
) -> Result<ProgramRace, RaceError> {
    let program = module.program.write(scratch, "program").map_err(failed)?;
    let candidates = configs.map(|config| candidate(config, &program));
    let candidates = candidates.into_iter().collect::<Result<Vec<_>, _>>().map_err(RaceError::Failed)?;
    let call = Call::new(COMPILER_OPTIONS, module.digest.to_string());
    let mut job = Job::new(call, scratch)
        .candidates(candidates)
        .cache_state(question.options.cache_state.clone())
        .results(module.program.results.clone());
    let signature = runner.signature(&job, 0).map_err(RaceError::Failed)?;
    let signature = signature.ok_or_else(|| RaceError::Failed(no_signature(&*runner.timer)))?;
    let inputs = make_inputs(&module.program, &signature.parameters, &module.inputs, scratch).map_err(failed)?;
    job.inputs = inputs.arrays;
    Ok(ProgramRace { is_exact: true, ..ProgramRace::new(job, inputs.digest, STAGE) })
}

fn failed(error: MeasureError) -> RaceError {
    RaceError::Failed(match error {
        MeasureError::Failed(failure) => failure,
        error => Failure::new(FailureKind::Protocol, error.to_string()),
    })
}

/// The module compiled with the options of a config.
fn candidate(config: &Config, program: &ProgramFile) -> Result<JobCandidate, Failure> {
    let set = OptionSet::from_config(config)
        .map_err(|error| Failure::new(FailureKind::Compile, format!("the entry holds no options: {error}")))?;
    let build = Build::default().options(set.overrides());
    Ok(JobCandidate::new(config.clone()).program(Some(program.clone())).build(build))
}
