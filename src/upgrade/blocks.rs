//! One call on a device that a process holds alone: its programs under the new compiler are a block, and those under the
//! old one another. A process measures one block, and blocks of the two compilers alternate.

use crate::decision::{ProcessRatio, ProcessTime};
use crate::ledger::{Ledger, LedgerError};
use crate::race::{BlockRace, BlockTimes, ProgramRace, RaceError, RaceOptions, Runner};
use crate::timer::Timer;

use super::compilers::{NEW, OLD};

/// What pairs of processes say, one for each block.
pub(super) struct KnownBlocks {
    /// Of each candidate but the first, beside that one.
    pub(super) ratios: Vec<Vec<ProcessRatio>>,
    /// Median times of the first config, nanoseconds.
    pub(super) new_ns: Option<f64>,
    pub(super) old_ns: Option<f64>,
}

/// Both blocks.
pub(super) struct Blocks([BlockRace; 2]);

impl Blocks {
    /// The blocks of a race whose candidates are a config's program under the new compiler and under the old one, in
    /// turn.
    pub(super) fn new(
        race: &ProgramRace,
        timer: &dyn Timer,
        options: &RaceOptions,
        ledger: &Ledger,
    ) -> Result<Self, LedgerError> {
        let block = |side: usize, name: &str| {
            let mut own = race.clone();
            own.job.candidates = race.job.candidates.iter().skip(side).step_by(2).cloned().collect();
            own.stage = format!("{} {name}", race.stage);
            BlockRace::new(own, timer, options, ledger)
        };
        Ok(Self([block(NEW, "new")?, block(OLD, "old")?]))
    }

    /// Measures one block in the process of its compiler's timer.
    pub(super) fn measure(&self, runner: &mut Runner<'_>, side: usize) -> Result<(), RaceError> {
        let Self([new, old]) = self;
        let block = if side == NEW { new } else { old };
        block.measure(runner)
    }

    /// What they say together.
    pub(super) fn known(&self, ledger: &Ledger) -> Result<KnownBlocks, LedgerError> {
        let Self([new, old]) = self;
        let (new, old) = (new.known(ledger)?, old.known(ledger)?);
        Ok(KnownBlocks { ratios: side_by_side(&new, &old), new_ns: new.first_ns, old_ns: old.first_ns })
    }
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
