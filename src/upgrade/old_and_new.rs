//! One call's programs under both compilers.

use crate::config::Config;
use crate::decision::{ProcessQuestion, ProcessRatio, ProcessSpread, quotients};
use crate::digest::{Digest, FieldHasher};
use crate::failure::{Failure, FailureKind};
use crate::ledger::{Ledger, LedgerError};
use crate::race::{BASELINE_FAILED, ProgramRace, RaceError, RaceGoal, RaceOptions, Runner, race_programs};
use crate::registry::{Invocation, Program, Registry};
use crate::timer::Job;
use crate::tune::{InputFolder, TuneError, materialize, only};

use super::blocks::{Blocks, KnownBlocks};
use super::change::{Change, Shift};
use super::compilers::{NEW, OLD};

/// Rounds of the process that compares outputs. It decides nothing.
const FIRST_ROUNDS: u32 = 6;
/// The same if each round starts both compilers' processes.
const FIRST_ROUNDS_APART: u32 = 1;

/// Candidates of the job. The first one is what all are measured beside.
const IN_FORCE_OLD: usize = 1;

/// The configs of a call that are measured under both compilers. Each of them is under both, so that both processes run
/// as often: the one that runs less often is slower.
#[derive(Debug, Clone)]
pub(super) struct Configs<'a> {
    pub(super) in_force: &'a Config,
    /// The baseline, if it is another one.
    pub(super) baseline: Option<&'a Config>,
    /// The best one, if it is neither.
    pub(super) best: Option<&'a Config>,
}

/// A recorded call.
#[derive(Clone, Copy)]
pub(super) struct Recorded<'a> {
    pub(super) invocation: &'a Invocation,
    pub(super) registry: &'a Registry,
}

impl<'a> Recorded<'a> {
    /// The program of a config.
    pub(super) fn program(&self, config: &Config) -> Option<&'a Program> {
        self.invocation.candidates.iter().find(|one| one.config == *config)?.program.as_ref()
    }
}

/// What was measured of a call.
pub(super) struct Measured {
    /// Median times of the config in force, nanoseconds.
    pub(super) old_ns: Option<f64>,
    pub(super) new_ns: Option<f64>,
    /// Whether more pairs of processes could change the verdict.
    pub(super) is_open: bool,
    /// What each process says of any candidate.
    pub(super) pairs: Vec<ProcessRatio>,
    /// `None` if no pair measured them.
    pub(super) changes: Option<Changes>,
}

/// How times changed.
pub(super) struct Changes {
    /// The time of the config in force under the new compiler over that under the old one.
    pub(super) in_force: Change,
    /// The same of the baseline.
    pub(super) baseline: Option<Change>,
    /// The best config, or else the baseline.
    pub(super) other: Option<OtherConfig>,
}

/// How another config's times compare.
pub(super) struct OtherConfig {
    /// Its time over that of the config in force, under the new compiler.
    pub(super) to_in_force: Change,
    /// Its time under the new compiler over that of the config in force under the old one.
    pub(super) to_old: Change,
    /// Its time under the new compiler over that under the old one.
    pub(super) change: Change,
}

impl Changes {
    /// Whether further pairs of processes could change the verdict.
    fn is_open(&self) -> bool {
        let is_open = |change: &Change| change.shift == Shift::Open;
        is_open(&self.in_force) || self.other.as_ref().is_some_and(|other| is_open(&other.to_in_force))
    }
}

impl NotMeasured {
    /// No pair of processes said anything.
    pub(super) fn no_pair() -> Self {
        let message = "no pair of processes measured it: allow some with `--processes`, or more time";
        Self::Unknown(Failure::new(FailureKind::Timeout, message))
    }
}

/// Why a call has no verdict by its times.
pub(super) enum NotMeasured {
    /// It fails under the new compiler and runs under the old one, or computes something else.
    Breaks(Failure),
    /// It does not run under the old one, or cannot be measured for another reason.
    Unknown(Failure),
}

/// One call's programs, and its inputs.
pub(super) struct OldAndNew {
    race: ProgramRace,
    /// The candidates that are the baseline and the best config, each under the new compiler and under the old one.
    baseline: Option<(usize, usize)>,
    best: Option<(usize, usize)>,
    _inputs: InputFolder,
}

