//! From a recorded invocation to a job: what makes its samples comparable, and the files that a worker needs.

use std::collections::HashMap;

use crate::cache::CacheKey;
use crate::device::DeviceFingerprint;
use crate::digest::{Digest, FieldHasher};
use crate::failure::{Failure, FailureKind};
use crate::measured_by::{CacheState, MeasuredBy};
use crate::registry::{Invocation, Program, Registry, RegistryError};
use crate::scratch::Scratch;
use crate::timer::{InputArray, Job, JobCandidate, ProgramFile};

use super::TuneError;
use crate::race::{JobIdentity, NotLowered, OutputTolerances};

/// Part of a job's digest: samples that were taken in another way are another job's.
const MEASURING_VERSION: &str = "job-v1";

/// The identity of an invocation measured this way on a device; fails with a reason if the baseline is not a
/// candidate.
pub(super) fn identity_of(
    invocation: &Invocation,
    device: &DeviceFingerprint,
    by: &MeasuredBy,
    tolerances: &OutputTolerances,
) -> Result<JobIdentity, String> {
    let baseline = invocation.candidates.iter().position(|candidate| candidate.config == invocation.baseline);
    let baseline = baseline.ok_or("the recorded baseline is not among the candidates; record it again")?;
    let mut hasher = FieldHasher::new(MEASURING_VERSION);
    hasher.field(device.identity.to_digest().as_bytes());
    hasher.field(environment_text(device).as_bytes());
    // the compiler is the environment's
    hasher.field(by.timer.as_bytes()).field(by.source.as_str().as_bytes());
    hasher.field(by.metric.as_str().as_bytes());
    hasher.field(invocation.call.op_id.as_bytes()).field(invocation.call.call_key.as_bytes());
    hasher.field(invocation.direction.to_string().as_bytes());
    hasher.field(serde_json::to_string(&invocation.arguments).unwrap_or_default().as_bytes());
    hasher.field(&(baseline as u64).to_le_bytes());
    for candidate in &invocation.candidates {
        hasher.field(candidate.config.as_str().as_bytes());
        let program = candidate.program.as_ref().map(|program| program.semantic_digest);
        hasher.field(program.as_ref().map(|digest| &digest.as_bytes()[..]).unwrap_or_default());
    }
    // nothing for warm ones, the usual case
    if !by.cache_state.is_warm() {
        hasher.field(by.cache_state.as_str().as_bytes());
    }
    // nothing for unlocked clocks either
    if let Some(clocks) = by.set_clocks() {
        hasher.field(b"clocks").field(&clocks.sm_mhz.to_le_bytes()).field(&clocks.memory_mhz.to_le_bytes());
    }
    // nor for the tolerances of the types
    if let Some(tolerance) = invocation.tolerance {
        hasher.field(b"tolerance").field(&tolerance.to_le_bytes());
    }
    Ok(JobIdentity {
        digest: tolerances.in_digest(hasher.finish()),
        key: CacheKey {
            call: invocation.call.clone(),
            direction: invocation.direction,
            device: device.identity.clone(),
        },
        baseline,
        same_as: shared_programs(invocation, baseline),
        not_lowered: NotLowered::of(invocation),
    })
}

/// The candidates of an invocation with programs of their own, recorded or built by the worker.
pub(super) fn own_programs(invocation: &Invocation) -> Vec<usize> {
    let baseline = invocation.candidates.iter().position(|candidate| candidate.config == invocation.baseline);
    let same_as = shared_programs(invocation, baseline.unwrap_or(0));
    same_as.iter().enumerate().filter(|(_, same)| same.is_none()).map(|(index, _)| index).collect()
}

fn shared_programs(invocation: &Invocation, baseline: usize) -> Vec<Option<usize>> {
    let digests = invocation.candidates.iter().map(|candidate| Some(candidate.program.as_ref()?.semantic_digest));
    same_programs(&digests.collect::<Vec<_>>(), baseline)
}

