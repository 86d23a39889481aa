//! From contestants to their ratios.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value};

use super::contestant::{CompareOptions, Contestant};
use super::error::CompareError;
use super::result::{CompareResult, ContestantResult, Outputs, SelfNoise};
use crate::array::{ArraySpec, ComparedBy};
use crate::call::Call;
use crate::config::Config;
use crate::counted::{counted, listed};
use crate::decision::{self, Compared, ProcessQuestion};
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::measure::{CompiledWith, InputOptions, Inputs, MadeInput, MeasureError, make_inputs};
use crate::race::{
    ProgramRace, RaceError, RaceGoal, RaceOptions, Raced, Runner, confirm_programs, preflight, race_programs,
};
use crate::timer::events::{EventKind, Slice};
use crate::timer::{Build, Job, JobCandidate, ProgramFile, ProgramSignature, Timer};

/// The part of a budget that the first process may take.
const FIRST_PROCESS: f64 = 0.6;

/// Races programs on the same inputs and compares each with the first: time, outputs and executable. Rounds of the same
/// comparison in the ledger's sample log are not measured again.
///
/// A contestant that fails, or returns other outputs, is reported in its row.
///
/// # Errors
/// If there are fewer than two contestants, the programs take or return different arrays, the inputs cannot be made,
/// the first contestant or the worker fails, the user ends it, or nothing can be stored.
pub fn compare(
    runner: &mut Runner<'_>,
    contestants: &[Contestant],
    options: &CompareOptions,
    scratch: &Path,
) -> Result<CompareResult, CompareError> {
    let name = match contestants {
        [first, other] => format!("{} against {}", first.name, other.name),
        [first, others @ ..] => format!("{} against {}", first.name, counted(others.len(), "other")),
        [] => String::new(),
    };
    compare_named(runner, contestants, options, scratch, Slice::Operation { name: &name, index: 0, of: 1 })
}

/// The same as a named one of several comparisons.
pub(crate) fn compare_named(
    runner: &mut Runner<'_>,
    contestants: &[Contestant],
    options: &CompareOptions,
    scratch: &Path,
    slice: Slice<'_>,
) -> Result<CompareResult, CompareError> {
    let Some((first, [_, ..])) = contestants.split_first() else {
        return Err(CompareError::TooFew(contestants.len()));
    };
    let _slice = runner.events.open(slice);
    let copy = options.with_copy.then_some(contestants.len());
    let files = write_programs(contestants, scratch)?;
    let mut job = Job::new(Call::new("compare@v1", first.program.digest().to_short()), scratch)
        .candidates(candidates(contestants, &files, copy.map(|_| options.copy_timer)))
        .cache_state(options.race.cache_state.clone());
    let signature = signature(runner.timer, &job, contestants)?;
    let inputs = shared_inputs(contestants, &signature.parameters, &options.inputs, scratch)?;
    let preflight = preflight(&*runner.timer, &inputs, signature.results.as_deref(), first.program.partitions);
    preflight.check(scratch)?;
    if options.tells_preflight {
        runner.events.tell(EventKind::Ahead(&preflight.to_string()));
    }
    let Inputs { arrays, made: inputs, digest, .. } = inputs;
    job.inputs = arrays;
    runner.events.tell(EventKind::Started { programs: job.candidates.len(), rounds_kept: 0 });
    let mut race = ProgramRace::new(job, digest, options.stage.clone());
    race.fills = inputs.iter().map(|input| input.made.fill().cloned()).collect();
    race.is_exact = options.race.rounds.is_some();
    race.no_sentinels = contestants.iter().any(|contestant| contestant.timer > 0);
    race.goal = RaceGoal::EachRatio { copy, rules: options.rules };
    let of_first = |error| match error {
        RaceError::Failed(failure) => CompareError::First { name: first.name.clone(), failure },
        error => CompareError::Race(error),
    };
    let (first_part, rest) = parts_of_budget(&options.race);
    let raced = race_programs(runner, &race, &first_part).map_err(of_first)?;
    let mut result = result(&*runner.timer, contestants, copy, inputs, raced, options);
    let differing: Vec<usize> = result.differing();
    // all intervals hold together, the copy's too
    let others = contestants.len() - 1 + usize::from(copy.is_some());
    let question = ProcessQuestion::difference(options.rules.confidence, options.rules.min_difference, others);
    let known = confirm_programs(runner, &race, &rest, (&differing, &question)).map_err(of_first)?;
    for (place, confirmation) in differing.into_iter().zip(known) {
        result.take_confirmation(place, confirmation);
    }
    Ok(result)
}

