//! A block of programs that fresh processes measure, one after the other, when the caller says so.

use super::confirming::confirm_once;
use super::evidence::JobEvidence;
use super::program_race::{ProgramRace, candidate_record};
use super::{JobIdentity, RaceError, RaceOptions, Referee, Runner};
use crate::decision::{ProcessRatio, ProcessTime, process_times};
use crate::ledger::{Ledger, LedgerError};
use crate::stats::median;
use crate::timer::Timer;

/// The programs, and their samples in the log.
pub(crate) struct BlockRace {
    race: ProgramRace,
    identity: JobIdentity,
    /// They drop no candidate.
    options: RaceOptions,
}

/// What processes say of a block.
#[derive(Debug, Default)]
pub(crate) struct BlockTimes {
    /// The time of its first program in each process.
    pub(crate) first: Vec<ProcessTime>,
    /// The ratio to that of each other program.
    pub(crate) others: Vec<Vec<ProcessRatio>>,
    /// Median of each program's samples in all of them, nanoseconds.
    pub(crate) median_ns: Vec<Option<f64>>,
}

impl BlockRace {
    /// Enters it in the log, which forgets earlier samples of it if they are to be measured again. `timer` says for which
    /// devices and compilers the block's samples are.
    pub(crate) fn new(
        race: ProgramRace,
        timer: &dyn Timer,
        options: &RaceOptions,
        ledger: &Ledger,
    ) -> Result<Self, LedgerError> {
        let by = timer.info().measured_by(&options.cache_state);
        let digest = options.tolerances.in_digest(race.digest(timer, &by));
        let identity = JobIdentity::of_programs(&race.job, digest, timer);
        let mut evidence = JobEvidence::stored(ledger, digest, options.force)?;
        let candidates = race.job.candidates.iter().map(candidate_record);
        evidence.log_job(ledger, || identity.record(timer, by, candidates, options.force))?;
        Ok(Self { race, identity, options: options.clone().without_verdict() })
    }

    /// What the log holds.
    pub(crate) fn known(&self, ledger: &Ledger) -> Result<BlockTimes, LedgerError> {
        Ok(self.times(&JobEvidence::stored(ledger, self.identity.digest, false)?))
    }

    /// Measures the block once, in the timer's process, which the caller has just started.
    pub(crate) fn measure(&self, runner: &mut Runner<'_>) -> Result<(), RaceError> {
        let mut evidence = JobEvidence::stored(runner.ledger, self.identity.digest, false)?;
        let others: Vec<usize> = self.others().filter(|one| !evidence.failures.contains_key(one)).collect();
        confirm_once(runner.borrowed(), &self.race.job, self.referee(), &others, &mut evidence)
    }

    fn times(&self, evidence: &JobEvidence) -> BlockTimes {
        let (count, first) = (self.race.job.candidates.len(), self.identity.baseline);
        let rounds = evidence.confirming_to_decision(count, first);
        let samples = |program: usize| rounds.iter().filter_map(|round| round.sample_ns(program)).collect::<Vec<_>>();
        BlockTimes {
            first: process_times(&rounds, first),
            others: self.others().map(|other| self.referee().processes(evidence, other)).collect(),
            median_ns: (0..count).map(|program| median(&samples(program))).collect(),
        }
    }

    fn others(&self) -> std::ops::Range<usize> {
        1..self.race.job.candidates.len()
    }

    fn referee(&self) -> Referee<'_> {
        Referee { options: &self.options, identity: &self.identity, terms: self.race.terms() }
    }
}
