//! Measures the compiler options of a whole module again beside their baseline.

use std::sync::atomic::AtomicBool;

use super::check::{CheckOptions, MOST_SERIES, draft_of, fill, is_its_own, limits};
use super::expected::{Expected, measured_otherwise};
use super::look::{MIN_ROUNDS, look};
use super::{OperationCheck, Verdict};
use crate::cache::{COMPILER_OPTIONS, Lookup, StoreErrorKind, why_refused};
use crate::call::{Call, Direction};
use crate::candidates::OptionSet;
use crate::config::Config;
use crate::decision::{DecisionRules, Round};
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::ledger::Ledger;
use crate::measure::{InputOptions, MeasureError, MeasuredProgram, make_inputs};
use crate::timer::events::{Events, Slice};
use crate::timer::{Build, Job, JobCandidate, ProgramFile, Timer};
use crate::tune::{CopiesError, ProgramRace, Tally, TuneError, TuneOptions, race_programs, time_breakdown};

/// Samples of a check are its own.
const STAGE: &str = "check of compiler options";

/// A module, and the key of its options.
#[derive(Debug, Clone)]
#[non_exhaustive]
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

/// Checks the compiler options that are cached for a module, as [`check`](super::check()) does calls; `None` if none are for
/// this device. `compared` is the number of comparisons with these included: the required e-value follows from it.
///
/// # Errors
/// If the ledger, a cache tier or the scratch folder fails.
pub fn check_compiler_options(
    timer: &mut dyn Timer,
    ledger: &Ledger,
    module: &CheckedModule,
    (options, asked): (&TuneOptions, CheckOptions),
    compared: usize,
    cancel: &AtomicBool,
    events: &Events,
) -> Result<Option<OperationCheck>, TuneError> {
    let key = module.digest.to_string();
    let direction = Some(Direction::Forward);
    let found = match ledger.cache().lookup(&timer.info().device, COMPILER_OPTIONS, &key, direction, asked.match_mode) {
        Err(error) if error.kind() == StoreErrorKind::Refused => {
            let mut operation = draft_of(Call::new(COMPILER_OPTIONS, key.clone()), Direction::Forward);
            operation.occurrences = 1;
            operation.verdict = Verdict::Broken;
            operation.reason = error.to_string();
            return Ok(Some(operation));
        }
        found => found?,
    };
    let Lookup::Hit(hit) = found else { return Ok(None) };
    let baseline =
        hit.entry.provenance.as_ref().map_or_else(|| Config::new(serde_json::Map::new()), |from| from.baseline.clone());
    let refused = why_refused(&baseline);
    let program = module.program.meaning();
    let expected = Expected::with(hit, |then, _| {
        let mut others = measured_otherwise(then, timer, &options.cache_state);
        if then.semantic_digest.is_some_and(|then| then != program) {
            others.push("the options were found with another program of the same StableHLO digest".to_owned());
        }
        others
    });
    let mut operation = draft_of(Call::new(COMPILER_OPTIONS, key), Direction::Forward);
    operation.occurrences = 1;
    operation.stale.clone_from(&expected.stale);
    operation.entry = Some(expected.entry.clone());
    if let Some(why) = refused {
        operation.verdict = Verdict::Broken;
        operation.reason = format!("the baseline of the entry {why}");
        return Ok(Some(operation));
    }
    if expected.entry.config == baseline {
        operation.verdict = if expected.stale.is_empty() { Verdict::Holds } else { Verdict::Stale };
        "it is the baseline's config: it has nothing to lose, so nothing was measured"
            .clone_into(&mut operation.reason);
        return Ok(Some(operation));
    }
    let (events, tally) = Tally::of(events);
    let name = operation.call.to_string();
    let slice = events.open(Slice::Operation { name: &name, index: 0, of: 1 });
    let mut remeasurement = OptionsRemeasurement { timer, ledger, module, options, cancel, events: &events };
    let ended = remeasurement.run(&baseline, &expected, compared, asked.false_positive_rate, &mut operation);
    drop(slice);
    operation.time_breakdown = time_breakdown(&tally);
    match ended {
        Ok(()) => {}
        Err(CopiesError::Interrupted) => {
            "ended by the user; there is no verdict".clone_into(&mut operation.reason);
        }
        Err(CopiesError::Failed(failure)) => {
            operation.reason = failure.to_string();
            operation.failure = Some(failure);
        }
        Err(CopiesError::Fatal(error)) => return Err(error),
    }
    Ok(Some(operation))
}

