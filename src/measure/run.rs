//! Measures a program.

use std::path::Path;

use serde::Serialize;

use super::error::MeasureError;
use super::input_options::InputOptions;
use super::inputs::{MadeInput, make_inputs};
use super::program::MeasuredProgram;
use crate::call::{Call, Direction};
use crate::config::Config;
use crate::failure::{Failure, FailureKind};
use crate::measured_by::CacheState;
use crate::profile::{Finding, Measurement};
use crate::setters;
use crate::timer::events::{Events, Phase, Slice};
use crate::timer::{
    CandidateRuns, HOST_CLOCK, InputArray, Job, JobCandidate, ProfiledRound, ProgramFile, RoundRequest, Timer,
    subscriber,
};

/// Iterations before the counted ones, because caches are cold and kernels may be loaded at their first launch.
pub const WARM_UP: u32 = 1;

/// What of a program is measured; the two are not interchangeable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MeasureMode {
    /// The sum of the kernels' durations, without the gaps between them.
    Kernels,
    /// From the first kernel's start to the last one's end, with the gaps.
    Span,
}

/// How a program is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasureOptions {
    /// Number of counted iterations; at least one.
    pub iterations: u32,
    /// How the inputs are made.
    pub inputs: InputOptions,
    /// The state of the caches before every iteration.
    pub cache_state: CacheState,
}

setters!(MeasureOptions { inputs: InputOptions, cache_state: CacheState });

impl MeasureOptions {
    /// So many iterations, with default inputs and caches as the previous iteration left them.
    pub fn new(iterations: u32) -> Self {
        Self { iterations, inputs: InputOptions::default(), cache_state: CacheState::Warm }
    }
}

/// A program's times and their circumstances.
#[derive(Debug)]
pub struct Measured {
    /// The times; without iterations if the program ran nothing on the device.
    pub measurement: Measurement,
    /// The inputs.
    pub inputs: Vec<MadeInput>,
    /// What could mislead, found in the profile.
    pub findings: Vec<Finding>,
}

/// Runs a program [`WARM_UP`] + `iterations` times under one profile and adds up its kernels. Emits its progress to
/// `events`.
///
/// A profile without executions is only accepted if the same timer sees the kernel of a program that has one.
///
/// # Errors
/// If the timer takes no profiles, the inputs cannot be made, the program fails, or its iterations ran different
/// kernels.
pub fn measure(
    timer: &mut dyn Timer,
    program: &MeasuredProgram,
    options: &MeasureOptions,
    scratch: &Path,
    events: &Events,
) -> Result<Measured, MeasureError> {
    if !timer.info().can.measure_rounds {
        let reason = timer.info().notes.iter().find_map(|note| note.strip_prefix(HOST_CLOCK)?.strip_prefix(": "));
        return Err(MeasureError::NoProfiles { timer: timer.info().name.clone(), reason: reason.map(str::to_owned) });
    }
    let file = program.write(scratch, "program")?;
    // inputs are part of a job, and only the compiled program reveals its parameters
    timer.begin(&job(&file, Vec::new(), options.cache_state.clone(), scratch))?;
    let specs = timer.signature(0)?;
    let specs = specs.ok_or_else(|| MeasureError::NoSignature { timer: timer.info().name.clone() })?.parameters;
    let inputs = make_inputs(program, &specs, &options.inputs, scratch)?;
    let (arrays, inputs) = (inputs.arrays, inputs.made);
    let job = job(&file, arrays, options.cache_state.clone(), scratch);
    timer.follow(events);
    let _job = events.try_open(Slice::Job(&job))?;
    let in_phase = |phase| events.open(Slice::Phase(phase));
    {
        let _loading = in_phase(Phase::LoadInputs);
        timer.begin(&job)?;
    }
    {
        let _compiling = in_phase(Phase::Compile);
        timer.prepare(0)?;
    }
    let measuring = in_phase(Phase::Measure);
    let round = profiled(timer, options.iterations.saturating_add(WARM_UP));
    drop(measuring);
    let measured = match round {
        Ok(round) => Measured {
            measurement: Measurement::new(round.times(), round.runs(0).skip(WARM_UP as usize))?,
            findings: findings(&round),
            inputs,
        },
        Err(failure) if failure.kind == FailureKind::NoExecutions => {
            control(timer, scratch).map_err(|failure| explained(timer, failure))?;
            Measured { measurement: Measurement::default(), findings: Vec::new(), inputs }
        }
        Err(failure) => return Err(explained(timer, failure).into()),
    };
    timer.end();
    Ok(measured)
}

