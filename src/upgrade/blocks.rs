//! One call's programs as processes measure them. On a device that both compilers' processes may hold, one race has all
//! of them. On one that a process holds alone, those of each compiler are a block of their own, and a process measures one
//! block.

use crate::decision::{ProcessRatio, ProcessTime};
use crate::ledger::{Ledger, LedgerError};
use crate::race::{BlockRace, BlockTimes, ProgramRace, RaceError, RaceOptions, Runner};

use super::compilers::{NEW, OLD};

/// The blocks.
pub(super) enum Blocks {
    /// One, of both compilers' programs.
    Together(Box<BlockRace>),
    /// The new compiler's, and the old one's.
    Apart(Box<[BlockRace; 2]>),
}

/// What pairs of processes say.
pub(super) struct KnownBlocks {
    /// Of each candidate but the first, beside that one.
    pub(super) ratios: Vec<Vec<ProcessRatio>>,
    /// Median times of the first config, nanoseconds.
    pub(super) new_ns: Option<f64>,
    pub(super) old_ns: Option<f64>,
}

impl Blocks {
    /// One block, of a race that has begun.
    pub(super) fn together(
        race: &ProgramRace,
        runner: &Runner<'_>,
        options: &RaceOptions,
    ) -> Result<Self, LedgerError> {
        let options = options.clone().force(false);
        Ok(Self::Together(Box::new(BlockRace::new(race.clone(), &*runner.timer, &options, runner.ledger)?)))
    }

    /// The blocks of a race whose candidates are a config's program under the new compiler and under the old one, in
    /// turn.
    pub(super) fn apart(race: &ProgramRace, runner: &Runner<'_>, options: &RaceOptions) -> Result<Self, LedgerError> {
        let block = |side: usize, name: &str| {
            let mut own = race.clone();
            own.job.candidates = race.job.candidates.iter().skip(side).step_by(2).cloned().collect();
            own.stage = format!("{} {name}", race.stage);
            BlockRace::new(own, &*runner.timer, options, runner.ledger)
        };
        Ok(Self::Apart(Box::new([block(NEW, "new")?, block(OLD, "old")?])))
    }

    pub(super) fn are_apart(&self) -> bool {
        matches!(self, Self::Apart(_))
    }

    /// Measures in the process that runs now: the block of its compiler, if it is that of one alone.
    pub(super) fn measure(&self, runner: &mut Runner<'_>, side: usize) -> Result<(), RaceError> {
        match self {
            Self::Together(all) => all.measure(runner),
            Self::Apart(both) => {
                let [new, old] = &**both;
                (if side == NEW { new } else { old }).measure(runner)
            }
        }
    }

    /// What they say together.
    pub(super) fn known(&self, ledger: &Ledger) -> Result<KnownBlocks, LedgerError> {
        Ok(match self {
            Self::Together(all) => {
                let known = all.known(ledger)?;
                let (new_ns, old_ns) = (median(&known, NEW), median(&known, OLD));
                KnownBlocks { ratios: known.others, new_ns, old_ns }
            }
            Self::Apart(both) => {
                let [new, old] = &**both;
                let (new, old) = (new.known(ledger)?, old.known(ledger)?);
                KnownBlocks { ratios: side_by_side(&new, &old), new_ns: median(&new, 0), old_ns: median(&old, 0) }
            }
        })
    }
}

fn median(known: &BlockTimes, program: usize) -> Option<f64> {
    known.median_ns.get(program).copied().flatten()
}

/// The ratios that a race of both would give, whose first candidate is the new block's first.
fn side_by_side(new: &BlockTimes, old: &BlockTimes) -> Vec<Vec<ProcessRatio>> {
    let pairs: Vec<(&ProcessTime, &ProcessTime)> = new.first.iter().zip(&old.first).collect();
    let to_new = |(new, old): &(&ProcessTime, &ProcessTime)| new.over(old).inverse();
    let first_old = pairs.iter().map(to_new).collect();
    // a block measures every config beside its own first one
    let other_old = |ratios: &[ProcessRatio]| {
        let of_pair = |pair: &(&ProcessTime, &ProcessTime)| {
            let own = ratios.iter().find(|ratio| ratio.epoch == pair.1.epoch)?;
            Some(to_new(pair).times(own))
        };
        pairs.iter().filter_map(of_pair).collect::<Vec<_>>()
    };
    let others = new.others.iter().zip(&old.others).flat_map(|(new, old)| [new.clone(), other_old(old)]);
    std::iter::once(first_old).chain(others).collect()
}
