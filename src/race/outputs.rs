//! Rejects candidates whose outputs differ from the baseline's.

use crate::array::{ArraySpec, Finiteness, Reference};
use crate::counted::counted;
use crate::failure::{Failure, FailureKind};
use crate::hlo::{Program, read_program};
use crate::io_hint::io_hint;
use crate::measure::MAX_PROGRAM_BYTES;
use crate::outside_file;
use crate::timer::events::EventKind;
use crate::timer::protocol::ComparedOutput;
use crate::timer::replay::RecordedMethod;
use crate::timer::{OutputArray, OutputsAs, TakenOutputs, Timer, TimerExt};

use super::RaceError;
use super::expected::{ExpectedOutputs, LARGE_OUTPUTS};
use super::measuring::Measuring;

/// Outputs of this size mostly come from arguments that the operation is not made for.
const HUGE_RMS: f64 = 1e8;

/// The comparison of each output of a candidate, or why it cannot be read, and the outputs that are files.
type TakenComparison = (Vec<Result<ComparedOutput, String>>, Vec<OutputArray>);

impl Measuring<'_> {
    /// The baseline's outputs. All others are compared with them.
    pub(super) fn reference_outputs(&mut self) -> Result<ExpectedOutputs, RaceError> {
        let _reading = self.process.slice_of(self.referee.identity.baseline);
        let baseline = self.referee.identity.baseline;
        let taken = self.on_outputs(baseline, |timer| timer.outputs(baseline, OutputsAs::KeptAbove(LARGE_OUTPUTS)))?;
        let outputs = match taken.ok_or_else(|| self.baseline_failed())? {
            TakenOutputs::Kept(kept) => {
                self.read_sums(kept.iter().map(|output| &output.spec));
                let seen = kept.iter().enumerate();
                let seen = seen.filter_map(|(index, output)| Some((index, &output.spec, output.finiteness?))).collect();
                self.look_at(seen)?;
                self.keeps_outputs = true;
                return Ok(ExpectedOutputs::Kept(kept));
            }
            files => files.into_files().map_err(RaceError::Failed)?,
        };
        self.read_sums(outputs.iter().map(|output| &output.spec));
        // the baseline's files fitted, so a candidate's fit too: none is blamed for a full disk
        let reference: Vec<Reference> = outputs
            .into_iter()
            .enumerate()
            .map(|(index, output)| {
                let tolerance = self.bounds(index, &output.spec).tolerance();
                output.read().map(|bytes| Reference::new(output.spec, bytes, tolerance))
            })
            .collect::<Result<_, _>>()
            .map_err(|error| {
                let message = format!("the baseline's outputs cannot be read: {error}{}", io_hint(&error));
                RaceError::Failed(Failure::new(FailureKind::Device, message))
            })?;
        let seen = reference.iter().enumerate();
        self.look_at(seen.filter_map(|(index, output)| Some((index, output.spec(), output.finiteness()?))).collect())?;
        Ok(ExpectedOutputs::Here(reference))
    }

    /// Reads how long the baseline's sums in a narrow type are, if an output can show that.
    fn read_sums<'s>(&mut self, mut outputs: impl Iterator<Item = &'s ArraySpec>) {
        if outputs.any(|spec| spec.dtype.is_narrow_float()) && !self.referee.terms.by_tolerance_alone {
            self.narrow_sum = self.read_baseline(|program| program.longest_narrow_sum()).unwrap_or_default();
        }
    }

    /// Drops candidates of a wave whose outputs are not the baseline's.
    pub(super) fn compare_outputs(&mut self, wave: &[usize], expected: &ExpectedOutputs) -> Result<(), RaceError> {
        let active = self.active();
        let nothing_to_compare = self.nothing_to_compare(expected);
        for &candidate in wave.iter().filter(|&&candidate| candidate != self.referee.identity.baseline) {
            if !active.contains(&candidate) {
                continue;
            }
            if let Some(why) = nothing_to_compare.as_ref().filter(|_| self.is_other_program(candidate)) {
                return Err(RaceError::Failed(Failure::new(FailureKind::NoOutputs, why.clone())));
            }
            self.process.check_cancelled()?;
            let _slice = self.process.slice_of(candidate);
            let Some((found, files)) = self.take_compared(candidate, expected)? else { continue };
            let judged = self.judge(candidate, &found, &files, expected)?;
            self.evidence.differences.insert(candidate, judged.differences);
            self.evidence.reference_errors.insert(candidate, judged.errors);
            self.evidence.compared_by.extend(judged.by.map(|by| (candidate, by)));
            if let Some(wrong) = judged.wrong {
                self.fail(candidate, Failure::new(FailureKind::WrongOutput, wrong))?;
            }
        }
        Ok(())
    }

    /// A candidate's outputs compared with the baseline's, here or by the timer, and the files if they are here; `None`
    /// if the candidate is dropped.
    fn take_compared(
        &mut self,
        candidate: usize,
        expected: &ExpectedOutputs,
    ) -> Result<Option<TakenComparison>, RaceError> {
        match expected {
            ExpectedOutputs::Here(reference) => {
                let outputs = self.on_outputs(candidate, |timer| timer.output_files(candidate))?;
                Ok(outputs.map(|outputs| (compared_here(&outputs, reference), outputs)))
            }
            ExpectedOutputs::Kept(_) => {
                let bounds = expected.specs().enumerate().map(|(index, spec)| self.bounds(index, spec));
                let tolerances: Vec<_> = bounds.map(|bounds| bounds.tolerance()).collect();
                let compare = OutputsAs::Compared(&tolerances);
                let found = self.on_outputs(candidate, |timer| timer.outputs(candidate, compare)?.into_compared())?;
                Ok(found.map(|found| (found.into_iter().map(Ok).collect(), Vec::new())))
            }
        }
    }

    /// A candidate's outputs, or their comparison; `None` if it is dropped.
    fn on_outputs<T>(
        &mut self,
        candidate: usize,
        mut call: impl FnMut(&mut dyn Timer) -> Result<T, Failure>,
    ) -> Result<Option<T>, RaceError> {
        let events = self.process.events;
        self.try_twice(candidate, |timer| {
            let outputs = call(timer);
            let failure = outputs.as_ref().err();
            events.tell(EventKind::Called { candidate, method: RecordedMethod::Outputs, failure });
            outputs
        })
    }

    /// Notes what makes the baseline's outputs weak evidence, and fails if they are no evidence.
    fn look_at(&mut self, seen: Vec<(usize, &ArraySpec, Finiteness)>) -> Result<(), RaceError> {
        if !self.referee.terms.needs_finite
            && self.compares_programs()
            && let Some((index, spec, found)) = seen.iter().find(|(.., found)| found.finite == 0)
        {
            let what = if found.nan == found.elements { "NaN alone" } else { "nothing finite" };
            let message = format!(
                "output {index} of the baseline, `{spec}`, holds {what}, so another program with the same output \
                 proves nothing: {}",
                self.better_inputs()
            );
            return Err(RaceError::Failed(Failure::new(FailureKind::NotFinite, message)));
        }
        if self.referee.terms.needs_finite
            && let Some(message) = seen.iter().find_map(|(index, spec, found)| refusal(*index, spec, found))
        {
            return Err(RaceError::Failed(Failure::new(FailureKind::NotFinite, message)));
        }
        let found: Vec<(usize, Finiteness)> = seen.iter().map(|(index, _, found)| (*index, *found)).collect();
        self.evidence.notes.extend(weaknesses(&found, self.better_inputs()));
        if !seen.is_empty() && seen.iter().all(|(.., found)| found.finite == found.elements && found.rms == 0.0) {
            self.evidence
                .notes
                .push("every output of the baseline is zero, like those of a program that does nothing".into());
        }
        Ok(())
    }

    /// How to give the arguments values inside the domain of what is measured.
    fn better_inputs(&self) -> &'static str {
        match self.referee.terms.wants_each_ratio() {
            // a whole program
            true => {
                "give real values with `--inputs DIR`, which `autotune_lowered.capture` writes, or plausible ones, \
                 such as `--fill ARGUMENT=ones`"
            }
            false => {
                "record the call with the values that it has in use (run it eagerly once, or with \
                 `capture_values=True`)"
            }
        }
    }

    /// Why outputs without a single element are no evidence, unless the recorded program has no results.
    fn nothing_to_compare(&self, expected: &ExpectedOutputs) -> Option<String> {
        if expected.elements() > 0 || self.process.timer.info().can.skip_outputs {
            return None;
        }
        let results = self.read_baseline(|program| program.has_results()).flatten();
        let why = match results {
            Some(false) if expected.len() == 0 => return None,
            Some(false) => "its recorded program has no results",
            Some(true) => "its recorded program has results",
            None => "nothing recorded says that its program has no results",
        };
        let found = match expected.len() {
            0 => "the timer gives no outputs of the baseline".to_owned(),
            count => format!("{} of the baseline without an element", counted(count, "output")),
        };
        Some(format!(
            "{found}, and {why}: there is nothing to compare, so nothing is decided; a worker answers `outputs` with \
             every result of the program (docs/worker-protocol.md)"
        ))
    }

    /// What the baseline's recorded program says, if there is one that can be read.
    fn read_baseline<T>(&self, read: impl FnOnce(&Program<'_>) -> T) -> Option<T> {
        let baseline = self.process.job.candidates.get(self.referee.identity.baseline);
        let recorded = baseline.and_then(|baseline| baseline.program.as_ref())?;
        // bytes that cannot be read say nothing
        let bytes = outside_file::bytes(&recorded.path, MAX_PROGRAM_BYTES).ok()?;
        read_program(&bytes, "the baseline's program").ok().as_ref().map(read)
    }

    /// Whether any candidate runs another program than the baseline. Copies of one program need no comparison.
    fn compares_programs(&self) -> bool {
        let others = self.active().into_iter().filter(|&candidate| candidate != self.referee.identity.baseline);
        others.into_iter().any(|other| self.is_other_program(other))
    }

    /// Whether a candidate runs another program than the baseline, or may.
    fn is_other_program(&self, candidate: usize) -> bool {
        let program = |candidate: usize| {
            let program = self.process.job.candidates.get(candidate).and_then(|candidate| candidate.program.as_ref());
            program.map(|file| file.program.semantic_digest)
        };
        let options = |candidate: usize| {
            let build = self.process.job.candidates.get(candidate).map(|candidate| &candidate.build);
            build.map(|build| (&build.options, &build.process))
        };
        let baseline = self.referee.identity.baseline;
        let own = program(candidate);
        own.is_none() || own != program(baseline) || options(candidate) != options(baseline)
    }
}

