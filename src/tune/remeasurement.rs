//! One config beside the baseline, measured again regardless of what is known about it, for the check of a cached
//! config.

use crate::config::Config;
use crate::decision::Round;
use crate::digest::FieldHasher;
use crate::failure::{Failure, FailureKind};
use crate::race::{JobEvidence, JobIdentity, RaceError, Runner};
use crate::registry::Invocation;
use crate::samples::JobRecord;

use super::TimeBreakdown;
use super::choices::only;
use super::job::InputFolder;
use super::time_breakdown::{Tally, time_breakdown};
use super::tuner::{Autotuner, Extent};

/// Candidates of the job: the baseline, and the config measured beside it.
const BASELINE: usize = 0;
const CONFIG: usize = 1;

/// The measurements of one config beside the baseline.
pub struct Remeasurement {
    invocation: Invocation,
    input_folder: InputFolder,
    identity: JobIdentity,
    evidence: JobEvidence,
    series: u32,
    time_breakdown: TimeBreakdown,
}

impl Remeasurement {
    /// Where the time went.
    pub fn time_breakdown(&self) -> TimeBreakdown {
        self.time_breakdown
    }
}

impl Autotuner<'_> {
    /// As [`Session::remeasure`](super::Session::remeasure).
    pub(super) fn remeasure(&self, invocation: &Invocation, config: &Config) -> Result<Remeasurement, RaceError> {
        let invocation = only(invocation, [invocation.baseline.clone(), config.clone()]);
        let mut identity = self
            .identity(&invocation)
            .map_err(|reason| RaceError::Failed(Failure::new(FailureKind::Protocol, reason)))?;
        identity.digest = FieldHasher::new("again-v1").field(identity.digest.as_bytes()).finish();
        let input_folder = InputFolder::new(&invocation, self.registry)?.map_err(RaceError::Failed)?;
        let (evidence, time_breakdown) = (JobEvidence::default(), TimeBreakdown::default());
        Ok(Remeasurement { invocation, input_folder, identity, evidence, series: 0, time_breakdown })
    }

    /// As [`Session::measure_series`](super::Session::measure_series).
    pub(super) fn measure_series(
        &mut self,
        remeasurement: &mut Remeasurement,
    ) -> Result<Result<Vec<Round>, Failure>, RaceError> {
        if remeasurement.series == 0 {
            let job = self.job_record(&remeasurement.invocation, &remeasurement.identity);
            remeasurement.evidence.log_job(self.ledger, || JobRecord { fresh: true, ..job })?;
        } else {
            Runner::new(&mut *self.timer, self.ledger, self.cancel, &self.events).start_fresh_process()?;
        }
        remeasurement.series += 1;
        let rounds = self.options.race.usual_rounds().saturating_mul(remeasurement.series);
        let options = self.options.race.clone().rounds(Some(rounds)).without_verdict();
        let (events, tally) = Tally::of(&self.events);
        let measured = self.measure_at(
            &events,
            &remeasurement.input_folder,
            (&options, Extent::Exact),
            (&remeasurement.invocation, &remeasurement.identity),
            &mut remeasurement.evidence,
        );
        remeasurement.time_breakdown += time_breakdown(&tally);
        measured?;
        let evidence = &remeasurement.evidence;
        Ok(match evidence.failures.get(&CONFIG) {
            Some(failure) => Err(failure.clone()),
            None => Ok(evidence.to_decision(2, BASELINE)),
        })
    }
}
