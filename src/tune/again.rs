//! One config beside the baseline, measured again regardless of what is known about it, for the check of a cached
//! config.

use crate::config::Config;
use crate::decision::Round;
use crate::digest::FieldHasher;
use crate::failure::{Failure, FailureKind};
use crate::registry::Invocation;
use crate::samples::Record;

use super::choices::only;
use super::copies::{ALL_ROUNDS, CopiesError};
use super::job::{JobIdentity, Workplace};
use super::rounds::JobRounds;
use super::spent::{Tally, spent};
use super::tuner::{Autotuner, Extent};
use super::{Spent, TuneOptions};

/// Candidates of the job: the baseline, and the config measured beside it.
const BASELINE: usize = 0;
const CONFIG: usize = 1;

/// The measurements of one config beside the baseline.
pub struct Again {
    invocation: Invocation,
    workplace: Workplace,
    identity: JobIdentity,
    rounds: JobRounds,
    series: u32,
    spent: Spent,
}

impl Again {
    /// All rounds so far: candidate 0 is the baseline, candidate 1 the config.
    pub fn rounds(&self) -> Vec<Round> {
        self.rounds.to_decision(2, BASELINE)
    }

    /// The config's failure; `None` while it runs.
    pub fn failure(&self) -> Option<&Failure> {
        self.rounds.failures.get(&CONFIG)
    }

    /// Where the time went.
    pub fn spent(&self) -> Spent {
        self.spent
    }
}

impl Autotuner<'_> {
    /// As [`Session::again`](super::Session::again).
    pub(super) fn again(&self, invocation: &Invocation, config: &Config) -> Result<Again, CopiesError> {
        let invocation = only(invocation, [invocation.baseline.clone(), config.clone()]);
        let mut identity = self
            .identity(&invocation)
            .map_err(|reason| CopiesError::Failed(Failure::new(FailureKind::Protocol, reason)))?;
        identity.digest = FieldHasher::new("again-v1").field(identity.digest.as_bytes()).finish();
        let workplace = Workplace::new(&invocation, self.registry)?.map_err(CopiesError::Failed)?;
        let (rounds, spent) = (JobRounds::default(), Spent::default());
        Ok(Again { invocation, workplace, identity, rounds, series: 0, spent })
    }

    /// As [`Session::measure_series`](super::Session::measure_series).
    pub(super) fn measure_series(&mut self, again: &mut Again) -> Result<(), CopiesError> {
        if again.series == 0 {
            let mut job = self.job_record(&again.invocation, &again.identity);
            job.fresh = true;
            self.ledger.append(&Record::Job(Box::new(job)))?;
        } else {
            self.timer.restart(&[]).map_err(CopiesError::Failed)?;
        }
        again.series += 1;
        let rounds = Some(self.options.usual_rounds().saturating_mul(again.series));
        let options = TuneOptions { rounds, rules: ALL_ROUNDS, resolution: Default::default(), ..self.options.clone() };
        let (events, tally) = Tally::of(&self.events);
        let measured = self.measure_at(
            &events,
            &again.workplace,
            (&options, Extent::Exact),
            (&again.invocation, &again.identity),
            &mut again.rounds,
        );
        again.spent += spent(&tally);
        Ok(measured.map(drop)?)
    }
}
