//! Compiles the candidates of a race, and drops those that do not compile.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::RaceError;
use super::expected::ExpectedOutputs;
use super::measuring::Measuring;
use crate::counted::counted;
use crate::failure::{Failure, FailureKind};
use crate::samples::ProgramFigures;
use crate::timer::Prepared;
use crate::timer::events::{EventKind, Phase};
use crate::timer::replay::RecordedMethod;

impl Measuring<'_> {
    /// Prepares a wave, beside the other calls' waves. Each candidate's outputs are compared with these while the next
    /// ones compile.
    pub(super) fn compile(&mut self, wave: &mut [usize], reference: Option<&ExpectedOutputs>) -> Result<(), RaceError> {
        self.compiling.slot.iter_mut().for_each(|slot| slot.work());
        let begin = Instant::now();
        self.in_phase(Phase::Compile, |this| this.prepare_all(wave, reference))?;
        let mut took = begin.elapsed();
        // from here on it has the machine to itself
        if let Some(slot) = &mut self.compiling.slot {
            let calls = slot.measure().max(1);
            self.compiling.beside = calls;
            self.process.events.tell(EventKind::CompiledBeside { calls });
            took /= u32::try_from(calls).unwrap_or(u32::MAX);
        }
        self.spent.compiling += took;
        Ok(())
    }

    /// Candidates to compile and measure next, which compete from now on; none if the rest is skipped.
    pub(super) fn next_wave(&mut self) -> Vec<usize> {
        let is_late = self.is_late(Instant::now());
        let calls = self.compiling.beside;
        let Some(waves) = self.compiling.waves.as_mut().filter(|_| !is_late) else { return Vec::new() };
        let mut wave = waves.next(self.evidence, self.referee.identity, calls);
        wave.retain(|&candidate| self.evidence.is_left(candidate));
        self.evidence.admit(&wave);
        wave
    }

    /// Whether no further program is compiled, because the rest of the time belongs to the rounds. A comparison needs
    /// all its programs, and so does a process that confirms.
    fn has_compiled_enough(&self, begin: Instant) -> bool {
        let needs_all = self.referee.terms.wants_each_ratio() || self.is_confirming();
        let budget = self.referee.options.budget.filter(|_| !needs_all);
        budget.is_some_and(|budget: Duration| self.spent.compiling + begin.elapsed() >= budget / 2)
    }

    pub(super) fn prepare_all(
        &mut self,
        order: &mut [usize],
        reference: Option<&ExpectedOutputs>,
    ) -> Result<(), RaceError> {
        let baseline = self.referee.identity.baseline;
        // the baseline first: without it nothing can be decided; then long programs, so that no core waits for one
        // started late
        order.sort_by_cached_key(|&candidate| (candidate != baseline, Reverse(self.program_bytes(candidate))));
        if let Err(failure) = self.process.timer.expect(order) {
            // it is unknown which of them broke it: from here on they are loaded one by one
            self.restart(&failure)?;
        }
        let before = self.compiling.tried;
        self.compiling.tried += order.len();
        let (begin, mut left) = (Instant::now(), Vec::new());
        for (done, &mut candidate) in order.iter_mut().enumerate() {
            self.process.check_cancelled()?;
            // the baseline and one more, or there is nothing to decide
            if done > 1 && self.has_compiled_enough(begin) {
                left.push(candidate);
                continue;
            }
            let slice = self.process.slice_of(candidate);
            self.prepare(candidate, before + done + 1)?;
            drop(slice);
            if let Some(reference) = reference {
                self.in_phase(Phase::CompareOutputs, |this| this.compare_outputs(&[candidate], reference))?;
            }
        }
        if !left.is_empty() {
            let left_of = counted(order.len(), "program");
            self.evidence.notes.push(format!(
                "{} of {left_of} were not compiled, because that took half of the time to choose: allow more",
                left.len()
            ));
            self.evidence.leave(left);
        }
        Ok(())
    }

    /// Length of a candidate's program, a proxy for its compile time; 0 if the worker builds it.
    fn program_bytes(&self, candidate: usize) -> u64 {
        let program = self.process.job.candidates.get(candidate).and_then(|candidate| candidate.program.as_ref());
        program.and_then(|program| program.path.metadata().ok()).map_or(0, |metadata| metadata.len())
    }

    /// Prepares a candidate and notes what is known of it, or drops it.
    fn prepare(&mut self, candidate: usize, done: usize) -> Result<(), RaceError> {
        let mut outcome = self.try_to_prepare(candidate);
        if let Err(failure) = &outcome
            && self.process.breaks(failure)
        {
            // a compiler must die twice before the candidate is blamed
            self.restart(failure)?;
            outcome = self.try_to_prepare(candidate);
        }
        match outcome {
            Ok(cost) => {
                self.note_prepared(candidate, cost, done);
                Ok(())
            }
            // a handler missing for one candidate is missing for all: it is the wrong worker; without a device, or
            // space for files, no candidate has run that could be to blame
            Err(failure) if matches!(failure.kind, FailureKind::CustomCall | FailureKind::Device) => {
                Err(RaceError::Failed(failure))
            }
            Err(failure) => self.blamed(candidate, self.referee.identity.not_lowered.explain(candidate, failure)),
        }
    }

    fn try_to_prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        let prepared = self.process.timer.prepare(candidate);
        let failure = prepared.as_ref().err();
        self.process.events.tell(EventKind::Called { candidate, method: RecordedMethod::Prepare, failure });
        prepared
    }

    fn note_prepared(&mut self, candidate: usize, cost: Prepared, done: usize) {
        if let Some(executable) = cost.executable {
            if self.referee.terms.joins_executables {
                self.evidence.join(candidate, executable);
            }
            self.evidence.executables.insert(candidate, executable);
        }
        let (is_baseline, of) = (candidate == self.referee.identity.baseline, self.compiling.tried);
        if !self.is_confirming() {
            self.process.events.tell(EventKind::Prepared { cost: &cost, is_baseline, done, of });
        }
        self.evidence.tell(ProgramFigures::new(candidate, cost.temporary_bytes, cost.work));
    }
}