/// For each program the earlier one that is the same. The baseline represents its program; among the others the first
/// does.
pub(super) fn same_programs(digests: &[Option<Digest>], baseline: usize) -> Vec<Option<usize>> {
    let mut first: HashMap<Digest, usize> = HashMap::new();
    if let Some(digest) = digests.get(baseline).copied().flatten() {
        first.insert(digest, baseline);
    }
    let owner = |(index, digest): (usize, &Option<Digest>)| {
        let owner = *first.entry((*digest)?).or_insert(index);
        (owner != index).then_some(owner)
    };
    digests.iter().enumerate().map(owner).collect()
}

fn environment_text(device: &DeviceFingerprint) -> String {
    serde_json::to_string(&device.environment).unwrap_or_default()
}

/// A job with the candidates that cannot be part of it.
pub(crate) struct Materialized {
    /// The job.
    pub(crate) job: Job,
    /// Candidates whose programs are not what was recorded. Not for the sample log: the registry can be repaired.
    pub(crate) unusable: Vec<(usize, Failure)>,
}

/// A folder with an invocation's inputs, for one job after the other, until it is dropped.
pub(crate) struct InputFolder {
    scratch: Scratch,
    inputs: Vec<InputArray>,
}

impl InputFolder {
    /// Writes the inputs. The inner error costs this invocation, the outer one the run.
    pub(crate) fn new(invocation: &Invocation, registry: &Registry) -> Result<Result<Self, Failure>, TuneError> {
        let scratch = Scratch::new().map_err(|source| TuneError::Scratch { path: std::env::temp_dir(), source })?;
        let mut inputs = Vec::with_capacity(invocation.arguments.len());
        for (index, argument) in invocation.arguments.iter().enumerate() {
            let bytes = match registry.argument_bytes(invocation, index) {
                Ok(bytes) => bytes,
                Err(error) => return Ok(Err(Failure::new(FailureKind::Signature, error.to_string()))),
            };
            let path = scratch.path().join(format!("input-{index}.bin"));
            std::fs::write(&path, bytes).map_err(|source| TuneError::Scratch { path: path.clone(), source })?;
            let (name, spec) = (argument.name.clone(), argument.spec.clone());
            inputs.push(InputArray { name, spec, path, donated: argument.donated });
        }
        Ok(Ok(Self { scratch, inputs }))
    }
}

/// Checks the programs and makes a job of them.
pub(crate) fn materialize(
    invocation: &Invocation,
    registry: &Registry,
    cache_state: CacheState,
    input_folder: &InputFolder,
) -> Materialized {
    let checked: Vec<Result<Option<ProgramFile>, RegistryError>> = invocation
        .candidates
        .iter()
        .map(|candidate| {
            let check = |program: &Program| {
                registry.checked_program_path(program).map(|path| ProgramFile::new(path, program.clone()))
            };
            candidate.program.as_ref().map(check).transpose()
        })
        .collect();
    // the same program stored in other bytes replaces a damaged file
    let stand_in = |program: &Program| {
        let good = checked.iter().filter_map(|file| file.as_ref().ok()?.as_ref());
        good.into_iter().find(|file| file.program.semantic_digest == program.semantic_digest).cloned()
    };
    let (mut candidates, mut unusable) = (Vec::new(), Vec::new());
    for (index, (candidate, file)) in invocation.candidates.iter().zip(&checked).enumerate() {
        let program = match file {
            Ok(program) => program.clone(),
            Err(error) => {
                let other = candidate.program.as_ref().and_then(stand_in);
                if other.is_none() {
                    unusable.push((index, Failure::new(FailureKind::NoProgram, error.to_string())));
                }
                other
            }
        };
        candidates.push(JobCandidate::new(candidate.config.clone()).program(program));
    }
    let job = Job {
        call: invocation.call.clone(),
        direction: invocation.direction,
        inputs: input_folder.inputs.clone(),
        candidates,
        results: Vec::new(),
        recipe: invocation.static_arguments.get("recipe").cloned(),
        cache_state,
        scratch: input_folder.scratch.path().to_owned(),
    };
    Materialized { job, unusable }
}