/// What the first process may take of the time, and what is left for those that confirm what it shows.
fn parts_of_budget(options: &RaceOptions) -> (RaceOptions, RaceOptions) {
    let part = |part: f64| options.clone().budget(options.budget.map(|budget| budget.mul_f64(part)));
    (part(FIRST_PROCESS), part(1.0 - FIRST_PROCESS))
}

/// The programs' files, by their source; a program that is named twice is written once.
fn write_programs(contestants: &[Contestant], scratch: &Path) -> Result<BTreeMap<Digest, ProgramFile>, MeasureError> {
    let mut files = BTreeMap::new();
    for Contestant { program, .. } in contestants {
        let identity = program.identity();
        if !files.contains_key(&identity) {
            files.insert(identity, program.write(scratch, &format!("program-{}", files.len()))?);
        }
    }
    Ok(files)
}

/// The contestants, and then the first one's copy, which has this timer.
fn candidates(
    contestants: &[Contestant],
    files: &BTreeMap<Digest, ProgramFile>,
    timer_of_copy: Option<usize>,
) -> Vec<JobCandidate> {
    let candidate = |place: usize, contestant: &Contestant, build: Build, timer: usize| {
        // its name in logs and traces; programs and options are part of the job anyway
        let mut name = Map::from_iter([("contestant".to_owned(), Value::from(place + 1))]);
        if contestants.iter().any(|contestant| contestant.timer > 0) {
            name.insert("timer".to_owned(), Value::from(contestant.timer + 1));
        }
        if build.copy != contestant.build.copy {
            name.insert("copy".to_owned(), Value::from(build.copy));
        }
        let file = files.get(&contestant.program.identity()).cloned();
        JobCandidate::new(Config::new(name)).program(file).build(build).timer(timer)
    };
    let all = contestants
        .iter()
        .enumerate()
        .map(|(place, contestant)| candidate(place, contestant, contestant.build.clone(), contestant.timer));
    let copies = contestants.first().zip(timer_of_copy).map(|(first, timer)| {
        let number = first.build.copy.saturating_add(1);
        candidate(0, first, first.build.clone().copy(number), timer)
    });
    all.chain(copies).collect()
}

/// The first program's arguments, after checking that the others take and return the same.
fn signature(timer: &mut dyn Timer, job: &Job, contestants: &[Contestant]) -> Result<ProgramSignature, CompareError> {
    let Some(first) = contestants.first() else { return Err(CompareError::TooFew(0)) };
    let of_timer = |failure| CompareError::Program(MeasureError::Failed(failure));
    timer.begin(job).map_err(of_timer)?;
    // a program's signature does not depend on its compile options
    let is_new = |place: &usize| {
        let own = contestants.get(*place).map(|contestant| contestant.program.digest());
        !contestants.iter().take(*place).any(|earlier| Some(earlier.program.digest()) == own)
    };
    let distinct: Vec<usize> = (0..contestants.len()).filter(is_new).collect();
    timer.expect(&distinct).map_err(of_timer)?;
    let own = match timer.signature(0) {
        Ok(own) => own.ok_or_else(|| MeasureError::NoSignature { timer: timer.info().name.clone() })?,
        Err(failure) if failure.needs_restart() => return Err(of_timer(failure)),
        Err(failure) => return Err(CompareError::First { name: first.name.clone(), failure }),
    };
    let names = |other: usize| {
        let other = contestants.get(other).map(|contestant| contestant.name.clone()).unwrap_or_default();
        (first.name.clone(), other)
    };
    for &other in distinct.iter().filter(|&&place| place > 0) {
        match timer.signature(other) {
            Ok(Some(theirs)) if theirs.parameters != own.parameters => {
                let ((first, other), firsts, others) =
                    (names(other), specs(&own.parameters), specs(&theirs.parameters));
                return Err(CompareError::OtherArguments { first, firsts, other, others });
            }
            Ok(Some(theirs)) => {
                if let (Some(own), Some(theirs)) = (&own.results, &theirs.results)
                    && own != theirs
                {
                    let ((first, other), firsts, others) = (names(other), specs(own), specs(theirs));
                    return Err(CompareError::OtherResults { first, firsts, other, others });
                }
            }
            // its outputs show them
            Ok(None) => {}
            // it is tried again with the others, and its row has the outcome
            Err(failure) if failure.needs_restart() => {
                timer.restart(&[]).map_err(of_timer)?;
                timer.begin(job).map_err(of_timer)?;
            }
            Err(_) => {}
        }
    }
    Ok(own)
}

fn specs(specs: &[ArraySpec]) -> String {
    if specs.is_empty() { "nothing".to_owned() } else { listed(specs.iter().map(|spec| format!("`{spec}`"))) }
}

