//! One config beside the baseline, measured again regardless of what is known about it, for the check of a cached
//! config.

use crate::config::Config;
use crate::decision::{DecisionRules, Round};
use crate::digest::FieldHasher;
use crate::failure::{Failure, FailureKind};
use crate::registry::Invocation;
use crate::samples::Record;

use super::choices::only;
use super::copies::CopiesError;
use super::job::{InputFolder, JobIdentity};
use super::rounds::JobRounds;
use super::time_breakdown::{Tally, time_breakdown};
use super::tuner::{Autotuner, Extent};
use super::{TimeBreakdown, TuneOptions};

/// Candidates of the job: the baseline, and the config measured beside it.
const BASELINE: usize = 0;
const CONFIG: usize = 1;

/// The measurements of one config beside the baseline.
pub struct Remeasurement {
    invocation: Invocation,
    input_folder: InputFolder,
    identity: JobIdentity,
    rounds: JobRounds,
    series: u32,
    time_breakdown: TimeBreakdown,
}

impl Remeasurement {
    /// All rounds so far: candidate 0 is the baseline, candidate 1 the config.
    pub fn rounds(&self) -> Vec<Round> {
        self.rounds.to_decision(2, BASELINE)
    }

    /// The config's failure; `None` while it runs.
    pub fn failure(&self) -> Option<&Failure> {
        self.rounds.failures.get(&CONFIG)
    }

    /// Where the time went.
    pub fn time_breakdown(&self) -> TimeBreakdown {
        self.time_breakdown
    }
}

impl Autotuner<'_> {
    /// As [`Session::remeasure`](super::Session::remeasure).
    pub(super) fn remeasure(&self, invocation: &Invocation, config: &Config) -> Result<Remeasurement, CopiesError> {
        let invocation = only(invocation, [invocation.baseline.clone(), config.clone()]);
        let mut identity = self
            .identity(&invocation)
            .map_err(|reason| CopiesError::Failed(Failure::new(FailureKind::Protocol, reason)))?;
        identity.digest = FieldHasher::new("again-v1").field(identity.digest.as_bytes()).finish();
        let input_folder = InputFolder::new(&invocation, self.registry)?.map_err(CopiesError::Failed)?;
        let (rounds, time_breakdown) = (JobRounds::default(), TimeBreakdown::default());
        Ok(Remeasurement { invocation, input_folder, identity, rounds, series: 0, time_breakdown })
    }

    /// As [`Session::measure_series`](super::Session::measure_series).
    pub(super) fn measure_series(&mut self, remeasurement: &mut Remeasurement) -> Result<(), CopiesError> {
        if remeasurement.series == 0 {
            let mut job = self.job_record(&remeasurement.invocation, &remeasurement.identity);
            job.fresh = true;
            self.ledger.append(&Record::Job(Box::new(job)))?;
        } else {
            self.timer.restart(&[]).map_err(CopiesError::Failed)?;
        }
        remeasurement.series += 1;
        let rounds = Some(self.options.usual_rounds().saturating_mul(remeasurement.series));
        let options = TuneOptions {
            rounds,
            rules: DecisionRules::ALL_ROUNDS,
            resolution: Default::default(),
            ..self.options.clone()
        };
        let (events, tally) = Tally::of(&self.events);
        let measured = self.measure_at(
            &events,
            &remeasurement.input_folder,
            (&options, Extent::Exact),
            (&remeasurement.invocation, &remeasurement.identity),
            &mut remeasurement.rounds,
        );
        remeasurement.time_breakdown += time_breakdown(&tally);
        Ok(measured.map(drop)?)
    }
}
