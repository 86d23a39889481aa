//! Compiles a plan or a module for one target.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use crate::config::Config;
use crate::counted::counted;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::measure::{CompiledWith, MeasureError, MeasuredProgram};
use crate::registry::{Candidate, Invocation, Registry};
use crate::timer::ProgramFile;
use crate::timer::pjrt::{CompileOutcome, TargetCompiler, TargetProgram};
use crate::tune::TuningPlan;

use super::result::{CompiledCall, CompiledCandidate, CompiledTarget, name_of};

/// The observer of the compilations, which may end them.
pub trait Follower {
    /// Whether the user requested the end.
    fn is_cancelled(&self) -> bool;

    /// Number of finished programs of the total; the last one belongs to this call, or is the module itself.
    fn done(&mut self, operation: &str, outcome: &CompileOutcome, done: usize, of: usize);
}

/// The programs of a plan's calls, each once.
struct Gathered {
    programs: Vec<TargetProgram>,
    /// For each call's candidates the program's index, or why there is none.
    sources: Vec<Vec<Result<usize, String>>>,
}

fn gather(plan: &TuningPlan, registry: &Registry) -> Gathered {
    let mut programs: Vec<TargetProgram> = Vec::new();
    // its index among them, by digest
    let mut places: HashMap<Digest, usize> = HashMap::new();
    let mut sources: Vec<Vec<Result<usize, String>>> = Vec::new();
    for planned in &plan.invocations {
        let invocation = &*planned.invocation;
        let mut place_of = |candidate: &Candidate| {
            let file = program_of(registry, candidate)?;
            Ok(*places.entry(file.program.digest).or_insert_with(|| {
                let operation = name_of(&invocation.call, invocation.direction);
                let config = candidate.config.clone();
                programs.push(TargetProgram { operation, config, program: file });
                programs.len() - 1
            }))
        };
        sources.push(invocation.candidates.iter().map(&mut place_of).collect());
    }
    Gathered { programs, sources }
}

/// The cost of compiling every candidate of a plan's calls.
pub fn forecast_plan(
    plan: &TuningPlan,
    registry: &Registry,
    target: &str,
    compiler: &TargetCompiler,
) -> CompiledTarget {
    let forecast = Some(compiler.forecast(&gather(plan, registry).programs));
    let mut compiled = nothing_of(target, compiler);
    compiled.notes.extend(notes_of(plan, target));
    CompiledTarget { forecast, ..compiled }
}

/// Compiles every candidate of a plan's calls, each program once.
///
/// # Errors
/// If the compiler's workers cannot be started.
pub fn compile_plan(
    plan: &TuningPlan,
    registry: &Registry,
    target: &str,
    compiler: &mut TargetCompiler,
    follower: &mut dyn Follower,
) -> Result<CompiledTarget, Failure> {
    let Gathered { programs, sources } = gather(plan, registry);
    let outcomes = compile(compiler, &programs, follower)?;
    let calls = plan.invocations.iter().zip(sources).map(|(planned, sources)| {
        let of_source = |(candidate, source): (&Candidate, _)| match source {
            Ok(place) => outcomes.get::<usize>(place).cloned().flatten(),
            // nobody waited for its recorder
            Err(_) if candidate.is_open() && follower.is_cancelled() => None,
            Err(reason) => Some(CompileOutcome::Failed { reason }),
        };
        let candidates = planned.invocation.candidates.iter();
        compiled_call(&planned.invocation, candidates.zip(sources).map(of_source))
    });
    let calls: Vec<CompiledCall> = calls.collect();
    let invocations = plan.invocations.iter().map(|planned| &*planned.invocation);
    let mut compiled = nothing_of(target, compiler);
    compiled.notes.extend(notes_of(plan, target));
    compiled.notes.extend(unreadable_note(invocations, &calls, compiler));
    compiled.notes.extend(refused_note(&calls));
    compiled.notes.extend(unknown_kernels(calls.iter().flat_map(CompiledCall::outcomes)));
    Ok(CompiledTarget { calls, ..compiled })
}

