//! The races of one module: jobs of variants on one timer.

use std::path::Path;
use std::time::{Duration, Instant};

use super::module::OptionModule;
use super::variant::OptionVariant;
use crate::call::{Call, Direction};
use crate::counted::counted as number_of;
use crate::decision::{ProcessQuestion, Round};
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::measure::{Inputs, make_inputs};
use crate::race::{
    Confirmation, Deadline, ProgramRace, RaceError, RaceOptions, Raced, Runner, confirm_programs, no_signature,
    race_programs,
};
use crate::timer::{Build, InputArray, Job, JobCandidate, ProgramFile, ProgramSignature};
use crate::tune::TimeBreakdown;

/// The races of a module's variants, and everything that they have in common.
pub(super) struct VariantRaces<'a> {
    pub(super) runner: Runner<'a>,
    pub(super) options: &'a RaceOptions,
    pub(super) program: &'a ProgramFile,
    pub(super) call: Call,
    pub(super) inputs: Vec<InputArray>,
    pub(super) inputs_digest: Digest,
    /// The names of its results.
    pub(super) results: Vec<String>,
    /// By output, the largest difference of the default from its copy. A set may differ by as much.
    pub(super) slack: Vec<f64>,
    pub(super) scratch: &'a Path,
    pub(super) until: Deadline,
    /// Whether a race was measured beside other processes on its cores.
    pub(super) is_contended: bool,
}

/// Maximum number of sets that hang before no more are tried, because each takes the whole time limit.
const MOST_HANGS: usize = 3;
pub(super) const NONE_RUNS: &str = "none of them runs";

/// The base's failure, and why no other set replaces it.
pub(super) fn without_rescue(failures: Vec<Failure>, why: &str) -> Failure {
    let others = failures.len().saturating_sub(1);
    let Some(Failure { kind, message }) = failures.into_iter().next() else {
        return Failure::new(FailureKind::Compile, "nothing was compiled");
    };
    match others {
        0 if why == NONE_RUNS => Failure::new(kind, message),
        0 => Failure::new(kind, format!("{message}; {why}")),
        _ => Failure::new(kind, format!("{message}; {} tried, and {why}", number_of(others, "other set"))),
    }
}

/// How a race runs.
pub(super) struct Rules<'a> {
    /// Its name. Races with other names share no samples.
    pub(super) stage: &'a str,
    /// Exactly this many rounds of every candidate.
    pub(super) exact: Option<u32>,
    /// Whether samples of an earlier run of the first candidate are ignored.
    pub(super) is_fresh: bool,
    /// Whether variants that compile to the same executable are one candidate.
    pub(super) joins: bool,
}

