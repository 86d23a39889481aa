//! The races of one module: jobs of variants on one timer.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::OPERATION;
use super::variant::Variant;
use crate::call::{Call, Direction};
use crate::counted::counted as number_of;
use crate::decision::{DecisionRules, Round};
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::ledger::Ledger;
use crate::measure::MeasureError;
use crate::timer::events::Events;
use crate::timer::{Build, InputArray, Job, JobCandidate, ProgramFile, Signature, Timer};
use crate::tune::{CopiesError, ProgramRace, Raced, TimeBreakdown, TuneError, TuneOptions, race_programs};

/// A timer, and everything else that a race of a module's variants needs.
pub(super) struct Races<'a> {
    pub(super) timer: &'a mut dyn Timer,
    pub(super) ledger: &'a Ledger,
    pub(super) options: &'a TuneOptions,
    pub(super) cancel: &'a AtomicBool,
    pub(super) events: &'a Events,
    pub(super) program: &'a ProgramFile,
    pub(super) call: Call,
    pub(super) inputs: Vec<InputArray>,
    pub(super) inputs_digest: Digest,
    /// The names of its results.
    pub(super) results: Vec<String>,
    /// By output, the largest difference of the default from its copy. A set may differ by as much.
    pub(super) slack: Vec<f64>,
    pub(super) scratch: &'a Path,
    /// When the time is over.
    pub(super) until: Option<Instant>,
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

/// Why there is no result.
pub(super) enum Aborted {
    Failed(Failure),
    Interrupted,
    Fatal(TuneError),
    Inputs(MeasureError),
}

impl From<CopiesError> for Aborted {
    fn from(error: CopiesError) -> Self {
        match error {
            CopiesError::Failed(failure) => Self::Failed(failure),
            CopiesError::Interrupted => Self::Interrupted,
            CopiesError::Fatal(error) => Self::Fatal(error),
        }
    }
}

impl From<Failure> for Aborted {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<MeasureError> for Aborted {
    fn from(error: MeasureError) -> Self {
        match error {
            MeasureError::Failed(failure) => Self::Failed(failure),
            error => Self::Inputs(error),
        }
    }
}

impl From<crate::ledger::LedgerError> for Aborted {
    fn from(error: crate::ledger::LedgerError) -> Self {
        Self::Fatal(error.into())
    }
}

impl Races<'_> {
    /// A job of variants. A second variant with the same options is compiled again.
    pub(super) fn job(&self, variants: &[Variant]) -> Job {
        let candidate = |(index, variant): (usize, &Variant)| {
            let earlier = variants.iter().take(index).filter(|other| other.set == variant.set).count();
            let copy = u32::try_from(earlier).unwrap_or(u32::MAX);
            let Variant { overrides, process, .. } = variant.clone();
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
    pub(super) fn signature(&mut self, base: &Variant, others: &[Variant]) -> Result<Signature, Aborted> {
        let variants: Vec<Variant> = std::iter::once(base).chain(others).cloned().collect();
        let job = self.job(&variants);
        let mut failures: Vec<Failure> = Vec::new();
        for candidate in 0..variants.len() {
            if let Some(why) = self.gives_up(&failures)? {
                return Err(without_rescue(failures, why).into());
            }
            let timer = &mut *self.timer;
            timer.begin(&job)?;
            match timer.signature(candidate) {
                Ok(Some(signature)) => {
                    timer.end();
                    return Ok(signature);
                }
                Ok(None) => {
                    let message = format!("the timer `{}` does not report the module's inputs", timer.info().name);
                    return Err(Failure::new(FailureKind::Signature, message).into());
                }
                Err(failure) => {
                    if failure.needs_restart() {
                        timer.restart(&[])?;
                    }
                    failures.push(failure);
                }
            }
        }
        Err(without_rescue(failures, NONE_RUNS).into())
    }

    /// Why nothing else is tried after this many failures.
    pub(super) fn gives_up(&self, failures: &[Failure]) -> Result<Option<&'static str>, Aborted> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Aborted::Interrupted);
        }
        if failures.is_empty() {
            return Ok(None);
        }
        let hung = failures.iter().filter(|failure| failure.kind == FailureKind::Timeout).count();
        Ok(match hung {
            MOST_HANGS.. => Some("others hang, too"),
            _ if self.is_late() => Some("the time was used up before one ran"),
            _ => None,
        })
    }

    /// Races variants. The others are compared with the first one.
    pub(super) fn race(&mut self, variants: &[Variant], rules: &Rules<'_>) -> Result<Raced, Aborted> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut options = TuneOptions { force: rules.is_fresh, budget: left, stop_at: None, ..self.options.clone() };
        if let Some(rounds) = rules.exact {
            options = TuneOptions {
                rounds: Some(rounds),
                rules: DecisionRules::ALL_ROUNDS,
                resolution: Default::default(),
                ..options
            };
        }
        let race = ProgramRace {
            joins_executables: rules.joins,
            is_exact: rules.exact.is_some(),
            slack: self.slack.clone(),
            ..ProgramRace::new(self.job(variants), self.inputs_digest, rules.stage)
        };
        Ok(race_programs(self.timer, self.ledger, &race, &options, self.cancel, self.events)?)
    }

    /// Whether the time is over.
    pub(super) fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// The call of a module.
pub(super) fn call(digest: Digest) -> Call {
    Call::new(OPERATION, digest.to_string())
}

/// The rounds that count.
pub(super) fn counted(raced: &Raced) -> Vec<&Round> {
    let aside = &raced.judgement.race_state.disturbance.set_aside;
    raced.rounds.iter().enumerate().filter(|(number, _)| !aside.contains(number)).map(|(_, round)| round).collect()
}

/// Minimum time for the last rounds if there is no budget. They may take a third of the time spent before, and at least this.
const LEAST_LAST: Duration = Duration::from_secs(10);

pub(super) fn time_for_last(since: Instant) -> Duration {
    LEAST_LAST.max(since.elapsed() / 3)
}

/// One line that forecasts the time for this many values from the base's compile time and run time.
pub(super) fn forecast(races: &Races<'_>, time_breakdown: &TimeBreakdown, base_ns: f64, values: usize) -> String {
    let is_cpu = races.timer.info().device.identity.platform == "cpu";
    let at_once = if is_cpu { std::thread::available_parallelism().map_or(1, usize::from) } else { 1 };
    // the base and its copy were compiled one by one, unless they were stored
    let one = time_breakdown.compile_baselines_ns.max(time_breakdown.compile_candidates_ns) as f64;
    let seconds = |ns: f64| format!("{:.0} s", (ns / 1e9).ceil());
    let compiling = seconds(one * values as f64 / at_once as f64);
    let running = seconds(base_ns * values as f64 * f64::from(races.options.usual_rounds()));
    let compiling = if one > 0.0 { format!("about {compiling} to compile, and ") } else { String::new() };
    format!("{}: {compiling}up to {running} to run if no two have the same code", number_of(values, "option value"))
}
