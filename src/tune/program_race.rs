//! Races whole programs like candidates, without a recorded call.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use crate::cache::CacheKey;
use crate::config::Config;
use crate::decision::{ComparisonRules, DecisionRules, Judgement, Round, judge};
use crate::digest::{Digest, FieldHasher};
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::measured_by::MeasuredBy;
use crate::samples::{CandidateRecord, JobRecord, Record};
use crate::timer::events::Events;
use crate::timer::{Build, Job, Timer};

use super::commit::candidate_results;
use super::copies::CopiesError;
use super::job::JobIdentity;
use super::measure::{Compares, Measuring};
use super::rounds::JobRounds;
use super::{CandidateResult, OutputDifference, TuneOptions};

/// Changes when samples of older versions must not be mixed with this version's.
const VERSION: &str = "program-race-v1";

/// A job of programs. The first candidate is the baseline.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProgramRace {
    /// The programs, their inputs, and how each is compiled.
    pub job: Job,
    /// Digest of the inputs' contents.
    pub inputs: Digest,
    /// Identifies one of several races of the same programs, whose samples are never mixed.
    pub stage: String,
    /// Whether candidates that compile to one executable are one candidate.
    pub joins_executables: bool,
    /// Whether the requested number of rounds is measured even if the race is decided earlier.
    pub is_exact: bool,
    /// The question that the race answers.
    pub goal: RaceGoal,
    /// By output, how far elements may be off beyond their type's tolerance: the largest difference of the baseline from itself.
    pub slack: Vec<f64>,
}

/// The question that a race answers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum RaceGoal {
    /// Which candidate is the best: significantly slower ones are dropped.
    #[default]
    Best,
    /// The ratio of each to the baseline: all are in every round, until each is distinguished from the baseline or the
    /// time runs out.
    EachRatio {
        /// The candidate that is the baseline's own program once more, if there is one.
        copy: Option<usize>,
        /// When a candidate is distinguished from the baseline.
        rules: ComparisonRules,
    },
}

impl ProgramRace {
    /// A race that ends when it is decided and measures every candidate.
    pub fn new(job: Job, inputs: Digest, stage: impl Into<String>) -> Self {
        let (joins_executables, is_exact, slack) = (false, false, Vec::new());
        Self { job, inputs, stage: stage.into(), joins_executables, is_exact, goal: RaceGoal::Best, slack }
    }

    /// Digest of everything that must be equal for samples of two runs to be comparable.
    pub fn digest(&self, timer: &dyn Timer, by: &MeasuredBy) -> Digest {
        let device = &timer.info().device;
        let mut hasher = FieldHasher::new(VERSION);
        hasher.field(self.stage.as_bytes()).field(device.identity.to_digest().as_bytes());
        hasher.field(serde_json::to_string(&device.environment).unwrap_or_default().as_bytes());
        hasher
            .field(serde_json::to_string(&by.as_condition()).unwrap_or_default().as_bytes())
            .field(self.inputs.as_bytes());
        for candidate in &self.job.candidates {
            let program = candidate.program.as_ref().map(|file| file.program.semantic_digest);
            hasher.field(program.as_ref().map(|digest| &digest.as_bytes()[..]).unwrap_or_default());
            hasher.field(candidate.config.as_str().as_bytes()).field(&candidate.build.copy.to_le_bytes());
            for (name, value) in &candidate.build.options {
                hasher.field(b"\0option").field(name.as_bytes()).field(value.as_bytes());
            }
            for (name, value) in &candidate.build.process {
                hasher.field(b"\0process").field(name.as_bytes()).field(value.as_bytes());
            }
        }
        hasher.finish()
    }
}

/// The identity of a candidate's program, including how it is compiled.
fn semantic_digest(program: &Digest, build: &Build) -> Digest {
    if *build == Build::default() {
        return *program;
    }
    let mut hasher = FieldHasher::new("program and how it is compiled, 1");
    hasher.field(program.as_bytes()).field(&build.copy.to_le_bytes());
    for (name, value) in &build.options {
        hasher.field(name.as_bytes()).field(value.as_bytes());
    }
    for (name, value) in &build.process {
        hasher.field(b"\0process").field(name.as_bytes()).field(value.as_bytes());
    }
    hasher.finish()
}

/// The result of a race.
#[derive(Debug)]
#[non_exhaustive]
pub struct Raced {
    /// The job, in the sample log.
    pub digest: Digest,
    /// All rounds, including those of earlier runs.
    pub rounds: Vec<Round>,
    /// The verdict by the rules of the options.
    pub judgement: Judgement,
    /// One row per candidate.
    pub rows: Vec<CandidateResult>,
    /// Candidates that were dropped, and why.
    pub failures: BTreeMap<usize, Failure>,
    /// Candidates that were not measured because their executable is an earlier one's.
    pub same_executable: BTreeMap<usize, usize>,
    /// What each candidate compiled to, if the timer knows.
    pub executables: BTreeMap<usize, Digest>,
    /// For each candidate the largest absolute difference from the baseline's outputs that is within the tolerance.
    pub errors: BTreeMap<usize, f64>,
    /// The outputs that are not bitwise equal to the baseline's, for each candidate compared in this run.
    pub differences: BTreeMap<usize, Vec<OutputDifference>>,
    /// Rounds measured in this run.
    pub rounds_measured: u32,
    /// Rounds that the log held before.
    pub rounds_kept: u32,
    /// Notes on the baseline's outputs.
    pub notes: Vec<String>,
}