impl<'a> VariantRaces<'a> {
    /// The races of a module, whose inputs are not made yet.
    pub(super) fn new(
        runner: Runner<'a>,
        options: &'a RaceOptions,
        (call, program): (Call, &'a ProgramFile),
        module: &OptionModule,
        (scratch, until): (&'a Path, Deadline),
    ) -> Self {
        let (inputs, inputs_digest, slack) = (Vec::new(), Digest::of(b""), Vec::new());
        let results = module.program.results.clone();
        let is_contended = false;
        Self { runner, options, program, call, inputs, inputs_digest, results, slack, scratch, until, is_contended }
    }

    /// Makes the inputs of all variants.
    pub(super) fn make_inputs(
        &mut self,
        module: &OptionModule,
        signature: &ProgramSignature,
    ) -> Result<Inputs, RaceError> {
        let inputs = make_inputs(&module.program, &signature.parameters, &module.inputs, self.scratch)?;
        (self.inputs, self.inputs_digest) = (inputs.arrays.clone(), inputs.digest);
        Ok(inputs)
    }

    /// A job of variants. A second variant with the same options is compiled again.
    pub(super) fn job(&self, variants: &[OptionVariant]) -> Job {
        let candidate = |(index, variant): (usize, &OptionVariant)| {
            let earlier = variants.iter().take(index).filter(|other| other.set == variant.set).count();
            let copy = u32::try_from(earlier).unwrap_or(u32::MAX);
            let OptionVariant { overrides, process, .. } = variant.clone();
            let build = Build::default().options(overrides).process(process).copy(copy);
            JobCandidate::new(variant.config.clone()).program(Some(self.program.clone())).build(build)
        };
        Job {
            call: self.call.clone(),
            direction: Direction::Forward,
            inputs: self.inputs.clone(),
            candidates: variants.iter().enumerate().map(candidate).collect(),
            results: self.results.clone(),
            recipe: None,
            cache_state: self.options.cache_state.clone(),
            scratch: self.scratch.to_owned(),
        }
    }

    /// The module's inputs and outputs, from the first variant that compiles. The base is always tried.
    pub(super) fn signature(
        &mut self,
        base: &OptionVariant,
        others: &[OptionVariant],
    ) -> Result<ProgramSignature, RaceError> {
        let variants: Vec<OptionVariant> = std::iter::once(base).chain(others).cloned().collect();
        let job = self.job(&variants);
        let mut failures: Vec<Failure> = Vec::new();
        for candidate in 0..variants.len() {
            if let Some(why) = self.gives_up(&failures)? {
                return Err(RaceError::Failed(without_rescue(failures, why)));
            }
            let timer = &mut *self.runner.timer;
            timer.begin(&job).map_err(RaceError::Failed)?;
            match timer.signature(candidate) {
                Ok(Some(signature)) => return Ok(signature),
                Ok(None) => return Err(RaceError::Failed(no_signature(timer))),
                Err(failure) => {
                    if failure.needs_restart() {
                        timer.restart(&[]).map_err(RaceError::Failed)?;
                    }
                    failures.push(failure);
                }
            }
        }
        Err(RaceError::Failed(without_rescue(failures, NONE_RUNS)))
    }

    /// Why nothing else is tried after this many failures.
    pub(super) fn gives_up(&self, failures: &[Failure]) -> Result<Option<&'static str>, RaceError> {
        if self.runner.is_cancelled() {
            return Err(RaceError::Interrupted);
        }
        if failures.is_empty() {
            return Ok(None);
        }
        let hung = failures.iter().filter(|failure| failure.kind == FailureKind::Timeout).count();
        Ok(match hung {
            MOST_HANGS.. => Some("others hang, too"),
            _ if self.until.is_over() => Some("the time was used up before one ran"),
            _ => None,
        })
    }

    /// Races variants. The others are compared with the first one.
    pub(super) fn race(&mut self, variants: &[OptionVariant], rules: &Rules<'_>) -> Result<Raced, RaceError> {
        let mut options = self.options.clone().force(rules.is_fresh).budget(self.until.left());
        if let Some(rounds) = rules.exact {
            options = options.rounds(Some(rounds)).without_verdict();
        }
        let race = self.program_race(variants, rules);
        let raced = race_programs(&mut self.runner, &race, &options)?;
        self.is_contended |= raced.judgement.race_state.disturbance.is_contended;
        Ok(raced)
    }

    /// Measures a variant of a race in fresh processes; `None` if it fails there, or there are none.
    pub(super) fn confirm(
        &mut self,
        variants: &[OptionVariant],
        rules: &Rules<'_>,
        winner: usize,
    ) -> Result<Option<Confirmation>, RaceError> {
        let options = self.options.clone().budget(self.until.left());
        let question = ProcessQuestion::gain(&options.rules);
        let race = self.program_race(variants, rules);
        let known = confirm_programs(&mut self.runner, &race, &options, (&[winner], &question))?;
        Ok(known.into_iter().next().flatten())
    }

    fn program_race(&self, variants: &[OptionVariant], rules: &Rules<'_>) -> ProgramRace {
        ProgramRace {
            joins_executables: rules.joins,
            is_exact: rules.exact.is_some(),
            slack: self.slack.clone(),
            has_own_reference: true,
            ..ProgramRace::new(self.job(variants), self.inputs_digest, rules.stage)
        }
    }
}

/// The rounds that count.
pub(super) fn counted(raced: &Raced) -> Vec<&Round> {
    let aside = &raced.judgement.race_state.disturbance.set_aside;
    raced.rounds.iter().enumerate().filter(|(number, _)| !aside.contains(number)).map(|(_, round)| round).collect()
}

/// Minimum time for the last rounds if there is no budget. They may take a third of the time spent before, and at least
/// this.
const LEAST_LAST: Duration = Duration::from_secs(10);

pub(super) fn time_for_last(since: Instant) -> Duration {
    LEAST_LAST.max(since.elapsed() / 3)
}

/// One line that forecasts the time for this many values from the base's compile time and run time.
pub(super) fn forecast(
    races: &VariantRaces<'_>,
    time_breakdown: &TimeBreakdown,
    base_ns: f64,
    values: usize,
) -> String {
    let is_cpu = races.runner.timer.info().device.identity.platform == "cpu";
    let at_once = if is_cpu { std::thread::available_parallelism().map_or(1, usize::from) } else { 1 };
    // the base and its copy were compiled one by one, unless they were stored
    let one = time_breakdown.compile_baselines_ns.max(time_breakdown.compile_candidates_ns) as f64;
    let seconds = |ns: f64| format!("{:.0} s", (ns / 1e9).ceil());
    let compiling = seconds(one * values as f64 / at_once as f64);
    let running = seconds(base_ns * values as f64 * f64::from(races.options.usual_rounds()));
    let compiling = if one > 0.0 { format!("about {compiling} to compile, and ") } else { String::new() };
    format!("{}: {compiling}up to {running} to run if no two have the same code", number_of(values, "option value"))
}