/// The inputs that all contestants take, by the first one's arguments. Arguments that any of them may overwrite are
/// passed to each again.
fn shared_inputs(
    contestants: &[Contestant],
    specs: &[ArraySpec],
    options: &InputOptions,
    scratch: &Path,
) -> Result<Inputs, CompareError> {
    let Some(first) = contestants.first() else { return Err(CompareError::TooFew(0)) };
    let mut inputs = make_inputs(&first.program, specs, options, scratch)?;
    for (index, (array, made)) in inputs.arrays.iter_mut().zip(&mut inputs.made).enumerate() {
        let is_donated = contestants.iter().any(|contestant| contestant.program.argument(index, specs.len()).1);
        array.donated |= is_donated;
        made.donated = array.donated;
    }
    inputs.preflight = inputs.preflight.with_donated(&inputs.arrays);
    Ok(inputs)
}

fn result(
    timer: &dyn Timer,
    contestants: &[Contestant],
    copy: Option<usize>,
    inputs: Vec<MadeInput>,
    raced: Raced,
    options: &CompareOptions,
) -> CompareResult {
    let count = contestants.len() + usize::from(copy.is_some());
    let competing: Vec<usize> = (0..count).filter(|candidate| !raced.failures.contains_key(candidate)).collect();
    let found = decision::compare(&raced.rounds, count, &competing, (0, copy), &options.rules);
    let compared = |candidate: usize| found.candidates.get(candidate).copied().flatten();
    let rows = (0..contestants.len()).filter_map(|place| row(contestants, place, compared(place), &raced));
    let executable = |candidate: usize| raced.executables.get(&candidate);
    let noise = copy.map(|copy| SelfNoise {
        ratio: compared(copy).map(|times| times.ratio),
        interval: compared(copy).map(|times| times.interval),
        bound: found.noise,
        same_executable: executable(0).zip(executable(copy)).map(|(own, copy)| own == copy),
        failure: raced.failures.get(&copy).cloned(),
    });
    let rounds = compared(0).map_or(0, |times| times.rounds);
    let contestants_of_dumps = contestants.iter().filter_map(|contestant| contestant.program.compiled_with.as_ref());
    let of_dumps: BTreeSet<String> = contestants_of_dumps.filter_map(CompiledWith::note).collect();
    let of_timer = timer.info().notes.iter().cloned().chain(timer.info().clocks_seen.clone());
    CompareResult {
        device: timer.info().device.clone(),
        measured_by: timer.info().measured_by(&options.race.cache_state),
        job: raced.digest,
        contestants: rows.collect(),
        noise,
        inputs,
        rounds: u32::try_from(rounds).unwrap_or(u32::MAX),
        rounds_measured: raced.rounds_measured,
        rounds_kept: raced.rounds_kept,
        rounds_set_aside: u32::try_from(found.disturbance.set_aside.len()).unwrap_or(u32::MAX),
        is_settled: found.is_settled,
        notes: of_timer.chain(raced.notes).chain(of_dumps).collect(),
    }
}

/// The row of a contestant, with its times beside the first one's if there are any.
fn row(contestants: &[Contestant], place: usize, times: Option<Compared>, raced: &Raced) -> Option<ContestantResult> {
    let contestant = contestants.get(place)?;
    let executable = raced.executables.get(&place).copied();
    let is_same = |(other, earlier): &(usize, &Contestant)| {
        earlier.timer == contestant.timer && executable.is_some() && raced.executables.get(other).copied() == executable
    };
    let same_executable = contestants.iter().take(place).enumerate().find(is_same).map(|(other, _)| other);
    let failure = raced.failures.get(&place).cloned();
    let beside_first = times.filter(|_| place > 0);
    Some(ContestantResult {
        name: contestant.name.clone(),
        program: contestant.program.digest(),
        options: contestant.build.options.clone(),
        timer: contestant.timer,
        executable,
        same_executable,
        outputs: outputs(
            place,
            failure.as_ref(),
            raced.errors.get(&place).copied().zip(raced.compared_by.get(&place).copied()),
        ),
        rounds: times.map_or(0, |times| times.rounds),
        median_ns: times.map(|times| times.median_ns),
        ratio: beside_first.map(|times| times.ratio),
        interval: beside_first.map(|times| times.interval),
        relation: beside_first.map(|times| times.relation),
        confirmation: None,
        failure,
    })
}

fn outputs(place: usize, failure: Option<&Failure>, found: Option<(f64, ComparedBy)>) -> Outputs {
    match (place, failure, found) {
        (0, ..) => Outputs::Reference,
        (_, Some(failure), _) if failure.kind == FailureKind::WrongOutput => Outputs::Different,
        (_, _, Some((max_error, compared_by))) => Outputs::Equal { max_error, compared_by },
        _ => Outputs::NotCompared,
    }
}