/// Why an output of a whole program's baseline prevents a decision, if it is not finite throughout.
fn refusal(index: usize, spec: &ArraySpec, found: &Finiteness) -> Option<String> {
    let others = found.elements.saturating_sub(found.finite);
    (others > 0).then(|| {
        format!(
            "output {index} of the baseline, `{spec}`, has {others} of {} elements that are NaN or infinite, so \
             nothing is decided: give the arguments values of a real run (`--inputs DIR`), or plausible ones (`--fill \
             ARGUMENT=uniform:0,1e-4`)",
            found.elements
        )
    })
}

/// Why outputs of the baseline seem unlike those of an operation in real use, one line for all of them.
fn weaknesses(found: &[(usize, Finiteness)], better: &str) -> Vec<String> {
    let is_broken = |found: &Finiteness| found.nan > 0 || found.finite < found.elements / 2;
    let broken: Vec<_> = found.iter().filter(|(_, found)| is_broken(found)).collect();
    let huge: Vec<_> = found.iter().filter(|(_, found)| !is_broken(found) && found.rms > HUGE_RMS).collect();
    let others = |of: &[_]| match of.len() {
        0 | 1 => String::new(),
        more => format!(", and {} alike", counted(more - 1, "other output")),
    };
    let broken_line = broken.first().map(|(index, Finiteness { elements, finite, .. })| {
        format!(
            "{finite} of the {elements} elements of the baseline's output {index} are finite{}; the rest is equal \
             only by being NaN or infinite in the same places: {better}",
            others(&broken)
        )
    });
    let huge_line = huge.first().map(|(index, Finiteness { rms, .. })| {
        format!(
            "the baseline's output {index} is huge, {rms:.1e} in the root mean square{}: perhaps the values are \
             outside the operation's domain; {better}",
            others(&huge)
        )
    });
    broken_line.into_iter().chain(huge_line).collect()
}

