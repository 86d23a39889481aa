//! Copies of one program against each other: rounds as the tuner takes them, but all of them, and nothing is decided.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use crate::cache::CacheKey;
use crate::decision::{DecisionRules, Round};
use crate::digest::Digest;
use crate::failure::Failure;
use crate::timer::events::Events;
use crate::timer::{Job, Timer};

use super::job::JobIdentity;
use super::measure::{Aborted, Measuring};
use super::rounds::JobRounds;
use super::{TuneError, TuneOptions};
use crate::ledger::{Ledger, LedgerError};

/// The measurements of the copies.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Copies {
    /// The rounds, with the first copy as their baseline.
    pub rounds: Vec<Round>,
    /// Copies that were dropped, and why.
    pub failures: BTreeMap<usize, Failure>,
}

/// Why there are no rounds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopiesError {
    /// The program, or the worker.
    #[error(transparent)]
    Failed(Failure),
    /// The user ended it.
    #[error("ended by the user")]
    Interrupted,
    /// Nothing can continue.
    #[error(transparent)]
    Fatal(#[from] TuneError),
}

impl From<LedgerError> for CopiesError {
    fn from(error: LedgerError) -> Self {
        Self::Fatal(error.into())
    }
}

impl From<Aborted> for CopiesError {
    fn from(ended: Aborted) -> Self {
        match ended {
            Aborted::Failed(failure) => Self::Failed(failure),
            Aborted::Interrupted => Self::Interrupted,
            Aborted::Fatal(error) => Self::Fatal(error),
        }
    }
}

/// Measures every candidate of a job in every round. Nothing is kept in any store.
///
/// # Errors
/// If the first copy or the worker fails, or the user ends it.
pub fn measure_copies(
    timer: &mut dyn Timer,
    job: &Job,
    options: &TuneOptions,
    cancel: &AtomicBool,
    events: &Events,
) -> Result<Copies, CopiesError> {
    let identity = JobIdentity {
        digest: Digest::of(job.call.call_key.as_bytes()),
        key: CacheKey {
            call: job.call.clone(),
            direction: job.direction,
            device: timer.info().device.identity.clone(),
        },
        baseline: 0,
        same_as: vec![None; job.candidates.len()],
        not_lowered: Default::default(),
    };
    let ledger = Ledger::in_memory(Vec::new());
    let options = TuneOptions { rules: DecisionRules::ALL_ROUNDS, resolution: Default::default(), ..options.clone() };
    let mut rounds = JobRounds::default();
    Measuring {
        timer,
        ledger: &ledger,
        options: &options,
        cancel,
        events,
        identity: &identity,
        job,
        rounds: &mut rounds,
        forgiven: Default::default(),
        round_forgiven: false,
        needs_finite: false,
        slack: &[],
        is_exact: false,
        compares: None,
        joins_executables: false,
        waves: None,
        seat: None,
        beside: 1,
        tried: 0,
        epochs: (0, 0),
        in_rounds: Default::default(),
        running: Default::default(),
        compiling: Default::default(),
    }
    .run()?;
    let decided = rounds.to_decision(job.candidates.len(), identity.baseline);
    Ok(Copies { rounds: decided, failures: rounds.failures })
}