impl OldAndNew {
    /// Reads the programs of these configs, as they were recorded for each compiler. The inner error costs this call,
    /// the outer one the run.
    pub(super) fn new(
        (old, new): (Recorded<'_>, Recorded<'_>),
        configs: &Configs<'_>,
        stage: &str,
        options: &RaceOptions,
    ) -> Result<Result<Self, Failure>, TuneError> {
        let invocation = old.invocation;
        let specs = |of: Recorded<'_>| of.invocation.arguments.iter().map(|one| one.spec.clone()).collect::<Vec<_>>();
        if specs(old) != specs(new) {
            let message = "the two recordings take other arguments: record the same program in both environments";
            return Ok(Err(Failure::new(FailureKind::Signature, message)));
        }
        let inputs = match InputFolder::new(invocation, old.registry)? {
            Ok(inputs) => inputs,
            Err(failure) => return Ok(Err(failure)),
        };
        let all = [Some(configs.in_force), configs.baseline, configs.best];
        let job_of = |of: Recorded<'_>| {
            let recorded = only(of.invocation, all.into_iter().flatten().cloned());
            materialize(&recorded, of.registry, options.cache_state.clone(), &inputs).job
        };
        let (job, of_new) = (job_of(old), job_of(new));
        let mut candidates = Vec::new();
        let mut add = |config: &Config| -> Result<(usize, usize), Failure> {
            let first = candidates.len();
            for (job, timer, which) in [(&of_new, NEW, "new"), (&job, OLD, "old")] {
                let program = job.candidates.iter().find(|one| one.config == *config && one.program.is_some());
                let program = program.ok_or_else(|| {
                    let message = format!("no program of {config} is recorded for the {which} compiler: record again");
                    Failure::new(FailureKind::NoProgram, message)
                })?;
                candidates.push(program.clone().timer(timer));
            }
            Ok((first, first + 1))
        };
        let places = add(configs.in_force)
            .and_then(|_| Ok((configs.baseline.map(&mut add).transpose()?, configs.best.map(&mut add).transpose()?)));
        let (baseline, best) = match places {
            Ok(places) => places,
            Err(failure) => return Ok(Err(failure)),
        };
        let job = Job { candidates, ..job };
        let mut race = ProgramRace::new(job, digest_of_inputs(invocation), stage);
        race.fills = invocation.arguments.iter().map(|argument| Some(argument.fill.clone())).collect();
        race.tolerance = invocation.tolerance;
        (race.is_exact, race.no_sentinels) = (true, true);
        race.goal = RaceGoal::EveryRound;
        Ok(Ok(Self { race, baseline, best, _inputs: inputs }))
    }

    /// Compares the programs' outputs, in processes whose times decide nothing, and says how further ones measure. Where
    /// each program starts a process of its compiler, those of the config in force alone are compared: tuning compared
    /// the others with each other.
    pub(super) fn begin(
        &self,
        runner: &mut Runner<'_>,
        options: &RaceOptions,
        are_apart: bool,
    ) -> Result<Result<Blocks, NotMeasured>, RaceError> {
        let (mut race, mut rounds) = (self.race.clone(), FIRST_ROUNDS);
        if are_apart {
            race.job.candidates.truncate(IN_FORCE_OLD + 1);
            rounds = FIRST_ROUNDS_APART;
        }
        if let Err(why) = self.compare(runner, &race, &options.clone().rounds(Some(rounds)))? {
            return Ok(Err(why));
        }
        let blocks = if are_apart { Blocks::apart } else { Blocks::together };
        Ok(Ok(blocks(&self.race, runner, options)?))
    }

    fn compare(
        &self,
        runner: &mut Runner<'_>,
        race: &ProgramRace,
        first: &RaceOptions,
    ) -> Result<Result<(), NotMeasured>, RaceError> {
        let raced = match race_programs(runner, race, first) {
            Ok(raced) => raced,
            Err(RaceError::Failed(failure)) => return self.blame(runner, first, failure).map(Err),
            Err(error) => return Err(error),
        };
        Ok(raced.failures.get(&IN_FORCE_OLD).map_or(Ok(()), |failure| {
            Err(match failure.kind {
                FailureKind::WrongOutput => NotMeasured::Breaks(other_outputs(failure)),
                _ => NotMeasured::Unknown(under("old", failure)),
            })
        }))
    }

    /// What pairs of processes say so far.
    pub(super) fn look_at(
        &self,
        (blocks, ledger): (&Blocks, &Ledger),
        options: &RaceOptions,
        question: &ProcessQuestion,
    ) -> Result<Measured, LedgerError> {
        let KnownBlocks { ratios, new_ns, old_ns } = blocks.known(ledger)?;
        let spreads = Spreads { options, are_blocks: blocks.are_apart() };
        let changes = self.changes(&ratios, spreads, question);
        let is_open = changes.as_ref().is_none_or(Changes::is_open);
        Ok(Measured { old_ns, new_ns, is_open, pairs: ratios.concat(), changes })
    }

    /// What pairs of processes say, by candidate but the first; `None` if there are none.
    fn changes(
        &self,
        known: &[Vec<ProcessRatio>],
        spreads: Spreads<'_>,
        question: &ProcessQuestion,
    ) -> Option<Changes> {
        let processes = |candidate: usize| -> &[ProcessRatio] {
            candidate.checked_sub(1).and_then(|place| known.get(place)).map_or(&[], Vec::as_slice)
        };
        let of_old = processes(IN_FORCE_OLD);
        let [within, across] = spreads.of(of_old);
        let change = |pairs: Vec<ProcessRatio>| Change::of(pairs, &[across], question);
        let both = |(new, old): (usize, usize)| change(quotients(processes(new), processes(old)));
        let other = |(new, old): (usize, usize)| {
            let own = processes(new);
            let to_old = change(quotients(own, of_old))?;
            let to_in_force = Change::of(own.to_vec(), &[within], question)?;
            Some(OtherConfig { to_in_force, to_old, change: both((new, old))? })
        };
        Some(Changes {
            in_force: change(of_old.iter().map(|one| one.inverse()).collect())?,
            baseline: self.baseline.and_then(both),
            other: self.best.or(self.baseline).and_then(other),
        })
    }

    /// Whether the new compiler is at fault: then the program runs under the old one.
    fn blame(
        &self,
        runner: &mut Runner<'_>,
        options: &RaceOptions,
        failure: Failure,
    ) -> Result<NotMeasured, RaceError> {
        let mut alone = self.race.clone();
        let old = self.race.job.candidates.get(IN_FORCE_OLD).cloned();
        alone.job.candidates = old.into_iter().collect();
        runner.start_fresh_process()?;
        match race_programs(runner, &alone, options) {
            // another recording may be readable
            Ok(_) if failure.kind == FailureKind::Unreadable => Ok(NotMeasured::Unknown(under("new", &failure))),
            Ok(_) => Ok(NotMeasured::Breaks(under("new", &failure))),
            Err(RaceError::Failed(_)) => Ok(NotMeasured::Unknown(under("new and under the old", &failure))),
            Err(error) => Err(error),
        }
    }
}