/// Compares outputs with those that this process holds, one at a time; an error for each that cannot be read.
pub(super) fn compared_here(outputs: &[OutputArray], reference: &[Reference]) -> Vec<Result<ComparedOutput, String>> {
    let compared = |(index, output): (usize, &OutputArray)| {
        let reference = reference.get(index).filter(|reference| *reference.spec() == output.spec);
        // an array of another spec is not read
        let Some(reference) = reference else { return Ok(ComparedOutput::of(output.spec.clone(), &[], None)) };
        let bytes = output.read().map_err(|error| format!("output {index} cannot be read: {error}"))?;
        Ok(ComparedOutput::of(output.spec.clone(), &bytes, Some(reference)))
    };
    outputs.iter().enumerate().map(compared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{DType, Tolerance};

    #[test]
    fn many_outputs_that_prove_little_are_one_line_that_says_what_to_do() {
        let found = |nan: u64, rms: f64| -> Finiteness {
            let value = serde_json::json!({"elements": 192, "finite": 192 - nan, "nan": nan, "rms": rms});
            serde_json::from_value(value).unwrap()
        };
        let mut outputs = vec![(0, found(0, 1.0)), (1, found(80, 1.0)), (2, found(0, 1e9))];
        outputs.extend((3..26).map(|index| (index, found(80, 1.0))));
        let lines = weaknesses(&outputs, "give real values");
        let [broken, huge] = &lines[..] else { panic!("{lines:?}") };
        assert!(broken.contains("112 of the 192 elements of the baseline's output 1 are finite"), "{broken}");
        assert!(broken.contains("23 other outputs") && broken.ends_with(": give real values"), "{broken}");
        assert!(huge.contains("output 2 is huge, 1.0e9") && !huge.contains("other output"), "{huge}");
        assert!(weaknesses(&outputs[..1], "give real values").is_empty());
    }

    #[test]
    fn a_whole_program_is_refused_for_one_nan() {
        let spec = ArraySpec::new(DType::F32, [3]);
        let look = |values: [f32; 3]| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let reference = Reference::new(spec.clone(), bytes, Tolerance::EXACT);
            refusal(2, &spec, &reference.finiteness().unwrap())
        };
        assert_eq!(look([0.0, 1.0, -1.0]), None);
        for value in [f32::NAN, f32::INFINITY] {
            let message = look([0.0, value, 1.0]).unwrap();
            assert!(
                message.contains("output 2 of the baseline, `f32[3]`, has 1 of 3") && message.contains("--fill"),
                "{message}"
            );
        }
    }
}
