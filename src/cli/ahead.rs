//! Candidates that are compiled while others are lowered: standard input names them before the module.

use std::collections::BTreeSet;
use std::io::{BufRead, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};

use serde::Deserialize;

use crate::call::{Call, Direction};
use crate::failure::Failure;
use crate::registry::{Candidate, RegistryWriter};
use crate::timer::{Job, JobCandidate, ProgramFile, Timer};
use crate::tune::are_compiled_at_once;

use super::fault::Fault;

/// Maximum length of a line.
const MAX_LINE: u64 = 1 << 20;

/// A candidate of a record that is being made. They come in the record's order, the baseline first.
#[derive(Debug, Deserialize)]
pub(super) struct LoweredCandidate {
    #[serde(flatten)]
    call: Call,
    direction: Direction,
    /// How many the record will have.
    of: usize,
    candidate: Candidate,
}

/// Hands on the candidates to compile of those that standard input names, a line of JSON each, until an empty line or its
/// end: all of a few; of many, a search compiles those that it chooses, and always the baseline.
pub(super) fn read_candidates(named: &Sender<LoweredCandidate>) -> Result<(), Fault> {
    let mut input = std::io::stdin().lock();
    let wrong = |error: &dyn std::fmt::Display| Fault::input(format!("standard input: no candidate: {error}"));
    for index in 0.. {
        let mut line = String::new();
        (&mut input).take(MAX_LINE).read_line(&mut line).map_err(|error| wrong(&error))?;
        if line.trim().is_empty() {
            return Ok(());
        }
        let candidate: LoweredCandidate = serde_json::from_str(&line).map_err(|error| wrong(&error))?;
        if index == 0 || are_compiled_at_once(candidate.of.max(index + 1)) {
            // without a device nobody compiles it
            let _ = named.send(candidate);
        }
    }
    Ok(())
}

/// Lets a timer compile candidates in the background as they are named: for a job that has no inputs yet, so that it keeps
/// them for the one that has. What fails here is tried again there, and reported.
pub(super) fn compile_ahead(timer: &mut dyn Timer, named: Receiver<LoweredCandidate>, registry: &Path, scratch: &Path) {
    let (mut job, mut programs) = (None, BTreeSet::new());
    for LoweredCandidate { call, direction, candidate, .. } in named {
        let job = job.get_or_insert_with(|| Job::new(call.clone(), scratch).direction(direction));
        if job.call != call || job.direction != direction {
            return;
        }
        let file = candidate.program.and_then(|program| {
            let path =
                RegistryWriter::open(registry).and_then(|registry| registry.checked_program_path(&program)).ok()?;
            Some(ProgramFile::new(path, program))
        });
        let index = job.candidates.len();
        let is_new = file.as_ref().is_some_and(|file| programs.insert(file.program.semantic_digest));
        job.candidates.push(JobCandidate::new(candidate.config).program(file));
        if is_new && let Err(failure) = expect(timer, job, index) {
            tracing::debug!("candidate {index} is not compiled ahead: {}", failure.message);
            return;
        }
    }
}

fn expect(timer: &mut dyn Timer, job: &Job, candidate: usize) -> Result<(), Failure> {
    timer.begin(job)?;
    timer.expect(&[candidate])
}