/// What its profile has to say. Every run has all of its operations, so events that count as lost are of something
/// else.
fn findings(round: &ProfiledRound) -> Vec<Finding> {
    let of_round = |finding: &&Finding| !matches!(finding, Finding::DroppedEvents { .. });
    round.times().findings.iter().filter(of_round).cloned().collect()
}

/// Runs the program so many times under a profile.
fn profiled(timer: &mut dyn Timer, runs: u32) -> Result<ProfiledRound, Failure> {
    let round = RoundRequest { launches: vec![CandidateRuns::new(0, runs)], with_profile: true };
    timer.measure(&round)?.profile.ok_or_else(|| Failure::new(FailureKind::Protocol, "the timer answered no profile"))
}

pub(super) fn job(file: &ProgramFile, inputs: Vec<InputArray>, cache_state: CacheState, scratch: &Path) -> Job {
    Job {
        call: Call::new("measure@v1", file.program.digest.to_short()),
        direction: Direction::Forward,
        inputs,
        candidates: vec![JobCandidate::new(Config::new(serde_json::Map::new())).program(Some(file.clone()))],
        results: Vec::new(),
        recipe: None,
        cache_state,
        scratch: scratch.to_owned(),
    }
}

/// A program that cannot run without a kernel.
const CONTROL: &str = "module @control {
  func.func public @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {
    %0 = stablehlo.sine %x : tensor<4096xf32>
    return %0 : tensor<4096xf32>
  }
}
";

/// Checks that this timer's profiles show kernels at all.
fn control(timer: &mut dyn Timer, scratch: &Path) -> Result<(), Failure> {
    let of_scratch = |error: MeasureError| Failure::new(FailureKind::Device, error.to_string());
    let scratch = tempfile::tempdir_in(scratch)
        .map_err(|source| of_scratch(MeasureError::Scratch { path: scratch.to_owned(), source }))?;
    let scratch = scratch.path();
    let program = MeasuredProgram::of_text(CONTROL);
    let file = program.write(scratch, "control").map_err(of_scratch)?;
    // the prepared program is not needed again
    timer.end();
    timer.restart(&[])?;
    timer.begin(&job(&file, Vec::new(), CacheState::Warm, scratch))?;
    let specs = timer.signature(0)?.map(|signature| signature.parameters).unwrap_or_default();
    let arrays = make_inputs(&program, &specs, &InputOptions::default(), scratch).map_err(of_scratch)?.arrays;
    timer.begin(&job(&file, arrays, CacheState::Warm, scratch))?;
    timer.prepare(0)?;
    let round = profiled(timer, 1);
    round.map(drop).map_err(|failure| {
        let message = format!("the profiler sees no kernel, not even that of a control program: {}", failure.message);
        Failure::new(failure.kind, message)
    })
}

/// Names another CUPTI subscriber, if it may be the reason for a missing profile.
fn explained(timer: &dyn Timer, failure: Failure) -> Failure {
    let of_environment = || {
        let has_cupti = timer.info().device.identity.platform == "cuda";
        if has_cupti { subscriber::from_environment() } else { None }
    };
    match subscriber::named(&failure.message).or_else(of_environment) {
        Some(who) => {
            let message = format!(
                "{}; CUPTI allows one subscriber, and {who} is already one: measure without it",
                failure.message
            );
            Failure::new(failure.kind, message)
        }
        None => failure,
    }
}
