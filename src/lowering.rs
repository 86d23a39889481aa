//! Candidates lowered when they are needed: recorders lower them, and the registry keeps what they answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::counted::counted;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::registry::{Candidate, Invocation, Registry};
use crate::timer::{IsCancelled, Lowered, Recorders, ToLower, is_of_candidate};

/// Lowers the candidates that a call was recorded with, on demand.
pub struct Lowering {
    recorders: Recorders,
    calls: Mutex<BTreeMap<Digest, LoweredCall>>,
}

/// What is known of a recorded call by now.
struct LoweredCall {
    /// The whole of it, as the registry has it.
    invocation: Invocation,
    /// Whether the recorders make of the baseline what was recorded; if not, why none of their programs counts.
    agrees: Result<(), Failure>,
}

impl Lowering {
    /// By these recorders.
    pub fn new(recorders: Recorders) -> Self {
        Self { recorders, calls: Mutex::default() }
    }

    /// Lowers the open ones among the `wanted` candidates of a recorded call, several at once, and writes them into the
    /// registry. A candidate that cannot be lowered gets the reason; one that was not tried, because `is_cancelled`,
    /// stays open.
    ///
    /// # Errors
    /// If the recorders are at fault: none starts, its program is another one than recorded, or does not make this call.
    /// Nothing can be said about the candidates then.
    pub fn complete(
        &self,
        registry: &Registry,
        whole: &Invocation,
        wanted: &mut [Candidate],
        is_cancelled: IsCancelled<'_>,
    ) -> Result<(), Failure> {
        let key = whole.key();
        self.take_known(key, wanted);
        let open: Vec<usize> = wanted.iter().enumerate().filter(|(_, one)| one.is_open()).map(|(at, _)| at).collect();
        if open.is_empty() || is_cancelled() {
            return Ok(());
        }
        match self.agreement(key, whole, is_cancelled) {
            Some(agrees) => agrees?,
            None => return Ok(()),
        }
        let request = |&at: &usize| Some(to_lower(whole, &wanted.get(at)?.config));
        let requests: Vec<ToLower<'_>> = open.iter().filter_map(request).collect();
        let outcomes = self.recorders.lower(&whole.recorder, &requests, is_cancelled);
        let (mut lasting, mut at_fault) = (Vec::new(), None);
        for (at, outcome) in open.into_iter().zip(outcomes) {
            let (Some(candidate), Some(outcome)) = (wanted.get_mut(at), outcome) else { continue };
            match outcome.and_then(|lowered| stored(registry, lowered)) {
                Ok(Lowered::Program(program)) => candidate.program = Some(program),
                Ok(Lowered::NotLowered(reason)) => candidate.not_lowered = Some(reason),
                Err(failure) if is_of_candidate(&failure) => {
                    // the next run tries again
                    candidate.not_lowered = Some(failure.to_string());
                    continue;
                }
                Err(failure) => {
                    at_fault = at_fault.or(Some(failure));
                    continue;
                }
            }
            lasting.push(candidate.clone());
        }
        self.keep(registry, key, lasting);
        at_fault.map_or(Ok(()), Err)
    }

    /// Copies what is known of candidates.
    fn take_known(&self, key: Digest, wanted: &mut [Candidate]) {
        let calls = self.lock();
        let Some(call) = calls.get(&key) else { return };
        let known: BTreeMap<&Config, &Candidate> =
            call.invocation.candidates.iter().map(|candidate| (&candidate.config, candidate)).collect();
        for candidate in wanted.iter_mut().filter(|candidate| candidate.is_open()) {
            if let Some(&known) = known.get(&candidate.config) {
                *candidate = known.clone();
            }
        }
    }