struct OptionsRemeasurement<'a> {
    timer: &'a mut dyn Timer,
    ledger: &'a Ledger,
    module: &'a CheckedModule,
    options: &'a TuneOptions,
    cancel: &'a AtomicBool,
    events: &'a Events,
}

impl OptionsRemeasurement<'_> {
    fn run(
        &mut self,
        baseline: &Config,
        expected: &Expected,
        compared: usize,
        false_positive_rate: f64,
        operation: &mut OperationCheck,
    ) -> Result<(), CopiesError> {
        let scratch = tempfile::tempdir()
            .map_err(|source| CopiesError::Fatal(TuneError::Scratch { path: std::env::temp_dir(), source }))?;
        let program = self.module.program.write(scratch.path(), "program").map_err(failed)?;
        let candidates = [baseline, &expected.entry.config].map(|config| candidate(config, &program));
        let candidates = candidates.into_iter().collect::<Result<Vec<_>, _>>().map_err(CopiesError::Failed)?;
        let mut job = Job {
            call: operation.call.clone(),
            direction: Direction::Forward,
            inputs: Vec::new(),
            candidates,
            recipe: None,
            cache_state: self.options.cache_state.clone(),
            results: self.module.program.results.clone(),
            scratch: scratch.path().to_owned(),
        };
        self.timer.begin(&job).map_err(CopiesError::Failed)?;
        let signature = self.timer.signature(0).map_err(CopiesError::Failed)?;
        self.timer.end();
        let signature = signature.ok_or_else(|| {
            let message = format!("the timer `{}` does not report the module's inputs", self.timer.info().name);
            CopiesError::Failed(Failure::new(FailureKind::Signature, message))
        })?;
        let module = self.module;
        let inputs =
            make_inputs(&module.program, &signature.parameters, &module.inputs, scratch.path()).map_err(failed)?;
        job.inputs = inputs.arrays;
        let race = ProgramRace { is_exact: true, ..ProgramRace::new(job, inputs.digest, STAGE) };
        let e_value_needed = compared.max(1) as f64 / false_positive_rate;
        let options = TuneOptions {
            rounds: Some(self.options.usual_rounds()),
            force: true,
            rules: DecisionRules::ALL_ROUNDS,
            resolution: Default::default(),
            ..self.options.clone()
        };
        let mut rounds: Vec<Round> = Vec::new();
        for series in 1..=MOST_SERIES {
            if series > 1 {
                // another process has another memory layout
                self.timer.restart(&[]).map_err(CopiesError::Failed)?;
            }
            let raced = race_programs(self.timer, self.ledger, &race, &options, self.cancel, self.events)?;
            if let Some(failure) = raced.failures.get(&1) {
                operation.verdict = if is_its_own(failure) { Verdict::Broken } else { Verdict::Failed };
                operation.reason = failure.to_string();
                operation.failure = Some(failure.clone());
                return Ok(());
            }
            // each series has processes of its own
            let earlier = rounds.iter().map(|round| round.epoch + 1).max().unwrap_or(0);
            rounds.extend(raced.rounds.into_iter().map(|round| round.epoch_after(earlier)));
            let limits = limits(self.options, &rounds, expected, compared);
            operation.limit = Some(limits.slower);
            let Some(seen) = look(&rounds, &limits) else {
                operation.reason = format!("fewer than {MIN_ROUNDS} rounds count: allow more time");
                return Ok(());
            };
            if seen.change.is_none() || seen.is_proven(e_value_needed) || series == MOST_SERIES {
                fill(self.options, operation, &seen, expected, e_value_needed);
                return Ok(());
            }
        }
        Ok(())
    }
}

fn failed(error: MeasureError) -> CopiesError {
    CopiesError::Failed(match error {
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
