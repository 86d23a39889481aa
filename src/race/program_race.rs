//! Races whole programs like candidates, without a recorded call.

use std::collections::BTreeMap;

use super::confirming::confirm_each;
use super::evidence::JobEvidence;
use super::measuring::measure;
use super::{
    CandidateResult, Compiling, Confirmation, JobIdentity, OutputDifference, RaceError, RaceGoal, RaceOptions, Referee,
    Runner, Terms, candidate_results,
};
use crate::array::{ComparedBy, Fill};
use crate::config::Config;
use crate::decision::{Judgement, ProcessQuestion, Round};
use crate::digest::{Digest, FieldHasher};
use crate::failure::Failure;
use crate::ledger::LedgerError;
use crate::measured_by::MeasuredBy;
use crate::samples::CandidateRecord;
use crate::timer::{Build, Job, JobCandidate, ProgramFile, Timer};

/// Part of a job's digest: samples that were taken in another way are another job's.
const VERSION: &str = "program-race-v1";

/// A job of programs. The first candidate is the baseline.
#[derive(Debug, Clone)]
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
    /// Whether the baseline is in each round no more often than the others: two processes are compared, and a process
    /// is faster the more it runs.
    pub no_sentinels: bool,
    /// The question that the race answers.
    pub goal: RaceGoal,
    /// By output, how far elements may be off beyond their type's tolerance: the largest difference of the baseline
    /// from itself.
    pub slack: Vec<f64>,
    /// The relative tolerance of outputs that replaces those of their types, if the programs' call has one.
    pub tolerance: Option<f64>,
    /// Whether outputs within the tolerance are right without further questions, because the caller has a reference of
    /// its own.
    pub has_own_reference: bool,
    /// By input, how its values were drawn, if they were: for others.
    pub fills: Vec<Option<Fill>>,
}