/// Compiles the program of a module as it is; `name` identifies it across versions.
///
/// # Errors
/// If the module is not a program, or the compiler's workers cannot be started.
pub fn compile_module(
    module: &Path,
    name: &str,
    target: &str,
    compiler: &mut TargetCompiler,
    follower: &mut dyn Follower,
) -> Result<CompiledTarget, MeasureError> {
    let (program, devices, of_options) = module_program(module, name, compiler)?;
    let outcome = compile(compiler, &[program], follower).map_err(MeasureError::Failed)?.into_iter().next();
    let module = outcome.flatten();
    let mut compiled = nothing_of(target, compiler);
    compiled.notes.extend(of_options);
    compiled.notes.extend(unknown_kernels(module.iter()));
    Ok(CompiledTarget { module, devices, ..compiled })
}

/// The cost of compiling a module.
///
/// # Errors
/// If the module is not a program.
pub fn forecast_module(
    module: &Path,
    name: &str,
    target: &str,
    compiler: &TargetCompiler,
) -> Result<CompiledTarget, MeasureError> {
    let (program, devices, of_options) = module_program(module, name, compiler)?;
    let forecast = Some(compiler.forecast(&[program]));
    let mut compiled = nothing_of(target, compiler);
    compiled.notes.extend(of_options);
    Ok(CompiledTarget { forecast, devices, ..compiled })
}

/// The program of a module, on how many devices it runs, and a note on options of its side file that are left out.
fn module_program(
    module: &Path,
    name: &str,
    compiler: &TargetCompiler,
) -> Result<(TargetProgram, u64, Option<String>), MeasureError> {
    let program = MeasuredProgram::open_to_compile(module)?;
    let of_options = program.compiled_with.as_ref().and_then(CompiledWith::note);
    let (devices, program) = (program.partitions, program.write(compiler.scratch(), "module")?);
    let config = Config::new(serde_json::Map::new());
    Ok((TargetProgram { operation: name.to_owned(), config, program }, devices, of_options))
}

fn compile(
    compiler: &mut TargetCompiler,
    programs: &[TargetProgram],
    follower: &mut dyn Follower,
) -> Result<Vec<Option<CompileOutcome>>, Failure> {
    let (mut done, of) = (0, programs.len());
    // both callbacks belong to the observer: one gets each outcome, the other is polled in between
    let follower = std::cell::RefCell::new(follower);
    let mut each = |place: usize, outcome: &CompileOutcome| {
        done += 1;
        let operation = programs.get(place).map(|program| program.operation.as_str()).unwrap_or_default();
        follower.borrow_mut().done(operation, outcome, done, of);
    };
    compiler.compile(programs, &|| follower.borrow().is_cancelled(), &mut each)
}

fn nothing_of(target: &str, compiler: &TargetCompiler) -> CompiledTarget {
    CompiledTarget {
        target: target.to_owned(),
        device: compiler.device().clone(),
        memory_bytes: compiler.target().memory_bytes,
        calls: Vec::new(),
        module: None,
        devices: 1,
        notes: compiler.notes(),
        forecast: None,
        baseline: None,
    }
}

/// The plan's notes, and why labels have no program to compile: each reason once, with the labels that it concerns.
fn notes_of(plan: &TuningPlan, target: &str) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for missed in &plan.missed {
        by_reason.entry(&missed.reason).or_default().push(missed.label.to_string());
    }
    let missed = by_reason.iter().map(|(reason, labels)| {
        let (count, first) = (labels.len(), labels.first().map(String::as_str).unwrap_or_default());
        let which =
            if count == 1 { format!("{first} matches") } else { format!("{count} labels ({first}, …) match") };
        format!("{which} no recording for {target}: {reason}; record with `target=\"{target}\"`")
    });
    plan.notes.iter().cloned().chain(missed).collect()
}