/// Races programs, continuing from the rounds of the same race in the log.
///
/// # Errors
/// If the baseline or the worker fails, the user ends it, or the log cannot be written.
pub fn race_programs(
    timer: &mut dyn Timer,
    ledger: &Ledger,
    race: &ProgramRace,
    options: &TuneOptions,
    cancel: &AtomicBool,
    events: &Events,
) -> Result<Raced, CopiesError> {
    let ProgramRace { job, .. } = race;
    let by = timer.info().measured_by(&options.cache_state);
    let device = timer.info().device.clone();
    let identity = JobIdentity {
        digest: race.digest(&*timer, &by),
        key: CacheKey { call: job.call.clone(), direction: job.direction, device: device.identity.clone() },
        baseline: 0,
        same_as: vec![None; job.candidates.len()],
        not_lowered: Default::default(),
    };
    let history = if options.force { Default::default() } else { ledger.history(identity.digest)? };
    if history.job.is_none() {
        let candidates = job.candidates.iter().map(|candidate| CandidateRecord {
            config: candidate.config.clone(),
            semantic_digest: candidate
                .program
                .as_ref()
                .map(|file| semantic_digest(&file.program.semantic_digest, &candidate.build)),
        });
        let record = JobRecord {
            job: identity.digest,
            device,
            call: job.call.clone(),
            direction: job.direction,
            measured_by: by,
            baseline: identity.baseline,
            candidates: candidates.collect(),
            fresh: options.force,
        };
        ledger.append(&Record::Job(Box::new(record)))?;
    }
    let compares = match race.goal {
        RaceGoal::Best => None,
        RaceGoal::EachRatio { copy, rules } => Some(Compares { copy, rules }),
    };
    // no candidate is dropped if each ratio is wanted
    let measured_by_rules = match compares {
        Some(_) => TuneOptions { rules: DecisionRules::ALL_ROUNDS, resolution: Default::default(), ..options.clone() },
        None => options.clone(),
    };
    let mut rounds = JobRounds::from_history(history);
    let rounds_kept = rounds.count();
    let mut measuring = Measuring {
        timer,
        ledger,
        options: &measured_by_rules,
        cancel,
        events,
        identity: &identity,
        job,
        rounds: &mut rounds,
        forgiven: Default::default(),
        round_forgiven: false,
        // non-finite values take the same time as others; only the question for the best requires finite ones
        needs_finite: compares.is_none(),
        slack: &race.slack,
        is_exact: race.is_exact,
        compares,
        joins_executables: race.joins_executables,
        waves: None,
        seat: None,
        beside: 1,
        tried: 0,
        epochs: (0, 0),
        in_rounds: Default::default(),
        running: Default::default(),
        compiling: Default::default(),
    };
    if let Some(failure) = measuring.rounds.failures.get(&identity.baseline) {
        return Err(CopiesError::Failed(failure.clone()));
    }
    let rounds_measured = measuring.run()?;
    let candidates = job.candidates.len();
    let decided = rounds.to_decision(candidates, identity.baseline);
    let rules = options.rules_for(&decided, identity.baseline);
    let judgement = judge(&decided, candidates, &rounds.competing(&identity), identity.baseline, None, &[], &rules);
    let configs: Vec<Config> = job.candidates.iter().map(|candidate| candidate.config.clone()).collect();
    let same_as: Vec<Option<usize>> = (0..candidates).map(|candidate| rounds.same.get(&candidate).copied()).collect();
    let rows = candidate_results(&configs, &same_as, identity.baseline, &judgement, &rounds, &[]);
    let largest = |found: &[OutputDifference]| found.iter().fold(0.0, |most: f64, one| most.max(one.max_absolute));
    let is_right = |candidate: &usize| !rounds.failures.contains_key(candidate);
    let compared = rounds.differences.iter().filter(|(candidate, _)| is_right(candidate));
    let errors = compared.map(|(&candidate, found)| (candidate, largest(found))).collect();
    Ok(Raced {
        digest: identity.digest,
        rounds: decided,
        judgement,
        rows,
        failures: rounds.failures,
        same_executable: rounds.same,
        executables: rounds.executables,
        errors,
        differences: rounds.differences,
        rounds_measured,
        rounds_kept,
        notes: rounds.notes,
    })
}