impl ProgramRace {
    /// A race that ends when it is decided and measures every candidate.
    pub fn new(job: Job, inputs: Digest, stage: impl Into<String>) -> Self {
        let (joins_executables, is_exact, no_sentinels, slack, has_own_reference) =
            (false, false, false, Vec::new(), false);
        let (stage, goal) = (stage.into(), RaceGoal::Best);
        let (fills, tolerance) = (Vec::new(), None);
        Self {
            job,
            inputs,
            stage,
            joins_executables,
            is_exact,
            no_sentinels,
            goal,
            slack,
            tolerance,
            has_own_reference,
            fills,
        }
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
        if let Some(tolerance) = self.tolerance {
            hasher.field(b"tolerance").field(&tolerance.to_le_bytes());
        }
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
    /// By candidate, the rule by which its outputs were accepted, if they were compared in this run.
    pub compared_by: BTreeMap<usize, ComparedBy>,
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
pub fn race_programs(runner: &mut Runner<'_>, race: &ProgramRace, options: &RaceOptions) -> Result<Raced, RaceError> {
    let by = runner.timer.info().measured_by(&options.cache_state);
    let digest = options.tolerances.in_digest(race.digest(&*runner.timer, &by));
    let identity = JobIdentity::of_programs(&race.job, digest, &*runner.timer);
    let mut evidence = JobEvidence::stored(runner.ledger, identity.digest, options.force)?;
    let candidates = race.job.candidates.iter().map(candidate_record);
    evidence.log_job(runner.ledger, || identity.record(&*runner.timer, by, candidates, options.force))?;
    if let Some(failure) = evidence.failures.get(&identity.baseline) {
        return Err(RaceError::Failed(failure.clone()));
    }
    let rounds_kept = evidence.count();
    // no candidate is dropped unless the best is wanted
    let measured_by_rules = match race.goal {
        RaceGoal::Best => options.clone(),
        _ => options.clone().without_verdict(),
    };
    let referee = Referee { options: &measured_by_rules, identity: &identity, terms: race.terms() };
    let rounds_measured = measure(runner.borrowed(), &race.job, referee, Compiling::new(None, None), &mut evidence)?;
    let referee = Referee { options, ..referee };
    Ok(Raced { rounds_measured, rounds_kept, ..Raced::of(&race.job, referee, evidence) })
}

/// Measures candidates of a race in fresh processes until the question is answered about each of them. Returns what is
/// known then of each, `None` of one that failed there; nothing at all if there are no fresh processes.
///
/// # Errors
/// As [`race_programs`].
pub(crate) fn confirm_programs(
    runner: &mut Runner<'_>,
    race: &ProgramRace,
    options: &RaceOptions,
    (candidates, question): (&[usize], &ProcessQuestion),
) -> Result<Vec<Option<Confirmation>>, RaceError> {
    if candidates.is_empty() || options.processes == 0 || runner.timer.info().can.skip_outputs {
        return Ok(Vec::new());
    }
    let (identity, rules, mut evidence) = stored_race(runner, race, options)?;
    let referee = Referee { options: &rules, identity: &identity, terms: race.terms() };
    confirm_each(runner, (&race.job, referee), candidates, question, &mut evidence)
}

/// What the log holds of a race that ran, with the rules for measuring more of it.
fn stored_race(
    runner: &Runner<'_>,
    race: &ProgramRace,
    options: &RaceOptions,
) -> Result<(JobIdentity, RaceOptions, JobEvidence), LedgerError> {
    let by = runner.timer.info().measured_by(&options.cache_state);
    let digest = options.tolerances.in_digest(race.digest(&*runner.timer, &by));
    let identity = JobIdentity::of_programs(&race.job, digest, &*runner.timer);
    let evidence = JobEvidence::stored(runner.ledger, identity.digest, false)?;
    Ok((identity, options.clone().without_verdict(), evidence))
}

/// A candidate as the log knows it.
pub(super) fn candidate_record(candidate: &JobCandidate) -> CandidateRecord {
    let digest = |file: &ProgramFile| semantic_digest(&file.program.semantic_digest, &candidate.build);
    CandidateRecord { config: candidate.config.clone(), semantic_digest: candidate.program.as_ref().map(digest) }
}

impl ProgramRace {
    pub(super) fn terms(&self) -> Terms<'_> {
        Terms {
            goal: self.goal,
            is_exact: self.is_exact,
            no_sentinels: self.no_sentinels,
            // non-finite values take the same time as others; only the question for the best requires finite ones
            needs_finite: self.goal == RaceGoal::Best,
            slack: &self.slack,
            fills: &self.fills,
            tolerance: self.tolerance,
            by_tolerance_alone: self.has_own_reference,
            joins_executables: self.joins_executables,
        }
    }
}

impl Raced {
    /// What the evidence says.
    fn of(job: &Job, referee: Referee<'_>, evidence: JobEvidence) -> Self {
        let (candidates, identity) = (job.candidates.len(), referee.identity);
        let judgement = referee.judge(&evidence, None, &[]);
        let configs: Vec<Config> = job.candidates.iter().map(|candidate| candidate.config.clone()).collect();
        let same_as: Vec<Option<usize>> = (0..candidates).map(|one| evidence.same.get(&one).copied()).collect();
        let rows = candidate_results(&configs, &same_as, identity.baseline, &judgement, &evidence, &[]);
        let largest = |found: &[OutputDifference]| found.iter().fold(0.0, |most: f64, one| most.max(one.max_absolute));
        let is_right = |candidate: &usize| !evidence.failures.contains_key(candidate);
        let compared = evidence.differences.iter().filter(|(candidate, _)| is_right(candidate));
        let errors = compared.map(|(&candidate, found)| (candidate, largest(found))).collect();
        Self {
            digest: identity.digest,
            rounds: evidence.to_decision(candidates, identity.baseline),
            judgement,
            rows,
            failures: evidence.failures,
            same_executable: evidence.same,
            executables: evidence.executables,
            errors,
            compared_by: evidence.compared_by,
            differences: evidence.differences,
            rounds_measured: 0,
            rounds_kept: 0,
            notes: evidence.notes,
        }
    }
}