/// Names the versions of recorder and compiler, if the compiler cannot read what was recorded.
fn unreadable_note<'a>(
    invocations: impl Iterator<Item = &'a Invocation>,
    calls: &[CompiledCall],
    compiler: &TargetCompiler,
) -> Option<String> {
    let unreadable = |call: &CompiledCall| {
        let is_unreadable = |outcome: &CompileOutcome| match outcome {
            CompileOutcome::Failed { reason } => reason.starts_with(FailureKind::Unreadable.as_str()),
            _ => false,
        };
        call.outcomes().filter(|outcome| is_unreadable(outcome)).count()
    };
    let recorders: BTreeSet<&str> = invocations
        .zip(calls)
        .filter(|(_, call)| unreadable(call) > 0)
        .map(|(invocation, _)| invocation.recorder.as_str())
        .collect();
    let recorder = recorders.into_iter().filter(|recorder| !recorder.is_empty()).collect::<Vec<_>>().join(" and ");
    let recorder = if recorder.is_empty() { "an unknown version".to_owned() } else { recorder };
    let plugin = compiler.package().unwrap_or_else(|| "of another version".to_owned());
    let programs = calls.iter().map(unreadable).sum::<usize>();
    (programs > 0).then(|| {
        format!(
            "the compiler cannot read {}: recorded with {recorder}, the plugin is {plugin}; record with the JAX whose \
             plugin compiles, or name that JAX's plugin with `--plugin`",
            counted(programs, "program")
        )
    })
}

/// Says that whole calls are refused, which concerns rather what the programs have in common than their configs.
fn refused_note(calls: &[CompiledCall]) -> Option<String> {
    let is_refused = |call: &&CompiledCall| {
        let reasons = call.outcomes().map(|outcome| match outcome {
            CompileOutcome::Refused { reason, .. } => Some(reason),
            _ => None,
        });
        let reasons: BTreeSet<Option<&String>> = reasons.collect();
        reasons.len() == 1 && reasons.iter().all(Option::is_some)
    };
    let refused: Vec<String> = calls.iter().filter(is_refused).map(CompiledCall::name).collect();
    let (first, others) = refused.split_first()?;
    let others = if others.is_empty() { String::new() } else { format!(" and of {}", counted(others.len(), "other")) };
    Some(format!(
        "every config of {first}{others} is refused for one reason, the baseline too: look for it in the kernel, in \
         its arguments or in the compiler's version, not in the configs"
    ))
}

/// Says which programs have no figures of their kernels: one note for each reason.
fn unknown_kernels<'a>(outcomes: impl Iterator<Item = &'a CompileOutcome>) -> Vec<String> {
    let mut programs: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes {
        if let CompileOutcome::Compiled { kernels_unknown: Some(reason), .. } = outcome {
            *programs.entry(reason).or_default() += 1;
        }
    }
    let note = |(reason, programs)| {
        format!("registers, stack and shared memory of {} are unknown: {reason}", counted(programs, "program"))
    };
    programs.into_iter().map(note).collect()
}

/// A candidate's program, or why there is none to compile.
fn program_of(registry: &Registry, candidate: &Candidate) -> Result<ProgramFile, String> {
    let program = candidate.program.as_ref().ok_or_else(|| {
        let why = candidate.not_lowered.as_deref().unwrap_or("it has no program");
        format!("not lowered where it was recorded: {why}")
    })?;
    let path = registry.checked_program_path(program).map_err(|error| error.to_string())?;
    Ok(ProgramFile::new(path, program.clone()))
}

fn compiled_call(invocation: &Invocation, outcomes: impl Iterator<Item = Option<CompileOutcome>>) -> CompiledCall {
    let candidates = invocation.candidates.iter().zip(outcomes);
    CompiledCall {
        call: invocation.call.clone(),
        direction: invocation.direction,
        baseline: invocation.baseline.clone(),
        candidates: candidates
            .map(|(candidate, outcome)| CompiledCandidate { config: candidate.config.clone(), outcome })
            .collect(),
    }
}