    /// Whether the recorders still make the recorded program of the baseline: the kernel may have changed since. `None`
    /// if the user does not wait for the answer.
    fn agreement(&self, key: Digest, whole: &Invocation, is_cancelled: IsCancelled<'_>) -> Option<Result<(), Failure>> {
        if let Some(call) = self.lock().get(&key) {
            return Some(call.agrees.clone());
        }
        let agrees = self.lower_baseline(whole, is_cancelled)?;
        let call = LoweredCall { invocation: whole.clone(), agrees: agrees.clone() };
        self.lock().insert(key, call);
        Some(agrees)
    }

    fn lower_baseline(&self, whole: &Invocation, is_cancelled: IsCancelled<'_>) -> Option<Result<(), Failure>> {
        let recorded = whole.candidates.iter().find(|candidate| candidate.config == whole.baseline);
        let recorded = recorded.and_then(|candidate| candidate.program.as_ref());
        // without one there is nothing to compare with, here and in a race
        let Some(recorded) = recorded else { return Some(Ok(())) };
        let outcome = self.recorders.lower(&whole.recorder, &[to_lower(whole, &whole.baseline)], is_cancelled);
        let why = match outcome.into_iter().next().flatten()? {
            Ok(Lowered::Program(program)) if program.semantic_digest == recorded.semantic_digest => {
                return Some(Ok(()));
            }
            Ok(Lowered::Program(_)) => "the recorder makes another program of the baseline than was recorded".into(),
            Ok(Lowered::NotLowered(reason)) => format!("the recorder no longer lowers the baseline ({reason})"),
            Err(failure) if is_of_candidate(&failure) => {
                format!("the recorder no longer lowers the baseline ({failure})")
            }
            Err(failure) => return Some(Err(failure)),
        };
        Some(Err(Failure::new(FailureKind::NoProgram, format!("{why}: record again"))))
    }

    /// Notes candidates, and writes the call's record anew.
    fn keep(&self, registry: &Registry, key: Digest, lasting: Vec<Candidate>) {
        let mut calls = self.lock();
        let Some(call) = calls.get_mut(&key).filter(|_| !lasting.is_empty()) else { return };
        let before = call.invocation.clone();
        for candidate in lasting {
            let held = call.invocation.candidates.iter_mut().find(|held| held.config == candidate.config);
            held.into_iter().for_each(|held| *held = candidate.clone());
        }
        // without it, the next run lowers them again
        if let Err(error) = registry.writer().replace(&before, &call.invocation) {
            tracing::warn!("{}: what was lowered is not kept: {error}", before.call);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Digest, LoweredCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a recorder answered, if its program is in this registry.
fn stored(registry: &Registry, lowered: Lowered) -> Result<Lowered, Failure> {
    if let Lowered::Program(program) = &lowered
        && let Err(error) = registry.checked_program_path(program)
    {
        let message =
            format!("the recorder's program is not in this registry: {error}; run it in the folder where it recorded");
        return Err(Failure::new(FailureKind::NoProgram, message));
    }
    Ok(lowered)
}

fn to_lower<'a>(whole: &'a Invocation, config: &'a Config) -> ToLower<'a> {
    let (direction, target, recording) = (whole.direction, &whole.target, whole.lowering_recording());
    ToLower { call: &whole.call, direction, target, config, recording }
}

/// Says which calls have candidates that nobody lowers, because there is no recorder.
pub fn without_recorder<'a>(calls: impl Iterator<Item = &'a Invocation>) -> Option<String> {
    let (mut open, mut named) = (0, BTreeSet::new());
    for call in calls.filter(|call| call.is_lowered_on_demand()) {
        let of_call = call.candidates.iter().filter(|candidate| candidate.is_open()).count();
        open += of_call;
        if of_call > 0 {
            named.insert(call.call.to_string());
        }
    }
    let first = named.first()?;
    let others =
        if named.len() > 1 { format!(" and {}", counted(named.len() - 1, "other call")) } else { String::new() };
    Some(format!(
        "{} of {first}{others} are to be lowered on demand and are left out: name the command that recorded them with \
         `--recorder`",
        counted(open, "candidate")
    ))
}