/// What is assumed of the spread between processes.
#[derive(Clone, Copy)]
struct Spreads<'o> {
    options: &'o RaceOptions,
    are_blocks: bool,
}

impl Spreads<'_> {
    /// Of ratios within a process, and between two.
    fn of(self, processes: &[ProcessRatio]) -> [ProcessSpread; 2] {
        let within = self.options.spread_of(processes);
        [within, if self.are_blocks { within.one_after_the_other() } else { within }]
    }
}

/// Digest of what the call's inputs are made from.
fn digest_of_inputs(invocation: &Invocation) -> Digest {
    let arguments = serde_json::to_string(&invocation.arguments).unwrap_or_default();
    FieldHasher::new("upgrade inputs, 1").field(arguments.as_bytes()).finish()
}

fn under(which: &str, failure: &Failure) -> Failure {
    // of a race; here it is one of two programs
    let message = failure.message.strip_prefix(BASELINE_FAILED).unwrap_or(&failure.message);
    Failure::new(failure.kind.clone(), format!("under the {which} compiler: {message}"))
}

fn other_outputs(failure: &Failure) -> Failure {
    // the outputs of the old compiler were compared with those of the new one
    Failure::new(failure.kind.clone(), format!("the two compilers' programs return other values: {}", failure.message))
}
