//! Modules that do not run as they are. The sample log keeps the reason for the next run.

use super::module::{OptionModule, call};
use crate::call::Direction;
use crate::digest::{Digest, FieldHasher};
use crate::failure::{Failure, FailureKind};
use crate::ledger::Ledger;
use crate::race::{RaceError, RaceOptions};
use crate::samples::{CandidateRecord, FailureRecord, JobRecord, LogRecord};
use crate::timer::Timer;

/// What the failure belongs to: the search, the module, and how it was compiled and run.
fn job(timer: &dyn Timer, options: &RaceOptions, search: &str, module: &OptionModule) -> Digest {
    let device = &timer.info().device;
    let by = timer.info().measured_by(&options.cache_state);
    let mut hasher = FieldHasher::new("a module that does not run, of shared compiler options, 1");
    hasher.field(search.as_bytes()).field(module.program.identity().as_bytes());
    hasher.field(device.identity.to_digest().as_bytes());
    hasher.field(serde_json::to_string(&device.environment).unwrap_or_default().as_bytes());
    hasher.field(serde_json::to_string(&by).unwrap_or_default().as_bytes());
    hasher.finish()
}

/// Whether the next run would fail too. Limits on time and memory may change, and a device may come back.
pub(super) fn is_lasting(failure: &Failure) -> bool {
    let passes = [FailureKind::Timeout, FailureKind::Memory, FailureKind::Device, FailureKind::Protocol];
    !passes.contains(&failure.kind)
}

/// Marks a failure as already known.
pub(super) fn as_known(failure: &Failure) -> String {
    format!("{failure}; already known (`--force` tries it again)")
}

/// Why a module did not run the last time, unless it must be tried again.
pub(super) fn known_failure(
    (timer, ledger): (&dyn Timer, &Ledger),
    options: &RaceOptions,
    search: &str,
    module: &OptionModule,
) -> Result<Option<Failure>, RaceError> {
    if options.force {
        return Ok(None);
    }
    let mut failures = ledger.history(job(timer, options, search, module))?.failures;
    Ok(failures.pop().map(|record| record.failure))
}

/// Withdraws the stored failure of a module that runs now.
pub(super) fn forget_failure(
    (timer, ledger): (&dyn Timer, &Ledger),
    options: &RaceOptions,
    search: &str,
    module: &OptionModule,
) -> Result<(), RaceError> {
    if ledger.history(job(timer, options, search, module))?.failures.is_empty() {
        return Ok(());
    }
    Ok(ledger.append(&LogRecord::Job(Box::new(job_record(timer, options, search, module))))?)
}

/// Only records after this one count for the job.
fn job_record(timer: &dyn Timer, options: &RaceOptions, search: &str, module: &OptionModule) -> JobRecord {
    let job = job(timer, options, search, module);
    let key = module.key.as_ref().copied().unwrap_or_else(|_| module.program.digest());
    let base = CandidateRecord { config: module.base.to_config(), semantic_digest: Some(key) };
    let (device, by) = (timer.info().device.clone(), timer.info().measured_by(&options.cache_state));
    JobRecord::new(job, device, call(key), Direction::Forward, by, 0, vec![base]).fresh(true)
}

/// Stores why a module does not run.
pub(super) fn note_failure(
    (timer, ledger): (&dyn Timer, &Ledger),
    options: &RaceOptions,
    search: &str,
    module: &OptionModule,
    failure: &Failure,
) -> Result<(), RaceError> {
    let record = job_record(timer, options, search, module);
    let failed = FailureRecord::new(record.job, 0, failure.clone());
    ledger.append(&LogRecord::Job(Box::new(record)))?;
    Ok(ledger.append(&LogRecord::Failed(failed))?)
}
